"""The text that a person reads before they approve a server or a changed tool definition, and checks on a server's
text.

`server_card` describes a server from its config; `server_diff` shows what changed since the last approval;
`approved_description` is the part of a config that is stored with an approval. Values of variables and headers may be
secrets: they are neither shown nor stored, only their digests and the environment variables they use. `definition_of`
gives the part of a tool that a pin covers; `definition_diff` is a unified diff of two definitions as pretty-printed
JSON, at most 64 KiB.

Threat: a config that steers the terminal, imitates lines of the card, hides a variable in a value that is not shown, or
is so long that the lines about its access are cut. Diffs take quadratic time and the server wrote both texts: equal
beginnings and ends are skipped, and above a fixed amount of work the rest is shown as one change.

`hidden_in`, `hidden_in_schema` and `hidden_in_json` name the first hidden character of a text, and where it is;
`display_text` escapes hidden characters and cuts a text at a byte limit. Threat: instructions in tag characters, bidi
controls, escape sequences in a description, and bytes encoded as rows of variation selectors or zero-width characters.
One or two of those are normal in scripts and emoji; three in a row are not. In a schema's data (names, `default`,
`enum`, `pattern`) ASCII control characters are allowed, since JSON escapes them visibly; in titles and descriptions
they are not.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.core.changes import line_changes, unified_hunks
from golem_forge.core.json import digest
from golem_forge.core.regex import regex
from golem_forge.core.text import display_name, escape_control_chars
from golem_forge.mcp.client.model import RemoteTool

_TAGS: Final = "\U000e0000-\U000e007f"
_BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ROW: Final = "[\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]{3}"
_HIDDEN: Final = regex(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}")
_HIDDEN_IN_DATA: Final = regex(f"[\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}")
_SUSPICIOUS: Final = regex(rf"[\x7f-\x9f{_BIDI}{_TAGS}]|{_ROW}|\\[bfru]")
"""Suspicious characters in JSON text, where the other control characters are escaped."""
_MAX_PATH: Final = 200

_PROSE: Final = frozenset({"title", "description", "$comment"})
_DATA: Final = frozenset({"default", "enum", "const", "examples"})
_NAMED_SCHEMAS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)


class _SchemaPosition(Enum):
    """The kind of a value in a schema."""

    SCHEMA = auto()
    NAMED_SCHEMAS = auto()
    """Its keys are names, not keywords: a property may be called `description`."""
    DATA = auto()
    PROSE = auto()

    def below(self, key: str) -> _SchemaPosition:
        if self in (_SchemaPosition.DATA, _SchemaPosition.PROSE):
            return self
        if self is _SchemaPosition.NAMED_SCHEMAS:
            return _SchemaPosition.SCHEMA
        if key in _NAMED_SCHEMAS:
            return _SchemaPosition.NAMED_SCHEMAS
        if key in _PROSE:
            return _SchemaPosition.PROSE
        return _SchemaPosition.DATA if key in _DATA else _SchemaPosition.SCHEMA

    @property
    def hidden(self) -> re.Pattern[str]:
        return _HIDDEN if self is _SchemaPosition.PROSE else _HIDDEN_IN_DATA


def hidden_in(text: str) -> str:
    """Describes a hidden character: `a tag character (U+E0041)`; empty if there is none."""
    return "" if text.isascii() and text.isprintable() else _describe_match(_HIDDEN.search(text))


def hidden_in_schema(schema: Any, written: str) -> str:
    """`a bidi control (U+202E) at properties.path.description`, or nothing. `written`: the same as JSON text."""
    return _search(schema, _SchemaPosition.SCHEMA) if _SUSPICIOUS.search(written) else ""


def hidden_in_json(value: Any, written: str) -> str:
    return _search(value, _SchemaPosition.PROSE) if _SUSPICIOUS.search(written) else ""


def _search(root: Any, place: _SchemaPosition) -> str:
    """Searches a value without recursion, in the order of the text."""
    stack: list[tuple[Any, _SchemaPosition, str]] = [(root, place, "")]
    while stack:
        value, place, path = stack.pop()
        if isinstance(value, str) and (found := place.hidden.search(value)):
            return f"{_describe_match(found)} at {_display_path(path)}"
        if isinstance(value, dict):
            for key in value:
                if found := place.hidden.search(key):
                    return f"{_describe_match(found)} in a key at {_display_path(path)}"
            stack += [(item, place.below(key), f"{path}.{key}"[-_MAX_PATH:]) for key, item in reversed(value.items())]
        elif isinstance(value, list):
            items = reversed(list(enumerate(value)))
            stack += [(item, place, f"{path}[{index}]"[-_MAX_PATH:]) for index, item in items]
    return ""


def _display_path(path: str) -> str:
    return escape_control_chars(path.removeprefix(".")) or "its root"


def _describe_match(found: re.Match[str] | None) -> str:
    if found is None:
        return ""
    code = ord(found.group()[0])
    if len(found.group()) > 1:
        return f"a row of characters without a shape (from U+{code:04X} on)"
    kind = "a tag character" if code >= 0xE0000 else "a bidi control" if code > 0x9F else "a control character"
    return f"{kind} (U+{code:04X})"


def display_text(text: str, most_bytes: int) -> str:
    """Every hidden character visible; what is too long is cut between characters and says so."""
    clear = escape_control_chars(text)
    encoded = clear.encode("utf-8", "replace")
    if len(encoded) <= most_bytes:
        return clear
    return encoded[:most_bytes].decode("utf-8", "ignore") + f"… [{len(encoded) - most_bytes} bytes more]"


MAX_CARD_BYTES: Final = 64 * 1024
_WITH_VALUES: Final = ("env", "headers")
_REFERENCE: Final = regex(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
"""A value that is nothing but the name of a variable gives nothing away."""
_VARIABLE: Final = regex(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_ZONE: Final = regex(r"\A\$\{zone:([^}/]+)\}/")
_PROGRAM: Final = regex(r"[^-\s].*\.(?:py|pyz|js|mjs|cjs|ts|mts|cts|sh|rb|pl|php|lua|jar)")
_LAST_CHARACTERS: Final = 16 * 1024
"""Characters at the end of a too long card that are kept; they say what it may reach."""
_MOST_COMPARISONS: Final = 250_000
_NONE: Final = "none"
_MADE_WITH: Final = "; made with these of the environment Forge was started in: "
_WHOLE_NETWORK: Final = (
    "the whole network of this machine; its services on loopback and its abstract sockets cannot be hidden from it"
)


class _Row(NamedTuple):
    label: str
    words: str
    mark: str = ""
    """Distinguishes two values that are not shown."""

    @property
    def line(self) -> str:
        return display_name(f"{self.label}: {self.words}")


def server_card(spec: ServerSpec) -> str:
    """One line for each thing it would get, also for what it would not."""
    return described_card(spec.name, spec.origin, approved_description(spec.described))


def described_card(name: str, origin: str, described: Mapping[str, Any]) -> str:
    """Builds the card of a stored description (`approved_description`)."""
    words = [str(described.get("command") or ""), *map(str, _list(described.get("args")))]
    program = () if "url" in described else (_Row("runs", shlex.join(words)),)
    rows = (_Row("MCP server", name), _Row("from", origin), *program, *_access_rows(described))
    return _bounded_card(row.line for row in rows)


def server_diff(before: Mapping[str, Any] | None, spec: ServerSpec) -> str:
    """The lines of the card that went and came; empty if nothing was agreed to before, or nothing changed."""
    return "" if before is None else description_diff(before, spec.described)


def description_diff(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    changes = list(_changes(_rows(approved_description(before)), _rows(approved_description(now))))
    return _bounded_card(("--- approved", "+++ now", *changes)) if changes else ""


def approved_description(described: Mapping[str, Any]) -> dict[str, Any]:
    """A description whose values of variables and headers are digests; one that was made so before stays as it is."""
    return {key: _hash_values(value) if key in _WITH_VALUES else value for key, value in described.items()}


def _hash_values(values: Any) -> dict[str, Any]:
    return {
        str(name): _digest_value(value) if isinstance(value, str) and not _REFERENCE.fullmatch(value) else value
        for name, value in _map(values).items()
    }


def _digest_value(value: str) -> dict[str, Any]:
    """Returns what is stored of a hidden value: a digest to recognise it, and the variables in it."""
    variables = list(dict.fromkeys(_VARIABLE.findall(value)))
    return {"sha256": digest(value), **({"variables": variables} if variables else {})}


def _rows(described: Mapping[str, Any]) -> list[_Row]:
    """Every argument by itself: one more of them is one more line of a diff."""
    program = [_Row("command", str(described["command"]))] if "command" in described else []
    return [*program, *(_Row("argument", str(one)) for one in _list(described.get("args"))), *_access_rows(described)]


def _access_rows(described: Mapping[str, Any]) -> Iterator[_Row]:
    """Yields the rows that say where it is or what it may touch. A description from a file may have any shape and is
    shown as it is.
    """
    if "url" in described:
        yield _Row("url", str(described["url"]))
        yield from _values("header", described.get("headers"))
        auth = described.get("auth")
        variable = _map(auth).get("bearer_env")
        yield _Row("auth", str(auth) if variable is None else f"bearer token from ${variable}")
        return
    for place in _programs_in_zones(described):
        yield _Row("careful", f"it runs {place}: whoever may write there decides what runs with all of this")
    copied = _list(described.get("pass_env"))
    if _map(described.get("env")) or not copied:
        yield from _values("variable", described.get("env"))
    for name in copied:
        yield _Row("variable", f"{name}, copied from the environment Forge was started in")
    yield _Row("starts in", str(described.get("cwd") or "its first zone, or its own home"))
    zones = _map(described.get("zones"))
    for name, mode in sorted(zones.items()):
        yield _Row("zone", f"/{name} ({'rw: written' if mode == 'rw' else 'read-only'})")
    if not zones:
        yield _Row("zones", _NONE)
    network = described.get("network")
    hosts = _list(network) or [_WHOLE_NETWORK if network is True else _NONE]
    yield from (_Row("network", str(host)) for host in hosts)


def _programs_in_zones(described: Mapping[str, Any]) -> Iterator[str]:
    """Its words that name a program in a zone, by their addresses. Threat: workers write in zones, a server has other
    walls than they have, and nothing about it changes when they write another program there."""
    zones = _map(described.get("zones"))
    command = str(described.get("command") or "")
    if command.startswith((*(f"/{zone}/" for zone in zones), *(("./", "../") if zones else ()))):
        yield command
    for word in map(str, _list(described.get("args"))):
        place = _ZONE.sub(r"/\1/", word, count=1)
        if zones and _PROGRAM.fullmatch(word) and (place != word or not word.startswith("/")):
            yield place


def _values(label: str, values: Any) -> Iterator[_Row]:
    named = _map(values)
    for name, value in sorted(named.items()):
        if isinstance(value, str):
            yield _Row(label, f"{name} = {value}")
        else:
            kept = _map(value)
            made = ", ".join(f"${one}" for one in _list(kept.get("variables")))
            hidden = f"a value, not shown{_MADE_WITH}{made}" if made else "a value, not shown"
            yield _Row(label, f"{name} = ({hidden})", str(kept.get("sha256")))
    if not named:
        yield _Row(f"{label}s", _NONE)


def _changes(old: list[_Row], new: list[_Row]) -> Iterator[str]:
    from difflib import SequenceMatcher  # 2 ms, and few sessions read a change

    if old == new:
        return
    opcodes: Sequence[tuple[str, int, int, int, int]]
    if len(old) * len(new) > _MOST_COMPARISONS:
        opcodes = [("replace", 0, len(old), 0, len(new))]
    else:
        opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    known, hidden_before = set(old), {(row.label, row.words) for row in old if row.mark}
    for tag, old_from, old_to, new_from, new_to in opcodes:
        if tag == "equal":
            continue
        yield from (f"-{row.line}" for row in old[old_from:old_to])
        for row in new[new_from:new_to]:
            another = row.mark and (row.label, row.words) in hidden_before and row not in known
            yield f"+{row.line.replace('(a value,', '(another value,') if another else row.line}"


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _bounded_card(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    if len(text) <= MAX_CARD_BYTES:
        return text
    first, last = text[: MAX_CARD_BYTES - _LAST_CHARACTERS], text[-_LAST_CHARACTERS:]
    return f"{first}\n… {len(text) - MAX_CARD_BYTES} more characters are not shown\n… {last}"


MAX_DIFF_BYTES: Final = 64 * 1024
_ROOM_FOR_NOTE: Final = 100
_LINE_END: Final = regex(r"(?<!\\)((?:\\\\)*\\n)")
_LONG: Final = 160
_PIECE: Final = regex(rf".{{1,{_LONG}}}?[.,:;!?] |.{{1,{_LONG}}}")
NOT_KEPT: Final = "(the pinned definition was too large to be kept; this is the present one)"


def definition_of(tool: RemoteTool) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": tool.name, "description": tool.description}
    definition["inputSchema"] = tool.input_schema
    if tool.title:
        definition["title"] = tool.title
    if tool.output_schema is not None:
        definition["outputSchema"] = tool.output_schema
    if tool.annotations:
        definition["annotations"] = tool.annotations
    return definition


def definition_diff(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """`before` None: it was not kept, so all of the present one is shown."""
    if before is None:
        return _bounded_diff(iter([NOT_KEPT, *(f"+{line}" for line in _definition_lines(after))]))
    return _bounded_diff(_unified(_definition_lines(before), _definition_lines(after)))


def _definition_lines(definition: Mapping[str, Any]) -> list[str]:
    """Texts are broken where they break, and long lines where their sentences do: a change in a long description is
    seen where it is. A quote inside a text stays escaped, so no line of it passes for a key of the definition."""
    text = escape_control_chars(json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False))
    lines = _LINE_END.sub(r"\1" + "\n", text).split("\n")
    return [piece for line in lines for piece in (_PIECE.findall(line) if len(line) > _LONG else [line])]


def _unified(old: list[str], new: list[str]) -> Iterator[str]:
    before, after = ([f"{line}\n" for line in lines] for lines in (old, new))
    if changes := line_changes(before, after, most_comparisons=_MOST_COMPARISONS):
        yield from ("--- pinned", "+++ now")
        yield from (row.removesuffix("\n") for row in unified_hunks(before, after, changes))


def _bounded_diff(lines: Iterator[str]) -> str:
    kept: list[str] = []
    room = MAX_DIFF_BYTES - _ROOM_FOR_NOTE
    for line in lines:
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            rest = 1 + sum(1 for _ in lines)
            return "\n".join([*kept, f"… {rest} more lines are not shown: the change is larger than 64 KiB"])
        kept.append(line)
    return "\n".join(kept)
