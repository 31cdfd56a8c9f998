"""Effects: what a call would touch, stated by a tool's plan before anything is touched.

An Effect is facts only. Which verdict and which risk follow from them is decided by policy (`policy/risk.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.text import shorten_middle

NOT_COVERED: Final = " (no rule covers it)"
"""The end of an effect's line on a card if no rule covers it."""
_MAX_QUOTED: Final = 160
ANY_HOST: Final = "any host"
"""The target of an effect that may reach every host."""


class Verb(StrEnum):
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    EXEC = "exec"
    NET = "net"
    SPAWN = "spawn"


class Mark(StrEnum):
    """A fact about a target that always needs a person, whatever a zone or a rule file says."""

    PROTECTED_PATH = "protected_path"
    SECRET_PATH = "secret_path"
    OBEYED_PATH = "obeyed_path"
    """Other programs follow what is in it (`.github/workflows`, `.pylintrc`); less than protected, more than a file."""
    OUTSIDE_ZONE = "outside_zone"
    OPAQUE = "opaque"
    DANGER = "danger"
    NO_WALLS = "no_walls"
    OUTSIDE_WALLS = "outside_walls"
    """One command outside the walls: only a person's answer to this very call lets it run, no mode and no memory."""
    DEFINITION_CHANGED = "definition_changed"
    DESTRUCTIVE = "destructive"


class Walled(StrEnum):
    """Whether full walls alone may be reason enough to let a command run."""

    NO = "no"
    OFFERED = "offered"
    """The command runs in full walls, without network, and has no mark but OPAQUE; a card may offer to allow all such
    commands.
    """
    GIVEN = "given"
    """As OFFERED, and the command was parsed completely and the worker's file allows such commands (`walled:
    preApproved`).
    """


class AtMost(StrEnum):
    """The most that an effect can do, where something that Forge enforces or trusts limits it: walls, the zones and the
    network of a tool's manifest or a server's block, a trusted server's annotations, the zones of a worker. A mere
    claim is not enough.
    """

    READS = "reads"
    """It changes nothing and connects to nothing."""
    WRITES = "writes"
    """It changes writable zones at most, and connects to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    verb: Verb
    target: str
    """The target as people see it: a virtual path, a command's words, `host:port`, a worker's name."""
    real: str = ""
    """The resolved identity that goes into the fingerprint (a host path, a program's path). Never shown."""
    outer: str = ""
    """A path as the program names it, where this worker's zone begins below the configured one; else empty."""
    zone_verdict: Verdict | None = None
    """The zone's verdict on this verb for a path target; None if no zone decides."""
    said: Verdict | None = None
    """The verdict of the tool's own settings (a rule in a toolset's block); None if they say nothing."""
    said_by: str = ""
    """The setting that gave `said`, as text."""
    no_walls_because: str = ""
    """Why there are no walls, if the mark NO_WALLS is set; empty if they are switched off."""
    by_hand: str = ""
    """The setting, written by a person, that alone makes the effect ask; empty if there is none."""
    walled: Walled = Walled.NO
    grant: str = ""
    """A grant for the session that a person may give and that covers this effect: `input to session 7`. Used by
    `write_stdin`: whoever agreed to it is not asked for each line that carries no mark."""
    marks: tuple[Mark, ...] = ()
    words: tuple[str, ...] = ()
    """For `exec`: the words of one parsed shell segment; empty if the text could not be parsed."""
    proven: bool = False
    """Whether it only reads: for `exec` proven by the strict parser and prover, for a server's tool stated by a trusted
    server.
    """
    dangers: tuple[str, ...] = ()
    """For `exec`: ids of the dangers found in the text."""
    danger_parts: tuple[str, ...] = ()
    """For each of `dangers` the part of the text that has it, shortened; empty if that is the whole target."""
    at_most: AtMost | None = None
    """None if no limit is known."""
    leaves: tuple[str, ...] | None = None
    """What of it leaves the walls or cannot be undone, in plain words that follow `because`; an empty tuple: nothing.
    None: nobody looked, because the approval mode is not `contained` or never covers such an effect."""

    def describe(self) -> str:
        return f"{self.verb} {self.target}"

    @property
    def quoted(self) -> str:
        """The target inside a sentence: its beginning and its end, where it is long."""
        return quote_target(self.target)

    def fingerprint_target(self) -> str:
        return f"{self.verb} {self.real or self.target}"


def quote_target(target: str) -> str:
    return shorten_middle(target, _MAX_QUOTED, " … ")


def without_command(reason: str, commands: Iterable[str]) -> str:
    """A reason beside the text of the command it is about: it says `the command` where it would repeat that text.

    `commands`: the ways in which that command is written.
    """
    for name in map(quote_target, filter(None, commands)):
        for quoted, said, goes_on in (
            (f"Running {name}", "The command", " asks "),
            (f"exec {name}", "the command", " asks "),
            (repr(name), "the command", " is on "),
            (name, "the command", " reaches "),
        ):
            before, found, after = reason.partition(quoted + goes_on)
            if found and (not before or before.endswith(": ")):
                return f"{before}{said}{goes_on}{after}"
    return reason
