"""The tools a person may run, in the order UIs list them, and how their secrets stay out of the journal.

The user's own tools come first, native and MCP ones last.

`conceal_secrets` takes an action before the bus's readers see it and replaces what stands in a secret field of its tool
(`manualToolInvoke`, an edited `approvalResponse`) with a placeholder; a command that contains such a value, and one
that is mistyped so that nobody knows what it contains, is recorded by its name alone. So what a person types for a tool
reaches no journal, other UI or log. The redactor removes values of fields that are named like a credential by their
names, but cannot find them in a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from golem_forge.agent.slash.invocation import PathHost, find_prompt
from golem_forge.agent.slash.parser import (
    BUILT_IN_NAMES,
    TOOL_RUNNERS,
    CommandError,
    callable_names,
    find_name,
    is_command,
    shell_command,
    tokenize,
    unknown_name,
)
from golem_forge.core.calls import Caller
from golem_forge.events.redaction import NO_CREDENTIAL, classify_name
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.cli_args import BindingError, OptionToken, bind_partial
from golem_forge.tools.forms import derive_fields, mask_secrets
from golem_forge.tools.tool import SourceKind, Tool

if TYPE_CHECKING:
    from golem_forge.events.runtime_ui import RuntimeUI

_PLACES: Final = {SourceKind.CUSTOM: 0, SourceKind.NATIVE: 1, SourceKind.MCP: 2}


def ordered_manual_tools(catalog: Catalog) -> list[Tool]:
    return sorted(catalog.offered(Caller.HUMAN), key=lambda tool: _PLACES[tool.source])


def manual_tools_event(catalog: Catalog) -> dict[str, Any]:
    """The data of `manualToolsAvailable`; `source` lets a UI fold away what is not the person's own."""
    return {"tools": [described_tool(tool) for tool in ordered_manual_tools(catalog)]}


def described_tool(tool: Tool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tool.name,
        "label": tool.label or tool.name,
        "description": tool.description,
        "fields": derive_fields(tool.input_schema),
        "source": tool.source.value,
    }
    if tool.category:
        described["category"] = tool.category
    return described


_NOT_RECORDED: Final = "[not recorded: a secret was typed]"
_MISTYPED: Final = "[not recorded: mistyped]"


class ActionHost(PathHost, Protocol):
    """Whose tools and questions the actions are about."""

    @property
    def ui(self) -> RuntimeUI: ...


def conceal_secrets(host: ActionHost, type: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    if type == "manualToolInvoke":
        tool = _find_tool(host, str(data.get("toolName")))
        return data if tool is None else {**data, "args": tool.without_secrets(data.get("args"))}
    if type == "approvalResponse" and isinstance(args := data.get("args"), Mapping):
        question = host.ui.open_question(str(data.get("requestId")))
        fields = (question.wire.get("fields") or ()) if question is not None else ()
        return {**data, "args": mask_secrets(fields, args)}
    if type == "command" and isinstance(text := data.get("text"), str):
        return {**data, "text": _concealed_command(host, text)}
    return data


def _concealed_command(host: ActionHost, text: str) -> str:
    if not is_command(text):
        return _MISTYPED
    if shell_command(text):
        return text  # as `/exec_command --cmd …`, whose command is no secret field
    closed = True
    try:
        name, *words = tokenize(text, 1)
    except CommandError:  # a quote that is not closed: what it holds stands in the line all the same
        closed = False
        name, *words = (OptionToken(word) for word in text[1:].split())
    runner, prompt = name.text, None
    if runner.lower() in TOOL_RUNNERS and words:
        name, *words = words
        typed = f"/{runner} {unknown_name(name.text)}"
    elif runner.lower() in BUILT_IN_NAMES:
        return text
    else:
        typed, prompt = f"/{unknown_name(runner)}", find_prompt(host, runner)
    if prompt is not None:
        secrets = [each for each in prompt.fields if each["type"] == "secret"]
        hidden = _why_hidden(dict(prompt.schema), secrets, words if closed else None)
    elif (tool := _find_tool(host, name.text)) is not None:
        hidden = _why_hidden(tool.input_schema, tool.secret_fields, words if closed else None)
    else:
        hidden = _MISTYPED if words or not text.endswith(typed) else ""
    return f"{typed} {hidden}" if hidden else text


def _why_hidden(
    schema: dict[str, Any], secrets: Sequence[Mapping[str, Any]], words: Sequence[OptionToken] | None
) -> str:
    """Why these words, typed for a tool or a prompt, are not recorded; empty: they are. None: they cannot be read."""
    try:
        given = bind_partial(schema, words).args if words is not None else None
    except BindingError:
        given = None
    if given is None:
        takes_secrets = bool(secrets) or _names_credential(schema.get("properties") or ())
        return _NOT_RECORDED if takes_secrets else _MISTYPED
    return _NOT_RECORDED if _names_credential(given) or mask_secrets(secrets, given) != given else ""


def _names_credential(names: Iterable[str]) -> bool:
    return any(classify_name(name) != NO_CREDENTIAL for name in names)


def _find_tool(host: ActionHost, typed: str) -> Tool | None:
    catalog = host.path.catalog
    name = find_name(typed, callable_names([*catalog, *catalog.hidden_tools()])) or typed
    return catalog.get(catalog.aliases().get(name, name))
