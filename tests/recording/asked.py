"""Which commands are recorded: every command, the ways to ask it, every family.

Each line can be typed after `python -m engine` in a folder made by `record.given`. What it writes
under `written` is looked at and removed; what it writes under `made` stays for the lines below it.
"""

from collections.abc import Iterator

FILE, FOLDER, ARRAYS = "--out written.json", "--out written", "--out written.npz"
IDS = "--tokens ids.json"
TWIN, SEED = "demo:base demo:twin", "demo:base demo:seed-1"
SHAPES = ("gpt2", "pythia", "qwen3", "mixtral", "bert")
"""Demo models of other architectures; `made/NAME` is each under a random gauge."""
FAMILIES = (
    "bert_masked", "cohere", "gemma2", "gemma3", "gpt2", "gpt_neox", "gptj", "llama_gqa", "mixtral",
    "modernbert_masked", "olmo2", "opt", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "vit",
)  # fmt: skip
"""A tiny checkpoint of each family, by its name in `tests.tiny`."""
VARIANTS = (
    "bert_classifier", "bert_old", "gemma2_biases", "gpt2_old", "gpt_neox_full", "gptj_full",
    "llama3_scaling", "llama_biases", "llama_mqa_tied", "mistral_window", "modernbert_classifier",
    "opt_untied", "phi3_partial", "qwen3_biases", "qwen3_moe_biases", "vit_bare",
)  # fmt: skip
"""Further tables of these families, looked at in short."""
COMMON = (
    "ffn-order ffn-one-sided head-order value-order value-matrix residual-order "
    "residual-reader-left rotation tokens positions layers prune average own"
)
"""What the lab offers for every demo model."""
GATED = "ffn-gate ffn-gate-left ffn-factors query-order query-across rotary-order residual-signs"
GAINS = "gain-signs-alone gain-signs rotation-folded blind-att blind-mlp blind-scale"
PLAIN = (
    "ffn-bias ffn-bias-left ffn-factors-curved key-matrix residual-signs-mean residual-sign "
    "blind-key blind-value blind-ffn_in blind-mean blind-mean_bias blind-mean_ffn "
    "blind-mean_ffn_bias"
)
NORMS = (
    "gain-signs-alone gain-signs blind-att blind-mlp blind-att_bias blind-mlp_bias blind-query_in "
    "blind-key_in blind-value_in blind-scale"
)
PRESETS = {
    "base": f"{GATED} {GAINS} rotary rotary-matrix",
    "gpt2": f"{PLAIN} {NORMS} position-rows blind-mean_pos blind-pos_tok",
    "pythia": f"{PLAIN} {NORMS} rotary rotary-order rotary-matrix blind-fin blind-query_rest "
    "blind-key_rest blind-mean_tok blind-logits",
    "qwen3": f"{GATED} {GAINS} half-turns other-turns gain-pairs blind-query blind-key "
    "blind-query_sign blind-key_sign blind-quarter",
    "mixtral": f"{GATED} {GAINS} rotary rotary-matrix experts experts-router-left experts-average "
    "blind-fin blind-logits blind-router",
    "bert": f"{PLAIN} position-rows blind-mean_pos blind-mean_typ blind-pos_typ blind-tok_typ "
    "blind-bias",
}
"""What it offers for one of them beside."""


def commands() -> Iterator[str]:
    """Every line, in the order in which they are asked."""
    for lines in (making, one_model, lab, pairs, matching, heads, layers, line, families, refused):
        yield from (f"{text} --json" for text in lines())


def making() -> Iterator[str]:
    """Models under a random gauge: what the lines below compare with."""
    yield f"scramble demo:base {FOLDER} --seed 3"
    yield f"scramble demo:base {FOLDER} --seed 4 --only res,heads"
    yield from (f"scramble demo:{name} --out made/demo-{name} --seed 5" for name in SHAPES)
    yield from (
        f"scramble tiny/{name} --out made/{name} --seed 1" for name in (*FAMILIES, *VARIANTS)
    )


def one_model() -> Iterator[str]:
    """Cards and self-tests."""
    yield from (f"inspect demo:{name}" for name in ("base", "twin", *SHAPES))
    yield "inspect demo:base --dtype float64 --seed 2"
    yield from (f"inspect tiny/{name}" for name in (*FAMILIES, *VARIANTS))


