"""Models without native tool calling: what they write as text becomes calls, and the loop notices no difference.

`XmlModel` wraps a Model that knows no tools. Tools become part of the system prompt, results a user's text; calls in
the history are written back as the model wrote them, and the stream is read for calls (`xml_reader`). It raises what
the inner model raises. `catalog_prompt` describes the format once, with one example that reads back as a valid call,
then each tool with its parameters as types. `write_call` always returns text that XmlReader reads back as the same
call: elements where they say exactly the same, else one JSON object. `example_arguments` returns arguments that fit the
schema, or None; its work is bounded and patterns run in the validator only. Results are escaped and their ids random,
so no output can close its element or look like another result.

`TextCallModel` wraps a small Model that knows the tools and writes `{"name": …, "arguments": …}` as an answer: a
response without calls whose whole text is one or more such calls of tools that the model may call becomes a response
with these calls, and `Completed.note` says so. Anything else stays the answer, byte by byte; where it ends with such a
call behind words, `Completed.unsent` names the tool, for the loop to ask. Text that may become a call is held back
while it streams; as soon as it cannot, it is shown. `read_text_calls` reads the text. Taken: a JSON object with a name
and arguments, a list of such objects, several one after the other, each bare, in a code fence or in a tag
(`<tool_call>`). Not taken: words beside it, other keys, a name that no tool has. `read_named_call` reads what names the
tool as its form: an element (`<read_file><path>a</path></read_file>`) or a call as in a program
(`read_file(path="a")`); a value without a name is that of the only argument that the tool requires.

Threat: a file or page may hold such text, and a model may repeat it. A call read here is judged like every call of the
model, and no more trusted than what the model writes in its own format.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from golem_forge.agent.model.interface import (
    MAX_CALLS,
    RESPONSE_CUT,
    AssistantMessage,
    Completed,
    Finish,
    Message,
    ModelEvent,
    Request,
    RequestedCall,
    ResultsMessage,
    TextDelta,
    ToolOffer,
    UserMessage,
    WrappedModel,
)
from golem_forge.agent.model.selection import OWN_SERVERS
from golem_forge.agent.model.xml_reader import RESULT_TAG, SERVER_SEPARATOR, XmlReader
from golem_forge.agent.model.xml_scanner import BLANKS, ELEMENT_NAME
from golem_forge.core.ids import new_id
from golem_forge.core.json import NotJson, as_json, compact_json, unique_members
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.regex import regex
from golem_forge.tools.schema import alternatives, resolve_schema
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError

LONGEST: Final = 1024 * 1024
"""Maximum characters of an answer that are looked at."""
_DECIDED_BY: Final = 1_000
"""Characters after which the beginning says no more than it has said."""
_NAMES: Final = ("name", "tool", "tool_name", "function", "function_name")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input")
_BESIDE: Final = frozenset(("id", "type"))
_TAGS: Final = (
    *("tool_call", "tool_calls", "toolcall", "tools", "tool", "tool_use", "tool_code", "call", "invoke", "action"),
    *("function_call", "function_calls", "functioncall", "functions", "function"),
)
_MARKS: Final = ("<|tool_call|>", "<|python_tag|>", "[TOOL_CALLS]")
_ANY_TAG: Final = "|".join(_TAGS)
_ANY_MARK: Final = "|".join(map(re.escape, _MARKS))
_OPEN_TAG: Final = regex(rf"(?:<(?:{_ANY_TAG})>|<function=([\w.-]{{1,200}})>|{_ANY_MARK})\s*")
_CLOSE_TAG: Final = regex(rf"\s*(?:</(?:{_ANY_TAG})>|<\|/?tool_call\|>|<\|eom_id\|>)")
_OPENINGS: Final = (*(f"<{tag}>" for tag in _TAGS), *_MARKS)
_OPENING_FUNCTION: Final = regex(r"<(?:f(?:u(?:n(?:c(?:t(?:i(?:o(?:n(?:=[\w.-]{0,200})?)?)?)?)?)?)?)?)?\Z")
_OPENING_FENCE: Final = regex(r"(?:[`~]{1,2}|[`~]{3,16}[ \t]*[\w+-]{0,30}[ \t\r]*)\Z")
_OPEN_FENCE: Final = regex(r"(`{3,}|~{3,})[ \t]*[\w+-]{0,30}[ \t]*\r?\n\s*")
_BEGIN_OF_CALL: Final = regex(
    rf"^(?:(?:`{{3,}}|~{{3,}})[ \t]*[\w+-]{{0,30}}[ \t]*\r?$|<(?:{_ANY_TAG})>|<function=|\{{[ \t]*[\"\n])", re.MULTILINE
)
_BEGINS_TRIED: Final = 8
"""The last ones: each may be the beginning of a long text."""
_KEY_PREFIX: Final = regex(r"[\[\s]*(?:\{\s*(?:\"([^\"\\]*)(\")?)?)?\Z|[\[\s]*\{\s*\"([^\"\\]*)\"")


class _NoCall(Exception):
    """Raised if the text is no tool call."""


def read_text_calls(text: str, may_call: Callable[[str], bool]) -> tuple[tuple[str, Any], ...]:
    """(name, arguments) of each call, in order; empty: the text is no call."""
    rest = text.strip()
    if not rest or len(rest) > LONGEST or rest[0] not in "{[<`~":
        return ()
    calls: list[tuple[str, Any]] = []
    try:
        while rest:
            found, rest = _segment(rest)
            calls += found
            if len(calls) > MAX_CALLS:
                return ()
    except (_NoCall, ValueError, RecursionError):
        return ()
    return tuple(calls) if calls and all(may_call(name) for name, _ in calls) else ()


def unsent_call(text: str) -> str:
    """The tool, known or not, of the call that a text ends with; empty: it ends otherwise."""
    text = text.strip()
    if len(text) > LONGEST:
        return ""
    begins = [found.start() for found in _BEGIN_OF_CALL.finditer(text)]
    for begin in begins[-_BEGINS_TRIED:]:
        if begin and (calls := read_text_calls(text[begin:], bool)):
            return calls[0][0]
    return ""


def _segment(text: str) -> tuple[list[tuple[str, Any]], str]:
    """The calls of one piece at the beginning, and what follows it."""
    if fence := _OPEN_FENCE.match(text):
        calls: list[tuple[str, Any]] = []
        rest = text[fence.end() :]
        while rest and not rest.startswith(fence[1]):  # a fence inside an argument closes nothing
            found, rest = _segment(rest)
            calls += found
        if not calls:
            raise _NoCall
        return calls, rest.removeprefix(fence[1]).strip()
    tag = _OPEN_TAG.match(text)
    named = (tag[1] or "") if tag else ""
    value, rest = _json_value(text[tag.end() :] if tag else text)
    calls = [(named, value)] if named and isinstance(value, dict) else _calls_in(value)
    if tag is not None:
        while not named and rest.lstrip().startswith("{"):  # several calls in one tag
            value, rest = _json_value(rest.lstrip())
            calls += _calls_in(value)
        while closed := _CLOSE_TAG.match(rest):
            rest = rest[closed.end() :]
    return calls, rest.lstrip(" \t\r\n,;")


def _json_value(text: str) -> tuple[Any, str]:
    value, end = json.JSONDecoder(object_pairs_hook=unique_members, parse_constant=_refuse).raw_decode(text)
    return value, text[end:]


def _calls_in(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, list) and value:
        return [_call(each) for each in value]
    return [_call(value)]


def _call(value: Any) -> tuple[str, Any]:
    if not isinstance(value, dict):
        raise _NoCall
    inner = value.get("function")
    if isinstance(inner, dict) and value.keys() <= {"function", *_BESIDE}:
        value = inner
    names = [key for key in _NAMES if key in value]
    given = [key for key in _ARGUMENTS if key in value]
    if len(names) != 1 or len(given) != 1 or not value.keys() <= {names[0], given[0], *_BESIDE}:
        raise _NoCall
    name, args = value[names[0]], value[given[0]]
    if not isinstance(name, str) or not isinstance(args, (dict, str, type(None))):
        raise _NoCall
    return name, {} if args is None else args


def _refuse(constant: str) -> Any:
    raise _NoCall


_ELEMENT: Final = regex(r"<([\w.-]{1,200})>(.*)</\1>", re.DOTALL)
_PROGRAM_CALL: Final = regex(r"(\w{1,200})\((.*)\)", re.DOTALL)
_WHOLE_FENCE: Final = regex(r"(`{3,}|~{3,})[ \t]*[\w+-]{0,30}[ \t]*\r?\n(.*?)\r?\n?\1", re.DOTALL)
_LONGEST_PROGRAM_CALL: Final = 16 * 1024
_BARE_VALUE: Final = regex(r"[^\s()\[\]{}=,;\"'`<>](?:[^()\[\]{}=,;\"'`<>\n]{0,200}[^\s()\[\]{}=,;\"'`<>])?")


def read_named_call(text: str, schema_of: Callable[[str], Mapping[str, Any] | None]) -> tuple[str, Any] | None:
    """(name, arguments) of a text that is one call with the tool's name as its form. `schema_of`: None for a name that
    no tool has."""
    text = text.strip()
    if not text or len(text) > LONGEST:
        return None
    if fence := _WHOLE_FENCE.fullmatch(text):
        text = fence[2].strip()
    written = _ELEMENT.fullmatch(text) or _PROGRAM_CALL.fullmatch(text)
    schema = schema_of(written[1]) if written else None
    if written is None or schema is None:
        return None
    name, inside = written[1], written[2].strip()
    args = _element_arguments(name, inside, schema) if text[0] == "<" else _program_arguments(text, inside, schema)
    return None if args is None else (name, args)


def _element_arguments(name: str, inside: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    reader = XmlReader({name: schema})
    reader.feed(_call_element(name, inside))
    read = reader.finish()
    if not read.text and len(read.calls) == 1 and not read.calls[0].problem:
        return dict(read.calls[0].args)
    return None if "<" in inside else _only_argument(inside, schema)


def _program_arguments(text: str, inside: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    if len(text) > _LONGEST_PROGRAM_CALL:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):  # of a backslash that begins no escape
            call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or any(each.arg is None for each in call.keywords) or len(call.args) > 1:
            return None
        args = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        if call.args:
            first = _only_argument(ast.literal_eval(call.args[0]), schema)
            args = {} if first is None else first | args
        return json.loads(json.dumps(args, allow_nan=False)) if args or not inside else None
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return _only_argument(inside, schema) if _BARE_VALUE.fullmatch(inside) else None


def _only_argument(value: Any, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The value by the name of the only argument that is required; None: there are more or none, or it is no string."""
    required: Sequence[str] = schema.get("required") or ()
    known = schema.get("properties")
    part = known.get(required[0]) if isinstance(known, dict) and len(required) == 1 else None
    fits = isinstance(part, dict) and part.get("type") == "string" and isinstance(value, str) and bool(value)
    return {required[0]: value} if fits else None


