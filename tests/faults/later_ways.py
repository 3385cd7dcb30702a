"""A fourth round of ways to labels and to the files of others: each returns what it found, or raises."""

import os
import sqlite3
from pathlib import Path

from tests.faults.meddling import other_run
from tests.faults.more_cheats import stolen
from tests.faults.native_ways import read_in_libc


def raw() -> Path:
    return stolen() / "raw"


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


def other_cache() -> Path:
    """The labels of the same data set, prepared where SSMLBENCH_CACHE was not set."""
    return Path(os.environ["XDG_CACHE_HOME"]) / "ssmlbench/tasks/noise-v1.8/labels/test.arrow"


def by_another_cache():
    return other_cache().read_bytes()


def by_another_cache_in_libc():
    return read_in_libc(other_cache())


def by_a_link_below_the_raw_folder():
    return (raw() / "annotations" / "test.csv").read_bytes()


def by_a_link_below_the_raw_folder_in_libc():
    return read_in_libc(stolen() / "storage" / "annotations.csv")


def by_the_history_of_another_run():
    """It has the mAP of each epoch under `--selection oracle`."""
    return (other_run() / "history.csv").read_text()


def by_the_model_of_another_run():
    """It may have been trained with every label."""
    return (other_run() / "model.safetensors").read_bytes()


def puts_a_database_in_place_of_a_cached_grid():
    folder = Path(os.environ["SSMLBENCH_CACHE"]) / "grids"
    sqlite3.connect(folder / "forged.json").execute("CREATE TABLE forged (value)")


def puts_a_database_where_python_imports_from():
    import sysconfig

    file = Path(sysconfig.get_path("purelib")) / "zz-forged.pth"
    sqlite3.connect(f"file:{file}?mode=rwc", uri=True).execute("CREATE TABLE forged (value)")


def deletes_the_lock_of_its_run():
    """Another process could make the same run, and read the scores of this one."""
    (own,) = stolen().glob("results/*/*/cheat/*")
    (own / ".lock").unlink()


WAYS = {name: value for name, value in globals().items() if name.startswith("by_")}
REFUSED_BY_THE_KERNEL = tuple(name for name in WAYS if name.endswith("_in_libc"))
HIDES_ITS_ERROR = ("by_globbing_label_folders", "by_walking_the_raw_folder")
CHANGES = {
    deed.__name__: deed
    for deed in (
        puts_a_database_in_place_of_a_cached_grid,
        puts_a_database_where_python_imports_from,
        deletes_the_lock_of_its_run,
    )
}
