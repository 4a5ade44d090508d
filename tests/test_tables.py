"""What a family's table says beside its tensors: attributes, fixed indices, blind directions."""

from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from engine.agreement import rope
from engine.families import FAMILIES
from engine.family import HARMLESS, Family
from engine.groups import Trivial
from engine.rows import ByLayer
from engine.sizes import evaluate

tables = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
ROTARY = "rope_parameters rope_scaling rope_theta"
WINDOWS = "layer_types max_window_layers sliding_window use_sliding_window"
GEMMA = (
    "attention_bias attn_logit_softcapping final_logit_softcapping hidden_activation layer_types "
    f"query_pre_attn_scalar rms_norm_eps sliding_window tie_word_embeddings {ROTARY}"
)
LLAMA = (
    f"attention_bias hidden_act mlp_bias rms_norm_eps sliding_window tie_word_embeddings {ROTARY}"
)
EXPERTS = f"hidden_act num_experts_per_tok rms_norm_eps tie_word_embeddings {ROTARY}"
COMPARED = {
    "BERT": "hidden_act layer_norm_eps tie_word_embeddings",
    "Cohere": f"attention_bias hidden_act layer_norm_eps logit_scale tie_word_embeddings {ROTARY}",
    "Gemma 2": GEMMA,
    "Gemma 3": f"{GEMMA} rope_local_base_freq sliding_window_pattern",
    "GPT-2": "activation_function layer_norm_epsilon n_positions scale_attn_by_inverse_layer_idx "
    "scale_attn_weights tie_word_embeddings",
    "GPT-NeoX": "attention_bias hidden_act layer_norm_eps partial_rotary_factor rotary_emb_base "
    f"rotary_pct tie_word_embeddings use_parallel_residual {ROTARY}",
    "GPT-J": "activation_function layer_norm_epsilon tie_word_embeddings",
    "Llama": LLAMA,
    "Mixtral": f"{EXPERTS} sliding_window",
    "ModernBERT": "attention_bias classifier_activation classifier_bias classifier_pooling "
    "decoder_bias global_attn_every_n_layers global_rope_theta hidden_activation layer_types "
    "local_attention local_rope_theta mlp_bias norm_eps rope_parameters rope_scaling "
    "tie_word_embeddings",
    "OLMo 2": f"attention_bias hidden_act rms_norm_eps tie_word_embeddings {ROTARY}",
    "OPT": "tie_word_embeddings",
    "Phi-3": "hidden_act original_max_position_embeddings partial_rotary_factor rms_norm_eps "
    f"sliding_window tie_word_embeddings {ROTARY}",
    "Qwen2": f"{LLAMA} layer_types max_window_layers use_sliding_window",
    "Qwen3": f"attention_bias hidden_act rms_norm_eps tie_word_embeddings {ROTARY} {WINDOWS}",
    "Qwen3-MoE": f"{EXPERTS} attention_bias norm_topk_prob sliding_window use_sliding_window",
    "Qwen2-MoE": f"{EXPERTS} norm_topk_prob qkv_bias {WINDOWS}",
    "ViT": "hidden_act layer_norm_eps qkv_bias",
}
"""The attributes that change what a model computes, of every family."""
NO, YES = (False,), (True,)
SPARSE = {"mlp_only_layers": ([], None), "decoder_sparse_step": (1,)}
CONSTANTS: dict[str, dict[str, tuple[Any, ...]]] = {
    "BERT": {
        "add_cross_attention": NO, "is_decoder": NO, "position_embedding_type": ("absolute",),
        "pruned_heads": ({},),
        "architectures": (
            ["BertForMaskedLM"], ["BertForPreTraining"], ["BertForNextSentencePrediction"],
            ["BertForSequenceClassification"], ["BertModel"],
        ),
    },
    "Cohere": {"pretraining_tp": (1,), "use_qk_norm": (None, False)},
    "Gemma 2": {"use_bidirectional_attention": (None, False)},
    "Gemma 3": {"use_bidirectional_attention": (None, False), "attn_logit_softcapping": (None,)},
    "GPT-2": {"add_cross_attention": NO},
    "GPT-J": {"rotary": YES, "scale_attn_weights": YES},
    "Llama": {"pretraining_tp": (1,)},
    "ModernBERT": {
        "norm_bias": NO,
        "architectures": (
            ["ModernBertForMaskedLM"], ["ModernBertForSequenceClassification"], ["ModernBertModel"],
        ),
    },
    "OPT": {
        "_remove_final_layer_norm": NO, "activation_function": ("relu",), "enable_bias": YES,
        "do_layer_norm_before": YES, "layer_norm_elementwise_affine": YES,
    },
    "Phi-3": {
        "attention_bias": NO, "full_attn_mod": (1,), "interpolate_factor": (1,),
        "lm_head_bias": NO, "mlp_bias": NO,
    },
    "Qwen2": {"pretraining_tp": (1,), "use_mrope": NO},
    "Qwen3-MoE": SPARSE,
    "Qwen2-MoE": SPARSE,
    "ViT": {"pooler_act": ("tanh",)},
}  # fmt: skip
"""The only values that a table covers; no family has an encoder beside its decoder."""
LISTED = ByLayer(listed=("layer_types",), counted=("max_window_layers",))
BY_LAYER = {
    "Gemma 2": ByLayer(listed=("layer_types",), periodic=("_sliding_window_pattern",)),
    "Gemma 3": ByLayer(
        listed=("layer_types",), periodic=("sliding_window_pattern", "_sliding_window_pattern")
    ),
    "GPT-2": ByLayer(indexed=("scale_attn_by_inverse_layer_idx",)),
    "ModernBERT": ByLayer(
        listed=("layer_types",), periodic=("global_attn_every_n_layers",),
        first="has no attention norm",
    ),
    "Qwen2": LISTED, "Qwen3": LISTED, "Qwen2-MoE": LISTED,
}  # fmt: skip
LIMITS = {
    "Mixtral": {"num_experts_per_tok": "num_local_experts"},
    "Qwen3-MoE": {"num_experts_per_tok": "num_local_experts"},
    "Qwen2-MoE": {"num_experts_per_tok": "num_experts"},
}