def lab() -> Iterator[str]:
    """Every preset, every way to draw an element, elements that are typed."""
    for name, presets in PRESETS.items():
        every = f"{COMMON} {presets}".split()
        yield from (f"lab demo:{name} --preset {preset}" for preset in every)
    yield "lab demo:base --preset ffn-order --draw transposition --layer -1 --seed 3"
    yield "lab demo:base --preset ffn-factors --draw factor --severity 0.5 --layer 2"
    yield "lab demo:base --preset residual-signs --draw sign --severity 0.2 --dtype float64"
    yield "lab demo:base --preset rotary --draw angle --angle 30 --layer 1"
    yield "lab demo:base --preset rotary --draw frequency --angle 45"
    yield "lab demo:base --preset rotation --draw angle --angle 10"
    yield "lab demo:base --preset own --coordinate val --layer 4"
    yield "lab demo:base --preset ffn-order --element '(0 3 5)'"
    yield "lab demo:base --preset ffn-factors --element '-7 2*1.5'"
    yield "lab demo:base --preset rotary --element '0@90 3*1.2'"
    yield "lab demo:base --preset value-matrix --element '0~1@30' --text words.txt"
    yield "lab demo:mixtral --preset experts --draw transposition --layer 1"
    yield "lab tiny/vit --preset own --inputs images.npz"
    yield "lab tiny/bert_classifier --preset own --tokens ids.json"


def pairs() -> Iterator[str]:
    """Lineage, and alignments."""
    few, text = "--count 1024", "--text words.txt"
    yield from (f"related {both}" for both in (TWIN, f"{SEED} --dtype float64"))
    yield f"related {SEED} {few} --thorough on {text}"
    yield "related demo:base demo:tune-a-step-0160 --thorough on --count 1024"
    yield "related demo:base demo:base-step-0300 --count 1024"
    yield "related demo:base demo:scope-first-layer-1 --thorough on --count 1024"
    yield from (f"related demo:{name} made/demo-{name} {few} --thorough on" for name in SHAPES)
    yield f"align {TWIN} {FOLDER}"
    yield f"align {TWIN} {FOLDER} --using activations {few}"
    yield f"align {TWIN} {FOLDER} --using activations {few} {text} --dtype bfloat16"
    yield f"align {TWIN} {FOLDER} --signs off {few}"
    yield f"align {TWIN} {FOLDER} --only res,ffn {few} --dtype float64"
    yield f"align {TWIN} {FOLDER} --only heads,val {few}"
    yield f"align {TWIN} {FOLDER} --stage2 orthogonal {few}"
    yield f"align {TWIN} {FOLDER} --stage2 none {few}"
    yield f"align {SEED} {FOLDER} {few}"
    yield f"align {SEED} {FOLDER} --using activations {few}"
    yield f"align {SEED} {FOLDER} --sweeps 3 {few}"
    yield f"align {SEED} {FOLDER} --sweeps 2 --signs off {few}"
    yield f"align {SEED} {FOLDER} --sweeps 2 --restarts 1 --neurons published {few}"
    yield f"align {SEED} {FOLDER} --sweeps 2 --mix 0.5 {few}"
    yield f"align {SEED} {FOLDER} --refine 2 {few}"
    yield f"align demo:tune-a-step-0160 demo:tune-b-step-0160 {FOLDER} {few}"
    for name in SHAPES:
        yield f"align demo:{name} made/demo-{name} {FOLDER} {few}"
        yield f"align demo:{name} made/demo-{name} {FOLDER} {few} --using activations"
    yield f"align demo:mixtral made/demo-mixtral {FOLDER} {few} --sweeps 2"


