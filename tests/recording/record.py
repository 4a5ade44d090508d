# ruff: noqa: T201 (a script that prints)
"""Whether the program still answers what it did: `python tests/recording/record.py [--write]`.

Every line of `asked.py` is asked in process, with one thread, on demo models and on a tiny model of
every family; what it prints as JSON, says and writes is compared with `answers.json.xz`. Names,
words, whole numbers and lengths are equal or differ; floats within 1e-12 of the largest in their
list differ by the order of sums only, which is counted and accepted. Times and versions alone are
left out, by name (`answers.LEFT_OUT`), and folders of this run are one word. A list of 8 floats and
more is packed as float64; of more than 4096, as an array in a file, it is kept as a digest: 64 bits
of its SHA-256, its norm and a weighted sum.

Another processor or another torch gives other last digits: `--against REV` asks the program of that
revision too, here and now, and compares with it instead.
"""

import argparse
import json
import lzma
import os
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np

from tests.offline import OFFLINE
from tests.recording import asked
from tests.recording.compare import MISSING, count, differences

KEPT = Path(__file__).with_name("answers.json.xz")
ALONE = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100", "NO_COLOR": "1"}
"""One thread, no graphics card, lines of one width."""
PACKAGES = ("torch", "numpy", "scipy", "transformers")
MOST = 20
"""Differences of one command that are printed."""
Answers = dict[str, Any]


def machine() -> dict[str, str]:
    """What last digits depend on."""
    found = {name: version(name) for name in PACKAGES}
    return {"processor": processor(), "python": platform.python_version(), **found}


def processor() -> str:
    """Name, family and model number where Linux tells them, or else the architecture."""
    path = Path("/proc/cpuinfo")
    rows = path.read_text().splitlines() if path.exists() else []
    held = {name.strip(): value.strip() for name, _, value in (r.partition(":") for r in rows)}
    words = [held[name] for name in ("model name", "cpu family", "model") if name in held]
    return ", ".join(words) or platform.machine()


def kept() -> tuple[dict[str, str], Answers]:
    """The machine and the answers of the kept file."""
    held = json.loads(lzma.decompress(KEPT.read_bytes()))
    return held["machine"], held["answers"]


def keep(answers: Answers) -> None:
    """Write the kept file anew."""
    text = json.dumps({"machine": machine(), "answers": answers}, separators=(",", ":"))
    KEPT.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def given(folder: Path) -> None:
    """Tiny checkpoints, ids, images and words: drawn with fixed seeds by the tree of this file."""
    from tests import tiny

    for name in (*asked.FAMILIES, *asked.VARIANTS):
        tiny.build(name, folder / "tiny" / name)
    draw = np.random.default_rng(0)
    ids, labels = draw.integers(3, 96, (16, 12)), draw.integers(0, 3, 16)
    pixels = draw.normal(size=(16, 3, 12, 12)).astype(np.float32)
    (folder / "ids.json").write_text(json.dumps(ids.tolist()))
    np.savez(folder / "labels.npz", input_ids=ids, labels=labels)
    np.savez(folder / "images.npz", pixel_values=pixels, labels=labels)
    np.savez(folder / "pixels.npz", pixel_values=pixels)
    known = json.loads((ROOT / "assets/demo/base/tokenizer.json").read_text())["model"]["vocab"]
    words = draw.choice([word for word in known if not word.startswith("<")], 3000)
    (folder / "words.txt").write_text(" ".join(words))


def ask(trees: Sequence[Path], folder: Path, text: str) -> list[Answers]:
    """What the program in each of some folders answers; all are asked at once."""
    given(folder / "given")
    files = [folder / f"{k}.json" for k in range(len(trees))]
    running = [
        subprocess.Popen([
            sys.executable, Path(__file__).with_name("answers.py"), tree, folder / "given", file,
            text,
        ])
        for tree, file in zip(trees, files, strict=True)
    ]  # fmt: skip
    codes = [process.wait() for process in running]
    if any(codes):
        sys.exit("Not everything could be asked: see above.")
    return [json.loads(file.read_text()) for file in files]


def revision(name: str, folder: Path) -> Path:
    """The files of a revision, written into a folder."""
    packed = folder / "revision.zip"
    subprocess.run(["git", "archive", "--output", packed, name], cwd=ROOT, check=True)
    with zipfile.ZipFile(packed) as held:
        held.extractall(folder / "revision")
    return folder / "revision"


def report(before: Answers, after: Answers) -> int:
    """Print every difference and the sum of all; how many there are."""
    wrong = sums = 0
    for line in {**before, **after}:
        found = list(differences(before.get(line, MISSING), after.get(line, MISSING)))
        real = [one for one in found if not one.sums]
        wrong, sums = wrong + len(real), sums + len(found) - len(real)
        for one in real[:MOST]:
            print(f"{line}  {one}")
        if len(real) > MOST:
            print(f"{line}  … and {len(real) - MOST} more")
    numbers, digests = count(after)
    print(
        f"{len(after)} commands, {numbers:,} numbers, {digests:,} arrays: {wrong} differences; "
        f"{sums} more by the order of sums only"
    )
    return wrong


def strange(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """A line that says on what else the kept answers were made, empty for nothing."""
    other = [f"{n} {then.get(n)} (here {now[n]})" for n in now if then.get(n) != now[n]]
    return f"Last digits may differ, see --against: kept with {', '.join(other)}" * bool(other)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--write", action="store_true", help="write the kept file anew")
    which.add_argument("--against", metavar="REV", help="compare with what a revision answers here")
    parser.add_argument("--only", default="", metavar="TEXT", help="only commands that hold it")
    found = parser.parse_args()
    if found.write and found.only:
        parser.error("--write asks everything: leave --only out")
    return found


def main() -> int:
    """1 where answers differ, 0 where they do not or were written anew."""
    wanted, began = options(), time.perf_counter()
    os.environ |= OFFLINE | ALONE
    then, before = ({}, {}) if wanted.against or not KEPT.exists() else kept()
    if before and (line := strange(then, machine())):
        print(line)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        trees = [ROOT, *([revision(wanted.against, folder)] if wanted.against else [])]
        after, *others = ask(trees, folder, wanted.only)
    before, after = (
        {line: answer for line, answer in held.items() if wanted.only in line}
        for held in (others[0] if others else before, after)
    )
    wrong = report(before, after)
    print(f"{time.perf_counter() - began:.0f} s")
    if wanted.write:
        keep(after)
        print(f"{KEPT.stat().st_size:,} bytes")
    return int(wrong > 0 and not wanted.write)


if __name__ == "__main__":
    sys.exit(main())
