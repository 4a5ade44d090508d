"""Texts of data sets of the Hugging Face hub: plain text and JSON lines, one file of them."""

from pathlib import Path

from engine.errors import Progress, Refused
from engine.hub import is_offline

ENDINGS = (".txt", ".jsonl", ".ndjson")
"""All that is ever downloaded of a data set."""
LARGEST = 20_000_000
"""Bytes of one text, where nobody says otherwise."""
OFF = "Downloads are off: paste the text, or upload a file."


def download(name: str, largest: int, progress: Progress) -> tuple[str, Path]:
    """The first text file of a data set in the order of names, and where it is on this machine.

    `largest` is the most bytes that a file may have. Errors: Refused in one line for whatever
    fails: offline, no such data set, none of its files small enough and a text.
    """
    from huggingface_hub import HfApi, hf_hub_download  # noqa: PLC0415 (slow to import)
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415
    from huggingface_hub.utils import validate_repo_id  # noqa: PLC0415

    if is_offline():
        raise Refused(OFF)
    try:
        validate_repo_id(name)
        if name.count("/") != 1:
            raise HFValidationError(name)
    except HFValidationError as error:
        raise Refused(f"{name!r} is no data set of the hub: write owner/name.") from error
    progress(0.0, f"looking for {name}")
    try:
        listed = HfApi().dataset_info(name, files_metadata=True).siblings or []
        sizes = {one.rfilename: one.size for one in listed}
        file = chosen(name, sizes, largest)
        progress(0.3, f"downloading {file}")
        path = hf_hub_download(name, file, repo_type="dataset")
    except Refused:
        raise
    except Exception as error:
        raise Refused(unreachable(name, error)) from error
    progress(1.0, f"{file} is here")
    return file, Path(path)


def chosen(name: str, sizes: dict[str, int | None], largest: int) -> str:
    """The first text file of at most `largest` bytes; Refused, with what there is, without one."""
    texts = sorted(file for file in sizes if file.lower().endswith(ENDINGS))
    small = [file for file in texts if (sizes[file] or largest + 1) <= largest]
    if small:
        return small[0]
    if texts:
        raise Refused(
            f"{name} has no text file of at most {largest / 1e6:.0f} MB, only larger ones "
            f"({texts[0]}): download one yourself and upload a part of it."
        )
    kinds = sorted({Path(file).suffix for file in sizes} - {""})[:5]
    raise Refused(
        f"{name} has no {', '.join(ENDINGS)} file (it has {', '.join(kinds) or 'none'}): export "
        "its text and upload it."
    )


def unreachable(name: str, error: Exception) -> str:
    """One line for a data set that the hub did not give."""
    from huggingface_hub import errors  # noqa: PLC0415 (slow to import)

    reason = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, errors.GatedRepoError):
        return f"{name} asks for consent: accept its terms on the hub, then `hf auth login`."
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"The hub has no public data set {name}: check the name."
    return f"{name} could not be downloaded ({reason}): check the network, or upload a file."
