"""pydantic-ai both ways: Forge's tools as one of its toolsets, and any of its toolsets as tools of ours.

    parked = ParkedCalls()
    async with open_session(".", approval_callback=parked.ask) as session:
        agent = Agent(model, toolsets=[ForgeToolset(session)], output_type=[str, DeferredToolRequests])

    async with toolset:
        async with open_session(".", tools=await from_toolset(toolset), …) as session: …

Either way a call takes the one path. Its agent cannot be asked in the middle of a call, so where `ParkedCalls.ask` is
the session's approval callback, a call that needs approval is parked (see `parked`) and the agent is told by
`ApprovalRequired`. With any other callback the session asks by that one; without one it denies. This module imports
pydantic_ai, a second of start-up: nothing else in Forge imports it.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from pydantic import ValidationError
from pydantic_ai import exceptions
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_ai.usage import RunUsage
from pydantic_core import SchemaValidator, core_schema

from golem_forge.core.calls import Caller, Outcome
from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError, ToolFailed
from golem_forge.core.ids import new_id
from golem_forge.core.json import digest
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.options import require
from golem_forge.core.results import ToolResult
from golem_forge.mcp.bridges.parked import ParkedCalls
from golem_forge.orchestrator.orchestrator import Orchestrator
from golem_forge.policy.request import ApprovalRequest
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.context import ToolContext
from golem_forge.tools.results import to_result
from golem_forge.tools.tool import SourceKind, Tool

_ANYTHING: Final = SchemaValidator(core_schema.any_schema())
"""Arguments are checked on our path, which says what is wrong and records it."""
_MOST_REMEMBERED: Final = 1024


class SessionProtocol(Protocol):
    """The part of `golem_forge.Session` that is used here."""

    @property
    def catalog(self) -> Catalog: ...
    @property
    def path(self) -> Orchestrator: ...
    async def wait_listed(self) -> None: ...
    async def call(self, name: str, args: Any = None, *, caller: Caller | str = ...) -> Outcome: ...


class ForgeToolset(AbstractToolset[Any]):
    """The tools that a model may call in this session."""

    def __init__(
        self, session: SessionProtocol, parked: ParkedCalls | None = None, *, id: str | None = "golem-forge"
    ) -> None:
        """`parked`: where it is not found by the session's approval callback. ValueError: another one is."""
        fits = callable(getattr(session, "call", None)) and hasattr(session, "catalog")
        require(fits, "ForgeToolset: session", "what open_session gives", session)
        own = _parked_calls_of(session)
        if parked is not None and own is not None and own is not parked:
            raise ValueError("the session parks its calls elsewhere: leave `parked` out, or open it with `parked.ask`")
        self._session = session
        self._parked = parked or own
        self._id = id

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        await self._session.wait_listed()
        offered = self._session.catalog.offered(Caller.LLM)
        return {tool.name: self._described(tool) for tool in offered}

    def _described(self, tool: Tool) -> ToolsetTool[Any]:
        clean, schema, is_forges = self._session.path.redactor, tool.input_schema, tool.source is SourceKind.NATIVE
        described = ToolDefinition(
            name=tool.name,
            description=clean.redact_secrets(tool.description),
            parameters_json_schema=schema if is_forges else clean.without_secrets(schema),
            metadata={"annotations": dict(tool.annotations), "source": tool.source.value},
        )
        return ToolsetTool(toolset=self, tool_def=described, max_retries=0, args_validator=_ANYTHING)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> ToolReturn[Any]:
        """Raises ApprovalRequired where a person must agree first, and pydantic-ai's ToolFailed for any other end."""
        run = partial(self._session.call, name, tool_args, caller=Caller.LLM)
        ident = ctx.tool_call_id or new_id()
        came: Outcome | ApprovalRequest
        if self._parked is None:
            came = await run()
        elif ctx.tool_call_approved:
            said = ctx.tool_call_metadata
            asked = str(said.get("fingerprint", "")) if isinstance(said, Mapping) else ""
            came = await self._parked.go_on(ident, name, tool_args, run, asked)
        else:
            came = await self._parked.begin(ident, name, tool_args, run)
        if isinstance(came, ApprovalRequest):
            raise exceptions.ApprovalRequired(metadata=_approval_metadata(came))
        if not came.ok:
            raise exceptions.ToolFailed(f"{came.status.value}: {came.text}")
        return _tool_return(came)


def _parked_calls_of(session: SessionProtocol) -> ParkedCalls | None:
    """The one whose `ask` answers for this session."""
    controller = getattr(getattr(session, "state", None), "controller", None)
    owner = getattr(getattr(controller, "approval_callback", None), "__self__", None)
    return owner if isinstance(owner, ParkedCalls) else None


def _approval_metadata(request: ApprovalRequest) -> dict[str, Any]:
    """Returns what the asker needs to show, with the same texts as on Forge's card."""
    shown = ("tool", "args", "risk", "fingerprint", "why", "payload", "diff", "effects", "warnings", "changed")
    wire = request.to_wire()
    return {name: wire[name] for name in shown if name in wire}


