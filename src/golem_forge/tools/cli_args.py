"""Command-line options bound to a tool's parameters by the tool's schema, not by the look of the token.

Takes the schema and tokens (`--key value`, `--key=value`, `--flag`, `--flag true`, `--no-flag`, `-k value`, `-abc`,
`--`), gives the arguments. Raises BindingError, which points at the token when the tokens know their positions.
`option_value` turns the text of one option into the value its schema asks for and raises OptionMismatch with what was
expected: `007` for a string stays `007`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.core.json import strict_json, unique_members
from golem_forge.core.regex import regex
from golem_forge.core.text import clip, closest_match, escape_control_chars
from golem_forge.tools.schema import ResolvedSchema, alternatives, resolve_schema
from golem_forge.tools.validation import SchemaCheck, ToolDefinitionError, short_value

_NEGATIVE: Final = regex(r"-(?:[0-9]|\.[0-9])")
INTERACTIVE_FLAG: Final = "-i"
_Converter = Callable[[str, Any, dict[str, Any]], Any]


class OptionToken(NamedTuple):
    text: str
    position: int | None = None
    """The 0-based character in the line; None for words of a shell, which have none."""


class BindingError(ValueError):
    """Raised for wrong command-line options, with a text for the person who typed them."""

    stated_name = "BindingError"

    def __init__(self, message: str, unquoted: str = "") -> None:
        super().__init__(message)
        self.unquoted = unquoted or message
        """The same without any typed value, which may be a secret."""


class BoundOptions(NamedTuple):
    args: dict[str, Any]
    missing: tuple[str, ...]
    interactive: bool
    """`-i` was among the options: the person wants the form."""


def words_as_tokens(words: Iterable[str]) -> list[OptionToken]:
    return [OptionToken(word) for word in words]


def bind_options(schema: dict[str, Any], tokens: Iterable[OptionToken]) -> dict[str, Any]:
    bound = bind_partial(schema, tokens)
    if bound.missing:
        raise BindingError(f"Missing required: {', '.join(bound.missing)}")
    return bound.args


def bind_partial(schema: dict[str, Any], tokens: Iterable[OptionToken]) -> BoundOptions:
    """Binds options like `bind_options`, for callers that can ask for missing ones."""
    return _Binder(schema).bind(list(tokens))


class _Binder:
    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        top = resolve_schema(schema, schema).schema
        properties = top.get("properties")
        self._properties: dict[str, Any] = properties if isinstance(properties, dict) else {}
        required = top.get("required")
        self._required: list[Any] = required if isinstance(required, list) else []
        self._by_spelling: dict[str, str] = {}
        for name in self._properties:
            self._by_spelling.setdefault(_spelling(name), name)
        self._given: dict[str, list[tuple[OptionToken, str, str]]] = {}
        """parameter → what was typed for it: (token, option as typed, value)."""
        self._switched: dict[str, bool] = {}

    def bind(self, tokens: list[OptionToken]) -> BoundOptions:
        interactive = False
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.text == "--":
                for rest in tokens[position + 1 :]:
                    raise _unexpected(rest)
                break
            if token.text == INTERACTIVE_FLAG:
                interactive = True
                position += 1
            elif token.text.startswith("--"):
                position = self._long(tokens, position)
            elif token.text.startswith("-") and len(token.text) > 1 and not _NEGATIVE.match(token.text):
                position = self._short(tokens, position)
            else:
                raise _unexpected(token)
        args = {name: self._value(name) for name in self._properties if name in self._given or name in self._switched}
        missing = tuple(
            name
            for name in self._required
            if name not in args and "default" not in resolve_schema(self._properties.get(name), self._root).schema
        )
        return BoundOptions(args, missing, interactive)

    def _long(self, tokens: list[OptionToken], position: int) -> int:
        token = tokens[position]
        option, equals, text = token.text.partition("=")
        name = self._find(option[2:])
        if name is None and option.startswith("--no-") and self._is_switch(negated := self._find(option[5:])):
            if equals:
                raise BindingError(f"{_token_text(option, token)}: takes no value")
            self._switch(negated or "", token, option, False)
            return position + 1
        if name is None:
            raise self._unknown(option, token)
        return self._take(name, option, text if equals else None, tokens, position)

    def _short(self, tokens: list[OptionToken], position: int) -> int:
        token = tokens[position]
        letters, equals, text = token.text[1:].partition("=")
        for letter in letters[:-1]:
            name = self._initial(letter, token)
            if not self._is_switch(name):
                needs = f"{_token_text(f'-{letter}', token)}: needs a value"
                raise BindingError(f"{needs} and cannot stand inside {token.text!r}", needs)
            self._switch(name, token, f"-{letter}", True)
        name = self._initial(letters[-1:], token)
        return self._take(name, f"-{letters[-1:]}", text if equals else None, tokens, position)

    def _take(self, name: str, option: str, text: str | None, tokens: Sequence[OptionToken], position: int) -> int:
        token = tokens[position]
        if text is None and self._is_switch(name):
            # Only a word for a truth value is the switch's own; anything else is what it would be without the switch.
            following = tokens[position + 1].text if position + 1 < len(tokens) else ""
            self._switch(name, token, option, BOOLEANS.get(following, True))
            return position + (2 if following in BOOLEANS else 1)
        step = 1
        if text is None:
            if position + 1 >= len(tokens):
                raise BindingError(f"Missing value for {_token_text(option, token)}")
            text, step = tokens[position + 1].text, 2
        given = self._given.setdefault(name, [])
        if name in self._switched or (given and not is_array(self._properties[name], self._root)):
            raise BindingError(f"{_token_text(option, token)}: given twice")
        given.append((token, option, text))
        return position + step

    def _switch(self, name: str, token: OptionToken, option: str, value: bool) -> None:
        if name in self._switched or name in self._given:
            raise BindingError(f"{_token_text(option, token)}: given twice")
        self._switched[name] = value

    def _value(self, name: str) -> Any:
        if name in self._switched:
            return self._switched[name]
        schema, given = self._properties[name], self._given[name]
        if is_array(schema, self._root):
            if len(given) > 1:
                return [self._converted(each, item_value, schema) for each in given]
            return self._converted(given[0], array_value, schema)
        return self._converted(given[0], option_value, schema)

    def _converted(self, given: tuple[OptionToken, str, str], convert: _Converter, schema: Any) -> Any:
        token, option, text = given
        try:
            return convert(text, schema, self._root)
        except OptionMismatch as error:
            where = _token_text(option, token)
            raise BindingError(f"{where}: {error}", f"{where}: {str(error).partition(', got ')[0]}") from None

    def _find(self, typed: str) -> str | None:
        return typed if typed in self._properties else self._by_spelling.get(_spelling(typed))

    def _initial(self, letter: str, token: OptionToken) -> str:
        """The only parameter that starts with the letter; one that is just the letter wins."""
        if letter in self._properties:
            return letter
        names = [name for name in self._properties if letter and name.startswith(letter)]
        if len(names) > 1:
            raise BindingError(f"'-{letter}' is ambiguous: {', '.join(f'--{name}' for name in names)}")
        if not names:
            raise self._unknown(f"-{letter}", token)
        return names[0]

    def _is_switch(self, name: str | None) -> bool:
        return name is not None and is_boolean(self._properties[name], self._root)

    def _unknown(self, option: str, token: OptionToken) -> BindingError:
        hint = ""
        if option.startswith("--"):
            spellings = {name: f"--{name}" for name in self._properties}
            spellings |= {f"no-{name}": f"--no-{name}" for name in self._properties if self._is_switch(name)}
            close = closest_match(option[2:], spellings)
            hint = f" (did you mean '{spellings[close]}'?)" if close else ""
        return BindingError(f"Unknown option {_token_text(option, token)}{hint}")


def _spelling(name: str) -> str:
    return name.replace("-", "_")


def _token_text(text: str, token: OptionToken) -> str:
    return f"'{escape_control_chars(text[:100])}'{_place(token)}"


def _place(token: OptionToken) -> str:
    return "" if token.position is None else f" at position {token.position}"


def _unexpected(token: OptionToken) -> BindingError:
    return BindingError(f"Unexpected argument {_token_text(token.text, token)}", f"Unexpected argument{_place(token)}")


_INTEGER: Final = regex(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = regex(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_MAX_SHOWN: Final = 60
BOOLEANS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""The words for a switch that is given a value."""
_ABSENT: Final = object()


