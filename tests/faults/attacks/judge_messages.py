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


def _reports(**changes):
    """Have the last message say something else of every epoch."""
    send = desk()._send

    def changed(message, *arrays):
        if message["type"] == "report":
            message["history"] = [row | changes for row in message["history"]]
        send(message, *arrays)

    desk()._send = changed


def reports_seconds_that_are_no_number():
    _reports(seconds=float("nan"))


def reports_less_than_no_memory():
    _reports(peak_memory_mb=-1.0)


def reports_a_formula_as_a_phase():
    _reports(phase='=HYPERLINK("http://x")')


def reports_a_text_as_a_number():
    _reports(own="@SUM(1)")


def sends_an_event_without_fields():
    desk()._send({"type": "event", "event": "Warned", "values": []})


def reports_one_epoch_three_times():
    _reports(epoch=1)


def reports_thousands_of_columns():
    _reports(**{f"column {number}": number for number in range(5_000)})


def grades_an_epoch_that_there_is_not():
    every = np.ones((40, 4), bool)
    desk().grade(7, every, every)


def records_an_epoch_that_there_is_not():
    desk().record(-3, np.zeros((80, 2), np.float32), None, None)


def hands_in_an_epoch_of_its_choice():
    half = np.full((TEST_ROWS, 4), 0.5, np.float32)
    desk().hand_in(1, np.full((80, 4), 0.5, np.float32), half)


def hands_in_weights_of_other_labels():
    desk().hand_in_weights(np.full((3, 0), np.nan, np.float32))


def hands_in_fewer_rows():
    half = np.full((TEST_ROWS // 2, 4), 0.5, np.float32)
    desk().hand_in(3, np.full((80, 4), 0.5, np.float32), half)
