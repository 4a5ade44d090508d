"""BERT: an encoder whose LayerNorm follows each sum, with a tied masked-language head."""

from engine.blind import Blind, Move
from engine.families import _rows
from engine.families._coordinates import HEAD, NEURON, ONE, POSITION, TOKEN, UNROTATED, VALUE
from engine.family import Coordinate, Family
from engine.groups import COMMON_SIGN, SIGNED, Trivial

_WORDS = "bert.embeddings.word_embeddings.weight"
_POSITIONS = "bert.embeddings.position_embeddings.weight"
_TYPES = "bert.embeddings.token_type_embeddings.weight"
_LAYER = "bert.encoder.layer.{l}."
_SELF = _LAYER + "attention.self."
_OUT = _LAYER + "attention.output."
_IN = _LAYER + "intermediate.dense."
_DOWN = _LAYER + "output."
_HEAD = "cls.predictions."


def head(name: str, what: str, tensor: str, shift: str) -> Blind:
    """W + 1 δᵀ or b + 1 δ on a head over classes."""
    return Blind(
        name,
        f"the same for all classes in the {what}'s {tensor.rpartition('.')[2]}",
        "It shifts all logits alike; log-probabilities stay.",
        shift=shift,
        moves=(Move(tensor, +1),),
    )


FAMILY = Family(
    name="BERT",
    model_types=("bert",),
    coordinates={
        "res": Coordinate(
            "residual coordinate", COMMON_SIGN, "hidden_size",
            why="LayerNorm subtracts the mean over coordinates: they keep one sign in common. The "
            "tied unembedding reads the prediction head in the same order and with the same sign.",
        ),
        "ffn": NEURON,
        "grp": HEAD,
        "qk": UNROTATED,
        "val": VALUE,
        "pool": Coordinate(
            "pooled coordinate", SIGNED, "hidden_size",
            why="tanh is odd and treats all coordinates alike.",
        ),
        "tok": TOKEN,
        "pos": POSITION,
        "typ": Coordinate(
            "segment", Trivial("a segment id means the first or the second text"),
            "type_vocab_size",
            why="The index has a meaning outside the model.", criterion=(True, False, False),
        ),
        "cls": Coordinate(
            "class", Trivial("a class means an answer"), "len(id2label)",
            why="The index has a meaning outside the model.", criterion=(True, False, False),
        ),
        "nsp": Coordinate(
            "whether the second text follows", Trivial("the two answers mean yes and no"), "2",
            why="The index has a meaning outside the model.", criterion=(True, False, False),
        ),
        "one": ONE,
    },
    tensors={
        _WORDS: "tok res",
        _POSITIONS: "pos res",
        _TYPES: "typ res",
        "bert.embeddings.LayerNorm.weight": "|res|",
        "bert.embeddings.LayerNorm.bias": "res",
        "bert.embeddings.position_ids?": "one pos",
        _SELF + "query.weight": "(grp qk) res*",
        _SELF + "query.bias": "(grp qk)",
        _SELF + "key.weight": "(grp qk*) res*",
        _SELF + "key.bias": "(grp qk*)",
        _SELF + "value.weight": "(grp val) res*",
        _SELF + "value.bias": "(grp val)",
        _OUT + "dense.weight": "res (grp val*)",
        _OUT + "dense.bias": "res",
        _OUT + "LayerNorm.weight": "|res|",
        _OUT + "LayerNorm.bias": "res",
        _IN + "weight": "ffn res*",
        _IN + "bias": "ffn",
        _DOWN + "dense.weight": "res ffn*",
        _DOWN + "dense.bias": "res",
        _DOWN + "LayerNorm.weight": "|res|",
        _DOWN + "LayerNorm.bias": "res",
        "bert.pooler.dense.weight?": "pool res*",
        "bert.pooler.dense.bias?": "pool",
        _HEAD + "transform.dense.weight?": "|res| res*",
        _HEAD + "transform.dense.bias?": "|res|",
        _HEAD + "transform.LayerNorm.weight?": "res",
        _HEAD + "transform.LayerNorm.bias?": "res",
        _HEAD + "decoder.weight?": "tok res*",
        _HEAD + "decoder.bias?": "tok",
        _HEAD + "bias?": "tok",
        "cls.seq_relationship.weight?": "nsp pool*",
        "cls.seq_relationship.bias?": "nsp",
        "classifier.weight?": "cls pool*",
        "classifier.bias?": "cls",
    },
    norm="LayerNorm",
    compared=("hidden_act", "layer_norm_eps", "tie_word_embeddings"),
    constants={
        "add_cross_attention": (False,),
        "architectures": (
            ["BertForMaskedLM"], ["BertForPreTraining"], ["BertForNextSentencePrediction"],
            ["BertForSequenceClassification"], ["BertModel"],
        ),
        "is_decoder": (False,),
        "is_encoder_decoder": (False,),
        "position_embedding_type": ("absolute",),
        "pruned_heads": ({},),
    },
    defaults={"id2label": "2"},
    harmless={
        **dict.fromkeys(
            (
                "directionality", "pooler_fc_size", "pooler_num_attention_heads",
                "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
            ),
            "of the original program: transformers reads none of it",
        ),
        "finetuning_task": "where it came from",
    },
    blocks="bert.encoder.layer",
    hidden={
        "in bert.encoder.layer.{l}": "res",
        "out bert.encoder.layer.{l}.attention.self.query": "(grp qk)",
        "out bert.encoder.layer.{l}.attention.self.key": "(grp qk*)",
        "in bert.encoder.layer.{l}.attention.output.dense": "(grp val)",
        "in bert.encoder.layer.{l}.output.dense": "ffn",
        "out bert.pooler.activation": "pool",
    },
    blind=(
        _rows.key_bias(_SELF + "key.bias"),
        _rows.value_bias(_SELF + "value.bias", _OUT + "dense.weight", _OUT + "dense.bias"),
        _rows.mean("mean", "written by attention", "grp val*", _OUT + "dense.weight"),
        _rows.mean("mean_bias", "in the attention's output bias", "one", _OUT + "dense.bias"),
        _rows.mean("mean_ffn", "written by the FFN", "ffn*", _DOWN + "dense.weight"),
        _rows.mean("mean_ffn_bias", "in the FFN's output bias", "one", _DOWN + "dense.bias"),
        _rows.mean("mean_pos", "in position embeddings", "pos", _POSITIONS),
        _rows.mean("mean_typ", "in segment embeddings", "typ", _TYPES),
        _rows.slope(
            "ffn_in", "the FFN's reader", "ffn", _IN + "weight", _OUT + "LayerNorm.weight",
            (_IN + "bias", _OUT + "LayerNorm.bias"),
        ),
        Blind(
            "pos_typ", "a common vector of positions against that of segments",
            "Every token has one position and one segment, and the two are added.",
            shift="res", moves=(Move(_POSITIONS, 1), Move(_TYPES, -1)),
        ),
        Blind(
            "tok_typ", "a common vector of tokens against that of segments",
            "Every token has one segment, and the two are added; through the tied unembedding the "
            "vector shifts all logits of a position alike.",
            shift="res", moves=(Move(_WORDS, 1), Move(_TYPES, -1)),
        ),
        Blind(
            "bias", "one number on the bias of all tokens",
            "It shifts all logits alike; log-probabilities stay.",
            shift="one", moves=(Move(_HEAD + "bias", 1), Move(_HEAD + "decoder.bias?", 1)),
        ),
        head("nsp", "next-text head", "cls.seq_relationship.weight", "pool*"),
        head("nsp_bias", "next-text head", "cls.seq_relationship.bias", "one"),
        head("cls", "classifier", "classifier.weight", "pool*"),
        head("cls_bias", "classifier", "classifier.bias", "one"),
    ),
    prefix="bert.",
    spellings={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
)  # fmt: skip
