"""Other processes: the judge's in /proc, shared memory, sockets, and programs that are started."""

import ctypes
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np

from tests.faults.attacks.places import LABELS, TEST_ROWS, label_bytes, labels, stolen


def from_judges_memory():
    return Path(f"/proc/{os.getppid()}/mem").read_bytes()


def from_thread_of_judge():
    return Path(f"/proc/{os.getppid()}/task/{os.getppid()}/mem").read_bytes()


def from_judges_descriptors():
    for number in range(100):
        if (file := Path(f"/proc/{os.getppid()}/fd/{number}")).is_symlink():
            return file.read_bytes()
    raise LookupError


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


def reads_labels_by_the_judges_root():
    Path(f"/proc/{os.getppid()}/root{labels()}").read_bytes()


def reads_labels_by_the_first_process():
    Path(f"/proc/1/root{labels()}").read_bytes()


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


def from_ptrace():
    libc = ctypes.CDLL(None, use_errno=True)
    attach = 16
    if libc.ptrace(attach, os.getppid(), None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
    return np.ones((TEST_ROWS, LABELS))


def takes_the_judges_descriptors():
    """pidfd_getfd: a copy of what another process has open."""
    libc = ctypes.CDLL(None, use_errno=True)
    judge = libc.syscall(434, os.getppid(), 0)
    for number in range(3, 60):
        taken = libc.syscall(438, judge, number, 0)
        if taken >= 0:
            return
    raise OSError(ctypes.get_errno(), "pidfd_getfd")


def takes_the_judges_room():
    import resource

    resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, 0))


def suspends_its_judge():
    os.kill(os.getppid(), signal.SIGSTOP)


def leaves_processes_that_fork_and_leave():
    """Each is another process before anyone has read its number; they end after a minute."""
    until = time.monotonic() + 60
    for leads_a_session in (True, False, True, False):
        if os.fork() == 0:
            if leads_a_session:
                os.setsid()
            while time.monotonic() < until:
                if os.fork():
                    break
            os._exit(0)


def signals_the_server_of_its_judge():
    """The process that forks the processes of every run."""
    server = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(server), signal.SIGTERM)


def by_memory_of_others():
    for block in Path("/dev/shm").glob("*"):
        with suppress(OSError, ValueError):  # of another program, of another kind, or empty
            shared_memory.SharedMemory(block.name).close()
    raise LookupError


def by_sockets():
    """Asks every socket of the machine that has a name."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = line.split()[-1]
        if "ssmlbench" in name:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(name.replace("@", "\0"))
                return one.recv(10)
    raise LookupError


def from_program():
    file = labels()
    return label_bytes(subprocess.run(["cat", file], capture_output=True, check=True).stdout)


def from_fork():
    import pyarrow as pa

    inside, outside = os.pipe()
    if os.fork() == 0:
        try:
            with pa.memory_map(str(labels())) as mapped:
                os.write(outside, mapped.read())
        finally:
            os._exit(0)
    os.close(outside)
    content = os.read(inside, 1 << 20)
    os.wait()
    return label_bytes(content)


def by_execveat_of_a_script():
    return subprocess.run(
        [sys.executable, "-c", f"print(open({str(labels())!r}, 'rb').read())"],
        capture_output=True,
        check=True,
    ).stdout


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
