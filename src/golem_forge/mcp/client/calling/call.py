"""call_tool: one call of a server's tool as a Finished. Nothing a server does raises here; only a cancelled task does.

The result is kept as it came, but for the host paths of zones (`rewriting.py`). `isError`, a structured result that
breaks its own schema, a JSON-RPC error, a lost connection and a reached limit are each told in words that say whether
the call may have run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ForgeError, error_name
from golem_forge.core.finished import Finished
from golem_forge.core.result import ToolResult
from golem_forge.core.verdict import Status
from golem_forge.mcp.client.calling.clocks import Limit
from golem_forge.mcp.client.calling.exchange import Interrupted, TimedOut, exchange
from golem_forge.mcp.client.connecting.link import Link, Lost, Refused, Unprocessed
from golem_forge.mcp.client.definitions.definition import RemoteTool
from golem_forge.tools.context import ToolContext
from golem_forge.tools.json_values import NotJson, as_json
from golem_forge.tools.jsonschema import json_path
from golem_forge.tools.mcp_results import from_mcp

if TYPE_CHECKING:
    from golem_forge.mcp.client.connecting.owner import Owner

_UNKNOWN_TOOL: Final = frozenset({-32601, -32602, -32020})
"""What servers answer for a tool they do not have (any more), or whose header rules changed."""
_FLAT: Final = frozenset({str, bool})
"""Numbers are not among them: `1e999`, NaN and integers of a thousand digits can be written too."""
_FEW: Final = 64


async def call_tool(owner: Owner, tool: RemoteTool, args: Mapping[str, Any], ctx: ToolContext) -> Finished:
    params = {"name": tool.name, "arguments": args}

    def headers(link: Link) -> Mapping[str, str] | None:
        """Called right before the request is sent, on whatever connection there is by then."""
        owner.offered.must_still_be(tool)
        return owner.offered.headers(link, tool, args)

    try:
        raw = await exchange(owner, "tools/call", params, ctx, about=tool.name, headers=headers)
    except Exception as error:
        if isinstance(error, Refused) and error.code in _UNKNOWN_TOOL:
            owner.refresh_soon()
        return _failed(failure(owner, error))
    try:
        return finished(owner, tool, raw)
    except RecursionError:
        text = f"{tool.server} answered with something that is nested too deeply"
        return _failed(ForgeError(text, code="NOT_MCP"))


async def ask(owner: Owner, method: str, params: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
    """Any other request, under the same rules. Raises ForgeError for whatever goes wrong."""
    try:
        return owner.rewriter.answer(await exchange(owner, method, params, ctx, about=method))
    except Exception as error:
        raise failure(owner, error) from None


def failure(owner: Owner, error: Exception) -> ForgeError:
    """What a caller is told. Everything unexpected is named by its type alone: its words may be anything."""
    spec = owner.spec
    match error:
        case ForgeError():
            return error
        case TimedOut(limit=Limit.IDLE):
            text = f"no progress from {spec.name} for {spec.idle_timeout:g} seconds"
            return ForgeError(text, status=Status.TIMEOUT, code="IDLE_TIMEOUT")
        case TimedOut():
            text = f"{spec.name} did not finish within {spec.total_timeout:g} seconds"
            return ForgeError(text, status=Status.TIMEOUT, code="TOTAL_TIMEOUT")
        case Interrupted():
            text = f"the call to {spec.name} was interrupted"
            return ForgeError(text, status=Status.INTERRUPTED, code="INTERRUPTED")
        case Refused():
            said = owner.rewriter.words(error.message)
            return ForgeError(f"{spec.name} answered with error {error.code}: {said}", code="MCP_ERROR")
        case Unprocessed():
            why = f": {error.cause.message}" if error.cause is not None else ""
            return ForgeError(f"{spec.name} could not be reached; the call did not run{why}", code="NOT_SENT")
        case Lost():
            return ForgeError(f"connection to {spec.name} was lost; the call may have run", code="CONNECTION_LOST")
        case _:
            return ForgeError(f"the call to {spec.name} failed: {error_name(error)}", code="CALL_FAILED")


def _failed(error: ForgeError) -> Finished:
    said = ToolResult(value={"kind": "text", "content": error.message}, text=error.message, is_error=True)
    return Finished(result=said, status=error.status, error=error.message, code=error.code)


def finished(owner: Owner, tool: RemoteTool, raw: dict[str, Any]) -> Finished:
    if not isinstance(raw.get("content"), list) and raw.get("structuredContent") is None:
        text = f"{tool.server} answered with something that is no tool result"
        shown = from_mcp(owner.rewriter.result(raw))
        return Finished(result=shown, status=Status.EXECUTION_FAILED, error=text, code="NOT_MCP")
    result = from_mcp(owner.rewriter.result(raw))
    if result.is_error:
        text = "" if result.text.strip() else f"{tool.server} reported an error without a word about it"
        return Finished(result=result, status=Status.EXECUTION_FAILED, error=text, code="TOOL_ERROR")
    if tool.output_schema is not None and (problem := _mismatch(owner, tool, raw)):
        return Finished(result=result, status=Status.EXECUTION_FAILED, error=problem, code="OUTPUT_INVALID")
    return Finished(result=result)


def _is_flat(value: Any) -> bool:
    """A few texts, truths and nulls by name, as most are: read from JSON, it cannot be anything that JSON is not."""
    few = type(value) is dict and len(value) <= _FEW
    return few and all(item is None or type(item) in _FLAT for item in value.values())


def _mismatch(owner: Owner, tool: RemoteTool, raw: dict[str, Any]) -> str:
    """How the structured content breaks the tool's own promise; empty: it does not."""
    if "structuredContent" not in raw:
        return f"{_by(tool)} no structured content at $, which its output schema promises"
    subject = raw["structuredContent"]
    if not _is_flat(subject):
        try:
            subject = as_json(subject)
        except NotJson as error:
            return f"{_by(tool)} an invalid value at $: {error}"
    problems = owner.offered.output_check(tool).problems(subject, limit=1)
    if not problems:
        return ""
    path, words = problems[0]
    return owner.rewriter.words(f"{_by(tool)} an invalid value at {json_path(path)}: {words[:1].lower()}{words[1:]}")


def _by(tool: RemoteTool) -> str:
    return f"tool {tool.name!r} of {tool.server} returned"
