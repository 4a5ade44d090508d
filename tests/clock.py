"""What a piece of work takes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Wall and processor seconds, and the largest memory beyond what there was before, in GB."""
    found: dict[str, float] = {}
    process, over = psutil.Process(), threading.Event()
    before = process.memory_info().rss
    most = [before]

    def watch() -> None:
        while not over.wait(0.01):
            most[0] = max(most[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began, used = time.perf_counter(), time.process_time()
    try:
        yield found
    finally:
        found["seconds"] = time.perf_counter() - began
        found["processor_seconds"] = time.process_time() - used
        over.set()
        watcher.join()
        found["gb"] = (most[0] - before) / 1e9
