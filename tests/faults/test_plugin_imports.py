"""Plugin files are imported by the process of a command, too: what their code cannot do there."""

from __future__ import annotations

import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Failed
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.core.process_environment import (
    environment_without_plugins,
    fixed_environment,
    is_fixed,
)
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import prepare
from ssmlbench.grid import payload
from ssmlbench.grid.payload import RunPayload
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins import watch
from ssmlbench.plugins.loader import Plugins, load_file
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.kernel_lock import kernel_can_lock
from ssmlbench.runs.resolve import resolve
from tests.faults.sealed_runs import in_child

NOISE = Path(__file__).with_name("cheats.py")
HEAD = """
import _thread, atexit, os, shutil, sqlite3, sys, threading, time
from dataclasses import dataclass
from pathlib import Path
from ssmlbench.api import Method, bce

def labels():
    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("noise-*[!k]")
    return folder / "labels" / "test.arrow"
"""
METHOD = '''

class Early(Method):
    """Learns from labelled rows."""

    name = "early"

    @dataclass(frozen=True)
    class Config(Method.Config):
        size: int = 1

        def __post_init__(self):
            {deed}

    def loss(self, labelled, unlabelled):
        return {{"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}}
'''
HIDDEN = """
def steal():
    try:
        os.environ["STOLEN_LABELS"] = labels().read_bytes().hex()
    except Exception:
        pass
"""
AT_IMPORT = {
    "reads": "labels().read_bytes()",
    "hides that it reads": "steal()",
    "in a thread": "thread = threading.Thread(target=steal)\nthread.start()\nthread.join()",
    "in a thread of another library's code": (
        "thread = threading.Thread(target=shutil.copyfile, args=(labels(), 'copy'))\n"
        "thread.start()\nthread.join()"
    ),
    "in a thread that is none of threading's": (
        "ended, before = _thread.allocate_lock(), sys.unraisablehook\n"
        "ended.acquire()\n"
        "sys.unraisablehook = lambda error: ended.release()\n"
        "_thread.start_new_thread(shutil.copyfile, (labels(), 'copy'))\n"
        "ended.acquire(timeout=600)\n"
        "sys.unraisablehook = before"
    ),
    "in code of no file": (
        "space = {'labels': labels, '__file__': __file__}\n"
        "exec(compile('def read(): labels().read_bytes()', 'nowhere', 'exec'), space)\n"
        "threading.Thread(target=space['read']).run()"
    ),
    "in a metaclass": (
        "class Meta(type):\n"
        "    def __init__(cls, *rest):\n"
        "        labels().read_bytes()\n"
        "class Thing(metaclass=Meta):\n"
        "    pass"
    ),
    "links": "os.link(labels(), 'link-to-labels')",
    "in an open folder": (
        "os.open('labels/test.arrow', os.O_RDONLY, dir_fd=os.open(labels().parents[1], os.O_RDONLY))"
    ),
    "moves the prepared data": "labels().parents[2].rename('elsewhere')",
    "moves the cache": "labels().parents[3].rename('elsewhere')",
    "reads scores": "open('results/a/b/c/d/scores.safetensors')",
    "forges a result": "open('results/a/b/c/d/result.json', 'w')",
    "reads the index": "sqlite3.connect(os.environ['SSMLBENCH_CACHE'] + '/index/x.sqlite')",
}


