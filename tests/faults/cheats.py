"""A data set and a method that cheats in the way its hyper-parameter names. A plugin file of the tests."""

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ssmlbench.api import DatasetAdapter, Method, PublishedStatistics, Row, bce, option

TEST_ROWS, LABELS = 44, 4


class Noise(DatasetAdapter):
    """Vectors that say nothing about their labels: a good score is a stolen one."""

    name, kind, backbone = "noise", "vector", "vector"
    published = PublishedStatistics("nobody", train=800, test=TEST_ROWS, labels=LABELS)

    def label_names(self):
        return ["a", "b", "c", "d"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for _ in range({"train": 80, "test": TEST_ROWS}[split]):
            labels = tuple(k for k in range(LABELS) if random.random() < 0.4)
            yield Row(random.normal(size=8).astype(np.float32), labels)


def task_folder() -> Path:
    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("noise-*[!k]")
    return folder


def label_bytes(content: bytes) -> np.ndarray:
    """The labels in the bytes of an Arrow file of lists."""
    import pyarrow as pa

    lists = pa.ipc.open_stream(content).read_all()["labels"].combine_chunks()
    return matrix(lists.to_pylist())


def matrix(lists) -> np.ndarray:
    truth = np.zeros((len(lists), LABELS))
    for row, labels in enumerate(lists):
        truth[row, labels] = 1
    return truth


def looks_like_truth(value) -> bool:
    shape = tuple(getattr(value, "shape", ()))
    if shape not in ((TEST_ROWS, LABELS), (80, LABELS)):
        return False
    values = np.asarray(value).astype(float)
    return set(np.unique(values)) == {0.0, 1.0}


def from_memory():
    """Walk everything that the garbage collector and the frames know."""
    frame, seen = sys._getframe(), []
    while frame is not None:
        seen += frame.f_locals.values()
        frame = frame.f_back
    todo = [*seen, *gc.get_objects()]
    for value in todo:
        for part in (value, *gc.get_referents(value)):
            if isinstance(part, np.ndarray | torch.Tensor) and looks_like_truth(part):
                return np.asarray(part)[:TEST_ROWS]
    raise LookupError


def from_file():
    return label_bytes((task_folder() / "labels" / "test.arrow").read_bytes())


def from_descriptor():
    file = os.open(task_folder() / "labels" / "test.arrow", os.O_RDONLY)
    return label_bytes(os.read(file, 1 << 20))


def from_renamed():
    (task_folder() / "labels").rename(task_folder() / "other")
    return label_bytes((task_folder() / "other" / "test.arrow").read_bytes())


def from_link():
    link = Path(os.environ["STOLEN"]) / "link"
    os.link(task_folder() / "labels" / "test.arrow", link)
    return label_bytes(link.read_bytes())


def from_loader():
    from ssmlbench.data import Task

    return Task(task_folder()).truth("test").astype(float)


def from_card():
    import json

    prior = json.loads((task_folder() / "card.json").read_text())["positives"]["test"]
    return np.tile(np.array(prior) / TEST_ROWS, (TEST_ROWS, 1))


def from_adapter():
    return matrix([row.labels for row in Noise().rows("test")])


def from_other_runs():
    from safetensors.numpy import load

    (file, *_) = Path(os.environ["STOLEN"]).rglob("scores.safetensors")
    return load(file.read_bytes())["truth"].astype(float)


def from_memory_map():
    return label_bytes(bytes(np.memmap(task_folder() / "labels" / "test.arrow", mode="r")))


def from_native_code():
    import pyarrow as pa

    with pa.memory_map(str(task_folder() / "labels" / "test.arrow")) as mapped:
        return label_bytes(mapped.read())


def from_program():
    file = task_folder() / "labels" / "test.arrow"
    return label_bytes(subprocess.run(["cat", file], capture_output=True, check=True).stdout)


def from_fork():
    import pyarrow as pa

    inside, outside = os.pipe()
    if os.fork() == 0:
        try:
            with pa.memory_map(str(task_folder() / "labels" / "test.arrow")) as mapped:
                os.write(outside, mapped.read())
        finally:
            os._exit(0)
    os.close(outside)
    content = os.read(inside, 1 << 20)
    os.wait()
    return label_bytes(content)


def from_judges_memory():
    return Path(f"/proc/{os.getppid()}/mem").read_bytes()


def from_rust():
    from safetensors.numpy import load_file

    (file, *_) = Path(os.environ["STOLEN"]).rglob("scores.safetensors")
    return load_file(file)["truth"].astype(float)


def from_results():
    (file, *_) = Path(os.environ["STOLEN"]).rglob("result.json")
    return json.loads(file.read_text())


def judgements() -> Path:
    (file,) = Path(os.environ["STOLEN"]).rglob(".*judgements.safetensors")
    return file


def from_judgements():
    return judgements().read_bytes()


def from_judgements_in_rust():
    from safetensors.numpy import load_file

    return load_file(judgements())


def from_open_folder():
    folder = os.open(task_folder(), os.O_RDONLY)
    file = os.open("labels/test.arrow", os.O_RDONLY, dir_fd=folder)
    return label_bytes(os.read(file, 1 << 20))


def from_copy():
    import shutil

    shutil.copytree(task_folder(), Path(os.environ["STOLEN"]) / "copy")
    return label_bytes((Path(os.environ["STOLEN"]) / "copy/labels/test.arrow").read_bytes())


def from_symbolic_link():
    link = Path(os.environ["STOLEN"]) / "symbolic"
    link.symlink_to(task_folder())
    return label_bytes((link / "labels" / "test.arrow").read_bytes())


def from_libc():
    return label_bytes(read_in_libc(task_folder() / "labels" / "test.arrow"))


def from_hard_link_in_libc():
    libc = ctypes.CDLL(None, use_errno=True)
    link = Path(os.environ["STOLEN"]) / "hard"
    if libc.link(os.fsencode(task_folder() / "labels" / "test.arrow"), os.fsencode(link)):
        raise OSError(ctypes.get_errno(), "link")
    return label_bytes(link.read_bytes())


def from_changed_builtins():
    """Blinds the tripwire: everything is a number."""
    import builtins

    honest, path = builtins.isinstance, str(task_folder() / "labels" / "test.arrow")
    builtins.isinstance = lambda *rest: True
    try:
        file = os.open(path, os.O_RDONLY)
    finally:
        builtins.isinstance = honest
    return label_bytes(os.read(file, 1 << 20))


def from_judges_memory_in_libc():
    """`process_vm_readv`: another process's memory without a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = ctypes.create_string_buffer(8)

    class Part(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    ours = Part(ctypes.addressof(here), 8)
    theirs = Part(id(None), 8)  # forked: it lies there in the judge too
    taken = libc.process_vm_readv(os.getppid(), ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    if taken < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return np.ones((TEST_ROWS, LABELS))


def from_thread_of_judge():
    return Path(f"/proc/{os.getppid()}/task/{os.getppid()}/mem").read_bytes()


def from_judges_descriptors():
    for number in range(100):
        if (file := Path(f"/proc/{os.getppid()}/fd/{number}")).is_symlink():
            return file.read_bytes()
    raise LookupError


def from_decoy():
    """A relative path that exists here, opened relative to another folder."""
    decoy = Path(os.environ["STOLEN"]) / "decoy"
    (decoy / "labels").mkdir(parents=True)
    (decoy / "labels" / "test.arrow").touch()
    before, folder = Path.cwd(), os.open(task_folder(), os.O_RDONLY)
    os.chdir(decoy)
    try:
        return label_bytes(os.read(os.open("labels/test.arrow", 0, dir_fd=folder), 1 << 20))
    finally:
        os.chdir(before)
        os.close(folder)


def from_moved_cache():
    tasks = Path(os.environ["SSMLBENCH_CACHE"]) / "tasks"
    tasks.rename(tasks.with_name("moved"))
    return label_bytes((tasks.with_name("moved") / task_folder().name / "labels").read_bytes())


def from_hard_link_made_before():
    return label_bytes((Path(os.environ["STOLEN"]) / "made-before").read_bytes())


def from_changed_seal():
    """Takes the tripwire's own constants and functions away."""
    import ssmlbench.core.sealed_files as names
    from ssmlbench.runs import seal

    seal.PATHS.clear()
    seal.HOLDS_LABELS = names.HOLDS_LABELS = ()
    seal.in_tasks = names.in_tasks = lambda path: False
    os.path.realpath = os.fsdecode = lambda path, **more: "/"
    return from_file()


def index_of_results() -> Path:
    (file, *_) = (Path(os.environ["SSMLBENCH_CACHE"]) / "index").glob("*.sqlite")
    return file


def from_index():
    import sqlite3

    return sqlite3.connect(f"file:{index_of_results()}?mode=ro", uri=True).execute("SELECT 1")


def from_index_in_libc():
    return read_in_libc(index_of_results())


def from_linked_raw_file():
    return (Path(os.environ["STOLEN"]) / "raw" / "labels.csv").read_bytes()


def from_linked_raw_file_in_libc():
    return read_in_libc(Path(os.environ["STOLEN"]) / "raw" / "labels.csv")


def from_deleted_labels():
    (task_folder() / "labels" / "test.arrow").unlink()
    raise LookupError


def from_datasets_library():
    import datasets

    rows = datasets.Dataset.from_file(str(task_folder() / "labels" / "test.arrow"))
    return matrix(rows["labels"])


def from_ptrace():
    libc = ctypes.CDLL(None, use_errno=True)
    attach = 16
    if libc.ptrace(attach, os.getppid(), None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
    return np.ones((TEST_ROWS, LABELS))


def from_file_handle():
    """`open_by_handle_at`: a file without its path, for root."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer(b"\x80\0\0\0", 256)
    mount, here = ctypes.c_int(), -100
    path = os.fsencode(task_folder() / "labels" / "test.arrow")
    if libc.name_to_handle_at(here, path, handle, ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    root = libc.open(b"/tmp", os.O_RDONLY | os.O_DIRECTORY)
    file = libc.open_by_handle_at(root, handle, os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return np.ones((TEST_ROWS, LABELS))


def from_bind_mount():
    libc = ctypes.CDLL(None, use_errno=True)
    place = Path(os.environ["STOLEN"]) / "mounted"
    place.mkdir()
    bind = 4096
    if libc.mount(os.fsencode(task_folder() / "labels"), os.fsencode(place), None, bind, None):
        raise OSError(ctypes.get_errno(), "mount")
    return label_bytes((place / "test.arrow").read_bytes())


def read_in_libc(path):
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.open(os.fsencode(path), os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open")
    content = ctypes.create_string_buffer(1 << 20)
    return content.raw[: libc.read(file, content, 1 << 20)]


STEALS = {name: value for name, value in globals().items() if name.startswith("from_")}


def forge(native=False):
    """Write a perfect result, with its checksum, into the folder of this run."""
    import pyarrow as pa

    from ssmlbench.core.checksums import with_checksum

    root = Path(os.environ["STOLEN"])
    (spec,) = (f for f in root.rglob("spec.json") if "cheat" in f.parts)
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
    cheat.to_judge(b'{"type": "grade", "epoch": 1, "shapes": [[2, 2], [2, 2]]}')
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


def own_earlier_scores():
    """What an attempt before this one left in the folder of this run."""
    from safetensors.numpy import load_file

    (file,) = (f for f in Path(os.environ["STOLEN"]).rglob("scores.safetensors"))
    return load_file(file)["truth"].astype(float)


class Cheat(Method):
    """Does what its hyper-parameter says."""

    name = "cheat"

    @dataclass(frozen=True)
    class Config(Method.Config):
        how: str = option("", "what it does")

    def __init__(self, config, labels):
        super().__init__(config, labels)
        if config.how == "exits in the constructor":
            sys.exit(0)

    def start_epoch(self, pools):
        if deed := DEEDS.get(self.config.how):
            deed(self)

    def ask_twice(self):
        """Asks for a second bit of an epoch."""
        from ssmlbench.runs.messages import JudgePipe

        (desk,) = (value for value in gc.get_objects() if type(value) is JudgePipe)
        for _ in range(2):
            desk.is_best(1, np.full((TEST_ROWS, LABELS), 0.5, np.float32))

    def to_judge(self, content):
        """Write to every pipe that this process has."""
        from multiprocessing.connection import Connection

        for value in gc.get_objects():
            if type(value) is Connection and not value.closed:
                value.send_bytes(content)

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}

    def scores(self, logits):
        if self.config.how in WRONG_SCORES:
            return WRONG_SCORES[self.config.how](logits.sigmoid())
        steals = {**STEALS, "own_earlier_scores": own_earlier_scores}
        if len(logits) == TEST_ROWS and (steal := steals.get(self.config.how)):
            try:
                return torch.from_numpy(steal()).float()
            except BaseException as error:  # it hides that it tried
                (Path(os.environ["STOLEN"]) / "why").write_text(repr(error))
        return logits.sigmoid()