def matching() -> Iterator[str]:
    """Residual coordinates, neurons, experts."""
    few = "--count 1024"
    yield f"match {TWIN} {ARRAYS}"
    yield f"match {TWIN} {ARRAYS} --using weights"
    yield f"match {SEED} {ARRAYS} {few} --truth none"
    yield f"match demo:tune-a-step-0160 demo:tune-b-step-0160 {FILE} {few} --truth identity"
    yield f"match demo:gpt2 made/demo-gpt2 {ARRAYS} {few} --text words.txt"
    ffn = "--coordinate ffn"
    yield f"match {TWIN} {FILE} {ffn}"
    yield f"match {SEED} {ARRAYS} {ffn} --using activations {few} --truth none"
    yield f"match {TWIN} {ARRAYS} {ffn} --layer 2"
    yield f"match {SEED} {ARRAYS} {ffn} --layer 5 --using activations {few} --truth none"
    yield f"match demo:base demo:base {ARRAYS} {ffn} --layer 0 {few} --truth identity"
    yield f"match demo:bert made/demo-bert {ARRAYS} {ffn} --layer 1 {few}"
    yield f"match demo:mixtral made/demo-mixtral {ARRAYS} {ffn} --layer 1 --expert 2 {few}"
    yield f"match tiny/qwen2_moe made/qwen2_moe {ARRAYS} {ffn} --layer 1 --expert shared {IDS}"
    yield "experts demo:mixtral made/demo-mixtral --layer 0"
    yield "experts demo:mixtral made/demo-mixtral --layer 1 --using activations"
    yield "experts demo:mixtral demo:mixtral --layer 1 --count 512"
    yield from (f"experts tiny/{n} made/{n} {IDS} --count 256" for n in ("qwen2_moe", "qwen3_moe"))


def heads() -> Iterator[str]:
    """Heads, their disguises, and turns by hand."""
    few = "--count 256"
    yield f"heads {TWIN} {few} --layer 3"
    yield f"heads {TWIN} {few} --cost published"
    yield f"heads {SEED} {few} --using activations --stage2 orthogonal"
    yield f"heads demo:base demo:base {few}"
    yield f"heads demo:gpt2 made/demo-gpt2 {few} --layer 2"
    yield f"heads demo:gpt2 demo:gpt2 {few}"
    yield f"heads demo:pythia made/demo-pythia {few} --stage2 none"
    yield f"heads demo:qwen3 made/demo-qwen3 {few} --layer 1"
    yield f"heads demo:bert made/demo-bert {few} --using activations"
    yield f"heads tiny/vit made/vit --inputs images.npz {few}"
    yield f"heads tiny/gemma2 made/gemma2 {IDS} {few}"
    yield f"turn {TWIN} --angle 20"
    yield f"turn {TWIN} --layer 2 --group 1 --frequency 3 --modulus 1.5 --using activations"
    yield f"turn {SEED} --angle -75 --modulus 0.8 --count 256 --text words.txt"


def layers() -> Iterator[str]:
    """Maps, cuts, continuations, the gap of a training."""
    every = "--tests replace,swap,average,skip,replace-healed,swap-healed,delete,delete-healed"
    few = "--count 128"
    yield f"layers demo:base {FILE}"
    yield f"layers demo:base {FILE} {every} {few}"
    yield f"layers demo:base {FILE} {every} {few} --aggregate last --layers 1-3"
    yield f"layers demo:base {FILE} --reach 1 {few} --dtype float64 --text words.txt"
    yield from (f"layers demo:{name} {FILE} {every} {few}" for name in SHAPES)
    yield f"cut demo:base {FILE} --budget 3"
    yield f"cut demo:base {FILE} --budget 4 --reach 2 {few}"
    yield from (f"cut demo:{name} {FILE} --budget 2 {few}" for name in ("gpt2", "bert"))
    yield f"prune demo:base {FOLDER} --drop 2,4-5"
    yield f"prune demo:base {FOLDER} --drop 1 --cost off"
    yield f"prune demo:qwen3 {FOLDER} --drop 0 --count 256"
    tests = ("replace", "swap", "average", "skip", "delete")
    yield from (f"continue demo:base --test {test} --i 1 --j 3 --count 8" for test in tests)
    yield "continue demo:pythia --prompt 'anna has the lamp' --count 8"
    yield f"gap demo:base-step-0020 demo:base-step-0500 demo:base {FILE} {few}"
    yield f"gap demo:base demo:seed-1 {FILE}"


