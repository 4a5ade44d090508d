"""ViT: patches of an image as tokens, LayerNorm before each part, a classifier on the first."""

from engine.blind import Blind, Move
from engine.families import _rows
from engine.families._coordinates import CENTRED, HEAD, NEURON, UNROTATED, VALUE
from engine.families.bert import head
from engine.family import Coordinate, Family
from engine.groups import SCALE, SIGNED, Trivial

_EMBED = "vit.embeddings."
_PATCH = _EMBED + "patch_embeddings.projection."
_LAYER = "vit.encoder.layer.{l}."
_SELF = _LAYER + "attention.attention."
_OUT = _LAYER + "attention.output.dense."
_IN = _LAYER + "intermediate.dense."
_DOWN = _LAYER + "output.dense."
_BEFORE = _LAYER + "layernorm_before."
_AFTER = _LAYER + "layernorm_after."
_LAST = "vit.layernorm."
_HEAD = "classifier."

_TENSORS = {
    _EMBED + "cls_token": "one one res",
    _EMBED + "mask_token?": "one one res",
    _EMBED + "position_embeddings": "one pos res",
    _PATCH + "weight": "res chan patch patch",
    _PATCH + "bias": "res",
    _BEFORE + "weight": "|res|",
    _BEFORE + "bias": "res",
    _SELF + "query.weight": "(grp qk) res*",
    _SELF + "query.bias?qkv_bias": "(grp qk)",
    _SELF + "key.weight": "(grp qk*) res*",
    _SELF + "key.bias?qkv_bias": "(grp qk*)",
    _SELF + "value.weight": "(grp val) res*",
    _SELF + "value.bias?qkv_bias": "(grp val)",
    _OUT + "weight": "res (grp val*)",
    _OUT + "bias": "res",
    _AFTER + "weight": "|res|",
    _AFTER + "bias": "res",
    _IN + "weight": "ffn res*",
    _IN + "bias": "ffn",
    _DOWN + "weight": "res ffn*",
    _DOWN + "bias": "res",
    "vit.layernorm.weight": "|res|",
    "vit.layernorm.bias": "res",
    "vit.pooler.dense.weight?": "pool res*",
    "vit.pooler.dense.bias?": "pool",
    "classifier.weight?": "cls res*",
    "classifier.bias?": "cls",
    "decoder.0.weight?": "(chan stride stride) res* one one",
    "decoder.0.bias?": "(chan stride stride)",
}

