"""Small realistic records without an engine: a planted permutation, half its signs flipped."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from engine.records import (
    AlignmentReport,
    Assignment,
    BlindCard,
    Carrier,
    CoordinateCard,
    DirectionTest,
    Effect,
    Experiment,
    ModelCard,
    ResidualMatch,
    SelfTest,
    StageReport,
    TensorChange,
    Truth,
)

WIDTH, LAYERS = 96, 6
CONFIG = {"model_type": "llama", "hidden_size": WIDTH}
PROJECTIONS = (
    "input_layernorm",
    "mlp.down_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "post_attention_layernorm",
    "self_attn.k_proj",
    "self_attn.o_proj",
    "self_attn.q_proj",
    "self_attn.v_proj",
)


def checkpoint(folder: Path, seed: int) -> Path:
    """A folder that opens: a configuration and one tensor."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    values = np.random.default_rng(seed).random((4, 4)).astype(np.float32)
    save_file({"x": values}, folder / "model.safetensors")
    return folder


BLOCK = "model.layers.{l}."
RES = (
    Carrier("model.embed_tokens.weight", "tok res", "written"),
    Carrier(f"{BLOCK}input_layernorm.weight", "|res|", "relabelled"),
    Carrier(f"{BLOCK}self_attn.q_proj.weight", "(grp head rot) res*", "read"),
    Carrier(f"{BLOCK}self_attn.k_proj.weight", "(grp rot*) res*", "read"),
    Carrier(f"{BLOCK}self_attn.v_proj.weight", "(grp val) res*", "read"),
    Carrier(f"{BLOCK}self_attn.o_proj.weight", "res (grp head val*)", "written"),
    Carrier(f"{BLOCK}mlp.gate_proj.weight", "|ffn| res*", "read"),
    Carrier(f"{BLOCK}mlp.up_proj.weight", "ffn res*", "read"),
    Carrier(f"{BLOCK}mlp.down_proj.weight", "res ffn*", "written"),
    Carrier("model.norm.weight", "|res|", "relabelled"),
)


def carried(name: str, *roles: str) -> tuple[Carrier, ...]:
    """The block's tensors with a word on an axis, in these roles."""
    rows = [c for c in RES if name in re.findall(r"\w+", c.axes)]
    return tuple(replace(c, role=role) for c, role in zip(rows, roles, strict=True))


def coordinates(width: int) -> tuple[CoordinateCard, ...]:
    """A table like that of the demo models."""
    held, fixed = (True, True, True), (True, True, False)

    def row(name: str, title: str, group: str, size: int, copies: int, *rest: Any, **more: Any):
        log10, dimension, carriers, local = rest
        given = {"why": f"Why {title} is a name.", "fixed": "", "criterion": held} | more
        return CoordinateCard(
            name, title, group, size, copies, log10, dimension, carriers, local=local, **given
        )

    q, k, v, o = "written", "written", "written", "written"
    ffn = carried("ffn", "relabelled", "written", "read")
    dictionary = "a token id means an entry of the dictionary"
    rot, val = carried("rot", "written", "read"), carried("val", "written", "read")
    tok = (Carrier("model.embed_tokens.weight", "tok res", "written"),)
    return (
        row("res", "residual coordinate", "B_n = S_n ⋉ {±1}ⁿ", width, 1, 178.9, 0, RES, False),
        row("ffn", "FFN neuron", "S_n ⋉ (R∖{0})ⁿ", 256, LAYERS, 3504.0, 1536, ffn, True),
        row("grp", "key/value head", "S_n", 2, LAYERS, 1.8, 0, carried("grp", q, k, v, o), True),
        row("head", "query head in its group", "S_n", 3, 12, 9.3, 0, carried("head", q, o), True),
        row("rot", "rotary query/key channel", "H(d_h)", 16, 12, 0.0, 192, rot, True),
        row("val", "value channel", "GL(d_h)", 16, 12, 0.0, 3072, val, True),
        row("tok", "token", "fixed", 640, 1, 0.0, 0, tok, False, fixed=dictionary, criterion=fixed),
    )


