"""Related or not: two independent ways to match neurons, which agree only in a common lineage.

After Zhu et al. 2025 (independence tests for language models): neurons are matched once by the
gate's rows and once by those of up, both in A's residual coordinates. The labels of B's neurons
mean nothing, so that for unrelated models both matchings are independent, and Spearman's
correlation of the two lists is that of two random orders.
"""

import math
import time
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata
from scipy.stats import t as student
from torch import Tensor

from engine import network, shared, texts
from engine.activations import Correlation, residual_stream
from engine.agreement import differences
from engine.alignment.comparison import check_tokens, classes
from engine.alignment.neurons import Views, views
from engine.alignment.one_pass import residual, start_from_embedding
from engine.assignment import solve
from engine.checkpoint import Checkpoint
from engine.elements import Ordered
from engine.errors import Progress, Refused, part, silent
from engine.questions import Related
from engine.records import TOLERANCE, LineageTest, Relatedness
from engine.records.lineage import LIMIT, Coordinates, Verdict
from engine.running import Headless, logits

TRIED = 3
"""Alignments of the residual coordinates on offer: each is one test, whether it is run or not."""
SAMPLE = 256
"""Neurons of each layer of A by which layers are told apart, where depths differ."""
BATCH = 16


def relate(
    a: Checkpoint, b: Checkpoint, asked: Related, progress: Progress = silent
) -> Relatedness:
    """The verdict on a pair: tests of lineage with a control, equality of tensors and of logits.

    The streams of both models are compared only where the embeddings do not settle it. Errors:
    Refused for models of two architectures or widths.
    """
    require_one_stream(a, b)
    b = b.spelled_like(a)
    began = time.perf_counter()
    tests, seen = [], []
    for number, (word, element) in enumerate(alignments(a, b, asked)):
        told = part(progress, 0.25 * number, 0.25 * number + 0.2)
        found, layers, likeness = lineage(a, b, word, element, told)
        tests.append(found)
        seen.append((layers, likeness))
        if word == "embedding" and found.log10_p < LIMIT - 2 and not asked.thorough:
            break
    control, _, _ = lineage(a, b, "random", at_random(a, seed=0), silent)
    best = min(range(len(tests)), key=lambda k: tests[k].log10_p)
    places = math.comb(max(a.layers, b.layers), min(a.layers, b.layers))
    log10_p = min(0.0, tests[best].log10_p + math.log10(TRIED * places))
    progress(0.9, "comparing the logits")
    furthest = apart(a, b)
    between, scale, what = outputs(a, b, asked)
    layers, likeness = seen[best]
    valid = control.log10_p > LIMIT
    return Relatedness(
        a=a.name,
        b=b.name,
        fingerprints=(a.fingerprint, b.fingerprint),
        verdict=verdict(furthest, between, scale, related=valid and log10_p < LIMIT),
        log10_p=log10_p,
        tests=(*tests, control),
        neurons=(views(a, 0).first.shape[1], views(b, 0).first.shape[1]),
        depths=(a.layers, b.layers),
        layers=layers,
        likeness=likeness,
        furthest=furthest,
        logits_between=between,
        logits_scale=scale,
        checked_on=what,
        device=str(network.device(asked.device)),
        dtype=asked.dtype,
        seconds=time.perf_counter() - began,
    )


def require_one_stream(a: Checkpoint, b: Checkpoint) -> None:
    """Refused unless both have one table and one width of the residual stream."""
    if a.family != b.family:
        kinds = [str(c.config["model_type"]) for c in (a, b)]
        raise Refused(
            f"Whether {a.name} and {b.name} are related cannot be tested: neurons are compared "
            f"within one architecture only, and they are {kinds[0]} and {kinds[1]}."
        )
    width = [c.family.sizes(c.config)["res"] for c in (a, b)]
    if width[0] != width[1]:
        raise Refused(
            f"Whether {a.name} and {b.name} are related cannot be tested: neurons are compared "
            f"within one width of the residual stream only, and theirs have {width[0]} and "
            f"{width[1]} coordinates."
        )


