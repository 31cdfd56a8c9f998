"""Prompts and completion: `prompts/list`, `prompts/get` and `completion/complete`.

The program's own prompts (`@prompt`), and those of proxied servers as `<server>__<prompt>`; a name that both have is
the program's. Completion of the arguments of prompts and resource templates comes from lists, functions or the server,
and never asks anybody.

Threat: everything a client sends is hostile, and so is what a proxied server answers. Names and numbers are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from golem_forge.core.calls import Outcome
from golem_forge.core.decisions import Status
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.prompts import PromptCommand, prompt_commands
from golem_forge.mcp.server.calls import OUTPUT_URI, CallHandler, outcome_facts, supported_block
from golem_forge.mcp.server.clients import ClientRegistry
from golem_forge.mcp.server.host import ServedCalls
from golem_forge.mcp.server.resources import (
    MCP_URI,
    MOST_LISTED,
    ZONE_URI,
    own_name,
    resource_not_found,
    stored_output,
    typed_values,
)
from golem_forge.mcp.server.sdk import Context, MCPError, types
from golem_forge.tools.factory import MOST_VALUES
from golem_forge.tools.tool import Tool

_LONGEST_NAME: Final = 200


class PromptHandler:
    def __init__(self, clients: ClientRegistry, calls: CallHandler, host: ServedCalls, redactor: Redactor) -> None:
        self._clients = clients
        self._calls = calls
        self._host = host
        self._redactor = redactor
        self._known: tuple[object, list[dict[str, Any]]] = (None, [])
        """What `entries` gave last, and what it was made from."""

    async def list_prompts(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        return types.ListPromptsResult.model_validate({"prompts": self.entries()}, by_name=False)

    def entries(self) -> list[dict[str, Any]]:
        """As clients read them: the program's, then those of servers; a name that both have is the program's. The very
        same list until something changes."""
        pool = self._host.offers.access.pool
        now = (self._own(), pool.version if pool is not None else 0, self._redactor.version)
        if self._known[0] == now:
            return self._known[1]
        found = {
            own_name(tool): _prompt(own_name(tool), tool.description, tool.input_schema, tool.label)
            for tool in self._own().values()
        }
        for name, command in self._proxied().items():
            found.setdefault(name, _prompt(name, command.description, command.schema))
        shown: list[dict[str, Any]] = self._redactor.without_secrets(list(found.values())[:MOST_LISTED])
        self._known = (now, shown)
        return shown

    async def get(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        tool, args = self._meant(params.name, params.arguments or {})
        came = await self._calls.outcome(ctx, params, tool, args)
        if not isinstance(came, Outcome):
            return came
        if came.status is Status.TOOL_NOT_FOUND:
            raise _unknown_prompt(params.name)
        if not came.ok or came.result is None:
            code = types.INVALID_PARAMS if came.status is Status.INPUT_INVALID else types.INTERNAL_ERROR
            raise MCPError(code, f"{came.status.value}: {came.error}", outcome_facts(came))
        data = came.result.value.get("data")
        if came.output_handle and not (isinstance(data, dict) and "messages" in data):
            data = stored_output(self._clients.client_of(ctx).guest, came.output_handle)
        messages = [_message(each, ctx.protocol_version) for each in _listed(data, "messages")]
        about = data.get("description") if isinstance(data, dict) else None
        told = {"description": about} if isinstance(about, str) else {}
        return types.GetPromptResult.model_validate({**told, "messages": messages}, by_name=False)

    def _meant(self, name: str, given: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """The reserved tool behind a prompt, and its arguments. Raises MCPError."""
        if len(name) <= _LONGEST_NAME:
            if (tool := self._own().get(name)) is not None:
                return tool.name, typed_values(tool, given)
            if (command := self._proxied().get(name)) is not None:
                return "server:prompt", {"server": command.server, "prompt": command.prompt, "arguments": dict(given)}
        raise _unknown_prompt(name)

    def _own(self) -> dict[str, Tool]:
        return {own_name(tool): tool for tool in self._host.offers.reserved("prompt")}

    def _proxied(self) -> dict[str, PromptCommand]:
        offers = self._host.offers
        pool = offers.access.pool
        if pool is None or not offers.reserved("server"):
            return {}
        return prompt_commands(pool, offers.access.servers_of(offers.worker))

    # Completion

    async def complete(self, ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Values for an argument of a prompt or a resource template. A request for it never asks anybody."""
        argument, typed = params.argument.name, params.argument.value
        others = dict(params.context.arguments or {}) if params.context is not None else {}
        if isinstance(params.ref, types.PromptReference):
            found = await self._of_prompt(ctx, params.ref.name, argument, typed, others)
        else:
            found = await self._of_template(ctx, params.ref.uri, argument, typed, others)
        values = [str(each)[:_LONGEST_NAME] for each in found]
        completion = types.Completion(
            values=values[:MOST_VALUES], total=len(values), has_more=len(values) > MOST_VALUES
        )
        return types.CompleteResult(completion=completion)

    async def _of_prompt(self, ctx: Context, name: str, argument: str, typed: str, others: dict[str, str]) -> list[Any]:
        if (tool := self._own().get(name)) is not None:
            return await self._completed(ctx, tool, tool.annotations["prompt"], (argument, typed, others))
        if (command := self._proxied().get(name)) is not None:
            ref = {"type": "ref/prompt", "name": command.prompt}
            args = {"server": command.server, "ref": ref, "argument": argument, "value": typed, "others": others}
            return _listed(_data(await self._calls.unasked(ctx, "server:complete", args)), "values")
        raise _unknown_prompt(name)

    async def _of_template(
        self, ctx: Context, uri: str, argument: str, typed: str, others: dict[str, str]
    ) -> list[Any]:
        for tool in self._host.offers.reserved("resource"):
            own = tool.annotations["resource"]
            if own["uri"] == uri:
                return await self._completed(ctx, tool, own, (argument, typed, others))
        if uri.startswith((ZONE_URI, OUTPUT_URI, MCP_URI)):
            return []
        raise resource_not_found(ctx, uri)

    async def _completed(
        self, ctx: Context, tool: Tool, told: Mapping[str, Any], asked: tuple[str, str, dict[str, str]]
    ) -> list[Any]:
        argument, typed, others = asked
        known = told.get("complete") or {}
        if argument not in tool.input_schema.get("properties", {}):
            shown = escape_control_chars(argument[:_LONGEST_NAME])
            raise MCPError(types.INVALID_PARAMS, f"{own_name(tool)} has no argument '{shown}'")
        if (values := known.get(argument)) is not None:
            return [each for each in values if each.lower().startswith(typed.lower())]
        if argument not in known and "*" not in known:
            return []
        args = {"argument": argument, "value": typed, "others": others}
        found = _data(await self._calls.unasked(ctx, f"complete:{tool.name}", args))
        return found if isinstance(found, list) else []


