"""XmlModel: makes a Model without native tool calling one that has it. The loop notices no difference.

Tools become part of the system prompt, results a user's text; calls in the history are written back as the model wrote
them, and the stream is read for calls (`xml_reader`). Raises what the inner model raises.

`catalog_prompt` describes the format once, with one example that reads back as a valid call, then each tool with its
parameters as types. `write_call` always returns text that XmlReader reads back as the same call: elements where they
say exactly the same, else one JSON object. `example_arguments` returns arguments that fit the schema, or None; its work
is bounded and patterns run in the validator only. Results are escaped and their ids random, so no output can close its
element or look like another result.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from golem_forge.agent.messages import AssistantMessage, Message, ResultsMessage, UserMessage
from golem_forge.agent.model.interface import (
    RESPONSE_CUT,
    Completed,
    Finish,
    ModelEvent,
    Request,
    TextDelta,
    ToolOffer,
    WrappedModel,
)
from golem_forge.agent.model.xml_reader import SERVER_SEPARATOR, XmlReader
from golem_forge.agent.model.xml_scanner import BLANKS, ELEMENT_NAME
from golem_forge.core.json import NotJson, as_json, compact_json
from golem_forge.core.lazy_dataclass import replace
from golem_forge.tools.schema import alternatives, resolve_schema
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError

_WRITTEN_KEY: Final = "xml"
_INNER_KEY: Final = "inner"


class XmlModel(WrappedModel):
    @property
    def calls_natively(self) -> bool:
        """True: this wrapper already converts the calls."""
        return True

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        schemas = {offer.name: offer.schema for offer in request.tools}
        reader = XmlReader(schemas, request.schema_of)
        received: list[str] = []
        events = self.inner.stream(as_plain_text(request))
        try:
            async for event in events:
                if isinstance(event, TextDelta):
                    received.append(event.text)
                    yield TextDelta(reader.feed(event.text))  # empty while a call is being written
                elif isinstance(event, Completed):
                    if "".join(received) != event.message.text:  # the whole is what counts, whatever was streamed of it
                        reader = XmlReader(schemas, request.schema_of)
                        reader.feed(event.message.text)
                    read = reader.finish()
                    if read.rest:
                        yield TextDelta(read.rest)
                    raw = {_WRITTEN_KEY: read.written, _INNER_KEY: event.message.raw}
                    calls = (*read.calls, *event.message.calls)
                    if event.finish is Finish.LENGTH:  # why the last one is not closed
                        calls = tuple(replace(call, problem=RESPONSE_CUT) for call in calls)
                    yield replace(event, message=replace(event.message, text=read.text, calls=calls, raw=raw))
                else:
                    yield event
        finally:
            # A cancelled stream closes its connection at once, not when it is collected.
            aclose = getattr(events, "aclose", None)
            if aclose is not None:
                await aclose()


def as_plain_text(request: Request) -> Request:
    """Returns the request without tools; they are described in its texts."""
    schemas = {offer.name: offer.schema for offer in request.tools}
    prompt = catalog_prompt(request.tools)
    return replace(
        request,
        system=f"{request.system}\n\n{prompt}" if prompt and request.system else prompt or request.system,
        messages=tuple(_message_as_text(message, schemas) for message in request.messages),
        tools=(),
    )


def _message_as_text(message: Message, schemas: Mapping[str, Mapping[str, Any]]) -> Message:
    if isinstance(message, ResultsMessage):
        return UserMessage(text=results_text(message), kind="note")
    if not isinstance(message, AssistantMessage):
        return message
    if isinstance(message.raw, dict) and isinstance(written := message.raw.get(_WRITTEN_KEY), str):
        return replace(message, text=written, calls=(), raw=message.raw.get(_INNER_KEY))
    if not message.calls:
        return message
    calls = (write_call(call.name, call.args, schemas.get(call.name, {})) for call in message.calls)
    return replace(message, text="\n".join((message.text, *calls) if message.text else calls), calls=(), raw=None)


_FORMAT_PROMPT: Final = """\
## Tools

To call a tool, write, outside code fences:

{example}

