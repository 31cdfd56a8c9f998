"""`/<server>__<prompt>`: a prompt of one of the worker's MCP servers, put into the input line for the person to send.

Its arguments are bound as a tool's are, and asked for with a form where one is missing. Nothing is sent to a model
here. Raises CommandError for what was typed wrong, ForgeError with what the server's state says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.core.call import Caller
from golem_forge.events.open_questions import NOBODY
from golem_forge.mcp.client.pool_place import PoolPlace
from golem_forge.mcp.client.resources.prompts import PromptCommand, prompt_commands, prompt_text
from golem_forge.tools.binding import BindingError, Bound, Token, bind
from golem_forge.tools.context import ToolContext
from golem_forge.tools.forms import form_arguments
from golem_forge.tools.prefill import prefilled
from golem_forge.workers.slash.host import SlashHost
from golem_forge.workers.slash.parsing import find_name
from golem_forge.workers.slash.tokens import CommandError

PREFILL: Final = "prefill"
"""The code of a status whose message belongs into the input line; a UI without one shows it."""
_MOST_FORMS: Final = 20


def prompts_of(host: SlashHost) -> dict[str, PromptCommand]:
    place = host.path.parts.get(PoolPlace)
    return prompt_commands(place.pool, place.servers_of(host.path.worker)) if place.pool is not None else {}


def find_prompt(host: SlashHost, typed: str) -> PromptCommand | None:
    if "__" not in typed:
        return None
    commands = prompts_of(host)
    name = find_name(typed, list(commands))
    return commands[name] if name is not None else None


async def run_prompt(host: SlashHost, command: PromptCommand, tokens: Sequence[Token]) -> str:
    """What is said to the person; empty: the text is in their line."""
    try:
        bound = bind(dict(command.schema), tokens)
    except BindingError as error:
        raise CommandError(str(error)) from None
    args: Mapping[str, Any] | None = bound.args
    if bound.interactive or bound.missing:
        args = await _ask(host, command, bound)
    if args is None:
        return "Nothing was asked for."
    pool = host.path.parts.get(PoolPlace).pool
    assert pool is not None  # the command is one of its servers'
    texts = {name: str(value) for name, value in args.items() if value is not None}
    result = await pool.get_prompt(command.server, command.prompt, texts, _context(host))
    host.bus.emit("status", {"type": "info", "message": prompt_text(command, result), "code": PREFILL}, host.id)
    return ""


def _context(host: SlashHost) -> ToolContext:
    path = host.path
    return ToolContext(
        session_id=host.session_id,
        worker=path.worker,
        caller=Caller.HUMAN,
        cancel=path.signal,
        parts=path.parts,
        redactor=path.redactor,
        home=host.home.path,
    )


async def _ask(host: SlashHost, command: PromptCommand, bound: Bound) -> dict[str, Any] | None:
    """None: the person closed the form."""
    lacking = f"Missing required: {', '.join(bound.missing)}" if bound.missing else ""
    if not host.ui.attached:
        raise CommandError(lacking or "No form can be shown here: give the values as options instead of -i")
    given: dict[str, Any] = dict(bound.args)
    for _ in range(_MOST_FORMS):
        fields = prefilled(command.fields, given)
        form = {
            "source": command.server,
            "title": command.name,
            "message": command.description,
            "fields": fields,
            "workerPath": [{"id": host.id, "name": host.worker.name, "depth": 0, "task": ""}],
        }
        answer = await host.ui.request_form(form, worker_id=host.id)
        if answer["action"] != "accept":
            if answer.get("by") == NOBODY:
                raise CommandError(lacking or f"The form was closed. {answer.get('reason', '')}".strip())
            return None
        given = form_arguments(fields, answer.get("values") or {})
        if all(name in given for name in command.schema.get("required", ())):
            return given
    raise CommandError(f"The form was sent {_MOST_FORMS} times without what is required; nothing was asked for")
