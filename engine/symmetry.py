"""A gauge: one group element for each coordinate of a model; sampled, composed, inverted, stored.

`g · source = target`, and the file says which is which.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from engine.axes import Sizes
from engine.elements import Element
from engine.errors import Refused
from engine.family import Config, Family, family_of

CONVENTION = (
    "y_i = s_i x_{perm(i)}; permutations list old positions; an element over groups is indexed by "
    "the new group; rot: z = exp(log_scale + i angle), q -> z q, k -> k / conj(z), channel pairs "
    "as the family rotates them; val: V -> M V, O -> O M^-1 (qk likewise); scale multiplies where "
    "the coordinate is written and divides where it is read; exp: new expert i is old expert "
    "perm(i)"
)
WORDS: Mapping[str, tuple[str, ...]] = {"heads": ("grp", "head")}
"""Words of the command line that stand for several coordinates."""


@dataclass(frozen=True)
class Symmetry:
    """Elements by key (`res`, `layers.3.ffn`, …); a key that is absent means: leave it alone."""

    family: Family
    config: Config
    elements: Mapping[str, Element]
    source: str = ""  # fingerprint of the checkpoint that the gauge takes …
    target: str = ""  # … into this one
    names: tuple[str, str] = ("", "")

    @cached_property
    def sizes(self) -> Sizes:
        """Size of every coordinate."""
        return self.family.sizes(self.config)

    def compose(self, other: "Symmetry") -> "Symmetry":
        """self ∘ other: first other, then self.

        An element over an outer permutation is indexed by the new outer index, so that
        inner = inner₁ ∘ inner₂[π₁], as s = s₁ · s₂[π₁] for signs.
        """
        both = {
            key: self._inner(key, other).compose(self._carry(key, other))
            for key in {**self.elements, **other.elements}
        }
        names = (other.names[0], self.names[1])
        return Symmetry(self.family, self.config, both, other.source, self.target, names)

    def inverse(self) -> "Symmetry":
        """The gauge that takes the target back to the source."""
        back = {}
        for key, element in self.elements.items():
            order = self._outer(key)
            inverse = element.inverse()
            back[key] = inverse if order is None else inverse.take(order.argsort())
        return Symmetry(
            self.family, self.config, back, self.target, self.source, (self.names[1], self.names[0])
        )

    def only(self, names: Collection[str]) -> "Symmetry":
        """The part that acts on the named coordinates."""
        kept = {k: e for k, e in self.elements.items() if k.rpartition(".")[2] in names}
        return Symmetry(self.family, self.config, kept, self.source, self.target, self.names)

    def _inner(self, key: str, other: "Symmetry") -> Element:
        found = self.elements.get(key)
        return found if found is not None else _identity(other.elements[key], self, key)

    def _carry(self, key: str, other: "Symmetry") -> Element:
        found = other.elements.get(key)
        found = found if found is not None else _identity(self.elements[key], other, key)
        order = self._outer(key)
        return found if order is None else found.take(order)

    def _outer(self, key: str) -> torch.Tensor | None:
        prefix, _, name = key.rpartition(".")
        over = self.family.coordinates[name].over
        outer = self.elements.get(f"{prefix}.{over[0]}") if over else None
        return None if outer is None else outer.numbers()["permutation"]

    @property
    def continuous(self) -> bool:
        """True where an element multiplies by more than a sign: the result is rounded."""
        return not all(element.exact for element in self.elements.values())

    def save(self, path: Path) -> None:
        """Flat keys (`layers.0.rot.angle` …), convention and fingerprints in the metadata."""
        tensors = {
            f"{key}.{name}": tensor.contiguous()
            for key, element in self.elements.items()
            for name, tensor in element.numbers().items()
        }
        metadata = {
            "format": "gaugescope symmetry 1",
            "convention": CONVENTION,
            "family": self.family.name,
            "source": self.source,
            "target": self.target,
            "names": json.dumps(self.names),
            "config": json.dumps(dict(self.config)),
        }
        save_file(tensors, str(path), metadata)


def _identity(like: Element, symmetry: Symmetry, key: str) -> Element:
    name = key.rpartition(".")[2]
    return symmetry.family.coordinates[name].group.identity(symmetry.sizes[name], like.batch)


def load(path: Path) -> Symmetry:
    """Read a gauge that `Symmetry.save` wrote; Refused if the file is something else."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            numbers: dict[str, dict[str, torch.Tensor]] = {}
            for flat in file.keys():  # noqa: SIM118 (a safetensors handle is no mapping)
                key, _, name = flat.rpartition(".")
                numbers.setdefault(key, {})[name] = file.get_tensor(flat)
    except (OSError, SafetensorError) as error:
        raise Refused(f"{path} is not a readable safetensors file ({error}).") from error
    if metadata.get("format") != "gaugescope symmetry 1":
        raise Refused(
            f"{path}: declared format {metadata.get('format')!r}, expected "
            "'gaugescope symmetry 1'; write it with `scramble` or `align`."
        )
    config = json.loads(metadata["config"])
    family = family_of(config)
    known = {key: family.coordinates[name].group for key, name, _ in family.keys(config)}
    if unknown := sorted(numbers.keys() - known.keys()):
        raise Refused(
            f"{path}: the {family.name} family has no element {unknown[0]!r}; "
            "the file is damaged or of a newer version, write it again."
        )
    elements = {key: known[key].restore(found) for key, found in numbers.items()}
    first, second = json.loads(metadata["names"])
    return Symmetry(
        family, config, elements, metadata["source"], metadata["target"], (first, second)
    )


def sample(
    family: Family,
    config: Config,
    generator: torch.Generator,
    only: Collection[str] = (),
    layers: Collection[int] | None = None,
) -> Symmetry:
    """A random gauge of every coordinate (or of those named, `heads` standing for both)."""
    names = words(family, only)
    sizes = family.sizes(config)
    elements = {
        key: family.coordinates[name].group.sample(
            sizes[name], family.batch(name, sizes), generator
        )
        for key, name, layer in family.keys(config)
        if name in names and (layers is None or layer is None or layer in layers)
    }
    return Symmetry(family, config, elements)


def words(family: Family, only: Collection[str]) -> frozenset[str]:
    """The coordinates that `--only` names; all of them for an empty list. Refused for others."""
    free = frozenset(family.free)
    if not only:
        return free
    chosen = {
        name for word in only for name in WORDS.get(word, (word,)) if word == name or name in free
    }
    if unknown := sorted(chosen - free):
        raise Refused(
            f"--only names {', '.join(unknown)}; the {family.name} family has "
            f"{', '.join(sorted(free))} (and heads for grp, with head where there is one)."
        )
    return frozenset(chosen)
