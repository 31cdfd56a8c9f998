"""Names for what a suggestion proposes: its parameters, after the arguments they stand for, and a tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final

from golem_forge.custom.names import is_reserved, name_problem

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 64
_ROOM_FOR_NUMBER: Final = 4
_WORDS: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_MOST_WORDS: Final = 4
_FALLBACK_TOOL: Final = "steps"


def parameter_name(argument: str, taken: Collection[str]) -> str:
    """The argument's name as far as a parameter can be called so; `path`, `path_2`, … where several are."""
    plain = _NOT_IN_NAMES.sub("_", argument).lstrip("_-0123456789")[: _LONGEST - _ROOM_FOR_NUMBER].rstrip("_-")
    lower = {name.lower() for name in taken}
    return _unique(plain or "value", lambda name: name.lower() not in lower)


def tool_name(tools: Iterable[str], taken: Collection[str]) -> str:
    """`read_grep_write` for read_file, grep_files, write_file: the first word of each, which mostly is what it does."""
    words = [match[0].lower() for tool in tools if (match := _WORDS.search(tool))]
    different = [word for at, word in enumerate(words) if at == 0 or word != words[at - 1]]
    plain = "_".join(different[:_MOST_WORDS])[: _LONGEST - _ROOM_FOR_NUMBER].rstrip("_") or _FALLBACK_TOOL
    lower = {name.lower() for name in taken}

    def fits(name: str) -> bool:
        return name.lower() not in lower and not name_problem(name) and not is_reserved(name)

    return _unique(plain if not name_problem(plain) else _FALLBACK_TOOL, fits)


def _unique(plain: str, fits: Callable[[str], bool]) -> str:
    return next(name for name in (plain, *(f"{plain}_{number}" for number in range(2, 1000))) if fits(name))
