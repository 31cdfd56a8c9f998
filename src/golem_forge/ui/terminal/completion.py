"""What Tab offers: commands, tools, prompts of MCP servers, options, allowed values, zone paths, models, servers,
calls, stored outputs and other ids.

`candidates` takes the text before the cursor and gives the start of the word it completes and the words that fit, in
order. It never raises: a lister that fails offers nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from golem_forge.core.slash import COMMANDS

_T = TypeVar("_T")
_SECOND_WORDS: Final = {
    "trace": ("quiet", "summary", "normal", "debug"),
    "rules": ("revoke",),
    "mcp": ("reconnect",),
}
_MOST: Final = 200
_PLAIN_WORD: Final = re.compile(r"[\w@%+=:,./~-]*\Z")

_log = logging.getLogger(__name__)


class Known:
    """What there is to complete; filled from events as they come."""

    def __init__(
        self,
        *,
        zone_listing: Callable[[str], Iterable[str]] | None = None,
        session_ids: Callable[[], Iterable[str]] | None = None,
        model_names: Callable[[], Iterable[str]] | None = None,
        rule_ids: Callable[[], Iterable[str]] | None = None,
        server_names: Callable[[], Iterable[str]] | None = None,
        prompts: Callable[[], Iterable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self.tools: dict[str, list[Mapping[str, Any]]] = {}
        """Fields by the name of a manual tool."""
        self.outputs: list[str] = []
        self.calls: list[str] = []
        self._zone_listing = zone_listing
        self._session_ids = session_ids
        self._model_names = model_names
        self._rule_ids = rule_ids
        self._server_names = server_names
        self._prompts = prompts

    def offer_tools(self, tools: Iterable[Mapping[str, Any]]) -> None:
        self.tools = {str(tool["name"]): list(tool.get("fields") or ()) for tool in tools}

    def saw_result(self, call_id: str, handle: str | None) -> None:
        self.calls = [*self.calls[-49:], call_id]
        if handle:
            self.outputs = [*self.outputs[-49:], handle]

    def paths(self, typed: str) -> list[str]:
        """`typed` starts with `/`; the listing is asked for the directory it is in."""
        if self._zone_listing is None:
            return []
        directory = typed[: typed.rfind("/") + 1]
        return [directory + name for name in _safely(self._zone_listing, directory)]

    def sessions(self) -> list[str]:
        return _safely(self._session_ids) if self._session_ids else []

    def models(self) -> list[str]:
        return _safely(self._model_names) if self._model_names else []

    def rules(self) -> list[str]:
        return _safely(self._rule_ids) if self._rule_ids else []

    def servers(self) -> list[str]:
        return _safely(self._server_names) if self._server_names else []

    def commands(self) -> dict[str, list[Mapping[str, Any]]]:
        """Fields by what can be typed behind the `/` besides built-in commands. A prompt wins over a tool."""
        prompts = _safely(self._prompts) if self._prompts else []
        return {**self.tools, **{str(each["name"]): list(each["fields"]) for each in prompts}}


def candidates(before: str, known: Known) -> tuple[int, list[str]]:
    if before.startswith("/") and (opened := _open_quote(before)) is not None:
        return _in_quotes(before, opened, known)
    return _unquoted(before, known)


def _unquoted(before: str, known: Known) -> tuple[int, list[str]]:
    start = max(before.rfind(" "), before.rfind("\n")) + 1
    word = before[start:]
    if not before.startswith("/"):
        return start, _fitting(word, known.paths(word)) if word.startswith("/") else []
    words = before.split()
    if start == 0:
        return 0, _fitting(word, [f"/{name}" for name in (*COMMANDS, *sorted(known.commands()))])
    command, given = words[0][1:].lower(), words[1:] if not word else words[1:-1]
    fields = _fields_of(command, given, known)
    if fields is None:
        return start, _fitting(word, _built_in_words(command, given, known) + _paths_for(word, known))
    return _option_words(word, start, given, fields, known)


def _open_quote(text: str) -> int | None:
    """Where the quote stands that is not closed yet, by the rules of a command's words."""
    opened: int | None = None
    at = 0
    while at < len(text):
        if text[at] == "\\" and (opened is None or text[opened] == '"'):
            at += 1
        elif opened is None and text[at] in "'\"":
            opened = at
        elif opened is not None and text[at] == text[opened]:
            opened = None
        at += 1
    return opened


