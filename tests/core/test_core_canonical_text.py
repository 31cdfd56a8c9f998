"""The quick writer and json.dumps agree on every value there is."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.core.ids import new_id
from golem_forge.core.json import canonical
from golem_forge.core.text import count_control_chars, escape_control_chars, escape_control_chars_in_prose

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=25,
)


def _folded(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _folded(item) for key, item in value.items()}
    return [_folded(item) for item in value] if isinstance(value, list) else value


@given(_json)
def test_it_writes_what_json_dumps_writes(value: Any) -> None:
    plain = json.dumps(_folded(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    assert canonical(value) == plain


class Word(StrEnum):
    ONE = "one"


def test_subclasses_are_written_as_what_they_extend() -> None:
    assert canonical({"a": Word.ONE, "b": (1, True)}) == '{"a":"one","b":[1,true]}'


@table("value", [float("nan"), float("inf"), object(), b"x", {1, 2}])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        canonical({"x": value})


def test_ids_are_128_random_bits() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(one) == 32 and int(one, 16) >= 0 for one in ids)


@table(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\tb\n", "a\tb\n"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202eabc", "\\u202eabc"),
        ("z\u200bw", "z\\u200bw"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("''\ufe00\ufe0e", "''\\ufe00\\ufe0e"),
        ("x\ufe0f", "x\\ufe0f"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f\\ufe0f"),
        ("❤\ufe0f ✔\ufe0f 1\ufe0f\u20e3", "❤\ufe0f ✔\ufe0f 1\ufe0f\u20e3"),
        ("\U0001d173", "\\U0001d173"),
        ("é→😀", "é→😀"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_escaped(text: str, shown: str) -> None:
    assert escape_control_chars(text) == shown
    assert (count_control_chars(text) > 0) == (text != shown)


@table("emoji", ["👩\u200d👩", "🏳\ufe0f\u200d🌈", "👩🏽\u200d💻", "🐈\u200d⬛", "❤\ufe0f\u200d🔥"])
def test_a_joiner_stays_between_two_emoji_in_prose_and_nowhere_else(emoji: str) -> None:
    assert escape_control_chars_in_prose(f"So {emoji}!") == f"So {emoji}!"
    assert escape_control_chars(emoji) == emoji.replace("\u200d", "\\u200d")
    for hiding in (
        f"{emoji}\u200d",
        f"\u200d{emoji}",
        "rm\u200d -rf",
        "a\u200d👩",
        "👩\u200da",
        "👩\u200d\u200d👩",
        "👩\ufe0f",
    ):
        left = escape_control_chars_in_prose(hiding).replace(emoji, "")
        assert "\u200d" not in left, hiding


@given(st.text())
def test_prose_escapes_all_that_text_does_but_joiners(text: str) -> None:
    assert escape_control_chars_in_prose(text).replace("\u200d", "\\u200d") == escape_control_chars(text)
