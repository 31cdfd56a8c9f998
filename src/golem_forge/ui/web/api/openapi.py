"""The description of the whole API as OpenAPI 3.1, made of the operations' own declarations.

Schemas of events and actions come from the classes that the bus checks them by: `event.<type>` is an envelope with its
data, `action.<type>` what a UI sends. Unknown members are to be ignored; a member that is not required is left out,
never null, unless its type says so. The socket, which OpenAPI cannot describe, stands under `x-socket`. Descriptions of
members are the strings below the attributes in the source.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final, get_type_hints

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from golem_forge._version import __version__
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.regex import regex
from golem_forge.events.model import REGISTRY, EventData
from golem_forge.events.serialization import encode_json
from golem_forge.ui.web.api import ApiModel, ApiProblem, events, servers, sessions, settings, tools, user_tools
from golem_forge.ui.web.api.operation import ApiCall, Operation, operation
from golem_forge.ui.web.sdk import Response
from golem_forge.ui.web.security import LOGIN, cookie_name
from golem_forge.ui.web.stream.watched_session import SessionStatus

_PART: Final = regex(r"\{([A-Za-z_]+)\}")
_ABOUT: Final = (
    "What the page of Golem Forge uses, for everybody who writes a UI of their own. Log in with the code of the "
    "printed link, keep the cookie, and set `Origin` to the server's own address on every request that is not a GET. "
    "docs/guides/own-ui.md has a complete example."
)
_COMMON_REFUSALS: Final = {
    400: "a header came twice, or the target is no path",
    403: "the request does not come from the page: `Origin` is not the server's own",
    409: "it cannot be done as things are; the problem says why",
    421: "the server does not answer for this `Host`",
}
_ENUMS: Final = {"ApprovalMode": ApprovalMode, "SessionState": SessionStatus}
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
        "4429": "too many look at this session, or this one sends too much",
    },
}


class ApiDescription(ApiModel, title="Description"):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")


@operation("GET", "/api/openapi.json", "describe", tag="login", answer=ApiDescription)
async def describe(call: ApiCall) -> Response:
    """This description."""
    return Response(_encoded_document(cookie_name(call.request.scope)), media_type="application/json")


@lru_cache(4)
def _encoded_document(cookie: str) -> bytes:
    return encode_json(openapi_document(cookie))


def all_operations() -> tuple[Operation, ...]:
    """In the order in which the description lists them: all that a module here declares with `@operation`."""
    modules = (sessions, events, tools, user_tools, servers, settings)
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, Operation)]
    return tuple({(each.method, each.path): each for each in (*declared, describe)}.values())


def openapi_document(cookie: str, operations: Sequence[Operation] = ()) -> dict[str, Any]:
    """`cookie`: the name of the one that this server gives. `operations`: instead of all there are."""
    operations = operations or all_operations()
    refs, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation_object(one, refs)
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


_ModelUse = tuple[type[ApiModel], JsonSchemaMode]


def _schemas(operations: Iterable[Operation]) -> tuple[dict[_ModelUse, Schema], dict[str, Schema]]:
    """What refers to each model as it is taken or given, and every model by its name."""
    used: dict[_ModelUse, None] = {(ApiProblem, "serialization"): None}
    for one in operations:
        used |= {(one.body, "validation"): None} if one.body is not None else {}
        used |= {(one.answer, "serialization"): None} if one.answer is not None else {}
    refs, found = models_json_schema(list(used), by_alias=True, ref_template=REF + "{model}")
    return _named_components(refs, found.get("$defs", {}))  # type: ignore[arg-type]


def _named_components(
    refs: Mapping[_ModelUse, Schema], found: Mapping[str, Schema]
) -> tuple[dict[_ModelUse, Schema], dict[str, Schema]]:
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


# ---- operations


def _operation_object(one: Operation, refs: Mapping[_ModelUse, Schema]) -> dict[str, Any]:
    summary, stop, rest = " ".join(one.description.split()).partition(". ")
    made: dict[str, Any] = {"operationId": one.name, "tags": [one.tag], "summary": summary + stop.strip()}
    if rest:
        made["description"] = rest
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PART.findall(one.path)
    ]
    if parameters := [*parameters, *_query_parameters(one)]:
        made["parameters"] = parameters
    if one.raw_body:
        content: Schema = {one.raw_body: {"schema": {"type": "string", "format": "binary"}}}
        made["requestBody"] = {"required": True, "content": content}
    elif one.body is not None:
        schema = {"$ref": f"{REF}AnyAction"} if one.name == "act" else refs[one.body, "validation"]
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if one.path == LOGIN[1]:
        made["security"] = []
    made["responses"] = _responses(one, refs)
    return made


def _query_parameters(one: Operation) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = one.query.model_json_schema(by_alias=True)
    required = schema.get("required", [])
    parameters: list[dict[str, Any]] = []
    for name, member in schema.get("properties", {}).items():
        plain = without_null(member)
        words = plain.pop("description", "")
        parameters.append({"name": name, "in": "query", "required": name in required, "schema": plain})
        if words:
            parameters[-1]["description"] = words
    return parameters


def _responses(one: Operation, refs: Mapping[_ModelUse, Schema]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if one.answer is not None:
        content = {"application/json": {"schema": refs[one.answer, "serialization"]}}
        responses[str(one.status)] = {"description": "Done.", "content": content}
    elif one.media:
        whole = {kind: {"schema": {} if kind.endswith("json") else {"type": "string"}} for kind in one.media}
        responses[str(one.status)] = {"description": "Done.", "content": whole}
    else:
        responses["204" if one.status == 200 else str(one.status)] = {"description": "Done."}
    problem = {"application/json": {"schema": refs[ApiProblem, "serialization"]}}
    for status, when in sorted(_refusals(one).items()):
        responses[str(status)] = {"description": when[:1].upper() + when[1:] + ".", "content": problem}
    return responses


def _refusals(one: Operation) -> dict[int, str]:
    refused = dict(_COMMON_REFUSALS)
    if one.path != LOGIN[1]:
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


Schema = dict[str, Any]
REF: Final = "#/components/schemas/"


def event_schemas() -> dict[str, Schema]:
    """By component name, with `Event` and `AnyAction`, each one of them all."""
    events = {f"event.{name}": _event_schema(kind) for name, kind in REGISTRY.items()}
    actions = {f"action.{name}": _action_schema(kind) for name, kind in REGISTRY.items() if kind.ACTION}
    return {
        **events,
        **actions,
        "Event": _one_of(events, "One thing that happened. Types that you do not know are to be ignored."),
        "AnyAction": _one_of(actions, "What a UI asks of a session."),
    }


def _one_of(known: dict[str, Schema], words: str) -> Schema:
    mapping = {name.partition(".")[2]: REF + name for name in known}
    return {
        "description": words,
        "oneOf": [{"$ref": REF + name} for name in known],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }


def _event_schema(kind: type[EventData]) -> Schema:
    seq = "Its own number, gapless per session from 1." if kind.RECORDED else "Of the last recorded event: not its own."
    return {
        "type": "object",
        "description": "" if kind.RECORDED else "Not recorded: only who watches sees it.",
        "properties": {
            "type": {"const": kind.TYPE},
            "seq": {"type": "integer", "minimum": 0, "description": seq},
            "ts": {"type": "string", "description": "UTC, ISO 8601 with milliseconds."},
            "sessionId": {"type": "string"},
            "workerId": {"type": "string"},
            "data": _data_schema(kind),
        },
        "required": ["type", "seq", "ts", "sessionId", "workerId", "data"],
    }


def _action_schema(kind: type[EventData]) -> Schema:
    return {
        "type": "object",
        "properties": {"type": {"const": kind.TYPE}, "data": _data_schema(kind)},
        "required": ["type", "data"],
    }


def _data_schema(kind: type[EventData]) -> Schema:
    hints, words = get_type_hints(kind), _attribute_docs(kind)
    members: dict[str, Schema] = {}
    for attribute, wire, required in kind.FIELDS:
        schema = TypeAdapter(hints[attribute]).json_schema()
        schema = schema if required else without_null(schema)
        members[wire] = schema | {"description": words[attribute]} if attribute in words else schema
    return {"type": "object", "properties": members, "required": sorted(kind.REQUIRED)}


def without_null(schema: Schema) -> Schema:
    """The schema of a member that is absent rather than null."""
    rest = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(rest) != 1:
        return schema
    return {**{name: value for name, value in schema.items() if name not in ("anyOf", "default")}, **rest[0]}


def _attribute_docs(kind: type[EventData]) -> dict[str, str]:
    """Attribute → the string that stands below it, in this class and those above it. Empty without the source."""
    words: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("golem_forge."):
            words |= _docs_of_module(each.__module__).get(each.__name__, {})
    return words


@cache
def _docs_of_module(name: str) -> dict[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, KeyError, SyntaxError):
        return {}
    docs: dict[str, dict[str, str]] = {}
    for definition in tree.body:
        if isinstance(definition, ast.ClassDef):
            words = docs.setdefault(definition.name, {})
            for pair in pairwise(definition.body):
                match pair:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                        words[name] = inspect.cleandoc(text)
    return docs
