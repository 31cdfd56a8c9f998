"""Options a person typed, bound to a tool's parameters by the tool's schema, not by the look of the token.

Takes the schema and tokens (`--key value`, `--key=value`, `--flag`, `--flag true`, `--no-flag`, `-k value`, `-abc`,
`--`), gives the arguments. Refuses with BindingError, which points at the token when the tokens know their positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.core.nearest import nearest
from golem_forge.core.visible import visible
from golem_forge.tools.option_values import BOOLEANS, Mismatch, array_of, is_array, is_boolean, item_of, value_of
from golem_forge.tools.schema_refs import read_schema

_NEGATIVE: Final = re.compile(r"-(?:[0-9]|\.[0-9])")
INTERACTIVE: Final = "-i"
_Convert = Callable[[str, Any, dict[str, Any]], Any]


class Token(NamedTuple):
    text: str
    position: int | None = None
    """The 0-based character in the line; None for words of a shell, which have none."""


class BindingError(ValueError):
    """What is wrong with the typed options, in words for the person who typed them."""

    stated_name = "BindingError"


class Bound(NamedTuple):
    args: dict[str, Any]
    missing: tuple[str, ...]
    """Required parameters that were not given."""
    interactive: bool
    """`-i` was among the options: the person wants the form."""


def words_as_tokens(words: Iterable[str]) -> list[Token]:
    """The words of a shell command line, whose positions mean nothing."""
    return [Token(word) for word in words]


def bind_options(schema: dict[str, Any], tokens: Iterable[Token]) -> dict[str, Any]:
    bound = bind(schema, tokens)
    if bound.missing:
        raise BindingError(f"Missing required: {', '.join(bound.missing)}")
    return bound.args


def bind(schema: dict[str, Any], tokens: Iterable[Token]) -> Bound:
    """The same for callers that can ask for what is missing."""
    return _Binder(schema).bind(list(tokens))


class _Binder:
    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        top = read_schema(schema, schema).schema
        properties = top.get("properties")
        self._properties: dict[str, Any] = properties if isinstance(properties, dict) else {}
        required = top.get("required")
        self._required: list[Any] = required if isinstance(required, list) else []
        self._by_spelling: dict[str, str] = {}
        for name in self._properties:
            self._by_spelling.setdefault(_spelling(name), name)
        self._given: dict[str, list[tuple[Token, str, str]]] = {}
        """parameter → what was typed for it: (token, option as typed, value)."""
        self._switched: dict[str, bool] = {}

    def bind(self, tokens: list[Token]) -> Bound:
        interactive = False
        position = 0
        while position < len(tokens):
            token = tokens[position]
            if token.text == "--":
                for rest in tokens[position + 1 :]:
                    raise _unexpected(rest)
                break
            if token.text == INTERACTIVE:
                interactive = True
                position += 1
            elif token.text.startswith("--"):
                position = self._long(tokens, position)
            elif token.text.startswith("-") and len(token.text) > 1 and not _NEGATIVE.match(token.text):
                position = self._short(tokens, position)
            else:
                raise _unexpected(token)
        args = {name: self._value(name) for name in self._properties if name in self._given or name in self._switched}
        return Bound(args, tuple(name for name in self._required if self._is_missing(name, args)), interactive)

    def _long(self, tokens: list[Token], position: int) -> int:
        token = tokens[position]
        option, equals, text = token.text.partition("=")
        name = self._find(option[2:])
        if name is None and option.startswith("--no-") and self._is_switch(negated := self._find(option[5:])):
            if equals:
                raise BindingError(f"{_at(option, token)}: takes no value")
            self._switch(negated or "", token, option, False)
            return position + 1
        if name is None:
            raise self._unknown(option, token)
        return self._take(name, option, text if equals else None, tokens, position)

    def _short(self, tokens: list[Token], position: int) -> int:
        token = tokens[position]
        letters, equals, text = token.text[1:].partition("=")
        for letter in letters[:-1]:
            name = self._initial(letter, token)
            if not self._is_switch(name):
                raise BindingError(f"{_at(f'-{letter}', token)}: needs a value and cannot stand inside {token.text!r}")
            self._switch(name, token, f"-{letter}", True)
        name = self._initial(letters[-1:], token)
        return self._take(name, f"-{letters[-1:]}", text if equals else None, tokens, position)

    def _take(self, name: str, option: str, text: str | None, tokens: Sequence[Token], position: int) -> int:
        token = tokens[position]
        if text is None and self._is_switch(name):
            # Only a word for a truth value is the switch's own; anything else is what it would be without the switch.
            following = tokens[position + 1].text if position + 1 < len(tokens) else ""
            self._switch(name, token, option, BOOLEANS.get(following, True))
            return position + (2 if following in BOOLEANS else 1)
        step = 1
        if text is None:
            if position + 1 >= len(tokens):
                raise BindingError(f"Missing value for {_at(option, token)}")
            text, step = tokens[position + 1].text, 2
        given = self._given.setdefault(name, [])
        if name in self._switched or (given and not is_array(self._properties[name], self._root)):
            raise BindingError(f"{_at(option, token)}: given twice")
        given.append((token, option, text))
        return position + step

    def _switch(self, name: str, token: Token, option: str, value: bool) -> None:
        if name in self._switched or name in self._given:
            raise BindingError(f"{_at(option, token)}: given twice")
        self._switched[name] = value

    def _value(self, name: str) -> Any:
        if name in self._switched:
            return self._switched[name]
        schema, given = self._properties[name], self._given[name]
        if is_array(schema, self._root):
            if len(given) > 1:
                return [self._converted(each, item_of, schema) for each in given]
            return self._converted(given[0], array_of, schema)
        return self._converted(given[0], value_of, schema)

    def _converted(self, given: tuple[Token, str, str], convert: _Convert, schema: Any) -> Any:
        token, option, text = given
        try:
            return convert(text, schema, self._root)
        except Mismatch as error:
            raise BindingError(f"{_at(option, token)}: {error}") from None

    def _find(self, typed: str) -> str | None:
        return typed if typed in self._properties else self._by_spelling.get(_spelling(typed))

    def _initial(self, letter: str, token: Token) -> str:
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

    def _is_missing(self, name: Any, args: dict[str, Any]) -> bool:
        return name not in args and "default" not in read_schema(self._properties.get(name), self._root).schema

    def _unknown(self, option: str, token: Token) -> BindingError:
        hint = ""
        if option.startswith("--"):
            spellings = {name: f"--{name}" for name in self._properties}
            spellings |= {f"no-{name}": f"--no-{name}" for name in self._properties if self._is_switch(name)}
            close = nearest(option[2:], spellings)
            hint = f" (did you mean '{spellings[close]}'?)" if close else ""
        return BindingError(f"Unknown option {_at(option, token)}{hint}")


def _spelling(name: str) -> str:
    return name.replace("-", "_")


def _at(text: str, token: Token) -> str:
    place = "" if token.position is None else f" at position {token.position}"
    return f"'{visible(text[:100])}'{place}"


def _unexpected(token: Token) -> BindingError:
    return BindingError(f"Unexpected argument {_at(token.text, token)}")
