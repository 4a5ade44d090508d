"""Every JSON file that a page offers: strict JSON that says which question made it."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app import merged, outputs, texts
from app.charts import tables
from app.outputs import Download
from app.settings import ROOT
from engine import store
from engine.errors import silent
from engine.exports import documents
from engine.exports import layers as layer_exports
from engine.exports import line as line_exports
from engine.questions import (
    Align,
    AllNeurons,
    Barrier,
    Continue,
    Cut,
    Drop,
    Experts,
    Forecast,
    Gap,
    Heads,
    Inspect,
    Lab,
    Layers,
    Match,
    Merge,
    Neurons,
    Orders,
    Question,
    Related,
    Slice,
    Turn,
    Written,
)
from engine.records import ExpertsReport, LossSlice
from engine.records.experts import Toll
from tests import (
    app_pages,
    fake_alignments,
    fake_barriers,
    fake_heads,
    fake_layers,
    fake_neurons,
    fakes,
)

JSON = "application/json"
EXPORTS: dict[type, Callable[[Any], Any]] = {
    Layers: layer_exports.of_maps,
    Cut: layer_exports.of_cut,
    Gap: layer_exports.of_gap,
    Barrier: line_exports.of_barrier,
    Slice: line_exports.of_slice,
    Orders: line_exports.of_orders,
}
"""What the command line writes of an answer; of others, `tables.document`."""


def experts() -> ExpertsReport:
    """Four experts in another order, without a loss."""
    order, square, draw = np.array([2, 0, 3, 1]), np.ones((4, 4), np.float32), np.ones((4, 6))
    toll = Toll(np.full(5, 0.1), np.full(5, np.nan))
    return ExpertsReport(
        "base", "twin", ("a", "b"), "mixtral", 0, 6, 4, 2, 6, 0, "weights", square, square,
        order, order, order, np.roll(order, 1), draw[:, 0].astype(np.float32), order, order,
        np.argsort(draw, 1), draw, draw.astype(np.float32), draw[:, 0], 0 * draw[:, 0], None,
        toll, toll, None, np.zeros((0, 2), np.int64), None, None, "16 tokens", "cpu", "float32", 1,
    )  # fmt: skip


def plane(asked: Slice) -> LossSlice:
    """A plane that was stopped: what is missing is NaN."""
    return fake_barriers.plane(asked.points, complete=False)


RECORDS: dict[type, Callable[[Any], Any]] = {
    Align: lambda q: fake_alignments.alignment(),
    AllNeurons: lambda q: fake_neurons.neuron_layers(),
    Barrier: lambda q: fake_barriers.report(("none", "heads", "all")),
    Continue: lambda q: fake_layers.continuation(),
    Cut: lambda q: fake_layers.cut_report(budget=q.budget),
    Drop: lambda q: fake_layers.cut_cost(q.drop),
    Experts: lambda q: experts(),
    Forecast: lambda q: fake_barriers.estimate(),
    Gap: lambda q: fake_layers.gap(),
    Heads: lambda q: fake_heads.heads_report(),
    Lab: lambda q: fakes.experiment(),
    Layers: lambda q: fake_layers.partial(),
    Match: lambda q: fakes.residual_match(),
    Neurons: lambda q: fake_neurons.neuron_match(),
    Orders: lambda q: fake_barriers.orders(),
    Related: lambda q: fake_alignments.relatedness(),
    Slice: plane,
    Turn: lambda q: fake_heads.turn_report(),
    Written: lambda q: fake_barriers.writing(q.at, q.stage),
}


@dataclass(frozen=True)
class Seen:
    """What a page asked first, what it offers, and what was written."""

    asked: dict[type, Any] = field(default_factory=dict)
    files: list[Download] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.asked.clear()
        self.files.clear()
        self.made.clear()


@pytest.fixture
def seen(pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every question of a page is answered by a fake record, nothing is queued."""
    monkeypatch.setattr(store, "SHIPPED", ())
    outputs.results.cache_clear()
    card = replace(fakes.model_card("base", "a" * 16), heads=3, kv_heads=3, experts=4)
    for path, letter in zip(pair, "ab", strict=True):
        outputs.results().put(Inspect(path).key, replace(card, fingerprint=letter * 16))
    found, known, put_out = Seen(), outputs.known, outputs.take_away

    def answer(question: Any, *_: Any, **__: Any) -> Any:
        kind = type(question)
        if isinstance(question, Question):
            found.asked.setdefault(kind, question)  # panels ask more questions after the page's
        if kind not in RECORDS:
            return known(question) if isinstance(question, Question) else None
        return RECORDS[kind](question)

    def take_away(files: list[Download], *rest: Any) -> None:
        found.files.extend(files)
        put_out(files, *rest)

    def made(body: Any, asked: Any) -> Any:
        found.made.append(type(asked).__name__)
        return documents.made(body, asked)

    for name in ("known", "measured", "answered"):
        monkeypatch.setattr(outputs, name, answer)
    monkeypatch.setattr(outputs, "take_away", take_away)
    monkeypatch.setattr(outputs, "made", made)
    monkeypatch.setattr(texts.Counting, "answer", lambda q, progress: 5000)
    return found


