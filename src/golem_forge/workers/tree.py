"""SessionTree: what all workers of one session share. One bus, one journal, one memory of approvals, one gate.

`open_tree` reads the program around a directory and opens the journal; workers take their places in it one by one
(`workers.station`). Refuses (ConfigError) a configuration with any problem.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.modes import ApprovalMode
from golem_forge.config.program import Program, load_program
from golem_forge.config.trust import TrustStore
from golem_forge.core.errors import ConfigError
from golem_forge.core.ids import new_id
from golem_forge.core.nearest import nearest
from golem_forge.core.signal import InterruptSignal
from golem_forge.core.visible import visible
from golem_forge.events.anchors import anchor_path
from golem_forge.events.bus import EventBus
from golem_forge.events.credential_names import credential
from golem_forge.events.journal import Journal
from golem_forge.events.questions import RuntimeUI, create_runtime_ui
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.gate import Gate
from golem_forge.policy.asking import ui_asker
from golem_forge.policy.controller import ApprovalCallback, ApprovalController
from golem_forge.policy.rules import RuleBook
from golem_forge.sandbox.host import keep_out
from golem_forge.tools.session_parts import SessionParts
from golem_forge.workers.session_facts import kept_recorder
from golem_forge.workers.trust_cover import trust_store

_SECRET_LENGTH = 8
"""Shorter values would be found in ordinary words."""
_NO_SECRETS = frozenset({"PWD", "OLDPWD"})  # named like passwords, and on every machine
_ASKS = frozenset({ApprovalMode.INTERACTIVE, ApprovalMode.STRICT})


@dataclass(slots=True, kw_only=True)
class SessionTree:
    id: str
    home: ForgeHome
    program: Program
    trust: TrustStore
    bus: EventBus
    ui: RuntimeUI
    journal: Journal | None
    redactor: Redactor
    rules: RuleBook
    controller: ApprovalController
    signal: InterruptSignal
    gate: Gate = field(default_factory=Gate)
    parts: SessionParts = field(default_factory=SessionParts)
    grants: dict[str, set[str]] = field(default_factory=dict)
    """Worker path → what a person allowed it for the session beyond single calls."""
    on_kept: Callable[[str, dict[str, Any]], None] = lambda kind, data: None
    """Told what a person kept for the rest of the session."""
    call_ids: set[str] = field(default_factory=set)
    """Of every call a model asked for, or a UI by an id of its own: two of them may give the same one."""
    notices: list[str] = field(default_factory=list)
    """What the person should know at the start, one text each."""
    overrides: Sequence[str] = ()
    """`--set` words it was started with."""
    _closed: bool = False

    def interrupt(self, reason: str = "interrupted") -> None:
        self.signal.interrupt(reason)

    async def aclose(self) -> None:
        """Ends whatever still runs for this session, then closes it."""
        await self.parts.close()
        self.close()

    def abandon(self) -> None:
        """The session could not start: a journal in which nothing stands yet is taken away again."""
        book = self.journal
        empty = book is not None and book.lines <= 1
        self.bus.stop_recording()
        self.close()
        if book is not None and empty:
            for path in (book.path, anchor_path(book.path)):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self.journal is not None:
                self.journal.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions:
    """How a session is opened, beside where."""

    home: ForgeHome | Path | str | None = None
    approval: ApprovalMode | str | None = None
    approval_callback: ApprovalCallback | None = None
    asks_uis: bool = False
    """Without a callback: UIs are asked. Otherwise nobody is, and the session is `auto_deny`."""
    journal: bool = True
    overrides: Sequence[str] = ()
    """`--set` words, `approval.mode=strict`."""
    signal: InterruptSignal | None = None


@dataclass(frozen=True, slots=True)
class Voice:
    """The bus of a session to be, and the redactor that stands before it: UIs attach before anything is read."""

    bus: EventBus
    redactor: Redactor


def new_voice(home: ForgeHome, session_id: str = "") -> Voice:
    redactor = known_secrets(home)
    return Voice(EventBus(session_id or new_id(), redact=redactor.value), redactor)


def open_tree(
    directory: Path | str = ".",
    options: TreeOptions | None = None,
    *,
    voice: Voice | None = None,
    reopened: Journal | None = None,
) -> SessionTree:
    """`reopened`: the journal of an earlier session that goes on; its lock is held."""
    options = options or TreeOptions()
    home = home_of(options.home)
    trust = trust_store(home)
    program = read_program(directory, home, trust, options.overrides)
    mode, timeout = approval_mode(program, options), program.approval.timeout
    rules = RuleBook(
        home,
        project_root=program.root,
        project_trusted=partial(trust.trusted, program.root),
        project_trusted_with=partial(trust.trusted_with, program.root),
    )
    voice = voice or new_voice(home)
    bus, redactor = voice.bus, voice.redactor
    home.ensure("sessions")
    home.ensure("output")
    book = reopened
    if book is None and options.journal:
        book = Journal.create(home.path, bus.session_id, redact=redactor.value)
    if book is not None:
        bus.session_id = book.session_id
        bus.record_with(book.record_event, book.flush, seq=book.seq)
    ui = create_runtime_ui(bus)
    seconds = timeout.value if timeout else None
    ask = ui_asker(ui, seconds) if options.asks_uis and options.approval_callback is None else None
    return SessionTree(
        id=bus.session_id,
        home=home,
        program=program,
        trust=trust,
        bus=bus,
        ui=ui,
        journal=book,
        redactor=redactor,
        rules=rules,
        controller=ApprovalController(mode, options.approval_callback, ask=ask, timeout=seconds),
        signal=InterruptSignal() if options.signal is None else options.signal,
        on_kept=kept_recorder(book),
        notices=[program.notice] if program.notice else [],
        overrides=options.overrides,
    )


def home_of(given: ForgeHome | Path | str | None) -> ForgeHome:
    return given if isinstance(given, ForgeHome) else ForgeHome(Path(given).absolute()) if given else forge_home()


def read_program(directory: Path | str, home: ForgeHome, trust: TrustStore, overrides: Sequence[str] = ()) -> Program:
    """From here on this process finds no module or program in the program's zones, wherever it was started."""
    if not os.path.isdir(directory):
        raise ConfigError(f"no such directory: {visible(os.path.abspath(directory))}")
    if not os.access(directory, os.R_OK | os.X_OK):
        raise ConfigError(f"{visible(os.path.abspath(directory))} cannot be read: permission denied")
    program = load_program(
        Path(directory), home, trusted=trust.trusted, trusted_with=trust.trusted_with, overrides=overrides
    )
    keep_out([os.fspath(program.root), *(os.fspath(zone.path) for zone in program.zones)])
    return program


def approval_mode(program: Program, options: TreeOptions) -> ApprovalMode:
    """The mode in force; where nobody can answer, what would ask is denied."""
    mode = program.mode(named_mode(options.approval) if options.approval else None).value
    somebody = options.approval_callback is not None or options.asks_uis
    return ApprovalMode.AUTO_DENY if mode in _ASKS and not somebody else mode


def named_mode(given: ApprovalMode | str) -> ApprovalMode:
    try:
        return ApprovalMode(given)
    except ValueError:
        close = nearest(str(given), list(ApprovalMode))
        hint = f"; did you mean '{close}'?" if close else ""
        raise ConfigError(f"approval must be one of {', '.join(ApprovalMode)}, not {given!r}{hint}") from None


def known_secrets(home: ForgeHome) -> Redactor:
    """Knows the home's path, and the values of variables that are named like credentials."""
    redactor = Redactor()
    redactor.add_path(str(home.path), "<forge home>")
    for name, value in os.environ.items():
        if len(value) >= _SECRET_LENGTH and name not in _NO_SECRETS and credential(name):
            redactor.add_secret(name, value)
    return redactor
