"""Engine work in the background: one job per device at a time, progress, cancel, time left.

A job is a frozen value that moves queued → running → cancelling → done | cancelled | failed; the
last three are final. The registry replaces values under a lock, so a reader gets a consistent
snapshot. Nothing here knows the page.
"""

import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import psutil

from app.devices import lane, torch_ready
from engine.errors import Cancelled, Progress, Refused, Short, out_of_memory
from engine.questions import Question

State = Literal["queued", "running", "cancelling", "done", "cancelled", "failed"]
FINAL: frozenset[State] = frozenset({"done", "cancelled", "failed"})
NEXT: dict[State, frozenset[State]] = {
    "queued": frozenset({"running", "cancelled"}),
    "running": frozenset({"cancelling", "done", "failed", "cancelled"}),
    "cancelling": FINAL,
    "done": frozenset(),
    "cancelled": frozenset(),
    "failed": frozenset(),
}
ENOUGH, STEADY = 0.1, 1.5
"""The share of the work before which no end is told, and how far off one is before it changes."""
KEPT = 64
"""Ended jobs that the registry remembers."""

# Torch reads it when the first job imports it: one core stays with the server and the browser.
os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) - 1)))

log = logging.getLogger(__name__)


class Asked(Protocol):
    """What a job answers: a question of the engine, or one of the app's own."""

    @cached_property
    def key(self) -> str: ...
    @property
    def device(self) -> str: ...
    def answer(self, progress: Progress) -> Any: ...


class Keeps(Protocol):
    """Where a job puts its answer, and where a page finds it."""

    def get(self, key: str) -> Any | None: ...
    def put(self, key: str, record: Any) -> None: ...


@dataclass(frozen=True)
class Job:
    """One piece of work as it stands."""

    key: str
    title: str
    lane: str
    state: State = "queued"
    share: float = 0.0
    step: str = ""
    message: str = ""
    lasting: bool = False  # the same question would be refused again
    place: int = 0  # jobs of the lane before this one
    started: float | None = None
    expected: float | None = None  # when it will end; None while that is a guess
    ended: float | None = None

    @property
    def id(self) -> str:
        """What a link carries."""
        return self.key[:16]

    @property
    def over(self) -> bool:
        return self.state in FINAL

    def left(self, now: float) -> float | None:
        """Seconds left of running work; None while that is a guess, and where it takes longer."""
        if self.state != "running" or self.expected is None or self.expected <= now:
            return None
        return self.expected - now


def advance(job: Job, state: State, **changes: Any) -> Job:
    """The job in its next state; a move that `NEXT` does not list leaves it as it is."""
    return replace(job, state=state, **changes) if state in NEXT[job.state] else job


def report(job: Job, share: float, step: str, now: float | None = None) -> Job:
    """The job with progress that never runs backwards, and at a time of the clock a new end."""
    most = max(job.share, min(1.0, share))
    expected = job.expected if now is None or most == job.share else end(job, most, now)
    return replace(job, share=most, step=step, expected=expected)


def end(job: Job, share: float, now: float) -> float | None:
    """When the work ends at its mean speed; as said before, unless that is off by `STEADY`."""
    if job.started is None or share < ENOUGH:
        return None
    left = (now - job.started) * (1 - share) / share
    if job.expected is not None and left / STEADY <= job.expected - now <= left * STEADY:
        return job.expected
    return now + left


def unfinished(key: str) -> str:
    """Where the partial answer to a question is kept."""
    return f"{key}.unfinished"


@dataclass(frozen=True)
class _Order:
    question: Asked
    keeps: Keeps
    stop: threading.Event


