"""A model known by its content: a hash of its configuration and of what its files hold."""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.headers import Header

WHOLE = 64 * 2**20
"""Files up to this size enter the fingerprint whole, larger ones by samples."""
BLOCK, BLOCKS = 64 * 2**10, 64
COSMETIC = frozenset({"_name_or_path", "transformers_version", "dtype", "torch_dtype"})


def fingerprint(config: Mapping[str, Any], headers: Mapping[str, Header]) -> str:
    """32 hexadecimal digits of SHA-256 over the configuration and every weights file.

    The configuration enters without its cosmetic keys, in sorted order. A file of at most 64 MB
    enters whole: any bit counts. A larger one enters by its header, its size and 64 blocks of 64 KB
    spread evenly over it, first and last included. Names and folders do not enter, nor does the
    tokenizer: the same weights are the same model, whatever they read.
    """
    canonical = {key: value for key, value in config.items() if key not in COSMETIC}
    state = hashlib.sha256(json.dumps(canonical, sort_keys=True).encode())
    files = {h.file for h in headers.values()}
    for part in sorted(digest_file(path) for path in files):
        state.update(part)
    return state.hexdigest()[:32]


def sampled(size: int) -> bool:
    """Whether a file of so many bytes enters by samples."""
    return size > WHOLE


def digest_file(path: Path) -> bytes:
    """SHA-256 of a file: whole up to 64 MB, else of size, header and sampled blocks."""
    state = hashlib.sha256()
    status = path.stat()
    with path.open("rb") as file:
        if not sampled(status.st_size):
            while block := file.read(2**20):
                state.update(block)
            return state.digest()
        state.update(struct.pack("<Q", status.st_size))
        length = struct.unpack("<Q", file.read(8))[0]
        state.update(file.read(min(length, 16 * 2**20)))
        for number in range(BLOCKS):
            file.seek((status.st_size - BLOCK) * number // (BLOCKS - 1))
            state.update(file.read(BLOCK))
    return state.digest()
