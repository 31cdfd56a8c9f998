"""`@table("text", [...])`: rows that need no set-up of their own, in one test.

Written as `pytest.mark.parametrize`, which makes a test of each row: its home, its report and its place in the
collection of every process take longer than a question to a pure function. Here every row is asked, whatever the others
say, and the failure names each that was answered wrong. Fixtures are made once for all of them: a row that changes
something for the next one takes `parametrize`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any


def table(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    given = [dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in rows]
    assert given, "an empty table asserts nothing"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def asked(*own: Any, **fixtures: Any) -> None:
            wrong: list[str] = []
            for row in given:
                with _noted(row, wrong):
                    test(*own, **fixtures, **row)
            assert not wrong, "\n".join(wrong)

        @wraps(test)
        async def awaited(*own: Any, **fixtures: Any) -> None:
            wrong: list[str] = []
            for row in given:
                with _noted(row, wrong):
                    await test(*own, **fixtures, **row)
            assert not wrong, "\n".join(wrong)

        made: Any = awaited if inspect.iscoroutinefunction(test) else asked
        asks = inspect.signature(test)
        made.__signature__ = asks.replace(
            parameters=[asks.parameters[name] for name in asks.parameters if name not in keys]
        )
        return made  # type: ignore[no-any-return]

    return decorate


@contextmanager
def _noted(row: dict[str, Any], wrong: list[str]) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        wrong.append(f"{[*row.values()]!r:.300}: {error}")
    except BaseException as error:
        error.add_note(f"row: {[*row.values()]!r:.300}")
        raise
