"""The rows of the store: sessions, questions, arrivals, leases, and what is appended to a journal.

No row knows the database: `store.py` and the tables beside it read and write them.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.events.journal_files import Anchor

CHANNEL: Final = "forge_sessions"
WAS_PRUNED: Final = "was deleted after its retention"
CHECKPOINT: Final = "checkpoint"
"""The journal's record of one: its commit (None: nothing had changed), and whether the origin has it."""
_CHECKPOINT_LINE: Final = b'"type":"checkpoint"'
_HEAD_BYTES: Final = 120
QUEUED: Final = "queued"
RUNNING: Final = "running"
WAITING: Final = "waiting"
FINISHED: Final = "finished"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
ENDED: Final = frozenset({FINISHED, FAILED, STOPPED})
NEXT_MESSAGE: Final = "the next message"
"""Shown for a parked conversation that waits for a message."""
OPEN: Final = "open"
ANSWERED: Final = "answered"
WITHDRAWN: Final = "withdrawn"
EXPIRED: Final = "expired"
SOMEBODY_ELSE: Final = 1
"""`four_eyes` of a question: no author of the session can approve it."""
AUTHOR_ONCE: Final = 2
"""The risk is below that of `approval.four_eyes`: authors of the session may approve this call, but
nothing beyond it.
"""
CONFINED: Final = "confined"
"""Key in a session's facts: a person of a team named its model, so a script of theirs must lie inside the program."""
EXACT_CALL: Final = "exact"
"""The choice that keeps one call exactly as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A session to queue. `facts` (where it runs, with what) may hold host paths: only runners and admins read them."""

    facts: Mapping[str, Any]
    input: str
    worker: str = ""
    model: str = ""
    mode: str = "single"
    title: str = ""
    person: str = ""
    door: str = ""
    program: str = ""
    label: str = ""
    batch: str = ""
    priority: int = 0
    project: str = ""
    """The name for the program's project if the store does not know it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    id: str
    state: str
    held: int
    worker: str
    title: str
    model: str
    mode: str
    person: str
    program: str
    label: str
    batch: str
    priority: int
    runner: str
    epoch: int
    lease_until: float
    wake: int
    stop: int
    arrivals: int
    waits_for: str
    result: str
    error: str
    cost: float
    lines: int
    hash: str
    created: float
    updated: float
    ended: float
    notice: str = ""
    """Notices for a person, a line each: calls that may have run or whose changes are lost, and why its last checkpoint
    is not at the origin.
    """

    @property
    def shown_state(self) -> str:
        return f"{self.state} (held)" if self.held and self.state == WAITING else self.state

    @property
    def is_woken(self) -> bool:
        """Parked, and what it waited for came: it goes on as soon as a runner has a free slot."""
        return self.state == WAITING and not self.held and bool(self.wake)

    @property
    def shown_wait(self) -> str:
        return f"a free slot ({self.what_came})" if self.is_woken else self.waits_for

    @property
    def what_came(self) -> str:
        return "a message came" if self.waits_for == NEXT_MESSAGE else "answered"


_SESSION: Final = (
    "id", "state", "held", "worker", "title", "model", "mode", "person", "program", "label", "batch", "priority",
    "runner", "epoch", "lease_until", "wake", "stop", "arrivals", "waits_for", "result", "error", "cost", "lines",
    "hash", "created", "updated", "ended", "notice",
)  # fmt: skip
SESSION_COLUMNS: Final = ", ".join(_SESSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow:
    id: str
    session: str
    kind: str
    call: str
    worker: str
    risk: str
    title: str
    wire: Mapping[str, Any]
    state: str
    asked: float
    expires: float
    four_eyes: int
    """0, SOMEBODY_ELSE or AUTHOR_ONCE."""
    answer: Mapping[str, Any]
    person: str
    door: str
    answered: float
    same: str
    """Questions of one project with the same key ask for the same call; see `question_key`. Empty if
    there is no other.
    """
    program: str = ""
    """The program of its session; the next two fields are the session's too."""
    starter: str = ""
    task: str = ""