def _tool_return(outcome: Outcome) -> ToolReturn[Any]:
    """The text a model reads, and the pictures and sounds beside it."""
    assert outcome.result is not None
    media = [
        BinaryContent(base64.b64decode(block["data"]), media_type=block["mimeType"])
        for block in outcome.result.content
        if block.get("type") in ("image", "audio")
    ]
    known = {"callId": outcome.call.id, "status": outcome.status.value, "value": outcome.result.value}
    return ToolReturn([outcome.text, *media] if media else outcome.text, metadata=known)


async def from_toolset(toolset: AbstractToolset[Any], *, deps: Any = None) -> list[Tool]:
    """Its tools as they are now; the toolset must have been entered, and stay so while they are used.

    They are judged like any tool: nothing is allowed because it came from there. What it marks as needing approval
    always asks; one that only says so when it is called asks then, before it does anything.
    """
    run: RunContext[Any] = RunContext(deps=deps, model=TestModel(), usage=RunUsage())
    return [_ForeignTool(toolset, tool, run).tool for tool in (await toolset.get_tools(run)).values()]


class _ForeignTool:
    """One tool of a toolset. A call of it that turned out to need approval is handed to `_asking`, its double that
    always asks, and is made once more: the first attempt, by its own word, did nothing."""

    def __init__(self, toolset: AbstractToolset[Any], theirs: ToolsetTool[Any], run: RunContext[Any]) -> None:
        self._toolset = toolset
        self._theirs = theirs
        self._run = run
        self._must_ask: dict[str, None] = {}
        """Digests of arguments, oldest first."""
        marked = theirs.tool_def.kind == "unapproved"
        self._asking = self._made(self._approved, needs_approval=True)
        self.tool = self._asking if marked else self._made(self._unapproved, redirect=self._redirect)

    def _made(self, execute: Callable[..., Awaitable[Any]], **more: Any) -> Tool:
        described = self._theirs.tool_def
        hints = (described.metadata or {}).get("annotations")
        # Of what a server behind the toolset says of itself, only what makes us more careful.
        destructive = isinstance(hints, Mapping) and hints.get("destructiveHint") is True
        return Tool(
            described.name,
            described.description or f"Tool from a pydantic-ai toolset: {described.name}",
            input_schema=described.parameters_json_schema,
            execute=execute,
            takes_mapping=True,
            annotations={"destructiveHint": True} if destructive else {},
            timeout=described.timeout,
            code_digest=digest(described.parameters_json_schema),
            **more,
        )

    def _redirect(self, args: dict[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
        return (self._asking, args) if digest(args) in self._must_ask else None

    async def _approved(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        return await self._called(args, ctx, approved=True)

    async def _unapproved(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        try:
            return await self._called(args, ctx, approved=False)
        except exceptions.ApprovalRequired:
            while len(self._must_ask) >= _MOST_REMEMBERED:
                self._must_ask.pop(next(iter(self._must_ask)))
            self._must_ask[digest(args)] = None
        outcome = await ctx.call(self.tool.name, args)
        if not outcome.ok:
            raise ForgeError(outcome.error or outcome.text, status=outcome.status, code=outcome.code)
        return outcome.result

    async def _called(self, args: dict[str, Any], ctx: ToolContext, *, approved: bool) -> Any:
        name = self._theirs.tool_def.name
        run = replace(self._run, tool_name=name, tool_call_id=ctx.call_id, tool_call_approved=approved)
        try:
            checked = self._theirs.args_validator.validate_python(args, context=run.validation_context)
            if (check := self._theirs.args_validator_func) is not None:
                said = check(run, **checked)
                _ = await said if inspect.isawaitable(said) else said
            value = await self._toolset.call_tool(name, checked, run, self._theirs)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, problem["loc"]))
            raise ForgeError(f"{name}: {place}: {problem['msg']}", status=Status.INPUT_INVALID) from None
        except (exceptions.ModelRetry, exceptions.ToolFailed) as error:
            raise ToolFailed(getattr(error, "message", None) or str(error)) from None
        except exceptions.CallDeferred:
            why = "gets its result from elsewhere, later; Forge does not wait for such calls"
            raise ToolFailed(f"{name} {why}") from None
        return _result(value)


def _result(value: Any) -> Any:
    """ToolReturn and media to ours; any other value is turned into a result as every tool's is."""
    value = value.return_value if isinstance(value, ToolReturn) else value
    parts = value if isinstance(value, list) else [value]
    media = [part for part in parts if isinstance(part, BinaryContent)]
    if not media:
        return value
    rest = [part for part in parts if not isinstance(part, BinaryContent)]
    text = rest[0] if len(rest) == 1 and isinstance(rest[0], str) else to_result(rest).text if rest else ""
    blocks = [{"type": "text", "text": text}] if text else []
    content = (*blocks, *map(_block, media))
    return ToolResult({"kind": "text", "content": text}, text=text, content=content)


def _block(part: BinaryContent) -> dict[str, Any]:
    kind = part.media_type.partition("/")[0]
    data = base64.b64encode(part.data).decode()
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": part.media_type}
    resource = {"uri": f"data:{part.identifier}", "mimeType": part.media_type, "blob": data}
    return {"type": "resource", "resource": resource}
