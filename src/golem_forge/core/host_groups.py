"""Groups of hosts by name: the package registries of one language each. Which hosts those are on this machine says
`sandbox.network.registries`."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class HostGroup(StrEnum):
    PYTHON = "python"
    NODE = "node"
    RUST = "rust"
    GO = "go"


GROUPS: Final = tuple(group.value for group in HostGroup)
GROUP_PREFIX: Final = "group:"
"""`group:python` stands in a list of hosts for all hosts of the group."""


def named_group(word: str) -> HostGroup | None:
    """None: the word is no group. Raises ValueError for a group that there is not."""
    if not word.startswith(GROUP_PREFIX):
        return None
    group = word.removeprefix(GROUP_PREFIX)
    if group not in GROUPS:
        raise ValueError(f"there is no such group; groups are {', '.join(GROUPS)}")
    return HostGroup(group)