Text that holds < or & goes in CDATA: <content><![CDATA[a < b]]></content>. Lists repeat their element; objects nest; \
<arguments> may hold one JSON object instead. End your message after the calls: the results come in the next one as \
<tool_result>, which you never write. A message without <tool> is your answer.
"""
_SAMPLE: Final = "<tool><tool_name>NAME</tool_name><arguments><PARAMETER>VALUE</PARAMETER></arguments></tool>"


def catalog_prompt(offers: Sequence[ToolOffer]) -> str:
    """The format with one example, and each tool as a signature."""
    if not offers:
        return ""
    written = (_example_call(offer.name, compact_json(dict(offer.full_schema or offer.schema))) for offer in offers)
    example = next((each for each in written if each), _SAMPLE)
    return "\n".join((_FORMAT_PROMPT.format(example=example), *(_tool_entry(offer) for offer in offers)))


def _tool_entry(offer: ToolOffer) -> str:
    properties = offer.schema.get("properties")
    known: dict[str, Any] = properties if isinstance(properties, dict) else {}
    told = [
        f"- {name}: {part['description'].strip()}"
        for name, part in known.items()
        if isinstance(part, dict) and isinstance(part.get("description"), str) and part["description"].strip()
    ]
    return "\n".join(
        (f"### {offer.name}({_members_as_types(dict(offer.schema))})", offer.description.strip(), *told, "")
    )


def _members_as_types(schema: dict[str, Any], level: int = 0) -> str:
    """Returns the members as types: `path: string, limit?: integer`."""
    properties = schema.get("properties")
    required = schema.get("required") or ()
    parts = [
        f"{name}{'' if name in required else '?'}: {_type(part, level + 1)}"
        for name, part in (properties.items() if isinstance(properties, dict) else ())
    ]
    return ", ".join(parts)


def _type(part: Any, level: int) -> str:
    """A schema as a type a model reads; what cannot be said shortly is `any`."""
    own = part if isinstance(part, dict) else {}
    options = [own["const"]] if "const" in own else own.get("enum")
    if isinstance(options, list) and options:
        return "|".join(compact_json(each) for each in options)
    if (members := alternatives(own)) and level < _MAX_LEVELS:
        return "|".join(dict.fromkeys(_type(each, level + 1) for each in members))
    kind = own.get("type")
    if isinstance(kind, list):
        return "|".join(str(each) for each in kind)
    if kind == "array" and level < _MAX_LEVELS:
        return f"[{_type(own.get('items'), level + 1)}]"
    if (kind == "object" or "properties" in own) and level < _MAX_LEVELS:
        return f"{{{_members_as_types(own, level)}}}" if own.get("properties") else "object"
    return str(kind or "any")


@lru_cache(maxsize=512)
def _example_call(name: str, schema_text: str) -> str:
    """Empty where there is none with arguments. Kept: every request needs it again, and the schema has to be compiled
    for it."""
    schema = json.loads(schema_text)
    example = example_arguments(schema)
    return write_call(name, example, schema) if example else ""


_ITEM: Final = "item"


def write_call(name: str, args: Any, schema: Mapping[str, Any]) -> str:
    """`args`: a mapping, or JSON text; text that is no JSON object is written as it is."""
    if isinstance(args, str):
        try:
            args = json.loads(args)
        except (ValueError, RecursionError):
            return _call_element(name, cdata(args))
    if isinstance(args, Mapping) and (inner := _members(args)) is not None:
        written = _call_element(name, inner)
        if _reads_as(written, name, args, schema):
            return written
    return _call_element(name, _element_text(compact_json(args)))


def cdata(text: str) -> str:
    return f"<![CDATA[{text.replace(']]>', ']]]]><![CDATA[>')}]]>"


def _reads_as(written: str, name: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    reader = XmlReader({name: schema})
    reader.feed(written)
    calls = reader.finish().calls
    return len(calls) == 1 and not calls[0].problem and _same_json(calls[0].args, args) and calls[0].name == name


def _same_json(one: Any, other: Any) -> bool:
    """Equal also in type: `1`, `1.0` and `true` are three values."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _call_element(name: str, arguments: str) -> str:
    server, between, tool = name.partition(SERVER_SEPARATOR)
    head = f"<server_name>{_element_text(server)}</server_name>" if between else ""
    named = f"<tool_name>{_element_text(tool if between else name)}</tool_name>"
    return f"<tool>{head}{named}<arguments>{arguments}</arguments></tool>"


def _members(value: Mapping[str, Any]) -> str | None:
    """Returns the members as XML; None if a key is no element name."""
    parts = []
    for key, item in value.items():
        inner = _inner_xml(item) if isinstance(key, str) and ELEMENT_NAME.fullmatch(key) else None
        if inner is None:
            return None
        parts.append(f"<{key}>{inner}</{key}>")
    return "".join(parts)