def _in_quotes(before: str, opened: int, known: Known) -> tuple[int, list[str]]:
    """As without the quote, for a value in one; where only one fits and is complete, the quote is closed."""
    mark, value = before[opened], before[opened + 1 :]
    if any(blank in value for blank in " \n"):
        return opened + 1, _closed(mark, _fitting(value, _paths_for(value, known)))
    _, words = _unquoted(before[:opened] + value, known)
    _, quoted = _unquoted(f'{before[:opened]}"{value}', known)
    return opened + 1, _closed(mark, [*words, *(word[1:-1] for word in quoted)])


def _closed(mark: str, words: list[str]) -> list[str]:
    fitting = [word for word in words if mark not in word and not (mark == '"' and "\\" in word)]
    return [fitting[0] + mark] if len(fitting) == 1 and not fitting[0].endswith("/") else fitting


def _fields_of(command: str, given: Sequence[str], known: Known) -> list[Mapping[str, Any]] | None:
    """The fields of the tool that the line runs; None: it runs none, or not yet."""
    if command in ("tool", "t"):
        return _named(given[0], known.tools) if given else None
    return None if command in COMMANDS else _named(command, known.commands())


def _named(typed: str, known: Mapping[str, list[Mapping[str, Any]]]) -> list[Mapping[str, Any]] | None:
    return {name.lower(): fields for name, fields in known.items()}.get(typed.lower())


def _built_in_words(command: str, given: Sequence[str], known: Known) -> list[str]:
    if command in ("tool", "t"):
        return [] if given else sorted(known.tools)
    if command == "help":
        return [] if given else [*COMMANDS, *sorted(known.commands())]
    if command in _SECOND_WORDS and not given:
        return list(_SECOND_WORDS[command])
    if command == "rules" and given[0].lower() == "revoke":
        return [id for id in known.rules() if id not in given]
    if command == "mcp" and [each.lower() for each in given] == ["reconnect"]:
        return known.servers()
    listers: dict[str, Callable[[], list[str]]] = {
        "sessions": known.sessions,
        "model": known.models,
        "output": lambda: known.outputs[::-1],
        "why": lambda: known.calls[::-1],
    }
    return listers[command]() if command in listers and not given else []


def _option_words(
    word: str, start: int, given: Sequence[str], fields: Sequence[Mapping[str, Any]], known: Known
) -> tuple[int, list[str]]:
    by_option = {f"--{field['name']}": field for field in fields}
    if word.startswith("--") and "=" in word:
        option, value = word.split("=", 1)
        return start + len(option) + 1, _fitting(value, _values(by_option.get(option), value, known))
    open_option = by_option.get(given[-1]) if given else None
    if open_option is not None and open_option["type"] != "boolean":
        return start, _fitting(word, _values(open_option, word, known))
    if word.startswith("/"):
        return start, _fitting(word, known.paths(word))
    used = {part.split("=", 1)[0] for part in given}
    repeatable = {name for name, field in by_option.items() if field["type"] in ("list", "multiselect")}
    options = [name for name in by_option if name not in used or name in repeatable]
    negated = [f"--no-{field['name']}" for field in fields if field["type"] == "boolean"] if word[:4] == "--no" else []
    return start, _fitting(word, options + negated)


def _values(field: Mapping[str, Any] | None, typed: str, known: Known) -> list[str]:
    if field is None:
        return []
    item = field.get("item") if field["type"] == "list" else field
    if isinstance(item, Mapping) and item.get("options"):
        return [_quoted(str(option["value"])) for option in item["options"]]
    if field["type"] == "boolean":
        return ["true", "false"]
    return _paths_for(typed, known)


def _paths_for(word: str, known: Known) -> list[str]:
    return known.paths(word) if word.startswith("/") else []


def _fitting(word: str, words: Iterable[str]) -> list[str]:
    lowered = word.lower()
    return [each for each in dict.fromkeys(words) if each.lower().startswith(lowered)][:_MOST]


def _quoted(text: str) -> str:
    if _PLAIN_WORD.match(text) and text:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _safely(lister: Callable[..., Iterable[_T]], *args: str) -> list[_T]:
    try:
        return list(lister(*args))[:_MOST]
    except Exception as error:
        _log.debug("nothing to complete: %s", type(error).__name__)
        return []
