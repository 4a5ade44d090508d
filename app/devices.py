"""Devices on offer, and which of them take turns; without importing torch."""

import platform
import shutil
import sys
from typing import Any


def torch_ready() -> Any | None:
    """The torch module once it is imported; None before, and while a job is importing it."""
    torch = sys.modules.get("torch")
    if torch is None or getattr(torch.__spec__, "_initializing", False):
        return None
    return torch


def devices() -> tuple[str, ...]:
    """Devices on offer; accelerators only once torch has been imported by a job."""
    torch = torch_ready()
    if torch is None:
        return ("auto", "cpu")
    found = ("cuda",) if torch.cuda.is_available() else ()
    found += ("mps",) if torch.backends.mps.is_available() else ()
    return ("auto", "cpu", *found)


def lane(device: str) -> str:
    """The device that a choice stands for, guessed without torch: jobs of one lane take turns."""
    if device != "auto":
        return device
    if shutil.which("nvidia-smi"):
        return "cuda"
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    return "mps" if apple else "cpu"
