"""Finished: what a tool hands back when its call did not simply succeed or fail, but ended in a known way.

A tool that runs processes knows more than its result: that the walls refused something, that a limit was reached,
what part of its output was already kept. Any other tool returns its value, or raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from golem_forge.core.leftovers import Leftover
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status


@dataclass(slots=True, kw_only=True)
class Finished:
    result: ToolResult
    status: Status = Status.SUCCESS
    error: str = ""
    """Why it is no success, in words for the caller; empty: the result's text says it."""
    code: str = ""
    denials: tuple[dict[str, Any], ...] = ()
    """What the walls refused: `{kind, target, access, why, widen}` each."""
    protected_created: tuple[str, ...] = ()
    """Protected names, as virtual paths, that exist now and did not before."""
    leftovers: tuple[Leftover, ...] = ()
    """What the command left in a zone that the person's own programs would run or obey."""
    output_handle: str = ""
    """The whole output, already kept; the result's text is then bounded and is not bounded again."""
    stop_turn: bool = False
    """A person, asked by a worker below, ended the turn: that ends the turn of those above it too."""
    bounded: bool = False
    """The tool has a limit of its own for its text and kept to it, whether or not anything was cut."""
