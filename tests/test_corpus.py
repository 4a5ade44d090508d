"""Laws of the text generator: repeatable, inside its vocabulary, and never wrong."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice

import numpy as np
import pytest

from engine import corpus, drills, village
from engine.corpus import GENRES, MIXES, documents, questions, vocabulary, windows

DEMO = corpus.TEXT.parent / "demo" / "base"
NUMBER = {word: value for value, word in enumerate(drills.NUMBERS)}
NAMES = "|".join(village.PEOPLE)
IS_IN = re.compile(rf"(?:now )?({NAMES}) (?:is in|goes to) the (\w+)")
HAS = re.compile(rf"(?:now )?({NAMES}) has the (\w+)")
GIVES = re.compile(rf"({NAMES}) (gives|sends) the (\w+) to ({NAMES})")
TAKES = re.compile(rf"({NAMES}) (takes|borrows) the (\w+) from ({NAMES})")
WHO = re.compile(r"who has the (\w+) \? ?(\w*)")
WHERE = re.compile(r"where is (\w+) \? in the ?(\w*)")


def sample(genre: str, count: int = 100, seed: int = 5) -> Iterable[str]:
    return islice(documents(seed, {genre: 1.0}), count)


def sentences(text: str) -> list[str]:
    return [part.strip() for part in re.split(r" \.(?: |$)", text) if part.strip()]


class Village:
    """An independent reading of a story: facts are taken from its sentences alone."""

    def __init__(self) -> None:
        self.place: dict[str, str] = {}
        self.holder: dict[str, str] = {}

    def hand_over(self, verb: str, thing: str, giver: str, taker: str) -> None:
        assert self.holder.get(thing) == giver
        together = self.place[giver] == self.place[taker]
        assert verb in (("gives", "takes") if together else ("sends", "borrows"))
        self.holder[thing] = taker

    def read(self, sentence: str) -> None:
        if found := IS_IN.fullmatch(sentence):
            person, place = found.groups()
            if sentence.startswith("now"):
                assert self.place[person] == place
            if "goes" in sentence:
                assert self.place[person] != place
            self.place[person] = place
        elif found := HAS.fullmatch(sentence):
            person, thing = found.groups()
            if sentence.startswith("now"):
                assert self.holder[thing] == person
            self.holder[thing] = person
        elif found := GIVES.fullmatch(sentence):
            giver, verb, thing, taker = found.groups()
            self.hand_over(verb, thing, giver, taker)
        elif found := TAKES.fullmatch(sentence):
            taker, verb, thing, giver = found.groups()
            self.hand_over(verb, thing, giver, taker)
        else:
            raise AssertionError(sentence)

    def answer(self, asked: str) -> str:
        if found := WHO.fullmatch(asked):
            return self.holder[found[1]]
        found = WHERE.fullmatch(asked)
        assert found
        return self.place[found[1]]


def test_the_same_seed_gives_the_same_text() -> None:
    assert list(islice(documents(3), 50)) == list(islice(documents(3), 50))
    assert list(questions(3, 20)) == list(questions(3, 20))


def test_other_seeds_give_other_text() -> None:
    first, second = set(islice(documents(3), 200)), set(islice(documents(4), 200))
    assert not first & second
    prompts = [{asked.prompt for asked in questions(seed, 100)} for seed in (3, 4)]
    assert not prompts[0] & prompts[1]


def test_the_global_generator_is_left_alone() -> None:
    import random

    before = random.getstate()
    list(islice(documents(3), 50))
    assert random.getstate() == before


@pytest.mark.parametrize("genre", GENRES)
def test_every_word_is_in_the_vocabulary(genre: str) -> None:
    words = {word for text in sample(genre, 300) for word in text.split(" ")}
    assert words <= set(vocabulary()[2:])


def test_the_vocabulary_is_small_distinct_and_all_used() -> None:
    words = vocabulary()
    assert len(set(words)) == len(words)
    assert 200 <= len(words) <= 400
    written = {word for text in islice(documents(0), 6000) for word in text.split()}
    assert written == set(words[2:])


def test_the_vocabulary_is_that_of_the_demo_models_in_its_order() -> None:
    held = json.loads((DEMO / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert sorted(held, key=held.__getitem__) == list(vocabulary())


FIRST = {
    "story": "oscar is in the tower . sam is in the tower . leo is in the church . jack is",
    "sums": "sixteen minus nine is seven . seven plus ten is seventeen . eight plus two plus",
    "brackets": "{ { { ( ( ) ) { } } } [ [ ] ] } ; { ( ) { } } [ ] ; ( ) [ ] ; { { } { } } ( ( [",
    "rhymes": "a yellow duck dreams of chair , we follow the crow behind the bear . the rabbit",
    "agreement": "fred finds his gloves because he likes them . the foxes beside the dogs rest in",
    "counting": "six dogs : dog dog dog dog dog dog . count from five to seventeen : five six",
    "mirrors": "say : rabbit mule goat yellow lamb yellow red . back : red yellow lamb yellow",
    "trading": "paul has nine buttons . paul has eight onions . paul buys two onions . paul",
}
DIGESTS = {
    "story": "f8100f3d06cdb8eb", "sums": "0c76513ba9c88a9b", "brackets": "d511307010d5e718",
    "rhymes": "e7b316e31e04848c", "agreement": "59d9ca365fbda1a5",
    "counting": "a50f607eff5171bd", "mirrors": "55bff4bee171c163", "trading": "b0cd9e0ea52e874b",
}  # fmt: skip


@pytest.mark.parametrize("genre", GENRES)
def test_the_text_that_demo_models_learnt_stays_as_it_was_written(genre: str) -> None:
    texts = list(sample(genre, 50))
    assert texts[0].startswith(FIRST[genre])
    assert hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] == DIGESTS[genre]


@pytest.mark.parametrize("mix", MIXES)
def test_mixes_are_shares_of_known_genres(mix: str) -> None:
    assert set(MIXES[mix]) <= set(GENRES)
    assert sum(MIXES[mix].values()) == pytest.approx(1)


def test_an_unknown_genre_is_refused() -> None:
    with pytest.raises(ValueError, match=r"genres: story, .* exist, found opera: rename or drop"):
        documents(0, {"opera": 1.0})


def test_answers_inside_stories_are_right() -> None:
    asked = 0
    for text in sample("story", 300):
        village_now = Village()
        for part in sentences(text):
            if part.startswith("wh"):
                question, answer = part.rsplit(" ", 1)
                assert village_now.answer(question) == answer
                asked += 1
            else:
                village_now.read(part)
    assert asked > 300


@pytest.mark.parametrize("kind", ["who", "where"])
def test_held_out_questions_are_right(kind: str) -> None:
    for question in (asked for asked in questions(9, 400) if asked.kind == kind):
        village_now = Village()
        *told, prompt = sentences(question.prompt)
        for part in told:
            village_now.read(part)
        assert village_now.answer(prompt) == question.answer


def test_candidates_are_the_names_mentioned() -> None:
    for question in questions(9, 300):
        pool = village.PEOPLE if question.kind == "who" else village.PLACES
        assert set(question.candidates) == set(question.prompt.split()) & set(pool)
        assert question.answer in question.candidates
        assert len(question.prompt.split()) < 128


def test_the_last_answer_is_not_simply_the_last_name() -> None:
    asked = list(questions(9, 400))
    last = [
        [word for word in question.prompt.split() if word in question.candidates][-1]
        for question in asked
    ]
    share = np.mean([name == question.answer for name, question in zip(last, asked, strict=True)])
    assert share < 0.6


def test_sums_are_right() -> None:
    for text in sample("sums"):
        for part in sentences(text):
            left, right = part.split(" is ")
            terms = " + ".join(left.split(" plus ")).replace(" minus ", " - ").split()
            value = NUMBER[terms[0]]
            for sign, word in zip(terms[1::2], terms[2::2], strict=True):
                value += NUMBER[word] if sign == "+" else -NUMBER[word]
            assert value == NUMBER[right]


def test_brackets_balance() -> None:
    for text in sample("brackets"):
        for word in text.split(" ;"):
            stack: list[str] = []
            for sign in word.split():
                if sign in drills.BRACKETS:
                    stack.append(drills.BRACKETS[sign])
                else:
                    assert stack.pop() == sign
            assert not stack


def test_couplets_rhyme() -> None:
    for text in sample("rhymes"):
        ends = [line.split()[-1] for line in re.split(r" [,.]", text) if line.strip()]
        for first, second in zip(ends[::2], ends[1::2], strict=True):
            assert first != second
            assert any({first, second} <= set(group) for group in drills.RHYMES)


def test_verbs_and_pronouns_agree() -> None:
    for text in sample("agreement"):
        for part in sentences(text):
            words = part.split()
            if words[0] == "the":
                singular = words[1] in drills.ANIMALS
                assert words[5].endswith("s") == singular
            else:
                woman = words[0] in village.WOMEN
                assert (words[2], words[5]) == (("her", "she") if woman else ("his", "he"))
                assert words[-1] == ("them" if words[3].endswith("s") else "it")


def test_counting_counts() -> None:
    for text in sample("counting"):
        for part in sentences(text):
            told, listed = (side.split() for side in part.split(" : "))
            if told[0] == "count":
                first, last = NUMBER[told[2]], NUMBER[told[4]]
                assert [NUMBER[listed[0]], NUMBER[listed[-1]]] == [first, last]
                steps = np.diff([NUMBER[word] for word in listed])
                assert np.all(steps == np.sign(last - first))
            else:
                assert len(listed) == NUMBER[told[0]]
                assert told[1] == (listed[0] if len(listed) == 1 else drills.plural(listed[0]))


def test_mirrors_run_backwards() -> None:
    for text in sample("mirrors"):
        said = [part.split(" : ")[1].split() for part in sentences(text)]
        for forward, backward in zip(said[::2], said[1::2], strict=True):
            assert forward == backward[::-1]


def test_trading_keeps_the_books() -> None:
    singular = {drills.plural(good): good for good in drills.GOODS}
    for text in sample("trading"):
        stock: dict[str, int] = {}
        for part in sentences(text):
            words = part.split()
            if words[0] == "how":
                assert stock[singular[words[2]]] == NUMBER[words[-1]]
                continue
            amount, good = NUMBER[words[2]], singular.get(words[3], words[3])
            assert (words[3] in drills.GOODS) == (amount == 1)
            change = {"has": amount, "buys": amount, "sells": -amount}[words[1]]
            stock[good] = stock.get(good, 0) + change
            assert stock[good] >= 0


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_windows_cut_the_joined_texts() -> None:
    cut = windows(letters, ["abc", "de", "fgh"], 2, 3, separator=[0])
    assert cut.dtype == np.int64
    assert cut.tolist() == [[0, *letters("ab")], [ord("c"), 0, ord("d")]]


def test_windows_read_no_more_than_they_need() -> None:
    assert windows(letters, documents(1), 3, 100).shape == (3, 100)


def test_windows_refuse_a_text_that_is_too_short() -> None:
    expected = r"text: 2 windows of 4 tokens need 8 tokens, found 5: give a longer text, or ask"
    with pytest.raises(ValueError, match=expected) as refusal:
        windows(letters, ["abc", "de"], 2, 4)
    assert "\n" not in str(refusal.value)


def test_bundled_text_is_found_from_the_file_itself(tmp_path, monkeypatch) -> None:
    (tmp_path / "evaluation.txt").write_text("On dit : déjà vu.", encoding="utf-8")
    monkeypatch.setattr(corpus, "TEXT", tmp_path)
    assert corpus.bundled("evaluation") == "On dit : déjà vu."


def test_the_generator_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, engine.corpus;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    root = corpus.TEXT.parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_natural_text_is_long_enough_for_long_runs() -> None:
    first, *rest = corpus.natural()
    assert first == corpus.bundled("calibration")
    assert sum(len(text.split()) for text in rest) > 50_000
