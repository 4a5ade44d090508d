"""Models of the Hugging Face hub, as snapshots on this machine."""

import os
from pathlib import Path
from typing import Any

from engine.errors import Progress, Refused

PATTERNS = [
    "*.safetensors", "*.json", "*.jinja", "tokenizer.model", "spiece.model", "vocab.txt",
    "merges.txt", "*.tiktoken",
]  # fmt: skip
"""All that is ever downloaded."""
SKIPPED = ["*/*", "consolidated*", "adapter_*", "*.onnx*"]
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "GAUGESCOPE_OFFLINE")


def is_offline(offline: bool = False) -> bool:
    """Whether downloads are off, by argument or by an environment variable of `OFFLINE`."""
    on = {"1", "ON", "YES", "TRUE"}
    return offline or any(os.environ.get(name, "").upper() in on for name in OFFLINE)


def download(name: str, *, offline: bool, progress: Progress) -> Path:
    """The snapshot of a hub model: safetensors, JSON and tokenizer files only.

    Offline, the snapshot must be there already. Errors: Refused in one line for whatever fails.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (slow to import)
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415
    from huggingface_hub.utils import validate_repo_id  # noqa: PLC0415
    from tqdm.auto import tqdm  # noqa: PLC0415

    class Silent(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    try:
        validate_repo_id(name)
        if name.count("/") != 1:
            raise HFValidationError(name)
    except HFValidationError as error:
        raise Refused(f"{name!r} is no model of the hub: write hf:owner/name.") from error
    local = is_offline(offline)
    progress(0.0, f"looking for {name}" if local else f"downloading {name}")
    try:
        folder = snapshot_download(
            name, allow_patterns=PATTERNS, ignore_patterns=SKIPPED, local_files_only=local,
            tqdm_class=Silent,
        )  # fmt: skip
    except Exception as error:
        raise Refused(unreachable(name, error, local)) from error
    progress(1.0, f"{name} is here")
    return Path(folder)


def unreachable(name: str, error: Exception, local: bool) -> str:
    """One line for a model that the hub did not give, and what to do about it."""
    from huggingface_hub import errors  # noqa: PLC0415 (slow to import)

    reason = " ".join(str(error).split())[:200] or type(error).__name__
    if local:
        return f"{name} has not been downloaded, and downloads are off: go online or give a folder."
    if isinstance(error, errors.GatedRepoError):
        return f"{name} asks for consent: accept its terms on the hub, then `hf auth login`."
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"The hub has no public model {name}: check the name, or `hf auth login`."
    return f"{name} could not be downloaded ({reason}): check the network, or give a folder."
