"""Runs a tool for a person: binds what was typed by the tool's schema, asks for the rest with a form, makes the call.

It goes down the one path as caller `human`; its result is shown as every result is. Raises CommandError for what
was typed wrong, with the place in the line, and for a call that was not let run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.core.call import Caller, Outcome, ToolCall
from golem_forge.core.errors import ForgeError, error_name
from golem_forge.events.open_questions import NOBODY
from golem_forge.tools.binding import BindingError, Bound, Token, bind
from golem_forge.tools.catalog import Catalog, ToolNotFound
from golem_forge.tools.fields import derive_fields
from golem_forge.tools.forms import errors_by_field, form_arguments
from golem_forge.tools.modes import may_call
from golem_forge.tools.prefill import prefilled, with_secrets_kept
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.tools.validation import InputInvalid
from golem_forge.workers.slash.host import SlashHost
from golem_forge.workers.slash.parsing import callable_names, find_name
from golem_forge.workers.slash.tokens import CommandError

_MOST_FORMS: Final = 20


async def run_tool(host: SlashHost, name: str, tokens: Sequence[Token]) -> Outcome | None:
    """None: the person closed the form."""
    tool = find_tool(host.path.catalog, name)
    try:
        bound = bind(tool.input_schema, tokens)
    except BindingError as error:
        raise CommandError(str(error)) from None
    args: dict[str, Any] | None = bound.args
    if bound.interactive or bound.missing:
        args = await _ask(host, tool, bound)
    if args is None:
        return None
    outcome = await host.path.call(ToolCall(tool.name, args, Caller.HUMAN))
    if not outcome.executed and outcome.error:  # no UI knows whose call it was that never started
        raise CommandError(outcome.error)
    return outcome


def find_tool(catalog: Catalog, typed: str) -> Tool:
    """By its name or an alias, in any case; one that only models may call is refused with that reason."""
    name = find_name(typed, callable_names([*catalog, *catalog.aside()]))
    if name is None and (refusal := only_for_models(catalog, typed)):
        raise CommandError(refusal)
    try:
        return catalog.resolve(name or typed, Caller.HUMAN)
    except ToolNotFound as error:
        raise CommandError(error.message) from None


def only_for_models(catalog: Catalog, typed: str) -> str:
    """Why a person cannot call the tool of this name; empty: there is no such tool, or they can."""
    name = find_name(typed, catalog.names())
    tool = catalog.get(name) if name is not None else None
    if tool is None or may_call(Caller.HUMAN, tool.mode):
        return ""
    remedy = "" if tool.source is SourceKind.NATIVE else '; @tool(mode="both") lets people call it too'
    return f"'{tool.name}' is a tool for models only{remedy}"


async def _ask(host: SlashHost, tool: Tool, bound: Bound) -> dict[str, Any] | None:
    """The form, again and again until what it gives is valid."""
    lacking = f"Missing required: {', '.join(bound.missing)}" if bound.missing else ""
    if not host.ui.attached:
        raise CommandError(lacking or "No form can be shown here: give the values as options instead of -i")
    plain = derive_fields(tool.input_schema)
    given: dict[str, Any] = dict(bound.args)
    errors: Mapping[str, str] = {}
    for _ in range(_MOST_FORMS):
        fields = _marked(prefilled(plain, given), errors)
        answer = await host.ui.request_form(
            {
                "source": "command",
                "title": tool.label or tool.name,
                "message": "; ".join(words for name, words in errors.items() if not name) or _first_line(tool),
                "fields": fields,
                "workerPath": [{"id": host.id, "name": host.worker.name, "depth": 0, "task": ""}],
            },
            worker_id=host.id,
        )
        if answer["action"] != "accept":
            if answer.get("by") == NOBODY:
                raise CommandError(lacking or f"The form was closed. {answer.get('reason', '')}".strip())
            return None
        given = form_arguments(fields, with_secrets_kept(plain, answer.get("values") or {}, given))
        errors = _problems(tool, given)
        if not errors:
            return given
    raise CommandError(f"The form was sent {_MOST_FORMS} times without valid values; nothing was run")


def _problems(tool: Tool, args: dict[str, Any]) -> dict[str, str]:
    """By the field they belong to; under the empty name what belongs to none."""
    try:
        tool.validate(args)
    except InputInvalid as error:
        return errors_by_field(error.fields) or {"": error.message}
    except ForgeError as error:
        return {"": error.message}
    except Exception as error:  # a validator of the tool's own; the path will say what to make of it
        return {"": f"could not be checked ({error_name(error)})"}
    return {}


def _marked(fields: list[dict[str, Any]], errors: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{**field, "error": errors[field["name"]]} if field["name"] in errors else field for field in fields]


def _first_line(tool: Tool) -> str:
    lines = tool.description.strip().splitlines()
    return lines[0][:200] if lines else ""
