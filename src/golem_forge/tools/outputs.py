"""What a tool gives back, held against what it promised: a return annotation, a pydantic model or a JSON Schema.

`check` returns the value to use (coerced where pydantic coerces) or raises ToolFailed naming the place:
`tool 'x' returned an invalid value at $.items[0]: …`. Nothing is built before it is needed.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from golem_forge.core.errors import ToolFailed
from golem_forge.core.mcp_results import call_result
from golem_forge.core.result import ToolResult
from golem_forge.tools.json_values import NotJson, as_json
from golem_forge.tools.jsonschema import SchemaCheck, json_path
from golem_forge.tools.schema_paths import real_path

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_EXACT: Final[dict[Any, type]] = {kind: kind for kind in (int, str, bool, float)}
_EXACT_NAMES: Final[dict[str, type]] = {kind.__name__: kind for kind in (int, str, bool, float)}
_NOTHING: Final = (None, type(None), Any, ToolResult)
_NOTHING_NAMES: Final = frozenset({"None", "Any", "typing.Any", "ToolResult"})


class OutputSpec(Protocol):
    def schema(self) -> dict[str, Any] | None: ...
    def check(self, tool_name: str, value: Any) -> Any: ...


def output_from_annotation(function: Callable[..., Any]) -> OutputSpec | None:
    """None when the annotation promises nothing that could be checked."""
    annotations = getattr(function, "__annotations__", None) or {}
    if "return" not in annotations:
        return None
    promised = annotations["return"]
    if isinstance(promised, str):
        if promised in _NOTHING_NAMES:
            return None
        shadowed = promised in getattr(function, "__globals__", {})
        return TypedOutput(lambda: _resolved(function), exact=None if shadowed else _EXACT_NAMES.get(promised))
    if promised in _NOTHING:
        return None
    return TypedOutput(lambda: _resolved(function), exact=_EXACT.get(promised))


def output_from_schema(schema: Any) -> OutputSpec:
    """From a JSON Schema or a pydantic model; raises ToolDefinitionError for a schema that cannot be used."""
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
            return None if promised in _NOTHING else TypeAdapter(promised)
        except (PydanticUserError, NameError, TypeError, AttributeError):
            return None

    def schema(self) -> dict[str, Any] | None:
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
            raise _failed(tool_name, real_path(value, first["loc"], first["type"] == "missing"), first["msg"]) from None

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
        subject = value = call_result(value)
        if isinstance(value, ToolResult):
            if value.is_error:
                return value
            subject = value.structured if value.structured is not None else value.value.get("data", value.value)
        try:
            subject = as_json(subject)
        except NotJson as error:
            raise _failed(tool_name, (), str(error)) from None
        if problems := self._check.problems(subject, limit=1):
            raise _failed(tool_name, *problems[0])
        return value


def _failed(tool_name: str, path: Sequence[str | int], problem: str) -> ToolFailed:
    text = problem[:1].lower() + problem[1:]
    return ToolFailed(
        f"tool {tool_name!r} returned an invalid value at {json_path(path)}: {text}", code="OUTPUT_INVALID"
    )


def _resolved(function: Callable[..., Any]) -> Any:
    promised = typing.get_type_hints(function, include_extras=True)["return"]
    if typing.get_origin(promised) in (Awaitable, Coroutine):
        return typing.get_args(promised)[-1]
    return promised
