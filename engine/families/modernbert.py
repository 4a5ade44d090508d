"""ModernBERT: a rotary encoder with LayerNorms without bias, fused projections and a gated FFN.

The first layer has no attention norm: it reads the stream as the embeddings' norm leaves it.
Directions of the attention norm's gain, which hold in all other layers alone, are not listed.
"""

from engine.blind import Blind
from engine.families import _rows
from engine.families._coordinates import CENTRED, HEAD, ONE, TOKEN, VALUE, WIDTH, sized
from engine.families.bert import head
from engine.families.llama import FAMILY as LLAMA
from engine.family import Coordinate, Family
from engine.groups import Trivial
from engine.rows import ByLayer

LAYER = "model.layers.{l}."
ATTENTION, MLP = LAYER + "attn.", LAYER + "mlp."
FUSED = "((grp rot) + (grp rot*) + (grp val))"
GATED = "(|ffn| + ffn)"
NORM, LAST = LAYER + "mlp_norm.weight", "model.final_norm.weight"

TENSORS = {
    "model.embeddings.tok_embeddings.weight": "tok res",
    "model.embeddings.norm.weight": "|res|",
    LAYER + "attn_norm.weight?": "|res|",
    ATTENTION + "Wqkv.weight": f"{FUSED} res*",
    ATTENTION + "Wqkv.bias?attention_bias": FUSED,
    ATTENTION + "Wo.weight": "res (grp val*)",
    ATTENTION + "Wo.bias?attention_bias": "res",
    NORM: "|res|",
    MLP + "Wi.weight": f"{GATED} res*",
    MLP + "Wi.bias?mlp_bias": GATED,
    MLP + "Wo.weight": "res ffn*",
    MLP + "Wo.bias?mlp_bias": "res",
    LAST: "|res|",
    "head.dense.weight?": "|res| res*",
    "head.dense.bias?": "|res|",
    "head.norm.weight?": "res",
    "decoder.weight?": "tok res*",
    "decoder.bias?": "tok",
    "classifier.weight?": "cls res*",
    "classifier.bias?": "cls",
}

FAMILY = Family(
    name="ModernBERT",
    model_types=("modernbert",),
    coordinates={
        "res": CENTRED,
        "ffn": LLAMA.coordinates["ffn"],
        "grp": HEAD,
        "rot": sized(LLAMA.coordinates["rot"], WIDTH),
        "val": VALUE,
        "tok": TOKEN,
        "cls": Coordinate(
            "class", Trivial("a class means an answer"), "len(id2label)",
            why="The index has a meaning outside the model.", criterion=(True, False, False),
        ),
        "one": ONE,
    },
    tensors=TENSORS,
    norm="LayerNorm",
    compared=(
        "attention_bias", "classifier_activation", "classifier_bias", "classifier_pooling",
        "decoder_bias", "global_attn_every_n_layers", "global_rope_theta", "hidden_activation",
        "layer_types", "local_attention", "local_rope_theta", "mlp_bias", "norm_eps",
        "rope_parameters", "rope_scaling", "tie_word_embeddings",
    ),
    constants={
        "architectures": (
            ["ModernBertForMaskedLM"], ["ModernBertForSequenceClassification"],
            ["ModernBertModel"],
        ),
        "is_encoder_decoder": (False,),
        "norm_bias": (False,),
    },
    assumed={"decoder_bias": True, "tie_word_embeddings": True},
    defaults={"id2label": "2"},
    harmless={
        **dict.fromkeys(("embedding_dropout", "mlp_dropout"), "training only"),
        **dict.fromkeys(("sparse_prediction", "sparse_pred_ignore_index"), "losses only"),
        **dict.fromkeys(
            ("deterministic_flash_attn", "reference_compile", "repad_logits_with_grad"),
            "speed and memory only",
        ),
        "cls_token_id": "text only",
        "initializer_cutoff_factor": "before training only",
        "layer_norm_eps": "norm_eps is what transformers reads",
        "position_embedding_type": "positions are rotations whatever it says",
    },
    by_layer=ByLayer(
        listed=("layer_types",), periodic=("global_attn_every_n_layers",),
        first="has no attention norm",
    ),
    hidden={
        "in model.layers.{l}": "res",
        "out model.layers.{l}.attn.Wqkv": FUSED,
        "in model.layers.{l}.attn.Wo": "(grp val)",
        "in model.layers.{l}.mlp.Wo": "ffn",
    },
    blind=(
        _rows.gain(TENSORS, "mlp", "FFN norm", (NORM,), (MLP + "Wi.weight",)),
        Blind(
            "fin", "gain of the last norm against the head",
            "What a norm multiplies by a factor, the matrix behind it may divide by.",
            table={LAST: "fin", "head.dense.weight": "|res| fin*"},
        ),
        _rows.slope("up_in", "the FFN's linear reader", "ffn", MLP + "Wi.weight", NORM),
        _rows.slope("gate_in", "the FFN's gate", "|ffn|", MLP + "Wi.weight", NORM),
        _rows.mean("mean", "written by attention", "grp val*", ATTENTION + "Wo.weight"),
        _rows.mean("mean_bias", "in the attention's output bias", "one", ATTENTION + "Wo.bias"),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", MLP + "Wo.weight"),
        _rows.mean("mean_ffn_bias", "in the FFN's output bias", "one", MLP + "Wo.bias"),
        _rows.value_bias(ATTENTION + "Wqkv.bias", ATTENTION + "Wo.weight", ATTENTION + "Wo.bias"),
        _rows.one_logit("decoder.bias"),
        head("cls", "classifier", "classifier.weight", "res*"),
        head("cls_bias", "classifier", "classifier.bias", "one"),
    ),
    prefix="model.",
)  # fmt: skip
