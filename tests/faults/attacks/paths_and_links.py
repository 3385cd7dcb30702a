"""Label files under another path: moved, linked, by an open folder, by `/proc/self`, in another cache."""

import ctypes
import os
import threading
from pathlib import Path

from tests.faults.attacks.places import (
    cache_folder,
    label_bytes,
    labels,
    other_cache,
    stolen,
    task_folder,
)


def from_renamed():
    (task_folder() / "labels").rename(task_folder() / "other")
    return label_bytes((task_folder() / "other" / "test.arrow").read_bytes())


def from_link():
    link = stolen() / "link"
    os.link(labels(), link)
    return label_bytes(link.read_bytes())


def from_open_folder():
    folder = os.open(task_folder(), os.O_RDONLY)
    file = os.open("labels/test.arrow", os.O_RDONLY, dir_fd=folder)
    return label_bytes(os.read(file, 1 << 20))


def from_symbolic_link():
    link = stolen() / "symbolic"
    link.symlink_to(task_folder())
    return label_bytes((link / "labels" / "test.arrow").read_bytes())


def from_decoy():
    """A relative path that exists here, opened relative to another folder."""
    decoy = stolen() / "decoy"
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
    tasks = cache_folder() / "tasks"
    tasks.rename(tasks.with_name("moved"))
    return label_bytes((tasks.with_name("moved") / task_folder().name / "labels").read_bytes())


def from_hard_link_made_before():
    return label_bytes((stolen() / "made-before").read_bytes())


def by_path_of_bytes():
    return open(os.fsencode(labels()), "rb").read()  # noqa: PTH123


def by_path_with_dots():
    return Path(f"{task_folder()}/labels/../labels/./test.arrow").read_bytes()


def by_proc_self_root():
    return Path(f"/proc/self/root{labels()}").read_bytes()


def by_proc_self_cwd():
    before = Path.cwd()
    os.chdir(task_folder())
    try:
        return Path("/proc/self/cwd/labels/test.arrow").read_bytes()
    finally:
        os.chdir(before)


def by_working_folder():
    before = Path.cwd()
    os.chdir(task_folder() / "labels")
    try:
        return Path("test.arrow").read_bytes()
    finally:
        os.chdir(before)


def by_descriptor_of_a_path():
    """O_PATH opens nothing; /proc/self/fd then does."""
    handle = ctypes.CDLL(None).open(os.fsencode(labels()), os.O_PATH)
    return Path(f"/proc/self/fd/{handle}").read_bytes()


def by_inherited_descriptors():
    """Everything that is open since before the seal."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
            content = os.pread(int(link.name), 100, 0)
        except OSError:
            continue
        if any(part in target for part in ("labels", "card.json", "result", "scores", "index")):
            return content
    raise LookupError


def by_a_link_that_is_swapped():
    """The watch sees a harmless file, the system opens the other one: tried a thousand times."""
    link, harmless = stolen() / "swapped", stolen() / "harmless"
    harmless.write_bytes(b"nothing")
    libc = ctypes.CDLL(None)
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            for target in (labels(), harmless):
                libc.symlink(os.fsencode(target), os.fsencode(f"{link}.new"))
                libc.rename(os.fsencode(f"{link}.new"), os.fsencode(link))

    thread = threading.Thread(target=swap)
    thread.start()
    failures = []
    try:
        for _ in range(300):
            try:
                content = link.read_bytes()
            except OSError as error:
                failures.append(error)
                continue
            if content not in (b"nothing", b""):
                return content
    finally:
        stop.set()
        thread.join()
    raise next(
        (e for e in failures if "sealed" in str(e)), failures[-1] if failures else LookupError
    )


def by_a_path_that_changes():
    """An os.PathLike that answers the watch with one path and the system with another."""

    class Changing:
        asked = 0

        def __fspath__(self):
            Changing.asked += 1
            return str(labels() if Changing.asked == 1 else "/dev/null")

    return Path(os.open(Changing(), os.O_RDONLY))


def by_a_text_that_changes():
    """A str whose methods lie."""

    class Liar(str):
        __slots__ = ()

        def startswith(self, *rest):
            return False

        def endswith(self, *rest):
            return False

        def __str__(self):
            return "/dev/null"

        def __fspath__(self):
            return "/dev/null"

        def encode(self, *rest):
            return b"/dev/null"

    return open(Liar(labels()), "rb").read()  # noqa: PTH123


def by_a_folder_that_is_moved_by_its_descriptor():
    folder = os.open(task_folder(), os.O_RDONLY)
    os.rename("labels", "others", src_dir_fd=folder, dst_dir_fd=folder)
    return (task_folder() / "others" / "test.arrow").read_bytes()


def by_another_cache():
    return other_cache().read_bytes()