def _inner_xml(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return _members(value)
    if isinstance(value, list):
        items = [_inner_xml(item) for item in value]
        return None if None in items else "".join(f"<{_ITEM}>{item}</{_ITEM}>" for item in items)
    return _element_text(value if isinstance(value, str) else compact_json(value))


def _element_text(text: str) -> str:
    plain = text.strip(BLANKS) == text and "<" not in text and "&" not in text and "]]>" not in text
    return text if plain and text else cdata(text)


def results_text(message: ResultsMessage) -> str:
    parts = [
        f'<tool_result id="{escape_xml(result.id)}" '
        f'status="{result.status.value}">{escape_xml(result.text)}</tool_result>'
        for result in message.results
    ]
    return "\n".join((*parts, message.note) if message.note else parts)


def escape_xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


_MAX_LEVELS: Final = 6
_MAX_ITEMS: Final = 3
_TEXTS: Final = (
    "text", "a", "A", "1", "a-b", "a.b", "example.txt", "/workspace/example.txt", "2026-01-31",
    "2026-01-31T12:00:00Z", "12:00", "https://example.com", "me@example.com", "1.0.0", "out_0123456789ab",
    "0123456789abcdef", "00000000-0000-4000-8000-000000000000", "#a1b2c3", "main",
)  # fmt: skip
"""Tried in this order where a pattern wants more than any text."""


def example_arguments(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    root = dict(schema)
    try:
        value = as_json(_example_object(root, root, 0))
        check = SchemaCheck(root)
    except (NotJson, ToolDefinitionError):
        return None
    return value if not check.problems(value, 1) else None


def _example_object(schema: dict[str, Any], root: dict[str, Any], level: int) -> dict[str, Any]:
    known = schema.get("properties")
    members = known if isinstance(known, dict) else {}
    required = [name for name in schema.get("required") or () if isinstance(name, str)]
    wanted = required or (list(members)[:1] if level == 0 else [])
    return {name: _example_value(members.get(name), root, level + 1) for name in wanted}


def _example_value(schema: Any, root: dict[str, Any], level: int) -> Any:
    own = resolve_schema(schema, root).schema
    if "const" in own:
        return own["const"]
    for given in ("enum", "examples"):
        if isinstance(options := own.get(given), list) and options:
            return options[0]
    if own.get("default") is not None:
        return own["default"]
    if (members := alternatives(own)) and level < _MAX_LEVELS:
        return _example_value(members[0], root, level + 1)
    kind = own.get("type")
    if isinstance(kind, list):
        kind = next(iter(kind), "string")
    if kind == "object" or (kind is None and "properties" in own):
        return _example_object(own, root, level) if level < _MAX_LEVELS else {}
    if kind == "array":
        return _example_array(own, root, level)
    if kind in ("integer", "number"):
        return _example_number(own, is_whole=kind == "integer")
    return {"boolean": True, "null": None}[kind] if kind in ("boolean", "null") else _example_text(own)


def _example_array(schema: dict[str, Any], root: dict[str, Any], level: int) -> list[Any]:
    least = schema.get("minItems")
    count = min(max(least, 1), _MAX_ITEMS) if isinstance(least, int) else 1
    return [_example_value(schema.get("items"), root, level + 1) for _ in range(count)] if level < _MAX_LEVELS else []


def _example_number(schema: dict[str, Any], *, is_whole: bool) -> float:
    step = schema.get("multipleOf")
    if isinstance(step, (int, float)) and step > 0:
        return step
    least, most = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    gap = 1 if is_whole else 0.5
    if isinstance(least, (int, float)) and least > 1:
        return least
    if isinstance(above, (int, float)) and above >= 1:
        return above + gap
    if isinstance(most, (int, float)) and most < 1:
        return most
    if isinstance(below, (int, float)) and below <= 1:
        return below - gap
    return 1


def _example_text(schema: dict[str, Any]) -> str:
    limits: dict[str, Any] = {key: schema[key] for key in ("minLength", "maxLength", "pattern") if key in schema}
    if not limits:
        return _TEXTS[0]
    try:
        check = SchemaCheck({"type": "string", **limits})
    except ToolDefinitionError:
        return _TEXTS[0]
    least = limits.get("minLength")
    padded = (text.ljust(least, "x") for text in _TEXTS[:1]) if isinstance(least, int) and least < 200 else ()
    return next((text for text in (*_TEXTS, *padded) if not check.problems(text, 1)), _TEXTS[0])