class OptionMismatch(ValueError):
    """The text does not fit; the message completes `'--option' at position 6: …`."""


def is_boolean(schema: Any, root: dict[str, Any]) -> bool:
    """Whether an option is a switch, which needs no value."""
    return _kind(resolve_schema(schema, root)) == "boolean"


def is_array(schema: Any, root: dict[str, Any]) -> bool:
    return _kind(resolve_schema(schema, root)) == "array"


def option_value(text: str, schema: Any, root: dict[str, Any]) -> Any:
    reading = resolve_schema(schema, root)
    if "const" in reading.schema or isinstance(reading.schema.get("enum"), list):
        return _choice(text, reading)
    if reading.nullable and text == "null":
        return None
    kind = _kind(reading)
    if kind == "string":
        return text
    if kind == "integer":
        return _number(text, _INTEGER, "integer")
    if kind == "number":
        return _number(text, _NUMBER, "number")
    if kind == "boolean":
        if text not in BOOLEANS:
            raise _mismatch("boolean", text)
        return BOOLEANS[text]
    if kind in ("array", "object"):
        found = _parse_json(text)
        if not isinstance(found, list if kind == "array" else dict):
            raise _mismatch(kind, text)
        return found
    if kind == "null":
        if text != "null":
            raise _mismatch("null", text)
        return None
    found = _parse_json(text)
    return found if found is not _ABSENT and _is_allowed(schema, root, found) else text


