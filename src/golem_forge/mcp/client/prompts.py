"""Prompts of servers as slash commands `/<server>__<prompt>`: names, arguments, and the text that comes back.

Takes raw entries and raw results; gives plain data and text. An unusable entry is left out and does not affect others.
`passing_tools` are the reserved tools by which `forge mcp serve` passes prompts and completion on, on the one path:
a server that is not trusted asks first, as for its resources.

Threat: a prompt is a stranger's text in a person's input line. The text begins with its server's name, hidden
characters are escaped, and its length is bounded; the person reads it before sending it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import count_control_chars
from golem_forge.mcp.client.model import ServerState, tool_names
from golem_forge.mcp.client.resources import pool_with, read_effect
from golem_forge.mcp.client.untrusted_text import display_text
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.factory import native_tool
from golem_forge.tools.forms import derive_fields
from golem_forge.tools.tool import Tool

if TYPE_CHECKING:
    from golem_forge.mcp.client.pool import Pool

_SERVING: Final = frozenset({ServerState.READY, ServerState.KNOWN})
_MOST_PROMPTS: Final = 500
_MOST_ARGUMENTS: Final = 50
_LONGEST_NAME: Final = 256
_DESCRIPTION_BYTES: Final = 1000
_TEXT_BYTES: Final = 32 * 1024
_MOST_MESSAGES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCommand:
    name: str
    """What a person types behind the `/`."""
    server: str
    """Empty: it is the program's own."""
    prompt: str
    """Raw: what goes on the wire."""
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """Of its arguments: texts, all of them."""

    @property
    def fields(self) -> list[dict[str, Any]]:
        return derive_fields(dict(self.schema))


def prompt_commands(pool: Pool, servers: Iterable[str]) -> dict[str, PromptCommand]:
    """By name, those of the servers that are ready or known."""
    found: dict[tuple[str, str], PromptCommand] = {}
    for server in servers:
        manifest = pool.manifest(server)
        if manifest is None or pool.status(server).state not in _SERVING:
            continue
        for entry in manifest.prompts[:_MOST_PROMPTS]:
            command = _command(server, entry)
            if command is not None:
                found.setdefault((server, command.prompt), command)
    return {name: replace(found[identity], name=name) for identity, name in tool_names(found).items()}


def prompt_text(command: PromptCommand, result: Mapping[str, Any]) -> str:
    """What a server answered, for the input line."""
    messages = result.get("messages")
    given = [each for each in messages if isinstance(each, Mapping)] if isinstance(messages, list) else []
    several = len(given) > 1
    said = [_message(each, several) for each in given[:_MOST_MESSAGES]]
    if len(given) > _MOST_MESSAGES:
        said.append(f"[{len(given) - _MOST_MESSAGES} messages more]")
    of = f"the MCP server '{command.server}'" if command.server else "this program"
    head = f"[prompt '{display_text(command.prompt, _LONGEST_NAME)}' of {of}]"
    return display_text("\n".join([head, *said]), _TEXT_BYTES)


def _command(server: str, entry: Any) -> PromptCommand | None:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not _usable(name):
        return None
    arguments = entry.get("arguments") or []
    if not isinstance(arguments, list) or len(arguments) > _MOST_ARGUMENTS:
        return None
    properties: dict[str, Any] = {}
    required: list[str] = []
    for argument in arguments:
        called = argument.get("name") if isinstance(argument, Mapping) else None
        if not isinstance(called, str) or not _usable(called):
            return None
        properties[called] = {"type": "string", "description": _described(argument)}
        if argument.get("required") is True:
            required.append(called)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return PromptCommand(name="", server=server, prompt=name, description=_described(entry), schema=schema)


def _usable(name: str) -> bool:
    fits = 0 < len(name.encode("utf-8", "replace")) <= _LONGEST_NAME
    return fits and not count_control_chars(name) and "\n" not in name


def _described(entry: Mapping[str, Any]) -> str:
    said = entry.get("description") or entry.get("title")
    return display_text(said, _DESCRIPTION_BYTES) if isinstance(said, str) else ""


def _message(message: Mapping[str, Any], several: bool) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    text = "\n".join(_part(part) for part in parts if isinstance(part, Mapping))
    role = "Assistant" if message.get("role") == "assistant" else "User"
    return f"{role}: {text}" if several else text


def _part(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if kind == "resource" and isinstance(resource := part.get("resource"), Mapping):
        inside = resource.get("text")
        words = f"\n{inside}" if isinstance(inside, str) else " (binary, left out)"
        return f"[resource {resource.get('uri', '')}]{words}"
    if kind == "resource_link":
        return f"[resource {part.get('uri', '')}]"
    return f"[{kind if isinstance(kind, str) else 'something'}, left out]"


_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string", "maxLength": _TEXT_BYTES}}
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": 1024}
_PROMPT_ARGUMENTS: Final = {
    "type": "object",
    "properties": {"server": _NAME, "prompt": _NAME, "arguments": {**_TEXTS, "maxProperties": _MOST_ARGUMENTS}},
    "required": ["server", "prompt"],
}
_COMPLETE_ARGUMENTS: Final = {
    "type": "object",
    "properties": {
        "server": _NAME,
        "ref": {"type": "object"},
        "argument": _NAME,
        "value": {"type": "string", "maxLength": _TEXT_BYTES},
        "others": {**_TEXTS, "maxProperties": _MOST_ARGUMENTS},
    },
    "required": ["server", "ref", "argument", "value"],
}


def passing_tools() -> tuple[Tool, Tool]:
    return (
        native_tool(
            "server:prompt",
            "A prompt of an MCP server.",
            input_schema=_PROMPT_ARGUMENTS,
            planner=_plan_prompt,
            read_only=True,
        ),
        native_tool(
            "server:complete",
            "Values for an argument, from an MCP server.",
            input_schema=_COMPLETE_ARGUMENTS,
            planner=_plan_complete,
            read_only=True,
        ),
    )


def _plan_prompt(args: dict[str, Any], ctx: ToolContext) -> Plan:
    server = args["server"]
    pool = pool_with(server, ctx)

    async def run() -> dict[str, Any]:
        answer = await pool.get_prompt(server, args["prompt"], args.get("arguments") or {}, ctx)
        messages = answer.get("messages")
        if not isinstance(messages, list):
            raise ToolFailed(f"{server} answered with no prompt", code="MCP_ERROR")
        told = {"description": answer["description"]} if isinstance(answer.get("description"), str) else {}
        return {**told, "messages": messages[:_MOST_MESSAGES]}

    return Plan(run=run, effects=(read_effect(pool, server),), read_only=True)


def _plan_complete(args: dict[str, Any], ctx: ToolContext) -> Plan:
    server = args["server"]
    pool = pool_with(server, ctx)
    params: dict[str, Any] = {
        "ref": args["ref"],
        "argument": {"name": args["argument"], "value": args["value"]},
        **({"context": {"arguments": args["others"]}} if args.get("others") else {}),
    }

    async def run() -> dict[str, Any]:
        answer = await pool.complete(server, params, ctx)
        found = answer.get("completion")
        values = found.get("values") if isinstance(found, dict) else None
        return {"values": [each for each in values if isinstance(each, str)] if isinstance(values, list) else []}

    return Plan(run=run, effects=(read_effect(pool, server),), read_only=True)
