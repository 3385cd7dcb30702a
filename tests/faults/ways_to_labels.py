"""Ways to labels through Python: each function returns what it found, or raises."""

import gc
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch

TEST_ROWS, LABELS = 44, 4


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
    prior = json.loads((task_folder() / "card.json").read_text())["positives"]["test"]
    return np.tile(np.array(prior) / TEST_ROWS, (TEST_ROWS, 1))


def from_other_runs():
    from safetensors.numpy import load

    (file, *_) = Path(os.environ["STOLEN"], "results").rglob("scores.safetensors")
    return load(file.read_bytes())["truth"].astype(float)


def from_memory_map():
    return label_bytes(bytes(np.memmap(task_folder() / "labels" / "test.arrow", mode="r")))


def from_judges_memory():
    return Path(f"/proc/{os.getppid()}/mem").read_bytes()


def from_results():
    (file, *_) = Path(os.environ["STOLEN"], "results").rglob("result.json")
    return json.loads(file.read_text())


def from_unfinished_scores():
    """What a judge left that was killed while it wrote the scores of another run."""
    (file,) = Path(os.environ["STOLEN"], "results").rglob(".scores.safetensors.*.part")
    return np.frombuffer(file.read_bytes(), dtype=np.uint8)


def judgements() -> Path:
    (file,) = Path(os.environ["STOLEN"], "results").rglob(".*judgements.safetensors")
    return file


def from_judgements():
    return judgements().read_bytes()


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


def from_linked_raw_file():
    return (Path(os.environ["STOLEN"]) / "raw" / "labels.csv").read_bytes()


def from_deleted_labels():
    (task_folder() / "labels" / "test.arrow").unlink()
    raise LookupError


def own_earlier_scores():
    """What an attempt before this one left in the folder of this run."""
    from safetensors.numpy import load_file

    (file,) = (f for f in Path(os.environ["STOLEN"], "results").rglob("scores.safetensors"))
    return load_file(file)["truth"].astype(float)


STEALS = {name: value for name, value in globals().items() if name.startswith("from_")}
