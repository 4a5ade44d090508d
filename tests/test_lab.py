"""The lab: what the theory says about every preset is what comes out."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import groups
from engine.checkpoint import Checkpoint, open_checkpoint
from engine.cli import main
from engine.errors import Refused
from engine.inspection import card
from engine.lab import experiment as lab
from engine.lab import offers
from engine.lab.offers import features
from engine.lab.presets import PRESETS, offered
from engine.questions import Lab
from engine.records import Experiment, plain

Built = Callable[[str], Path]
DEMO = Path(__file__).resolve().parent.parent / "assets/demo"
TINY = ("llama_biases", "gpt2", "gpt_neox", "qwen3", "mixtral", "bert_masked")
DEMOS = [
    f"demo:{name}"
    for name in ("base", "gpt2", "pythia", "qwen3", "mixtral", "bert")
    if (DEMO / name / "model.safetensors").is_file()
]
models = pytest.mark.parametrize("model", [*TINY, *DEMOS])
FOLLOWED = 1e-5


@pytest.fixture
def named(built: Built) -> Callable[[str], str]:
    return lambda model: model if ":" in model else str(built(model))


@cache
def opened(spec: str) -> Checkpoint:
    return open_checkpoint(spec)


def run(spec: str, preset: str, **options: object) -> Experiment:
    return lab.run(opened(spec), Lab(spec, preset, device="cpu", **options))


@models
def test_every_preset_does_what_the_theory_says(model: str, named: Callable[[str], str]) -> None:
    spec = named(model)
    for preset in offered(card(opened(spec))):
        record = run(spec, preset.key)
        assert record.moved, preset.key
        assert bool(record.tensors) != (preset.claim == "text"), preset.key
        if preset.symmetry:
            assert record.as_expected, (preset.key, record.effect)
        else:
            assert record.effect.error > 1e-4, preset.key
        if record.equivariance is not None:
            assert preset.holds, preset.key
            assert record.equivariance <= FOLLOWED, preset.key
        if record.tensors:
            assert record.weight_before.shape == record.weight_after.shape
            assert max(record.weight_before.shape[0] / 64, record.weight_before.shape[1] / 96) <= 1
            assert not np.array_equal(record.weight_before, record.weight_after), preset.key
        assert record.hidden_before.shape == record.hidden_after.shape
        assert record.hidden_before.shape[1] == record.channels.size
        assert record.order.size in {0, record.channels.size}


def test_every_preset_is_offered_to_a_tiny_model(built: Built) -> None:
    seen = {
        preset.key
        for model in (*TINY, "opt")
        for preset in offered(card(opened(str(built(model)))))
    }
    assert {preset.key for preset in PRESETS} <= seen
    assert len({preset.key for preset in PRESETS}) == len(PRESETS)


def test_positive_scales_pass_through_relu_and_signs_do_not(built: Built) -> None:
    spec = str(built("opt"))
    assert run(spec, "ffn-positive").verdict == "exact"
    assert run(spec, "ffn-signs-relu").effect.error > 1e-3


def test_experts_come_with_words_and_grouped_heads_with_groups(built: Built) -> None:
    found = {m: features(card(opened(str(built(m))))) for m in TINY}
    assert {m for m in TINY if "exp" in found[m]} == {"mixtral"}
    assert {m for m in TINY if "head" in found[m]} == {"llama_biases", "qwen3", "mixtral"}
    assert {m for m in TINY if "foldable" in found[m]} == {"llama_biases", "qwen3", "mixtral"}
    assert {m for m in TINY if "position rows" in found[m]} == {"gpt2", "bert_masked"}
    assert {m for m in TINY if "ffn bias" in found[m]} == set(TINY) - {"qwen3", "mixtral"}


def test_the_notations_are_those_of_the_groups() -> None:
    assert groups.ROTARY_HALF.notation.startswith(offers.ROTARY)
    assert groups.SIGNS.notation == offers.HALF_TURNS
    assert groups.COMMON_SIGN.notation == offers.COMMON
    assert groups.DIAGONAL.notation == offers.FACTORS


@pytest.mark.parametrize("model", ["llama_biases", "gpt2"])
def test_severity_0_changes_nothing(model: str, built: Built) -> None:
    spec = str(built(model))
    for preset in offered(card(opened(spec))):
        record = run(spec, preset.key, severity=0.0)
        assert (record.tensors, record.verdict) == ((), "not measured"), preset.key
        assert record.effect.largest == 0, preset.key
        assert record.element.startswith("nothing"), preset.key


def test_a_false_preset_does_more_harm_at_a_larger_severity(built: Built) -> None:
    spec = str(built("llama_biases"))
    for preset in ("ffn-gate-left", "rotary-matrix", "rotation"):
        harm = [
            sum(run(spec, preset, severity=s, seed=i).effect.divergence for i in range(4))
            for s in (0.1, 0.4, 1.0)
        ]
        assert 0 < harm[0] < harm[1] < harm[2], (preset, harm)


def test_a_true_preset_holds_at_every_severity(built: Built) -> None:
    spec = str(built("llama_biases"))
    for preset in ("rotation-folded", "value-matrix", "rotary", "ffn-factors", "blind-att"):
        assert run(spec, preset, severity=0.3).verdict == "exact", preset


def test_the_same_seed_gives_the_same_record(built: Built) -> None:
    spec = str(built("gpt2"))
    first, second, other = (run(spec, "ffn-order", seed=seed) for seed in (3, 3, 4))
    assert plain(replace(first, seconds=0)) == plain(replace(second, seconds=0))
    assert first.element != other.element


def test_one_layer_moves_or_all_do(built: Built) -> None:
    spec = str(built("gpt2"))
    one, every = (run(spec, "ffn-order", layer=layer) for layer in (1, -1))
    assert (one.layer, every.layer) == (1, None)
    assert all(".1." in tensor.name for tensor in one.tensors)
    assert len(every.tensors) == 2 * len(one.tensors) == 6
    assert one.verdict == every.verdict == "exact"
    assert run(spec, "residual-order", layer=1).layer is None


def test_a_typed_element_and_what_it_moves(built: Built) -> None:
    spec = str(built("gpt2"))
    record = run(spec, "ffn-order", element="(0 3 5)")
    assert (record.draw, record.element) == ("typed", "5 → 0; 0 → 3; 3 → 5")
    assert record.order[:6].tolist() == [5, 1, 2, 0, 4, 3]
    before, after = record.hidden_before, record.hidden_after
    assert np.allclose(after, before[:, record.order], atol=1e-2)
    # What the family's group does not have is not refused where the table claims it.
    assert run(spec, "ffn-factors-curved", element="0*3 1*-2").verdict != "exact"


def test_hidden_states_follow_and_the_text_stays(built: Built) -> None:
    record = run("demo:base", "ffn-order", layer=2)
    assert record.hidden.startswith("what goes into model.layers.2.mlp.down_proj: ffn")
    assert len(record.pieces) == 64
    assert record.hidden_before.shape == (24, 96)
    assert record.effect.tokens == "128 tokens of generated text (village)"
    tiny = run(str(built("gpt2")), "ffn-order")
    assert all(piece.isdigit() for piece in tiny.pieces)
    assert tiny.effect.tokens.endswith("random token ids")


def test_positions_are_read_back_at_the_same_tokens(built: Built) -> None:
    record = run(str(built("gpt2")), "positions", element="(0 1)")
    assert record.positions[:3].tolist() == [1, 0, 2]
    assert record.tensors == () and record.verdict == "broken"


def test_any_coordinate_by_its_own_group(built: Built) -> None:
    spec = str(built("bert_pretraining"))
    for word in ("pool", "grp", "val"):
        record = run(spec, "own", coordinate=word)
        assert (record.coordinate, record.verdict) == (word, "exact")
    assert run(spec, "own", coordinate="pool", draw="sign").verdict == "exact"
    with pytest.raises(Refused, match="does not act on 'tok'"):
        run(spec, "own", coordinate="tok")


def test_images(built: Built) -> None:
    spec = str(built("vit"))
    assert "tok" not in features(card(opened(spec)))
    assert run(spec, "residual-order").verdict == "exact"
    assert run(spec, "position-rows").verdict == "broken"
    assert run(spec, "ffn-order").pieces[:2] == ("first token", "patch 0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "nope"}, "does not apply to"),
        ({"preset": "experts"}, "does not apply to"),
        ({"preset": "ffn-order", "layer": 2}, "There is no layer 2: the model has 0 to 1"),
        ({"preset": "ffn-order", "severity": 1.5}, "give one from 0 to 1"),
        ({"preset": "ffn-order", "severity": float("nan")}, "give one from 0 to 1"),
        ({"preset": "ffn-order", "angle": float("inf")}, "give a number of degrees"),
        ({"preset": "ffn-order", "draw": "angle"}, "by random, transposition, not by 'angle'"),
        ({"preset": "ffn-order", "coordinate": "val"}, "it can act on ffn"),
        ({"preset": "ffn-order", "element": "0*2"}, "which has no factors"),
        ({"preset": "ffn-order", "element": "(0 99)"}, "there is no 99"),
        ({"preset": "blind-value", "element": "(0 1)"}, "cannot be typed"),
        ({"preset": "ffn-order", "text": "no.txt"}, "does not exist"),
    ],
)
def test_refusals(options: dict, message: str, built: Built) -> None:
    with pytest.raises(Refused) as refused:
        run(str(built("gpt2")), **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_without_a_head_is_refused(built: Built) -> None:
    with pytest.raises(Refused, match="no output over tokens or classes"):
        run(str(built("bert_bare")), "ffn-order")


def test_the_command_line_gives_the_same_record(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(built("gpt2"))
    before = hashlib.sha256((built("gpt2") / "model.safetensors").read_bytes()).digest()
    asked = Lab(spec, "key-matrix", layer=1, severity=0.5, seed=7, device="cpu")
    record = asked.answer()
    assert asked.command.split()[:4] == ["python", "-m", "engine", "lab"]
    assert main([*asked.command.split()[3:], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("question")["key"] == asked.key
    expected = plain(replace(record, seconds=printed["seconds"]), arrays=False)
    assert printed == json.loads(json.dumps(expected))
    after = hashlib.sha256((built("gpt2") / "model.safetensors").read_bytes()).digest()
    assert before == after


def test_lines_for_the_terminal(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", str(built("gpt2")), "--preset", "ffn-one-sided", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FFN: order of the way up alone (ffn, layer 0, severity 1)"
    assert any(line.startswith("transformer.h.0.mlp.c_fc.weight: res* ffn;") for line in lines)
    assert any(line.startswith("output: broken") for line in lines)
    assert "theory: the output changes" in lines


def test_presets_need_no_torch() -> None:
    code = "import sys, engine.lab.presets, engine.questions; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("severity", [0.05, 0.37, 1.0])
@pytest.mark.parametrize(
    ("architecture", "preset"),
    [
        ("gpt2", "residual-sign"),
        ("gpt2", "own"),
        ("qwen3", "blind-quarter"),
        ("olmo2", "blind-quarter"),
    ],
)
def test_a_symmetry_holds_at_every_severity(
    architecture: str, preset: str, severity: float, built: Built
) -> None:
    """A part of a draw is in the group too: one sign is all or nothing, pairs stay whole."""
    found = run(str(built(architecture)), preset=preset, severity=severity, seed=5, layer=-1)
    assert found.holds
    assert found.verdict == "exact"


@pytest.mark.parametrize("preset", ["gain-pairs", "gain-signs", "blind-att"])
def test_gains_stored_less_one_stay_at_severity_0(preset: str, built: Built) -> None:
    found = run(str(built("gemma3")), preset=preset, severity=0.0)
    assert found.tensors == ()
    assert found.verdict == "not measured"


def test_a_layer_below_all_is_refused(built: Built) -> None:
    with pytest.raises(Refused, match=r"There is no layer -5: the model has 0 to 1, and -1 stands"):
        run(str(built("gpt2")), preset="ffn-order", layer=-5)


def test_logits_and_log_probabilities_are_both_told(built: Built) -> None:
    """A common vector on the rows of an untied head moves every logit and no probability."""
    found = run(str(built("llama_gqa")), preset="blind-logits")
    assert found.verdict == "exact"
    assert found.effect.logits > 100 * found.effect.largest


def test_a_head_that_had_to_be_untied_is_told_against_the_embedding(built: Built) -> None:
    """At 0 degrees nothing is turned: what is left is the last gain, moved into the head."""
    spec = str(built("qwen3_tied"))
    record = run(spec, "rotation-folded", draw="angle", angle=0.0)
    change = {tensor.name: tensor.change for tensor in record.tensors}
    embedding, gain = (
        opened(spec).read(name).double()
        for name in ("model.embed_tokens.weight", "model.norm.weight")
    )
    wanted = float((embedding * gain - embedding).norm() / embedding.norm())
    assert change["lm_head.weight"] == pytest.approx(wanted, rel=1e-5)
    assert change["model.norm.weight"] == pytest.approx(
        float((gain - 1).norm() / gain.norm()), rel=1e-5
    )
    assert "model.embed_tokens.weight" not in change


@pytest.mark.parametrize(("layer", "heard"), [(-1, 1), (0, 1), (1, 2), (4, 5), (5, 5)])
def test_the_stream_is_looked_at_where_the_next_layer_is_given_it(layer: int, heard: int) -> None:
    record = run("demo:base", "residual-order", layer=layer)
    assert record.hidden == f"what goes into model.layers.{heard}: res"


@pytest.mark.parametrize("layer", [0, 3])
def test_what_carries_the_coordinate_is_looked_at_in_its_own_layer(layer: int) -> None:
    record = run("demo:base", "ffn-order", layer=layer)
    assert record.hidden == f"what goes into model.layers.{layer}.mlp.down_proj: ffn"
