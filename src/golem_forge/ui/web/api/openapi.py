"""The description of the whole API as OpenAPI 3.1, made of the operations' own declarations: it can say nothing else.

Events and actions are among the schemas; the socket, which OpenAPI has no words for, stands under `x-socket`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pydantic import ConfigDict
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from golem_forge.config.modes import ApprovalMode
from golem_forge.events.jsontext import encode
from golem_forge.ui.web.api.attribute_words import attribute_words
from golem_forge.ui.web.api.event_schemas import REF, Schema, event_schemas, without_null
from golem_forge.ui.web.api.operation import Call, Operation, operation
from golem_forge.ui.web.watching.session import SessionState
from golem_forge.ui.web.wire import Model, Problem

if TYPE_CHECKING:
    from golem_forge.ui.web.sdk import Response

_PART: Final = re.compile(r"\{([A-Za-z_]+)\}")
_LOGIN: Final = "/api/login"
_ABOUT: Final = (
    "What the page of Golem Forge uses, for everybody who writes a UI of their own. Log in with the code of the "
    "printed link, keep the cookie, and set `Origin` to the server's own address on every request that is not a GET. "
    "docs/web-api.md has a complete example."
)
_EVERYWHERE: Final = {
    400: "a header came twice, or the target is no path",
    403: "the request does not come from the page: `Origin` is not the server's own",
    409: "it cannot be done as things are; the problem says why",
    421: "the server does not answer for this `Host`",
}
_ENUMS: Final = {"ApprovalMode": ApprovalMode, "SessionState": SessionState}
"""By component name."""
_SOCKET: Final[Mapping[str, Any]] = {
    "path": "/api/sessions/{id}/stream",
    "query": {"after": "resume: every recorded event above this number, then what happens; without it the last 200"},
    "serverSends": {
        "hello": "{session: {id, state, answerable}, seq, more, resumed, standing: [{event, view}], notify}; first",
        "event": "{event, view, again?}: the past, then what happens; `again`: a question that is still open",
        "caught_up": "{seq, streams}: the past is over; `streams` are the requests and calls still under way",
        "answer": "{id, ok, problem?, fields?}: to an action that had an `id`",
        "state": "{state, answerable}: it changed",
        "pong": "to a ping",
        "bye": "{reason, session?}: before the server closes; `session`: under which id it goes on",
    },
    "pageSends": {"action": "AnyAction (see the schemas), with an `id` of your own", "ping": '{"type": "ping"}'},
    "closeCodes": {
        "4400": "`after` is no number",
        "4404": "there is no such session (any more)",
        "4408": "too slow: connect again with `after`",
        "4429": "too many look at this session",
    },
}


class Description(Model, title="Description"):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")


@operation("GET", "/api/openapi.json", "describe", tag="login", answer=Description)
async def describe(call: Call) -> Response:
    """This description."""
    from golem_forge.ui.web.door.login import cookie_name
    from golem_forge.ui.web.sdk import Response

    return Response(_written(cookie_name(call.request.scope)), media_type="application/json")


@lru_cache(4)
def _written(cookie: str) -> bytes:
    return encode(described(cookie))


def described(cookie: str) -> dict[str, Any]:
    """`cookie`: the name of the one that this server gives."""
    from golem_forge import __version__
    from golem_forge.ui.web.api import all_operations

    operations = all_operations()
    refs, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Golem Forge", "version": __version__, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {**components, **event_schemas()},
            "securitySchemes": {"cookie": {"type": "apiKey", "in": "cookie", "name": cookie}},
        },
        "security": [{"cookie": []}],
        "x-socket": dict(_SOCKET),
    }


# ---- schemas


_Used = tuple[type[Model], JsonSchemaMode]


def _schemas(operations: Iterable[Operation]) -> tuple[dict[_Used, Schema], dict[str, Schema]]:
    """What refers to each model as it is taken or given, and every model by its name."""
    used: dict[_Used, None] = {(Problem, "serialization"): None}
    for one in operations:
        used |= {(one.body, "validation"): None} if one.body is not None else {}
        used |= {(one.answer, "serialization"): None} if one.answer is not None else {}
    refs, found = models_json_schema(list(used), by_alias=True, ref_template=REF + "{model}")
    components: dict[str, Schema] = found.get("$defs", {})
    for model in _with_parts(model for model, _ in used):
        for name, schema in components.items():
            if schema.get("title") == model.model_config["title"] and _is_of(schema, model):
                components[name] = _with_words(schema, model)
    return _renamed(refs, components)  # type: ignore[arg-type]


def _renamed(
    refs: Mapping[_Used, Schema], found: Mapping[str, Schema]
) -> tuple[dict[_Used, Schema], dict[str, Schema]]:
    """Each component by the name that its model states, whatever its class is called."""
    enums = {kind.__name__: name for name, kind in _ENUMS.items()}
    names = {f"{REF}{key}": str(enums.get(schema["title"], schema["title"])) for key, schema in found.items()}

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {key: f"{REF}{names[each]}" if key == "$ref" else named(each) for key, each in value.items()}

    components = {names[f"{REF}{key}"]: named(schema) for key, schema in found.items()}
    for name, schema in components.items():
        schema["title"] = name.partition("-")[0]
    return {key: named(schema) for key, schema in refs.items()}, dict(sorted(components.items()))


def _with_parts(models: Iterable[type[Model]]) -> set[type[Model]]:
    """The models, and those their members are made of."""
    known: set[type[Model]] = set()
    waiting = list(models)
    while waiting:
        model = waiting.pop()
        if model in known:
            continue
        known.add(model)
        for field in model.model_fields.values():
            waiting += [part for part in _inside(field.annotation) if part not in known]
    return known


def _inside(annotation: Any) -> Iterable[type[Model]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _inside(part)


def _is_of(schema: Schema, model: type[Model]) -> bool:
    return set(schema.get("properties", {})) == {field.alias or name for name, field in model.model_fields.items()}


def _with_words(schema: Schema, model: type[Model]) -> Schema:
    words = attribute_words(model)
    members = dict(schema.get("properties", {}))
    for name, field in model.model_fields.items():
        if name in words and (field.alias or name) in members:
            members[field.alias or name] = {**members[field.alias or name], "description": words[name]}
    return {**schema, "properties": members} if members else schema


# ---- operations


def _operation(one: Operation, refs: Mapping[_Used, Schema]) -> dict[str, Any]:
    summary, stop, rest = " ".join(one.words.split()).partition(". ")
    made: dict[str, Any] = {"operationId": one.name, "tags": [one.tag], "summary": summary + stop.strip()}
    if rest:
        made["description"] = rest
    if parameters := [*_path_parameters(one), *_query_parameters(one)]:
        made["parameters"] = parameters
    if one.raw_body:
        content: Schema = {one.raw_body: {"schema": {"type": "string", "format": "binary"}}}
        made["requestBody"] = {"required": True, "content": content}
    elif one.body is not None:
        schema = {"$ref": f"{REF}AnyAction"} if one.name == "act" else refs[one.body, "validation"]
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if one.path == _LOGIN:
        made["security"] = []
    made["responses"] = _responses(one, refs)
    return made


def _path_parameters(one: Operation) -> list[dict[str, Any]]:
    named = _PART.findall(one.path)
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in named
    ]


def _query_parameters(one: Operation) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = _with_words(one.query.model_json_schema(by_alias=True), one.query)
    required = schema.get("required", [])
    parameters: list[dict[str, Any]] = []
    for name, member in schema.get("properties", {}).items():
        plain = without_null(member)
        words = plain.pop("description", "")
        parameters.append({"name": name, "in": "query", "required": name in required, "schema": plain})
        if words:
            parameters[-1]["description"] = words
    return parameters


def _responses(one: Operation, refs: Mapping[_Used, Schema]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if one.answer is not None:
        content = {"application/json": {"schema": refs[one.answer, "serialization"]}}
        responses[str(one.status)] = {"description": "Done.", "content": content}
    else:
        responses["204" if one.status == 200 else str(one.status)] = {"description": "Done."}
    problem = {"application/json": {"schema": refs[Problem, "serialization"]}}
    for status, when in sorted(_refusals(one).items()):
        responses[str(status)] = {"description": when[:1].upper() + when[1:] + ".", "content": problem}
    return responses


def _refusals(one: Operation) -> dict[int, str]:
    refused = dict(_EVERYWHERE)
    if one.path != _LOGIN:
        refused[401] = "no cookie, or one that is not known (any more)"
    if _PART.search(one.path):
        refused[404] = "there is no such session, or nothing of that name in it"
    if one.body is not None or one.raw_body:
        refused |= {408: "the body came too slowly", 413: "the body is too large"}
    if one.body is not None:
        refused[415] = "the body is not application/json"
    if one.body is not None or one.query is not None or one.raw_body:
        refused[422] = "the request does not fit; `fields` says where"
    return refused | dict(one.refusals)
