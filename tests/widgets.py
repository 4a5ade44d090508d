"""A stand-in for streamlit: what code asks the user and puts on a page, without a page."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import pytest
import streamlit as st


@dataclass(frozen=True)
class Widget:
    """A control: what it offers, where it starts, and what else was said of it."""

    offered: Any
    start: Any
    more: dict[str, Any]


@dataclass
class Page:
    """What stands on a page; a control says what its key holds, or the link, or its start.

    A second control of one label has its key behind it.
    """

    held: dict[str, Any] = field(default_factory=dict)
    link: dict[str, Any] = field(default_factory=dict)
    widgets: dict[str, Widget] = field(default_factory=dict)
    buttons: dict[str, dict[str, Any]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    tables: list[Any] = field(default_factory=list)
    charts: dict[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, tuple[Any, Any]]:
        """Every control by its label: what it offers, and where it starts."""
        return {label: (one.offered, one.start) for label, one in self.widgets.items()}

    def about(self, label: str) -> str:
        """The help of a control."""
        return self.widgets[label].more["help"]

    def control(self, label: str, offered: Any, start: Any, more: dict[str, Any]) -> Any:
        key = more.get("key", label)
        if label in self.widgets and self.widgets[label].more.get("key", label) != key:
            label = f"{label} ({key})"
        self.widgets[label] = Widget(offered, start, more)
        return self.held.setdefault(key, self.link.get(key, start))

    def selectbox(
        self, label: str, options: Iterable[Any], index: int | None = 0, **more: Any
    ) -> Any:
        offered = list(options)
        start = offered[index] if offered and index is not None else None
        return self.control(label, offered, start, more)

    def segmented_control(
        self, label: str, options: Iterable[Any], default: Any = None, **more: Any
    ) -> Any:
        return self.control(label, list(options), default, more)

    def multiselect(
        self, label: str, options: Iterable[Any], default: Any = (), **more: Any
    ) -> Any:
        return self.control(label, list(options), list(default), more)

    def select_slider(
        self, label: str, options: Iterable[Any], value: Any = None, **more: Any
    ) -> Any:
        offered = list(options)
        return self.control(label, offered, offered[0] if value is None else value, more)

    def slider(self, label: str, low: Any, high: Any, value: Any, *rest: Any, **more: Any) -> Any:
        return self.control(label, (low, high, *rest), value, more)

    number_input = slider

    def text_input(self, label: str, value: str = "", **more: Any) -> Any:
        return self.control(label, str, value, more)

    def toggle(self, label: str, value: bool = False, **more: Any) -> Any:
        return self.control(label, bool, value, more)

    def button(self, label: str, **more: Any) -> bool:
        self.buttons[label] = more
        return False

    def download_button(self, label: str, data: Any, **more: Any) -> bool:
        return self.button(label, data=data, **more)

    def write(self, text: Any, *_: Any, **__: Any) -> None:
        self.said.append(str(text).replace("\\", ""))

    def dataframe(self, table: Any, **_: Any) -> None:
        self.tables.append(getattr(table, "data", table))

    def chart(self, drawn: Any, *, key: str = "", **_: Any) -> None:
        self.charts[key] = drawn

    def place(self, *_: Any, **__: Any) -> "Place":
        return Place(self)

    def columns(self, count: Any, **_: Any) -> list["Place"]:
        return [Place(self) for _ in range(count if isinstance(count, int) else len(count))]

    def named(self, text: str, *_: Any, **__: Any) -> "Place":
        self.write(text)
        return Place(self)

    def functions(self) -> dict[str, Any]:
        """What streamlit offers, by name."""
        asking = (
            "selectbox", "segmented_control", "multiselect", "select_slider", "slider",
            "number_input", "text_input", "toggle", "button", "download_button", "dataframe",
            "columns",
        )  # fmt: skip
        writing = ("title", "header", "subheader", "markdown", "caption", "text", "badge", "code")
        return {
            **{name: getattr(self, name) for name in asking},
            **dict.fromkeys(writing, self.write),
            **dict.fromkeys(("text_area", "file_uploader"), self.text_input),
            **dict.fromkeys(("altair_chart", "plotly_chart"), self.chart),
            **dict.fromkeys(("container", "spinner"), self.place),
            **dict.fromkeys(("popover", "expander"), self.named),
        }


@dataclass(frozen=True)
class Place:
    """A container, a column or a popover of a page."""

    page: Page

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return self.page.functions()[name]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    """The stand-in in streamlit's place."""
    found = Page()
    for name, function in found.functions().items():
        monkeypatch.setattr(st, name, function)
    monkeypatch.setattr(st, "session_state", found.held)
    monkeypatch.setattr(st, "query_params", found.link)
    monkeypatch.setattr(st, "context", SimpleNamespace(theme=SimpleNamespace(type="light")))
    return found
