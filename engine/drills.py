"""Short drills: sums, nested brackets, rhymes, agreement, counting, mirrored lists, trading.

Each genre is a function of a random generator that returns one document, words separated by
single spaces. Words come from the tables below, so that the vocabulary is known beforehand.
"""

from random import Random

from engine.village import MEN, PEOPLE, PLACES, WOMEN

NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen", "twenty",
)  # fmt: skip
BRACKETS = {"(": ")", "[": "]", "{": "}"}
COLOURS = ("red", "blue", "green", "white", "black", "yellow", "brown", "grey")
ANIMALS = ("fox", "horse", "duck", "goat", "bird", "dog", "mule", "crow", "rabbit", "lamb")
GOODS = ("apple", "egg", "plum", "nail", "pear", "brick", "onion", "button")
VERBS = ("run", "sleep", "wait", "sing", "jump", "eat", "hide", "rest")
NEAR = ("near", "behind", "beside", "with")
CARE = ("washes", "finds", "loses", "paints", "sells", "hides")
KEPT = ("hat", "coat", "boots", "shirt", "gloves", "scarf")
RHYMES = (
    ("night", "light", "bright", "sight"),
    ("day", "way", "hay", "clay"),
    ("tree", "sea", "bee", "free"),
    ("moon", "spoon", "tune", "soon"),
    ("stone", "bone", "alone", "thrown"),
    ("rain", "lane", "grain", "plain"),
    ("snow", "slow", "low", "glow"),
    ("air", "chair", "bear", "stair"),
    ("ground", "sound", "round", "found"),
    ("door", "floor", "shore", "more"),
    ("wing", "spring", "king", "string"),
    ("old", "gold", "cold", "told"),
)
LINES = (
    "a {colour} {animal} dreams of {rhyme} ,",
    "my {colour} {animal} knows the {rhyme} ,",
    "we follow the {animal} {near} the {rhyme} ,",
    "the {animal} and the {colour} {other} say {rhyme} ,",
)
WORDS = (
    "plus", "minus", "is", "and", "the", "a", "my", "we", "dreams", "of", "knows", "follow", "say",
    "her", "his", "because", "she", "he", "likes", "it", "them", "count", "to", "from", "back",
    "has", "buys", "how", "many", "does", "have", "in", ".", ",", "?", ":", ";",
)  # fmt: skip


def plural(noun: str) -> str:
    """The plural of an animal or a good."""
    return noun + ("es" if noun.endswith("x") else "s")


