"""The command line, in process: what it writes, what it prints, how it refuses."""

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.cli import main
from engine.questions import Align, Check, Inspect, Match, Question
from engine.store import Store, default_root
from engine.symmetry import load
from tests import tiny

Built = Callable[[str], Path]


@pytest.fixture(scope="module")
def twin(built: Built, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and a scrambled copy of it."""
    folder = tmp_path_factory.mktemp("twin") / "b"
    assert main(["scramble", str(built("llama_gqa")), "--out", str(folder), "--seed", "3"]) == 0
    return built("llama_gqa"), folder


@pytest.fixture(scope="module")
def ids(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of token ids, for checkpoints without a tokenizer."""
    path = tmp_path_factory.mktemp("ids") / "ids.json"
    draw = torch.randint(96, (16, 64), generator=torch.Generator().manual_seed(0))
    path.write_text(json.dumps(draw.tolist()))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Standard output of a command that must succeed."""
    assert main([str(a) for a in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The single line that a refused command prints."""
    assert main([str(a) for a in arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def test_inspect_prints_every_coordinate_and_the_self_test(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    text = run(capsys, "inspect", built("llama_gqa"))
    for word in ("res", "ffn", "grp", "head", "rot", "val", "tok", "self-test: exact", "RMSNorm"):
        assert word in text


def test_inspect_json(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "inspect", built("llama_gqa"), "--json"))
    rows = {row["name"]: row for row in found["card"]["coordinates"]}
    assert rows["res"]["size"] == 24
    assert rows["head"]["copies"] == 6  # two layers of three groups
    assert rows["rot"]["dimension"] == 2 * 3 * 4  # layers × groups × channels
    assert found["self_test"]["error"] < 1e-4
    assert found["self_test"]["moved"] == 1.0


def test_scramble_moves_every_tensor_and_says_how(twin: tuple[Path, Path]) -> None:
    a, b = (tiny.tensors(folder) for folder in twin)
    assert all(not torch.equal(a[name], b[name]) for name in a)
    g = load(twin[1] / "symmetry.safetensors")
    assert {"res", "layers.0.ffn", "layers.1.rot", "layers.1.val"} <= g.elements.keys()
    assert g.source == Inspect(str(twin[0])).checkpoints[0].fingerprint
    assert g.target == Inspect(str(twin[1])).checkpoints[0].fingerprint


def test_scramble_prints_what_it_wrote_as_json(
    built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = str(built("llama_gqa")), tmp_path / "b"
    printed = json.loads(run(capsys, "scramble", model, "--out", out, "--seed", "7", "--json"))
    assert printed == {
        "model": model, "out": str(out), "seed": 7, "elements": 11, "continuous": True,
        "source": Inspect(model).checkpoints[0].fingerprint,
        "target": Inspect(str(out)).checkpoints[0].fingerprint,
    }  # fmt: skip


def test_scramble_of_signed_permutations_keeps_every_magnitude(
    built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "scramble", built("llama_gqa"), "--out", tmp_path / "b", "--only", "res,heads")
    a, b = tiny.tensors(built("llama_gqa")), tiny.tensors(tmp_path / "b")
    for name in a:
        assert torch.equal(a[name].abs().flatten().sort()[0], b[name].abs().flatten().sort()[0])


def test_align_brings_every_tensor_back(
    twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "aligned"
    text = run(capsys, "align", *twin, "--out", out)
    assert "res       1 solved, 100.00% right" in text
    a, c = tiny.tensors(twin[0]), tiny.tensors(out)
    assert max(float((a[n] - c[n]).norm() / a[n].norm()) for n in a) < 1e-4
    report = json.loads((out / "report.json").read_text())
    assert report["recovered"] == 1.0
    assert report["question"]["key"] == Align(*map(str, twin)).key
    assert report["midpoint_before"] > 0.1
    assert report["midpoint_after"] < 1e-4
    assert (out / "symmetry.safetensors").is_file()


@pytest.mark.parametrize(
    "words",
    [
        "align {a} {b} --out {out}", "heads {a} {b}", "inspect {a}", "lab {a} --preset ffn-order",
        "related {a} {b}", "turn {a} {b} --angle 20 --tokens {ids}",
    ],
)  # fmt: skip
def test_what_is_printed_as_json_says_what_made_it(
    words: str, twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = tmp_path / "ids.json"
    ids.write_text(json.dumps(np.random.default_rng(0).integers(3, 90, (8, 12)).tolist()))
    a, b = twin
    command = words.format(a=a, b=b, out=tmp_path / "out", ids=ids).split()
    told = json.loads(run(capsys, *command, "--json"))["question"]
    assert told["fingerprints"][0] == Inspect(str(a)).checkpoints[0].fingerprint
    assert told["command"].split()[3] == command[0]
    assert len(told["key"]) > 8 and told["version"]


def test_align_without_signs_fails_visibly(
    twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "unsigned"
    text = run(capsys, "align", *twin, "--out", out, "--signs", "off", "--json")
    report = json.loads(text)
    planted = load(twin[1] / "symmetry.safetensors").elements["res"].numbers()["sign"]
    assert report["unreachable"] == pytest.approx(float((planted < 0).double().mean()))
    assert report["recovered"] < 1 - report["unreachable"] + 1e-9
    assert max(report["after"]) > 0.1
    assert report["midpoint_after"] > 0.1


def test_align_from_activations(
    twin: tuple[Path, Path], ids: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "aligned"
    run(capsys, "align", *twin, "--out", out, "--using", "activations", "--tokens", ids)
    a, c = tiny.tensors(twin[0]), tiny.tensors(out)
    assert max(float((a[n] - c[n]).norm() / a[n].norm()) for n in a) < 1e-4


@pytest.mark.parametrize("using", ["weights", "activations"])
def test_match_writes_matrices_and_accuracy(
    twin: tuple[Path, Path],
    ids: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    using: str,
) -> None:
    out = tmp_path / "match.npz"
    run(capsys, "match", *twin, "--using", using, "--tokens", ids, "--out", out)
    with np.load(out) as found:
        assert found["correlation"].shape == (4, 24, 24)
        assert list(found["depths"]) == ["embedding", "after layer 0", "after layer 1", "pooled"]
        truth = load(twin[1] / "symmetry.safetensors").inverse().elements["res"].numbers()
        for order, sign in zip(found["absolute_permutation"], found["absolute_sign"], strict=True):
            assert (order == truth["permutation"].numpy()).all()
            assert (sign == truth["sign"].numpy()).all()


def test_json_of_match_has_no_matrices(
    twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "match.json"
    text = run(capsys, "match", *twin, "--using", "weights", "--out", out, "--json")
    assert json.loads(text) == json.loads(out.read_text())
    assert json.loads(text)["correlation"] is None
    assert json.loads(text)["question"]["using"] == "weights"
    assert json.loads(text)["sign_accuracy"] == [1.0] * 4


def same(first: object, second: object) -> bool:
    """Equal in everything but the time that it took."""
    for field in fields(first):  # type: ignore[arg-type]
        one, two = getattr(first, field.name), getattr(second, field.name)
        if field.name != "seconds":
            try:
                np.testing.assert_equal(_open(one), _open(two))
            except AssertionError:
                return False
    return True


def _open(value: object) -> object:
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _open(getattr(value, f.name)) for f in fields(value)}  # type: ignore[arg-type]
    if isinstance(value, tuple):
        return [_open(item) for item in value]
    return value


def test_the_printed_command_gives_the_same_record(
    twin: tuple[Path, Path],
    ids: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = map(str, twin)
    asked: list[Question] = [
        Inspect(a),
        Check(b, seed=4),
        Match(a, b, using="weights", truth="identity"),
        Match(a, b, text=str(ids), tokens=1024, device="cpu"),
        Align(a, b, only=("res", "heads")),
    ]
    for question in asked:
        for made in tmp_path.iterdir():
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        run(capsys, *shlex.split(question.command)[3:])
        stored = Store(default_root()).get(question.key)
        assert stored is not None, question.command
        assert same(stored, question.answer()), question.command


def test_every_field_of_a_question_changes_its_key(twin: tuple[Path, Path], ids: Path) -> None:
    plain = Match(*map(str, twin))
    changed = [
        replace(plain, using="weights"),
        replace(plain, tokens=2048),
        replace(plain, truth="none"),
        replace(plain, text=str(ids)),
        replace(plain, device="cpu"),
        replace(plain, dtype="float64"),
        replace(plain, a=plain.b, b=plain.a),
    ]
    assert len({plain.key, *(question.key for question in changed)}) == 1 + len(changed)


def test_a_key_follows_the_text_not_its_path(twin: tuple[Path, Path], tmp_path: Path) -> None:
    first, copy = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text("one two")
    copy.write_text("one two")
    asked = Match(*map(str, twin), text=str(first))
    assert asked.key == replace(asked, text=str(copy)).key
    copy.write_text("one three")
    assert asked.key != replace(asked, text=str(copy)).key


def test_refusals_are_one_line(
    twin: tuple[Path, Path], built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = twin
    out = tmp_path / "out"
    assert "does not exist" in refusal(capsys, "inspect", tmp_path / "nowhere")
    assert "config.json" in refusal(capsys, "inspect", tmp_path)
    assert "not empty" in refusal(capsys, "scramble", a, "--out", b)
    assert "--only names volume" in refusal(capsys, "scramble", a, "--out", out, "--only", "volume")
    assert "--only names nothing" in refusal(capsys, "scramble", a, "--out", out, "--only", ",,")
    assert "tokenizer" in refusal(capsys, "match", a, b, "--out", tmp_path / "m.npz")
    assert ".npz or .json" in refusal(
        capsys, "match", a, b, "--using", "weights", "--out", tmp_path / "m.csv"
    )
    other = refusal(capsys, "align", a, built("llama_mha"), "--out", out)
    assert "head" in other
    assert "is 2 in" in other
    assert "1 in" in other
    assert not out.exists()


def _config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _without(folder: Path, name: str) -> None:
    path = folder / "model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if k != name}, path, {"format": "pt"})


def _with_nan(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][2] = math.nan
    save_file(tensors, path, {"format": "pt"})


def _shorten(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def _pointer(folder: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n"
    (folder / "model.safetensors").write_text(text)


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty folder": (lambda f: [p.unlink() for p in f.iterdir()], "empty"),
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json"),
    "broken configuration": (lambda f: (f / "config.json").write_text("{"), "config.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "safetensors"),
    "bin only": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "safe_serialization",
    ),
    "LFS pointer": (_pointer, "LFS"),
    "cut short": (_shorten, "of"),
    "missing tensor": (lambda f: _without(f, "model.norm.weight"), "model.norm.weight"),
    "not a number": (_with_nan, "NaN"),
    "custom code": (lambda f: _config(f, auto_map={"AutoModel": "x.Y"}), "custom code"),
    "quantised": (lambda f: _config(f, quantization_config={"quant_method": "gptq"}), "gptq"),
    "other family": (lambda f: _config(f, model_type="mamba"), "mamba"),
    "unknown attribute": (lambda f: _config(f, residual_multiplier=2.0), "residual_multiplier"),
    "other shape": (lambda f: _config(f, intermediate_size=24), "mlp"),
}


@pytest.mark.parametrize("kind", sorted(SPOILED))
def test_a_spoiled_checkpoint_is_refused_by_every_command(
    kind: str, built: Built, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, word = SPOILED[kind]
    folder = tmp_path / "model"
    shutil.copytree(built("llama_gqa"), folder)
    spoil(folder)
    out = tmp_path / "out"
    assert word in refusal(capsys, "inspect", folder)
    assert word in refusal(capsys, "align", built("llama_gqa"), folder, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rms_norm_eps": 1e-3}, ("rms_norm_eps", "0.001")),
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, ("10000", "500000")),
        ({"hidden_act": "gelu"}, ("silu", "gelu")),
    ],
)
def test_a_pair_of_two_groups_is_refused_with_both_values(
    changes: dict[str, object],
    words: tuple[str, ...],
    built: Built,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(built("llama_gqa"), folder)
    _config(folder, **changes)
    line = refusal(capsys, "align", built("llama_gqa"), folder, "--out", tmp_path / "out")
    assert all(word in line for word in words)


def test_bad_texts_and_token_files_are_refused_by_what_is_wrong(
    twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(option: str, path: Path) -> str:
        return refusal(capsys, "match", *twin, "--out", tmp_path / "m.npz", option, path)

    file = tmp_path / "ids.json"
    for content, word in [
        ("[[1.5, 2, 3]]", "found 1.5"),
        ("[[true, 2]]", "found True"),
        ("[[1, 96]]", "found 96"),
        ("[[1, -1]]", "found -1"),
        ("[[1, 2], [3]]", "lengths 1 to 2"),
        (json.dumps([[1] * 5000]), "the longest window"),
        ("[1, 2]", "something else"),
        ('{"a": 1}', "something else"),
        ("[[", "no JSON"),
    ]:
        file.write_text(content)
        assert word in line("--tokens", file), content
    assert "does not exist" in line("--tokens", tmp_path / "none.json")
    assert not (tmp_path / "m.npz").exists()


def test_text_files_are_refused_by_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(path: Path) -> str:
        out = tmp_path / "m.npz"
        return refusal(capsys, "match", "demo:base", "demo:twin", "--out", out, "--text", path)

    assert "does not exist" in line(tmp_path / "none.txt")
    assert "is a folder" in line(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    assert "not UTF-8 (byte 3)" in line(tmp_path / "latin.txt")
    (tmp_path / "short.txt").write_text("anna has the lamp .")
    assert "fewer than the 8192 tokens" in line(tmp_path / "short.txt")


def test_an_existing_result_is_not_overwritten(
    twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "match.json"
    out.write_text("mine")
    assert "exists" in refusal(capsys, "match", *twin, "--using", "weights", "--out", out)
    assert out.read_text() == "mine"


@pytest.mark.parametrize("option", [("--device", "cuda:7"), ("--dtype", "int8")])
def test_a_device_or_dtype_that_is_not_there_writes_nothing(
    option: tuple[str, str],
    twin: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert option[1] in refusal(capsys, "align", *twin, "--out", tmp_path / "out", *option)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "place", ["engine.alignment.comparison.compare_logits", "engine.questions.pairs.plain"]
)
def test_an_interrupted_alignment_leaves_nothing(
    place: str,
    twin: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    assert main(["align", *map(str, twin), "--out", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "Interrupted: nothing was written.\n"
    assert list(tmp_path.iterdir()) == []


def test_sigterm_leaves_nothing_either(
    twin: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def terminate(*_: object, **__: object) -> None:
        assert len(list(tmp_path.glob(".out-*"))) == 1  # what was begun
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("engine.alignment.comparison.compare_logits", terminate)
    assert main(["align", *map(str, twin), "--out", str(tmp_path / "out")]) == 143
    assert capsys.readouterr().err == "Interrupted: nothing was written.\n"
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


EMPTY = [
    ("scramble", "--only"), ("align", "--only"), ("layers", "--tests"), ("layers", "--layers"),
    ("cut", "--by"), ("prune", "--drop"), ("barrier", "--stages"), ("line", "--at"),
    ("match", "--tokens"), ("related", "--text"), ("heads", "--inputs"), ("merge", "--out"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "option"), EMPTY)
def test_an_empty_value_is_refused_and_never_means_everything(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for given in ([option, ""], [f"{option}="]):
        said = refusal(capsys, command, "demo:base", "demo:twin", *given)
        assert said.startswith(f"{option} names nothing: its value is empty")


def test_what_is_no_folder_is_refused_in_one_line(
    twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    for out, word in (
        ("/dev/null", "is no folder: give a new folder"),
        (tmp_path / "pipe", "is no folder"),
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "below", "cannot be written"),
    ):
        assert word in refusal(capsys, "scramble", twin[0], "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "pipe"]


def test_what_only_sweeps_read_is_refused_without_them(
    twin: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in (("--mix", "0.5"), ("--restarts", "2"), ("--neurons", "published")):
        line = refusal(capsys, "align", *twin, "--out", tmp_path / "out", *option)
        assert line.startswith(f"{' '.join(option)} needs sweeps")
    assert list(tmp_path.iterdir()) == []


def test_wrong_usage_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    both = ["match", "a", "b", "--out", "m.npz", "--text", "t.txt", "--tokens", "i.json"]
    wrong = [["inspect"], ["bogus"], ["align", "a"], ["inspect", "a", "--seed", "x"], both]
    wrong += [["scramble", "a", "--out", "b", "--seed", seed] for seed in ("-1", str(2**63))]
    for arguments in wrong:
        assert main(arguments) == 2
        assert "Traceback" not in capsys.readouterr().err


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from engine.cli import main; main(['--help']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert all(word in done.stdout for word in ("inspect", "scramble", "align", "match"))
