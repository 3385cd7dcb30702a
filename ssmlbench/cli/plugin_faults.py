"""What a plugin file does to a command: its errors are one line, and its threads do not hold it up.

A command calls plugins to plan runs, to predict and to check. (Runs have processes of their own.)
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress

GRACE_SECONDS = 5.0
"""The time that threads have to end after the command."""


def plugin_files() -> frozenset[str]:
    """The plugin files that this process has imported; free of imports where there is none."""
    watch = sys.modules.get("ssmlbench.plugins.watch")
    return watch.imported_files() if watch is not None else frozenset()


def plugin_fault(error: BaseException) -> str | None:
    """One line about an exception that passed through a plugin file; None if it is not a plugin's."""
    if isinstance(error, KeyboardInterrupt) or not (files := plugin_files()):
        return None
    from ssmlbench.plugins.source_lines import explained_in

    return explained_in(error, files)


def do_not_wait_for_threads(before: set[threading.Thread], code: int) -> None:
    """End this process with the exit code, although threads that a plugin has started go on.

    before: the threads that were there when the command began.
    """
    left = [each for each in threading.enumerate() if each not in before and not each.daemon]
    if left and plugin_files():
        threading.Thread(target=_end_after_main_thread, args=(code,), daemon=True).start()


def _end_after_main_thread(code: int) -> None:
    threading.main_thread().join()  # it has ended when Python waits for the other threads
    time.sleep(GRACE_SECONDS)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it may be closed
            stream.flush()
    text = (
        "warning: a plugin file started a thread that does not end; the command ends without it\n"
    )
    with suppress(OSError):
        os.write(2, text.encode())
    os._exit(code)
