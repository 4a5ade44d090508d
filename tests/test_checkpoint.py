"""Opening, reading, comparing and writing checkpoints; each refusal by its text."""

import hashlib
import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from engine import fingerprints, headers, writing
from engine.agreement import rope
from engine.checkpoint import Checkpoint, open_checkpoint, require_same_group, save_checkpoint
from engine.errors import Refused
from tests import tiny

WEIGHTS = "model.safetensors"
NORM = "model.norm.weight"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.build("llama_gqa", tmp_path_factory.mktemp("original") / "llama_gqa")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(original, tmp_path / "copy"))


@pytest.fixture
def sharded(folder: Path) -> Path:
    """The same checkpoint in three shards."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = {name: f"model-{k % 3 + 1:05}-of-00003.safetensors" for k, name in enumerate(tensors)}
    for shard in set(names.values()):
        save_file({n: t for n, t in tensors.items() if names[n] == shard}, folder / shard)
    write_json(folder / headers.INDEX, {"metadata": {}, "weight_map": names})
    return folder


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def change_config(folder: Path, **changes: object) -> None:
    """Set attributes of config.json; None removes one."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | changes
    removed = {name for name, value in changes.items() if value is None}
    write_json(folder / "config.json", {k: v for k, v in config.items() if k not in removed})


def refusal(folder: str | Path) -> str:
    with pytest.raises(Refused) as caught:
        open_checkpoint(folder)
    return one_line(caught.value)


def one_line(error: Refused) -> str:
    text = str(error)
    assert "\n" not in text
    return text


# Opening and reading


def test_configuration_and_headers(original: Path) -> None:
    opened = open_checkpoint(original)
    tensors = tiny.tensors(original)
    assert opened.name == str(original)
    assert opened.folder == original
    assert {n: h.shape for n, h in opened.headers.items()} == {
        n: tuple(t.shape) for n, t in tensors.items()
    }
    assert opened.parameters == sum(t.numel() for t in tensors.values())
    assert opened.nbytes == 4 * opened.parameters
    assert (opened.layers, opened.tied, opened.dtype) == (2, False, "float32")
    assert opened.family.name == "Llama"


def test_a_tied_model_has_one_embedding(tmp_path: Path) -> None:
    opened = open_checkpoint(tiny.build("llama_mqa_tied", tmp_path / "tied"))
    assert opened.tied
    assert "lm_head.weight" not in opened.headers


@pytest.mark.parametrize("kind", ["folder", "sharded"])
def test_every_tensor_is_read_as_it_was_written(
    kind: str, original: Path, request: pytest.FixtureRequest
) -> None:
    opened = open_checkpoint(request.getfixturevalue(kind))
    for name, tensor in tiny.tensors(original).items():
        assert torch.equal(opened.read(name), tensor)


def test_a_tensor_read_twice_shares_no_memory(original: Path) -> None:
    opened = open_checkpoint(original)
    first = opened.read(NORM)
    first.zero_()
    assert torch.equal(opened.read(NORM), tiny.tensors(original)[NORM])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.float32])
def test_each_dtype_is_read_exactly(dtype: torch.dtype, folder: Path) -> None:
    tensors = {n: t.to(dtype) for n, t in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS)
    opened = open_checkpoint(folder)
    assert opened.dtype == str(dtype).removeprefix("torch.")
    read = opened.read(NORM)
    assert read.dtype == dtype
    assert torch.equal(read, tensors[NORM])


def test_integers_and_empty_tensors_are_read(folder: Path) -> None:
    extra = {"ids": torch.arange(6).reshape(2, 3), "mask": torch.tensor([True, False])}
    save_file(extra | {"none": torch.empty(0, 4)}, folder / WEIGHTS)
    opened = open_checkpoint(folder)
    assert all(torch.equal(opened.read(n), t) for n, t in extra.items())
    assert opened.read("none").shape == (0, 4)


