"""Changes of files: of the tool's code, of Python's folders, of other runs, of what the judge writes."""

import ctypes
import os
import shutil
import sqlite3
import sys
import sysconfig
from pathlib import Path

from tests.faults.attacks.places import cache_folder, elsewhere, other_run, own_folder, stolen


def changes_the_tools_code():
    from ssmlbench.protocol import metrics

    Path(metrics.__file__).open("a").close()


def changes_compiled_code():
    from ssmlbench.protocol import metrics

    file = Path(metrics.__cached__)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT))


def renames_code_into_the_tool():
    from ssmlbench import protocol

    (stolen() / "new.py").write_text("")
    (stolen() / "new.py").replace(Path(protocol.__path__[0]) / "zz_meddler.py")


def changes_another_method():
    from ssmlbench.plugins.loader import Plugins

    (file,) = {Path(sys.modules[Plugins().methods["bce"].__module__].__file__)}
    file.open("a").close()


def changes_another_plugin_file():
    """A rival's, which the next command would import."""
    (Path(__file__).parents[1] / "several_plugins.py").open("a").close()


def deletes_another_plugin_file():
    (Path(__file__).parents[1] / "several_plugins.py").unlink()


def compiles_another_plugin_file():
    """Its source stays as it is."""
    file = Path(__file__).parents[1] / "__pycache__" / "several_plugins.cpython-0.pyc"
    file.parent.mkdir(exist_ok=True)
    file.touch()


def changes_a_part_of_a_package_where_python_looks():
    """As an installed plugin may be, if it is installed from a checkout."""
    Path(__file__).with_name("places.py").open("a").close()


def moves_the_tool():
    """A copy of it could take its place."""
    from ssmlbench import protocol

    folder = Path(protocol.__path__[0]).parent
    folder.rename(folder.with_name("moved"))


def changes_the_command():
    (Path(sysconfig.get_path("scripts")) / "ssmlbench").open("a").close()


def puts_code_in_the_way_of_python():
    (Path(sysconfig.get_path("purelib")) / "zz-meddler.pth").write_text("import os")


def puts_a_module_where_python_looks():
    (Path(next(p for p in sys.path if Path(p).is_dir())) / "zz_meddler.py").write_text("")


def puts_a_package_where_python_looks():
    folder = Path(next(p for p in sys.path if Path(p).is_dir())) / "zz_meddler"
    folder.mkdir(exist_ok=True)
    try:
        (folder / "__init__.py").write_text("")
    finally:
        shutil.rmtree(folder)


def puts_a_database_where_python_imports_from():
    file = Path(sysconfig.get_path("purelib")) / "zz-forged.pth"
    sqlite3.connect(f"file:{file}?mode=rwc", uri=True).execute("CREATE TABLE forged (value)")


def changes_the_environment_of_python():
    (Path(sys.prefix) / "pyvenv.cfg").open("a").close()


def changes_the_data_of_a_library():
    """A data set of this tool is made of it."""
    (Path(sysconfig.get_path("purelib")) / "sklearn/datasets/data/digits.csv.gz").open("ab").close()


def declares_an_installed_plugin():
    """Its entry point would be imported in every run."""
    folder = Path(sysconfig.get_path("purelib")) / "zz-meddler-1.dist-info"
    folder.mkdir()
    (folder / "entry_points.txt").write_text("[ssmlbench.methods]\nzz = zz_meddler\n")


def declares_a_plugin_where_python_looks():
    """Any folder of the import path may declare plugins."""
    folder = Path(next(p for p in sys.path if Path(p).is_dir())) / "zz-meddler-1.dist-info"
    try:
        folder.mkdir(exist_ok=True)
        (folder / "entry_points.txt").write_text("[ssmlbench.methods]\nzz = zz_meddler\n")
    finally:
        ctypes.CDLL(None).rmdir(os.fsencode(folder))


def changes_published_numbers():
    from ssmlbench.core.paths import builtin_root

    next((builtin_root() / "leaderboards").rglob("*.*")).open("ab").close()


