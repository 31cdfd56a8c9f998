"""The records of the store: authors, versions, trust, build status, uses and ratings of user tools."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

from golem_forge.core.decisions import Status
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import escape_control_chars
from golem_forge.events.serialization import iso_now
from golem_forge.usertools.diagnostics import DiagnosticCode

RUN_STATUSES: Final = frozenset({Status.SUCCESS, Status.EXECUTION_FAILED, Status.TIMEOUT, Status.INTERRUPTED})
"""What a call that was entered ends with; the others were refused before."""
_LONGEST_SHOWN: Final = 300


class AuthorKind(StrEnum):
    MANUAL = "manual"
    AGENT = "agent"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote one version. `session` and `worker` belong to an agent, `source` to an import."""

    kind: AuthorKind
    session: str = ""
    worker: str = ""
    source: str = ""

    def describe(self) -> str:
        """For a card or a log; a source is a stranger's text and may try to steer the terminal."""
        details: list[str] = []
        if self.kind is AuthorKind.AGENT:
            details += [f"session {self.session}"] if self.session else []
            details += [f"worker {self.worker}"] if self.worker else []
        elif self.kind is AuthorKind.IMPORT and self.source:
            details.append(self.source)
        shown = escape_control_chars(", ".join(details)[:_LONGEST_SHOWN]).replace("\n", " ")
        return f"{self.kind.value} ({shown})" if shown else self.kind.value

    def to_json(self) -> dict[str, str]:
        details = {"session": self.session, "worker": self.worker, "source": self.source}
        return {"kind": self.kind.value} | {key: value for key, value in details.items() if value}


MANUAL_AUTHOR: Final = Author(AuthorKind.MANUAL)


def author_from_row(kind: str, session: str, worker: str, source: str) -> Author:
    """As it was kept. A kind that nobody knows is the one that is trusted least."""
    known = AuthorKind(kind) if kind in AuthorKind.__members__.values() else AuthorKind.AGENT
    return Author(known, session, worker, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    digest: str
    at: str
    author: Author


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    who: str
    """`person`, `command line (--yes)`, …"""
    at: str
    shadow: bool
    """It was also agreed that this tool replaces the built-in one of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStatus:
    """How far one digest has come; `tested` includes `built`."""

    built: bool = False
    tested: bool = False
    failure: tuple[DiagnosticCode, str] | None = None


NOT_BUILT: Final = BuildStatus()


class VersionStatus(NamedTuple):
    """All that decides whether one version of a tool is offered."""

    trusted: bool = False
    may_replace: bool = False
    """It was also agreed that these bytes replace a built-in tool."""
    build_status: BuildStatus = NOT_BUILT
    retired: bool = False
    last_trusted: str = ""
    """The digest of this name that was trusted last; empty if none was. Not told of what is trusted and tested."""
    last_may_replace: bool = False
    """The same of that one."""


UNKNOWN_VERSION: Final = VersionStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRecord:
    """One Outcome of a user tool."""

    name: str
    digest: str
    status: str
    duration_ms: float
    session: str
    call: str = ""
    at: str = field(default_factory=iso_now)
    executed: bool | None = None
    """Whether its code was entered (`Outcome.executed`); None: as its status lets suppose."""

    @property
    def ran(self) -> bool:
        return self.status in RUN_STATUSES if self.executed is None else self.executed


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    good: int = 0
    bad: int = 0
    notes: tuple[str, ...] = ()
    """Newest first, safe to show."""

    def to_json(self) -> dict[str, Any]:
        return {"good": self.good, "bad": self.bad, "notes": list(self.notes)}