def test_opening_imports_no_torch(original: Path) -> None:
    script = (
        "import sys\n"
        "from engine.checkpoint import open_checkpoint\n"
        f"opened = open_checkpoint({str(original)!r})\n"
        "assert opened.fingerprint and opened.nbytes and opened.parameters\n"
        "heavy = {'torch', 'transformers', 'numpy', 'safetensors', 'huggingface_hub'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    root = Path(headers.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# Fingerprints


def test_a_fingerprint_ignores_the_path_and_cosmetic_keys(original: Path, folder: Path) -> None:
    before = open_checkpoint(original).fingerprint
    assert len(before) == 32
    assert int(before, 16)
    change_config(folder, transformers_version="4.0", _name_or_path="elsewhere")
    os.utime(folder / WEIGHTS, (1, 1))
    moved = folder.rename(folder.with_name("renamed"))
    assert open_checkpoint(moved).fingerprint == before


def test_one_sign_changes_the_fingerprint(original: Path, folder: Path) -> None:
    last = max(open_checkpoint(folder).headers.values(), key=lambda h: h.stop)
    with (folder / WEIGHTS).open("r+b") as file:
        file.seek(last.start + 4 * 7)
        (value,) = struct.unpack("<f", file.read(4))
        file.seek(last.start + 4 * 7)
        file.write(struct.pack("<f", -value))
    assert open_checkpoint(folder).fingerprint != open_checkpoint(original).fingerprint


@pytest.mark.parametrize("change", [{"rms_norm_eps": 1e-5}, {"hidden_act": "gelu"}])
def test_an_attribute_changes_the_fingerprint(
    change: dict[str, object], original: Path, folder: Path
) -> None:
    change_config(folder, **change)
    assert open_checkpoint(folder).fingerprint != open_checkpoint(original).fingerprint


def test_a_large_file_counts_by_samples_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "WHOLE", 1000)
    monkeypatch.setattr(fingerprints, "BLOCK", 4)
    path = tmp_path / "large"
    body = bytearray(4008)

    def digest(change: int | None = None, tail: bytes = b"") -> bytes:
        changed = bytearray(body)
        if change is not None:
            changed[change] ^= 1
        path.write_bytes(changed + tail)
        return fingerprints.digest_file(path)

    # Blocks of 4 bytes start at 0, 63, 127, … and 4004: byte 100 is in none of them.
    assert digest() == digest(100)
    seen = [digest(), digest(64), digest(4007), digest(tail=b"\0")]
    assert len(set(seen)) == len(seen)


def test_the_time_of_a_file_read_in_part_is_no_content_but_a_stamp(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "model.safetensors"
    assert open_checkpoint(folder).stamps == ()
    monkeypatch.setattr(fingerprints, "WHOLE", 1000)
    monkeypatch.setattr(fingerprints, "BLOCK", 4)
    found = []
    for time in (5, 6):
        os.utime(path, ns=(9, time))
        now = open_checkpoint(folder)
        found.append((now.fingerprint, now.stamps))
    assert [stamps for _, stamps in found] == [(5,), (6,)]
    assert found[0][0] == found[1][0]


# Folders that are no checkpoint


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    text = refusal(tmp_path / "owner" / "name")
    assert text.startswith(f"The folder {tmp_path}/owner/name does not exist")
    assert "hf:owner/name" in text


def test_a_file_instead_of_a_folder(original: Path) -> None:
    text = refusal(original / WEIGHTS)
    assert "is a file: give the folder that holds config.json and weights." in text


def test_an_empty_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path).startswith(f"{tmp_path} is empty: give one with config.json")


def test_no_configuration(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert refusal(folder).startswith(f"{folder} has no config.json: give one with")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "config.json is not JSON (Expecting property name"),
        (b"\xff\xfe", "config.json is not JSON ("),
        (b"[" * 200_000, "config.json is not JSON ("),
        (b"[1]", "config.json is not a JSON object but a list: write it again."),
        (headers.POINTER + b"/spec/v1\n", "config.json is a Git-LFS pointer"),
    ],
)
def test_a_broken_configuration(content: bytes, says: str, folder: Path) -> None:
    (folder / "config.json").write_bytes(content)
    assert says in refusal(folder)


def test_no_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    text = refusal(folder)
    assert text.endswith(
        "has no weights: expected model.safetensors, or shards with model.safetensors.index.json."
    )


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth", "weights.pt"])
def test_only_pickled_weights(name: str, folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / name)
    text = refusal(folder)
    assert f"has its weights in {name} only, a format that can run code" in text
    assert "save_pretrained(folder, safe_serialization=True)" in text


