"""What a tool returned: checked against what it promised, and turned into a ToolResult.

`to_result` never raises: str → `text`; a ToolResult, MCP's CallToolResult object or a mapping with a valid kind →
itself; anything else → `json`; what JSON cannot hold → text. Common small values take about a microsecond: this runs
after every call.

`text_for_model` is the one rule for text beside structured content: a model reads the text; where the text does not say
what the structured content says, that follows as JSON.

An OutputSpec is a return annotation, a pydantic model or a JSON Schema. Its `check` returns the value to use (coerced
where pydantic coerces) or raises ToolFailed with the place: `tool 'x' returned an invalid value at $.items[0]: …`.
Nothing is built before it is needed.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from json.encoder import encode_basestring as _quote
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict

from golem_forge.core.errors import ToolFailed
from golem_forge.core.json import NotJson, as_json, compact_json, safe_json, valid_unicode
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.results import (
    ToolResult,
    convert_call_result,
    semantic_value,
    structured_form,
    text_of,
)
from golem_forge.core.text import shorten_middle
from golem_forge.tools.schema import instance_path, json_path
from golem_forge.tools.validation import SchemaCheck

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_JSON_NAMES: Final = {"mime_type": "mimeType"}
_JSON_NAMES_OF_DIFF: Final = {"is_new": "isNew", "bytes_written": "bytesWritten", **_JSON_NAMES}
_JSON_HINTS: Final = {"preferred_view": "preferredView", "max_height": "maxHeight"}
"""Fields and display hints that Python code may spell its own way; events, MCP and pages have the JSON names."""
PREFERRED_VIEWS: Final = frozenset({"text", "markdown", "code", "diff", "table", "tree", "image", "raw", "hidden"})
_SCALARS: Final = frozenset({int, float, bool, type(None)})
_MAX_SHORT_DICT: Final = 8
_SAFE_INTEGER: Final = 1 << 63


class DisplayHints(TypedDict, total=False):
    preferredView: str
    language: str
    collapsed: bool
    maxHeight: int | float
    priority: int | float


def display_hints(value: Mapping[str, Any]) -> DisplayHints:
    """The hints of a semantic value that have a meaning; everything else about them is ignored."""
    raw = value.get("display")
    hints: DisplayHints = {}
    if not isinstance(raw, Mapping):
        return hints
    if isinstance(view := raw.get("preferredView"), str) and view in PREFERRED_VIEWS:
        hints["preferredView"] = view
    if isinstance(language := raw.get("language"), str) and language:
        hints["language"] = language
    if isinstance(collapsed := raw.get("collapsed"), bool):
        hints["collapsed"] = collapsed
    if (height := _number(raw.get("maxHeight"))) is not None and height > 0:
        hints["maxHeight"] = height
    if (priority := _number(raw.get("priority"))) is not None:
        hints["priority"] = priority
    return hints


def to_result(value: Any) -> ToolResult:
    kind = type(value)
    if kind is str:
        text = value if value.isascii() else valid_unicode(value)
        return ToolResult({"kind": "text", "content": text}, text)
    if kind is dict and 0 < len(value) <= _MAX_SHORT_DICT and "kind" not in value:
        quick = _short_dict_text(value)
        if quick is not None:
            data = value.copy()
            return ToolResult(value={"kind": "json", "data": data}, text=quick, structured=data)
    elif (quick := _scalar_text(value, kind)) is not None:
        return ToolResult({"kind": "json", "data": value}, quick)
    value = convert_call_result(value)
    if isinstance(value, ToolResult):
        named = _with_json_names(value.value)
        return value if named is value.value else replace(value, value=named)
    semantic = _semantic_json(value)
    return _json_result(value) if semantic is None else _semantic_result(semantic)


def _scalar_text(value: Any, kind: type) -> str | None:
    if kind is int:
        return repr(value) if -_SAFE_INTEGER < value < _SAFE_INTEGER else None
    if kind is bool:
        return "true" if value else "false"
    if value is None:
        return "null"
    return repr(value) if kind is float and value - value == 0.0 else None


def _short_dict_text(value: dict[Any, Any]) -> str | None:
    """The compact JSON of a small flat dict, several times faster than the general encoder; None if it is not one."""
    text = ""
    for key, item in value.items():
        kind = type(item)
        if type(key) is not str:
            return None
        if kind is str:
            text += f",{_quote(key)}:{_quote(item)}"
        elif kind is int and -_SAFE_INTEGER < item < _SAFE_INTEGER:
            text += f",{_quote(key)}:{item}"
        elif (word := _scalar_text(item, kind)) is not None:
            text += f",{_quote(key)}:{word}"
        else:
            return None
    return f"{{{text[1:]}}}" if text.isascii() else None


def _semantic_json(value: Any) -> dict[str, Any] | None:
    try:
        semantic = semantic_value(_with_json_names(value))
    except Exception:  # a foreign mapping may raise while it is read
        return None
    if semantic is None:
        return None
    if all((type(item) is str and item.isascii()) or item is True or item is False for item in semantic.values()):
        return semantic.copy()
    try:
        data = as_json(semantic)
    except NotJson:
        data, _ = safe_json(semantic)
    return semantic_value(data)


def _with_json_names(value: Any) -> Any:
    """A value with a kind, its fields and hints by their JSON names; the same object where they are already."""
    if not isinstance(value, Mapping) or "kind" not in value:
        return value
    value = _rename_keys(value, _JSON_NAMES_OF_DIFF if value["kind"] == "diff" else _JSON_NAMES)
    hints = value.get("display")
    if isinstance(hints, Mapping) and (named := _rename_keys(hints, _JSON_HINTS)) is not hints:
        value = {**value, "display": named}
    return value


def _rename_keys(fields: Mapping[str, Any], names: Mapping[str, str]) -> Mapping[str, Any]:
    return fields if fields.keys().isdisjoint(names) else {names.get(key, key): item for key, item in fields.items()}


def _semantic_result(value: dict[str, Any]) -> ToolResult:
    return ToolResult(value=value, text=text_of(value), structured=structured_form(value))


def _json_result(value: Any) -> ToolResult:
    try:
        data = as_json(value)
    except NotJson:
        words, _ = safe_json(value)
        text = words if isinstance(words, str) else compact_json(words)
        return ToolResult({"kind": "text", "content": text}, text)
    semantic = semantic_value(_with_json_names(data))  # a model or dataclass may carry a kind too
    return _semantic_result(semantic or {"kind": "json", "data": data})


def _number(value: Any) -> int | float | None:
    return value if type(value) in (int, float) and value - value == 0 else None


def text_is_complete(result: ToolResult) -> bool:
    """Whether the text holds everything that the value holds, so that a search in the text is enough."""
    if result.content or result.structured is not None or len(result.value) != 2:
        return False
    value = result.value
    return value.get("content") is result.text if value["kind"] == "text" else type(value.get("data", "")) in _SCALARS


_WRAPPED: Final = "result"
"""Servers put a value that is no object under this key."""
_MOST_STRUCTURED: Final = 16 * 1024


def text_for_model(result: ToolResult) -> str:
    """Returns the text for a model. For JSON results the structured data is added if the text does not hold it."""
    said = result.structured
    if said is None or result.value.get("kind") != "json" or _text_says(result, said):
        return result.text
    written = shorten_middle(compact_json(said), _MOST_STRUCTURED, " … ")
    return f"{result.text}\n{written}" if result.text else written


def _text_says(result: ToolResult, structured: Any) -> bool:
    wrapped = isinstance(structured, dict) and structured.keys() == {_WRAPPED}
    value = structured[_WRAPPED] if wrapped else structured
    blocks = [block["text"] for block in result.content if isinstance(block, dict) and type(block.get("text")) is str]
    texts = blocks or ([result.text] if result.text else [])
    if len(texts) == 1 and _same(texts[0], value):
        return True
    return isinstance(value, list) and len(texts) == len(value) and all(map(_same, texts, value))


def _same(text: str, value: Any) -> bool:
    if text == value or text.strip() == compact_json(value):
        return True
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


_EXACT: Final[dict[type, str]] = {int: "integer", str: "string", bool: "boolean", float: "number"}
"""Types that need no pydantic for a value that is exactly of them, and what a schema calls each."""
_EXACT_TYPES: Final[dict[Any, type]] = {kind: kind for kind in _EXACT}
_EXACT_NAMES: Final[dict[str, type]] = {kind.__name__: kind for kind in _EXACT}
_UNCHECKED_TYPES: Final = (None, type(None), Any, ToolResult)
_UNCHECKED_NAMES: Final = frozenset({"None", "Any", "typing.Any", "ToolResult"})


class OutputSpec(Protocol):
    def schema(self) -> dict[str, Any] | None: ...
    def check(self, tool_name: str, value: Any) -> Any: ...


def output_from_annotation(function: Callable[..., Any]) -> OutputSpec | None:
    """Returns the output check for a function's return annotation; None if there is nothing to check."""
    annotations = getattr(function, "__annotations__", None) or {}
    if "return" not in annotations:
        return None
    promised = annotations["return"]
    if isinstance(promised, str):
        if promised in _UNCHECKED_NAMES:
            return None
        shadowed = promised in getattr(function, "__globals__", {})
        return TypedOutput(lambda: _return_type(function), exact=None if shadowed else _EXACT_NAMES.get(promised))
    if promised in _UNCHECKED_TYPES:
        return None
    return TypedOutput(lambda: _return_type(function), exact=_EXACT_TYPES.get(promised))