@tables
def test_a_table_compares_what_changes_the_function(family: Family) -> None:
    assert sorted(family.compared) == sorted(COMPARED[family.name].split())


@tables
def test_a_table_covers_these_values_and_layers_only(family: Family) -> None:
    held = {"is_encoder_decoder": NO, **CONSTANTS.get(family.name, {})}
    assert dict(family.constants) == held
    assert family.by_layer == BY_LAYER.get(family.name, ByLayer())
    assert dict(family.limits) == LIMITS.get(family.name, {})


@tables
def test_what_an_attribute_left_out_means_is_what_transformers_takes_it_for(
    family: Family,
) -> None:
    for kind in family.model_types:
        usual = CONFIG_MAPPING[kind]().to_dict()
        taken = {**usual, **rope(usual)}
        if "sliding_attention" in taken:  # one embedding for each kind of layer
            taken["rope_theta"] = taken["full_attention"]["rope_theta"]
            taken["rope_local_base_freq"] = taken["sliding_attention"]["rope_theta"]
        assert dict(family.assumed) == {name: taken.get(name) for name in family.assumed}
        for name, size in family.defaults.items():
            found = taken.get(name.rpartition(".")[2])
            if isinstance(found, dict):
                assert str(len(found)) == size
            elif isinstance(found, int) and not name.endswith("_heads"):
                named = {"num_experts": usual.get("num_local_experts"), **usual}
                assert evaluate(size, named, family.defaults) == found


SIZES = {
    "num_key_value_heads": "num_attention_heads",
    "head_dim": "hidden_size / num_attention_heads",
}
WIDER = {"n_inner": "4 * n_embd"}
DEFAULTS = {
    "BERT": {"id2label": "2"}, "Cohere": SIZES, "Llama": SIZES, "Mixtral": SIZES, "OLMo 2": SIZES,
    "Gemma 2": {"num_key_value_heads": "4", "head_dim": "256"},
    "Gemma 3": {"num_key_value_heads": "4", "head_dim": "256"},
    "GPT-2": WIDER, "GPT-J": {**WIDER, "rotary_dim": "64"}, "ModernBERT": {"id2label": "2"},
    "GPT-NeoX": {"rope_parameters.partial_rotary_factor": "rotary_pct", "rotary_pct": "0.25"},
    "Phi-3": {
        **SIZES, "rope_parameters.partial_rotary_factor": "partial_rotary_factor",
        "partial_rotary_factor": "1",
    },
    "Qwen2": SIZES, "Qwen2-MoE": SIZES, "Qwen3": {**SIZES, "head_dim": "128"},
    "Qwen3-MoE": {**SIZES, "num_local_experts": "num_experts"},
    "ViT": {
        "pooler_output_size": "hidden_size", "num_channels": "3", "encoder_stride": "16",
        "id2label": "2",
    },
}  # fmt: skip