def test_weights_under_another_name(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.safetensors")
    assert "has no model.safetensors, only adapter_model.safetensors: rename it" in refusal(folder)


def test_a_git_lfs_pointer(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(headers.POINTER + b"/spec/v1\noid sha256:0\nsize 9\n")
    text = refusal(folder)
    assert "model.safetensors is a Git-LFS pointer, not the file itself: run `git lfs pull`" in text


@pytest.mark.parametrize("kept", [-1, 5000, 100, 9])
def test_a_file_cut_short(kept: int, folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:kept])
    text = refusal(folder)
    length = int.from_bytes(whole[:8], "little")
    left = len(whole[:kept])
    declared = len(whole) if left >= 8 + length else 8 + length
    assert f"is cut short: {left} of {declared} bytes; copy or download it again." in text


# Headers that lie


def damaged(folder: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """The refusal after a change to the header, data left as they are."""
    raw = (folder / WEIGHTS).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    data = raw[8 + length :]
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + data)
    return refusal(folder)


def set_offsets(start: int, stop: int) -> Callable[[dict[str, Any]], object]:
    return lambda header: header[NORM].update(data_offsets=[start, stop])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda h: h[NORM].update(shape=[25]), "declares F32 [25] at bytes"),
        (lambda h: h[NORM].update(shape=[-24]), "declares F32 [-24] at bytes"),
        (lambda h: h[NORM].update(shape=[24.0]), "declares F32 [24.0] at bytes"),
        (lambda h: h[NORM].update(dtype="F64"), "declares F64 [24] at bytes"),
        (lambda h: h[NORM].update(dtype="Q4"), "the header entry of model.norm.weight is damaged"),
        (lambda h: h[NORM].pop("shape"), "the header entry of model.norm.weight is damaged"),
        (lambda h: h.update({NORM: 3}), "the header entry of model.norm.weight is damaged"),
        (set_offsets(0, 96), "tensors overlap or leave a hole at byte"),
        (set_offsets(10**9, 10**9 + 96), "tensors overlap or leave a hole at byte"),
        (set_offsets(96, 0), "which do not fit: copy it again."),
        (lambda h: h.clear(), "model.safetensors holds no tensors"),
    ],
)
def test_a_header_that_lies(
    change: Callable[[dict[str, Any]], object], says: str, folder: Path
) -> None:
    assert says in damaged(folder, change)


