"""Input specs: what a tool accepts. Three ways to declare it, one interface: a JSON Schema out, checked arguments in.

- `signature_input`: a function's parameters (built on first use; defining a tool costs next to nothing); plain scalars
  as a `PlainInput`, without pydantic.
- `ModelInput`: a pydantic model.
- `SchemaInput`: a JSON Schema alone (MCP and user tools), checked by jsonschema-rs, never coerced.

`describe` reads a docstring: the summary that describes a tool, and the text of each parameter. It understands the
three common layouts (Google `Args:`, NumPy `Parameters` underlined, Sphinx `:param x:`).
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
import warnings
from collections.abc import Callable, Mapping
from enum import Enum, auto
from inspect import cleandoc
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from golem_forge.core.errors import error_name
from golem_forge.core.json import copy_json, digest
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.tools.schema import field_path, instance_path, resolve_schema, with_defaults
from golem_forge.tools.validation import InputInvalid, SchemaCheck, ToolDefinitionError

if TYPE_CHECKING:
    from pydantic import BaseModel

_SCALARS = frozenset({int, str, bool, float, type(None)})
_EXACT = {int: "integer", str: "string", bool: "boolean"}
"""Types whose values are JSON as they are, with their names in a schema."""
_MAX_PROBLEMS = 5


@dataclass(slots=True)
class Arguments:
    values: dict[str, Any]
    """The values for the function: coerced Python values with defaults."""
    plain: dict[str, Any]
    """The same values as JSON, used to judge, show, hash and record the call."""
    given: dict[str, Any] | None = None
    """The arguments as they arrived, if `plain` may not hold all of them."""


class InputSpec(Protocol):
    def schema(self) -> dict[str, Any]: ...
    def names(self) -> frozenset[str] | None:
        """Every argument there is, or None if others are welcome too."""
        ...

    def check(self, args: dict[str, Any]) -> Arguments:
        """Raises InputInvalid; its message starts with the field."""
        ...


class ModelInput:
    def __init__(self, model: type[BaseModel], *, renamed: Mapping[str, str] | None = None) -> None:
        from pydantic import ValidationError

        self._model = model
        self._renamed = renamed or {}
        self._validate = model.__pydantic_validator__.validate_python
        self._refusal = ValidationError
        self._validate_plain = self._plain_validator()

    def _plain_validator(self) -> Callable[[Any], Any] | None:
        """Returns a validator of the fields alone, without making an instance, for a model of plain scalars.

        Its result is plain JSON. Returns None for models with validators of their own, aliases or extras.
        """
        from pydantic_core import SchemaValidator

        schema: Any = self._model.__pydantic_core_schema__
        fields = self._model.model_fields.values()
        if self._renamed or schema["type"] != "model" or schema["schema"]["type"] != "model-fields":
            return None
        if schema.get("post_init") or self._model.model_config.get("extra") == "allow":
            return None
        if any(field.annotation not in _EXACT or field.alias for field in fields):
            return None
        return SchemaValidator(schema["schema"], schema.get("config")).validate_python

    def schema(self) -> dict[str, Any]:
        schema = self._model.model_json_schema(by_alias=True)
        if reference := schema.pop("$ref", None):  # a model that refers to itself: its own fields belong at the root
            schema = {**schema["$defs"][reference.rpartition("/")[2]], "$defs": schema["$defs"]}
        schema.pop("title", None)
        schema.setdefault("properties", {})
        for name, field in schema["properties"].items():
            # pydantic repeats the name as a title; a model pays for every token of it
            if isinstance(field, dict) and str(field.get("title", "")).lower() == name.replace("_", " ").lower():
                field.pop("title")
        if self.names() is not None:
            schema["additionalProperties"] = False
        return schema

    def names(self) -> frozenset[str] | None:
        if self._model.model_config.get("extra") == "allow":
            return None
        fields = self._model.model_fields.items()
        names = {field.alias or name for name, field in fields}
        if self._model.model_config.get("populate_by_name"):
            names |= {name for name, _ in fields}
        return frozenset(names)

    def check(self, args: dict[str, Any]) -> Arguments:
        try:
            if self._validate_plain is not None:
                plain: dict[str, Any] = self._validate_plain(args)[0]
                return Arguments(plain, plain)
            model = self._validate(args)
        except self._refusal as error:
            raise _invalid(error, args) from None
        values: dict[str, Any] = model.__dict__
        if extra := model.__pydantic_extra__:
            values = {**values, **extra}
        if self._renamed:
            values = {self._renamed.get(name, name): value for name, value in values.items()}
        for name, value in values.items():
            kind = type(value)
            if kind is float and not isfinite(value):  # "nan" was text until it was coerced
                raise InputInvalid(f"{name}: {value} is not JSON", fields=((name, "must be a finite number"),))
            if kind not in _SCALARS:
                return Arguments(values, self._as_json(model, args), copy_json(args))
        return Arguments(values, values)

    def _as_json(self, model: BaseModel, given: dict[str, Any]) -> dict[str, Any]:
        """The model as JSON. Threat: a field that hides itself there would be approved unseen.

        Where reading the JSON back does not give the same value (a secret type, an excluded field, a serializer of its
        own), what was given stands in its place; a secret by its hash.
        """
        plain = model.model_dump(mode="json")
        _refuse_infinite(plain, "")
        try:
            again: Any = self._validate(plain)
        except self._refusal:
            again = None
        for name, field in self._model.model_fields.items():
            key, value = field.alias or name, getattr(model, name)
            if key in given and (again is None or name not in plain or getattr(again, name) != value):
                hidden = type(value).__name__.startswith("Secret")
                plain[name] = f"[secret sha256:{digest(given[key])}]" if hidden else copy_json(given[key])
        return {self._renamed.get(name, name): value for name, value in plain.items()}


def _refuse_infinite(value: Any, path: str) -> None:
    """NaN and infinities that were text until they were coerced."""
    if isinstance(value, float) and not isfinite(value):
        raise InputInvalid(f"{path}: {value} is not JSON", fields=((path, "must be a finite number"),))
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_infinite(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_infinite(item, f"{path}[{index}]")


def _invalid(error: Any, args: dict[str, Any]) -> InputInvalid:
    problems = tuple(
        (
            field_path(instance_path(args, item["loc"], item["type"] == "missing")),
            item["msg"][:1].lower() + item["msg"][1:],
        )
        for item in error.errors(include_url=False, include_context=False, include_input=False)[:_MAX_PROBLEMS]
    )
    return InputInvalid("; ".join(f"{path}: {text}" if path else text for path, text in problems), fields=problems)


class Defaults(Enum):
    """Who fills in the defaults of a JSON Schema."""

    FILLED = auto()
    """We do: leaving an argument out and giving its default are the same call, judged and run."""
    BY_RUNNER = auto()
    """The tool that runs the call fills them in: the call is judged with defaults and run with the
    arguments as given.
    """
    LEFT_OUT = auto()
    """Forge fills none in (a server may): the call is judged and run with the arguments as given."""


class SchemaInput:
    def __init__(
        self, schema: dict[str, Any], *, defaults: Defaults = Defaults.LEFT_OUT, known_valid: bool = False
    ) -> None:
        """`known_valid`: the schema is one of Forge's own, and the validator is built with the first call. Raises
        ToolDefinitionError for every other one that is not a schema."""
        self._schema = schema
        self.defaults = defaults if "'default'" in repr(schema) else Defaults.LEFT_OUT
        if not known_valid:
            self._check  # noqa: B018 - building it is the test

    @functools.cached_property
    def _check(self) -> SchemaCheck:
        return SchemaCheck(self._schema)

    def schema(self) -> dict[str, Any]:
        return self._schema

    def names(self) -> frozenset[str] | None:
        if self._schema.get("additionalProperties") is not False or "patternProperties" in self._schema:
            return None  # the schema itself says whether others are welcome
        return frozenset(self._schema.get("properties", ()))

    @functools.cached_property
    def _required_defaults(self) -> dict[str, Any]:
        """Returns the defaults of required arguments; a caller that leaves such an argument out means its default."""
        properties, required = self._schema.get("properties"), self._schema.get("required")
        if not isinstance(properties, dict) or not isinstance(required, list) or "'default'" not in repr(properties):
            return {}
        named = {name: resolve_schema(properties.get(name), self._schema).schema for name in required}
        return {name: said["default"] for name, said in named.items() if "default" in said}

    def check(self, args: dict[str, Any]) -> Arguments:
        if self._required_defaults:
            args = {**self._required_defaults, **args}
        if problems := self._check.errors(args, limit=_MAX_PROBLEMS):
            raise InputInvalid("; ".join(f"{p}: {t}" if p else t for p, t in problems), fields=problems)
        # the caller may change its own object, and a tool what it is given, but not what was judged and recorded
        plain: dict[str, Any] = copy_json(args)
        if self.defaults is not Defaults.LEFT_OUT:
            filled = with_defaults(args, self._schema, self._schema)
            if filled != plain and not self._check.errors(filled, limit=1):  # a default need not fit its own schema
                plain = copy_json(filled)
        return Arguments(copy_json(plain if self.defaults is Defaults.FILLED else args), plain)


class DeclaredParameter(NamedTuple):
    annotation: Any
    default: Any = ...
    description: str | None = None

    def schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of a parameter with a plain type."""
        said = {**(_plain_schema(self.annotation) or {})}
        if self.default is not ...:
            said["default"] = self.default
        if self.description is not None:
            said["description"] = self.description
        return dict(sorted(said.items()))


