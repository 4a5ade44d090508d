"""Memory that is freed and asked for again: kept by C's allocator, not given back in between.

A small model's pass makes the same few tensors in every layer. By default glibc returns them to
the system as they are freed, which then clears each page anew before it is used again: up to a
quarter of such a pass. Before something large is made, all of it is given back.
"""

import ctypes
from functools import cache

KEPT = 2**27
"""Bytes that stay with the process when they are freed, at most, beside those in use."""
LARGE = 2**25
"""Bytes from which a tensor has pages of its own, which go back as soon as it is freed."""
_TRIM, _OWN = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h


@cache
def keep() -> bool:
    """Set both for this process; False where the allocator is not glibc's."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    return tune is not None and bool(tune(_TRIM, KEPT)) and bool(tune(_OWN, LARGE))


def release() -> bool:
    """Give freed memory back to the system; False where there was none, or no glibc."""
    give = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return give is not None and bool(give(0))