def line() -> Iterator[str]:
    """Barriers, merges, words, planes, orders of heads."""
    few = "--points 5 --count 256"
    fixed = f"{few} --adaptive off"
    stages = "none,orders,res-unsigned,res,ffn,heads,orthogonal,all,random"
    scoped = "demo:base demo:scope-{0}-1 --scope {0}"
    yield f"barrier {TWIN} {FILE} --points 5 --count 512 --length 32 --stages {stages}"
    yield f"barrier {SEED} {FILE} {few} --stages none,all --sweeps 2"
    yield f"barrier {SEED} {FILE} {fixed} --stages none,all,refined --refine 2"
    yield f"barrier {SEED} {FILE} {fixed} --stages res,heads,all --using activations"
    yield f"barrier demo:tune-a-step-0160 demo:tune-b-step-0160 {FILE} {few} --stages none"
    yield f"barrier {TWIN} {FILE} {fixed} --midpoint on --scrambled on --seed 2 --dtype float64"
    for scope in ("first-attention", "first-layer"):
        both = scoped.format(scope)
        yield f"barrier {both} {FILE} {fixed}"
        yield f"barrier {both} {FILE} {fixed} --using activations"
    yield f"barrier {scoped.format('all-attention')} {FILE} {few} --stages none,all"
    yield f"barrier {SEED} {FILE} {fixed} --scope 2-3 --stages none,all --text words.txt"
    for name in SHAPES:
        yield f"barrier demo:{name} made/demo-{name} {FILE} {fixed} --stages none,res,all,random"
    yield f"barrier demo:base demo:seed-2 {FILE} --stages none,orders --points 3 --count 256"
    yield f"merge {TWIN} {FOLDER} --count 256"
    yield f"merge {SEED} {FOLDER} --count 256 --t 0.3 --stage none"
    yield f"merge {SEED} {FOLDER} --count 256 --stage heads --sweeps 1 --scrambled on --seed 7"
    yield f"merge {scoped.format('first-attention')} {FOLDER} --count 256 --t 0.7"
    yield f"merge demo:bert made/demo-bert {FOLDER} --count 256 --using activations"
    yield f"line {TWIN} --count 6"
    yield f"line {SEED} --at 0,0.1,1 --stage res --count 6 --prompt 'who has the key'"
    yield "line demo:gpt2 made/demo-gpt2 --count 6 --scrambled on --seed 3"
    yield f"slice {SEED} {FILE} --points 4 --count 256"
    yield f"slice {SEED} {FILE} --points 3 --count 256 --margin 0.5 --stage res --seed 1"
    yield f"slice {SEED} {FILE} --points 3 --count 256 --stage heads --using activations"
    yield f"orders {TWIN} {FILE} --points 3 --count 256 --layer 1"
    yield f"orders demo:mixtral made/demo-mixtral {FILE} --points 3 --count 256"


def families() -> Iterator[str]:
    """The same on every family's table; a refusal is an answer too."""
    for name in FAMILIES:
        a, b = f"tiny/{name}", f"made/{name}"
        text = "--inputs images.npz" if name == "vit" else IDS
        yield f"related {a} {b} {text} --count 256"
        yield f"align {a} {b} {FOLDER} {text} --count 256"
        yield f"align {a} {b} {FOLDER} {text} --count 256 --using activations"
        yield f"match {a} {b} {FILE} {text} --count 256 --using weights"
        yield f"match {a} {b} {FILE} {text} --count 256 --coordinate ffn --layer 1"
        yield f"layers {a} {FILE} {text} --count 48 --length 12"
        yield f"cut {a} {FILE} {text} --count 48 --length 12 --budget 1"
        yield f"barrier {a} {b} {FILE} {text} --points 3 --count 48 --length 12 --adaptive off"
        yield f"prune {a} {FOLDER} {text} --count 256 --length 12 --drop 1"
    for name in VARIANTS:
        text = "--inputs pixels.npz" if name == "vit_bare" else IDS
        yield f"align tiny/{name} made/{name} {FOLDER} {text} --count 256"
    yield f"layers tiny/bert_classifier {FILE} {IDS} --count 48"
    yield f"barrier tiny/bert_classifier tiny/bert_classifier {FILE} --points 3 --inputs labels.npz"


def refused() -> Iterator[str]:
    """What is said about input that is none."""
    yield "inspect demo:nobody"
    yield "inspect nowhere"
    yield "related demo:base demo:gpt2"
    yield "lab demo:base --preset unknown"
    yield "align demo:base demo:twin --out tiny"
    yield f"heads {TWIN} --layer 6"
    yield f"layers demo:base {FOLDER}"
    yield f"prune demo:base {FOLDER} --drop 0-5"
    yield f"barrier {TWIN} {FILE} --stages unknown"
    yield f"barrier {TWIN} {FILE} --points 2"
    yield f"slice {TWIN} {FILE} --points 3 --count 256"
    yield "experts demo:base demo:twin"
    yield "related demo:base demo:twin --count 1"
