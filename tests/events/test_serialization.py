"""Values as JSON text: the same bytes with and without the library that is loaded for many of them."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest
from pydantic_core import to_json

from golem_forge.events.serialization import _encode_plain, _is_plain

VALUES: list[Any] = [
    *(None, True, 0, -1, 2**53, 0.0, -0.0, 0.1 + 0.2, 1e-4, 123456789012345.6, 999999999999999.9),
    *("", 'a\n\t\b\f\r\x1f\x7f"\\/', "é€\u2028\ufeff😀", ["x", [], {}], {"a": {"b": [1, 2.5, None]}, "": "ü"}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_are_written_alike(value: Any) -> None:
    assert _is_plain(value)
    assert _encode_plain(value).encode() == to_json(value, inf_nan_mode="strings")


def test_random_numbers_are_written_alike() -> None:
    chance = random.Random(5)
    for _ in range(20_000):
        value = chance.choice((-1, 1)) * chance.random() * 10 ** chance.randrange(-7, 18)
        if _is_plain(value):
            assert _encode_plain(value).encode() == to_json(value)


@pytest.mark.parametrize(
    "value",
    [1e-5, 1e16, float("nan"), 2**54, ("a",), {1: 2}, {"a": b"x"}, object(), {"a": {2}}],
    ids=lambda value: type(value).__name__,
)
def test_what_the_two_would_write_differently_is_not_plain(value: Any) -> None:
    assert not _is_plain(value)


def test_the_library_is_loaded_for_what_is_not_plain_and_for_many() -> None:
    code = (
        "import sys; from golem_forge.events.serialization import encode_json as encode; "
        "few = [encode({'n': number}) for number in range(50)], 'pydantic_core' in sys.modules; "
        "many = [encode({'n': number}) for number in range(100)], 'pydantic_core' in sys.modules; "
        "print(few[1], many[1], few[0] == many[0][:50])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
