"""The functions every contestant offers as tools: `add`, async and sync, and any number of fresh ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

ARGS: Final = {"a": 40_000, "b": 2_123}
ANSWER: Final = "42123"
"""Rare enough that finding it in a result means the tool ran with these arguments."""

Function = Callable[..., Any]


async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def add_sync(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def args_of_turn(turn: int) -> dict[str, Any]:
    """Other ones each turn: a model that repeats itself is stopped. Turn 0 has those whose sum is ANSWER."""
    return {"a": ARGS["a"] + turn, "b": ARGS["b"]}


KINDS: Final[dict[str, Function]] = {"async": add_async, "sync": add_sync}

_TEMPLATE = '''
def tool_{number}(path: str, limit: int = 10, exact: bool = False) -> str:
    """Look up entry {number} of the register.

    Args:
        path: Where to look.
        limit: How many lines at most.
        exact: Whether case matters.
    """
    return path
'''


def fresh_functions(count: int) -> list[Function]:
    """Functions nobody has seen, so that no library can answer from a cache."""
    made: list[Function] = []
    for number in range(count):
        names: dict[str, Any] = {"__name__": __name__}
        exec(source_of(number), names)
        made.append(names[f"tool_{number}"])
    return made


def source_of(number: int) -> str:
    return _TEMPLATE.format(number=number)
