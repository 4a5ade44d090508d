"""Files of inputs: images and token ids with labels, what they change, what is refused."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import BertForSequenceClassification, PreTrainedModel, ViTForImageClassification

from engine import prepared, texts
from engine.alignment import relatedness
from engine.alignment.comparison import check_tokens
from engine.attention import trials
from engine.checkpoint import open_checkpoint
from engine.cli import main
from engine.errors import Refused
from engine.layers.inputs import inputs
from engine.layers.maps import halves
from engine.line.exam import exam
from engine.questions import Barrier, Drop, Heads, Lab, Layers, Match, Related
from engine.records import BarrierReport
from engine.running import from_text
from engine.scramble import scramble
from tests import tiny

Built = Callable[[str], Path]
COUNT, CLASSES = 24, 5
Held = dict[str, np.ndarray]


def images(seed: int = 0) -> Held:
    """Random images of the tiny ViT's size, and random labels."""
    draw = np.random.default_rng(seed)
    pixels = draw.normal(size=(COUNT, 3, 12, 12)).astype(np.float32)
    return {"pixel_values": pixels, "labels": draw.integers(0, CLASSES, COUNT)}


def words(seed: int = 0) -> Held:
    """Ids of the tiny text models; every window but the first is filled up."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(3, 96, (6, 8))
    return {"input_ids": ids, "attention_mask": (np.arange(8) < [[8], [3], [5], [4], [7], [2]]) * 1}


def stored(path: Path, held: Held) -> str:
    """The path of a file of either kind."""
    if path.suffix == ".npz":
        np.savez_compressed(path, **held)  # type: ignore[arg-type]
    else:
        save_file({name: np.ascontiguousarray(x) for name, x in held.items()}, path)
    return str(path)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two tiny ViTs."""
    folder = tmp_path_factory.mktemp("vits")
    first, second = (str(tiny.build("vit", folder / name, n)) for n, name in enumerate("ab"))
    return first, second


def crossing(pair: tuple[str, str], path: str) -> Barrier:
    return Barrier(*pair, points=3, stages=("none",), adaptive=False, text=path, device="cpu")