def output_from_schema(schema: Any) -> OutputSpec:
    """Builds the output check from a JSON Schema or a pydantic model. Raises ToolDefinitionError for an unusable
    schema.
    """
    return SchemaOutput(dict(schema)) if isinstance(schema, Mapping) else TypedOutput(lambda: schema)


class TypedOutput:
    """A Python type, checked and coerced by pydantic. A type pydantic does not know promises nothing."""

    def __init__(self, promised: Callable[[], Any], *, exact: type | None = None) -> None:
        self._promised = promised
        self._exact = exact

    @cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            promised = self._promised()
            return None if promised in _UNCHECKED_TYPES else TypeAdapter(promised)
        except (PydanticUserError, NameError, TypeError, AttributeError):
            return None

    def schema(self) -> dict[str, Any] | None:
        if self._exact is not None:
            return {"type": _EXACT[self._exact]}
        if self._adapter is None:
            return None
        from pydantic.errors import PydanticUserError

        try:
            return self._adapter.json_schema(mode="serialization")
        except PydanticUserError:
            return None

    def check(self, tool_name: str, value: Any) -> Any:
        if type(value) is self._exact or isinstance(value, ToolResult) or self._adapter is None:
            return value
        from pydantic import ValidationError

        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise _output_invalid(
                tool_name, instance_path(value, first["loc"], first["type"] == "missing"), first["msg"]
            ) from None

    def dump(self, value: Any) -> Any:
        """A checked value as the JSON that `schema` describes; raises NotJson. For whoever hands it on as text."""
        if type(value) is self._exact or isinstance(value, ToolResult) or self._adapter is None:
            return value
        from pydantic_core import PydanticSerializationError

        try:
            return self._adapter.dump_python(value, mode="json", by_alias=True)
        except (PydanticSerializationError, ValueError, TypeError):
            raise NotJson("not a JSON value") from None