def verdict(
    furthest: float | None, between: float | None, scale: float | None, *, related: bool
) -> Verdict:
    """The strongest of the four that the numbers allow."""
    if furthest is not None and furthest <= TOLERANCE:
        return "same weights"
    if between is not None and scale and between / scale <= TOLERANCE:
        return "same function in other coordinates"
    return "same lineage" if related else "unrelated"


def alignments(
    a: Checkpoint, b: Checkpoint, asked: Related
) -> Iterator[tuple[Coordinates, Ordered | None]]:
    """Residual alignments, the cheapest first; activations only where a text can be read.

    Errors: Refused for a text or for inputs that the user named and that cannot be read.
    """
    yield "as they stand", None
    yield "embedding", residual(a.family, start_from_embedding(a, b))[0]
    try:
        given, _ = shared.given(a, b, asked.text, asked.tokens)
    except Refused:
        if shared.named(asked.text):
            raise
        return
    yield "activations", residual(a.family, ends(a, b, asked, given))[0]


def ends(a: Checkpoint, b: Checkpoint, asked: Related, ids: np.ndarray) -> Float[np.ndarray, "d d"]:
    """C of the first and the last stream together, so that depths may differ."""
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    models = [network.load(c, where, kind) for c in (a, b)]
    found = [Correlation(), Correlation()]
    for start in range(0, len(ids), BATCH):
        rows = torch.from_numpy(ids[start : start + BATCH]).to(where)
        x, y = (residual_stream(m, a.family, rows, texts.special(a)) for m in models)
        for one, depth in zip(found, (0, -1), strict=True):
            one.add(x[depth], y[depth])
    return torch.stack([one.result() for one in found]).mean(0).numpy()


def at_random(a: Checkpoint, seed: int) -> Ordered:
    """A random element of the residual group: the control."""
    size = a.family.sizes(a.config)["res"]
    draw = torch.Generator().manual_seed(seed)
    element = a.family.coordinates["res"].group.sample(size, (), draw)
    assert isinstance(element, Ordered)
    return element


def lineage(
    a: Checkpoint,
    b: Checkpoint,
    word: Coordinates,
    element: Ordered | None,
    progress: Progress = silent,
) -> tuple[LineageTest, Int[np.ndarray, " layers"], Float[np.ndarray, "la lb"] | None]:
    """The test with B's residual coordinates moved by `element`; which layers were compared."""
    layers, likeness = np.arange(a.layers), None
    if a.layers != b.layers:
        likeness = layer_likeness(a, b, element)
        layers = placed(likeness if a.layers >= b.layers else likeness.T)
    rho, agreeing, logs = [], [], []
    for k, layer in enumerate(layers):
        progress(k / len(layers), f"matching neurons, {word}: layer {k} of {len(layers)}")
        i, j = (int(layer), k) if a.layers >= b.layers else (k, int(layer))
        first, second = matchings(views(a, i), views(b, j).moved(element))
        rho.append(spearman(first, second))
        agreeing.append(float((first == second).mean()))
        logs.append(log_p(rho[-1], len(first)))
    test = LineageTest(
        word, fisher(logs), np.array(rho, np.float32), np.array(agreeing, np.float32)
    )
    return test, layers.astype(np.int64), likeness


def matchings(a: Views, b: Views) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """B's neuron for each of A's, by the first and by the second description, by |cos|.

    Where widths differ, each neuron of the narrower layer gets one of the wider.
    """
    scores = [(x.mT @ y).abs().numpy() for x, y in ((a.first, b.first), (a.second, b.second))]
    if scores[0].shape[0] > scores[0].shape[1]:
        scores = [score.T for score in scores]
    if scores[0].shape[0] == scores[0].shape[1]:
        return solve(scores[0])[0], solve(scores[1])[0]
    one, other = (linear_sum_assignment(score, maximize=True)[1] for score in scores)
    return one, other