_QUESTION: Final = (
    "id", "session", "kind", "call", "worker", "risk", "title", "wire", "state", "asked", "expires", "four_eyes",
    "answer", "person", "door", "answered", "same",
)  # fmt: skip
_OF_SESSION: Final = {"program": "program", "starter": "person", "task": "title"}
_IN_SESSION: Final = "(SELECT s.{} FROM sessions s WHERE s.id = questions.session)"
QUESTION_COLUMNS: Final = ", ".join((*_QUESTION, *map(_IN_SESSION.format, _OF_SESSION.values())))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionFilter:
    """A filter for open questions; empty fields do not filter."""

    mine: bool = False
    """Only of sessions that they started."""
    project: str = ""
    """The project's name."""
    worker: str = ""
    risk: str = ""
    tool: str = ""
    older_s: float = 0.0
    """Minimum age in seconds."""
    words: str = ""
    """Each of them stands in what is asked, in the task, or in the name of whoever started it."""
    same: str = ""
    """Only with this key."""
    after: str = ""
    """Only questions after this id, in the order of the list."""


ALL_QUESTIONS: Final = QuestionFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    number: int
    kind: str
    """`message`, `answer`, `interrupt`, `command` or `form`."""
    data: Mapping[str, Any]
    person: str
    door: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A session that one runner holds."""

    session: StoredSession
    facts: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def epoch(self) -> int:
        return self.session.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Lines for one journal, and outputs that must be there before them."""

    session: str
    epoch: int
    first: int
    lines: tuple[bytes, ...]
    outputs: tuple[tuple[str, str, int, bytes], ...] = ()
    """(handle, worker, number of the piece, its bytes)"""
    rules: tuple[tuple[Mapping[str, Any], str, str], ...] = ()
    """(rule for all runners, its author, its project): kept at the latest with the line that says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnding:
    """How a session ended, for lists and for the person who started it."""

    state: str
    result: str = ""
    error: str = ""
    cost: float = 0.0
    model: str = ""
    anchor: Anchor | None = None
    """The journal's last line."""
    last: Append | None = None
    """Lines that are not stored yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """One that ended somewhere else, for `Store.add_recorded`. Times are seconds since 1970."""

    id: str
    state: str
    worker: str
    model: str
    title: str
    person: str
    created: float
    ended: float


def program_id(root: Path) -> str:
    """Returns the id of a program for its sessions: a directory of this machine."""
    return sha256(f"{socket.gethostname()} {root}".encode()).hexdigest()[:16]


def to_session(row: Sequence[Any]) -> StoredSession:
    return StoredSession(**dict(zip(_SESSION, row, strict=True)))


def to_question(row: Sequence[Any]) -> QuestionRow:
    values = dict(zip((*_QUESTION, *_OF_SESSION), row, strict=True))
    values["wire"] = json.loads(values["wire"])
    values["answer"] = json.loads(values["answer"]) if values["answer"] else {}
    return QuestionRow(**values)


def question_title(wire: Mapping[str, Any]) -> str:
    """Describes a question in one line: the tool, and what it would do."""
    said, effects = str(wire.get("payload") or "").strip(), wire.get("effects") or ()
    if wire.get("type") != "command" and effects:
        said = str(effects[0])
    elif said.startswith("{\n"):  # the arguments, as JSON
        said = " ".join(said.split())
    said = said.partition("\n")[0]
    name = str(wire.get("tool") or wire.get("title") or "a question")
    return f"{name}: {said}" if said else str(wire.get("description") or name)


def question_key(wire: Mapping[str, Any], program: str) -> str:
    """Returns a key that is equal for calls of one project that are the same to an approver: tool, its definition,
    arguments, worker and targets (all in the fingerprint, where a clone goes by the name of its repository), and what
    the card shows of them. Empty for a form, or a call without a fingerprint.
    """
    if not wire.get("fingerprint") or not wire.get("tool"):
        return ""
    seen = [wire.get(name) for name in ("type", "tool", "fingerprint", "payload", "diff", "risk", "riskReasons")]
    return sha256(json.dumps([program, *seen, wire.get("warnings")], sort_keys=True).encode()).hexdigest()[:32]


def last_checkpoint(lines: Iterable[bytes]) -> str:
    """The commit that a journal names last; empty: none."""
    commit = ""
    for line in lines:
        if _CHECKPOINT_LINE in line[:_HEAD_BYTES]:
            with contextlib.suppress(ValueError):
                commit = str(json.loads(line).get("commit") or commit)
    return commit
