"""The tools `client:…`, by which a running tool asks whoever called: a form, a model's answer, the roots, a line of
log.

They are reserved (`tools/catalog.py`): only a running tool reaches them, through `ctx.ask`, `ctx.sample`, `ctx.roots`,
`ctx.log` and `ctx.resource_updated`. They touch nothing, so they run without approval; the answer itself is the
decision. `ClientRequests` is the part of a session that knows who is asked: the client of `forge mcp serve`
(`cli/mcp/serve.py`), else a person (`agent/worker_manager.py`). Where nobody can be asked, a call is refused with the
reason.

Threat: a tool that floods its caller. Texts and numbers are bounded here, log lines also by time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from golem_forge.core.errors import ToolFailed
from golem_forge.core.text import clip
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.tool import Tool

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
LOGS_A_SECOND: Final = 50
QUESTIONS_A_CALL: Final = 20
"""Threat: a tool that asks until somebody says yes out of weariness."""
_LONGEST_LOG: Final = 8 * 1024
_LONGEST_TEXT: Final = 64 * 1024
_MOST_MESSAGES: Final = 100
_MOST_TOKENS: Final = 32_000
_LONGEST_KEY: Final = 100
_MOST_RATES: Final = 256
NOBODY: Final = "NOBODY_TO_ASK"


class Partner(Protocol):
    """The client behind a session. Each method raises ToolFailed with the reason if it cannot do its work."""

    async def ask(self, message: str, schema: Mapping[str, Any], key: str, ctx: ToolContext) -> dict[str, Any]:
        """Asks with a form. Returns `{action, values}`."""
        ...

    async def sample(self, request: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
        """`{messages, system, max_tokens, key}` → `{text, model, stopReason}`."""
        ...

    async def roots(self, key: str, ctx: ToolContext) -> list[dict[str, str]]:
        """Returns the roots, each as `{uri, name}`."""
        ...

    def log(self, level: str, text: str, ctx: ToolContext) -> None: ...

    def resource_updated(self, uri: str, ctx: ToolContext) -> None: ...


class ClientRequests:
    """The session part that says whom each worker's tools ask, and how many lines they may log."""

    def __init__(self) -> None:
        self.default: Partner | None = None
        """For every worker: the client of a served session."""
        self._by_worker: dict[str, Callable[[], Partner]] = {}
        self._rates: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._asked: OrderedDict[str, int] = OrderedDict()
        """Call → questions so far."""

    def set_worker(self, worker: str, partner: Callable[[], Partner]) -> None:
        """`worker`: its path from the root. `partner` is made when first asked for."""
        self._by_worker[worker] = partner

    def to_ask(self, ctx: ToolContext) -> Partner:
        """Whom to put a question to. Raises ToolFailed for one too many."""
        key = ctx.outermost_call_id or ctx.call_id
        asked = self._asked[key] = self._asked.pop(key, 0) + 1
        if len(self._asked) > _MOST_RATES:
            self._asked.popitem(last=False)
        if asked > QUESTIONS_A_CALL:
            raise ToolFailed(f"A call may ask {QUESTIONS_A_CALL} times.", code="TOO_MANY_QUESTIONS")
        return self.partner(ctx)

    def partner(self, ctx: ToolContext) -> Partner:
        if self.default is not None:
            return self.default
        if (made := self._by_worker.get(ctx.worker)) is None:
            raise ToolFailed("Nobody can be asked in this session.", code=NOBODY)
        return made()

    def may_log(self, ctx: ToolContext) -> int:
        """Returns how many log lines the call may still write in this second; 1 means that this is the last one, 0
        none.
        """
        key = ctx.outermost_call_id or ctx.call_id
        second = int(time.monotonic())
        when, used = self._rates.pop(key, (second, 0))
        used = used + 1 if when == second else 1
        self._rates[key] = (second, used)
        if len(self._rates) > _MOST_RATES:
            self._rates.popitem(last=False)
        return max(LOGS_A_SECOND + 1 - used, 0)