def blind() -> tuple[BlindCard, ...]:
    """Two blind directions: factors that cancel, and the scale of the whole stream."""
    gain = f"{BLOCK}input_layernorm.weight"
    readers = tuple(Carrier(c.tensor, c.axes.replace("res*", "att*"), "read") for c in RES[2:5])
    scale = (Carrier("model.embed_tokens.weight", "tok (scale res)", "written"),)
    return (
        BlindCard(
            "att", "gain of the attention norm against its readers", "The readers undo it.",
            "(R∖{0})ⁿ", 576, False, (Carrier(gain, "att", "written"), *readers),
        ),
        BlindCard(
            "scale", "scale of the whole residual stream", "Every norm divides by the size.",
            "(R>0)ⁿ", 1, True, scale,
        ),
    )  # fmt: skip


def model_card(name: str = "base", fingerprint: str = "a" * 16, width: int = WIDTH) -> ModelCard:
    """A card like that of the demo models."""
    return ModelCard(
        name=name,
        fingerprint=fingerprint,
        family="Llama",
        layers=LAYERS,
        width=width,
        heads=6,
        kv_heads=2,
        head_dim=16,
        ffn=256,
        experts=0,
        vocabulary=640,
        norm="RMSNorm",
        activation="silu",
        positions="rotary, pairs (i, i + n/2), base 10000",
        tied=True,
        dtype="float32",
        parameters=650_000,
        bytes=2_600_000,
        coordinates=coordinates(width),
        blind=blind(),
    )


def self_test(error: float = 1.1e-6, moved: float = 1.0) -> SelfTest:
    """A self-test with a chosen relative error; each row alone is a little better."""
    alone = [
        DirectionTest(row.name, row.title, "coordinate", False, error * 0.8, moved)
        for row in coordinates(WIDTH)
        if not row.fixed
    ]
    blind_rows = [
        DirectionTest(row.name, row.title, "blind", row.approximate, error * 0.9, moved)
        for row in blind()
    ]
    rows = (*alone, *blind_rows)
    return SelfTest(error, error * 9.8, moved, 56, rows, 0, "cpu", "float32", 0.4)


