"""`python -m app [A B]`: check the input, then serve the pages on this machine.

Exit 1 with one clear line for a refused model, 2 for wrong usage.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.settings import ROOT, Settings, settings
from engine.checkpoint import open_checkpoint
from engine.errors import Refused
from engine.sources import SMOLLM2, Roots

MAIN = ROOT / "app" / "main.py"
DEVICES = "auto, cpu, cuda, cuda:1, mps"
MODELS = "the reference: a folder, a .gguf file, hf:owner/name, demo:NAME or smollm2"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    asked = argparse.ArgumentParser("python -m app", description="Explore two checkpoints.")
    asked.add_argument("a", nargs="?", metavar="A", help=MODELS)
    asked.add_argument("b", nargs="?", metavar="B", help="what is put into A's coordinates")
    asked.add_argument("--port", type=int, default=8501, help="port on this machine")
    asked.add_argument("--device", default="auto", help=DEVICES)
    asked.add_argument(
        "--roots", nargs="+", type=Path, metavar="DIR", help="folders whose models may be opened"
    )
    asked.add_argument("--hosted", action="store_true", help="demo models only, no downloads")
    return asked


def started(arguments: Sequence[str]) -> tuple[Settings, int]:
    """Settings and port of a command line; models named on it may be opened."""
    asked = parser()
    given = asked.parse_args(arguments)
    if given.a is not None and given.b is None:
        asked.error("give two models, A and B, or none")
    if not 0 < given.port < 65536:
        asked.error(f"--port {given.port} is not between 1 and 65535")
    if given.device.partition(":")[0] not in {"auto", "cpu", "cuda", "mps"}:
        asked.error(f"--device {given.device} is none of {DEVICES}")
    chosen = settings()
    roots = tuple(given.roots) if given.roots else chosen.roots
    for root in given.roots or ():
        if not root.is_dir():
            asked.error(f"--roots {root} is no folder")
    chosen = replace(chosen, device=given.device, hosted=given.hosted)
    return _admitted(chosen, roots, given), given.port


def _admitted(chosen: Settings, roots: tuple[Path, ...], given: argparse.Namespace) -> Settings:
    """The settings with both models checked and their folders allowed."""
    named = [spec for spec in (given.a, given.b) if spec is not None]
    opened = [_opened(spec) for spec in named]
    folders = tuple(Path(spec) for spec in opened if _is_path(spec))
    allowed = tuple(dict.fromkeys((*roots, *folders)))
    specs = [Roots(allowed, chosen.hosted).admit(spec) for spec in opened]
    pair = (*specs, None, None)
    return replace(chosen, roots=allowed, a=pair[0] or chosen.a, b=pair[1] or chosen.b)


def _opened(spec: str) -> str:
    """The spec of a model that opens; a folder's in full. Errors: Refused."""
    if spec == SMOLLM2 or spec.startswith("hf:"):
        return spec  # opened on the page, where its progress shows
    path = _is_path(spec)
    _ = open_checkpoint(spec).fingerprint
    return str(Path(spec).expanduser().resolve()) if path else spec


def _is_path(spec: str) -> bool:
    return spec != SMOLLM2 and spec.partition(":")[0] not in {"demo", "hf"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted."""
    try:
        chosen, port = started(sys.argv[1:] if arguments is None else arguments)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 1
    os.environ |= chosen.environment()
    from streamlit.web import cli  # noqa: PLC0415 (slow; refused input should not wait for it)

    cli.main(["run", str(MAIN), "--server.port", str(port)], standalone_mode=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
