"""Options by name, from a mapping and from keywords.

A mapping may spell a known name in snake_case or in camelCase, as events and the JavaScript world do; a Python keyword
is snake_case. A name that is not known, or given twice, is a TypeError that names the nearest one: nothing is accepted
and then ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar, cast

from golem_forge.core.regex import regex
from golem_forge.core.text import nearest_hint

_CAPITAL: Final = regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_F = TypeVar("_F", bound=Callable[..., Any])


def camel(snake: str) -> str:
    head, *tail = snake.split("_")
    return head + "".join(word.capitalize() for word in tail)


def snake(name: str) -> str:
    """`toolCallId` → `tool_call_id`; a name in snake_case stays as it is."""
    return _CAPITAL.sub("_", name).lower() if not name.islower() else name


def unknown_name_message(what: str, name: object, known: Iterable[str]) -> str:
    """`what 'name'; did you mean 'nearest'?`, or all known names where none is near."""
    names = sorted(known)
    word = snake(name) if isinstance(name, str) else name
    hint = nearest_hint(word, names, f"; known are {', '.join(names)}" if names else "")
    return f"{what} {name!r}{hint}"


def options_from(
    given: Mapping[str, Any] | None, keywords: Mapping[str, Any] | None = None, *, known: Iterable[str], where: str
) -> dict[str, Any]:
    """The options of both, by their snake_case names. `where` is what an error begins with."""
    require(given is None or isinstance(given, Mapping), where, "a mapping", given)
    names = frozenset(known)
    options: dict[str, Any] = {}
    for key, value in (given or {}).items():
        name = key if key in names else snake(key) if isinstance(key, str) else key
        if name not in names:
            raise TypeError(f"{where}: {unknown_name_message('there is no option', key, names)}")
        if name in options:
            raise TypeError(f"{where}: option {name!r} is given twice")
        options[name] = value
    for name, value in (keywords or {}).items():
        if name not in names:
            raise TypeError(f"{where}: {unknown_name_message('there is no keyword', name, names)}")
        if name in options:
            raise TypeError(f"{where}: option {name!r} is given twice")
        options[name] = value
    return options


def require(fits: bool, where: str, what: str, value: object) -> None:
    """TypeError at once for a value that could only fail later: `where` must be `what`."""
    if not fits:
        shown = repr(value)
        raise TypeError(f"{where} must be {what}, not {shown if len(shown) <= 60 else type(value).__name__}")


def takes_options(where: str, *, at: int) -> Callable[[_F], _F]:
    """Lets the argument at position `at` be a mapping of the options from there on; checks keywords by name."""

    def decorated(function: _F) -> _F:
        code = function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        before, known = frozenset(names[:at]), names[at:]

        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            if len(args) > at and isinstance(args[at], Mapping):
                if len(args) > at + 1:
                    raise TypeError(f"{where}: after the mapping of options come only keywords")
                given, args = args[at], args[:at]
            elif before.isdisjoint(keywords) and known_all.issuperset(keywords):
                return function(*args, **keywords)
            else:
                given = None
            first = {name: keywords.pop(name) for name in before & keywords.keys()}
            return function(*args, **first, **options_from(given, keywords, known=known, where=where))

        known_all = frozenset(known)
        return cast(_F, call)

    return decorated
