"""Misdeeds of a method that is not after labels: wrong scores, crashes, hangs, forged results."""

import ctypes
import json
import os
import sys
import time

import numpy as np
import torch

from tests.faults.attacks.places import stolen


def forge(native=False):
    """Write a perfect result, with its checksum, into the folder of this run."""
    import pyarrow as pa

    from ssmlbench.core.checksums import with_checksum

    (spec,) = (f for f in stolen().rglob("spec.json") if "cheat" in f.parts)
    metrics = {"threshold": {"default": {"map": 1.0}}}
    forged = with_checksum({"version": 3, "spec": json.loads(spec.read_text()), "metrics": metrics})
    file, content = spec.with_name("result.json"), json.dumps(forged).encode()
    if native:
        with pa.OSFile(str(file), "wb") as out:
            out.write(content)
    else:
        file.write_bytes(content)


def one_cell(scores, value):
    scores = scores.clone()
    scores[-1, -1] = value
    return scores


WRONG_SCORES = {
    "one NaN": lambda scores: one_cell(scores, float("nan")),
    "one infinity": lambda scores: one_cell(scores, float("inf")),
    "one above 1": lambda scores: one_cell(scores, 1.0001),
    "one below 0": lambda scores: one_cell(scores, -1e-6),
    "a row too few": lambda scores: scores[1:],
    "transposed": lambda scores: scores.T,
    "texts": lambda scores: np.full(tuple(scores.shape), "high"),
    "nothing": lambda scores: None,
    "a list of lists": lambda scores: [[{}] * scores.shape[1]] * len(scores),
}


def exits(cheat):
    sys.exit(0)


def exits_at_once(cheat):
    os._exit(0)


def crashes(cheat):
    ctypes.string_at(0)


def is_killed(cheat):
    os.kill(os.getpid(), 9)


def hangs(cheat):
    time.sleep(600)


def takes_all_memory(cheat):
    raise MemoryError("no room for 800 GB")


def raises_no_exception(cheat):
    raise KeyboardInterrupt


def leaves_a_child(cheat):
    """The child has the pipe to the judge too."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)


def leaves_a_daemon(cheat):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os._exit(0)


def closes_every_file(cheat):
    os.closerange(3, 200)
    time.sleep(600)


def says_half_of_it(cheat):
    message = b'{"type": "grade", "epoch": 1, "shapes": [[2, 2], [2, 2]]}'
    cheat.to_judge(message, two_way_only=True)
    time.sleep(600)


def lies_to_the_judge(cheat):
    cheat.to_judge(b"\x80\x04cos\nsystem\n(S'true'\ntR.")


def asks_twice(cheat):
    cheat.ask_twice()


def writes_a_result(cheat):
    forge()


def writes_a_result_natively(cheat):
    forge(native=True)
    os._exit(0)


def writes_a_result_and_kills_the_judge(cheat):
    forge(native=True)
    os.kill(os.getppid(), 9)
    time.sleep(600)


def changes_the_process(cheat):
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    torch.backends.mkldnn.set_flags(False)


def changes_modules(cheat):
    sys.modules["numpy"] = sys.modules["json"] = None
    sys.modules["ssmlbench.protocol.judge"] = sys
    os.environ.clear()
    os.environ["SSMLBENCH_CACHE"] = "/nowhere"
    np.isfinite = np.asarray = lambda *rest, **more: None


DEEDS = {
    deed.__name__.replace("_", " "): deed
    for deed in (
        *(exits, exits_at_once, crashes, is_killed, hangs, takes_all_memory, raises_no_exception),
        *(leaves_a_child, leaves_a_daemon, closes_every_file, says_half_of_it, lies_to_the_judge),
        *(asks_twice, writes_a_result, writes_a_result_natively, changes_the_process),
        *(writes_a_result_and_kills_the_judge, changes_modules),
    )
}
