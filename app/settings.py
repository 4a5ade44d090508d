"""How the program was started: initial pair, device, allowed folders, hosted or not.

`python -m app` writes these environment variables; they can be set by hand for `streamlit run`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOTS, HOSTED = "GAUGESCOPE_ROOTS", "GAUGESCOPE_HOSTED"
PAIR_A, PAIR_B, DEVICE = "GAUGESCOPE_A", "GAUGESCOPE_B", "GAUGESCOPE_DEVICE"
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Settings:
    """The choices of whoever started the program."""

    a: str | None
    b: str | None
    device: str
    roots: tuple[Path, ...]
    hosted: bool  # no folders of this machine, no downloads

    def environment(self) -> dict[str, str]:
        """The variables that hand these settings to the server."""
        named = {PAIR_A: self.a, PAIR_B: self.b, HOSTED: "1" if self.hosted else None}
        found = {name: value for name, value in named.items() if value}
        return found | {DEVICE: self.device, ROOTS: os.pathsep.join(map(str, self.roots))}


def settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from the environment; folders default to the working directory."""
    declared = environment.get(ROOTS)
    roots = declared.split(os.pathsep) if declared else [str(Path.cwd())]
    return Settings(
        a=environment.get(PAIR_A),
        b=environment.get(PAIR_B),
        device=environment.get(DEVICE, "auto"),
        roots=tuple(Path(root) for root in roots if root),
        hosted=environment.get(HOSTED, "") not in {"", "0"},
    )
