"""`python -m tests.fuzz [TARGET ...] --seconds 60`: each parser for so long, one after the other.

With atheris (coverage-guided, `pip install atheris`) where it is installed, else with hypothesis. What
breaks a parser is written to --found: put it into tests/fuzz/corpus/TARGET, and mend the parser.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
INPUT_SECONDS = 20
"""One input may take so long."""
MEMORY_MB = 4096
LARGEST = 20_000
"""Bytes of an input."""


def main() -> int:
    """Fuzz every target in a process of its own; 1 if something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    typed = parser.parse_args()
    found = typed.found.absolute()
    if typed.one:
        one = with_atheris if find_spec("atheris") else with_hypothesis
        return one(typed.targets[0], typed.seconds, found)
    from tests.fuzz.targets import TARGETS

    broken = []
    for name in typed.targets or TARGETS:
        (found / name).mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--found", str(found)]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--seconds", str(typed.seconds)],
            capture_output=True,
            text=True,
            errors="replace",
        )
        lines = (done.stdout + done.stderr).strip().splitlines()
        last = next((line for line in reversed(lines) if line.startswith(("Done", "tried"))), "")
        print(f"{name}: {last or 'BROKEN'}, {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
        if done.returncode:
            broken.append(name)
            print("\n".join(lines[-40:]), flush=True)  # noqa: T201
    return 1 if broken else 0


def with_atheris(name: str, seconds: int, found: Path) -> int:
    """Guided by the coverage of this package's code."""
    import atheris

    with atheris.instrument_imports(include=["ssmlbench", "csv", "json", "tomllib"]):
        from tests.fuzz.targets import TARGETS, attack
    from tests.fuzz.edits import TOKENS

    target = TARGETS[name]
    scratch = Path(tempfile.mkdtemp())
    words, seeds, grown = scratch / "words", scratch / "seeds", found / f"{name}-corpus"
    for folder in (seeds, grown, scratch / "work"):
        folder.mkdir(parents=True, exist_ok=True)
    words.write_text("".join(f'"{escaped(t)}"\n' for t in TOKENS if len(t) < 60))
    for number, content in enumerate(target.seeds()):
        (seeds / str(number)).write_bytes(content)
    kept = [str(folder) for folder in (CORPUS / name, seeds) if folder.is_dir()]

    def one(content: bytes) -> None:
        attack(target, content, scratch / "work")

    flags = [
        f"-max_total_time={seconds}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LARGEST}",
        f"-dict={words}",
        f"-artifact_prefix={found / name}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *flags, str(grown), *kept], one)
    atheris.Fuzz()  # ends the process
    return 0


def escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


def with_hypothesis(name: str, seconds: int, found: Path) -> int:
    """Random edits of the good contents, in rounds until the time is over."""
    from tests.fuzz.rounds import Broken, fuzz_for
    from tests.fuzz.targets import TARGETS

    with tempfile.TemporaryDirectory() as scratch:
        try:
            tried = fuzz_for(TARGETS[name], seconds, Path(scratch), seed=os.getpid())
        except Broken as broken:
            (found / name / "broken").write_bytes(broken.content)
            raise broken.cause from None
    print(f"tried {tried:,} contents")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
