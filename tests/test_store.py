"""The results store: what is put is got back equal, whole or not at all."""

import dataclasses
import json
import math
import multiprocessing
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import store as module
from engine.errors import Refused
from engine.records import REGISTRY
from engine.store import ENVIRONMENT, Store, default_root
from tests import fakes


@dataclass(frozen=True)
class Inner:
    values: np.ndarray
    label: str | None = None


@dataclass(frozen=True)
class Outer:
    number: float
    count: int
    flag: bool
    title: str
    pair: tuple[int, str]
    nested: tuple[Inner, ...]
    by_name: Mapping[str, Inner]
    by_number: Mapping[int, tuple[float, ...]]
    either: Inner | None = None
    plain: list[int] = dataclasses.field(default_factory=list)

    @property
    def derived(self) -> float:
        return 2 * self.number


SAMPLE = Outer(
    number=1 / 3,
    count=-7,
    flag=True,
    title="Ω “quoted”\n",
    pair=(1, "x"),
    nested=(Inner(np.arange(6, dtype=np.int8).reshape(2, 3)), Inner(np.zeros((0, 4)), "empty")),
    by_name={"a": Inner(np.array([1.5, -0.0, np.nan, np.inf], np.float32))},
    by_number={3: (0.1, 2.0), -1: ()},
    either=Inner(np.array([[True, False]])),
    plain=[1, 2],
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results", registry={"Outer": Outer})


def assert_equal(a: Any, b: Any) -> None:
    """Equality of records: same classes, bits of arrays, kinds of containers."""
    assert type(a) is type(b)
    if dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            assert_equal(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    elif isinstance(a, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_equal(a[key], b[key])
    else:
        assert a == b or (math.isnan(a) and math.isnan(b))


def entry(store: Store, key: str) -> Path:
    return store.root / "records" / f"{module.digest(key)}.json"


def test_what_is_put_is_got_back(store: Store) -> None:
    store.put("key", SAMPLE)
    assert_equal(store.get("key"), SAMPLE)
    assert store.has("key")


@pytest.mark.parametrize(
    "make", [fakes.model_card, fakes.self_test, fakes.residual_match, fakes.alignment]
)
def test_the_records_of_the_engine(make: Callable[[], Any], tmp_path: Path) -> None:
    record = make()
    assert type(record).__name__ in REGISTRY
    Store(tmp_path).put("key", record)
    assert_equal(Store(tmp_path).get("key"), record)


def test_an_absent_key(store: Store) -> None:
    assert store.get("key") is None
    assert not store.has("key")
    store.put("key", SAMPLE)
    assert store.get("other") is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.float64(1 / 3), float),
        (np.int64(3), int),
        (np.bool_(True), bool),
        (np.float32(0.5), float),
    ],
)
def test_scalars_of_numpy_become_plain(value: Any, kind: type, store: Store) -> None:
    store.put("key", dataclasses.replace(SAMPLE, number=value))
    got = store.get("key")
    assert type(got.number) is kind
    assert got.number == value


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e-320, 0.1, -0.0])
def test_floats_keep_every_bit(value: float, store: Store) -> None:
    store.put("key", dataclasses.replace(SAMPLE, number=value))
    got = store.get("key").number
    assert repr(got) == repr(value)


def test_arrays_are_mapped_and_read_only(store: Store) -> None:
    large = np.arange(5000.0)
    store.put("key", dataclasses.replace(SAMPLE, either=Inner(large)))
    got = store.get("key").either.values
    assert isinstance(got.base, np.memmap) or isinstance(got, np.memmap)
    assert type(got) is np.ndarray
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1.0
    assert np.array_equal(got, large)


