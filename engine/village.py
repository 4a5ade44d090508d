"""Village stories: people in places, objects that change hands, and questions about both.

A story is a walk over frozen scenes; every sentence is one step of it, so the right answer to a
question is read off the scene and never guessed from the text.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

WOMEN = ("anna", "clara", "ella", "grace", "ida", "kate", "mary", "nora", "rosa", "vera")
MEN = ("ben", "david", "fred", "henry", "jack", "leo", "oscar", "paul", "sam", "tom")
PEOPLE = WOMEN + MEN
PLACES = (
    "garden", "kitchen", "market", "school", "forest", "harbour", "library", "mill", "church",
    "stable", "cellar", "bakery", "tower", "meadow",
)  # fmt: skip
OBJECTS = (
    "lamp", "key", "book", "cup", "rope", "coin", "drum", "knife", "map", "bell", "basket",
    "letter", "shovel", "ring", "candle", "mirror", "hammer", "violin",
)  # fmt: skip
WORDS = (
    "is", "in", "the", "has", "goes", "to", "gives", "sends", "takes", "borrows", "from", "now",
    "who", "where", ".", "?",
)  # fmt: skip

Kind = Literal["who", "where"]


@dataclass(frozen=True)
class Scene:
    """Where each person is and who holds each object."""

    places: Mapping[str, str]
    holders: Mapping[str, str]
    ground: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A prompt whose next word is `answer`, one of the `candidates` that the prompt mentions."""

    kind: Kind
    prompt: str
    answer: str
    candidates: tuple[str, ...]


Step = tuple[str, Scene]


def scene(rng: Random) -> Scene:
    """A village of 2-4 people over 2-4 places, with 1-3 objects in their hands."""
    people = rng.sample(PEOPLE, rng.randint(2, 4))
    ground = tuple(rng.sample(PLACES, rng.randint(2, 4)))
    objects = rng.sample(OBJECTS, rng.randint(1, 3))
    places = {person: rng.choice(ground) for person in people}
    return Scene(places, {thing: rng.choice(people) for thing in objects}, ground)


def opening(start: Scene, rng: Random) -> list[str]:
    """One sentence for each fact of the scene, in random order."""
    facts = [_is_in(person, place) for person, place in start.places.items()]
    facts += [_has(person, thing) for thing, person in start.holders.items()]
    return rng.sample(facts, len(facts))


def _is_in(person: str, place: str) -> str:
    return f"{person} is in the {place} ."


def _has(person: str, thing: str) -> str:
    return f"{person} has the {thing} ."


def _other(rng: Random, options: tuple[str, ...], excluded: str) -> str:
    return rng.choice([option for option in options if option != excluded])


def move(now: Scene, rng: Random) -> Step:
    """Somebody goes to another place."""
    person = rng.choice(tuple(now.places))
    place = _other(rng, now.ground, now.places[person])
    after = replace(now, places={**now.places, person: place})
    return f"{person} goes to the {place} .", after


def give(now: Scene, rng: Random) -> Step:
    """A holder gives an object away: `gives` within one place, `sends` across places."""
    thing = rng.choice(tuple(now.holders))
    holder = now.holders[thing]
    person = _other(rng, tuple(now.places), holder)
    verb = "gives" if now.places[holder] == now.places[person] else "sends"
    after = replace(now, holders={**now.holders, thing: person})
    return f"{holder} {verb} the {thing} to {person} .", after


def take(now: Scene, rng: Random) -> Step:
    """Somebody gets an object: `takes` within one place, `borrows` across places."""
    thing = rng.choice(tuple(now.holders))
    holder = now.holders[thing]
    person = _other(rng, tuple(now.places), holder)
    verb = "takes" if now.places[holder] == now.places[person] else "borrows"
    after = replace(now, holders={**now.holders, thing: person})
    return f"{person} {verb} the {thing} from {holder} .", after


EVENTS: tuple[Callable[[Scene, Random], Step], ...] = (move, move, move, take, take, give)


def restate(before: Scene, after: Scene) -> str:
    """The one fact that an event changed, said plainly."""
    for person, place in after.places.items():
        if before.places[person] != place:
            return "now " + _is_in(person, place)
    changed = [thing for thing in after.holders if before.holders[thing] != after.holders[thing]]
    return "now " + _has(after.holders[changed[0]], changed[0])


def ask(now: Scene, kind: Kind, rng: Random) -> tuple[str, str]:
    """A question up to its answer, and the answer."""
    if kind == "who":
        thing = rng.choice(tuple(now.holders))
        return f"who has the {thing} ?", now.holders[thing]
    person = rng.choice(tuple(now.places))
    return f"where is {person} ? in the", now.places[person]


def _walk(start: Scene, length: int, rng: Random) -> Iterator[tuple[list[str], Scene]]:
    """`length` events, each with its sentences and the scene after it."""
    now = start
    for _ in range(length):
        sentence, after = rng.choice(EVENTS)(now, rng)
        said = [sentence] + ([restate(now, after)] if rng.random() < 0.4 else [])
        now = after
        yield said, now


def story(rng: Random) -> str:
    """An opening, then events with answered questions strewn among them."""
    start = scene(rng)
    sentences = opening(start, rng) + _answered(start, rng)
    for said, now in _walk(start, rng.randint(1, 4), rng):
        sentences += said + _answered(now, rng)
    return " ".join(sentences)


def _answered(now: Scene, rng: Random) -> list[str]:
    """A few questions about the scene with their answers, often none."""
    asked = list[str]()
    while rng.random() < 0.6:
        prompt, answer = ask(now, rng.choice(("who", "where")), rng)
        asked.append(f"{prompt} {answer} .")
    return asked


def question(kind: Kind, rng: Random) -> Question:
    """A fresh story without questions of its own that ends in one open question."""
    start = scene(rng)
    sentences, now = opening(start, rng), start
    for said, after in _walk(start, rng.randint(1, 4), rng):
        sentences, now = sentences + said, after
    prompt, answer = ask(now, kind, rng)
    text = " ".join([*sentences, prompt])
    pool = PEOPLE if kind == "who" else PLACES
    mentioned = dict.fromkeys(word for word in text.split() if word in pool)
    return Question(kind, text, answer, tuple(mentioned))