class SchemaOutput:
    """A JSON Schema. Checked, never coerced. Of a ToolResult the structured content or the JSON data is checked."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._check = SchemaCheck(schema)

    def schema(self) -> dict[str, Any]:
        return self._schema

    def check(self, tool_name: str, value: Any) -> Any:
        subject = value = convert_call_result(value)
        if isinstance(value, ToolResult):
            if value.is_error:
                return value
            subject = value.structured if value.structured is not None else value.value.get("data", value.value)
        try:
            subject = as_json(subject)
        except NotJson as error:
            raise _output_invalid(tool_name, (), str(error)) from None
        if problems := self._check.problems(subject, limit=1):
            raise _output_invalid(tool_name, *problems[0])
        return value


def _output_invalid(tool_name: str, path: Sequence[str | int], problem: str) -> ToolFailed:
    text = problem[:1].lower() + problem[1:]
    return ToolFailed(
        f"tool {tool_name!r} returned an invalid value at {json_path(path)}: {text}", code="OUTPUT_INVALID"
    )


def _return_type(function: Callable[..., Any]) -> Any:
    promised = typing.get_type_hints(function, include_extras=True)["return"]
    if typing.get_origin(promised) in (Awaitable, Coroutine):
        return typing.get_args(promised)[-1]
    return promised
