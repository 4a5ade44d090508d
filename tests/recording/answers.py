"""What the program answers: `python tests/recording/answers.py TREE GIVEN FILE [TEXT]`.

The program of TREE is asked through `engine.cli.main`, in this process, in a copy of GIVEN, all
lines of `asked.py` of this tree or those that hold TEXT; FILE takes the answers as JSON.
"""

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
from tqdm import tqdm

from tests.recording import asked

LEFT_OUT: Mapping[str, str] = {
    "seconds": "how long it took",
    "seconds aligning": "how long a part of it took",
    "version": "the program's; fingerprints and keys stay",
    "transformers_version": "who wrote a configuration",
}
"""Fields that are not recorded, wherever they stand, and what they hold; no others are left out."""
TIMES = re.compile(r"about \S+ s each on this machine: about [\d.]+ (s|min|h)")
"""Times inside a line of progress."""
LONG, HUGE = 8, 4096
"""Numbers from which a list of floats is packed; beyond which only its digest is kept."""
COPIED = ("tokenizer.json",)
"""Files that come along unchanged: their digest is kept."""
STOPPED = (130, 143)
"""The exit codes after Ctrl-C and after SIGTERM: no answers."""
Main = Callable[[list[str]], int]
Answer = dict[str, Any]


def answers(main: Main, folder: Path, tree: Path, text: str = "") -> dict[str, Answer]:
    """Every line that holds a text, and those that make models, with its answer."""
    lines = [x for x in asked.commands() if text in x or x.startswith("scramble")]
    known = {os.environ["GAUGESCOPE_STORE"]: "STORE", str(folder): "FOLDER", str(tree): "TREE"}
    bar = tqdm(lines, file=sys.stderr, disable=None, leave=False)
    return {line: answer(main, shlex.split(line), folder, known) for line in bar}


def answer(main: Main, words: list[str], folder: Path, known: Mapping[str, str]) -> Answer:
    """Exit code, stdout, stderr and the files that a command wrote; `known` paths are one word.

    What is not written under `made` is gone afterwards. A command that was stopped ends everything.
    """
    name = words[words.index("--out") + 1] if "--out" in words else ""
    out, new = folder / name, not (folder / name).exists()
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            ended: Answer = {"code": main(words)}
        except Exception as error:  # noqa: BLE001 (an answer as any other)
            ended = {"raised": f"{type(error).__name__}: {error}"}
    if ended.get("code") in STOPPED:
        sys.exit(ended["code"])
    found = ended | {"printed": parsed(printed.getvalue()), "says": TIMES.sub("", said.getvalue())}
    if new and out.exists():
        found["written"] = written(out, found["printed"])
        if not name.startswith("made/"):
            shutil.rmtree(out) if out.is_dir() else out.unlink()
    return packed(worded(found, known))


def written(out: Path, printed: Any) -> Answer:
    """The content of a file, or of all files of a folder, by their names."""
    files = sorted(path for path in out.rglob("*") if path.is_file()) if out.is_dir() else [out]
    found = {path.name if path == out else path.relative_to(out).as_posix(): path for path in files}
    return {name: content(path, printed) for name, path in found.items()}


def content(path: Path, printed: Any) -> Any:
    """JSON and text as they are, digests of arrays; a file that holds what was printed says so."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as held:
            return {name: digest(held[name]) for name in held.files}
    if path.suffix == ".safetensors":
        return stored(path)
    if path.name in COPIED:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    found = parsed(path.read_text(encoding="utf-8"))
    return "as printed" if found == printed and found else found


def stored(path: Path) -> Answer:
    """The tensors and the remarks of a .safetensors file."""
    import torch
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        remarks = {name: parsed(text) for name, text in (file.metadata() or {}).items()}
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    narrow = {n: str(x.dtype).removeprefix("torch.") for n, x in held.items()}
    tensors = {
        name: digest(x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy())
        for name, x in held.items()
    }
    return {"remarks": remarks, "dtypes": narrow, "tensors": tensors}


def parsed(text: str) -> Any:
    """What a text holds as JSON, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def worded(value: Any, known: Mapping[str, str]) -> Any:
    """A value with a word in place of every known path."""
    if isinstance(value, dict):
        return {name: worded(part, known) for name, part in value.items()}
    if isinstance(value, list):
        return [worded(part, known) for part in value]
    if isinstance(value, str):
        for path, word in known.items():
            value = value.replace(path, word)
    return value


def packed(value: Any) -> Any:
    """A value without the fields that are left out, its long lists of floats packed."""
    if isinstance(value, dict):
        return {name: packed(part) for name, part in value.items() if name not in LEFT_OUT}
    if not isinstance(value, list):
        return value
    array = floats(value)
    if array is None or array.size < LONG:
        return [packed(part) for part in value]
    if array.size > HUGE:
        return digest(array)
    text = base64.b64encode(array.astype("<f8").tobytes()).decode()
    return {"shape": list(array.shape), "float64": text}


def floats(value: list[Any]) -> np.ndarray | None:
    """Nested lists of equal lengths that hold nothing but floats; None for others."""
    if any(type(leaf) is not float for leaf in leaves(value)):
        return None
    try:
        return np.array(value, np.float64)
    except ValueError:  # rows of different lengths
        return None


def leaves(value: list[Any]) -> Iterator[Any]:
    """What stands in nested lists."""
    for part in value:
        yield from leaves(part) if isinstance(part, list) else [part]


def digest(array: np.ndarray) -> Answer:
    """Dtype, shape, 64 bits of SHA-256; of finite floats ‖x‖ and Σ wᵢ xᵢ, by which 1e-12 is told.

    The weights wᵢ in [−½, ½) are the fractions of multiples of the golden ratio: no exchange of two
    numbers goes unseen.
    """
    bits = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    found = {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": bits}
    flat = array.astype(np.float64).ravel() if array.dtype.kind == "f" else np.array([np.nan])
    if not np.isfinite(flat).all():
        return found
    weights = np.arange(1, flat.size + 1) * ((5**0.5 - 1) / 2) % 1 - 0.5
    return found | {"norm": float(np.sqrt(np.sum(flat**2))), "sum": float(np.sum(weights * flat))}


def main() -> None:
    """Ask all and write the answers."""
    tree, given, file = (Path(word).resolve() for word in sys.argv[1:4])
    sys.path.insert(0, str(tree))
    import torch

    from engine.cli import main as program

    torch.set_num_threads(1)
    text = "".join(sys.argv[4:])
    sys.argv = ["engine"]  # what usage errors begin with
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve() / "given"
        shutil.copytree(given, folder)
        os.environ["GAUGESCOPE_STORE"] = str(folder.parent / "store")
        os.chdir(folder)
        file.write_text(json.dumps(answers(program, folder, tree, text)))
        os.chdir(tree)


if __name__ == "__main__":
    main()
