"""User tools in a session: one Workshop for all workers, what each worker may see of it, and suggestions.

What `usertools` may not import is passed to it here: the native tools by name, the way a `background` tool continues
after its call (the sessions of `exec_command`), and where changes are reported.

`ToolSuggestions` reads the journals of the last weeks in a thread when the session starts, and the session's own after
each turn of the root worker. A repeated sequence is shown (`toolSuggested`) and told to the model of a worker that can
make tools, once, in a session that ran it itself; never one for which a tool was made or that the user dismissed. It
cannot fail or delay a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from golem_forge.agent.files.worker import UserToolsBlock
from golem_forge.agent.history import History
from golem_forge.agent.model.interface import UserMessage
from golem_forge.agent.session_plan import DEFAULT_WORKER, read_program
from golem_forge.agent.session_state import SessionState, known_secrets
from golem_forge.agent.tool_inventory import native_descriptions
from golem_forge.agent.trust import trust_store
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.policy.base import ApprovalBlock
from golem_forge.policy.rules.book import RuleBook, host_rule_for
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import USER_TOOLS
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.threads import TooManyThreads, run_in_thread
from golem_forge.toolsets.exec.result import first_wait
from golem_forge.toolsets.exec.sessions import CommandSpec, ExecSessions
from golem_forge.usertools.call_sequences import (
    JournalTail,
    Occurrence,
    RepeatedSequence,
    Segment,
    SessionCalls,
    TurnReader,
    recent_sessions,
)
from golem_forge.usertools.catalog_sync import ToolSelection, UserTools
from golem_forge.usertools.native_tools import CREATE_TOOL_NAME
from golem_forge.usertools.store import ToolStore
from golem_forge.usertools.suggestions import (
    Suggestion,
    begun_suggestion,
    event_sequence_key,
    find_suggestions,
    line_for_model,
    names_taken,
    unsettled_sequences,
)
from golem_forge.usertools.workshop import Workshop, open_workshop

if TYPE_CHECKING:
    from golem_forge.agent.worker_scope import WorkerScope
    from golem_forge.config.program import Program
    from golem_forge.core.calls import ToolCompletion
    from golem_forge.events.redaction import Redactor
    from golem_forge.events.serialization import Event
    from golem_forge.orchestrator.call_state import OnEffects
    from golem_forge.sandbox.walls.walls import WalledChild
    from golem_forge.tools.context import ToolContext

_ZONE: Final = f"/{USER_TOOLS}/"
_FIRST_WAIT_MS: Final = 10_000
_FIRST_TOKENS: Final = 10_000


def session_workshop(session_state: SessionState) -> Workshop:
    """Returns the workshop of the session; made once."""

    def opened() -> Workshop:
        state = session_state
        workshop = _open_workshop(state.home, state.program, state.rules, state.redactor)
        workshop.session_id, workshop.background_runner = state.id, run_in_background
        workshop.journal = lambda: _flushed_journal(state)
        workshop.report = lambda kind, text: state.bus.emit("status", {"type": kind, "message": text})
        return workshop

    return session_state.parts.get(Workshop, opened)


def _flushed_journal(session_state: SessionState) -> Path | None:
    if (journal := session_state.journal) is None:
        return None
    journal.flush()
    return journal.path


def open_program_workshop(
    home: ForgeHome, directory: Path | str, report: Callable[[str, str], None] | None = None
) -> Workshop:
    """Walls as the program around this directory (or the person's config) sets them. Raises ConfigError."""
    trust = trust_store(home)
    program = read_program(directory, home, trust)
    rules = RuleBook(home, project_root=program.root, project_trusted=lambda: trust.trusted(program.root))
    workshop = _open_workshop(home, program, rules, known_secrets(home))
    workshop.report = report or workshop.report
    workshop.registry.refresh()
    return workshop


def _open_workshop(home: ForgeHome, program: Program, rules: RuleBook, redactor: Redactor) -> Workshop:
    return open_workshop(
        home,
        native=native_descriptions(),
        redactor=redactor,
        environ=person_environ(),
        settings=program.walls,
        zones=[os.path.realpath(path) for path in (program.root, *(zone.path for zone in program.zones))],
        host_rule=host_rule_for(rules, str(program.root), DEFAULT_WORKER),
    )


def with_user_tools_zone(sandbox: Sandbox, block: UserToolsBlock | None, session_state: SessionState) -> Sandbox:
    """The sandbox of a worker that may make tools. Raises ConfigError."""
    if block is None or not block.create:
        return sandbox
    folder = session_state.tools_folder()
    return sandbox if folder is None else sandbox.with_user_tools(folder)


def user_tools_for(scope: WorkerScope, block: UserToolsBlock) -> UserTools:
    workshop = session_workshop(scope.state)
    built_in: dict[str, ApprovalBlock] = {}
    """What the worker's blocks say of built-in tools whose names ours have."""

    def placed(names: tuple[str, ...]) -> None:
        said = scope.orchestrator.judge.blocks.blocks
        for name in filter(workshop.shadows, names):
            built_in.setdefault(name, said.get(name) or ApprovalBlock())
        if block.approval.default or block.approval.tools or built_in:
            scope.add_tools((), {name: _shadow_approval(built_in.get(name), block.approval, name) for name in names})

    def returned(name: str) -> None:
        if (before := built_in.pop(name, None)) is not None:
            scope.add_tools((), {name: before})

    offer = ToolSelection(tools=block.tools, create=block.create)
    tools = UserTools(workshop, offer, scope.catalog, on_placed=placed, on_returned=returned)
    scope.model_tools.user_tools = tools
    return tools


def _shadow_approval(built_in: ApprovalBlock | None, approval: ApprovalBlock, name: str) -> ApprovalBlock:
    """Returns the approval block of a tool that replaces a built-in one: it stays blocked if the built-in one is
    blocked.
    """
    said = (built_in.tools.get(name) or built_in.default) if built_in is not None else None
    if said is None or said.value is not Verdict.BLOCKED:
        return approval
    return replace(approval, tools={**approval.tools, name: said})


def initial_notices(tools: UserTools) -> list[str]:
    """Loads the tools for the first time; what the person should know at the start."""
    news = tools.refresh()
    return [] if news is None else [*news.warnings, *news.announcements]


def record_agent_writes(session_state: SessionState, worker: Callable[[], str]) -> OnEffects:
    """Returns a callback that records what an agent wrote into a tool's folder as agent's work, whoever
    made the tool.
    """

    def note(call: ToolCall, effects: tuple[Effect, ...]) -> None:
        if call.caller is Caller.HUMAN:
            return
        for effect in effects:
            if effect.verb in (Verb.WRITE, Verb.DELETE) and effect.target.startswith(_ZONE):
                name = effect.target.removeprefix(_ZONE).partition("/")[0]
                session_workshop(session_state).store.record_agent_edit(name, session_state.id, worker())

    return note


async def run_in_background(
    start: Callable[[], Awaitable[WalledChild]], ctx: ToolContext, seconds: float
) -> ToolCompletion:
    """A tool that goes on after its call is a session, read and ended with `write_stdin`."""
    kind = CommandSpec(owner=ctx.owner, tty=False, timeout_s=seconds)
    args = {"yield_time_ms": _FIRST_WAIT_MS, "max_output_tokens": _FIRST_TOKENS}
    return await first_wait(ctx.parts.get(ExecSessions), start, kind, args, ctx)


MAX_SUGGESTED: Final = 5
"""Maximum suggestions in one session; more would be noise."""
_WAIT_S: Final = 0.25
"""The longest wait for a search; a later result is used when it comes."""
_log = logging.getLogger(__name__)


class ToolSuggestions:
    """The session's part; opened by `session_suggestions`."""

    def __init__(self, session_state: SessionState) -> None:
        self._session_state = session_state
        self._workshop = session_workshop(session_state)
        self._redactor = session_state.redactor
        """A copy from when the search began: the session's own changes while a thread uses this one."""
        self._past: tuple[SessionCalls, ...] | None = None
        self._own = _SessionTurns(session_state)
        self._found: tuple[Suggestion, ...] = ()
        self._nearly: tuple[RepeatedSequence, ...] = ()
        """What was done often enough that once more makes it a habit."""
        self._names: frozenset[str] = frozenset()
        self._search: asyncio.Future[tuple[Suggestion, ...]] | None = None
        self._waited = False
        """Only the first request may wait, for the first search."""
        self._shown: set[str] = set()
        self._sent: set[str] = set()
        self._rating_offered: set[str] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._forget: Callable[[], None] = session_state.bus.on("toolResult", self._on_result)

    async def aclose(self) -> None:
        self._closed = True
        self._forget()
        if self._search is not None:
            self._search.cancel()

    # ---- sequences

    def begin(self, scope: WorkerScope) -> None:
        """A worker took its place. A session without a journal knows only what others left."""
        if CREATE_TOOL_NAME in scope.catalog and self._search is None and self._past is None:
            self._start_search()

    async def before_request(self, scope: WorkerScope, history: History) -> None:
        """Called between two requests of this worker's model, the only place where a note may be added
        to its history.
        """
        if CREATE_TOOL_NAME not in scope.catalog:
            return
        if not self._waited:
            self._waited = True
            await self._settle()
        self._collect()
        await self._look_at_begun()
        for suggestion in self._applicable(scope):
            if suggestion.key in self._sent:
                continue
            self._show(scope, suggestion)
            self._sent.add(suggestion.key)
            try:
                history.add(UserMessage(text=line_for_model(suggestion, self._session_state.id), kind="note"))
            except ForgeError as error:  # the journal refuses; the turn will say so where it matters
                _log.warning("a suggestion was not told: %s", error.message)
                return
            self._workshop.suggestions.add(suggestion)

    async def _look_at_begun(self) -> None:
        """A turn that does for the third time what was done twice hears of it before it ends."""
        if not self._nearly or self._search is not None:
            return
        with contextlib.suppress(TooManyThreads):
            self._search = run_in_thread(self._find_begun)
            await self._settle()
            self._collect()

    def _find_begun(self) -> tuple[Suggestion, ...]:
        known = {each.key for each in self._found}
        new = [
            suggestion
            for segment in self._own.unfinished()
            if (
                suggestion := begun_suggestion(
                    [each for each in self._nearly if each.key not in known],
                    Occurrence(self._session_state.id, segment),
                    self._session_state.home,
                    self._redactor.value,
                    self._names,
                )
            )
        ]
        return (*self._found, *new)

    async def after_turn(self, scope: WorkerScope) -> None:
        if CREATE_TOOL_NAME not in scope.catalog:
            return
        self._collect()
        if self._search is None:
            self._start_search()
        await self._settle()
        self._collect()
        for suggestion in self._applicable(scope):
            self._show(scope, suggestion)

    def _applicable(self, scope: WorkerScope) -> list[Suggestion]:
        """Returns the suggestions from this session's own steps, for tools that this worker has."""
        if not self._found:
            return []
        there, here = set(scope.catalog.names()), self._session_state.id
        fitting = [each for each in self._found if here in each.seen_in and there.issuperset(each.tools)]
        new = [each for each in fitting if each.key not in self._shown][: max(0, MAX_SUGGESTED - len(self._shown))]
        return [each for each in fitting if each.key in self._shown or each in new]

    def _show(self, scope: WorkerScope, suggestion: Suggestion) -> None:
        if suggestion.key not in self._shown:
            self._shown.add(suggestion.key)
            scope.emit("toolSuggested", suggestion.event())

    def _start_search(self) -> None:
        self._redactor = self._session_state.redactor.copy()
        with contextlib.suppress(TooManyThreads):
            self._search = run_in_thread(self._find)

    async def _settle(self) -> None:
        if self._search is not None:
            await asyncio.wait({self._search}, timeout=_WAIT_S)

    def _collect(self) -> None:
        """Takes the result of a search that is finished."""
        if self._search is None or not self._search.done():
            return
        search, self._search = self._search, None
        if search.cancelled():
            return
        if (error := search.exception()) is not None:
            _log.warning("no suggestions: %s", type(error).__name__)
            return
        self._found = search.result()
        self._shown |= self._own.suggested_before
        self._sent |= self._own.suggested_before

    def _find(self) -> tuple[Suggestion, ...]:
        """Searches for suggestions on a thread, one search at a time; it opens its own store, since the session's
        belongs to the loop.
        """
        own = self._own.read_on()
        if self._past is None:
            self._past = recent_sessions(self._session_state.home, without=self._session_state.id)
        elif own is None:
            return self._found
        store = ToolStore(self._session_state.home)
        home, native = self._session_state.home, self._workshop.native
        sessions = (*(own or ()), *self._past)
        try:
            self._names = frozenset({*names_taken(store), *native})
            self._nearly = tuple(unsettled_sequences(home, store, sessions, native=native, nearly=True))
            return find_suggestions(home, store, sessions, native=native, redact=self._redactor.value)
        finally:
            store.close()

    # ---- ratings

    def _on_result(self, event: Event) -> None:
        name = str(event.wire.get("toolName", ""))
        if name in self._workshop.registry.entries and name not in self._rating_offered:
            # The store records this run right after this event: the third one is counted then.
            self._loop.call_soon(self._offer_rating, name, event.worker_id)

    def _offer_rating(self, name: str, worker_id: str) -> None:
        if self._closed:  # the run was the session's last; its journal takes nothing any more
            return
        if name not in self._rating_offered and self._workshop.store.claim_rating_offer(name):
            self._rating_offered.add(name)
            message = f"rate it: /rate {name} good|bad [note]"
            self._session_state.bus.emit("status", {"type": "info", "message": message}, worker_id)


class _SessionTurns:
    """This session's turns, from its journal as far as it is written. Used on one thread at a time."""

    def __init__(self, session_state: SessionState) -> None:
        self._id = session_state.id
        self._tail = JournalTail(session_state.journal.path) if session_state.journal is not None else None
        self._turns = TurnReader()
        self._read = False
        self._last: object = None
        self.suggested_before: frozenset[str] = frozenset()
        """What the session had been told before it was resumed."""

    def unfinished(self) -> tuple[Segment, ...]:
        """Returns the last steps of turns that still go on."""
        self._read_records()
        return self._turns.unfinished()

    def read_on(self) -> tuple[SessionCalls, ...] | None:
        """The session as far as its turns are over; None: as before."""
        self._read_records()
        if not self._read:
            self._read = True
            self.suggested_before = frozenset(map(event_sequence_key, self._turns.suggested))
        segments = self._turns.answered()
        last = (len(segments), segments[-1][-1].call) if segments else None
        if last == self._last:
            return None
        self._last = last
        return (SessionCalls(self._id, segments),)

    def _read_records(self) -> None:
        with contextlib.suppress(OSError):
            for record in self._tail.records() if self._tail is not None else ():
                self._turns.add(record)


def session_suggestions(session_state: SessionState) -> ToolSuggestions:
    return session_state.parts.get(ToolSuggestions, lambda: ToolSuggestions(session_state))