def test_bytes_that_no_tensor_declares(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(b"\0")
    size = (folder / WEIGHTS).stat().st_size
    assert f"declares {size - 1} bytes, the file has {size}" in refusal(folder)


@pytest.mark.parametrize(
    "text", [b"not json", b"[1, 2]", b"\xff\xff", b'{"a": 1, "a": 2}', b"[" * 50_000]
)
def test_a_header_that_is_no_table(text: bytes, folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text)
    assert "the header is not a JSON object of distinct names" in refusal(folder)


def test_a_file_of_noise(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"\x93NUMPY\x01\x00" * 100)
    text = refusal(folder)
    assert "is not a safetensors file: its header declares" in text
    assert "at most 100000000 are read" in text


# Shards that are refused


def test_a_missing_shard(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    text = refusal(sharded)
    assert "declares 3 shards, model-00002-of-00003.safetensors missing: copy the folder" in text


def change_index(folder: Path, change: Callable[[dict[str, Any]], object]) -> str:
    index = json.loads((folder / headers.INDEX).read_text(encoding="utf-8"))
    change(index)
    write_json(folder / headers.INDEX, index)
    return refusal(folder)


def test_an_index_that_contradicts_its_shards(sharded: Path) -> None:
    where = json.loads((sharded / headers.INDEX).read_text(encoding="utf-8"))["weight_map"]
    text = change_index(sharded, lambda index: index["weight_map"].pop(NORM))
    assert f"{where[NORM]} holds {NORM} that {headers.INDEX} does not declare there" in text
    text = change_index(
        sharded, lambda index: index["weight_map"].update({NORM: where[NORM], "x": where[NORM]})
    )
    assert f"declares x in {sharded / where[NORM]}, not found there" in text


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a\\b", "", "..", 7, "a\0b"]
)
def test_an_index_that_reaches_outside(name: object, sharded: Path) -> None:
    text = change_index(sharded, lambda index: index["weight_map"].update({NORM: name}))
    assert "which is no file of its own folder" in text


@pytest.mark.parametrize("value", [None, {}, [1]])
def test_an_index_without_a_map(value: object, sharded: Path) -> None:
    text = change_index(sharded, lambda index: index.update(weight_map=value))
    assert "declares no weight_map" in text


# Models that are not covered


def test_custom_code(folder: Path) -> None:
    change_config(folder, auto_map={"AutoModel": "modeling.Evil"})
    text = refusal(folder)
    assert "declares custom code (auto_map), which is never run" in text
    assert "llama" in text


@pytest.mark.parametrize(("method", "word"), [({"quant_method": "gptq"}, "gptq"), (1, "unknown")])
def test_quantised(method: object, word: str, folder: Path) -> None:
    change_config(folder, quantization_config=method)
    assert f"is quantised ({word}): its stored numbers cannot" in refusal(folder)


def test_an_architecture_without_a_table(folder: Path) -> None:
    change_config(folder, model_type="mamba")
    with pytest.raises(Refused, match=r"Unsupported architecture: model_type 'mamba'"):
        _ = open_checkpoint(folder).family


def test_missing_tensors_are_named(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({n: t for n, t in tensors.items() if "layers.1" not in n}, folder / WEIGHTS)
    with pytest.raises(Refused, match=r"Missing tensors: \S+, \S+, \S+ and 6 more"):
        _ = open_checkpoint(folder).family


def test_an_unreadable_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("engine.checkpoint.read_headers", denied)
    assert refusal(folder) == f"{folder} cannot be read: Permission denied."


# Values that are refused


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite(value: float, folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors[NORM][3:5] = value
    save_file(tensors, folder / WEIGHTS)
    opened = open_checkpoint(folder)
    with pytest.raises(Refused) as caught:
        opened.read(NORM)
    assert f"{NORM} holds 2 values of 24 that are not finite" in one_line(caught.value)
    assert opened.read("lm_head.weight").isfinite().all()


def test_an_unknown_tensor_name(original: Path) -> None:
    with pytest.raises(Refused, match=r"has no tensor nonsense: it has lm_head\.weight, "):
        open_checkpoint(original).read("nonsense")


def test_a_dtype_without_arithmetic(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors[NORM] = tensors[NORM].to(torch.float8_e4m3fn)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(Refused, match="is stored as F8_E4M3, which is not computed with"):
        open_checkpoint(folder).read(NORM)


@pytest.mark.parametrize("mapped", [False, True])
def test_a_file_that_changed_since_it_was_opened(folder: Path, mapped: bool) -> None:
    opened = open_checkpoint(folder)
    (folder / WEIGHTS).write_bytes(b"short")
    with pytest.raises(Refused, match="became shorter since it was opened"):
        opened.read(NORM, mapped=mapped)
    (folder / WEIGHTS).unlink()
    with pytest.raises(Refused, match="cannot be read any more"):
        opened.read(NORM, mapped=mapped)


def test_pages_of_a_file_are_its_values_and_writing_to_them_leaves_it_alone(folder: Path) -> None:
    before = (folder / WEIGHTS).read_bytes()
    opened = open_checkpoint(folder)
    for name in opened.headers:
        own, pages = opened.read(name), opened.read(name, mapped=True)
        assert torch.equal(pages, own)
        assert pages.dtype == own.dtype
        pages.add_(1)
        assert not torch.equal(pages, own)
        assert torch.equal(opened.read(name, mapped=True), own)
    assert (folder / WEIGHTS).read_bytes() == before


@pytest.mark.parametrize("spaces", [0, 3])
def test_values_that_do_not_start_on_whole_numbers_are_read_too(folder: Path, spaces: int) -> None:
    file = folder / WEIGHTS
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + length] + b" " * spaces
    file.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length :])
    opened = open_checkpoint(folder)
    assert opened.headers[NORM].start % 8 == spaces
    assert torch.equal(opened.read(NORM, mapped=True), load_file(file)[NORM])


# Two checkpoints


def pair(original: Path, folder: Path) -> tuple[Checkpoint, Checkpoint]:
    return open_checkpoint(original), open_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'silu' in {a} and 'gelu' in {b}"),
        ({"rms_norm_eps": 1e-5}, "rms_norm_eps is 1e-06 in {a} and 1e-05 in {b}"),
        ({"rope_parameters": {"rope_theta": 5e5}}, "'rope_theta': 500000.0"),
        (
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
            "'rope_type': 'linear'",
        ),
    ],
)
def test_an_attribute_that_differs(
    change: Mapping[str, Any], says: str, original: Path, folder: Path
) -> None:
    change_config(folder, **change)
    with pytest.raises(Refused) as caught:
        require_same_group(*pair(original, folder))
    text = one_line(caught.value)
    assert text.startswith(f"No symmetry takes {folder} to {original}: ")
    assert says.format(a=original, b=folder) in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": 12}, "hidden_size (residual coordinate) is 24"),
        ({"intermediate_size": 24}, "intermediate_size (FFN neuron) is 20"),
        ({"num_hidden_layers": 3}, "num_hidden_layers is 2"),
        ({"num_key_value_heads": 2}, "num_key_value_heads (key/value head) is 3"),
        ({"num_attention_heads": 3}, "num_attention_heads / num_key_value_heads"),
        ({"head_dim": 6}, "head_dim (rotary query/key channel) is 4"),
    ],
)
def test_a_size_that_differs(
    change: dict[str, Any], says: str, original: Path, tmp_path: Path
) -> None:
    other = tiny.build("llama_gqa", tmp_path / "other", **{"head_dim": 4, **change})
    with pytest.raises(Refused) as caught:
        require_same_group(open_checkpoint(original), open_checkpoint(other))
    assert says in one_line(caught.value)


