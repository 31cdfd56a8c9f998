"""Elicitation: a server asks the person something. A form of flat fields, or a page that only the person opens.

Takes the SDK's request, gives its answer: `accept` with values that the requested schema allows, `decline`, or `cancel`
(dismissed, interrupted, nobody there, values that stay wrong). Refused with an error: over 50 fields, a schema that is
no flat form, texts that hide characters, a URL that is neither https nor loopback or that could be misread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.mcp.spec import ServerSpec
from golem_forge.mcp.client.asking.elicited_fields import flat_fields
from golem_forge.mcp.client.asking.elicited_url import checked_url
from golem_forge.mcp.client.asking.foreign_text import shown
from golem_forge.mcp.client.asking.request_errors import INVALID_PARAMS, Refused
from golem_forge.mcp.client.calling.flight import Flight, asked
from golem_forge.mcp.client.hooks import Form, FormAnswer, Hooks
from golem_forge.tools.forms import errors_by_field, form_arguments
from golem_forge.tools.prefill import prefilled, with_secrets_kept
from golem_forge.tools.validation import ToolDefinitionError

if TYPE_CHECKING:
    from golem_forge.mcp import sdk

MESSAGE_BYTES: Final = 4096
KEY_BYTES: Final = 128
FORMS_PER_CALL: Final = 20
"""Threat: a server that asks until somebody says yes out of weariness."""
_ATTEMPTS: Final = 10
_Values = dict[str, Any]


async def answer_elicitation(
    spec: ServerSpec, hooks: Hooks, flight: Flight, params: Any, key: str = ""
) -> sdk.ElicitResult:
    """`key`: how the server calls the question."""
    flight.forms += 1
    if flight.forms > FORMS_PER_CALL:
        raise Refused(INVALID_PARAMS, f"more than {FORMS_PER_CALL} questions during one call")
    key = shown(key, KEY_BYTES)
    if params.mode == "url":
        return await _page(spec, hooks, flight, params, key)
    return await _form(spec, hooks, flight, params, key)


async def _page(spec: ServerSpec, hooks: Hooks, flight: Flight, params: Any, key: str) -> sdk.ElicitResult:
    page = checked_url(params.url)
    message = f"{shown(params.message, MESSAGE_BYTES)}\nIt asks you to open a page of {page.host}."
    form = Form(server=spec.name, message=message, url=page.url, key=key)
    answer = await asked(flight, _question(hooks, form, flight))
    return _result(answer.action if answer else "cancel")


async def _form(spec: ServerSpec, hooks: Hooks, flight: Flight, params: Any, key: str) -> sdk.ElicitResult:
    """Asked again, with what is wrong at each field, until the values are what the schema allows."""
    from golem_forge.tools.jsonschema import SchemaCheck

    schema: Mapping[str, Any] = params.requested_schema
    try:
        check = SchemaCheck(dict(schema))
    except ToolDefinitionError as error:
        raise Refused(INVALID_PARAMS, f"requestedSchema: {error}") from None
    plain = flat_fields(schema)
    message = shown(params.message, MESSAGE_BYTES)
    given: _Values = {}
    errors: Mapping[str, str] = {}
    for _ in range(_ATTEMPTS):
        fields = tuple(_marked(prefilled(plain, given), errors))
        text = "\n".join(part for part in (message, errors.get("", "")) if part)
        form = Form(server=spec.name, message=text, fields=fields, schema=schema, key=key)
        answer = await asked(flight, _question(hooks, form, flight))
        if answer is None or answer.action != "accept":
            return _result(answer.action if answer else "cancel")
        given = form_arguments(fields, with_secrets_kept(plain, answer.values, given))
        values = _with_defaults(schema, given)
        errors = errors_by_field(check.errors(values))
        if not errors:
            return _result("accept", values)
    return _result("cancel")


async def _question(hooks: Hooks, form: Form, flight: Flight) -> FormAnswer:
    return await hooks.ask_form(form, flight.ctx)


def _with_defaults(schema: Mapping[str, Any], given: _Values) -> _Values:
    """A field that was left empty has the value the server proposed for it."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    proposed = {name: part["default"] for name, part in properties.items() if _has_default(part)}
    return {**proposed, **given}


def _has_default(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("default") is not None


def _marked(fields: list[dict[str, Any]], errors: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{**field, "error": errors[field["name"]]} if field["name"] in errors else field for field in fields]


def _result(action: str, values: _Values | None = None) -> sdk.ElicitResult:
    from golem_forge.mcp import sdk

    known = action if action in ("accept", "decline") else "cancel"
    return sdk.ElicitResult.model_validate({"action": known, "content": values})
