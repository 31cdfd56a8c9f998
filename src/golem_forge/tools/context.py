"""ToolContext: what a running tool is given; Plan: what a tool is about to do. Nothing is global.

A tool that touches files, programs or hosts plans first: it resolves its targets, states its effects, computes the
diff, and returns a Plan whose `run` does exactly that and nothing else. Policy and approval come between the two.

`ask`, `sample`, `roots`, `log` and `resource_updated` speak to whoever called: the client of `forge mcp serve`, else
the person of the session. Each is a call of a tool that only tools may call (`client:ask`, …), so it is judged and
recorded like every other; the `…_blocking` forms are for sync tools.

`SessionParts` holds what tools keep between the calls of one session (running processes, plans); it ends with the
session. A tool object serves every session of a process, so nothing of one session may live in the tool itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from golem_forge.core.calls import Caller, Outcome
from golem_forge.core.changes import UndoSettings
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.options import options_from
from golem_forge.core.signals import InterruptSignal

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from golem_forge.core.effects import Effect
    from golem_forge.events.redaction import Redactor
    from golem_forge.sandbox.sandbox import Sandbox
    from golem_forge.sandbox.walls.model import Coverage, PathRule
    from golem_forge.sandbox.walls.walls import Walls
    from golem_forge.tools.tool import Tool

T = TypeVar("T")


class SessionParts:
    def __init__(self) -> None:
        self._parts: dict[type, Any] = {}

    def get(self, kind: type[T], make: Callable[[], T] | None = None) -> T:
        """The session's one object of this kind, made when first asked for."""
        if kind not in self._parts:
            self._parts[kind] = (make or kind)()
        return cast(T, self._parts[kind])

    @property
    def busy(self) -> bool:
        """Whether a part runs something that would end with this process."""
        return any(getattr(part, "busy", False) for part in self._parts.values())

    async def close(self) -> None:
        """Ends every part that has an `aclose`; one that fails does not keep the others alive."""
        parts, self._parts = self._parts, {}
        for part in parts.values():
            if hasattr(part, "aclose"):
                with contextlib.suppress(Exception):
                    await part.aclose()