@tables
def test_a_size_left_out_follows_from_others(family: Family) -> None:
    assert dict(family.defaults) == DEFAULTS.get(family.name, {})


GAINS = "att mlp fin"
OUTPUTS = "out down out_sign down_sign"
NORMED = "query key query_sign key_sign quarter"
BIASES = "att_bias mlp_bias"
BLIND = {
    "BERT": "key value mean mean_bias mean_ffn mean_ffn_bias mean_pos mean_typ ffn_in pos_typ "
    "tok_typ bias nsp nsp_bias cls cls_bias",
    "Cohere": "att fin query_in key_in value_in gate_in up_in fin_in mean_tok mean mean_ffn scale "
    "value logits",
    "Gemma 2": f"{GAINS} scale {OUTPUTS} value",
    "Gemma 3": f"{GAINS} scale {OUTPUTS} value {NORMED}",
    "GPT-2": f"{GAINS} {BIASES} query_in key_in value_in ffn_in mean mean_bias mean_ffn "
    "mean_ffn_bias mean_pos pos_tok value key scale logits",
    "GPT-NeoX": f"{GAINS} {BIASES} query_in query_rest key_in key_rest value_in ffn_in mean_tok "
    "mean mean_bias mean_ffn mean_ffn_bias value key scale logits",
    "GPT-J": "att fin fin_bias key_in ffn_in fin_in mean_tok mean mean_ffn mean_ffn_bias scale "
    "logits bias",
    "Llama": f"{GAINS} scale value logits",
    "Mixtral": f"{GAINS} scale logits router",
    "ModernBERT": "mlp fin up_in gate_in mean mean_bias mean_ffn mean_ffn_bias value bias cls "
    "cls_bias",
    "OLMo 2": f"fin scale {OUTPUTS} {NORMED} value logits",
    "OPT": f"{GAINS} {BIASES} query_in key_in value_in ffn_in mean mean_ffn value key logits",
    "Phi-3": f"{GAINS} scale logits",
    "Qwen2": f"{GAINS} scale logits",
    "Qwen3": f"{GAINS} scale value logits {NORMED}",
    "Qwen3-MoE": f"{GAINS} scale value logits router {NORMED}",
    "Qwen2-MoE": f"{GAINS} scale logits router",
    "ViT": f"{GAINS} {BIASES} fin_bias key value query_in key_in value_in ffn_in cls_in mean "
    "mean_bias mean_ffn mean_ffn_bias mean_pos mean_chan pos cls cls_bias scale",
}
"""The blind directions of every family, in the order in which they are shown."""
SLOPES = {
    "query_in": "the query projection", "key_in": "the key projection",
    "value_in": "the value projection", "gate_in": "the gate projection",
    "up_in": "the up projection", "fin_in": "an untied head", "cls_in": "the classifier",
    "query_rest": "the other queries", "key_rest": "the other keys",
    "ffn_in": "the FFN's reader",
}  # fmt: skip
ALIKE = {
    "mean": "written by attention", "mean_bias": "in the attention's output bias",
    "mean_ffn": "written by the FFN", "mean_ffn_bias": "in the FFN's output bias",
    "mean_pos": "in position embeddings", "mean_typ": "in segment embeddings",
    "mean_tok": "in an untied embedding", "mean_chan": "in the patch projection",
}  # fmt: skip
HEADS = {
    "nsp": "next-text head's weight", "nsp_bias": "next-text head's bias",
    "cls": "classifier's weight", "cls_bias": "classifier's bias",
}  # fmt: skip
TITLES = {
    **{name: f"multiples of 1/γ on the rows of {what}" for name, what in SLOPES.items()},
    **{name: f"all coordinates alike, {what}" for name, what in ALIKE.items()},
    **{name: f"the same for all classes in the {what}" for name, what in HEADS.items()},
    "att": "gain of the attention norm against its readers",
    "mlp": "gain of the FFN norm against its readers",
    "fin": "gain of the last norm against an untied head",
    "att_bias": "bias of the attention norm against the biases of its readers",
    "mlp_bias": "bias of the FFN norm against the biases of its readers",
    "fin_bias": "bias of the last norm against the biases of its readers",
    "scale": "scale of the whole residual stream",
    "out": "scale of the attention's output projection",
    "down": "scale of the FFN's down projection",
    "out_sign": "signs of the rows of the attention's output projection with the gains behind it",
    "down_sign": "signs of the rows of the FFN's down projection with the gains behind it",
    "key": "key bias of channels that are not rotated",
    "value": "value bias against output bias",
    "query": "scale of a query head",
    "query_sign": "sign of a query channel with its gain",
    "key_sign": "sign of a key channel with its gain",
    "quarter": "quarter turn of a frequency with its two gains exchanged",
    "logits": "a common vector on all rows of an untied head",
    "router": "a common vector on the router's rows",
    "bias": "one number on the bias of all tokens",
    "pos_typ": "a common vector of positions against that of segments",
    "tok_typ": "a common vector of tokens against that of segments",
    "pos_tok": "a common vector of positions against that of tokens",
    "pos": "a common vector of positions against the first token and the patches' bias",
}
READERS = {"ffn_in": "multiples of 1/γ on the rows of the FFN's readers"}
ONE_NORM = {"att": "gain of the block's norm against its readers"}
EACH_HEAD = {"key": "scale of a key head"}
OWN_TITLES = {
    "Cohere": ONE_NORM, "Gemma 3": EACH_HEAD, "GPT-2": READERS, "Qwen3": EACH_HEAD,
    "Qwen3-MoE": EACH_HEAD,
    "GPT-J": {
        **READERS, **ONE_NORM,
        "key_in": "multiples of 1/γ on the rows of the keys without rotation",
    },
    "GPT-NeoX": {
        **READERS, "query_in": "multiples of 1/γ on the rows of the rotated queries",
        "key_in": "multiples of 1/γ on the rows of the rotated keys",
        "value_in": "multiples of 1/γ on the rows of the values",
    },
    "ModernBERT": {
        "fin": "gain of the last norm against the head",
        "gate_in": "multiples of 1/γ on the rows of the FFN's gate",
        "up_in": "multiples of 1/γ on the rows of the FFN's linear reader",
    },
    "OLMo 2": {"query": "scale of all queries", "key": "scale of all keys"},
    "ViT": {
        "fin": "gain of the last norm against the classifier",
        "scale": "scale of the residual stream",
    },
}  # fmt: skip