@pytest.mark.parametrize("maps", [True, False])
@pytest.mark.parametrize("shape", [(0, 4), (), (3,)])
def test_arrays_are_read_only_whether_a_file_can_be_mapped_or_not(
    shape: tuple[int, ...], maps: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = np.load

    def some(path: Path, mmap_mode: Any = None, **how: Any) -> np.ndarray:
        if mmap_mode and not maps:
            raise ValueError("cannot be mapped")
        return load(path, mmap_mode=mmap_mode, **how)

    monkeypatch.setattr(np, "load", some)
    store.put("key", dataclasses.replace(SAMPLE, either=Inner(np.full(shape, 2.5))))
    got = store.get("key").either.values
    assert got.tolist() == np.full(shape, 2.5).tolist() and got.shape == shape
    assert not got.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        got[...] = 1.0


@pytest.mark.parametrize("array", [np.array(2.5), np.asfortranarray(np.eye(3)), np.arange(9)[::2]])
def test_arrays_of_every_layout(array: np.ndarray, store: Store) -> None:
    store.put("key", dataclasses.replace(SAMPLE, either=Inner(array)))
    got = store.get("key").either.values
    assert got.shape == array.shape
    assert np.array_equal(got, array)


def test_a_new_record_replaces_the_old(store: Store) -> None:
    store.put("key", SAMPLE)
    old = store.get("key")
    new = dataclasses.replace(SAMPLE, count=8, nested=(Inner(np.ones(3)),))
    store.put("key", new)
    assert_equal(store.get("key"), new)
    assert_equal(old, SAMPLE)  # what is open stays readable
    folders = [p for p in (store.root / "records").iterdir() if p.is_dir()]
    assert len(folders) == 1


def test_a_record_without_arrays_needs_no_folder(store: Store) -> None:
    bare = dataclasses.replace(SAMPLE, nested=(), by_name={}, either=None)
    store.put("key", bare)
    assert_equal(store.get("key"), bare)
    assert [p.suffix for p in (store.root / "records").iterdir()] == [".json"]


def test_shipped_results_are_read_and_never_written(store: Store, tmp_path: Path) -> None:
    store.put("key", SAMPLE)
    before = sorted(store.root.rglob("*"))
    mine = Store(tmp_path / "mine", shipped=(store.root,), registry=store.registry)
    assert_equal(mine.get("key"), SAMPLE)
    assert not mine.root.exists()
    mine.put("key", dataclasses.replace(SAMPLE, count=1))
    assert mine.get("key").count == 1
    assert store.get("key").count == SAMPLE.count
    assert sorted(store.root.rglob("*")) == before


# What counts as absent


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        '{"key": "key"}',
        '{"key": "another", "value": 1}',
        '{"key": "key", "value": {"$record": "Unknown", "fields": {}}}',
        '{"key": "key", "value": {"$record": "Inner", "fields": {"nonsense": 1}}}',
        '{"key": "key", "value": {"$record": "Inner", "fields": []}}',
        '{"key": "key", "value": {"$array": 0}}',
        '{"key": "key", "arrays": "../../elsewhere", "value": {"$array": 0}}',
        '{"key": "key", "value": {"$array": "../0"}}',
        '{"key": "key", "value": {"other": 0}}',
        "[" * 100_000,
    ],
)
def test_an_unreadable_entry_is_absent(text: str, store: Store) -> None:
    store.put("key", SAMPLE)
    entry(store, "key").write_text(text, encoding="utf-8")
    assert store.get("key") is None
    store.put("key", SAMPLE)
    assert_equal(store.get("key"), SAMPLE)


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPY", b"cut"])
def test_an_entry_with_a_damaged_array_is_absent(content: bytes | None, store: Store) -> None:
    store.put("key", SAMPLE)
    array = next(store.root.rglob("0.npy"))
    if content == b"cut":
        array.write_bytes(array.read_bytes()[:-1])
    elif content is None:
        array.unlink()
    else:
        array.write_bytes(content)
    assert store.get("key") is None
    assert not store.has("key")


def test_pickled_arrays_are_neither_written_nor_read(store: Store) -> None:
    with pytest.raises(ValueError, match="pickle"):
        store.put("key", dataclasses.replace(SAMPLE, either=Inner(np.array([{}, None]))))
    assert list((store.root / "records").iterdir()) == []
    store.put("key", SAMPLE)
    np.save(next(store.root.rglob("0.npy")), np.array([{}, None]), allow_pickle=True)
    assert store.get("key") is None


def test_an_interrupted_write_leaves_the_old_record(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("key", SAMPLE)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.put("key", dataclasses.replace(SAMPLE, count=1))
    assert_equal(store.get("key"), SAMPLE)
    assert len(list((store.root / "records").iterdir())) == 2  # the JSON and its arrays


# What cannot be kept


def test_unknown_values_are_an_error(store: Store) -> None:
    with pytest.raises(TypeError, match=r"The store holds no object: it knows Inner, Outer\."):
        store.put("key", dataclasses.replace(SAMPLE, title=object()))
    with pytest.raises(TypeError, match="The store holds no set"):
        store.put("key", dataclasses.replace(SAMPLE, plain={1}))


def test_two_classes_of_one_name_are_an_error(tmp_path: Path) -> None:
    def other() -> type:
        @dataclass(frozen=True)
        class Inner:
            x: int

        return Inner

    with pytest.raises(TypeError, match="Two record classes are called Inner"):
        Store(tmp_path, registry={"a": Inner, "b": other()}).put("key", SAMPLE)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "results", registry={"Outer": Outer})
    assert store.get("key") is None
    with pytest.raises(Refused) as caught:
        store.put("key", SAMPLE)
    assert "cannot be written (Not a directory)" in str(caught.value)
    assert "set GAUGESCOPE_STORE to a folder that can" in str(caught.value)


# Many writers


def write_many(root: Path, writer: int) -> int:
    """Write one key twenty times; how many reads in between found no whole record."""
    store = Store(root, registry={"Outer": Outer})
    torn = 0
    for turn in range(20):
        array = np.full(2000, writer * 100 + turn)
        store.put("key", dataclasses.replace(SAMPLE, nested=(Inner(array), Inner(array))))
        got = store.get("key")
        torn += got is not None and not np.array_equal(got.nested[0].values, got.nested[1].values)
    return torn


def test_concurrent_writers_never_mix(store: Store) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        torn = list(pool.map(write_many, [store.root] * 2, range(2)))
    assert torn == [0, 0]
    assert store.has("key")
    folders = [p for p in (store.root / "records").iterdir() if p.is_dir()]
    assert not [p for p in folders if p.name.startswith(".")]


# Where


def test_the_default_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    assert default_root() == tmp_path
    assert Store(default_root()).models == tmp_path / "models"
    monkeypatch.delenv(ENVIRONMENT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_root().name == "gaugescope"


def test_the_store_imports_no_torch() -> None:
    script = "import sys, engine.store; sys.exit('torch' in sys.modules)"
    root = Path(module.__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", script], cwd=root, check=False)
    assert done.returncode == 0