def _plain_schema(annotation: Any) -> dict[str, Any] | None:
    """The JSON Schema of a scalar, of some words, or of one of these or None; no schema for any other type."""
    if annotation is str or annotation is int or annotation is bool:
        return {"type": _EXACT[annotation]}
    if annotation is float:
        return {"type": "number"}
    if (words := _words(annotation)) and all(type(word) is str and word.isascii() for word in words):
        return {"enum": list(words), "type": "string"} if len(words) > 1 else {"const": words[0], "type": "string"}
    inner = _optional(annotation)
    found = None if inner is None else _plain_schema(inner)
    return found and {"anyOf": [found, {"type": "null"}]}


def _is_exactly(value: Any, annotation: Any) -> bool:
    kind = type(value)
    if kind is annotation:
        return kind is not float or isfinite(value)
    if kind is str and (words := _words(annotation)):
        return value in words
    inner = _optional(annotation)
    return inner is not None and (value is None or _is_exactly(value, inner))


def _words(annotation: Any) -> tuple[Any, ...]:
    """The values of a `Literal`; none for any other annotation."""
    return typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ()


def _optional(annotation: Any) -> Any:
    """`T` of `T | None`; None for any other annotation."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return None
    inner, *others = typing.get_args(annotation)
    return inner if others == [type(None)] else None


class PlainInput:
    """Parameters of plain types (`_plain_schema`): the schema, and arguments that are exactly as declared, need no
    pydantic. All other arguments are left to the model, which coerces or refuses them. `define` of `make bench` has its
    figure."""

    def __init__(self, parameters: Mapping[str, DeclaredParameter], model: Callable[[], ModelInput]) -> None:
        self._parameters = parameters
        self._make_model = model

    @functools.cached_property
    def _model(self) -> ModelInput:
        return self._make_model()

    def schema(self) -> dict[str, Any]:
        properties = {name: each.schema() for name, each in self._parameters.items()}
        required = [name for name, each in self._parameters.items() if each.default is ...]
        schema = {"properties": properties, "required": required, "type": "object", "additionalProperties": False}
        if not required:
            del schema["required"]
        return schema

    def names(self) -> frozenset[str]:
        return frozenset(self._parameters)

    def check(self, args: dict[str, Any]) -> Arguments:
        plain: dict[str, Any] = {}
        given = 0
        for name, parameter in self._parameters.items():
            if name in args:
                given += 1
                plain[name] = value = args[name]
                if not _is_exactly(value, parameter.annotation):
                    return self._model.check(args)
            elif parameter.default is ...:
                return self._model.check(args)
            else:
                plain[name] = parameter.default
        return Arguments(plain, plain) if given == len(args) else self._model.check(args)


def signature_input(function: Callable[..., Any], context_name: str | None) -> InputSpec:
    """Builds the input spec from a function's parameters. `ctx` is injected and never part of the schema."""
    hints = resolved_hints(function)
    _, texts = describe(function.__doc__)
    declared: dict[str, DeclaredParameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == context_name:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ToolDefinitionError(
                f"parameter {parameter} of {_name(function)!r} cannot be filled by name; "
                "give every parameter a name of its own"
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        declared[name] = DeclaredParameter(hints.get(name, Any), default, texts.get(name))
    if all(_is_plain(name, each) for name, each in declared.items()):
        return PlainInput(declared, lambda: _signature_model(function, declared))
    return _signature_model(function, declared)


_MODEL_NAMES = frozenset(
    {
        *("construct", "copy", "dict", "from_orm", "json", "parse_file", "parse_obj", "parse_raw"),
        *("schema", "schema_json", "update_forward_refs", "validate"),
    }
)
"""Names that pydantic's BaseModel uses itself; a parameter of such a name is renamed in the model."""


def _is_plain(name: str, parameter: DeclaredParameter) -> bool:
    """Whether pydantic would say the same of it: a plain type, its default too, and a name that needs no title."""
    kind, default, text = parameter
    if _plain_schema(kind) is None or not name.isascii() or name[0] == "_" or name[-1] == "_":
        return False
    if text and (name in _MODEL_NAMES or name.startswith("model_")):
        return False
    return default is ... or (_is_exactly(default, kind) and (type(default) is not str or default.isascii()))


def _signature_model(function: Callable[..., Any], declared: Mapping[str, DeclaredParameter]) -> ModelInput:
    from pydantic import BaseModel, Field, PydanticUserError, create_model
    from pydantic.fields import FieldInfo

    fields: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    for name, (annotation, default, text) in declared.items():
        info = (
            FieldInfo.from_annotation(annotation)
            if default is ...
            else FieldInfo.from_annotated_attribute(annotation, default)
        )
        if info.description is None:
            info.description = _annotated_text(annotation) or text
        inner = name
        if name.startswith(("_", "model_")) or hasattr(BaseModel, name):
            inner = f"argument_{name.lstrip('_')}"
            renamed[inner] = name
            info = FieldInfo.merge_field_infos(info, Field(alias=name))
        fields[inner] = (info.annotation, info)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = create_model(_name(function), **fields)
            return ModelInput(model, renamed=renamed)
        except (PydanticUserError, TypeError) as error:
            raise ToolDefinitionError(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _annotated(function: Callable[..., Any]) -> Any:
    """Returns the object that has the annotations: the function, the one inside a partial, or an object's __call__."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if hasattr(function, "__annotations__") else type(function).__call__


def resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(_annotated(function), include_extras=True)
    except Exception as error:
        raise ToolDefinitionError(
            f"annotations of {_name(function)!r} cannot be read ({error_name(error)}: {error}); "
            "import the names they use at module level"
        ) from error


def context_parameter(function: Callable[..., Any], context_type: type) -> str | None:
    """The parameter that takes the ToolContext: by annotation, or by the name `ctx` when it has none."""
    annotations = getattr(_annotated(function), "__annotations__", {})
    code = getattr(function, "__code__", None)
    if code is not None and "ctx" not in code.co_varnames:
        wanted = context_type.__name__  # most functions take none: that is seen without reading the signature
        if not any(wanted in str(hint) for hint in annotations.values()):
            return None
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation
        text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
        if context_type.__name__ in text.replace("|", " ").replace(".", " ").split() or hint is context_type:
            return name
        if name == "ctx" and hint is parameter.empty:
            return name
    return None


def _annotated_text(annotation: Any) -> str | None:
    if isinstance(annotation, types.GenericAlias) or typing.get_origin(annotation) is not typing.Annotated:
        return None
    return next((item for item in annotation.__metadata__ if isinstance(item, str)), None)


_SPHINX = regex(r"^:param(?:\s+[^:\s]+)?\s+(\w+):\s*(.*)$")
_GOOGLE_ENTRY = regex(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_NUMPY_ENTRY = regex(r"^(\w+)\s*(?::.*)?$")
_PARAMETER_SECTIONS = frozenset({"args", "arguments", "parameters", "params"})
_SECTIONS = _PARAMETER_SECTIONS | {"returns", "return", "yields", "raises", "examples", "example", "notes", "note"}


def describe(docstring: str | None) -> tuple[str, dict[str, str]]:
    """(description without its sections, parameter name → text)."""
    if not docstring:
        return "", {}
    lines = cleandoc(docstring).splitlines()
    described: list[str] = []
    parameters: dict[str, str] = {}
    position = 0
    while position < len(lines):
        line = lines[position]
        section = line.strip().rstrip(":").lower()
        underlined = position + 1 < len(lines) and set(lines[position + 1].strip()) == {"-"}
        if sphinx := _SPHINX.match(line.strip()):
            words = [sphinx[2]]
            position += 1
            while position < len(lines) and lines[position][:1].isspace() and lines[position].strip():
                words.append(lines[position].strip())
                position += 1
            parameters[sphinx[1]] = " ".join(words).strip()
        elif line.strip().startswith((":return", ":rtype", ":raises", ":type")):
            position += 1
        elif section in _SECTIONS and (underlined or line.rstrip().endswith(":")) and not line[:1].isspace():
            body_start = position + (2 if underlined else 1)
            position = _section_end(lines, body_start, indented=not underlined)
            if section in _PARAMETER_SECTIONS:
                pattern = _NUMPY_ENTRY if underlined else _GOOGLE_ENTRY
                parameters.update(_entries(lines[body_start:position], pattern, with_text=not underlined))
        else:
            described.append(line)
            position += 1
    return "\n".join(described).strip(), parameters


def _section_end(lines: list[str], start: int, *, indented: bool) -> int:
    position = start
    while position < len(lines):
        line = lines[position]
        if indented and line.strip() and not line[:1].isspace():
            break
        if not indented and position + 1 < len(lines) and set(lines[position + 1].strip()) == {"-"}:
            break
        position += 1
    return position


def _entries(lines: list[str], pattern: re.Pattern[str], *, with_text: bool) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    entry_indent: int | None = None
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        entry = pattern.match(line)
        if entry and (entry_indent is None or indent <= entry_indent):
            entry_indent = indent
            current = found.setdefault(entry[1], [])
            if with_text:
                current.append(entry[2].strip())
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(words).strip() for name, words in found.items()}