def experiment(
    error: float = 1.1e-7, holds: bool = True, layer: int | None = 2, seed: int = 0, **more: Any
) -> Experiment:
    """The neurons of one layer in another order."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(256)
    before, hidden = draw.normal(size=(64, 96)), draw.normal(size=(12, 96))
    given = {
        "model": "base",
        "fingerprint": "a" * 16,
        "preset": "ffn-order",
        "title": "FFN: order of the neurons",
        "says": ("The neurons exchange their places.", "No output shows their order."),
        "holds": holds,
        "symmetry": True,
        "coordinate": "ffn",
        "layer": layer,
        "draw": "random",
        "seed": seed,
        "severity": 1.0,
        "element": f"0 → {order[0]}, 1 → {order[1]}, …",
        "tensors": (
            TensorChange(f"model.layers.{layer}.mlp.up_proj.weight", "ffn res*", 1.41),
            TensorChange(f"model.layers.{layer}.mlp.down_proj.weight", "res ffn*", 1.40),
        ),
        "weight": f"model.layers.{layer}.mlp.up_proj.weight: ffn res*",
        "weight_before": before.astype(np.float16),
        "weight_after": before[draw.permutation(64)].astype(np.float16),
        "hidden": f"what model.layers.{layer}.mlp.down_proj is given",
        "hidden_before": hidden.astype(np.float16),
        "hidden_after": hidden[:, draw.permutation(96)].astype(np.float16),
        "order": order.astype(np.int32),
        "equivariance": 2e-7,
        "pieces": tuple(f"w{number}" for number in range(12)),
        "effect": Effect(error * 9, error * 9.8, error, error**2, float(error < 0.1), "128 tokens"),
        "device": "cpu",
        "dtype": "float32",
        "seconds": 0.3,
    }
    return Experiment(**(given | more))


def planted(width: int = WIDTH, seed: int = 0) -> Truth:
    """A random signed permutation."""
    draw = np.random.default_rng(seed)
    sign = np.where(draw.random(width) < 0.5, 1, -1).astype(np.int8)
    return Truth("planted", draw.permutation(width).astype(np.int64), sign)


def correlation(truth: Truth, noise: float = 0.25, seed: int = 1) -> np.ndarray:
    """C with about ±0.9 at the planted places, clipped noise elsewhere, float32 [d, d]."""
    width = len(truth.permutation)
    draw = np.random.default_rng(seed)
    matrix = np.clip(noise / 2 * draw.standard_normal((width, width)), -0.8, 0.8)
    matrix[np.arange(width), truth.permutation] = truth.sign * (0.9 - 0.01 * seed)
    return matrix.astype(np.float32)


def assignment(matrix: np.ndarray, permutation: np.ndarray, signed: bool) -> Assignment:
    """An assignment with its scores and margins on C or |C|."""
    rows = np.arange(len(matrix))
    values = np.abs(matrix) if signed else matrix
    score = values[rows, permutation]
    rest = values.copy()
    rest[rows, permutation] = -np.inf
    sign = np.sign(matrix[rows, permutation]) if signed else np.ones(len(matrix))
    mutual = values.argmax(axis=0)[permutation] == rows
    return Assignment(
        permutation.astype(np.int64),
        sign.astype(np.int8),
        score.astype(np.float32),
        (score - rest.max(axis=1)).astype(np.float32),
        mutual & (values.argmax(axis=1) == permutation),
        bool(signed),
    )


def residual_match(
    width: int = WIDTH, truth: bool = True, layers: int = LAYERS, noise: float = 0.25
) -> ResidualMatch:
    """A match at every depth; matching on C finds the + coordinates only."""
    gauge = planted(width)
    depths = ("embedding", *(f"after layer {layer}" for layer in range(layers)), "pooled")
    matrices = np.stack([correlation(gauge, noise, seed) for seed in range(len(depths))])
    half = gauge.permutation.copy()
    flipped = np.flatnonzero(gauge.sign < 0)
    half[flipped] = half[np.roll(flipped, 1)]
    absolute = tuple(assignment(matrix, gauge.permutation, True) for matrix in matrices)
    signed = tuple(assignment(matrix, half, False) for matrix in matrices)
    share = np.full(len(depths), gauge.positive_share, np.float32)
    ones = np.ones(len(depths), np.float32)
    return ResidualMatch(
        a="base",
        b="twin",
        fingerprints=("a" * 16, "b" * 16),
        using="activations",
        depths=depths,
        correlation=matrices,
        absolute=absolute,
        signed=signed,
        truth=gauge if truth else None,
        signed_accuracy=share if truth else None,
        absolute_accuracy=ones if truth else None,
        sign_accuracy=ones if truth else None,
        tokens=8192,
        text="the demo models' own generator",
        device="cpu",
        dtype="float32",
        seconds=3.2,
    )


@dataclass(frozen=True)
class Logits:
    """Largest logit differences of an alignment."""

    between: float | None = 2.1e-6
    kept: float | None = 2.0e-6
    scale: float | None = 9.8


def alignment(
    logits: Logits | None = None,
    recovered: float | None = 1.0,
    unreachable: float | None = None,
    left: float = 2e-7,
    apart: float = 1.42,
) -> AlignmentReport:
    """A report on the demo models; `left` is the share of the distances that alignment leaves."""
    run = logits or Logits()
    kinds = (f"{layer}.{kind}" for layer in range(LAYERS) for kind in PROJECTIONS)
    blocks = (f"model.layers.{name}.weight" for name in kinds)
    names = ("model.embed_tokens.weight", "model.norm.weight", *blocks)
    before = np.linspace(apart / 7, apart, len(names)).astype(np.float32)
    return AlignmentReport(
        a="base",
        b="twin",
        fingerprints=("a" * 16, "b" * 16),
        using="weights",
        signs=unreachable is None,
        width=WIDTH,
        flipped=47,
        recovered=recovered,
        unreachable=unreachable,
        stages=(StageReport("res", 1, recovered, 0.41, 47, 1.38, 2e-7),),
        tensors=names,
        before=before,
        after=(before * left).astype(np.float32),
        logits_between=run.between,
        logits_kept=run.kept,
        midpoint_before=None if run.between is None else 9.1,
        midpoint_after=run.kept,
        logits_scale=run.scale,
        checked_on="256 tokens of the demo models' own text",
        device="cpu",
        dtype="float32",
        seconds=1.2,
    )