def may_become_call(text: str, names: Collection[str] = ()) -> bool:
    """Whether the beginning of an answer may still turn out to be a call. `names`: of tools."""
    rest = text.lstrip()
    if not rest:
        return True
    if len(rest) > LONGEST:
        return False
    if opened := _OPEN_FENCE.match(rest):
        rest = rest[opened.end() :]
    elif _OPENING_FENCE.match(rest):
        return True
    if any(form.startswith(rest) or rest.startswith(form) for name in names for form in (f"<{name}>", f"{name}(")):
        return True
    if opened := _OPEN_TAG.match(rest):
        if opened[1]:
            return True
        rest = rest[opened.end() :]
    elif any(each.startswith(rest) for each in _OPENINGS) or _OPENING_FUNCTION.match(rest):
        return True
    key = _KEY_PREFIX.match(rest)
    if key is None:
        return False
    begun, closed = key[1] or key[3] or "", key[2] is not None or key[3] is not None
    known = (*_NAMES, *_ARGUMENTS, *_BESIDE)
    return begun in known if closed else any(each.startswith(begun) for each in known)


class _Held:
    """The beginning of a response, as long as it may be a call."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> bool:
        """Adds a piece. Returns False if the text can no longer be a call."""
        self._pieces.append(piece)
        before, self._size = self._size, self._size + len(piece)
        if before > _DECIDED_BY:
            return self._size <= LONGEST
        return may_become_call(self.text, self._names)

    @property
    def text(self) -> str:
        return "".join(self._pieces)


class TextCallModel(WrappedModel):
    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        held: _Held | None = _Held([offer.name for offer in request.tools]) if request.tools else None
        events = self.inner.stream(request)
        try:
            async for event in events:
                if isinstance(event, TextDelta) and held is not None:
                    if held.add(event.text):
                        yield TextDelta("")  # a call may be being written
                    else:
                        yield TextDelta(held.text)
                        held = None
                elif isinstance(event, Completed):
                    taken = with_text_calls(event, request)
                    if held is None and taken.message is not event.message:
                        taken = event  # it was shown as words
                    if taken.message is event.message and held is not None and held.text:
                        yield TextDelta(held.text)
                    yield taken
                else:
                    yield event
        finally:
            await _close(events)


async def _close(events: AsyncIterator[ModelEvent]) -> None:
    """Closes the connection of a cancelled stream at once, not when it is collected."""
    aclose = getattr(events, "aclose", None)
    if aclose is not None:
        await aclose()


def with_text_calls(completed: Completed, request: Request) -> Completed:
    """Turns a text that is a tool call into a call; returns the same object if the text is an answer."""
    message = completed.message
    if message.calls or completed.finish is not Finish.STOP or not request.tools:
        return completed
    schemas: Mapping[str, Any] = {offer.name: offer.schema for offer in request.tools}

    def schema_of(name: str) -> Mapping[str, Any] | None:
        return schemas[name] if name in schemas else (request.schema_of and request.schema_of(name)) or None

    found = read_text_calls(message.text, lambda name: schema_of(name) is not None)
    if not found and (named := read_named_call(message.text, schemas.get)):
        found = (named,)
    if not found:
        unsent = unsent_call(message.text)
        return replace(completed, unsent=unsent) if unsent else completed
    calls = tuple(RequestedCall(id=f"call_{new_id()}", name=name, args=args) for name, args in found)
    tools = ", ".join(dict.fromkeys(call.name for call in calls))
    note = f"{message.model or 'the model'} wrote its call as text; taken as a call of {tools}"
    # What the provider has of this message is the text; the history shows the model its call in the right form.
    return replace(completed, message=replace(message, text="", calls=calls, raw=None), note=note)


def takes_text_calls(provider: str, said: bool | None) -> bool:
    """`said`: `models.<provider>.text_calls`; None: on for servers of one's own, whose models are often small."""
    return provider in OWN_SERVERS if said is None else said


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
                    if read.made_up and not event.message.calls:
                        event = replace(event, finish=Finish.STOP)  # what was cut comes behind the message
                    if event.finish is Finish.LENGTH:  # why the last one is not closed
                        calls = tuple(replace(call, problem=RESPONSE_CUT) for call in calls)
                    yield replace(event, message=replace(event.message, text=read.text, calls=calls, raw=raw))
                else:
                    yield event
        finally:
            await _close(events)


def as_plain_text(request: Request) -> Request:
    """Returns the request without tools; they are described in its texts."""
    schemas = {offer.name: offer.schema for offer in request.tools}
    prompt = catalog_prompt(request.tools)
    return replace(
        request,
        system=f"{request.system}\n\n{prompt}" if prompt and request.system else prompt or request.system,
        messages=tuple(_message_as_text(message, schemas) for message in request.messages),
        tools=(),
        stop=(*request.stop, RESULT_TAG) if prompt else request.stop,
    )


def _message_as_text(message: Message, schemas: Mapping[str, Mapping[str, Any]]) -> Message:
    if isinstance(message, ResultsMessage):
        media = tuple(part for result in message.results for part in result.media)
        return UserMessage(text=results_text(message), kind="note", media=media)
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
            args = json.loads(args, object_pairs_hook=unique_members)
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
