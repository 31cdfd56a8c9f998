"""All texts of a value at once: nothing that could hide a secret is left out; what is no plain JSON is not given."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from golem_forge.events.redaction import joined_texts

CANARY = "canary-7f3e9a"


class _Named(StrEnum):
    ONE = CANARY


@pytest.mark.parametrize(
    "value",
    [
        CANARY,
        {"kind": "json", "data": {"deep": [1, {"er": [None, [f"a {CANARY} b"]]}]}},
        {"kind": "json", CANARY: True},
        [{"a": 1.5}, {"b": {CANARY: {}}}],
    ],
)
def test_a_text_at_any_place_is_in_it(value: Any) -> None:
    assert CANARY in (joined_texts(None, value, {"other": "x"}) or "")


def test_two_texts_never_run_together() -> None:
    assert CANARY not in (joined_texts([CANARY[:6], CANARY[6:]], {CANARY[:6]: CANARY[6:]}) or CANARY)


def _within_itself() -> Any:
    around: list[Any] = []
    around.append({"again": around})
    return around


@pytest.mark.parametrize(
    "value",
    [
        (CANARY,),
        {1: CANARY},
        {_Named.ONE: 1},
        _Named.ONE,
        b"bytes",
        object(),
        float("nan"),
        float("-inf"),
        1 << 63,
        "x" * 4097,
        {"x" * 4097: 1},
        [0] * 4097,
        _within_itself(),
    ],
)
def test_what_is_much_deep_or_no_plain_json_is_looked_at_by_itself(value: Any) -> None:
    assert joined_texts(value) is None
    assert joined_texts({"member": [value]}) is None
