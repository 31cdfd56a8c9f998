"""A session: one worker's catalog, sandbox, policy and journal, wired to the one path.

`open_session` reads the program around a directory (or makes do without one) and gives a Session whose `call` runs a
tool as the built-in worker `default`. Refuses (ConfigError) a configuration with any problem.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from golem_forge.config.home import ForgeHome, forge_home
from golem_forge.config.modes import ApprovalMode
from golem_forge.config.program import Program, load_program
from golem_forge.config.trust import TrustStore
from golem_forge.core.call import Caller, Outcome, ToolCall
from golem_forge.core.errors import ConfigError
from golem_forge.core.ids import new_id
from golem_forge.core.nearest import nearest
from golem_forge.core.visible import visible
from golem_forge.events.bus import EventBus
from golem_forge.events.credential_names import credential
from golem_forge.events.journal import Journal
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator import Orchestrator
from golem_forge.policy.controller import ApprovalCallback, ApprovalController
from golem_forge.policy.rules import RuleBook
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.edit.recovery import recover
from golem_forge.workers.catalog import build_catalog
from golem_forge.workers.surroundings import DEFAULT_WORKER, approval_blocks, worker_sandbox

_SECRET_LENGTH = 8
"""Shorter values would be found in ordinary words."""
_NO_SECRETS = frozenset({"PWD", "OLDPWD"})  # named like passwords, and on every machine


@dataclass(slots=True)
class Session:
    id: str
    program: Program
    path: Orchestrator
    bus: EventBus
    rules: RuleBook
    sandbox: Sandbox
    journal: Journal | None
    notices: tuple[str, ...] = ()
    """What the person should know at the start, one text each."""
    _closed: bool = field(default=False, repr=False)

    async def batch(self, calls: Sequence[ToolCall], **how: Any) -> list[Outcome]:
        """Several calls of one turn; `mode` and `on_failure` as in Orchestrator.batch."""
        return await self.path.batch(calls, **how)

    def interrupt(self, reason: str = "interrupted") -> None:
        """Ends whatever runs or waits, within a second. Calls are refused from then on, until `reset`."""
        self.path.signal.interrupt(reason)

    def reset(self) -> None:
        """After `interrupt`: the next call is a normal one."""
        self.path.signal.reset()

    @property
    def catalog(self) -> Catalog:
        return self.path.catalog

    async def call(self, name: str, args: Any, *, caller: Caller | str = Caller.LLM) -> Outcome:
        return await self.path.call(ToolCall(name, args, Caller(caller)))

    async def aclose(self) -> None:
        """Ends whatever still runs for this session, then closes it."""
        await self.path.parts.close()
        self.close()

    def close(self) -> None:
        """Without waiting; processes that still run are ended when this process ends. Prefer `aclose`."""
        if not self._closed:
            self._closed = True
            self.sandbox.close()
            if self.journal is not None:
                self.journal.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def open_session(
    directory: Path | str = ".",
    *,
    tools: Iterable[Tool | Callable[..., Any]] = (),
    toolsets: Mapping[str, Any] | None = None,
    approval: ApprovalMode | str | None = None,
    approval_callback: ApprovalCallback | None = None,
    home: ForgeHome | Path | str | None = None,
    journal: bool = True,
) -> Session:
    """`tools` (or plain functions) come in addition to the native ones; one that cannot be offered is quarantined.
    `toolsets` names the native ones, each with its block, as a worker file does; without it all are there.

    Without a callback the session never asks: it is `auto_deny`.
    """
    home = home if isinstance(home, ForgeHome) else ForgeHome(Path(home).absolute()) if home else forge_home()
    trust = TrustStore(home)
    if not os.path.isdir(directory):
        raise ConfigError(f"no such directory: {visible(os.path.abspath(directory))}")
    program = load_program(Path(directory), home, trusted=trust.trusted, trusted_with=trust.trusted_with)
    catalog = build_catalog(tools, toolsets)
    notices = [program.notice] if program.notice else []
    notices += [f"tool '{bad.name}' is not offered: {bad.reason}" for bad in catalog.quarantined()]
    blocks = approval_blocks(program, {tool.name: tool for tool in catalog}, notices)
    sandbox = worker_sandbox(program, home, notices)
    notices += recover(home.path, sandbox)
    rules = RuleBook(
        home,
        project_root=program.root,
        project_trusted=partial(trust.trusted, program.root),
        project_trusted_with=partial(trust.trusted_with, program.root),
    )
    session_id = new_id()
    redactor = _redactor(sandbox, home)
    controller = _controller(program, approval, approval_callback)
    walls = Walls(
        sandbox,
        program.walls,
        forge_home=home.path,
        redactor=redactor,
        rules=lambda: path.path_rules(),
    )
    home.ensure("sessions")
    home.ensure("output")
    book = Journal.create(home.path, session_id, redact=redactor.value) if journal else None
    bus = EventBus(session_id, redact=redactor.value)
    if book is not None:
        bus.record_with(book.record_event, book.flush)
    path = Orchestrator(
        catalog,
        approval=controller,
        sandbox=sandbox,
        blocks=blocks,
        rules=rules,
        bus=bus,
        journal=book,
        redactor=redactor,
        output_folder=home.path / "output",
        session_id=session_id,
        worker=DEFAULT_WORKER,
        project=str(program.root),
        strange_zones=program.strange_zones,
        walls=walls,
        home=home.path,
    )
    walls.on_report(lambda report: bus.emit("wallsReport", report.to_wire(), DEFAULT_WORKER))
    return Session(session_id, program, path, bus, rules, sandbox, book, tuple(notices))


def _redactor(sandbox: Sandbox, home: ForgeHome) -> Redactor:
    """Knows the host paths that Forge itself might say, and the values of variables that are named like credentials."""
    redactor = Redactor()
    redactor.add_path(str(home.path), "<forge home>")
    for zone in sandbox.zones.values():
        for host in (zone.host, *zone.aliases):
            redactor.add_path(host, f"/{zone.name}")
    for name, value in os.environ.items():
        if len(value) >= _SECRET_LENGTH and name not in _NO_SECRETS and credential(name):
            redactor.add_secret(name, value)
    return redactor


def _approval_mode(given: ApprovalMode | str) -> ApprovalMode:
    try:
        return ApprovalMode(given)
    except ValueError:
        close = nearest(str(given), list(ApprovalMode))
        hint = f"; did you mean '{close}'?" if close else ""
        raise ConfigError(f"approval must be one of {', '.join(ApprovalMode)}, not {given!r}{hint}") from None


def _controller(
    program: Program, flag: ApprovalMode | str | None, callback: ApprovalCallback | None
) -> ApprovalController:
    mode = program.mode(_approval_mode(flag) if flag else None).value
    if callback is None and mode is not ApprovalMode.APPROVE_ALL:
        mode = ApprovalMode.AUTO_DENY  # nobody can answer: fail closed
    timeout = program.approval.timeout
    return ApprovalController(mode, callback, timeout=timeout.value if timeout else None)