def changes_the_interpreter():
    Path(os.path.realpath(sys.executable)).open("ab").close()


def changes_the_time_of_another_history():
    os.utime(other_run() / "history.csv", (1, 1))


def marks_another_history():
    os.setxattr(other_run() / "history.csv", "user.forged", b"1")


def makes_a_folder_in_another_run():
    (other_run() / "computed.json").mkdir()


def makes_the_folder_of_a_later_run():
    (other_run().with_name("9-ffffffffffff") / "result.json").mkdir(parents=True)


def deletes_a_run_of_another_results_folder():
    (elsewhere() / "spec.json").unlink()


def changes_another_result():
    (other_run() / "result.json").write_text("{}")


def changes_another_history():
    (other_run() / "history.csv").write_text("")


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


def forges_what_grids_remember():
    folder = cache_folder() / "grids"
    folder.mkdir(exist_ok=True)
    (folder / "forged.json").write_text("{}")


def puts_a_database_in_place_of_a_cached_grid():
    folder = cache_folder() / "grids"
    sqlite3.connect(folder / "forged.json").execute("CREATE TABLE forged (value)")


def links_its_files_to_another_run():
    for name in ("result.json", "scores.safetensors", "history.csv", "model.json"):
        (own_folder() / name).unlink(missing_ok=True)
        ctypes.CDLL(None).symlink(os.fsencode(other_run() / name), os.fsencode(own_folder() / name))


def puts_a_folder_in_place_of_its_history():
    ctypes.CDLL(None).mkdir(os.fsencode(own_folder() / "history.csv"), 0o755)
    (own_folder() / "history.csv" / "inside").touch()


def puts_a_fifo_in_place_of_its_history():
    os.mkfifo(own_folder() / "history.csv")


def puts_a_pipe_in_place_of_its_model():
    """When its process ends: who opens a pipe waits for its other end."""
    _at_the_end(os.mkfifo)


def links_its_model_to_an_endless_device():
    _at_the_end(lambda file: ctypes.CDLL(None).symlink(b"/dev/zero", os.fsencode(file)))


def puts_terabytes_in_place_of_its_model():
    """They were never written, and take no room; the judge read them for hours."""
    _at_the_end(lambda file: (file.touch(), os.truncate(file, 2**43)))


def _at_the_end(put):
    file, end = own_folder() / "model.safetensors", os._exit

    def replace_and_end(code):
        file.unlink(missing_ok=True)
        put(file)
        end(code)

    os._exit = replace_and_end


def deletes_its_lock_in_libc():
    """Another process could then make the same run in the same folder."""
    assert ctypes.CDLL(None).unlink(os.fsencode(own_folder() / ".lock")) == 0


def deletes_the_lock_of_its_run():
    """Another process could make the same run, and read the scores of this one."""
    (own,) = stolen().glob("results/*/*/cheat/*")
    (own / ".lock").unlink()


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
        *(forges_what_grids_remember, deletes_another_run),
        *(deletes_another_history_in_an_open_folder, writes_another_history_in_an_open_folder),
        *(truncates_another_history, closes_another_history, gives_another_history_away),
        *(puts_a_module_where_python_looks, puts_a_package_where_python_looks),
        *(changes_another_plugin_file, deletes_another_plugin_file, compiles_another_plugin_file),
        *(changes_a_part_of_a_package_where_python_looks, moves_the_tool),
        *(changes_the_command, changes_the_environment_of_python),
        *(puts_a_database_in_place_of_a_cached_grid, puts_a_database_where_python_imports_from),
        *(deletes_the_lock_of_its_run, changes_the_data_of_a_library, changes_published_numbers),
        *(declares_an_installed_plugin, declares_a_plugin_where_python_looks),
        *(changes_the_interpreter, changes_the_time_of_another_history, marks_another_history),
        *(makes_a_folder_in_another_run, makes_the_folder_of_a_later_run),
        deletes_a_run_of_another_results_folder,
    )
}
"""Refused and reported when they are tried, whatever becomes of the run."""
