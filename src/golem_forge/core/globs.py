"""The globs that rules and settings are written in, over paths and names; and the names of groups of hosts.

In a path glob `*` and `?` stay within one component, `**` crosses `/`, and `**/` also stands for no component at all.
Names (of MCP servers and tools) have no components, so there `*` stands for anything. `[ab]`, `[a-z]` and `[!a]` are
one character of a set. Everything compares exactly: no case folding, no normalisation.

A group of hosts is the package registries of one language. Which hosts those are on this machine says
`sandbox.network.registries`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from golem_forge.core.regex import regex


class HostGroup(StrEnum):
    PYTHON = "python"
    NODE = "node"
    RUST = "rust"
    GO = "go"


GROUPS: Final = tuple(group.value for group in HostGroup)
GROUP_PREFIX: Final = "group:"
"""`group:python` stands in a list of hosts for all hosts of the group."""


def named_group(word: str) -> HostGroup | None:
    """Returns the group that the word names; None if the word is no group. Raises ValueError for an unknown group."""
    if not word.startswith(GROUP_PREFIX):
        return None
    group = word.removeprefix(GROUP_PREFIX)
    if group not in GROUPS:
        raise ValueError(f"there is no such group; groups are {', '.join(GROUPS)}")
    return HostGroup(group)


_LITERAL: Final = regex(r"[^*?\[]*")


def path_matches_glob(pattern: str, path: str) -> bool:
    """Whether a path glob stands for this path. What its first characters already decide is never compiled: of
    thousands of rules a call is held against, nearly all begin with another directory."""
    head = _LITERAL.match(pattern)
    assert head is not None  # it matches nothing at all, too
    literal = head.group()
    if not path.startswith(literal):
        return False
    rest = pattern[len(literal) :]
    if not rest:
        return path == literal
    return rest == "**" or path_glob(pattern).fullmatch(path) is not None


@lru_cache(maxsize=2048)
def path_glob(pattern: str) -> re.Pattern[str]:
    folded = re.sub(r"(?<![^/])(\*\*/)+", "**/", pattern)  # the same meaning, without the backtracking
    return _compile_glob(folded, any_one="[^/]", crosses=True)


@lru_cache(maxsize=512)
def name_glob(pattern: str) -> re.Pattern[str]:
    return _compile_glob(pattern, any_one=".", crosses=False)


def _compile_glob(pattern: str, *, any_one: str, crosses: bool) -> re.Pattern[str]:
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "*":
            end = position
            while pattern[end : end + 1] == "*":
                end += 1
            if crosses and end - position > 1:
                whole = (position == 0 or pattern[position - 1] == "/") and pattern[end : end + 1] == "/"
                parts.append("(?:.*/)?" if whole else ".*")
                position = end + 1 if whole else end
            else:
                parts.append(f"{any_one}*")
                position = end
        elif char == "?":
            parts.append(any_one)
            position += 1
        elif char == "[" and (end := pattern.find("]", position + 2)) > 0:
            parts.append(_character_set(pattern[position + 1 : end], any_one))
            position = end + 1
        else:
            parts.append(re.escape(char))
            position += 1
    return re.compile("".join(parts), re.DOTALL)


def _character_set(inner: str, any_one: str) -> str:
    negated = inner.startswith("!")
    members: list[str] = []
    rest = inner.removeprefix("!")
    while rest:
        if len(rest) > 2 and rest[1] == "-":
            low, high, rest = rest[0], rest[2], rest[3:]
            if low <= high:
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(rest[0]))
            rest = rest[1:]
    if not members:
        return any_one if negated else "(?!)"
    # A set never stands for `/` in a path: the component boundary is what a path glob promises to keep.
    boundary = "(?!/)" if any_one != "." else ""
    return f"{boundary}[{'^' if negated else ''}{''.join(members)}]"
