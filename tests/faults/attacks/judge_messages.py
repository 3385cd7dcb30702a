"""What a training process sends to its judge, past the checks."""

import gc
import json
import os
from pathlib import Path

import numpy as np

from tests.faults.attacks.places import TEST_ROWS, stolen


def desk():
    """The object through which this process asks its judge."""
    from ssmlbench.runs.messages import JudgePipe

    (found,) = (value for value in gc.get_objects() if type(value) is JudgePipe)
    return found


def writes_to_every_descriptor():
    """A pickle, where a pipe would take one."""
    content = b"cos\nsystem\n(S'touch %s/pickled'\ntR." % os.fsencode(stolen())
    for file in Path("/proc/self/fd").iterdir():
        try:
            if str(file.readlink()).startswith(("pipe:", "socket:")) and int(file.name) > 2:
                os.write(int(file.name), len(content).to_bytes(4, "big") + content)
        except OSError:
            continue


def sends_a_mask_that_is_too_large():
    with desk()._lock:
        for part in ({"type": "grade", "epoch": 1, "shapes": [[200_000, 200_000]] * 2}, b"x", b"x"):
            content = part if isinstance(part, bytes) else json.dumps(part).encode()
            desk()._pipe.send_bytes(content)


def hands_in_what_was_not_checked():
    desk().hand_in(3, np.full((80, 4), 5, np.float32), np.full((TEST_ROWS, 4), np.nan, np.float32))


def hands_in_fewer_rows():
    half = np.full((TEST_ROWS // 2, 4), 0.5, np.float32)
    desk().hand_in(3, np.full((80, 4), 0.5, np.float32), half)
