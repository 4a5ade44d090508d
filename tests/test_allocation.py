"""Freed memory stays for the next tensor, and goes when it is asked to."""

import ctypes
import subprocess
import sys

import pytest

from engine.allocation import keep, release

START = """
import ctypes, resource
from engine.allocation import keep, release
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def filled(count):
    held = [libc.malloc(2**20) for _ in range(count)]
    for place in held:
        ctypes.memset(place, 1, 2**20)
    return held
def free(held):
    for place in held:
        libc.free(place)
"""
LAYERS = """
if {kept}:
    assert keep()
free(filled(16)); free(filled(16))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    free(filled(16))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
HOLES = """
keep()
held = filled(64)
free(held[::2])
if {released}:
    assert release()
lines = open("/proc/self/status").read().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("RssAnon")))
"""
GLIBC = hasattr(ctypes.CDLL(None), "mallopt")
glibc = pytest.mark.skipif(not GLIBC, reason="another allocator")


def found(text: str, **how: bool) -> int:
    """What a process of its own prints."""
    command = [sys.executable, "-c", START + text.format(**how)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@glibc
def test_freed_memory_is_used_again() -> None:
    assert found(LAYERS, kept=True) < 1000 < found(LAYERS, kept=False)


@glibc
def test_holes_are_given_back() -> None:
    kilobytes = found(HOLES, released=False) - found(HOLES, released=True)
    assert kilobytes == pytest.approx(32 * 1024, rel=0.2)


def test_other_allocators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    keep.cache_clear()
    assert keep() is False
    assert release() is False
    monkeypatch.undo()
    keep.cache_clear()
    assert keep() is GLIBC