def _unknown_prompt(name: str) -> Exception:
    return MCPError(types.INVALID_PARAMS, f"Unknown prompt: {escape_control_chars(name[:_LONGEST_NAME])}")


def _prompt(name: str, about: str, schema: Mapping[str, Any], title: str = "") -> dict[str, Any]:
    required = schema.get("required") or ()
    arguments = [
        {"name": each, **_described(said), "required": each in required}
        for each, said in (schema.get("properties") or {}).items()
    ]
    told = {"name": name, "title": title, "description": about or f"The prompt {name}", "arguments": arguments}
    return {key: value for key, value in told.items() if value}


def _described(said: Any) -> dict[str, str]:
    about = said.get("description") if isinstance(said, Mapping) else None
    return {"description": about} if isinstance(about, str) and about else {}


def _message(message: Any, version: str) -> dict[str, Any]:
    given = message if isinstance(message, dict) else {}
    role = "assistant" if given.get("role") == "assistant" else "user"
    return {"role": role, "content": supported_block(given.get("content"), version)}


def _listed(data: Any, member: str) -> list[Any]:
    found = data.get(member) if isinstance(data, dict) else None
    return found[:MOST_LISTED] if isinstance(found, list) else []


def _data(outcome: Outcome) -> Any:
    return outcome.result.value.get("data") if outcome.ok and outcome.result is not None else None
