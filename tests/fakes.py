"""Small realistic records without an engine: a planted permutation, half its signs flipped."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from engine.records import (
    AlignmentReport,
    Assignment,
    CoordinateCard,
    ModelCard,
    ResidualMatch,
    SelfTest,
    StageReport,
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


def model_card(name: str = "base", fingerprint: str = "a" * 16, width: int = WIDTH) -> ModelCard:
    """A card like that of the demo models."""
    residual = CoordinateCard(
        "res", "residual coordinate", "S_d ⋉ {±1}^d", width, 1, 178.9, 0, ("embed_tokens: tok res",)
    )
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
        vocabulary=640,
        norm="RMSNorm",
        activation="silu",
        rotary="half pairs, base 10000",
        tied=True,
        dtype="float32",
        parameters=650_000,
        bytes=2_600_000,
        coordinates=(residual,),
    )


def self_test(error: float = 1.1e-6, moved: float = 1.0) -> SelfTest:
    """A self-test with a chosen relative error."""
    return SelfTest(error, error * 9.8, moved, 56, 0, "cpu", "float32", 0.4)


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
