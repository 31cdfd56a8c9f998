"""What slash commands need of a running worker, and what one command is given. WorkerRuntime is such a host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from golem_forge.config.home import ForgeHome
from golem_forge.config.program import Program
from golem_forge.events.bus import EventBus
from golem_forge.events.journal import Journal
from golem_forge.events.questions import RuntimeUI
from golem_forge.orchestrator import Orchestrator
from golem_forge.policy.controller import ApprovalController
from golem_forge.policy.rules import RuleBook
from golem_forge.workers.slash.decisions import Decisions
from golem_forge.workers.slash.parsing import ParsedCommand
from golem_forge.workers.worker import Worker

OpenPage = Callable[[], Awaitable[str]]
"""Serves this session as a page from now on, shows the person a link that lets them in, and gives the address alone.
The link goes past the bus: whatever is on it is recorded. Raises ForgeError."""


class Sums(Protocol):
    """What requests took so far (`workers.models.usage.Meter`)."""

    def sums(self) -> dict[str, Any]: ...


class SlashHost(Protocol):
    """Read-only on purpose: commands change things by the methods below."""

    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def home(self) -> ForgeHome: ...
    @property
    def program(self) -> Program: ...
    @property
    def worker(self) -> Worker: ...
    @property
    def path(self) -> Orchestrator: ...
    @property
    def bus(self) -> EventBus: ...
    @property
    def ui(self) -> RuntimeUI: ...
    @property
    def rules(self) -> RuleBook: ...
    @property
    def controller(self) -> ApprovalController: ...
    @property
    def journal(self) -> Journal | None: ...
    @property
    def call_ids(self) -> set[str]:
        """Of calls whose id somebody else chose, those on record before a resume included: each is one call's."""

    @property
    def meter(self) -> Sums: ...
    @property
    def model_name(self) -> str: ...
    @property
    def context_used(self) -> int: ...
    @property
    def context_limit(self) -> int: ...

    async def refresh(self) -> None:
        """Code that was edited counts from now on. Raises ForgeError."""

    @property
    def open_page(self) -> OpenPage | None:
        """Shows this session in a browser, for whoever runs in a process that can; None: it cannot."""

    def switch_model(self, name: str) -> Any: ...
    def clear_history(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One command on its way."""

    host: SlashHost
    parsed: ParsedCommand
    decisions: Decisions
    leave: Callable[[], None]

    @property
    def args(self) -> list[str]:
        return self.parsed.args
