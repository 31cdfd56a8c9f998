"""ServingHost: the session behind `forge mcp serve` as the server needs it, with a client's calls and approvals.

The server speaks the protocol and keeps connections; what a client asks for is done by its ClientHandle on the one
path. A ClientHandle is one client's scope: its own memory of approvals, its own outputs, the worker's tools. `agent`
implements both, and so do tests.

`ServedCall` runs in its own task, from the request to its Outcome. A question that the client must answer may come up
(an approval, a form of a proxied server, a form, a model's answer or the roots that a tool asks for): `next` returns
the question or the Outcome, whichever comes first. With the handshake protocol the question is sent while the request
stays open; on 2026-07-28 the request is answered with all that are open (`settled`), the call is suspended and a later
request continues it.

Threat: a client may leave at any moment, answer twice or never. A question is answered once, by `cancel` after its
timeout, and ending a call ends its questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Protocol

from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import AnsweredBy, Decision, Status
from golem_forge.core.effects import NOT_COVERED, without_command
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.active_calls import answering_client, tool_form
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer
from golem_forge.mcp.client.resources import ServerAccess
from golem_forge.policy.approval_queue import ApprovalResult, PendingApproval, denied_result
from golem_forge.policy.controller import ApprovalController, BeforePerson
from golem_forge.policy.request import ApprovalOffer, ApprovalRequest
from golem_forge.tools.context import ToolContext
from golem_forge.tools.tool import Tool

Progress = Callable[[float, float | None, str], None]
"""(progress, total or None, message); called on the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    caller_name: str = ""
    """The name of its token, for the journal (`mcp:NAME`); empty over stdio."""


class ClientHandle(Protocol):
    async def call(self, name: str, args: Any, *, call_id: str, cancel: InterruptSignal, progress: Progress) -> Outcome:
        """One call as `Caller.MCP` through the one path, under this id. `cancel` ends it and whatever it started.

        Never raises for what the call does. What needs approval is asked through a `ClientApproval` of this guest.
        """
        ...

    def output(self, handle: str) -> Path | None:
        """The kept output of this handle. The server only asks for handles that this client was given."""
        ...

    async def aclose(self) -> None:
        """The client is gone: what it agreed to is forgotten."""
        ...


class ServingHost(Protocol):
    @property
    def calls(self) -> ServedCalls:
        """Every call under way, by id: how a question that comes up in one finds the client who made it."""
        ...

    @property
    def redactor(self) -> Redactor:
        """The session's redactor."""
        ...

    async def gathered(self) -> None:
        """Awaited before a client's list: what is just being asked for the first time gets a moment, once.

        A client that lists once and listens to no news would never hear of it otherwise.
        """
        ...

    def offered(self) -> tuple[Tool, ...]:
        """Returns the tools for `Caller.MCP` after a check for changes; the same tuple until something changed.

        Called twice a second while a client is connected, so it must be cheap.
        """
        ...

    def admit(self, client: ClientFacts) -> ClientHandle:
        """Registers a client: once per connection with the handshake protocol, once per token on modern HTTP."""
        ...

    async def aclose(self) -> None:
        """Ends the session and all its processes."""
        ...


ANSWER_SECONDS: Final = 600.0
FORGE_QUESTION_KEY: Final = "forge"
END_SECONDS: Final = 0.8
"""Cancelling a call must be over within a second, whatever the call does about it."""
SETTLE_SECONDS: Final = 0.1
MOST_QUESTIONS: Final = 16
"""Maximum questions in one answer to a client; the others follow."""
MOST_LOGS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationReply:
    """The answer of the client's person: `accept` (with content), `decline` or `cancel`."""

    action: str = "cancel"
    content: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElicitationSupport:
    """What the client says it can be asked."""

    forms: bool = False
    pages: bool = False
    """URLs that its person opens."""
    sampling: bool = False
    """Requests to its own model."""
    roots: bool = False


