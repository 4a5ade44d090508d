"""What a session holds: what a link asked for, what stands in its place, which jobs it follows."""

from types import SimpleNamespace
from typing import Any

import pytest

from app import session


class Address(dict[str, list[str]]):
    """The words after the question mark, as the server gives them: each name has several."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name)[-1]

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, [default])[-1]

    def get_all(self, name: str) -> list[str]:
        return super().__getitem__(name)

    def __setitem__(self, name: str, said: str | list[str]) -> None:
        super().__setitem__(name, said if isinstance(said, list) else [said])

    def update(self, more: Any) -> None:
        for name, said in more.items():
            self[name] = said


class Again(Exception):
    """The run begins anew."""


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A session with nothing in it, at an address that says nothing."""

    def rerun() -> None:
        raise Again

    found = SimpleNamespace(session_state={}, query_params=Address(), rerun=rerun)
    monkeypatch.setattr(session, "st", found)
    return found


def asked(page: SimpleNamespace, **said: str | list[str]) -> None:
    """A link is followed: the run begins with its words."""
    page.query_params.update(said)
    session.hold()


def test_what_a_control_takes_in_place_of_a_word_is_told_until_it_is_moved(page) -> None:
    asked(page, layer="7", cost="rotary")
    assert session.replaced() == {}
    page.session_state |= {"layer": 3, "cost": "rotary"}
    session.settle()
    assert session.replaced() == {"layer": (["7"], 3)}
    session.settle()
    assert session.replaced() == {"layer": (["7"], 3)}
    page.session_state["layer"] = 4
    session.settle()
    assert session.replaced() == {}


def test_what_was_replaced_on_another_page_is_no_news(page) -> None:
    session.arrive("Layers")
    asked(page, layer="7")
    page.session_state["layer"] = 3
    session.settle()
    session.arrive("Layers")
    assert session.replaced() == {"layer": (["7"], 3)}
    session.arrive("Heads")
    assert session.replaced() == {}


def test_a_control_that_is_gone_takes_nothing_back(page) -> None:
    asked(page, layer="7")
    page.session_state["layer"] = 3
    session.settle()
    del page.session_state["layer"]
    session.settle()
    assert session.replaced() == {"layer": (["7"], 3)}


@pytest.mark.parametrize(
    ("said", "found", "same"),
    [
        (["3"], 3, True), (["3"], 3.0, True), (["0.50"], 0.5, True), (["3"], 4, False),
        (["True"], True, True), (["true"], True, True), (["1"], True, False), ([""], None, True),
        (["Rotary"], "rotary", True), (["b", "a"], ["a", "b"], True), (["a"], ["a", "b"], False),
        (["a", "a"], ["a"], False), (["1", "2"], (2.0, 1.0), True),
    ],
)  # fmt: skip
def test_words_of_an_address_are_compared_by_what_they_mean(said, found, same: bool) -> None:
    assert session._says(said, found) is same


def test_a_word_that_no_control_took_yet_stays_in_the_address(page) -> None:
    asked(page, layer="7", job="abc")
    assert page.session_state[session.HELD] == {"layer": ["7"]}
    page.query_params.clear()
    with pytest.raises(Again):
        session.hold()
    assert page.query_params == {"layer": ["7"]}
    page.session_state["layer"] = 7
    page.query_params.clear()
    session.hold()
    assert page.query_params == {} and page.session_state[session.HELD] == {}


def test_a_value_is_that_of_the_session_before_that_of_the_address(page) -> None:
    page.query_params["layer"] = "7"
    assert session.value("layer") == "7" and session.value("head") is None
    session.assign(layer=3)
    assert session.value("layer") == 3
    session.within("layer", [1, 2], 2)
    assert session.value("layer") == 2
    session.within("layer", [2, 5])
    assert session.value("layer") == 2
    session.within("layer", [5, 1])
    assert session.value("layer") == 5
    session.within("layer", [])
    session.within("head", [1])
    assert session.value("layer") == 5 and session.value("head") is None


def test_another_word_for_a_choice_is_nothing_that_was_replaced(page) -> None:
    asked(page, method="old")
    session.translate("method", "new")
    session.settle()
    assert page.session_state["method"] == "new" and session.replaced() == {}


def test_choices_of_the_frame_are_kept_where_the_address_lost_them(page) -> None:
    session.keep({"a": "demo:base", "b": "demo:twin"})
    assert page.session_state == {"a": "demo:base", "b": "demo:twin"}
    assert page.query_params == {"a": ["demo:base"], "b": ["demo:twin"]}
    page.session_state["b"] = "mine"
    page.query_params.clear()
    session.keep({"a": "demo:base", "b": "demo:twin"})
    assert page.session_state == {"a": "demo:base", "b": "mine"} and page.query_params == {}
    page.query_params["a"] = "asked"
    page.session_state["a"] = "asked"
    session.keep({"a": "demo:base"})
    assert page.session_state["a"] == "asked"


def test_jobs_are_followed_once_in_their_order_and_forgotten(page) -> None:
    for key in ("one", "two", "one"):
        session.follow(key, key[:2])
    assert session.started() == ["one", "two"]
    assert page.query_params == {"job": ["on"]}
    session.forget(["two"])
    assert session.started() == ["one"] and page.query_params == {"job": ["on"]}
    session.forget(["one"])
    assert session.started() == [] and page.query_params == {}


def test_texts_are_listed_the_latest_first(page) -> None:
    for name in ("one", "two", "one"):
        session.bring(name)
    assert session.texts() == ["one", "two"]


def test_keys_of_widgets_say_whether_a_link_carries_them(page) -> None:
    assert session.linked("layer") == {"key": "layer", "bind": "query-params"}
    assert session.private("device") == {"key": "device", "persist_state": "session"}
    assert session.local("use", "A", 3) == "use:A:3"