def third(verb: str) -> str:
    """The third person singular of a verb."""
    return verb + "s"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the singular after one only."""
    return f"{NUMBERS[number]} {noun if number == 1 else plural(noun)}"


def _sum(rng: Random) -> str:
    first, second = rng.randint(0, 10), rng.randint(0, 10)
    form = rng.random()
    if form < 0.45:
        return f"{NUMBERS[first]} plus {NUMBERS[second]} is {NUMBERS[first + second]} ."
    if form < 0.8:
        return f"{NUMBERS[first + second]} minus {NUMBERS[second]} is {NUMBERS[first]} ."
    third_term = rng.randint(0, 20 - first - second)
    total = NUMBERS[first + second + third_term]
    return f"{NUMBERS[first]} plus {NUMBERS[second]} plus {NUMBERS[third_term]} is {total} ."


def sums(rng: Random) -> str:
    """Additions and subtractions between zero and twenty."""
    return " ".join(_sum(rng) for _ in range(rng.randint(6, 12)))


def _nested(rng: Random, pairs: int) -> list[str]:
    """A random balanced word of `pairs` bracket pairs."""
    if pairs == 0:
        return []
    inner = rng.randint(0, pairs - 1)
    opener = rng.choice(tuple(BRACKETS))
    inside, after = _nested(rng, inner), _nested(rng, pairs - 1 - inner)
    return [opener, *inside, BRACKETS[opener], *after]


def brackets(rng: Random) -> str:
    """Balanced words over three kinds of brackets, each ended by a semicolon."""
    return " ".join(
        " ".join([*_nested(rng, rng.randint(2, 8)), ";"]) for _ in range(rng.randint(4, 8))
    )


def _line(rng: Random, rhyme: str) -> str:
    animal, other = rng.sample(ANIMALS, 2)
    return rng.choice(LINES).format(
        colour=rng.choice(COLOURS), animal=animal, other=other, near=rng.choice(NEAR), rhyme=rhyme
    )


def rhymes(rng: Random) -> str:
    """Couplets: the last words of both lines of a pair come from one rhyme."""
    lines = []
    for group in rng.sample(RHYMES, rng.randint(3, 5)):
        first, second = rng.sample(group, 2)
        lines += [_line(rng, first), _line(rng, second)[:-1] + "."]
    return " ".join(lines)


def _number_agreement(rng: Random) -> str:
    """The verb agrees with the first noun, not with the one beside it."""
    subject, beside = rng.sample(ANIMALS, 2)
    verb, many = rng.choice(VERBS), rng.random() < 0.5
    head = plural(subject) if many else subject
    distractor = plural(beside) if rng.random() < 0.5 else beside
    verb = verb if many else third(verb)
    return f"the {head} {rng.choice(NEAR)} the {distractor} {verb} in the {rng.choice(PLACES)} ."


def _gender_agreement(rng: Random) -> str:
    """Pronouns agree with the person, `it` or `them` with the thing."""
    woman = rng.random() < 0.5
    person = rng.choice(WOMEN if woman else MEN)
    own, who = ("her", "she") if woman else ("his", "he")
    thing = rng.choice(KEPT)
    them = "them" if thing.endswith("s") else "it"
    return f"{person} {rng.choice(CARE)} {own} {thing} because {who} likes {them} ."


def agreement(rng: Random) -> str:
    """Sentences whose verb, pronoun or object must agree with an earlier word."""
    forms = (_number_agreement, _gender_agreement)
    return " ".join(rng.choice(forms)(rng) for _ in range(rng.randint(6, 9)))


def _count(rng: Random) -> str:
    first, second = rng.randint(0, 20), rng.randint(0, 20)
    if rng.random() < 0.5:
        span = range(min(first, second), max(first, second) + 1)
        ordered = list(span) if first <= second else list(reversed(span))
        told = " ".join(NUMBERS[number] for number in ordered)
        return f"count from {NUMBERS[first]} to {NUMBERS[second]} : {told} ."
    times, animal = rng.randint(1, 7), rng.choice(ANIMALS)
    return f"{counted(times, animal)} : {' '.join([animal] * times)} ."


def counting(rng: Random) -> str:
    """Numbers up or down between two bounds, and a noun repeated as often as stated."""
    return " ".join(_count(rng) for _ in range(rng.randint(5, 8)))


def _mirror(rng: Random) -> str:
    listed = [rng.choice(COLOURS + ANIMALS) for _ in range(rng.randint(3, 7))]
    return f"say : {' '.join(listed)} . back : {' '.join(reversed(listed))} ."


def mirrors(rng: Random) -> str:
    """Lists, then the same lists backwards."""
    return " ".join(_mirror(rng) for _ in range(rng.randint(4, 7)))


def _trade(person: str, stock: dict[str, int], rng: Random) -> tuple[str, dict[str, int]]:
    good = rng.choice(tuple(stock))
    held = stock[good]
    if held == 0 or (held < 12 and rng.random() < 0.5):
        amount = rng.randint(1, 5)
        return f"{person} buys {counted(amount, good)} .", {**stock, good: held + amount}
    amount = rng.randint(1, min(held, 5))
    return f"{person} sells {counted(amount, good)} .", {**stock, good: held - amount}


def trading(rng: Random) -> str:
    """One person buys and sells goods; how many are left is asked and answered."""
    person = rng.choice(PEOPLE)
    stock = {good: rng.randint(0, 9) for good in rng.sample(GOODS, 2)}
    sentences = [f"{person} has {counted(held, good)} ." for good, held in stock.items()]
    for _ in range(rng.randint(6, 9)):
        sentence, stock = _trade(person, stock, rng)
        sentences.append(sentence)
        if rng.random() < 0.5:
            good = rng.choice(tuple(stock))
            asked = f"how many {plural(good)} does {person} have ?"
            sentences.append(f"{asked} {NUMBERS[stock[good]]} .")
    return " ".join(sentences)
