"""A third round of ways to labels and to the files of others: each returns what it found, or raises."""

import builtins
import ctypes
import fileinput
import importlib.machinery
import io
import linecache
import multiprocessing
import os
import runpy
import shutil
import ssl
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

from tests.faults.meddling import other_run
from tests.faults.more_cheats import labels, stolen, task_folder


def by_a_raw_file_object():
    return io.FileIO(str(labels())).readall()


def by_open_code():
    return io.open_code(str(labels())).read()


def by_a_loader_of_modules():
    return importlib.machinery.SourceFileLoader("labels", str(labels())).get_data(str(labels()))


def by_running_it():
    return runpy.run_path(str(labels()))


def by_fileinput():
    with fileinput.input(str(labels()), mode="rb") as lines:
        return list(lines)


def by_linecache():
    """It hides what it cannot open."""
    return linecache.getlines(str(labels()))


def by_an_archive():
    with zipfile.ZipFile(stolen() / "labels.zip", "w") as archive:
        archive.write(labels())
    return zipfile.ZipFile(stolen() / "labels.zip").read(str(labels())[1:])


def by_a_tar_of_the_cache():
    with tarfile.open(stolen() / "cache.tar", "w") as archive:
        archive.add(task_folder())
    return (stolen() / "cache.tar").read_bytes()


def by_every_process():
    """The memory and the open files of whatever process there is, not only of the judge."""
    for folder in Path("/proc").glob("[0-9]*"):
        if folder.name != str(os.getpid()):
            return (folder / "mem").open("rb").read(10)
    raise LookupError


def by_mapped_files_of_another_process():
    return Path(f"/proc/{os.getppid()}/map_files/0-1").read_bytes()


def by_the_working_folder_of_another_process():
    return Path(f"/proc/{os.getppid()}/cwd/anything").read_bytes()


def by_what_loggers_keep():
    """Event files of TensorBoard: histories and metrics of other runs."""
    (file,) = Path(f"{stolen() / 'results'}-logs").rglob("events.*")
    return file.read_bytes()


def by_a_folder_that_is_moved_by_its_descriptor():
    folder = os.open(task_folder(), os.O_RDONLY)
    os.rename("labels", "others", src_dir_fd=folder, dst_dir_fd=folder)
    return (task_folder() / "others" / "test.arrow").read_bytes()


def by_replaced_functions():
    """Nothing that the watch could ask for is true."""
    return opened_without("any", "all", "tuple", "bool", "len")


def by_a_replaced_function_of_the_library():
    """`os.path.join` uses it: Python's own code mistakes the path, and the kernel does not."""
    return opened_without("map")


def opened_without(*names):
    path = str(labels())
    honest = {name: getattr(builtins, name) for name in names}
    for name in names:
        setattr(builtins, name, lambda *rest: ())
    try:
        return os.open(path, os.O_RDONLY)
    finally:
        for name, function in honest.items():
            setattr(builtins, name, function)


def by_torchscript():
    import torch

    return torch.jit.load(str(labels()))


def by_certificates():
    return ssl.create_default_context(cafile=str(labels()))


def by_loading_a_library():
    return ctypes.CDLL(str(labels()))


def by_arrow_csv():
    import pyarrow.csv

    return pyarrow.csv.read_csv(str(labels()))


def by_spawned_process():
    """A new Python, without the watch in it."""
    spawn, copy = multiprocessing.get_context("spawn"), stolen() / "copied"
    child = spawn.Process(target=shutil.copyfile, args=(labels(), copy))
    child.start()
    child.join()
    if child.exitcode:
        raise PermissionError("the new process failed")
    return copy.read_bytes()


def by_standard_input_of_a_program():
    """The file is opened by the new process, before it becomes another program."""
    out = stolen() / "spawned"
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, str(labels()), os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT, 0o600),
    ]
    child = os.posix_spawn("/bin/cat", ["cat"], {}, file_actions=actions)
    os.waitpid(child, 0)
    if not out.exists() or not out.stat().st_size:
        raise PermissionError("nothing was read")
    return out.read_bytes()


def by_what_loggers_keep_in_libc():
    from tests.faults.native_ways import read_in_libc

    (file,) = Path(f"{stolen() / 'results'}-logs").rglob("events.*")
    return read_in_libc(file)


# ------------------------------------------------------------------------- changes of other files


def deletes_another_run():
    """`rmtree` gives the system names in an open folder."""
    shutil.rmtree(other_run())


def deletes_another_history_in_an_open_folder():
    os.remove("history.csv", dir_fd=os.open(other_run(), os.O_RDONLY))


def writes_another_history_in_an_open_folder():
    folder = os.open(other_run(), os.O_RDONLY)
    os.write(os.open("history.csv", os.O_WRONLY | os.O_APPEND, dir_fd=folder), b"\n")


def truncates_another_history():
    os.truncate(other_run() / "history.csv", 10)


def closes_another_history():
    (other_run() / "history.csv").chmod(0)


def gives_another_history_away():
    os.chown(other_run() / "history.csv", os.getuid(), os.getgid())


def puts_a_module_where_python_looks():
    (Path(next(p for p in sys.path if Path(p).is_dir())) / "zz_meddler.py").write_text("")


def puts_a_package_where_python_looks():
    folder = Path(next(p for p in sys.path if Path(p).is_dir())) / "zz_meddler"
    folder.mkdir(exist_ok=True)
    try:
        (folder / "__init__.py").write_text("")
    finally:
        shutil.rmtree(folder)


def changes_the_command():
    (Path(sysconfig.get_path("scripts")) / "ssmlbench").open("a").close()


def changes_the_environment_of_python():
    (Path(sys.prefix) / "pyvenv.cfg").open("a").close()


WAYS = {name: value for name, value in globals().items() if name.startswith("by_")}
REFUSED_BY_THE_KERNEL = (
    *("by_torchscript", "by_certificates", "by_loading_a_library"),
    *("by_arrow_csv", "by_spawned_process", "by_standard_input_of_a_program"),
    *("by_what_loggers_keep_in_libc", "by_a_replaced_function_of_the_library"),
)
HIDES_ITS_ERROR = ("by_linecache",)
CHANGES = {
    deed.__name__: deed
    for deed in (
        *(deletes_another_run, deletes_another_history_in_an_open_folder),
        *(writes_another_history_in_an_open_folder, truncates_another_history),
        *(closes_another_history, gives_another_history_away, puts_a_module_where_python_looks),
        *(puts_a_package_where_python_looks, changes_the_command),
        changes_the_environment_of_python,
    )
}
