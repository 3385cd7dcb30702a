"""Results computed ahead of their use by threads, handed out in order.

Threads, not processes: decoding and resizing release Python's lock, memory maps are shared, and a
grid's worker processes may not have children.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ssmlbench.core.stopping import safe_point

T = TypeVar("T")


def ahead(make: Callable[[int], T], count: int, workers: int) -> Iterator[T]:
    """Yield make(0), … make(count - 1); each worker computes up to two results in advance.

    A process that was asked to stop stops before the next one.
    """
    if workers < 1:
        for i in range(count):
            safe_point()
            yield make(i)
        return
    pending: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="prefetch") as pool:
        try:
            for i in range(count):
                safe_point()
                pending.append(pool.submit(make, i))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:  # the reader may stop early
            for future in pending:
                future.cancel()