FAMILY = Family(
    name="ViT",
    model_types=("vit",),
    coordinates={
        "res": CENTRED,
        "ffn": NEURON,
        "grp": HEAD,
        "qk": UNROTATED,
        "val": VALUE,
        "pool": Coordinate(
            "pooled coordinate", SIGNED, "pooler_output_size",
            why="tanh is odd and treats all coordinates alike.",
        ),
        "pos": Coordinate(
            "position", Trivial("a position means a place in the image"),
            "(image_size / patch_size) * (image_size / patch_size) + 1",
            why="The index has a meaning outside the model.", criterion=(False, False, False),
        ),
        "chan": Coordinate(
            "colour channel", Trivial("a channel means a colour"), "num_channels",
            why="The index has a meaning outside the model.", criterion=(False, False, False),
        ),
        "patch": Coordinate(
            "pixel of a patch, down or across", Trivial("a pixel means a place in the image"),
            "patch_size",
            why="The index has a meaning outside the model.", criterion=(False, False, False),
        ),
        "stride": Coordinate(
            "pixel that the decoder paints, down or across",
            Trivial("a pixel means a place in the image"), "encoder_stride",
            why="The index has a meaning outside the model.", criterion=(False, False, False),
        ),
        "cls": Coordinate(
            "class", Trivial("a class means an answer"), "len(id2label)",
            why="The index has a meaning outside the model.", criterion=(True, False, False),
        ),
        "one": Coordinate(
            "single row", Trivial("there is only one"), "1",
            why="The first token and the positions are stored with axes of length 1.",
            criterion=(False, False, False),
        ),
    },
    tensors=_TENSORS,
    norm="LayerNorm",
    compared=("hidden_act", "layer_norm_eps", "qkv_bias"),
    constants={"is_encoder_decoder": (False,), "pooler_act": ("tanh",)},
    assumed={"qkv_bias": True},
    defaults={
        "pooler_output_size": "hidden_size", "num_channels": "3", "encoder_stride": "16",
        "id2label": "2",
    },
    blocks="vit.layers",
    hidden={
        "in vit.layers.{l}": "res",
        "out vit.layers.{l}.attention.q_proj": "(grp qk)",
        "out vit.layers.{l}.attention.k_proj": "(grp qk*)",
        "in vit.layers.{l}.attention.o_proj": "(grp val)",
        "in vit.layers.{l}.mlp.fc2": "ffn",
        "out vit.pooler.activation": "pool",
    },
    blind=(
        _rows.gain(
            _TENSORS, "att", "attention norm", (_BEFORE + "weight", _BEFORE + "bias"),
            tuple(f"{_SELF}{word}.weight" for word in ("query", "key", "value")),
        ),
        _rows.gain(
            _TENSORS, "mlp", "FFN norm", (_AFTER + "weight", _AFTER + "bias"), (_IN + "weight",)
        ),
        Blind(
            "fin", "gain of the last norm against the classifier",
            "What a norm multiplies by a factor, the head behind it may divide by.",
            table={_LAST + "weight": "fin", _LAST + "bias": "fin", _HEAD + "weight": "cls fin*"},
        ),
        _rows.bias_of_norm(
            "att_bias", "attention norm", _BEFORE + "bias",
            {f"{_SELF}{word}.weight": f"{_SELF}{word}.bias" for word in ("query", "key", "value")},
        ),
        _rows.bias_of_norm(
            "mlp_bias", "FFN norm", _AFTER + "bias", {_IN + "weight": _IN + "bias"}
        ),
        _rows.bias_of_norm(
            "fin_bias", "last norm", _LAST + "bias", {_HEAD + "weight": _HEAD + "bias"}
        ),
        _rows.key_bias(_SELF + "key.bias"),
        _rows.value_bias(_SELF + "value.bias", _OUT + "weight", _OUT + "bias"),
        *(
            _rows.slope(
                f"{word}_in", what, legs, reader + "weight", norm + "weight",
                (reader + "bias", norm + "bias"),
            )
            for word, what, legs, norm, reader in (
                ("query", "the query projection", "grp qk", _BEFORE, _SELF + "query."),
                ("key", "the key projection", "grp qk*", _BEFORE, _SELF + "key."),
                ("value", "the value projection", "grp val", _BEFORE, _SELF + "value."),
                ("ffn", "the FFN's reader", "ffn", _AFTER, _IN),
                ("cls", "the classifier", "cls", _LAST, _HEAD),
            )
        ),
        _rows.mean("mean", "written by attention", "grp val*", _OUT + "weight"),
        _rows.mean("mean_bias", "in the attention's output bias", "one", _OUT + "bias"),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", _DOWN + "weight"),
        _rows.mean("mean_ffn_bias", "in the FFN's output bias", "one", _DOWN + "bias"),
        _rows.mean("mean_pos", "in position embeddings", "pos", _EMBED + "position_embeddings"),
        _rows.mean("mean_chan", "in the patch projection", "chan", _PATCH + "weight"),
        Blind(
            "pos", "a common vector of positions against the first token and the patches' bias",
            "Every token has one position, and is the first one, a patch or masked.",
            shift="res",
            moves=(
                Move(_EMBED + "position_embeddings", 1),
                Move(_EMBED + "cls_token", -1),
                Move(_EMBED + "mask_token?", -1),
                Move(_PATCH + "bias", -1),
            ),
        ),
        head("cls", "classifier", _HEAD + "weight", "res*"),
        head("cls_bias", "classifier", _HEAD + "bias", "one"),
        Blind(
            "scale", "scale of the residual stream",
            "Every norm divides by the spread of the stream, but for its ε.",
            group=SCALE, size="1", approximate=True,
            table={
                _EMBED + "cls_token": "one one (scale res)",
                _EMBED + "mask_token": "one one (scale res)",
                _EMBED + "position_embeddings": "one pos (scale res)",
                _PATCH + "weight": "(scale res) chan patch patch",
                _PATCH + "bias": "(scale res)",
                _OUT + "weight": "(scale res) (grp val)",
                _OUT + "bias": "(scale res)",
                _DOWN + "weight": "(scale res) ffn",
                _DOWN + "bias": "(scale res)",
            },
        ),
    ),
    inputs="pixels",
    prefix="vit.",
)  # fmt: skip
