"""What a person types for a tool alone is shown to nobody else: not to the journal, another UI, or a log.

Takes an action on its way to the bus's readers; gives it with a placeholder for what stands in a secret field of the
tool it is for (`manualToolInvoke`, an edited `approvalResponse`), and a command that holds such a value without its
words. Values of fields that are named like a credential the redactor takes out by their names, but not in a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from golem_forge.events.credential_names import NOT, credential
from golem_forge.tools.binding import BindingError, Token, bind
from golem_forge.tools.prefill import masked
from golem_forge.workers.slash.parsing import TOOL_RUNNERS, callable_names, find_name, is_command
from golem_forge.workers.slash.tokens import CommandError, tokenize

if TYPE_CHECKING:
    from golem_forge.events.questions import RuntimeUI
    from golem_forge.orchestrator import Orchestrator
    from golem_forge.tools.tool import Tool

_UNSAID: Final = "[not recorded: a secret was typed]"


class Heard(Protocol):
    """Whose tools and questions the actions are about."""

    @property
    def path(self) -> Orchestrator: ...
    @property
    def ui(self) -> RuntimeUI: ...


def concealed(host: Heard, type: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
    if type == "manualToolInvoke":
        tool = _tool(host, str(data.get("toolName")))
        return data if tool is None else {**data, "args": tool.without_secrets(data.get("args"))}
    if type == "approvalResponse" and isinstance(args := data.get("args"), Mapping):
        question = host.ui.open_question(str(data.get("requestId")))
        fields = (question.wire.get("fields") or ()) if question is not None else ()
        return {**data, "args": masked(fields, args)}
    if type == "command" and isinstance(text := data.get("text"), str):
        return {**data, "text": _command(host, text)}
    return data


def _command(host: Heard, text: str) -> str:
    if not is_command(text):
        return text
    try:
        name, *words = tokenize(text, 1)
    except CommandError:  # a quote that is not closed: what it holds stands in the line all the same
        name, *words = (Token(word) for word in text[1:].split())
    runner = name.text
    if runner.lower() in TOOL_RUNNERS and words:
        name, *words = words
    tool = _tool(host, name.text)
    return f"/{runner} {_UNSAID}" if tool is not None and _gives_secret(tool, words) else text


def _gives_secret(tool: Tool, words: Sequence[Token]) -> bool:
    names = tool.input_schema.get("properties") or {}
    if not tool.secret_fields and all(credential(name) == NOT for name in names):
        return False
    try:
        given = bind(tool.input_schema, words).args
    except BindingError:  # mistyped: the value stands somewhere in it
        return True
    return any(credential(name) != NOT for name in given) or tool.without_secrets(given) != given


def _tool(host: Heard, typed: str) -> Tool | None:
    catalog = host.path.catalog
    name = find_name(typed, callable_names([*catalog, *catalog.aside()])) or typed
    return catalog.get(catalog.aliases().get(name, name))
