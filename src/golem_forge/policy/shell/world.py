"""What the strict side asks of the sandbox: where a program is found and where a path leads.

The caller implements `CommandWorld` over its zones and the walls' PATH. These are the only questions
this package asks about the machine, so everything else in it is a pure function of text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

OperandKind = Literal["inside", "outside", "bad"]


@dataclass(frozen=True, slots=True)
class Program:
    """A program file: its real path, and whose directory it lies in."""

    path: str
    system: bool
    zone: bool
    shipped: bool = False  # the ripgrep that Forge brings along
    script: bool = False  # no binary: what it starts in turn is found by name


@dataclass(frozen=True, slots=True)
class Operand:
    """Where a path operand leads: inside a zone, outside every zone, or nowhere (`bad`)."""

    kind: OperandKind
    virtual: str
    real: str = ""
    secret: bool = False
    directory: bool = False
    outer: str = ""  # as the program names it, where the worker's zone begins deeper
    exists: bool = True


class CommandWorld(Protocol):
    def program(self, name: str) -> Program | None:
        """A bare name as the walls' PATH finds it; an absolute path as itself. `path` is the real path."""

    def operand(self, path: str, cwd: str) -> Operand:
        """`path` as a process whose working directory is the virtual directory `cwd` would reach it."""

    def complete(self, virtual: str, *, hidden: bool = True) -> bool:
        """Whether the walls hide every secret below this directory: they have looked at all of it. Without `hidden`,
        names that begin with a dot are not looked into by the program."""

    def work_tree(self, place: str) -> str | None:
        """The virtual directory whose repository git finds from `place`; the zone's without one. None: the repository's
        settings say that its files are elsewhere, or nobody can tell."""

    def holds_back(self) -> bool:
        """Whether a rule asks before, or blocks, reading something in the zones."""
