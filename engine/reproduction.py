"""What papers published and what was measured here in kind, read from files into records."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import Refused
from engine.records import (
    VARIANTS,
    Architecture,
    Connectivity,
    CutReport,
    LayerMaps,
    OrderTrial,
    PublishedConnectivity,
    PublishedCoordinates,
    ScopeRatios,
)
from engine.store import SHIPPED, UNREADABLE, Store, read

ASSETS = Path(__file__).resolve().parent.parent / "assets"
MEASURED = ASSETS / "results" / "lmc.json"
PUBLISHED = ASSETS / "published"
PLACE = ("architecture", "scope", "using")
"""What the pairs of one setting have in common."""


def measured(path: Path = MEASURED) -> Connectivity:
    """The barriers of `python -m assets.make_lmc`. Errors: Refused where there are none."""
    if not path.is_file():
        raise Refused(f"There is no {path.name}: run python -m assets.make_lmc to measure it.")
    held = json.loads(path.read_text(encoding="utf-8"))
    places = dict.fromkeys(tuple(one[word] for word in PLACE) for one in held["pairs"])
    return Connectivity(
        architectures={name: _architecture(name, one) for name, one in
                       held["architectures"].items()},
        scopes=tuple(_scope(held["pairs"], *place) for place in places),
        orders=tuple(_trial(one) for one in held["orders"]),
        missing=tuple(held["missing"]),
        left_out=tuple(held["left out"]),
        points=held["settings"]["points"],
        command=held["command"],
        seconds=held["seconds"],
    )  # fmt: skip


def _architecture(name: str, one: Mapping[str, Any]) -> Architecture:
    words = ("kind", "positions", "asked", "data", "layers", "width", "heads")
    return Architecture(name, **{word: one[word] for word in words})


def _scope(pairs: list[dict[str, Any]], architecture: str, scope: str, using: str) -> ScopeRatios:
    here = dict(zip(PLACE, (architecture, scope, using), strict=True))
    own = [one for one in pairs if here.items() <= one.items()]
    relative = [[_triple(one["relative"].get(variant)) for one in own] for variant in VARIANTS]
    return ScopeRatios(
        architecture,
        scope,
        tuple((one["a"], one["b"]) for one in own),
        np.array([one["barrier"]["naive"][0] for one in own]),
        np.array(relative),
        np.array([_triple(one["barrier"]["full"]) for one in own]),
        np.array([_triple(one["full less orthogonal"]) for one in own]),
        using,
    )


def _triple(found: list[float] | None) -> list[float]:
    """Value, low, high; nan where there is none."""
    return [*(found or ()), *([float("nan")] * 3)][:3]


def _trial(one: Mapping[str, Any]) -> OrderTrial:
    return OrderTrial(
        one["architecture"],
        (one["a"], one["b"]),
        np.array(one["barrier"]),
        one["naive"],
        one["chosen"],
        (one["rank by objective"], one["rank by barrier"]),
        one["using"],
    )


def connectivity() -> PublishedConnectivity:
    """The ablation and the scopes of Tran et al. 2026."""
    held = json.loads((PUBLISHED / "connectivity.json").read_text(encoding="utf-8"))
    setting = held["setting"]
    return PublishedConnectivity(
        held["source"],
        setting["models"],
        tuple(setting["data"]),
        setting["scope"],
        {word: (low / 100, high / 100) for word, (low, high) in held["relative"].items()},
        held["orders"]["found"],
        {scope: (one["small"], one["large"]) for scope, one in held["scopes"].items()},
    )


def coordinates() -> PublishedCoordinates:
    """Trajectories and transport of Sweeney 2026."""
    held = json.loads((PUBLISHED / "coordinates.json").read_text(encoding="utf-8"))
    shares = {name: float(x) for name, x in held["trajectory"].items() if name != "setting"}
    moved = {n: (x[0], x[1]) for n, x in held["transport"].items() if n != "setting"}
    return PublishedCoordinates(
        held["source"], held["trajectory"]["setting"], shares, held["transport"]["setting"], moved
    )


def demo_shares() -> dict[str, float]:
    """Per cent of coordinates found between the demo's two fine-tunes, by way."""
    held = json.loads((ASSETS / "demo" / "record.json").read_text(encoding="utf-8"))["drift"]
    ways = {"composed": "composed", "endpoint": "endpoint", "through the base": "through_base"}
    return {way: 100 * float(held[word]) for way, word in ways.items()}


def shipped_maps(model: str) -> LayerMaps | None:
    """The maps of replacing and swapping that ship for a model, whether it is installed or not."""
    found = (one for one in _shipped() if isinstance(one, LayerMaps) and one.model == model)
    return next((one for one in found if {"replace", "swap"} <= one.tests.keys()), None)


def shipped_cut(model: str) -> CutReport | None:
    """The cuts that ship for a model."""
    found = (one for one in _shipped() if isinstance(one, CutReport) and one.model == model)
    return next(found, None)


def _shipped() -> Iterator[object]:
    """Every record of `assets/results`."""
    classes = Store(SHIPPED[1]).classes
    for path in sorted((SHIPPED[1] / "records").glob("*.json")):
        try:
            key = str(json.loads(path.read_text(encoding="utf-8"))["key"])
        except UNREADABLE:
            continue
        yield read(path, key, classes)
