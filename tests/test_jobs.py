"""Jobs: the state machine's laws, cancel, joining, failures in one line, taking turns, memory."""

import importlib.machinery
import logging
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import devices, jobs
from app.jobs import FINAL, KEPT, NEXT, Job, Jobs, advance, report
from engine.errors import Cancelled, Progress, Refused, Short, silent
from engine.questions import Question

WAIT = 20.0
STATES = list(NEXT)


class Kept:
    """A store in memory that says when something arrived."""

    def __init__(self) -> None:
        self.records: dict[str, Any] = {}

    def get(self, key: str) -> Any | None:
        return self.records.get(key)

    def put(self, key: str, record: Any) -> None:
        self.records[key] = record


@dataclass
class Ask:
    """A question whose answer is a function of its progress callback."""

    name: str
    work: Callable[[Progress], Any] = lambda progress: "answer"
    device: str = "cpu"
    runs: list[str] = field(default_factory=list)

    @cached_property
    def key(self) -> str:
        return self.name.ljust(32, "0")

    def answer(self, progress: Progress) -> Any:
        self.runs.append(self.name)
        return self.work(progress)


@dataclass
class Gate:
    """Work that reports, waits to be let through, and reports again."""

    entered: threading.Event = field(default_factory=threading.Event)
    leave: threading.Event = field(default_factory=threading.Event)

    def __call__(self, progress: Progress) -> str:
        progress(0.25, "first half")
        self.entered.set()
        assert self.leave.wait(WAIT)
        progress(0.75, "second half")
        return "answer"


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread, without a fixed sleep."""
    pause = threading.Event()
    for _ in range(int(WAIT / 0.005)):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it did not happen")


def ended(registry: Jobs, ask: "Ask | Asking") -> Job:
    """The job once it is over."""

    def over() -> bool:
        job = registry.look(ask.key)
        return job is not None and job.over

    until(over)
    job = registry.look(ask.key)
    assert job is not None
    return job


def run(ask: "Ask | Asking", kept: Kept | None = None) -> Job:
    registry = Jobs()
    registry.submit(ask, kept or Kept(), ask.key, ask.device)
    return ended(registry, ask)


@given(steps=st.lists(st.sampled_from(STATES), max_size=8))
def test_only_listed_moves_happen_and_terminal_states_are_final(steps: list[Any]):
    job = Job("k", "title", "cpu")
    for state in steps:
        moved = advance(job, state)
        assert moved.state == (state if state in NEXT[job.state] else job.state)
        if job.state in FINAL:
            assert moved is job
        job = moved


@given(shares=st.lists(st.floats(0, 2), min_size=1))
def test_progress_never_runs_backwards_and_ends_at_one(shares: list[float]):
    job = Job("k", "title", "cpu")
    for share in shares:
        later = report(job, share, "step")
        assert job.share <= later.share <= 1
        job = later


RUNNING = Job("k", "title", "cpu", state="running", started=10.0)


def test_time_left_is_proportional_and_none_while_it_is_a_guess():
    assert RUNNING.left(20.0) is None
    assert report(RUNNING, 0.09, "x", 20.0).left(20.0) is None
    assert report(RUNNING, 0.25, "x", 20.0).left(20.0) == pytest.approx(30.0)
    assert report(advance(RUNNING, "done"), 0.25, "x", 20.0).left(20.0) is None
    assert Job("k", "title", "cpu").left(1.0) is None


def test_no_time_is_told_while_a_job_stops():
    job = report(RUNNING, 0.25, "x", 20.0)
    assert job.left(20.0) is not None and advance(job, "cancelling").left(20.0) is None


def test_time_left_runs_down_between_reports_and_says_nothing_where_it_was_too_short():
    job = report(RUNNING, 0.25, "x", 20.0)
    assert [job.left(now) for now in (25.0, 35.0, 50.0, 60.0)] == [25.0, 15.0, None, None]
    assert report(job, 0.25, "the same share", 40.0).left(40.0) == pytest.approx(10.0)


@given(waits=st.lists(st.floats(0.8, 1.2), min_size=20, max_size=20))
def test_time_left_is_steady_while_the_speed_varies_by_a_fifth(waits: list[float]):
    job, now, told = RUNNING, 10.0, []
    for number, wait in enumerate(waits):
        now += wait
        job = report(job, (number + 1) / 20, "x", now)
        told.append((now, job.left(now)))
    ends = [now + left for now, left in told if left is not None]
    half = ends[: len(ends) // 2]
    assert all(one == pytest.approx(half[0]) for one in half)
    assert ends[0] == pytest.approx(now, rel=0.25)


def test_time_left_follows_work_that_becomes_much_slower():
    job = report(RUNNING, 0.5, "fast", 20.0)
    assert job.left(20.0) == pytest.approx(10.0)
    assert report(job, 0.6, "slow", 70.0).left(70.0) == pytest.approx(40.0)


def test_a_job_answers_its_question_and_keeps_the_record():
    kept, ask = Kept(), Ask("one")
    job = run(ask, kept)
    assert (job.state, job.share, job.message) == ("done", 1.0, "")
    assert kept.records == {ask.key: "answer"}


def test_progress_is_seen_while_it_runs():
    registry, gate = Jobs(), Gate()
    ask = Ask("one", gate)
    registry.submit(ask, Kept(), "One")
    assert gate.entered.wait(WAIT)
    job = registry.look(ask.key)
    assert job is not None
    assert (job.state, job.share, job.step, job.title) == ("running", 0.25, "first half", "One")
    gate.leave.set()
    assert ended(registry, ask).state == "done"


def test_the_same_question_asked_twice_joins_the_running_job():
    registry, gate = Jobs(), Gate()
    ask = Ask("one", gate)
    first = registry.submit(ask, Kept(), "One")
    again = registry.submit(Ask("one", gate, runs=ask.runs), Kept(), "One")
    assert again.id == first.id
    gate.leave.set()
    ended(registry, ask)
    assert ask.runs == ["one"]
    assert len(registry.all()) == 1


def test_a_question_asked_after_a_failure_is_tried_again():
    registry, kept = Jobs(), Kept()
    failing = Ask("one", refuses("no"))
    registry.submit(failing, kept, "One")
    assert ended(registry, failing).state == "failed"
    registry.submit(Ask("one"), kept, "One")
    until(lambda: kept.get(failing.key) == "answer")


def refuses(text: str) -> Callable[[Progress], Any]:
    def work(progress: Progress) -> Any:
        raise Refused(text)

    return work


def test_a_refusal_is_shown_as_it_is(caplog: pytest.LogCaptureFixture):
    line = "model_a: width is 96, B has 128: choose *equal* widths."
    job = run(Ask("one", refuses(line)))
    assert (job.state, job.message) == ("failed", line)
    assert not caplog.records


def test_another_error_is_one_line_with_its_traceback_in_the_log_only(
    caplog: pytest.LogCaptureFixture,
):
    def work(progress: Progress) -> Any:
        raise ValueError("the first line\nand a second")

    job = run(Ask("one", work))
    assert (job.state, job.message) == ("failed", "ValueError: the first line")
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].levelno == logging.ERROR


def test_an_error_without_a_message_is_named():
    assert jobs.line(KeyError()) == "KeyError"


@dataclass(frozen=True)
class Asking(Question):
    """A question of the engine: its key holds all that its answer depends on."""

    error: Exception

    @cached_property
    def key(self) -> str:
        return "asking"

    @property
    def device(self) -> str:
        return "cpu"

    def answer(self, progress: Progress = silent) -> Any:
        raise self.error


def caused(refusal: Refused, cause: Exception) -> Refused:
    refusal.__cause__ = cause
    return refusal


@pytest.mark.parametrize(
    ("error", "lasting"),
    [
        (Refused("one layer: there are no pairs"), True),
        (caused(Refused("no JSON"), ValueError("line 1")), True),
        (caused(Refused("cannot be read"), OSError(5, "Input/output error")), False),
        (caused(Refused("not downloaded"), ConnectionError("no route")), False),
        (Short("needs 80 GiB, 3 are free"), False),
        (MemoryError("80 GB"), False),
        (ValueError("unexpected"), False),
        (Cancelled(), False),
    ],
    ids=str,
)
def test_only_a_refusal_that_nothing_outside_can_change_is_lasting(error, lasting: bool):
    job = run(Asking(error))
    assert job.state == ("cancelled" if isinstance(error, Cancelled) else "failed")
    assert job.lasting is lasting


def test_what_opens_or_writes_files_may_always_be_tried_again():
    job = run(Ask("one", refuses("model.gguf is cut short: copy it again.")))
    assert (job.state, job.lasting) == ("failed", False)


def test_a_record_that_cannot_be_kept_fails_the_job():
    class Full(Kept):
        def put(self, key: str, record: Any) -> None:
            raise Refused("The results store is full.")

    assert run(Ask("one"), Full()).message == "The results store is full."


def test_a_running_job_is_cancelled_at_its_next_report_and_keeps_nothing():
    registry, gate, kept = Jobs(), Gate(), Kept()
    ask = Ask("one", gate)
    registry.submit(ask, kept, "One")
    assert gate.entered.wait(WAIT)
    registry.cancel(ask.key)
    job = registry.look(ask.key)
    assert job is not None
    assert job.state == "cancelling"
    gate.leave.set()
    assert ended(registry, ask).state == "cancelled"
    assert not kept.records


def test_work_that_ends_before_it_sees_the_cancel_is_done():
    registry, kept = Jobs(), Kept()
    entered, leave = threading.Event(), threading.Event()

    def work(progress: Progress) -> str:
        entered.set()
        assert leave.wait(WAIT)
        return "answer"

    ask = Ask("one", work)
    registry.submit(ask, kept, "One")
    assert entered.wait(WAIT)
    registry.cancel(ask.key)
    leave.set()
    assert ended(registry, ask).state == "done"
    assert kept.get(ask.key) == "answer"


def test_a_queued_job_is_cancelled_at_once_and_never_runs():
    registry, gate = Jobs(), Gate()
    first, second = Ask("one", gate), Ask("two")
    registry.submit(first, Kept(), "One", "cpu")
    assert gate.entered.wait(WAIT)
    registry.submit(second, Kept(), "Two", "cpu")
    registry.cancel(second.key)
    assert ended(registry, second).state == "cancelled"
    gate.leave.set()
    ended(registry, first)
    assert second.runs == []


def test_jobs_of_one_device_take_turns_and_know_their_place():
    registry, gate = Jobs(), Gate()
    asks = [Ask("one", gate), Ask("two"), Ask("three")]
    places = [registry.submit(ask, Kept(), ask.name, "cpu").place for ask in asks]
    assert places == [0, 1, 2]
    assert gate.entered.wait(WAIT)
    assert [job.state for job in registry.all()] == ["running", "queued", "queued"]
    gate.leave.set()
    assert ended(registry, asks[2]).state == "done"


def test_jobs_of_two_devices_run_at_the_same_time():
    registry, first, second = Jobs(), Gate(), Gate()
    registry.submit(Ask("one", first), Kept(), "One", "cpu")
    registry.submit(Ask("two", second), Kept(), "Two", "cuda")
    assert first.entered.wait(WAIT)
    assert second.entered.wait(WAIT)
    first.leave.set()
    second.leave.set()
    until(lambda: all(job.over for job in registry.all()))


def test_a_job_is_found_by_its_key_and_by_the_id_of_a_link():
    registry, ask = Jobs(), Ask("one")
    registry.submit(ask, Kept(), "One")
    job = ended(registry, ask)
    assert registry.look(job.id) == job
    assert registry.look("unknown") is None
    registry.cancel("unknown")
    registry.cancel(ask.key)
    assert ended(registry, ask).state == "done"


def test_the_registry_is_bounded():
    registry = Jobs()
    asks = [Ask(f"{number:03}") for number in range(KEPT + 20)]
    for ask in asks:
        registry.submit(ask, Kept(), ask.name)
        ended(registry, ask)
    kept = asks[-(KEPT + 1) :]  # the last one was begun when so many had ended
    assert [job.key for job in registry.all()] == [ask.key for ask in kept]
    assert registry.look(asks[-KEPT - 2].key) is None


def test_an_ended_job_is_remembered_while_others_come():
    registry, asks = Jobs(), [Ask("one"), Ask("two", refuses("no")), Ask("three")]
    for ask in asks:
        registry.submit(ask, Kept(), ask.name)
        ended(registry, ask)
    assert [(job.key, job.state) for job in registry.all()] == [
        (asks[0].key, "done"), (asks[1].key, "failed"), (asks[2].key, "done")]  # fmt: skip


def test_out_of_memory_is_tried_once_more_and_then_told_with_numbers():
    def starving(progress: Progress) -> Any:
        raise MemoryError("wanted 80 GB")

    ask = Ask("one", starving)
    job = run(ask)
    assert ask.runs == ["one", "one"]
    assert job.state == "failed"
    assert job.message.startswith("Out of memory, twice: MemoryError: wanted 80 GB")
    assert "GB of main memory are free" in job.message


def test_out_of_memory_once_is_survived_and_the_next_job_works():
    def starving(progress: Progress) -> Any:
        if len(ask.runs) == 1:
            raise RuntimeError("CUDA error: out of memory")
        return "answer"

    ask = Ask("one", starving)
    assert run(ask).state == "done"
    assert run(Ask("two")).state == "done"


@pytest.mark.parametrize(
    ("error", "starved"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (type("OutOfMemoryError", (RuntimeError,), {})("x"), True),
        (RuntimeError("shapes differ"), False),
        (Cancelled(), False),
    ],
)
def test_memory_errors_are_recognised(error: Exception, starved: bool):
    assert jobs.out_of_memory(error) is starved


def test_many_threads_asking_and_cancelling_leave_every_job_over():
    registry, kept = Jobs(), Kept()
    asks = [Ask(f"{number:03}", device="cpu") for number in range(12)]

    def ask_for(ask: Ask) -> None:
        for _ in range(5):
            registry.submit(ask, kept, ask.name, ask.device)
            registry.cancel(ask.key)
            registry.submit(ask, kept, ask.name, ask.device)

    threads = [threading.Thread(target=ask_for, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    until(lambda: all(job.over for job in registry.all()))
    assert all(kept.get(ask.key) == "answer" for ask in asks)


def test_accelerators_are_offered_only_after_torch_was_imported():
    code = (
        "from app import devices; import sys; assert 'torch' not in sys.modules;"
        "print(devices.devices())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "('auto', 'cpu')"
    import torch

    assert ("cuda" in devices.devices()) == torch.cuda.is_available()


def test_a_torch_that_is_still_being_imported_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    half = types.ModuleType("torch")
    half.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", half)
    monkeypatch.setattr(half.__spec__, "_initializing", True, raising=False)
    assert devices.torch_ready() is None
    assert devices.devices() == ("auto", "cpu")
    jobs._free()


def test_auto_shares_the_lane_of_the_device_it_stands_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    assert devices.lane("auto") == "cuda"
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)
    monkeypatch.setattr(devices.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(devices.platform, "machine", lambda: "arm64")
    assert devices.lane("auto") == "mps"
    monkeypatch.setattr(devices.platform, "machine", lambda: "x86_64")
    assert devices.lane("auto") == "cpu"
    assert devices.lane("cuda:1") == "cuda:1"


def test_jobs_leave_a_core_to_the_server_unless_told_otherwise():
    code = "import os, app.jobs; print(os.environ['OMP_NUM_THREADS'])"
    plain = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    for told, expected in (({}, max(1, (os.cpu_count() or 1) - 1)), ({"OMP_NUM_THREADS": "5"}, 5)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=plain | told,
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) == expected
