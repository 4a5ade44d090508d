"""The words of a line, checked before anything is loaded: its stages and its scope."""

from collections.abc import Sequence
from typing import Protocol

from engine.errors import Refused
from engine.pruning import parse_layers
from engine.records.barriers import SCOPES, STAGES


class Scoped(Protocol):
    """What a question says of which tensors move, and of a refinement."""

    @property
    def scope(self) -> str: ...
    @property
    def refine(self) -> int: ...


def known(asked: Sequence[str], refine: int, *, whole: bool = True) -> tuple[str, ...]:
    """The stages of these names in the order of the work.

    Errors: Refused for other names, for none, and for a refinement of no steps or of a part.
    """
    strange = [stage for stage in asked if stage not in STAGES]
    if strange or not asked:
        raise Refused(
            f"There is no stage {strange[0] if strange else ''!r}: choose among "
            f"{', '.join(STAGES)}."
        )
    if "refined" in asked and not refine:
        raise Refused("The stage refined needs steps: give --refine, for instance 300.")
    if "refined" in asked and not whole:
        raise Refused("--refine moves all tensors: it goes with --scope whole.")
    return tuple(stage for stage in STAGES if stage in asked)


def layers_of(scope: str) -> tuple[int, ...]:
    """The layers of a scope such as "3-5", none for a word of `SCOPES`; Refused for all else."""
    if scope in SCOPES:
        return ()
    if not scope[:1].isdigit():
        raise Refused(
            f"There is no scope {scope!r}: choose among {', '.join(SCOPES)}, or name layers such "
            "as 3-5."
        )
    return parse_layers(scope)


def require(asked: Scoped, stages: Sequence[str]) -> None:
    """Refused for words that there are not, and as for `known`."""
    layers_of(asked.scope)
    whole = asked.scope == "whole"
    if not whole and (asked.refine or "refined" in stages):
        raise Refused("--refine moves all tensors: it goes with --scope whole.")
    known(stages, asked.refine)
    if asked.refine and "refined" not in stages:
        raise Refused(
            f"--refine {asked.refine} makes the stage refined, and {', '.join(stages)} was asked "
            "for: give --stage refined, or leave --refine out."
        )