def spearman(x: Int[np.ndarray, " n"], y: Int[np.ndarray, " n"]) -> float:
    """Spearman's rank correlation of two lists without ties; 0 for a single neuron."""
    if len(x) < 3:
        return 0.0
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def log_p(rho: float, n: int) -> float:
    """log p of a correlation at least this large by chance: Student's t, and 1/n! at least."""
    least = -math.lgamma(n + 1)
    if n < 3 or rho >= 1 - 1e-12:
        return least if n >= 3 else 0.0
    tail = float(student.sf(rho * math.sqrt((n - 2) / (1 - rho * rho)), n - 2))
    return max(math.log(tail), least) if tail > 0 else least


def fisher(logs: list[float]) -> float:
    """log₁₀ p of independent tests together: x = −Σ log p, p = e^{−x} Σ_{i<k} xⁱ / i!."""
    x = -sum(logs)
    if x <= 0:
        return 0.0
    terms = [i * math.log(x) - math.lgamma(i + 1) for i in range(len(logs))]
    return min(0.0, float(np.logaddexp.reduce(terms) - x) / math.log(10))


def layer_likeness(
    a: Checkpoint, b: Checkpoint, element: Ordered | None
) -> Float[np.ndarray, "la lb"]:
    """Share of a layer's neurons whose nearest in the other layer is one by both descriptions.

    A sample of each layer of A is held, and one layer of B at a time. By chance: 1 / neurons.
    """
    samples = [_sample(views(a, layer)) for layer in range(a.layers)]
    found = np.zeros((a.layers, b.layers), np.float32)
    for j in range(b.layers):
        other = views(b, j).moved(element)
        found[:, j] = [_alike(one, other) for one in samples]
    return found


def _sample(found: Views) -> Views:
    step = max(1, found.first.shape[1] // SAMPLE)
    return Views(found.first[:, ::step], found.second[:, ::step])


def _alike(x: Views, y: Views) -> float:
    nearest = [(p.mT @ q).abs().argmax(1) for p, q in ((x.first, y.first), (x.second, y.second))]
    return float((nearest[0] == nearest[1]).double().mean())


def placed(score: Float[np.ndarray, "deep shallow"]) -> Int[np.ndarray, " shallow"]:
    """The increasing layers of the deeper model with the largest sum of scores.

    best[i, j] = max(best[i − 1, j], best[i − 1, j − 1] + score[i, j]).
    """
    deep, shallow = score.shape
    best = np.full((deep + 1, shallow + 1), -np.inf)
    best[:, 0] = 0
    for i in range(1, deep + 1):
        taken = best[i - 1, :-1] + score[i - 1]
        best[i, 1:] = np.maximum(best[i - 1, 1:], taken)
    found, i = [], deep
    for j in range(shallow, 0, -1):
        while best[i - 1, j] >= best[i, j]:
            i -= 1
        i -= 1
        found.append(i)
    return np.array(found[::-1], np.int64)


def apart(a: Checkpoint, b: Checkpoint) -> float | None:
    """The largest relative distance of any tensor as the files stand; None for other shapes."""
    if {n: h.shape for n, h in a.headers.items()} != {n: h.shape for n, h in b.headers.items()}:
        return None
    return max(_relative(a.read(name), b.read(name)) for name in a.headers)


def _relative(x: Tensor, y: Tensor) -> float:
    gap, own = ((z.double().square().sum()).sqrt() for z in (x.double() - y.double(), x))
    return float(gap / own.clamp(min=1e-300))


def outputs(a: Checkpoint, b: Checkpoint, asked: Related) -> tuple[float | None, float | None, str]:
    """max |logits A − logits B| and max |logits A|, on which tokens; None where no group is one."""
    if list(differences(a.family, a.config, b.family, b.config)):
        return None, None, "nothing: the models have different shapes"
    where, kind = network.device(asked.device), network.dtype(asked.dtype)
    given = check_tokens(a, b, asked.text)
    known = min(map(classes, (a, b)))
    try:
        x, y = (logits(network.load(c, where, kind), given.inputs)[..., :known] for c in (a, b))
    except Headless:
        return None, None, "nothing: the models have no head"
    return float((x - y).abs().max()), float(x.abs().max()), given.what
