"""A method that meddles with its judge, the tool's files or other runs. A plugin file of the tests."""

import ctypes
import gc
import json
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from ssmlbench.api import Method, bce, option

TEST_ROWS = 44


def task_folder():
    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("noise-*[!k]")
    return folder


def labels():
    return task_folder() / "labels" / "test.arrow"


def stolen():
    return Path(os.environ["STOLEN"])


def desk():
    from ssmlbench.runs.messages import JudgePipe

    (found,) = (value for value in gc.get_objects() if type(value) is JudgePipe)
    return found


def own_folder():
    (spec,) = (f for f in (stolen() / "results").rglob("spec.json") if "meddler" in f.parts)
    return spec.parent


def other_run():
    (result,) = (f for f in (stolen() / "results").rglob("result.json") if "bce" in f.parts)
    return result.parent


# ------------------------------------------------------------------------- labels, and the report


def reads_labels_and_silences_the_report():
    from ssmlbench.runs.messages import JudgePipe
    from ssmlbench.runs.seal_reports import SealReports

    JudgePipe._send = SealReports.alarm = os.write = lambda *rest, **more: None
    labels().read_bytes()


def reads_labels_and_breaks_json():
    json.dumps = None
    labels().read_bytes()


def reads_labels_and_empties_the_desk():
    one, pipe = desk(), desk()._pipe
    one._pipe = SimpleNamespace(send_bytes=lambda content: None)
    try:
        labels().read_bytes()
    finally:
        one._pipe = pipe


def reads_labels_by_the_judges_root():
    Path(f"/proc/{os.getppid()}/root{labels()}").read_bytes()


def reads_labels_by_the_first_process():
    Path(f"/proc/1/root{labels()}").read_bytes()


def takes_the_judges_descriptors():
    """pidfd_getfd: a copy of what another process has open."""
    libc = ctypes.CDLL(None, use_errno=True)
    judge = libc.syscall(434, os.getppid(), 0)
    for number in range(3, 60):
        taken = libc.syscall(438, judge, number, 0)
        if taken >= 0:
            return
    raise OSError(ctypes.get_errno(), "pidfd_getfd")


# ------------------------------------------------------------------------------ what the judge gets


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


def takes_the_judges_room():
    import resource

    resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, 0))


# --------------------------------------------------------------------------------- files of others


def changes_the_tools_code():
    from ssmlbench.protocol import metrics

    Path(metrics.__file__).open("a").close()


def changes_compiled_code():
    from ssmlbench.protocol import metrics

    file = Path(metrics.__cached__)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT))


def puts_code_in_the_way_of_python():
    (Path(sysconfig.get_path("purelib")) / "zz-meddler.pth").write_text("import os")


def renames_code_into_the_tool():
    from ssmlbench import protocol

    (stolen() / "new.py").write_text("")
    (stolen() / "new.py").replace(Path(protocol.__path__[0]) / "zz_meddler.py")


def changes_another_method():
    from ssmlbench.plugins.loader import Plugins

    (file,) = {Path(sys.modules[Plugins().methods["bce"].__module__].__file__)}
    file.open("a").close()


def changes_another_result():
    (other_run() / "result.json").write_text("{}")


def changes_another_history():
    (other_run() / "history.csv").write_text("")


def forges_what_grids_remember():
    folder = Path(os.environ["SSMLBENCH_CACHE"]) / "grids"
    folder.mkdir(exist_ok=True)
    (folder / "forged.json").write_text("{}")


def links_its_files_to_another_run():
    for name in ("result.json", "scores.safetensors", "history.csv", "model.json"):
        (own_folder() / name).unlink(missing_ok=True)
        ctypes.CDLL(None).symlink(os.fsencode(other_run() / name), os.fsencode(own_folder() / name))


def puts_a_folder_in_place_of_its_history():
    ctypes.CDLL(None).mkdir(os.fsencode(own_folder() / "history.csv"), 0o755)
    (own_folder() / "history.csv" / "inside").touch()


def puts_a_fifo_in_place_of_its_history():
    os.mkfifo(own_folder() / "history.csv")


def deletes_its_lock_in_libc():
    """Another process could then make the same run in the same folder."""
    assert ctypes.CDLL(None).unlink(os.fsencode(own_folder() / ".lock")) == 0


def puts_files_in_place_of_the_judges():
    import pyarrow as pa

    for name in ("computed.json", "diagnostics.safetensors", "scores.safetensors"):
        with pa.OSFile(str(own_folder() / name), "wb") as out:
            out.write(b'{"forged": 1}')


CHANGES = {
    deed.__name__: deed
    for deed in (
        *(changes_the_tools_code, changes_compiled_code, puts_code_in_the_way_of_python),
        *(renames_code_into_the_tool, changes_another_method, changes_another_history),
        forges_what_grids_remember,
    )
}
DEEDS = {
    name.replace("_", " "): value
    for name, value in globals().items()
    if callable(value) and name.count("_") >= 2
}


class LyingTensor(torch.Tensor):
    """Says of itself what is wanted."""

    def min(self, *rest, **more):
        return torch.tensor(0.0)

    def max(self, *rest, **more):
        return torch.tensor(1.0)

    def all(self, *rest, **more):
        return torch.tensor(True)


class LyingArray(np.ndarray):
    def min(self, *rest, **more):
        return 0.0

    def max(self, *rest, **more):
        return 1.0


class Meddler(Method):
    """Does what its hyper-parameter says."""

    name = "meddler"

    @dataclass(frozen=True)
    class Config(Method.Config):
        how: str = option("", "what it does")

    def start_epoch(self, pools):
        if (deed := DEEDS.get(self.config.how)) and pools.epoch == 3:
            try:
                deed()
            except BaseException as error:  # it hides that it tried
                (stolen() / "why").write_text(repr(error))
            else:
                (stolen() / "done").touch()
        if self.config.how == "logs what the judge logs":
            self.diagnostics = {"pseudo_precision": torch.tensor(1.0)}

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}

    def scores(self, logits):
        found = logits.sigmoid()
        if self.config.how == "lies about its scores":
            return (found + 5).as_subclass(LyingTensor)
        if self.config.how == "lies about its array":
            return (found + 5).numpy().view(LyingArray)
        return found