@tables
def test_blind_directions_are_these_under_these_titles(family: Family) -> None:
    titles = TITLES | OWN_TITLES.get(family.name, {})
    found = [(blind.name, blind.title) for blind in family.blind]
    assert found == [(name, titles[name]) for name in BLIND[family.name].split()]


@tables
def test_what_only_an_epsilon_spoils_is_a_scale_before_a_norm(family: Family) -> None:
    scales = {"scale", "out", "down"} | ({"query", "key"} if "query" in BLIND[family.name].split()
                                         else set())  # fmt: skip
    for blind in family.blind:
        assert blind.approximate == (blind.name in scales), blind.name
        needs_head = blind.name == "scale" and family.name != "ViT"
        assert blind.head == needs_head, blind.name


WHYS = {
    "gain": "What a norm multiplies by a factor, every matrix behind it may divide by.",
    "bias of": "A constant that every reader sees can be taken back in the bias of every reader.",
    "multiples": "A LayerNorm's output divided by its gain sums to a constant over the "
    "coordinates.",
    "all coordinates": "Every LayerNorm that reads the stream first subtracts the mean over its "
    "coordinates.",
    "the same for all classes": "It shifts all logits alike; log-probabilities stay.",
    "one number": "It shifts all logits alike; log-probabilities stay.",
    "scale of the whole": "Every norm divides by the size of what it reads.",
    "scale of the attention": "A norm follows and divides by the size of what it reads.",
    "scale of the FFN": "A norm follows and divides by the size of what it reads.",
    "sign": "RMSNorm sees only squares, so that a sign passes through it to its gain.",
    "scale of a ": "The norm of queries and keys divides it out.",
    "scale of all": "The norm of queries and keys divides it out.",
    "quarter": "It commutes with the rotation, is the same for queries and keys, and only moves "
    "and negates numbers, which RMSNorm lets through to the gains.",
    "value bias": "Attention weights sum to 1: a constant on all values comes out as that "
    "constant.",
    "key bias": "It adds the same number to all scores of a query, and the softmax does not see "
    "it.",
    "gain of the last norm against an": "What a norm multiplies by a factor, the head behind it "
    "may divide by; a tied head is also the embedding and may not.",
    "gain of the last norm against the": "What a norm multiplies by a factor, the ",
    "a common vector on all": "It adds the same number to all logits of a position; "
    "log-probabilities stay.",
    "a common vector on the router": "It adds the same number to all scores of a token, and the "
    "softmax does not see it.",
    "a common vector of positions against that of segments": "Every token has one position and "
    "one segment, and the two are added.",
    "a common vector of tokens": "Every token has one segment, and the two are added; through the "
    "tied unembedding the vector shifts all logits of a position alike.",
    "a common vector of positions against that of tokens": "Every token has one position, and the "
    "two are added; through a tied head the vector shifts all logits of a position alike.",
    "a common vector of positions against the first": "Every token has one position, and is the "
    "first one, a patch or masked.",
    "scale of the residual": "Every norm divides by the spread of the stream, but for its ε.",
}
"""Why a direction is blind, by how its title begins; the longest beginning counts."""