def strict(text: str) -> Any:
    """The values of a JSON text. Errors: ValueError for NaN and infinities."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def written(seen: Seen) -> dict[str, Any]:
    """The JSON files of the last run by name, read back."""
    return {one.name: strict(str(one.make())) for one in seen.files if one.mime == JSON}


def to_cpu(at: AppTest) -> AppTest:
    return at.selectbox(key="device").select("cpu")


def to_b(at: AppTest) -> AppTest:
    return at.segmented_control(key="of").set_value("B")


PAGES = {
    "alignment": ({"alignment.json": Align, "related.json": Related}, to_cpu),
    "atlas": ({"card.json": Inspect}, to_b),
    "barrier": ({"barrier.json": Barrier, "slice.json": Slice, "orders.json": Orders}, to_cpu),
    "cutting": ({"cut.json": Cut}, to_cpu),
    "gap": ({"gap.json": Gap}, to_cpu),
    "heads": ({"heads-layer-0.json": Heads}, to_cpu),
    "lab": ({"lab-ffn-order.json": Lab}, to_cpu),
    "layers": ({"layers.json": Layers}, to_cpu),
    "models": ({"alignment.json": Align, "related.json": Related}, to_cpu),
    "neurons": (
        {"neurons-layer-0.json": Neurons, "neurons.json": AllNeurons,
         "experts-layer-0.json": Experts},
        to_cpu,
    ),
    "residual": ({"match.json": Match}, to_cpu),
}  # fmt: skip
"""The JSON files of every page with the question of each, and a control that asks another."""


def shown(seen: Seen, name: str, **link: str) -> AppTest:
    """A page alone: not what the first page of the program offers before it."""
    at = app_pages.opened(**link)
    seen.clear()
    at = at.switch_page(str(ROOT / "pages" / f"{name}.py")).run()
    assert not at.exception
    return at


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_json_file_of_a_page_says_what_made_it(seen: Seen, name: str) -> None:
    kinds, turn = PAGES[name]
    at = shown(seen, name)
    assert seen.made == []  # nothing is written, no content read, before a file is asked for
    expanders = [one.label for one in at.expander]
    assert expanders and len(expanders) == len(set(expanders))
    before = written(seen)
    assert sorted(before) == sorted(kinds)
    assert sorted(seen.made) == sorted(kind.__name__ for kind in kinds.values())
    for file, kind in kinds.items():
        asked, told = seen.asked[kind], before[file]
        assert told.pop("question") == strict(documents.written(documents.question(asked)))
        record = outputs.known(asked)
        export = EXPORTS.get(kind, tables.document)
        assert told == strict(documents.written(export(record)))
    keys = {kind: seen.asked[kind].key for kind in kinds.values()}
    seen.clear()
    turn(at).run()
    assert not at.exception
    for file, document in written(seen).items():
        assert document["question"]["name"] == kinds[file].__name__
        assert document["question"]["key"] == seen.asked[kinds[file]].key != keys[kinds[file]]


def test_published_maps_were_made_by_no_question(seen: Seen) -> None:
    shown(seen, "layers", source="published qwen3-8b")
    (document,) = written(seen).values()
    assert document["published"]
    assert "question" not in document
    assert seen.made == []


def test_what_was_not_measured_is_null_and_nan_is_no_json() -> None:
    values = tables.document(experts())
    told = strict(documents.written(values))
    assert told["halfway"]["loss"] == [None] * 5 and told["halfway"]["kl"] == [0.1] * 5
    with pytest.raises(ValueError, match="NaN is no JSON"):
        strict(json.dumps(values))


def test_matrices_of_rank_three_are_left_to_the_arrays() -> None:
    record = fakes.residual_match()
    assert tables.document(record)["correlation"].startswith(
        f"array {list(record.correlation.shape)}"
    )
    one = tables.document(record.absolute[0])
    assert one["permutation"] == record.absolute[0].permutation.tolist()


def test_a_file_is_read_anew_each_time_it_is_asked_for(pair: tuple[str, str]) -> None:
    held = {"x": 1.0}
    file = outputs.document("Record (JSON)", "x.json", lambda: held, Related(*pair))
    assert (file.name, file.mime) == ("x.json", JSON)
    first = strict(str(file.make()))
    held["x"] = float("nan")
    again = strict(str(file.make()))
    assert (first["x"], again["x"]) == (1.0, None)
    assert first["question"] == again["question"]
    assert (
        first["question"]["fingerprints"]
        != documents.question(Related(*pair[::-1]))["fingerprints"]
    )


def test_the_report_beside_a_merge_says_what_made_it(
    pair: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Merge, "answer", lambda self, *_: fake_barriers.merge(self.t))
    for t in (0.5, 0.25):
        asked, out = Merge(*pair, t=t), tmp_path / f"merged-{t}"
        merged.Merging(asked).fill(out, silent)
        told = strict((out / "report.json").read_text(encoding="utf-8"))
        assert told["t"] == told["question"]["t"] == t
        assert told["question"]["key"] == asked.key != Merge(*pair, t=0.75).key


def test_no_page_writes_json_of_its_own() -> None:
    paths = [
        *sorted((ROOT / "app" / "sections").glob("*.py")),
        *sorted((ROOT / "pages").glob("*.py")),
    ]
    assert len(paths) > 20
    found = [path.name for path in paths if offends(path)]
    assert found == []


def offends(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return "json.dumps" in text or JSON in text


def test_json_of_a_page_is_found(tmp_path: Path) -> None:
    path = tmp_path / "page.py"
    path.write_text("json.dumps({})\n")
    assert offends(path)