class Jobs:
    """The registry: submit, look, cancel; one worker thread per busy lane."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._orders: dict[str, _Order] = {}
        self._queues: dict[str, list[str]] = {}
        self._busy: set[str] = set()

    def submit(self, question: Asked, keeps: Keeps, title: str, device: str = "auto") -> Job:
        """Queue a question; one that is already queued or running is joined, not repeated."""
        key, where = question.key, lane(device)
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and not job.over:
                return self._placed(job)
            self._jobs.pop(key, None)
            self._jobs[key] = job = Job(key, title, where)
            self._orders[key] = _Order(question, keeps, threading.Event())
            idle = where not in self._busy
            self._busy.add(where)
            self._queues.setdefault(where, []).append(key)
            self._prune()
            placed = self._placed(job)
        if idle:
            threading.Thread(target=self._serve, args=(where,), daemon=True, name=where).start()
        return placed

    def cancel(self, key: str) -> None:
        """Ask a job to stop: at once when queued, at its next report when running."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None or job.over:
                return
            self._orders[key].stop.set()
            if job.state == "queued":
                self._queues[job.lane].remove(key)
                self._end(job, _End("cancelled"))
            else:
                self._jobs[key] = advance(job, "cancelling")

    def look(self, key: str) -> Job | None:
        """The job of a question's key or of a link's id, as it stands now."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = next((j for j in self._jobs.values() if j.id == key), None)
            return None if job is None else self._placed(job)

    def all(self) -> tuple[Job, ...]:
        """Every remembered job, the oldest first."""
        with self._lock:
            return tuple(self._placed(job) for job in self._jobs.values())

    def now(self) -> float:
        """The registry's clock."""
        return self._clock()

    def _placed(self, job: Job) -> Job:
        queue = self._queues.get(job.lane, [])
        return replace(job, place=queue.index(job.key)) if job.key in queue else job

    def _serve(self, where: str) -> None:
        """Work through one lane until it is empty; the running job stays first in its queue."""
        while (key := self._begin(where)) is not None:
            order = self._orders[key]
            end = _outcome(order, self._progress(key, order))
            with self._lock:
                self._queues[where].remove(key)
                self._end(self._jobs[key], end)

    def _begin(self, where: str) -> str | None:
        """Start the lane's first job; None, and the lane is idle, when there is none."""
        with self._lock:
            key = next(iter(self._queues[where]), None)
            if key is None:
                self._busy.discard(where)
            else:
                self._jobs[key] = advance(self._jobs[key], "running", started=self._clock())
            return key

    def _progress(self, key: str, order: _Order) -> Progress:
        def progress(share: float, step: str, partial: Any = None, /) -> None:
            if partial is not None:
                order.keeps.put(unfinished(key), partial)
            if order.stop.is_set():
                raise Cancelled
            with self._lock:
                self._jobs[key] = report(self._jobs[key], share, step, self._clock())

        return progress

    def _end(self, job: Job, end: "_End") -> None:
        share = 1.0 if end.state == "done" else job.share
        told = {"message": end.message, "lasting": end.lasting}
        ended = advance(job, end.state, share=share, ended=self._clock(), **told)
        self._jobs[job.key] = ended
        self._orders.pop(job.key, None)

    def _prune(self) -> None:
        over = [key for key, job in self._jobs.items() if job.over]
        for key in over[: max(0, len(over) - KEPT)]:
            del self._jobs[key]


@dataclass(frozen=True)
class _End:
    """How a try ended."""

    state: State
    message: str = ""
    lasting: bool = False
    starved: bool = False  # memory was what stopped it


def _outcome(order: _Order, progress: Progress) -> _End:
    """How the work ended, trying once more after memory ran out and was freed."""
    end = _attempt(order, progress)
    if not end.starved:
        return end
    _free()
    end = _attempt(order, progress)
    if end.starved:
        _free()
        free = psutil.virtual_memory().available / 1e9
        message = (
            f"Out of memory, twice: {end.message} {free:.1f} GB of main memory are free now. Use "
            "fewer tokens, a smaller model or another device."
        )
        return replace(end, message=message)
    return end


def _attempt(order: _Order, progress: Progress) -> _End:
    """One try."""
    try:
        order.keeps.put(order.question.key, order.question.answer(progress))
    except Cancelled:
        return _End("cancelled")
    except Refused as refusal:
        return _End("failed", str(refusal), lasting=_lasts(order.question, refusal))
    except Exception as error:
        starved = out_of_memory(error)
        log.log(logging.WARNING if starved else logging.ERROR, "A job failed.", exc_info=error)
        return _End("failed", line(error), starved=starved)
    return _End("done")


def _lasts(asked: Asked, refusal: Refused) -> bool:
    """Whether the same would be refused again: not for want of memory, nor where a file failed.

    All that the answer to a question depends on is in its key. What the app asks beside them opens
    and writes files, which change.
    """
    passing = isinstance(refusal, Short) or isinstance(refusal.__cause__, OSError)
    return isinstance(asked, Question) and not passing


def line(error: BaseException) -> str:
    """An unexpected error in one line: its kind and the first line of its message."""
    first = str(error).strip().splitlines()
    return f"{type(error).__name__}: {first[0]}" if first else type(error).__name__


def _free() -> None:
    """Return what the failed try left behind; called outside the except block that held it."""
    gc.collect()
    torch = torch_ready()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