class ModelNotes:
    """A part of the session: what Forge tells the model once, before the next message of the person."""

    def __init__(self) -> None:
        self._notes: list[str] = []

    def add(self, text: str) -> None:
        self._notes.append(text)

    def take(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes


Progress = Callable[[float, float | None, str], None]
"""Called with (progress, total or None, message)."""


class NestedCall(Protocol):
    """Re-enters the one path as caller `tool`. `refuse`: the calling tool itself says no; that is recorded too.
    `whole`: the Outcome also has what was cut of a long result."""

    def __call__(
        self, name: str, args: dict[str, Any], *, refuse: str = "", whole: bool = False
    ) -> Awaitable[Outcome]: ...


class ProgramCalls:
    """State shared by all calls of one running program, also through tools and workers that it calls: its clock stops
    while a question about one of them is open, and a denied call is denied again without a question.
    """

    def __init__(self) -> None:
        self.denied: dict[str, str] = {}
        """Fingerprint of a call → what was said. Written at the moment of the answer: other threads of the program make
        the same call meanwhile."""
        self._open = 0
        self._since = 0.0
        self._asked_s = 0.0

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Context manager that stops the program's clock while a question is open; several may be open together."""
        if not self._open:
            self._since = monotonic()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._asked_s += monotonic() - self._since

    @property
    def asked_s(self) -> float:
        """Returns the seconds during which a question was open."""
        return self._asked_s + (monotonic() - self._since if self._open else 0.0)


class OfferedTools(Protocol):
    """The tools that a model may call in one place; `orchestrator.Orchestrator` knows them."""

    def usable_tools(self) -> Mapping[str, Tool]:
        """Returns the tools by name, in catalog order, without those that are always refused."""
        ...

    def search_tools(self, query: str, limit: int) -> Sequence[Tool]:
        """Returns the best matches among the usable tools, best first."""
        ...


class KeptText(Protocol):
    """An output too long for its caller, whole on disk."""

    @property
    def path(self) -> Path: ...


class OutputLookup(Protocol):
    """Finds stored outputs by handle; `orchestrator.bound.OutputStore` implements it."""

    def find(self, handle: str, worker: str, *, any_session: bool = False) -> KeptText | None: ...

    def keep_pieces(self, pieces: Iterable[bytes], worker: str) -> str:
        """Writes UTF-8 text that arrives in pieces and gives its handle. Nothing of it is kept in memory."""
        ...


class HostPermission(NamedTuple):
    """What rules allow for a `host:port` besides their verdict."""

    listed: bool = False
    """Whether a host rule names this port."""
    private: bool = False
    """A rule of the person's own allows an address in a private range for this host."""
    blocked: bool = False
    """A rule refuses it: for what is reached on the way (a redirect) without being judged by itself."""


HostRule = Callable[[str, int], HostPermission]


def no_host_rule(host: str, port: int) -> HostPermission:
    return HostPermission()


class Answer(NamedTuple):
    """A person's answer to a form: `accept` (with values), `decline` or `cancel`."""

    action: str
    values: Mapping[str, Any]

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


class Sample(NamedTuple):
    """A model's answer to a sampling request."""

    text: str
    model: str = ""
    stop_reason: str = ""


class Root(NamedTuple):
    """A directory that the client works in, or a zone."""

    uri: str
    name: str = ""


def _data(outcome: Outcome) -> Any:
    if not outcome.ok or outcome.result is None:
        raise ToolFailed(outcome.error or "it could not be asked", status=outcome.status, code=outcome.code)
    data = outcome.result.value.get("data")
    if not isinstance(data, Mapping):  # it was cut
        raise ToolFailed("The answer is too large.", code="ANSWER_TOO_LARGE")
    return data


def _answer(outcome: Outcome) -> Answer:
    said = _data(outcome)
    return Answer(said["action"], said.get("values") or {})


def _sample(outcome: Outcome) -> Sample:
    said = _data(outcome)
    return Sample(said["text"], said.get("model", ""), said.get("stopReason", ""))


def _roots(outcome: Outcome) -> tuple[Root, ...]:
    return tuple(Root(each["uri"], each.get("name", "")) for each in _data(outcome)["roots"])


Messages = str | Sequence[Mapping[str, Any]]
"""A text of the user, or messages as MCP writes them: `{role, content}`."""


def _sample_args(messages: Messages, system: str, max_tokens: int, key: str) -> dict[str, Any]:
    given = [{"role": "user", "content": messages}] if isinstance(messages, str) else [dict(one) for one in messages]
    return {"messages": given, "system": system, "max_tokens": max_tokens, "key": key}


async def _awaited(call: Awaitable[Outcome]) -> Outcome:
    return await call


async def _no_calls(name: str, args: dict[str, Any], *, refuse: str = "", whole: bool = False) -> Outcome:
    raise RuntimeError("this context cannot call other tools")


async def _no_tools(name: str) -> Tool | None:
    return None


@dataclass(slots=True, kw_only=True)
class ToolContext:
    call_id: str = ""
    outermost_call_id: str = ""
    """The id of the first call in the chain of tools that call tools; its caller is the one who can be asked."""
    session_id: str = ""
    worker: str = "main"
    """Worker names from the root, e.g. `main/coder`."""
    called_by: str = ""
    """The tool that made this call; empty: no tool did."""
    guest: str = ""
    """The client of a served session that makes the call; empty if the session has only one."""
    caller: Caller = Caller.LLM
    undo: UndoSettings = field(default_factory=UndoSettings)
    recording: Any = None
    """The record of the call's file changes (`orchestrator.record.CallRecording`). A tool whose process outlives the
    call sets its `ends`.
    """
    contained: bool = False
    """Whether the call runs without a question because its walls keep everything inside and undoable. Known once the
    call runs.
    """
    contains: bool = False
    """The approval mode is `contained`: a plan says of its effects what leaves the walls or cannot be undone."""
    coverage: Coverage | None = None
    """What of the zones could not be undone, for planners that cannot await it. None if `contains` is not set or there
    are no full walls.
    """
    sandbox: Sandbox | None = None
    outputs: OutputLookup | None = None
    """The whole of what was too long to be shown, by handle."""
    cancel: InterruptSignal = field(default_factory=InterruptSignal)
    progress: Progress = lambda progress, total, message: None
    call: NestedCall = _no_calls
    find: Callable[[str], Awaitable[Tool | None]] = _no_tools
    """A tool that `call` would reach, to see what it takes; None: there is none for it. Waits for a server that has not
    been asked yet."""
    offered: OfferedTools | None = None
    """The tools that a model may call here; None if this context cannot call other tools."""
    program: ProgramCalls | None = None
    """The program that this call belongs to; a tool that is itself such a program puts its own here before it calls."""
    loop: AbstractEventLoop | None = None
    walls: Walls | None = None
    """The walls in which the worker's processes run."""
    parts: SessionParts = field(default_factory=SessionParts)
    """Objects that tools keep between the calls of one session."""
    redactor: Redactor | None = None
    """Removes known secrets from texts."""
    home: Path | None = None
    """FORGE_HOME, for what Forge itself keeps; no path a tool is given leads there."""
    show: Callable[[str, dict[str, Any]], None] = lambda event, data: None
    """Tells the UIs: (type of a display event, its data)."""
    host_rule: HostRule = no_host_rule
    """Returns what rules allow for a normalised host and port."""
    path_rules: Callable[[], tuple[PathRule, ...]] = lambda: ()
    """The rules about paths that tools which walk trees, and walls, must keep themselves."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ToolContext:
        """Builds a context from some of its fields by name, for tests of a tool. Raises TypeError for an
        unknown name.
        """
        names = {"tool_call_id": "call_id", "abort_signal": "cancel"}
        known = (*names, *(each.name for each in fields(cls)))
        given = options_from(options, known=known, where="the options of execute")
        return cls(**{names.get(name, name): value for name, value in given.items()})

    @property
    def tool_call_id(self) -> str:
        """Another name of `call_id`."""
        return self.call_id

    @property
    def abort_signal(self) -> InterruptSignal:
        """Another name of `cancel`."""
        return self.cancel

    @property
    def workspace(self) -> str:
        """The virtual path that relative paths start from; empty without file access."""
        zone = self.sandbox.default_zone if self.sandbox else None
        return f"/{zone}" if zone else ""

    @property
    def owner(self) -> str:
        """The owner of processes that a call leaves running: this worker, and the client where there are several."""
        return f"{self.guest}@{self.worker}" if self.guest else self.worker

    def call_blocking(self, name: str, args: dict[str, Any]) -> Outcome:
        """`call` for a sync tool, which runs in a thread of its own and may wait there."""
        from asyncio import _get_running_loop, run_coroutine_threadsafe

        if self.loop is None:
            raise RuntimeError("this context cannot call other tools")
        if _get_running_loop() is not None:
            raise RuntimeError("call_blocking would stop the event loop for good: `await ctx.call(…)` instead")
        return run_coroutine_threadsafe(_awaited(self.call(name, args)), self.loop).result()

    async def ask(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Answer:
        """Asks whoever called a form. `schema`: an object of simple properties, as MCP's elicitation has them. `key`:
        how the question is called on the wire. Raises ToolFailed where nobody can be asked."""
        return _answer(await self.call("client:ask", {"message": message, "schema": dict(schema), "key": key}))

    def ask_blocking(self, message: str, schema: Mapping[str, Any], *, key: str = "") -> Answer:
        return _answer(self.call_blocking("client:ask", {"message": message, "schema": dict(schema), "key": key}))

    async def sample(self, messages: Messages, *, system: str = "", max_tokens: int = 1000, key: str = "") -> Sample:
        """An answer of the caller's model: the client's, else the session's own, if a person agrees. Raises ToolFailed
        where there is none, or it was refused."""
        return _sample(await self.call("client:sample", _sample_args(messages, system, max_tokens, key)))

    def sample_blocking(self, messages: Messages, *, system: str = "", max_tokens: int = 1000, key: str = "") -> Sample:
        return _sample(self.call_blocking("client:sample", _sample_args(messages, system, max_tokens, key)))

    async def roots(self, *, key: str = "") -> tuple[Root, ...]:
        """The directories that the client works in; without a client the zones. Raises ToolFailed."""
        return _roots(await self.call("client:roots", {"key": key}))

    def roots_blocking(self, *, key: str = "") -> tuple[Root, ...]:
        return _roots(self.call_blocking("client:roots", {"key": key}))

    async def log(self, level: str, text: str) -> None:
        """A line for whoever called: a log message to a client that wants that level, a notice to a person. `level`:
        debug, info, notice, warning, error, critical, alert or emergency. A test of a tool has nobody to tell."""
        if self.call is not _no_calls:
            _data(await self.call("client:log", {"level": level, "text": text}))

    def log_blocking(self, level: str, text: str) -> None:
        if self.call is not _no_calls:
            _data(self.call_blocking("client:log", {"level": level, "text": text}))

    async def resource_updated(self, uri: str) -> None:
        """Clients that subscribed to this resource of the program are told to read it again."""
        if self.call is not _no_calls:
            _data(await self.call("client:resource_updated", {"uri": uri}))

    def resource_updated_blocking(self, uri: str) -> None:
        if self.call is not _no_calls:
            _data(self.call_blocking("client:resource_updated", {"uri": uri}))

    def without_calls(self) -> ToolContext:
        """Returns a copy for the tool's own check: it cannot call other tools, because the call is not approved yet."""
        return replace(self, call=_no_calls, loop=None)

    def report_progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Tells the UIs how far the tool is, and resets the call's idle timeout."""
        self.progress(progress, total, message)


@dataclass(slots=True, kw_only=True)
class Plan:
    run: Callable[[], Any]
    """Does what was planned; sync (runs off the event loop) or returning an awaitable."""
    effects: tuple[Effect, ...] | None = None
    """None if the tool does not declare what it touches; an empty tuple if it touches nothing."""
    diff: str = ""
    """Unified diff over virtual paths, computed from the bytes that `run` will write."""
    command: Any = None
    """For tools that run shell text: its analysis (`policy.facts.CommandFacts`), used by rules about commands."""
    payload: str = ""
    """The literal text that matters (a command); empty: the arguments are the payload."""
    fingerprint_args: dict[str, Any] | None = None
    """Arguments without presentation and in normal form, where they differ from the validated ones."""
    rule_args: tuple[dict[str, Any], ...] = ()
    """What rules about this tool's arguments see beside them, as the plan resolved it: one mapping for each thing that
    the call does. A rule that allows must name all of it and match each of them, one that asks or blocks any. Never in
    the fingerprint."""
    targets: tuple[str, ...] = ()
    """Further fingerprint targets beside the effects', e.g. `cwd /srv/app`."""
    read_only: bool | None = None
    """Overrides the tool's own place at the gate for this one call."""
    recheck: Callable[[], None] | None = None
    """Called after a wait; raises if a target is no longer the one that was judged."""
    close: Callable[[], None] | None = None
    """Releases held descriptors; called at least once, however the call ends."""
    unasked: str = ""
    """The hint for a refusal where nobody can be asked: how a person can allow the call beforehand."""
    undoes: tuple[str, ...] = ()
    """The ids of the calls that this one undoes."""
    undoes_in: str = ""
    """Their session, whose change log says so then."""
    model_note: str = ""
    """The model's own remark about this call, shown as the model's words."""
    warnings: tuple[str, ...] = field(default=())

    def release(self) -> None:
        if self.close is not None:
            self.close()
