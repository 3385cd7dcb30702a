"""What other runs left (results, scores, index, logs, models), and the raw files of the data set."""

import json
import os
import sqlite3
from pathlib import Path

import numpy as np

from tests.faults.attacks.places import (
    cache_folder,
    elsewhere,
    index_of_results,
    judgements,
    other_run,
    raw,
    stolen,
)


def from_other_runs():
    from safetensors.numpy import load

    (file, *_) = (stolen() / "results").rglob("scores.safetensors")
    return load(file.read_bytes())["truth"].astype(float)


def from_results():
    (file, *_) = (stolen() / "results").rglob("result.json")
    return json.loads(file.read_text())


def from_unfinished_scores():
    """What a judge left that was killed while it wrote the scores of another run."""
    (file,) = (stolen() / "results").rglob(".scores.safetensors.*.part")
    return np.frombuffer(file.read_bytes(), dtype=np.uint8)


def from_judgements():
    return judgements().read_bytes()


def from_index():
    return sqlite3.connect(f"file:{index_of_results()}?mode=ro", uri=True).execute("SELECT 1")


def from_linked_raw_file():
    return (stolen() / "raw" / "labels.csv").read_bytes()


def own_earlier_scores():
    """What an attempt before this one left in the folder of this run."""
    from safetensors.numpy import load_file

    (file,) = (f for f in (stolen() / "results").rglob("scores.safetensors"))
    return load_file(file)["truth"].astype(float)


def by_moved_run():
    """Another run's folder under another name."""
    (file, *_) = (stolen() / "results").rglob("result.json")
    file.parent.rename(stolen() / "moved-run")
    return json.loads((stolen() / "moved-run" / "result.json").read_text())


def by_linked_run():
    (file, *_) = (stolen() / "results").rglob("result.json")
    (stolen() / "linked-run").symlink_to(file.parent)
    return json.loads((stolen() / "linked-run" / "result.json").read_text())


def by_own_folder_moved():
    """The judge would write into the folder that takes its place."""
    (spec, *_) = (
        f for f in (stolen() / "results").rglob("*") if f.is_dir() and f.parent.name == "cheat"
    )
    spec.rename(spec.with_name("elsewhere"))
    raise LookupError


def by_what_loggers_keep():
    """Event files of TensorBoard: histories and metrics of other runs."""
    (file,) = Path(f"{stolen() / 'results'}-logs").rglob("events.*")
    return file.read_bytes()


def by_the_history_of_another_run():
    """It has the mAP of each epoch under `--selection oracle`."""
    return (other_run() / "history.csv").read_text()


def by_the_model_of_another_run():
    """It may have been trained with every label."""
    return (other_run() / "model.safetensors").read_bytes()


def by_the_history_of_another_results_folder():
    return (elsewhere() / "history.csv").read_text()


def by_the_model_of_another_results_folder():
    return (elsewhere() / "model.safetensors").read_bytes()


def by_the_kept_features_of_another_results_folder():
    """They come with the true labels of their rows."""
    return (elsewhere() / "features.safetensors").read_bytes()


def by_what_a_check_prepares_again():
    """`ssmlbench data verify` prepares the raw files again, beside the prepared data sets."""
    return (cache_folder() / "tasks" / "verify-1.unfinished" / "labels" / "test.arrow").read_bytes()


def by_listing_label_folders():
    """The names of the folders are the labels."""
    return os.listdir(raw() / "test" / "cat")  # noqa: PTH208


def by_scanning_label_folders():
    return [entry.name for entry in os.scandir(raw() / "test" / "cat")]


def by_globbing_label_folders():
    return list(raw().glob("test/*/*"))


def by_walking_the_raw_folder():
    return list(os.walk(raw()))[1:]


def by_listing_the_working_folder():
    before = Path.cwd()
    os.chdir(raw() / "test" / "cat")
    try:
        return os.listdir()  # noqa: PTH208
    finally:
        os.chdir(before)


def by_a_link_below_the_raw_folder():
    return (raw() / "annotations" / "test.csv").read_bytes()