@pytest.fixture(scope="module")
def measured(pair: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> BarrierReport:
    """The line between two ViTs on labelled images."""
    return crossing(pair, stored(tmp_path_factory.mktemp("held") / "x.npz", images())).answer()


def by_hand(kind: type[PreTrainedModel], folder: str, held: Held) -> tuple[float, float]:
    """Loss and accuracy as transformers has them."""
    model = kind.from_pretrained(folder, dtype=torch.float64).eval()
    given = {name: torch.from_numpy(x) for name, x in held.items()}
    given = {name: x.double() if x.is_floating_point() else x for name, x in given.items()}
    with torch.inference_mode():
        found = model(**given)
    right = found.logits.argmax(-1) == given["labels"]
    return float(found.loss), float(right.double().mean())


# What is measured


def test_given_labels_are_asked_for_as_transformers_has_it(
    pair: tuple[str, str], measured: BarrierReport
) -> None:
    assert measured.target == "given class"
    assert (measured.run.text, measured.run.windows) == ("x.npz", COUNT)
    loss, accuracy = (measured.curves[0].points(of).value for of in ("loss", "accuracy"))
    for place, model in ((0, pair[0]), (-1, pair[1])):
        wanted = by_hand(ViTForImageClassification, model, images())
        assert (loss[place], accuracy[place]) == pytest.approx(wanted, abs=1e-5)
    assert accuracy[0] < 0.9  # random labels are none that a model gives


def test_other_labels_give_another_loss_and_none_the_likeliest_class(
    pair: tuple[str, str], measured: BarrierReport, tmp_path: Path
) -> None:
    held = images()
    turned = {**held, "labels": np.roll(held["labels"], 1)}
    bare = {"pixel_values": held["pixel_values"]}
    other = crossing(pair, stored(tmp_path / "turned.npz", turned)).answer()
    without = crossing(pair, stored(tmp_path / "bare.npz", bare)).answer()
    assert (other.target, without.target) == ("given class", "likeliest class")
    found = [one.curves[0].points().value[0] for one in (measured, other, without)]
    assert min(abs(found[i] - found[j]) for i, j in ((0, 1), (0, 2), (1, 2))) > 0.05


def test_both_kinds_of_file_hold_the_same(pair: tuple[str, str], tmp_path: Path) -> None:
    model = open_checkpoint(pair[0])
    half = {**images(), "pixel_values": images()["pixel_values"].astype(np.float16)}
    one, other, rough = (
        prepared.read(model, Path(stored(tmp_path / name, held)))
        for name, held in (("x.npz", images()), ("x.safetensors", images()), ("h.npz", half))
    )
    assert one.labels is not None and other.labels is not None
    assert np.array_equal(one.main, other.main) and np.array_equal(one.labels, other.labels)
    assert rough.main.dtype == np.float32 and not np.array_equal(one.main, rough.main)


def test_the_numbers_of_bfloat16_are_kept(pair: tuple[str, str], tmp_path: Path) -> None:
    from safetensors.torch import save_file as save

    pixels = torch.from_numpy(images()["pixel_values"]).bfloat16()
    save({"pixel_values": pixels}, tmp_path / "b.safetensors")
    found = prepared.read(open_checkpoint(pair[0]), tmp_path / "b.safetensors")
    assert np.array_equal(found.main, pixels.float().numpy()) and found.labels is None


def test_layers_lose_what_the_labels_say(pair: tuple[str, str], tmp_path: Path) -> None:
    path = stored(tmp_path / "x.npz", images())
    found = Layers(pair[0], tests=("delete",), text=path, device="cpu").answer()
    wanted, _ = by_hand(ViTForImageClassification, pair[0], images())
    assert found.base.measure("loss").value == pytest.approx(wanted, abs=1e-5)
    assert np.isfinite(found.tests["delete"].measure("loss").value).all()
    bare = {"pixel_values": images()["pixel_values"]}
    path = stored(tmp_path / "bare.npz", bare)
    without = Layers(pair[0], tests=("delete",), text=path, device="cpu").answer()
    assert np.isnan(without.base.loss).all()
    assert np.allclose(without.tests["delete"].kl, found.tests["delete"].kl)


def test_a_classifier_of_texts_is_asked_for_labels_whatever_fills_its_windows(
    built: Built, tmp_path: Path
) -> None:
    model = str(built("bert_classifier"))
    held = {**words(), "labels": np.array([0, 2, 1, 1, 0, 2])}
    path = stored(tmp_path / "x.safetensors", held)
    loss, accuracy = by_hand(BertForSequenceClassification, model, held)
    line = crossing((model, model), path).answer()
    assert line.target == "given class"
    assert line.curves[0].points().value == pytest.approx(np.full(3, loss), abs=1e-5)
    assert line.curves[0].points("accuracy").value == pytest.approx(np.full(3, accuracy))
    maps = Layers(model, tests=("delete",), text=path, device="cpu").answer()
    assert maps.base.loss.mean() == pytest.approx(loss, abs=1e-5)


def test_labels_go_with_their_windows(pair: tuple[str, str], tmp_path: Path) -> None:
    held = images()
    asked = Drop(pair[0], (0,), text=stored(tmp_path / "x.npz", held), device="cpu")
    given = inputs(open_checkpoint(pair[0]), asked)
    first, second = halves(given)
    for part in (first, second):
        assert part.labels is not None and len(part.labels) == part.windows == COUNT // 2
        rows = [int((given.named["pixel_values"] == x).all((1, 2, 3)).nonzero()[0, 0])
                for x in part.named["pixel_values"]]  # fmt: skip
        assert part.labels.tolist() == held["labels"][rows].tolist()
    both = first.joined(second)
    assert both.labels is not None and both.labels.sum() == held["labels"].sum()
    assert first.joined(replace(second, labels=None)).labels is None


def test_ids_of_a_file_are_those_of_a_json_file(built: Built, tmp_path: Path) -> None:
    model = open_checkpoint(built("llama_gqa"))
    held = words()
    lengths = held["attention_mask"].sum(1)
    rows = [row[:n].tolist() for row, n in zip(held["input_ids"], lengths, strict=True)]
    (tmp_path / "x.json").write_text(json.dumps(rows))
    (tmp_path / "equal.json").write_text(json.dumps(held["input_ids"].tolist()))
    same = {"input_ids": held["input_ids"].astype(np.int32)}
    pairs = (("x.json", stored(tmp_path / "x.npz", held)),
             ("equal.json", stored(tmp_path / "equal.npz", same)))  # fmt: skip
    for ours, path in pairs:
        asked = [Layers(model.name, text=text) for text in (str(tmp_path / ours), path)]
        one, other = (exam(model, one) for one in asked)
        assert one.target == other.target == "next token"
        assert torch.equal(one.targets, other.targets)
        assert one.named.keys() == other.named.keys()
        assert all(torch.equal(one.named[name], x) for name, x in other.named.items())
    equal = [texts.tokens(model, str(tmp_path / f"equal{end}"), 9) for end in (".json", ".npz")]
    assert np.array_equal(*equal)
    losses = [Layers(model.name, ("delete",), text=path, device="cpu").answer().base.loss
              for path in (str(tmp_path / "x.json"), pairs[0][1])]  # fmt: skip
    assert np.array_equal(*losses, equal_nan=True)


def test_every_way_to_run_a_model_takes_the_images(pair: tuple[str, str], tmp_path: Path) -> None:
    held, path = images(), stored(tmp_path / "x.npz", images())
    a, b = map(open_checkpoint, pair)
    whole, what = torch.from_numpy(held["pixel_values"]), f"{COUNT} images of x.npz"
    for found in (
        trials.inputs(a, b, Heads(*pair, text=path)), check_tokens(a, b, path),
        from_text(a, path, 9),
    ):  # fmt: skip
        assert torch.equal(found.inputs, whole) and found.what == what
    assert trials.inputs(a, b, Heads(*pair)).what == "2 random images"
    lab = Lab(pair[0], text=path, device="cpu").answer()
    assert lab.effect.tokens == "2 images of x.npz"


def test_images_tell_which_residual_coordinate_is_which(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    """A planted order and signs, found from what both models make of the same images."""
    scramble(open_checkpoint(pair[0]), tmp_path / "twin", 3, ("res",))
    path = stored(tmp_path / "x.safetensors", images())
    asked = Match(pair[0], str(tmp_path / "twin"), using="activations", text=path, device="cpu")
    found = asked.answer()
    assert found.absolute_accuracy is not None and found.absolute_accuracy[-1] == 1
    assert found.text == "x.safetensors"
    common = relatedness.ends(
        *map(open_checkpoint, asked.models), Related(*asked.models, text=path),
        images()["pixel_values"],
    )  # fmt: skip
    assert found.truth is not None
    assert np.array_equal(np.abs(common).argmax(1), found.truth.permutation)
    noise = Match(*pair, using="activations", truth="identity", text=path, device="cpu").answer()
    assert noise.absolute_accuracy is not None and noise.absolute_accuracy[-1] < 0.5


# Keys and commands


def test_the_key_follows_the_content_and_no_path(pair: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    paths = [stored(tmp_path / name, images(seed)) for name, seed in
             (("x.npz", 0), ("y.npz", 0), ("z.npz", 1), ("deep/x.npz", 0))]  # fmt: skip
    keys = [Layers(pair[0], text=path).key for path in paths]
    assert keys[0] == keys[1] == keys[3]
    assert len({*keys, Layers(pair[0]).key}) == 3


def test_the_command_of_a_question_gives_the_file_back(
    pair: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stored(tmp_path / "x.npz", images())
    asked = crossing(pair, path)
    assert f"--inputs {path}" in asked.command and "--text" not in asked.command
    out = tmp_path / "out.json"
    said = [str(out) if word == "barrier.json" else word for word in shlex.split(asked.command)[3:]]
    assert main(said) == 0
    told = capsys.readouterr().out
    assert "asked for the given class" in told and f"on {COUNT} inputs of x.npz" in told
    wanted = by_hand(ViTForImageClassification, pair[0], images())
    document = json.loads(out.read_text())["stages"]["none"]
    assert (document["loss"][0], document["accuracy"][0]) == pytest.approx(wanted, abs=1e-5)


def test_one_source_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["layers", "demo:base", "--out", str(tmp_path / "x.json"), "--inputs"]
    assert main([*words, "x.npz", "--tokens", "x.json"]) == 2
    assert main([*words, "x.npz", "--text", "x.txt"]) == 2
    capsys.readouterr()
    assert main([*words, "x.pt"]) == 1
    said = capsys.readouterr().err
    assert "--inputs x.pt: the name must end in .npz or .safetensors; a text is for --text" in said


# What is refused


def refusal(model: Path, path: Path) -> str:
    with pytest.raises(Refused) as found:
        prepared.read(open_checkpoint(model), path)
    assert "\n" not in str(found.value)
    return str(found.value)


def changed(**more: object) -> Held:
    """The images with some tensors replaced; None takes one away."""
    held = {**images(), **{name: np.asarray(x) for name, x in more.items() if x is not None}}
    return {name: x for name, x in held.items() if more.get(name, x) is not None}


BROKEN = images()["pixel_values"].copy()
BROKEN[2, 1, 3] = np.nan
REFUSED = [
    (changed(pixel_values=None), "must hold pixel_values, which .* reads; found labels"),
    ({"images": BROKEN}, "found images: store it under that name"),
    (changed(input_ids=np.ones((2, 2), int)), "holds input_ids; only labels, pixel_values are"),
    (changed(pixel_values=np.ones((COUNT, 3, 12, 8), np.float32)),
     r"with 3 × 12 × 12 as .* reads them, found \[24, 3, 12, 8\]: resize them"),
    (changed(pixel_values=np.ones((COUNT, 1, 12, 12), np.float32)), r"found \[24, 1, 12, 12\]"),
    (changed(pixel_values=np.ones((0, 3, 12, 12), np.float32)), r"found \[0, 3, 12, 12\]"),
    (changed(pixel_values=np.ones((3, 12, 12), np.float32)), r"found \[3, 12, 12\]"),
    (changed(pixel_values=np.ones((COUNT, 3, 12, 12), np.uint8)), "normalised .* found uint8"),
    (changed(pixel_values=BROKEN), "hold 12 values that are no finite float32"),
    (changed(pixel_values=np.full((COUNT, 3, 12, 12), 1e300)), "values that are no finite"),
    (changed(labels=np.zeros(COUNT - 1, int)), r"labels .* must be \[24\], .* found \[23\]"),
    (changed(labels=np.zeros((COUNT, 1), int)), r"found \[24, 1\]"),
    (changed(labels=np.zeros(COUNT)), "labels .* must be whole numbers, found float64"),
    (changed(labels=np.full(COUNT, CLASSES)), r"from 0 to 4 \(the classes of .*\), found 5"),
    (changed(labels=np.full(COUNT, -100)), "found -100"),
]  # fmt: skip
WORDS = [
    ({"input_ids": np.full((2, 3), 96)}, r"from 0 to 95 \(the vocabulary of .*\), found 96"),
    ({"input_ids": np.full((2, 3), -1)}, "found -1"),
    ({"input_ids": np.ones(3, int)}, r"\[windows, length\], .* found \[3\]"),
    ({"input_ids": np.ones((2, 17), int)}, r"1 to 16 tokens in each .* found \[2, 17\]"),
    ({"input_ids": np.ones((2, 0), int)}, r"found \[2, 0\]"),
    ({"input_ids": np.ones((2, 3))}, "must be whole numbers, found float64"),
    ({**words(), "attention_mask": np.ones((6, 7), int)}, r"\[6, 8\] like input_ids, found \[6, 7"),
    ({**words(), "attention_mask": np.full((6, 8), 2)}, "0 for filling, .* found other numbers"),
    ({**words(), "attention_mask": words()["attention_mask"][:, ::-1]}, "fill windows up on the r"),
    ({**words(), "attention_mask": np.zeros((6, 8), int)}, "1 from the start of every window"),
    ({**words(), "token_type_ids": np.zeros((6, 8), int)}, "holds token_type_ids; only"),
    ({**words(), "labels": np.zeros(6, int)}, "has no classification head to ask for them"),
]  # fmt: skip


@pytest.mark.parametrize(("held", "said"), REFUSED, ids=range(len(REFUSED)))
def test_images_that_the_model_does_not_read_are_refused(
    held: Held, said: str, pair: tuple[str, str], tmp_path: Path
) -> None:
    stored(tmp_path / "x.npz", held)
    with pytest.raises(Refused, match=said):
        prepared.read(open_checkpoint(pair[0]), tmp_path / "x.npz")
    assert "\n" not in refusal(Path(pair[0]), tmp_path / "x.npz")


@pytest.mark.parametrize(("held", "said"), WORDS, ids=range(len(WORDS)))
def test_ids_that_the_model_does_not_know_are_refused(
    held: Held, said: str, built: Built, tmp_path: Path
) -> None:
    stored(tmp_path / "x.safetensors", held)
    with pytest.raises(Refused, match=said):
        prepared.read(open_checkpoint(built("bert_masked")), tmp_path / "x.safetensors")


def test_filling_may_hold_any_number(built: Built, tmp_path: Path) -> None:
    held = words()
    filled = np.where(held["attention_mask"] == 1, held["input_ids"], -100)
    path = Path(stored(tmp_path / "x.npz", {**held, "input_ids": filled}))
    found = prepared.read(open_checkpoint(built("bert_masked")), path)
    assert found.kept.sum() == held["attention_mask"].sum()
    assert np.array_equal(found.main, held["input_ids"] * held["attention_mask"])


@pytest.mark.parametrize("suffix", prepared.SUFFIXES)
def test_what_is_no_such_file_is_refused(
    suffix: str, pair: tuple[str, str], tmp_path: Path
) -> None:
    kind = "give a .npz or .safetensors file with pixel_values and, for a classifier, labels"
    path = tmp_path / f"x{suffix}"
    assert refusal(Path(pair[0]), path) == f"Inputs file {path} does not exist; {kind}."
    whole = Path(stored(tmp_path / f"whole{suffix}", images())).read_bytes()
    for damaged in (b"", b"words", whole[: len(whole) // 2], whole[:-40]):
        path.write_bytes(damaged)
        said = refusal(Path(pair[0]), path)
        assert said.startswith(f"{path} is no {suffix} file (") and said.endswith(f"; {kind}.")
    path.unlink()
    path.mkdir()
    assert refusal(Path(pair[0]), path) == f"Inputs file {path} is a folder; {kind}."


def test_objects_that_would_run_are_not_opened(pair: tuple[str, str], tmp_path: Path) -> None:
    class Sly:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "ran",)  # type: ignore[return-value]

    np.savez(tmp_path / "x.npz", pixel_values=np.array([Sly()], dtype=object))
    (tmp_path / "ran").unlink(missing_ok=True)
    assert "is no .npz file (Object arrays cannot be" in refusal(Path(pair[0]), tmp_path / "x.npz")
    assert not (tmp_path / "ran").exists()


def test_a_wrong_file_is_never_replaced_by_random_inputs(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    path = stored(tmp_path / "x.npz", changed(labels=np.full(COUNT, 9)))
    a, b = map(open_checkpoint, pair)
    ways: list[Callable[[], object]] = [
        lambda: check_tokens(a, b, path), lambda: trials.inputs(a, b, Heads(*pair, text=path)),
        crossing(pair, path).answer, Lab(pair[0], text=path).answer,
        Match(*pair, using="activations", text=path).answer, Layers(pair[0], text=path).answer,
        Drop(pair[0], (0,), text=path).answer,
    ]  # fmt: skip
    for way in ways:
        with pytest.raises(Refused, match="the classes of"):
            way()


def test_windows_of_several_lengths_are_refused_where_one_is_needed(
    built: Built, tmp_path: Path
) -> None:
    model = open_checkpoint(built("llama_gqa"))
    path = stored(tmp_path / "x.npz", words())
    with pytest.raises(Refused, match=r"2 or more tokens without filling .* cut them to one"):
        texts.tokens(model, path, 9)
    with pytest.raises(Refused, match="reads images, and there is no text"):
        texts.tokens(open_checkpoint(built("vit")), path, 9)