def client_tools() -> tuple[Tool, ...]:
    global _tools
    _tools = _tools or (
        _tool("client:ask", "Ask whoever called a form.", _ASK, _ask),
        _tool("client:sample", "Ask the model of whoever called.", _SAMPLE, _sample),
        _tool("client:roots", "The directories of whoever called.", _ROOTS, _roots),
        _tool("client:log", "A line of log for whoever called.", _LOG, _log),
        _tool("client:resource_updated", "Tell subscribers of a resource.", _UPDATED, _resource_updated),
    )
    return _tools


_tools: tuple[Tool, ...] = ()
_TEXT: Final = {"type": "string", "maxLength": _LONGEST_TEXT}
_KEY: Final = {"type": "string", "maxLength": _LONGEST_KEY}


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_ASK: Final = _object(("message", "schema"), message=_TEXT, schema={"type": "object"}, key=_KEY)
_SAMPLE: Final = _object(
    ("messages",),
    messages={"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": _MOST_MESSAGES},
    system=_TEXT,
    max_tokens={"type": "integer", "minimum": 1, "maximum": _MOST_TOKENS},
    key=_KEY,
)
_ROOTS: Final = _object((), key=_KEY)
_LOG: Final = _object(("level", "text"), level={"type": "string", "enum": list(LEVELS)}, text={"type": "string"})
_UPDATED: Final = _object(("uri",), uri={"type": "string", "maxLength": 2000})


def _tool(name: str, about: str, schema: dict[str, Any], execute: Callable[..., Awaitable[Any]]) -> Tool:
    return native_tool(
        name, about, input_schema=schema, execute=execute, takes_mapping=True, effects=(), read_only=True
    )


async def _ask(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    return (
        await ctx.parts.get(ClientRequests).to_ask(ctx).ask(args["message"], args["schema"], args.get("key", ""), ctx)
    )


async def _sample(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    messages = [_message(each) for each in args["messages"]]
    request = {"system": "", "max_tokens": 1000, "key": "", **args, "messages": messages}
    return await ctx.parts.get(ClientRequests).to_ask(ctx).sample(request, ctx)


def _message(given: Mapping[str, Any]) -> dict[str, Any]:
    role, content = given.get("role", "user"), given.get("content")
    block = {"type": "text", "text": content} if isinstance(content, str) else content
    members = _BLOCKS.get(str(block.get("type"))) if isinstance(block, Mapping) else None
    if role not in ("user", "assistant") or not isinstance(block, Mapping) or not members:
        raise ToolFailed("a message is {role: user or assistant, content: a text, or a block of text, image or audio}")
    if wrong := next((name for name in members if not isinstance(block.get(name), str)), ""):
        raise ToolFailed(f"a block of type {block['type']} needs {wrong!r}, a text")
    return {"role": role, "content": {name: block[name] for name in ("type", *members)}}


_BLOCKS: Final = {"text": ("text",), "image": ("data", "mimeType"), "audio": ("data", "mimeType")}


async def _roots(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    return {"roots": await ctx.parts.get(ClientRequests).to_ask(ctx).roots(args.get("key", ""), ctx)}


async def _log(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    requests = ctx.parts.get(ClientRequests)
    left = requests.may_log(ctx)
    if left:
        text = clip(args["text"], _LONGEST_LOG)
        text = f"{text} (more lines of this second are left out)" if left == 1 else text
        text = ctx.redactor.text(text) if ctx.redactor is not None else text
        requests.partner(ctx).log(args["level"], text, ctx)
    return {"sent": bool(left)}


async def _resource_updated(args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
    ctx.parts.get(ClientRequests).partner(ctx).resource_updated(args["uri"], ctx)
    return {}


def zone_roots(sandbox: Sandbox | None) -> list[dict[str, str]]:
    """Returns the zones by their addresses, for a session without a client."""
    zones = sandbox.zones if sandbox is not None else {}
    return [{"uri": f"forge://zone/{name}", "name": name} for name in zones]