def array_value(text: str, schema: Any, root: dict[str, Any]) -> Any:
    """An array option that was given once: the whole array as JSON, or its only item."""
    whole = _parse_json(text)
    reading = resolve_schema(schema, root)
    if isinstance(whole, list) or (whole is None and reading.nullable):
        return whole
    return [option_value(text, reading.schema.get("items"), root)]


def item_value(text: str, schema: Any, root: dict[str, Any]) -> Any:
    return option_value(text, resolve_schema(schema, root).schema.get("items"), root)


def _kind(reading: ResolvedSchema) -> str | None:
    """The one type a value must have; None where several would do."""
    schema = reading.schema
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind
    if kind is None and not alternatives(schema) and isinstance(schema.get("properties"), dict):
        return "object"
    return None


def _choice(text: str, reading: ResolvedSchema) -> Any:
    options = [reading.schema["const"]] if "const" in reading.schema else reading.schema["enum"]
    for option in options:
        if text == (option if isinstance(option, str) else json.dumps(option)):
            return option
    if reading.nullable and text == "null":
        return None
    known = ", ".join(escape_control_chars(short_value(option)) for option in options[:50])
    raise OptionMismatch(f"must be one of {known}")


def _number(text: str, pattern: re.Pattern[str], name: str) -> int | float:
    if not pattern.fullmatch(text):
        raise _mismatch(name, text)
    if _INTEGER.fullmatch(text):
        return int(text)
    value = float(text)
    if value - value != 0.0:
        raise _mismatch(name, text)
    return value


def _parse_json(text: str) -> Any:
    """The JSON value a text is, or _ABSENT; NaN and Infinity are not JSON. Raises OptionMismatch for a key that stands
    twice in one object."""
    try:
        found = strict_json(text)
    except (ValueError, RecursionError):
        return _ABSENT
    try:
        json.loads(text, object_pairs_hook=unique_members)
    except ValueError as error:
        raise OptionMismatch(str(error)) from None
    return found


def _is_allowed(schema: Any, root: dict[str, Any], value: Any) -> bool:
    if not isinstance(schema, dict) or not schema:
        return True
    definitions: dict[str, Any] = {key: root[key] for key in ("$defs", "definitions", "$schema") if key in root}
    try:
        return not SchemaCheck({**definitions, **schema}).errors(value, limit=1)
    except ToolDefinitionError:  # it refers to a place outside the definitions; the whole schema is checked later
        return True


def _mismatch(name: str, text: str) -> OptionMismatch:
    return OptionMismatch(f'expected {name}, got "{escape_control_chars(clip(text, _MAX_SHOWN))}"')