@tables
def test_a_blind_direction_says_why(family: Family) -> None:
    for blind in family.blind:
        begins = max((words for words in WHYS if blind.title.startswith(words)), key=len)
        assert blind.why.startswith(WHYS[begins]), blind.title


OUTSIDE = (True, True, False)
NAMED, NONE = (True, False, False), (False, False, False)
FIXED = {
    "tok": ("token", "a token id means an entry of the dictionary", OUTSIDE),
    "pos": ("position", "a position means a place in the text", NONE),
    "typ": ("segment", "a segment id means the first or the second text", NAMED),
    "cls": ("class", "a class means an answer", NAMED),
    "nsp": ("whether the second text follows", "the two answers mean yes and no", NAMED),
    "one": ("single row", "there is only one", NONE),
    "half": ("member of a rotary pair", "the rotation tells the two apart", NONE),
    "freq": ("rotary frequency", "each frequency has its own angle", NONE),
    "chan": ("colour channel", "a channel means a colour", NONE),
    "patch": ("pixel of a patch, down or across", "a pixel means a place in the image", NONE),
    "stride": (
        "pixel that the decoder paints, down or across", "a pixel means a place in the image", NONE,
    ),
}  # fmt: skip
OWN_FIXED = {
    ("ViT", "pos"): ("position", "a position means a place in the image", NONE),
    ("Qwen2-MoE", "one"): ("gate of the shared expert", "there is only one", (True, True, True)),
}
"""Title, reason and criterion of the indices on which nothing may act."""


@tables
def test_an_index_is_fixed_for_its_reason_and_others_are_only_names(family: Family) -> None:
    for name, row in family.coordinates.items():
        if isinstance(row.group, Trivial):
            wanted = OWN_FIXED.get((family.name, name), FIXED.get(name))
            assert (row.title, row.group.reason, row.criterion) == wanted, name
        else:
            assert name not in FIXED and row.criterion == (True, True, True), name


REASONS = {
    "where it came from": "_name_or_path",
    "counted by the classes": "_num_labels",
    "which head class to load": "architectures",
    "training only": "attention_dropout attention_probs_dropout_prob attn_pdrop classifier_dropout "
    "embd_pdrop gradient_checkpointing hidden_dropout hidden_dropout_prob resid_pdrop",
    "before training only": "initializer_range",
    "text only": "bos_token_id eos_token_id pad_token_id sep_token_id tokenizer_class",
    "speed only": "cache_implementation use_cache",
    "memory only: the same sums in pieces": "chunk_size_feed_forward",
    "storage": "dtype torch_dtype transformers_version",
    "names of classes": "id2label label2id",
    "a converter's remark": "is_llama_config unsloth_fixed",
    "a converter's remark: Hugging Face's Llama pairs halves whatever it says": "rope_interleaved",
    "a length limit of the tokenizer": "max_sequence_length",
    "a length limit; rotary embeddings have no parameters": "max_position_embeddings",
    "selects the family": "model_type",
    "what is returned": "output_attentions output_hidden_states output_past return_dict",
    "loss of classifiers": "problem_type",
    "defaults of generation": "task_specific_params",
    "another runtime": "transformers.js_config",
    "counted by the embedding; only common ids are compared": "vocab_size",
    "which layers were left out, and of what": "gaugescope_cut",
    "which generator wrote a demo model's text": "gaugescope_text",
}


def test_an_attribute_is_harmless_for_its_reason() -> None:
    found = {name: why for why, names in REASONS.items() for name in names.split()}
    assert dict(HARMLESS) == found