def test_a_family_that_differs(original: Path, tmp_path: Path) -> None:
    other = open_checkpoint(tiny.build("qwen2", tmp_path / "qwen2"))
    with pytest.raises(Refused, match=r"model_type is 'llama' in \S+ and 'qwen2' in "):
        require_same_group(open_checkpoint(original), other)


def test_vocabularies_may_differ(original: Path, tmp_path: Path) -> None:
    other = tiny.build("llama_gqa", tmp_path / "other", vocab_size=77)
    require_same_group(open_checkpoint(original), open_checkpoint(other))


def test_an_old_spelling_of_the_rotary_embedding_is_the_same(original: Path, folder: Path) -> None:
    change_config(folder, rope_parameters=None, rope_theta=10000)
    require_same_group(*pair(original, folder))
    change_config(folder, rope_theta=None)
    require_same_group(*pair(original, folder))
    change_config(folder, rms_norm_eps=9.999999974752427e-07, attention_bias=None, mlp_bias=None)
    require_same_group(*pair(original, folder))


@pytest.mark.parametrize(
    "old",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_theta": 1.0, "rope_scaling": {"type": "linear", "factor": 2.0, "rope_theta": 5e5}},
    ],
)
def test_scaling_in_old_and_new_spelling(old: dict[str, Any]) -> None:
    new = {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}
    assert rope(old) == rope(new) == new["rope_parameters"]


def test_the_rotary_embedding_of_neox() -> None:
    old = {"rotary_emb_base": 10000, "rotary_pct": 0.25}
    new = {
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
        }
    }  # fmt: skip
    assert rope(old) == rope(new)


def test_a_window_that_is_switched_off_does_not_count(tmp_path: Path) -> None:
    a = tiny.build("qwen2", tmp_path / "a")
    b = tiny.build("qwen2", tmp_path / "b")
    change_config(b, sliding_window=4096, max_window_layers=1, layer_types=None)
    require_same_group(open_checkpoint(a), open_checkpoint(b))
    change_config(b, use_sliding_window=True)
    with pytest.raises(Refused, match=r"(sliding_window|max_window_layers) is "):
        require_same_group(open_checkpoint(a), open_checkpoint(b))


# Writing


def written(like: Checkpoint, target: Path, **how: Any) -> Checkpoint:
    save_checkpoint(target, ((n, like.read(n)) for n in like.headers), like, **how)
    return open_checkpoint(target)


def test_what_is_written_is_what_was_read(folder: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "merges.txt", "chat_template.jinja", "modeling.py", "notes.md"):
        (folder / name).write_text("{}", encoding="utf-8")
    like = open_checkpoint(folder)
    copy = written(like, tmp_path / "new" / "copy")
    assert copy.config == like.config
    assert copy.headers.keys() == like.headers.keys()
    assert all(torch.equal(copy.read(n), like.read(n)) for n in like.headers)
    assert sorted(p.name for p in copy.folder.iterdir()) == [
        "chat_template.jinja", "config.json", "generation_config.json", "merges.txt",
        WEIGHTS, "tokenizer.json",
    ]  # fmt: skip
    assert [p.name for p in copy.folder.parent.iterdir()] == ["copy"]