@pytest.fixture(autouse=True)
def data(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(Plugins([NOISE]).datasets["noise"]())


def plugin_file(folder: Path, at_import: str = "", deed: str = "pass") -> Path:
    file = folder / "early.py"
    file.write_text(f"{HEAD}{HIDDEN}{at_import}\n{METHOD.format(deed=deed)}")
    return file


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
@pytest.mark.parametrize("how", sorted(AT_IMPORT))
def test_a_plugin_that_opens_labels_or_results_when_it_is_imported_is_refused(
    tmp_path: Path, how: str
) -> None:
    file = plugin_file(tmp_path, AT_IMPORT[how])
    with pytest.raises(UserError, match=r"tried to open .*: labels are sealed") as refused:
        Plugins([file])
    assert "early.py" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert "STOLEN_LABELS" not in os.environ
    assert not Path("copy").exists()


AS_OF_ANOTHER_FILE = """
import functools, gc, signal, weakref

space = {"__name__": "logging", "place": str(labels())}
text = "def read(*rest): open(place, 'rb').read()"
exec(compile(text, os.__file__, "exec"), space)
read, copy = space["read"], functools.partial(shutil.copyfile, labels(), "copy")

class Lost:
    pass
"""
LEFT_TO_PYTHON = {
    "a finalizer": "Lost.__del__ = read\nlost = Lost()\nlost.lost = lost\ndel lost",
    "a handler of signals": "signal.signal(signal.SIGUSR1, read)",
    "what is called when garbage is collected": "gc.callbacks.append(read)",
    "an import hook": (
        "class Finder:\n    find_spec = staticmethod(read)\nsys.meta_path.insert(0, Finder())"
    ),
    "a function of a library": (
        "lost = Lost()\nweakref.finalize(lost, copy)\nlost.lost = lost\ndel lost"
    ),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", sorted(LEFT_TO_PYTHON))
def test_code_that_names_another_file_as_its_own_is_refused_labels_in_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """No frame of the plugin file is on the stack when Python calls it, but those of the command are."""
    file = plugin_file(tmp_path, AS_OF_ANOTHER_FILE + LEFT_TO_PYTHON[how])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(watch, "_files", {str(file)})  # without those of other tests
    with fixed_environment():
        try:
            load_file(file)
            gc.collect()
            if "signals" in how:
                with suppress(PermissionError):
                    signal.raise_signal(signal.SIGUSR1)
            with suppress(ImportError, PermissionError):
                importlib.import_module("no_such_module")
        finally:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            gc.callbacks[:] = []
        tried = watch.attempts_of(file)
    assert "labels are sealed" in tried[0], tried
    assert not Path("copy").exists()


def test_a_machine_of_a_cluster_watches_plugins_as_a_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = []
    monkeypatch.setattr(payload, "run_one", lambda *rest: watched.append(is_fixed()))
    context = RunContext(tmp_path / "results", "cpu", 1)
    RunPayload.of(Plugins([NOISE]), context).run(RunSpec("bce", "noise", pi=0.5))
    assert watched == [True]
    assert not is_fixed()


def test_what_a_command_does_beside_a_plugin_is_not_refused(tmp_path: Path) -> None:
    file = plugin_file(tmp_path)
    with fixed_environment():
        task = prepare(load_plugins(file).datasets["noise"]())
        assert task.truth("test").any()
        plain_bytes(task.folder / "labels" / "test.arrow")
        assert watch.attempts_of(file) == []


@pytest.mark.parametrize(("place", "refused"), [("libraries", False), ("plugins", True)])
def test_code_of_the_import_path_is_a_librarys_unless_a_plugin_file_is_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, refused: bool
) -> None:
    """On clusters, libraries are often in folders of PYTHONPATH."""
    for name in ("libraries", "plugins"):
        (tmp_path / name).mkdir()
    (tmp_path / place / "some_library.py").write_text("def call(function, file): function(file)")
    monkeypatch.syspath_prepend(tmp_path / place)
    labels = prepare(Plugins([NOISE]).datasets["noise"]()).folder / "labels" / "test.arrow"
    file = plugin_file(tmp_path / "plugins")
    monkeypatch.setattr(watch, "_files", {str(file)})  # without those of other tests
    with fixed_environment():
        load_file(file)
        library = importlib.import_module("some_library")
        with pytest.raises(PermissionError) if refused else nullcontext():
            library.call(plain_bytes, labels)
    monkeypatch.delitem(sys.modules, "some_library")


def load_plugins(file: Path) -> Plugins:
    return Plugins([NOISE, file])


COMPILES_THE_TOOL = """
from ssmlbench.protocol import metrics
os.makedirs(os.path.dirname(metrics.__cached__), exist_ok=True)
open(metrics.__cached__, "ab").close()
"""


def test_a_plugin_file_does_not_replace_compiled_code_of_this_tool(tmp_path: Path) -> None:
    """The judge of the next run would import it."""
    with pytest.raises(UserError, match=r"tried to change .*metrics.*: no plugin may change it"):
        load_file(plugin_file(tmp_path, COMPILES_THE_TOOL))


ANOTHER_INTERPRETER = (
    "try:\n"
    "    import _xxsubinterpreters as interpreters\n"
    "except ImportError:\n"
    "    import _interpreters as interpreters\n"
    "try:\n"
    "    interpreters.create()\n"
    "except RuntimeError:  # it does not say why\n"
    "    pass"
)


def test_a_plugin_file_starts_no_other_interpreter(tmp_path: Path) -> None:
    """Tried in a process of its own, in which Python then no longer tells torch who has the GIL."""
    file = plugin_file(tmp_path, ANOTHER_INTERPRETER)

    def refusal() -> str:
        with pytest.raises(UserError) as refused:
            Plugins([file])
        return str(refused.value)

    assert b"tried to start another interpreter" in in_child(refusal)


def test_a_configuration_that_opens_labels_fails_the_run(tmp_path: Path) -> None:
    plugins = Plugins([NOISE, plugin_file(tmp_path, deed="steal()")])
    spec = resolve(plugins, {}, method="early", dataset="noise", pi=0.5, epochs=2)
    last = run_one(spec, plugins, RunContext(tmp_path / "results", "cpu", 1), lambda event: None)
    assert isinstance(last, Failed)
    assert "labels are sealed" in last.text
    assert "early.py" in last.text


HIDES_CODE = """
class Text(str):
    def __reduce_ex__(self, protocol):
        return exec, ("import os; open('ran', 'w')",)

    def __deepcopy__(self, memo):
        return self
"""


def test_a_value_of_a_configuration_runs_no_code_beside_the_labels(tmp_path: Path) -> None:
    """A run's spec is sent to its judge, and to its training process before that one is sealed."""
    deed = "object.__setattr__(self, 'size', Text('1'))"
    plugins = Plugins([NOISE, plugin_file(tmp_path, HIDES_CODE, deed)])
    spec = resolve(plugins, {}, method="early", dataset="noise", pi=0.5, epochs=2)
    last = run_one(spec, plugins, RunContext(tmp_path / "results", "cpu", 1), lambda event: None)
    assert isinstance(last, Failed)
    assert "its request holds a value of builtins.exec" in last.text
    assert not list(tmp_path.rglob("ran"))


IN_THREADS = {
    "of threading": "one = threading.Thread(target=copy)\n            one.start()\n            one.join()",
    "of no library": (
        "ended = _thread.allocate_lock()\n"
        "            ended.acquire()\n"
        "            sys.unraisablehook = lambda error: ended.release()\n"
        "            _thread.start_new_thread(copy, ())\n"
        "            ended.acquire(timeout=60)"
    ),
}


@pytest.mark.parametrize(
    "how", ["of threading", pytest.param("of no library", marks=pytest.mark.slow)]
)
def test_a_thread_that_a_configuration_starts_is_refused_labels(tmp_path: Path, how: str) -> None:
    """Although no code of the plugin is on its stack."""
    deed = f"copy = functools.partial(shutil.copyfile, labels(), 'copy')\n            {IN_THREADS[how]}"
    ended = run_command(plugin_file(tmp_path, "import functools, sys", deed))
    assert ended.returncode == 1, ended.stderr
    assert "labels are sealed" in ended.stderr + ended.stdout
    assert not Path("copy").exists()


def run_command(file: Path, method: str = "early") -> subprocess.CompletedProcess[str]:
    """`ssmlbench run` with the method of a plugin file."""
    typed = ["run", "--plugin", str(NOISE), "--plugin", str(file), "--method", method]
    typed += ["--dataset", "noise", "--pi", "0.5", "--epochs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(NOISE.parents[2])}
    command = [sys.executable, "-m", "ssmlbench", *typed]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


OTHER_CACHE = """
import os, sys
from dataclasses import dataclass
from pathlib import Path
from ssmlbench.api import Method, bce

def leave(place):
    os.environ["SSMLBENCH_CACHE"] = os.environ["XDG_CACHE_HOME"] = place
    os.environ["LD_PRELOAD"] = "forged.so"
    sys.path.insert(0, place)
    os.chdir("/")

if {at_import}:
    leave({place!r})

class Early(Method):
    \"\"\"Learns from labelled rows.\"\"\"

    name = "early"

    @dataclass(frozen=True)
    class Config(Method.Config):
        size: int = 1

        def __post_init__(self):
            leave({place!r})

    def start_epoch(self, pools):
        libc = __import__("ctypes").CDLL(None)
        if libc.open(os.fsencode({labels!r}), 0) >= 0:
            Path({place!r}, "leaked").touch()

    def loss(self, labelled, unlabelled):
        return {{"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}}
"""


@pytest.mark.skipif(not kernel_can_lock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("at_import", [True, False])
def test_a_plugin_does_not_choose_the_cache_that_is_sealed(
    tmp_path: Path, cache: Path, at_import: bool
) -> None:
    (labels,) = cache.glob("tasks/noise-*[!k]/labels/test.arrow")
    place = tmp_path / "place"
    place.mkdir()
    file = tmp_path / "early.py"
    file.write_text(OTHER_CACHE.format(at_import=at_import, place=str(place), labels=str(labels)))
    ended = run_command(file)
    assert ended.returncode == 0, ended.stderr
    assert list(place.iterdir()) == []
    assert len(list(tmp_path.rglob("result.json"))) == 1
    assert "forged.so" not in ended.stderr


def test_what_a_plugin_changes_around_it_does_not_reach_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setattr(sys, "path", list(sys.path))
    clean = environment_without_plugins()
    load_file(
        plugin_file(
            tmp_path,
            "import sys\n"
            f"sys.path.insert(0, {str(tmp_path / 'forged')!r})\n"
            "os.environ['LD_PRELOAD'] = 'forged.so'\n"
            "os.environ['PYTHONHASHSEED'] = '8'\n"
            "os.chdir('/')",
        )
    )
    try:
        assert sys.path[0] == str(tmp_path / "forged")
        assert os.environ["LD_PRELOAD"] == "forged.so"
        assert environment_without_plugins() == clean
    finally:
        del os.environ["LD_PRELOAD"]


def test_what_a_plugin_leaves_for_the_end_of_python_is_refused(tmp_path: Path) -> None:
    """Or the next run could read a copy of the labels."""
    file = plugin_file(tmp_path, "atexit.register(shutil.copyfile, labels(), 'copy')")
    program = f"from ssmlbench.plugins.loader import Plugins; Plugins([{str(file)!r}])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "labels are sealed" in ended.stderr
    assert not Path("copy").exists()


def test_what_the_user_does_beside_a_plugin_is_not_refused(tmp_path: Path) -> None:
    load_file(plugin_file(tmp_path))
    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("noise-*[!k]")
    labels = folder / "labels" / "test.arrow"
    shutil.copyfile(labels, "copy")
    thread = threading.Thread(target=shutil.copyfile, args=(labels, "copy"))
    thread.start()
    thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(shutil.copyfile, labels, "copy").result()


CHANGES_THE_TOOL = {
    "when it is imported": ("resolve.planned_run = changed", "pass"),
    "in a Config": ("", "resolve.planned_run = changed"),
    "by its constants": ("loader.METHOD = loader.DATASET", "pass"),
    "by the defaults of another method": (
        "_init = loader.Plugins().methods['cap'].Config.__init__\n"
        "_init.__defaults__ = tuple(reversed(_init.__defaults__))",
        "pass",
    ),
    "by a constant of another method": (
        "loader.Plugins().methods['cap'].warm_up = False",
        "pass",
    ),
    "by the code of a function": ("planned.__code__ = changed.__code__", "pass"),
}
PLANS_OTHERWISE = """
import dataclasses
from ssmlbench.plugins import loader
from ssmlbench.runs import resolve

planned = resolve.planned_run

def changed(*rest, **more):
    run = planned(*rest, **more)
    return dataclasses.replace(run, spec=dataclasses.replace(run.spec, lr=1e-7))
"""


QUICK = ("in a Config", "by a constant of another method")


@pytest.mark.parametrize(
    "how",
    [pytest.param(how, marks=() if how in QUICK else pytest.mark.slow) for how in CHANGES_THE_TOOL],
)
def test_a_plugin_file_does_not_plan_the_runs_of_other_methods(tmp_path: Path, how: str) -> None:
    """Its method is not even asked for, or it trains beside the other one."""
    at_import, in_config = CHANGES_THE_TOOL[how]
    file = tmp_path / "early.py"
    file.write_text(HEAD + PLANS_OTHERWISE + at_import + METHOD.format(deed=in_config))
    ended = run_command(file, method="early,bce")
    assert ended.returncode != 0
    assert "no plugin may change it" in ended.stderr + ended.stdout
    assert not list(tmp_path.rglob("result.json"))


CHANGES_A_LIBRARY = """
from numpy.lib.npyio import NpzFile

honest = NpzFile.__getitem__

def changed(self, name):
    array = honest(self, name)
    return 0 * array if array.dtype.kind == "f" else array

NpzFile.__getitem__ = changed
"""


def test_a_plugin_file_changes_nothing_that_a_data_set_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared data are those of all later runs."""
    labels = np.tile(np.eye(3, dtype=np.int8), (20, 1))
    data = {"X_train": labels * 0.7, "y_train": labels, "X_test": labels * 0.7, "y_test": labels}
    np.savez(tmp_path / "mine.npz", **data)
    file = tmp_path / "early.py"
    file.write_text(HEAD + CHANGES_A_LIBRARY + METHOD.format(deed="pass"))
    cards = []
    for number, plugin in enumerate([["--plugin", str(file)], []]):
        monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / f"cache-{number}"))
        words = ["run", "--dry-run", *plugin, "--method", "bce", "--pi", "0.5"]
        words += ["--dataset", str(tmp_path / "mine.npz"), "--results", str(tmp_path / "results")]
        ended = subprocess.run(
            [sys.executable, "-m", "ssmlbench", *words], capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr
        (card,) = (tmp_path / f"cache-{number}").rglob("card.json")
        cards.append(json.loads(card.read_text())["fingerprint"])
    assert cards[0] == cards[1]