ELICIT: Final = "elicitation/create"
SAMPLE: Final = "sampling/createMessage"
ROOTS: Final = "roots/list"
CAPABILITY_MISSING: Final = "CLIENT_CAPABILITY_MISSING"


class ClientQuestion:
    """One question on its way to the client. Answered once; later answers change nothing."""

    def __init__(
        self,
        message: str,
        schema: Mapping[str, Any],
        url: str = "",
        key: str = "",
        *,
        method: str = ELICIT,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """`key`: how whoever asks calls the question. `method`, `params`: what else than a form it asks for."""
        self.message = message
        self.schema = schema
        self.url = url
        self.key = key or FORGE_QUESTION_KEY
        self.method = method
        self.params = dict(params or {})
        self._reply: asyncio.Future[ElicitationReply] = asyncio.get_running_loop().create_future()

    @property
    def open(self) -> bool:
        return not self._reply.done()

    def answer(self, reply: ElicitationReply) -> None:
        if self.open:
            self._reply.set_result(reply)

    async def replied(self) -> ElicitationReply:
        return await asyncio.shield(self._reply)  # whoever stops waiting does not withdraw it


class ServedCall:
    def __init__(self, call_id: str, abilities: ElicitationSupport, client: object = None) -> None:
        """`client`: whose it is; what servers ask during calls of different ones is never mixed up."""
        self.id = call_id
        self._client = client
        self.abilities = abilities
        self.cancel = InterruptSignal()
        self.logs: asyncio.Queue[tuple[str, str]] = asyncio.Queue(MOST_LOGS)
        """(level, text) that are not sent yet; further ones are dropped."""
        self.missing: dict[str, str] = {}
        """Capabilities that the call asked for in vain → what it was told."""
        self.progress: asyncio.Queue[tuple[float, float | None, str]] = asyncio.Queue(1)
        """The latest that is not sent yet: one that nobody has read makes room for the next."""
        self._questions: deque[ClientQuestion] = deque()
        self._news = asyncio.Event()
        self._task: asyncio.Task[Outcome] | None = None

    def start(self, work: Coroutine[Any, Any, Outcome], over: Callable[[], None] = lambda: None) -> None:
        """`over` is told when the call has its Outcome, whoever still waits for it."""

        def ended(task: asyncio.Task[Outcome]) -> None:
            self._news.set()
            over()

        self._task = asyncio.get_running_loop().create_task(self._run(work))
        self._task.add_done_callback(ended)

    async def _run(self, work: Coroutine[Any, Any, Outcome]) -> Outcome:
        _current_call.set(self)
        answering_client.set(self._client)
        return await work

    async def next(self) -> ClientQuestion | Outcome:
        """The next open question, else the Outcome. A caller that is cancelled leaves the call as it is."""
        assert self._task is not None
        while True:
            while self._questions and not self._questions[0].open:
                self._questions.popleft()
            if self._task.done():
                return self._task.result()
            if self._questions:
                return self._questions[0]
            self._news.clear()
            await self._news.wait()

    async def settled(self) -> list[ClientQuestion]:
        """Every open question, once no further one came up for a moment: what a tool asks at once goes out at once."""
        seen = -1
        while seen != (count := len(self._open())) and count < MOST_QUESTIONS:
            seen = count
            await asyncio.sleep(SETTLE_SECONDS)
        return self._open()[:MOST_QUESTIONS]

    def _open(self) -> list[ClientQuestion]:
        return [question for question in self._questions if question.open]

    async def ask(self, question: ClientQuestion, seconds: float = ANSWER_SECONDS) -> ElicitationReply:
        """Asks the client from inside the call and waits for the answer; a timeout counts as `cancel`."""
        able = {
            ELICIT: self.abilities.pages if question.url else self.abilities.forms,
            SAMPLE: self.abilities.sampling,
            ROOTS: self.abilities.roots,
        }[question.method]
        over = self._task is not None and self._task.done()  # nobody would ever fetch it
        if not able or over or self.cancel:
            return ElicitationReply()
        loop = asyncio.get_running_loop()
        question.key = self._own_key(question.key)
        forget = self.cancel.listen(lambda _: loop.call_soon_threadsafe(question.answer, ElicitationReply()))
        late = loop.call_later(seconds, question.answer, ElicitationReply())
        self._questions.append(question)
        self._news.set()
        try:
            return await question.replied()
        finally:
            late.cancel()
            forget()
            question.answer(ElicitationReply())
            self._news.set()

    def _own_key(self, key: str) -> str:
        """Another key where an open question of this call has it."""
        taken = {each.key for each in self._open()}
        return next(each for each in (key, *(f"{key}_{n}" for n in range(2, len(taken) + 3))) if each not in taken)

    def log(self, level: str, text: str) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            self.logs.put_nowait((level, text))

    def report(self, progress: float, total: float | None, message: str) -> None:
        with contextlib.suppress(asyncio.QueueEmpty):
            self.progress.get_nowait()
            self.progress.task_done()
        self.progress.put_nowait((progress, total, message))

    async def end(self, why: str) -> None:
        """Ends the call and its whole process tree; back within a second."""
        self.cancel.interrupt(why)
        task = self._task
        if task is None or task.done():
            return
        await asyncio.wait({task}, timeout=END_SECONDS)
        if not task.done():
            task.cancel()


_current_call: ContextVar[ServedCall | None] = ContextVar("golem_forge_served_call", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOffers:
    """What a session offers besides its tools."""

    reserved: Callable[[str], list[Tool]] = lambda word: []
    """The tools of a reserved word: `prompt`, `resource`, `complete`, `server`."""
    access: ServerAccess = field(default_factory=ServerAccess)
    """MCP servers by worker."""
    worker: str = ""
    """The path of the served worker."""
    stamp: Callable[[str], object] = lambda path: None
    """Returns a value that changes when a file of a zone changes, without reading it; None if it does not exist."""


class ServedCalls:
    """The calls under way, by their id at the top of the one path, and what is offered beside tools."""

    def __init__(self) -> None:
        self._calls: dict[str, ServedCall] = {}
        self.updates = ResourceUpdates()
        self.offers = ServedOffers()

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: ServedCall) -> None:
        self._calls[call.id] = call

    def discard(self, call: ServedCall) -> None:
        self._calls.pop(call.id, None)

    def call_of(self, request: ApprovalRequest) -> ServedCall | None:
        """The call in which this approval came up: itself, or made by a tool that it called."""
        outermost = next((str(link["id"]) for link in request.worker_path if link.get("tool")), request.call_id)
        return self._calls.get(outermost) or _current_call.get()

    async def ask_form(self, form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        """`Hooks.ask_form` of a served session: the form of a proxied server goes to the client whose call it is."""
        call = self._calls.get(ctx.outermost_call_id or ctx.call_id) or _current_call.get()
        return FormAnswer() if call is None else await self._ask_form(form, call, ctx)

    async def _ask_form(self, form: ElicitationForm, call: ServedCall, ctx: ToolContext) -> FormAnswer:
        message, schema = _without_secrets((f"{form.server}: {form.message}", form.schema), ctx)
        reply = await call.ask(ClientQuestion(message, schema, form.url, form.key))
        return FormAnswer(action=reply.action, values=dict(reply.content))

    # What a running tool asks its client: `toolsets.client.Partner`, in plain data.

    def _call_in(self, ctx: ToolContext) -> ServedCall:
        call = self._calls.get(ctx.outermost_call_id or ctx.call_id) or _current_call.get()
        if call is None:
            raise ToolFailed("The client that made this call is gone.", code=CAPABILITY_MISSING)
        return call

    async def ask(self, message: str, schema: Mapping[str, Any], key: str, ctx: ToolContext) -> dict[str, Any]:
        call = self._able(ctx, "elicitation", "show a form", lambda able: able.forms)
        form = ElicitationForm(server=ctx.called_by, message=message, schema=schema, key=key or "ask")
        return await tool_form(form, lambda filled: self._ask_form(filled, call, ctx), ctx.redactor)

    async def sample(self, request: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        call = self._able(ctx, "sampling", "ask its model", lambda able: able.sampling)
        params = {"messages": request["messages"], "maxTokens": request["max_tokens"]}
        params |= {"systemPrompt": request["system"]} if request["system"] else {}
        params = _without_secrets(params, ctx)
        reply = await call.ask(ClientQuestion("", {}, key=request["key"] or "sample", method=SAMPLE, params=params))
        if reply.action != "accept":
            raise ToolFailed("The client gave no answer from its model.")
        return dict(reply.content)

    async def roots(self, key: str, ctx: ToolContext) -> list[dict[str, str]]:
        call = self._able(ctx, "roots", "list its roots", lambda able: able.roots)
        reply = await call.ask(ClientQuestion("", {}, key=key or "roots", method=ROOTS))
        if reply.action != "accept":
            raise ToolFailed("The client did not list its roots.")
        return list(reply.content.get("roots", ()))

    def log(self, level: str, text: str, ctx: ToolContext) -> None:
        self._call_in(ctx).log(level, text)

    def resource_updated(self, uri: str, ctx: ToolContext) -> None:
        self.updates.publish(uri)

    def _able(
        self, ctx: ToolContext, capability: str, what: str, able: Callable[[ElicitationSupport], bool]
    ) -> ServedCall:
        """The call whose client can do it. Raises ToolFailed: a refusal at once, never a question nobody answers."""
        call = self._call_in(ctx)
        if not able(call.abilities):
            text = f"This client cannot {what}: it did not declare the capability '{capability}'."
            call.missing[capability] = text
            raise ToolFailed(text, code=CAPABILITY_MISSING)
        return call


def _without_secrets(value: Any, ctx: ToolContext) -> Any:
    """Threat: a tool or a proxied server that says to a client, or to its model, what it was given."""
    return ctx.redactor.without_secrets(value) if ctx.redactor is not None else value


class ResourceUpdates:
    """Tells whoever listens which resource changed."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[str], None]] = []

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, uri: str) -> None:
        for listener in tuple(self._listeners):
            listener(uri)


MOST_SHOWN: Final = 256 * 1024
"""A question that is longer is not asked: nobody may agree to what was cut."""
_EXACT: Final = ApprovalOffer(id="exact:session", label="this exact call, this session", scope="session", exact=True)
_FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "approve": {
            "type": "boolean",
            "title": "Approve",
            "description": "Whether this call may run.",
            "default": False,
        },
        "remember": {
            "type": "string",
            "title": "Remember",
            "description": "once: this call only. session: the same call may run again without a question.",
            "enum": ["once", "session"],
            "default": "once",
        },
    },
    "required": ["approve"],
}


class ClientApproval(ApprovalController):
    """Turns an `ask` into a form that the client's user answers. One for each client, with that client's memory.

    Unlike a session's own controller it never lets two calls share a question: an answer counts for its call alone, and
    `session` keeps that exact call for this client only, never as a rule. Where nobody can be asked, the call is denied
    with the text that says how to allow it. Silence and dismissal are neither a yes nor a denial by a person.
    """

    def __init__(self, mode: ApprovalMode, calls: ServedCalls) -> None:
        super().__init__(mode, _never_called)
        self._calls = calls

    async def approve(
        self,
        decision: Decision,
        tool: str,
        wait: Callable[[], PendingApproval],
        first: BeforePerson | None = None,
    ) -> ApprovalResult:
        by_itself = self.mode in (ApprovalMode.APPROVE_ALL, ApprovalMode.AUTO_DENY)
        if by_itself or self.memory.granted(decision.fingerprint):
            return await super().approve(decision, tool, wait, first)
        waiting = wait()
        if first is not None and (answered := await first(waiting)) is not None:
            return answered
        answer = await self._ask(waiting, tool)
        if not answer.approved and answer.by is AnsweredBy.PERSON:
            self.memory.deny(decision.fingerprint)
        return answer

    async def _ask(self, waiting: PendingApproval, tool: str) -> ApprovalResult:
        request = waiting.request
        call = self._calls.call_of(request)
        if call is None or not call.abilities.forms:
            return denied_result(cannot_ask(tool), unaskable=True)
        text = card_text(request)
        if len(text) > MOST_SHOWN:
            too_large = f"'{tool}' needs approval and is too large to be shown; allow it with a rule in rules.yaml"
            return denied_result(too_large, unaskable=True)
        reply = await call.ask(ClientQuestion(text, _FORM), ANSWER_SECONDS)
        if waiting.signal:
            return denied_result("Interrupted before it was approved.", status=Status.INTERRUPTED)
        return read_reply(reply)


class OnceApproval(ClientApproval):
    """Approves calls of several clients: each question goes to the client of the call, and no answer is kept for
    another.
    """

    async def _ask(self, waiting: PendingApproval, tool: str) -> ApprovalResult:
        return replace(await super()._ask(waiting, tool), choice=None)


def cannot_ask(tool: str) -> str:
    return f"'{tool}' needs approval and this client cannot ask; allow it with a rule in rules.yaml"


def read_reply(reply: ElicitationReply) -> ApprovalResult:
    """Converts the reply to an approval; only `approve: true` in an accepted form is a yes."""
    if reply.action == "decline" or (reply.action == "accept" and reply.content.get("approve") is not True):
        return ApprovalResult(approved=False, message="Denied by the user.")
    if reply.action != "accept":
        return denied_result("The question was not answered; the call was not run.")
    keep = reply.content.get("remember") == "session"
    return ApprovalResult(approved=True, choice=_EXACT if keep else None)


def card_text(request: ApprovalRequest) -> str:
    """The request in lines, whole: nothing is cut, since what is cut could be what matters.

    Threat: a command or a description that goes on with `Risk: low` in a line of its own. What others wrote has a bar
    before each of its lines, or is one line; only Forge's own words begin at the margin.
    """
    payload = request.payload
    lines = [f"Approve '{request.tool}'? {_one_line(request.description)}"]
    # what stands below, literally, is said once
    arguments = {name: value for name, value in request.args.items() if not payload or value != payload}
    if arguments or not payload:
        lines += ["", "Arguments:", *_with_bar(_as_json(arguments))]
    if payload and payload != _as_json(request.args):
        lines += ["", *_with_bar(payload)]
    if request.effects:
        command = f"exec {payload}"
        named = (
            each.replace(command, "exec the command above", 1) if each.removesuffix(NOT_COVERED) == command else each
            for each in request.effects
        )
        lines += ["", "Effects:", *(line for effect in named for line in _with_bar(effect))]
    said = [_one_line(without_command(reason, (payload,))) for reason in (*request.risk_reasons, request.why)]
    reasons = f" ({'; '.join(said[:-1])})" if request.risk_reasons else ""
    lines += ["", f"Risk: {request.risk}{reasons}"]
    lines += [f"Asked because: {said[-1]}"] if request.why else []
    lines += ["", "Changed since it was approved:", *_with_bar(request.changed)] if request.changed else []
    lines += ["", *_with_bar(request.diff)] if request.diff else []
    lines += [f"Warning: {_one_line(warning)}" for warning in request.warnings]
    if request.previously_denied:
        lines.append(f"Denied before in this session: {request.previously_denied}")
    return "\n".join(lines)


def _with_bar(text: str) -> list[str]:
    return [f"  | {line}" for line in text.splitlines()]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _as_json(arguments: Mapping[str, Any]) -> str:
    return escape_control_chars(json.dumps(arguments, indent=2, ensure_ascii=False, default=str))


def _never_called(request: ApprovalRequest) -> dict[str, Any]:
    return {"approved": False}
