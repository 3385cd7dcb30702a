"""`python -m tests.fuzz [TARGET ...] --seconds 60`: each parser for so long, one after the other.

With atheris (coverage-guided, `pip install atheris`) if it is installed; else, or with --hypothesis, with
hypothesis. What breaks a parser is written to --found: put it into tests/fuzz/corpus/TARGET, and mend the
parser. The contents that atheris found worth keeping stay there too, and the next call goes on from them;
each call adds its lines to record.csv. --keep adds both to tests/fuzz/kept, for other machines.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

from tests.fuzz.kept import add_time, keep, kept_contents

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
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--hypothesis", action="store_true", help="also where atheris is installed")
    typed = parser.parse_args()
    found = typed.found.absolute()
    guided = find_spec("atheris") is not None and not typed.hypothesis
    names = load(guided)
    broken = []
    for name in typed.targets or names:
        (found / name).mkdir(parents=True, exist_ok=True)
        log = found / f"{name}.log"
        failed, spent = in_a_child(
            partial(with_atheris if guided else with_hypothesis, name, typed.seconds, found), log
        )
        text = log.read_text(errors="replace")
        line = f"{name},{spent:.0f},{','.join(map(str, counts(text)))},{'broken' if failed else ''}"
        show(line)
        with (found / "record.csv").open("a") as record:
            record.write(f"{line}\n")
        if typed.keep and guided:
            grown = (found / f"{name}-corpus").glob("*")
            keep(name, [file.read_bytes() for file in grown])
            add_time(name, round(spent), counts(text)[0])
        if failed:
            broken.append(name)
            show("\n".join(text.splitlines()[-30:]))
    return 1 if broken else 0


def counts(log: str) -> tuple[int, int, int]:
    """Contents that were tried, and atheris's count of what they covered at the start and at the end."""
    tried = re.findall(r"^(?:Done|tried|#)\W*([\d,]+)", log, re.MULTILINE)
    covered = [int(number) for number in re.findall(r"[A-Za-z] +cov: (\d+)", log)] or [0]
    return (
        max((int(number.replace(",", "")) for number in tried), default=0),
        covered[0],
        covered[-1],
    )


def show(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def load(guided: bool) -> list[str]:
    """Import what is fuzzed, once for all targets, with counters in it for atheris."""
    if not guided:
        from tests.fuzz.targets import TARGETS

        return list(TARGETS)
    import atheris

    with atheris.instrument_imports(include=["ssmlbench", "csv", "json", "tomllib"]):
        from tests.fuzz.targets import TARGETS
    for function in functions_of_data_sets():
        atheris.instrument_func(function)
    return list(TARGETS)


def functions_of_data_sets() -> set[FunctionType]:
    """The functions in the files of the built-in data sets, which are loaded as plugins are."""
    from tests.fuzz.raw_files import FILES, adapter_of

    found = set()
    for adapter in map(adapter_of, FILES):
        names = {**vars(sys.modules[adapter.__module__]), **vars(adapter)}
        for value in names.values():
            function = getattr(value, "fget", None) or getattr(value, "func", value)
            if isinstance(function, FunctionType) and function.__module__ == adapter.__module__:
                found.add(function)
    return found


def in_a_child(work: Callable[[], None], log: Path) -> tuple[bool, float]:
    """Do the work in a child, which writes to the log; whether it failed, and its processor seconds."""
    child = os.fork()
    if child == 0:
        with log.open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    return status != 0, used.ru_utime + used.ru_stime


def with_atheris(name: str, seconds: int, found: Path) -> None:
    """Guided by the coverage of this package's code."""
    import atheris

    from tests.fuzz.attack import attack
    from tests.fuzz.edits import TOKENS
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    scratch = Path(tempfile.mkdtemp())
    words, seeds, grown = scratch / "words", scratch / "seeds", found / f"{name}-corpus"
    for folder in (seeds, grown, scratch / "work"):
        folder.mkdir(parents=True, exist_ok=True)
    tokens = {token for token in TOKENS if len(token) < 60}
    for number, content in enumerate([*target.seeds(), *kept_contents(name)]):
        (seeds / str(number)).write_bytes(content)
        tokens.update(re.findall(rb"[@<]?\w{2,30}", content))
    words.write_text("".join(f'"{escaped(token)}"\n' for token in sorted(tokens)))
    kept = [str(folder) for folder in (CORPUS / name, seeds) if folder.is_dir()]

    def one(content: bytes) -> None:
        try:
            attack(target, content, scratch / "work")
        except Exception:  # atheris keeps the contents of crashes only
            (found / name / "broken").write_bytes(content)
            raise

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


def escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


def with_hypothesis(name: str, seconds: int, found: Path) -> None:
    """Random edits of the good contents, in rounds until the time is over."""
    from tests.fuzz.rounds import Broken, fuzz_for
    from tests.fuzz.targets import TARGETS

    with tempfile.TemporaryDirectory() as scratch:
        try:
            tried = fuzz_for(TARGETS[name], seconds, Path(scratch), seed=os.getpid())
        except Broken as broken:
            (found / name / "broken").write_bytes(broken.content)
            raise broken.cause from None
    show(f"tried {tried:,} contents")


if __name__ == "__main__":
    sys.exit(main())
