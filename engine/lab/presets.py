"""The presets of the lab as data: what is changed, what it shows, which models it applies to.

Nothing here needs torch: a page lists a model's presets from its card. What `claim` means is in
`engine.lab.claims`, what `group` and `draws` mean in `engine.lab.draws`.
"""

from engine.lab.offers import Preset, has
from engine.records import BlindCard, ModelCard

ORDER, SIGNED, FACTORS = ("random", "transposition"), ("random", "sign"), ("random", "factor")
TURNS, MATRIX, PLANES = ("random", "angle", "frequency"), ("matrix", "angle"), ("rotation", "angle")
_FFN = ("ffn", "sffn")
_BACK = "Where it does not come along, each neuron is handed what belongs to another."

PRESETS: tuple[Preset, ...] = (
    Preset(
        "ffn-order", "FFN: order of the neurons",
        "The neurons of the FFN exchange their places, in every matrix and bias that knows them.",
        "The activation treats all neurons alike and the way out adds them up: no output shows "
        "their order.",
        ("ffn",), _FFN, "order",
    ),
    Preset(
        "ffn-bias", "FFN: order, the bias moves along",
        "The neurons exchange their places, and each takes its entry of the bias with it.",
        "A bias has the neurons on its only axis; it belongs to the same table.",
        ("ffn", "ffn bias"), _FFN, "order",
    ),
    Preset(
        "ffn-bias-left", "FFN: order, the bias left behind",
        "The neurons exchange their places in the matrices, and the bias stays where it was.",
        _BACK,
        ("ffn", "ffn bias"), _FFN, "order", claim="bias left", holds=False,
    ),
    Preset(
        "ffn-gate", "FFN: order, the gate moves along",
        "The neurons exchange their places in the way up, the gate and the way down.",
        "Gate and way up meet neuron by neuron, so that both have to follow the same order.",
        ("ffn", "gated"), _FFN, "order",
    ),
    Preset(
        "ffn-gate-left", "FFN: order, the gate left behind",
        "The neurons exchange their places on the way up and down, and the gate stays.", _BACK,
        ("ffn", "gated"), _FFN, "order", claim="gate left", holds=False,
    ),
    Preset(
        "ffn-one-sided", "FFN: order of the way up alone",
        "The rows of the matrix up are exchanged, and nothing else is.",
        "A coordinate is a way in and a way out: whoever changes one side changes the function.",
        ("ffn",), _FFN, "order", claim="one-sided", holds=False,
    ),
    Preset(
        "ffn-factors", "FFN: sign and scale of a neuron",
        "Each neuron is multiplied by a factor on the way up and divided by it on the way down; "
        "the gate stays.",
        "The way up is linear: any factor, a negative one too, passes through and cancels.",
        ("ffn", "gated"), _FFN, "factors", ("random", "factor", "sign"),
    ),
    Preset(
        "ffn-factors-curved", "FFN: sign and scale through the activation",
        "Each neuron is multiplied by a factor on the way in and divided by it on the way out.",
        "The activation in between is not linear: no factor passes through it.",
        ("ffn", "!gated", "!relu"), _FFN, "factors", ("random", "factor", "sign"), "allow",
        holds=False,
    ),
    Preset(
        "ffn-signs-relu", "FFN: sign through ReLU",
        "Neurons change their signs on the way in and on the way out.",
        "ReLU sees the sign of what it is given: of all factors only positive ones pass.",
        ("ffn", "!gated", "relu"), _FFN, "signs", SIGNED, "allow", holds=False,
    ),
    Preset(
        "ffn-positive", "FFN: positive scale through ReLU",
        "Each neuron is multiplied by a positive factor on the way in and divided by it on the "
        "way out.",
        "ReLU commutes with positive factors, and with no others.",
        ("ffn", "!gated", "relu"), _FFN, "positive", FACTORS, "allow",
    ),
    Preset(
        "head-order", "Attention: order of the heads",
        "The key/value heads exchange their places and take their query heads along.",
        "Heads run side by side and the output projection adds them up.",
        ("grp",), ("grp",), "order",
    ),
    Preset(
        "query-order", "Attention: query heads inside their group",
        "Query heads that share a key/value head exchange their places.",
        "All of them see the same keys and values, so that only their sum matters.",
        ("head",), ("head",), "order",
    ),
    Preset(
        "query-across", "Attention: query heads across groups",
        "Query heads exchange their places with those of other groups; keys and values stay.",
        "A query head then looks at keys that were not made for it.",
        ("head", "grp"), ("every",), "order", claim="across", holds=False,
    ),
    Preset(
        "value-order", "Attention: order of the value channels",
        "The channels of each value head exchange their places, and the output projection reads "
        "them in the new order.",
        "Attention mixes positions and leaves the channels apart.",
        ("val",), ("val",), "order",
    ),
    Preset(
        "value-matrix", "Attention: any matrix on the value channels",
        "Values are multiplied by an invertible matrix, and the output projection by its inverse.",
        "Only the product of the two is seen: a head has no preferred channels.",
        ("val",), ("val",), "linear", MATRIX,
    ),
    Preset(
        "key-matrix", "Attention: any matrix on queries and keys without rotation",
        "Queries are multiplied by an invertible matrix, and keys by its inverse transposed.",
        "Scores are products of queries and keys, in which the two cancel.",
        ("qk",), ("qk",), "linear", MATRIX,
    ),
    Preset(
        "rotary", "Attention: turn and scale of a rotary frequency",
        "Each rotary frequency of the queries is multiplied by a complex number z, and that of "
        "the keys by 1 / z̄.",
        "Turns of one plane commute with the rotation by position; this is all that does.",
        ("rotary",), ("rot",), "", TURNS,
    ),
    Preset(
        "rotary-order", "Attention: order of the rotary channels",
        "Rotary channels of queries and keys exchange their places in the same way, those of the "
        "highest frequencies first.",
        "Each channel is turned by its own angle, so that its place has a meaning.",
        ("rot",), ("rot",), "order", claim="allow", holds=False,
    ),
    Preset(
        "rotary-matrix", "Attention: any matrix on the rotary channels",
        "Queries are multiplied by an invertible matrix, and keys by its inverse transposed, "
        "although both are rotated in between.",
        "The matrix and the rotation do not commute: what cancels without one no longer does.",
        ("rotary",), ("rot",), "linear", MATRIX, "allow", holds=False,
    ),
    Preset(
        "half-turns", "Attention: half turns under a norm of queries and keys",
        "Rotary frequencies of queries and keys change their sign together.",
        "A norm and its gains stand before the rotation; the half turn passes through both.",
        ("half turns",), ("rot",), "signs", SIGNED,
    ),
    Preset(
        "other-turns", "Attention: other turns under a norm of queries and keys",
        "Each rotary frequency of queries and keys is turned before the norm.",
        "The norm would not notice, but the two channels of a frequency have different gains.",
        ("half turns",), ("turn",), "", ("angle", "frequency"), "pairs", holds=False,
    ),
    Preset(
        "gain-pairs", "Attention: gains of queries against gains of keys",
        "Both gains of a rotary frequency are multiplied for the queries and divided for the "
        "keys.",
        "A factor on a whole frequency commutes with its rotation and cancels in the score.",
        ("gain",), ("gain",), "", ("random", "factor", "sign"),
    ),
    Preset(
        "residual-order", "Residual stream: order",
        "The coordinates of the residual stream exchange their places in everything that writes "
        "or reads it.",
        "A norm treats all of them alike, and every matrix can follow.",
        ("res",), ("res",), "order",
    ),
    Preset(
        "residual-reader-left", "Residual stream: order, one reader left behind",
        "The coordinates of the residual stream exchange their places, but one matrix of each "
        "layer goes on reading the old ones.",
        "The stream is one set of coordinates for the whole model: all have to follow.",
        ("res",), ("res",), "order", claim="reader left", holds=False,
    ),
    Preset(
        "residual-signs", "Residual stream: signs under RMSNorm",
        "Coordinates of the residual stream change their signs; the gains of the norms do not.",
        "RMSNorm sees squares only, so that every sign passes through.",
        ("res", "!common"), ("res",), "signs", SIGNED,
    ),
    Preset(
        "residual-signs-mean", "Residual stream: single signs under LayerNorm",
        "Single coordinates of the residual stream change their signs.",
        "LayerNorm first subtracts the mean over coordinates, and a single sign changes it.",
        ("res", "common"), ("res",), "signs", SIGNED, "allow", holds=False,
    ),
    Preset(
        "residual-sign", "Residual stream: one sign for all coordinates",
        "All coordinates of the residual stream change their signs at once.",
        "The mean changes its sign with them: this one sign passes through LayerNorm.",
        ("res", "common"), ("res",), "sign", ("random",),
    ),
    Preset(
        "gain-signs-alone", "Norm: signs of the gains alone",
        "Gains of a norm change their signs, and what reads them stays.",
        "A gain is a factor between the stream and its readers: someone has to undo it.",
        ("res", "gain row"), ("gain row",), "signs", SIGNED, "gain alone", holds=False,
    ),
    Preset(
        "gain-signs", "Norm: signs of the gains and of their readers",
        "Gains of a norm change their signs, and the columns of all matrices behind it too.",
        "What a norm multiplies by a factor, everything that reads it may divide by.",
        ("res", "gain row"), ("gain row",), "signs", SIGNED, "gain",
    ),
    Preset(
        "rotation", "Residual stream: rotated as it is",
        "The residual stream is rotated in everything that writes or reads it; the gains of the "
        "norms stay.",
        "Each gain belongs to one coordinate, and a rotation mixes coordinates.",
        ("res",), ("res",), "rotations", PLANES, "gains left", holds=False,
    ),
    Preset(
        "rotation-folded", "Residual stream: rotated, the gains folded away before",
        "Every gain moves into the matrices behind its norm, a tied head is untied for this, and "
        "the residual stream is rotated.",
        "RMSNorm with equal gains sees the length only: the coordinates lose their identity.",
        ("res", "foldable"), ("res",), "rotations", PLANES, "folded",
    ),
    Preset(
        "experts", "Experts: order",
        "The experts exchange their places, and the router's rows with them.",
        "The router scores each expert by its own row, and the chosen ones are added up.",
        ("exp",), ("exp",), "order",
    ),
    Preset(
        "experts-router-left", "Experts: order, the router left behind",
        "The experts exchange their places, and the router's rows stay.",
        "Tokens are sent to experts that were not made for them.",
        ("exp",), ("exp",), "order", claim="router left", holds=False,
    ),
    Preset(
        "tokens", "Tokens: order of the dictionary",
        "The rows of embedding and unembedding are exchanged, and the text keeps its ids.",
        "A token's number has a meaning outside the model.",
        ("tok",), ("tok",), "order", claim="allow", holds=False,
    ),
    Preset(
        "positions", "Positions: order of the text",
        "The tokens of the text exchange their places, and each is read at its new place; no "
        "tensor moves.",
        "What a model says about a token depends on where it stands.",
        ("tok",), ("position",), "order", claim="text", holds=False,
    ),
    Preset(
        "position-rows", "Positions: order of the learned rows",
        "The rows of the position embedding are exchanged, and the input stays in order.",
        "A position has a meaning outside the model.",
        ("position rows",), ("pos",), "order", claim="allow", holds=False,
    ),
    Preset(
        "layers", "Layers: order",
        "Layers exchange their places.",
        "A layer works on what the one before it gave: a composition, not a sum.",
        ("layers",), ("depth",), "order", claim="depth", holds=False,
    ),
    Preset(
        "prune", "No symmetry: a neuron is cut off",
        "What one neuron writes to the residual stream is multiplied by 0.",
        "The difference is what this neuron had to say about this text.",
        ("ffn",), _FFN, "cut", ("cut",), "way out", holds=False, symmetry=False,
    ),
    Preset(
        "average", "No symmetry: two neurons are averaged",
        "Two neurons both become their mean, on the way in and on the way out.",
        "The mean of two neurons is none of them, and twice the mean is not their sum.",
        ("ffn",), _FFN, "mean", ("mean",), "written", holds=False, symmetry=False,
    ),
    Preset(
        "experts-average", "No symmetry: two experts are averaged",
        "Two experts both become their mean, matrix by matrix; the router stays.",
        "Neurons of two experts are in no common order, so that their mean is neither.",
        ("exp",), ("exp",), "mean", ("mean",), "router left", holds=False, symmetry=False,
    ),
    Preset(
        "own", "Any coordinate, by its own group",
        "A coordinate of the model's table is changed by an element of its group.",
        "This is what the table says: no output shows it.",
        (), (), "", (), "",
    ),
)  # fmt: skip


def offered(card: ModelCard) -> tuple[Preset, ...]:
    """The presets that apply to a model, then one for each of its blind directions."""
    rows = tuple(preset for preset in PRESETS if has(card, preset.needs))
    return rows + tuple(blind_preset(blind) for blind in card.blind)


def blind_preset(blind: BlindCard) -> Preset:
    """A random step along a blind direction."""
    tensors = len({carrier.tensor for carrier in blind.carriers})
    does = f"A random step along this direction, in {tensors} kind{'s' * (tensors > 1)} of tensor."
    return Preset(
        f"blind-{blind.name}",
        f"Blind direction: {blind.title}",
        does,
        blind.why,
        (),
        (blind.name,),
        draws=("random",),
        claim="blind",
        approximate=blind.approximate,
    )