def test_transformers_loads_what_is_written(original: Path, tmp_path: Path) -> None:
    written(open_checkpoint(original), tmp_path / "copy")
    tokens = tiny.tokens()
    models = [AutoModelForCausalLM.from_pretrained(f) for f in (original, tmp_path / "copy")]
    with torch.no_grad():
        assert torch.equal(models[0](tokens).logits, models[1](tokens).logits)


def test_shards_and_their_index(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SHARD", 10_000)
    like = open_checkpoint(original)
    copy = written(like, tmp_path / "copy")
    files = {h.file for h in copy.headers.values()}
    assert len(files) > 2
    assert {f"model-{k:05}-of-{len(files):05}.safetensors" for k in range(1, len(files) + 1)} == {
        f.name for f in files
    }
    assert all(torch.equal(copy.read(n), like.read(n)) for n in like.headers)
    index = json.loads((copy.folder / headers.INDEX).read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == like.nbytes
    _, found = AutoModelForCausalLM.from_pretrained(copy.folder, output_loading_info=True)
    assert not any(found.values())


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_dtype_for_floats_only(key: str, folder: Path, tmp_path: Path) -> None:
    change_config(folder, dtype=None)
    change_config(folder, **{key: "float32"})
    copy = written(open_checkpoint(folder), tmp_path / "narrow", dtype=torch.bfloat16)
    assert copy.dtype == "bfloat16"
    assert copy.config[key] == "bfloat16"
    assert {"dtype", "torch_dtype"} & set(copy.config) == {key}


def test_another_configuration(original: Path, tmp_path: Path) -> None:
    like = open_checkpoint(original)
    kept = [(n, like.read(n)) for n in like.headers if "layers.1" not in n]
    save_checkpoint(tmp_path / "short", kept, like, config={**like.config, "num_hidden_layers": 1})
    assert open_checkpoint(tmp_path / "short").layers == 1


def test_views_and_shared_memory_are_written_apart(original: Path, tmp_path: Path) -> None:
    like = open_checkpoint(original)
    tensors = {n: like.read(n) for n in like.headers}
    head = tensors["lm_head.weight"]
    tensors["model.embed_tokens.weight"] = head
    tensors["model.layers.0.self_attn.q_proj.weight"] = head[:24].t()
    save_checkpoint(tmp_path / "copy", tensors.items(), like)
    copy = open_checkpoint(tmp_path / "copy")
    assert all(torch.equal(copy.read(n), t) for n, t in tensors.items())


def test_an_existing_folder_is_not_overwritten(original: Path, folder: Path) -> None:
    like = open_checkpoint(original)
    with pytest.raises(Refused, match="exists and is not empty: give a new folder"):
        written(like, folder)
    with pytest.raises(Refused, match="is a file: give a new folder"):
        written(like, folder / "config.json")
    (folder.parent / "empty").mkdir()
    assert written(like, folder.parent / "empty").layers == 2


def test_nothing_half_written_remains(original: Path, tmp_path: Path) -> None:
    like = open_checkpoint(original)

    def failing() -> Any:
        yield NORM, like.read(NORM)
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        save_checkpoint(tmp_path / "copy", failing(), like)
    with pytest.raises(Refused, match="Missing tensors"):
        save_checkpoint(tmp_path / "copy", [(NORM, like.read(NORM))], like)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(original: Path) -> None:
    with pytest.raises(Refused, match=r"cannot be written: (Not a directory|File exists)\."):
        written(open_checkpoint(original), original / "config.json" / "copy")


def test_a_large_file_enters_by_64_blocks_of_64_kilobytes(tmp_path: Path) -> None:
    size, block = 64 * 2**20 + 1, 64 * 2**10
    assert fingerprints.sampled(size) and not fingerprints.sampled(size - 1)
    starts = [(size - block) * k // 63 for k in range(64)]
    assert (starts[0], starts[-1] + block) == (0, size)
    path = tmp_path / "large"
    held = {8: b"{}", starts[17]: b"first", starts[40] + block - 4: b"last", 70_000: b"unseen"}
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2))
        for place, word in held.items():
            file.seek(place)
            file.write(word)
        file.truncate(size)
    expected = hashlib.sha256(struct.pack("<Q", size) + b"{}")
    for start in starts:
        part = bytearray(block)
        for place, word in {0: struct.pack("<Q", 2), **held}.items():
            if start <= place < start + block:
                part[place - start : place - start + len(word)] = word
        expected.update(part)
    assert fingerprints.digest_file(path) == expected.digest()
