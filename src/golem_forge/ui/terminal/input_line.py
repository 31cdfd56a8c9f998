"""Help at the input line: completion by Tab, the menu below it, the history file, and which lines it must not keep.

Completion: `candidates` takes the text before the cursor; gives the start of the word it completes and the words that
fit. Never raises: a source that fails offers nothing.

Menu: commands while `/` begins the line, files of the zones while `@` begins a word. `Menu.typed` takes the text before
the cursor after each change of it; `lines` gives the rows to draw, `taken` the text to put into the line and how many
characters it replaces. Typing never waits for it: files are listed in a task of their own, once for a while, and what
comes late is drawn when it comes. Commands are found by the beginning of their name, then by any part of it; files by
the letters typed, in their order.
Threat: names of files, tools and prompts are other people's. Each is one line, escaped, and nothing is sent by taking
one: the person still presses Enter.

History: FORGE_HOME/history, mode 0600, the last 1000 entries, one a line with `\\n` and `\\\\` for line break and
backslash. A file that cannot be read or written costs the history, never the session.
A line holds a secret when it gives a value to a secret field of a tool or to an option named like a credential, or when
the session's redaction finds a known secret in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from golem_forge.agent.slash.commands import BUILT_IN_COMMANDS
from golem_forge.agent.slash.parser import CommandError, tokenize
from golem_forge.core.ids import new_id
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import SLASH_COMMANDS, shorten_prose, slash_command
from golem_forge.events.bus import EventBus
from golem_forge.events.redaction import NO_CREDENTIAL, classify_name
from golem_forge.storage.home import wait_for_lock
from golem_forge.ui.render.lines import fit_width, one_line, width_of
from golem_forge.ui.terminal.tty import StyledLine

_T = TypeVar("_T")
_SECOND_WORDS: Final = {
    "trace": ("quiet", "summary", "normal", "debug"),
    "mode": ("interactive", "contained", "plan", "strict", "auto_deny"),
    "rules": ("revoke",),
    "mcp": ("reconnect",),
}
_MAX_CANDIDATES: Final = 200
_MAX_HINT: Final = 100
_PLAIN_WORD: Final = regex(r"[\w@%+=:,./~-]*\Z")
_PATH_NAME: Final = regex(r"(?:\A|_)(?:path|paths|file|files|filename|dir|directory|folder|workdir|cwd)(?:\Z|_)")

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class CompletionSources:
    """Sources for completion, filled from events. A source that is missing or fails offers nothing."""

    zone_listing: Callable[[str], Iterable[str]] | None = None
    zone_files: Callable[[], Awaitable[Iterable[str]]] | None = None
    session_ids: Callable[[], Iterable[str]] | None = None
    model_names: Callable[[], Iterable[str]] | None = None
    rule_ids: Callable[[], Iterable[str]] | None = None
    server_names: Callable[[], Iterable[str]] | None = None
    prompts: Callable[[], Iterable[Mapping[str, Any]]] | None = None
    only_commands: Mapping[str, str] | None = None
    """The only commands that work here after the `/`, with descriptions."""
    tools: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Fields of manual tools, by name."""
    descriptions: dict[str, str] = field(default_factory=dict)
    """Descriptions of manual tools, by name."""
    outputs: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def set_tools(self, tools: Iterable[Mapping[str, Any]]) -> None:
        known = list(tools)
        self.tools = {str(tool["name"]): list(tool.get("fields") or ()) for tool in known}
        self.descriptions = {str(tool["name"]): _first_sentence(tool.get("description")) for tool in known}

    def add_result(self, call_id: str, handle: str | None) -> None:
        self.calls = [*self.calls[-49:], call_id]
        if handle:
            self.outputs = [*self.outputs[-49:], handle]

    def paths(self, typed: str, *, relative: bool = False) -> list[str]:
        """Paths in the directory of what was typed. Without `relative` none unless that starts with `/`; with it a
        path begins in the default zone, as for tools."""
        if not typed.startswith("/") and not relative:
            return []
        directory = typed[: typed.rfind("/") + 1]
        return [directory + name for name in _list_or_empty(self.zone_listing, directory)]

    def commands(self) -> dict[str, list[Mapping[str, Any]]]:
        """Fields by what can be typed behind the `/` besides built-in commands. A prompt wins over a tool."""
        prompts = _list_or_empty(self.prompts)
        return {**self.tools, **{str(each["name"]): list(each["fields"]) for each in prompts}}

    def described_commands(self) -> dict[str, str]:
        """Returns the descriptions of tools and prompts."""
        prompts = _list_or_empty(self.prompts)
        return {
            **self.descriptions,
            **{str(each["name"]): _first_sentence(each.get("description")) for each in prompts},
        }


def candidates(before: str, known: CompletionSources) -> tuple[int, list[str]]:
    if before.startswith("/") and (opened := _open_quote(before)) is not None:
        return _in_quotes(before, opened, known)
    return _unquoted(before, known)


def _unquoted(before: str, known: CompletionSources) -> tuple[int, list[str]]:
    start = max(before.rfind(" "), before.rfind("\n")) + 1
    word = before[start:]
    if before.startswith("!"):
        start = max(start, 1)
        word = before[start:]
        plain = [path for path in known.paths(word, relative=True) if _PLAIN_WORD.match(path)]
        return start, _matching(word, plain)
    if not before.startswith("/"):
        return start, _matching(word, known.paths(word))
    words = before.split()
    if start == 0:
        names = known.only_commands or (*SLASH_COMMANDS, *sorted(known.commands()))
        return 0, _matching(word, [f"/{name}" for name in names])
    command, given = words[0][1:].lower(), words[1:] if not word else words[1:-1]
    fields = _fields_of(command, given, known)
    if fields is None:
        return start, _matching(word, _built_in_words(command, given, known) + known.paths(word))
    return _option_words(word, start, given, fields, known)


def _open_quote(text: str) -> int | None:
    """The position of a quote that is not closed yet, by the rules of a command's words."""
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


def _in_quotes(before: str, opened: int, known: CompletionSources) -> tuple[int, list[str]]:
    """Completes a quoted value like an unquoted one; closes the quote if only one complete value fits."""
    mark, value = before[opened], before[opened + 1 :]
    if any(blank in value for blank in " \n"):
        return opened + 1, _closed(mark, _matching(value, known.paths(value)))
    _, words = _unquoted(before[:opened] + value, known)
    _, quoted = _unquoted(f'{before[:opened]}"{value}', known)
    return opened + 1, _closed(mark, [*words, *(word[1:-1] for word in quoted)])


def _closed(mark: str, words: list[str]) -> list[str]:
    fitting = [word for word in words if mark not in word and not (mark == '"' and "\\" in word)]
    return [fitting[0] + mark] if len(fitting) == 1 and not fitting[0].endswith("/") else fitting


def _fields_of(command: str, given: Sequence[str], known: CompletionSources) -> list[Mapping[str, Any]] | None:
    """The fields of the tool that the line runs; None: it runs none, or not yet."""
    if command in ("tool", "t"):
        return _named(given[0], known.tools) if given else None
    return None if command in SLASH_COMMANDS else _named(command, known.commands())


def _named(typed: str, known: Mapping[str, list[Mapping[str, Any]]]) -> list[Mapping[str, Any]] | None:
    return {name.lower(): fields for name, fields in known.items()}.get(typed.lower())


def _built_in_words(command: str, given: Sequence[str], known: CompletionSources) -> list[str]:
    if known.only_commands is not None:
        return []
    if command in ("tool", "t"):
        return [] if given else sorted(known.tools)
    if command == "help":
        return [] if given else [*SLASH_COMMANDS, *sorted(known.commands())]
    if command in _SECOND_WORDS and not given:
        return list(_SECOND_WORDS[command])
    if command == "rules" and given[0].lower() == "revoke":
        return [id for id in _list_or_empty(known.rule_ids) if id not in given]
    if command == "mcp" and [each.lower() for each in given] == ["reconnect"]:
        return _list_or_empty(known.server_names)
    if given:
        return []
    match command:
        case "sessions" | "resume":
            return _list_or_empty(known.session_ids)
        case "model":
            return _list_or_empty(known.model_names)
        case "output":
            return known.outputs[::-1]
        case "why":
            return known.calls[::-1]
    return []


def _option_words(
    word: str, start: int, given: Sequence[str], fields: Sequence[Mapping[str, Any]], known: CompletionSources
) -> tuple[int, list[str]]:
    by_option = {f"--{field['name']}": field for field in fields}
    if word.startswith("--") and "=" in word:
        option, value = word.split("=", 1)
        return start + len(option) + 1, _matching(value, _values(by_option.get(option), value, known))
    open_option = by_option.get(given[-1]) if given else None
    if open_option is not None and open_option["type"] != "boolean":
        return start, _matching(word, _values(open_option, word, known))
    if word.startswith("/"):
        return start, _matching(word, known.paths(word))
    used = {part.split("=", 1)[0] for part in given}
    repeatable = {name for name, field in by_option.items() if field["type"] in ("list", "multiselect")}
    options = [name for name in by_option if name not in used or name in repeatable]
    negated = [f"--no-{field['name']}" for field in fields if field["type"] == "boolean"] if word[:4] == "--no" else []
    return start, _matching(word, options + negated)


def _values(field: Mapping[str, Any] | None, typed: str, known: CompletionSources) -> list[str]:
    if field is None:
        return []
    item = field.get("item") if field["type"] == "list" else field
    if isinstance(item, Mapping) and item.get("options"):
        return [quoted_word(str(option["value"])) for option in item["options"]]
    if field["type"] == "boolean":
        return ["true", "false"]
    return known.paths(typed, relative=_takes_path(field))


def _takes_path(field: Mapping[str, Any]) -> bool:
    return field["type"] in ("text", "list") and _PATH_NAME.search(str(field["name"]).lower()) is not None


def _matching(word: str, words: Iterable[str]) -> list[str]:
    lowered = word.lower()
    return [each for each in dict.fromkeys(words) if each.lower().startswith(lowered)][:_MAX_CANDIDATES]


def _first_sentence(description: Any) -> str:
    """Returns the first sentence, shortened to fit beside a name."""
    text = description.strip() if isinstance(description, str) else ""
    return shorten_prose(text.partition("\n")[0].split(". ")[0].rstrip("."), _MAX_HINT)


def quoted_word(text: str) -> str:
    """Quotes a text as one word of a command."""
    if _PLAIN_WORD.match(text) and text:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _list_or_empty(lister: Callable[..., Iterable[_T]] | None, *args: str) -> list[_T]:
    if lister is None:
        return []
    try:
        return list(lister(*args))[:_MAX_CANDIDATES]
    except Exception as error:
        _log.debug("nothing to complete: %s", type(error).__name__)
        return []


MAX_HISTORY_LINES: Final = 1000
_MAX_HISTORY_BYTES: Final = 4 * 1024 * 1024
_MAX_ENTRY_CHARS: Final = 16 * 1024
"""A longer entry is a pasted document, not a line to type again."""


class HistoryFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[str]:
        with contextlib.suppress(OSError), open(_open_regular(self._path, os.O_RDONLY), "rb") as file:
            return _entries(file.read(_MAX_HISTORY_BYTES))
        return []

    def add(self, line: str) -> None:
        if not line.strip() or len(line) > _MAX_ENTRY_CHARS:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = _open_regular(self._path, os.O_RDWR | os.O_CREAT)
            with open(handle, "r+b") as file:
                os.fchmod(handle, 0o600)
                wait_for_lock(handle, self._path.name)  # two sessions may add at once
                known = _entries(file.read(_MAX_HISTORY_BYTES))
                if known and known[-1] == line:
                    return
                if len(known) < MAX_HISTORY_LINES:
                    file.seek(0, os.SEEK_END)
                    file.write(_encode_entry(line))
                    return
                file.seek(0)
                file.write(b"".join(_encode_entry(entry) for entry in [*known, line][-MAX_HISTORY_LINES:]))
                file.truncate()


def _open_regular(path: Path, flags: int) -> int:
    """A file and nothing else: reading a pipe would wait for ever."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError("not a file")


def _entries(data: bytes) -> list[str]:
    written = data.decode(errors="replace").split("\n")
    return [_decode_entry(entry) for entry in written if entry][-MAX_HISTORY_LINES:]


def _encode_entry(line: str) -> bytes:
    escaped = line.replace("\\", "\\\\").replace("\r", "").replace("\n", "\\n")
    return escaped.encode(errors="replace") + b"\n"


def _decode_entry(entry: str) -> str:
    return "\\".join(part.replace("\\n", "\n") for part in entry.split("\\\\"))


_OPTION: Final = regex(r"(--?)([A-Za-z][\w-]*)")
_REDACTION: Final = regex(r"\[secret [^\]]*\]|\[redacted \d+ chars")


def holds_secret(line: str, tools: Mapping[str, Sequence[Mapping[str, Any]]], bus: EventBus) -> bool:
    if line.startswith(("/", "!")):
        secret = {
            _normalize_name(str(field["name"])) for fields in tools.values() for field in fields if _is_secret(field)
        }
        initials = {name[:1] for name in secret}
        for dashes, option in _options(line):
            letters = initials & set(option.lower()) if dashes == "-" else ()  # `-fp 1` gives the 1 to p
            if letters or _normalize_name(option) in secret or classify_name(option) != NO_CREDENTIAL:
                return True
    shown = bus.make_event("command", {"requestId": new_id(), "text": line}).wire.get("text")
    return len(_REDACTION.findall(str(shown))) > len(_REDACTION.findall(line))


def _is_secret(field: Mapping[str, Any]) -> bool:
    """Whether it is one, is named like one, or has such a part."""
    parts = [*(field.get("fields") or ()), *(field.get("variants") or ()), field.get("item")]
    own = field.get("type") == "secret" or field.get("secret") is True
    named = own or classify_name(str(field.get("name", ""))) != NO_CREDENTIAL
    return named or any(_is_secret(part) for part in parts if isinstance(part, Mapping))


def _normalize_name(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _options(line: str) -> list[tuple[str, str]]:
    """(dashes, name) as the command will read them; of a line that cannot be read, all that look so."""
    try:
        words = [token.text for token in tokenize(line, 1)]
    except CommandError:
        words = line.split()
    return [(found[1], found[2]) for word in words if (found := _OPTION.match(word))]


MAX_ROWS: Final = 8
_MAX_FOUND: Final = 100
_FILES_FRESH_S: Final = 10.0
_MAX_NAME_COLUMNS: Final = 32
_KEYS: Final = "↑↓ choose · Tab or Enter takes · Esc closes"
_LOOKING: Final = "looking for files …"


class MenuEntry(NamedTuple):
    text: str
    """The text that choosing it inserts."""
    name: str
    hint: str = ""


class Menu:
    def __init__(self, sources: CompletionSources, redraw: Callable[[], None]) -> None:
        self._sources = sources
        self._redraw = redraw
        self._files = _ZoneFiles(sources, self._files_came)
        self._commands: list[MenuEntry] = []
        self._word = ""
        self._entries: list[MenuEntry] = []
        self._selected = 0
        self.moved = False
        """The person chose a row by an arrow key."""

    @property
    def is_open(self) -> bool:
        return bool(self._word) and (bool(self._entries) or self._looks_for_files)

    @property
    def _looks_for_files(self) -> bool:
        return self._word.startswith("@") and self._files.loading

    @property
    def offers(self) -> bool:
        """Whether there is an entry to choose."""
        return self.is_open and bool(self._entries)

    @property
    def is_complete(self) -> bool:
        """Whether what stands in the line needs nothing more: Enter sends it."""
        word = self._word.lower()
        return not self.moved and any(entry.text.lower() == word for entry in self._entries)

    def typed(self, before: str) -> None:
        """The text before the cursor, after something was typed or deleted."""
        word = _menu_word(before)
        if not word:
            self.close()
            return
        if not self._word:  # what there is to choose from is looked up once, not for each key
            if word.startswith("@"):
                self._files.refresh()
            else:
                self._commands = _command_entries(self._sources)
        self._word = word
        self._find()

    def close(self) -> None:
        self._word, self._entries, self._selected, self.moved = "", [], 0, False

    def move(self, step: int) -> None:
        if self._entries:
            self._selected = (self._selected + step) % len(self._entries)
            self.moved = True

    def taken(self) -> tuple[int, str]:
        """Returns how many characters before the cursor are replaced, and by what."""
        return len(self._word), self._entries[self._selected].text + " "

    def lines(self, width: int, rows: int) -> list[StyledLine]:
        if not self.is_open:
            return []
        if not self._entries:
            return [[("dim", _LOOKING)]]
        room = max(min(MAX_ROWS, rows), 1)
        first = min(max(self._selected - room + 1, 0), max(len(self._entries) - room, 0))
        shown = self._entries[first : first + room]
        files = self._word.startswith("@")
        column = width - 3 if files else min(max(width_of(entry.name) for entry in shown), _MAX_NAME_COLUMNS)
        lines = [
            self._row(entry, first + at == self._selected, min(column, width - 3), width)
            for at, entry in enumerate(shown)
        ]
        place = f"{self._selected + 1} of {len(self._entries)} · " if len(self._entries) > room else ""
        return [*lines, [("dim", fit_width(place + _KEYS, width - 1).rstrip())]]

    def _row(self, entry: MenuEntry, selected: bool, column: int, width: int) -> StyledLine:
        name = fit_width(entry.name, column)
        hint_room = width - 1 - 2 - column - 2
        hint = fit_width(entry.hint, hint_room).rstrip() if entry.hint and hint_room > 8 else ""
        return [
            ("choice" if selected else "", f"{'›' if selected else ' '} "),
            ("bold choice" if selected else "", name.rstrip() if not hint else name),
            ("" if selected else "dim", f"  {hint}" if hint else ""),
        ]

    def _find(self) -> None:
        wanted = self._word[1:].lower()
        before = self._entries[self._selected] if self.moved and self._entries else None
        found = (
            self._files.matching(wanted) if self._word.startswith("@") else _commands_matching(self._commands, wanted)
        )
        self._entries = found[:_MAX_FOUND]
        self.moved = before in self._entries
        self._selected = self._entries.index(before) if before is not None and self.moved else 0

    def _files_came(self) -> None:
        if self._word.startswith("@"):
            self._find()
            self._redraw()


def _menu_word(before: str) -> str:
    """`/name` at the beginning of the line, or `@name` at the beginning of a word; empty: there is no menu."""
    start = max(before.rfind(" "), before.rfind("\n")) + 1
    word = before[start:]
    if word.startswith("@"):
        return word
    return word if start == 0 and word.startswith("/") and "/" not in word[1:] else ""


def _command_entries(sources: CompletionSources) -> list[MenuEntry]:
    """Forge's own commands in the order of `/help`, then prompts and tools by name."""
    if (only := sources.only_commands) is not None:
        return [MenuEntry(f"/{name}", f"/{name}", one_line(does)) for name, does in only.items()]
    built_in = [MenuEntry(f"/{name}", f"/{name}", one_line(each.does)) for name, each in BUILT_IN_COMMANDS.items()]
    others = sources.described_commands()
    rows = (MenuEntry(slash_command(name), one_line(slash_command(name)), one_line(others[name])) for name in others)
    return [*built_in, *sorted(rows, key=lambda entry: entry.text.lower())]


def _commands_matching(commands: Iterable[MenuEntry], wanted: str) -> list[MenuEntry]:
    """Returns the commands that begin with the text, then those that contain it."""
    named = [(entry, entry.text.removeprefix("/tool ").removeprefix("/").lower()) for entry in commands]
    begin = [entry for entry, name in named if name.startswith(wanted)]
    return begin + [entry for entry, name in named if wanted in name and not name.startswith(wanted)]


class _ZoneFiles:
    """The files of the zones, listed in a task and kept for a while."""

    def __init__(self, sources: CompletionSources, came: Callable[[], None]) -> None:
        self._sources = sources
        self._came = came
        self._paths: list[tuple[str, str]] = []
        """(path, what is below its zone in small letters)."""
        self._listed_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    @property
    def loading(self) -> bool:
        return self._task is not None and not self._task.done()

    def refresh(self) -> None:
        lister = self._sources.zone_files
        if lister is None or self.loading or time.monotonic() - self._listed_at < _FILES_FRESH_S:
            return

        async def load() -> None:
            try:
                self._paths = [(path, path.lower().split("/", 2)[-1]) for path in await lister()]
            except Exception as error:
                _log.debug("no files to complete: %s", type(error).__name__)
            self._listed_at = time.monotonic()
            self._task = None
            self._came()

        self._task = asyncio.get_running_loop().create_task(load())

    def matching(self, wanted: str) -> list[MenuEntry]:
        whole = wanted.startswith("/")  # then the zone's name was typed as well
        ranked = [
            (rank, len(path), path)
            for path, low in self._paths
            if (rank := _rank(path.lower() if whole else low, wanted)) is not None
        ]
        return [MenuEntry(quoted_word(path), one_line(path)) for _, _, path in sorted(ranked)[:_MAX_FOUND]]


def _rank(path: str, wanted: str) -> int | None:
    """The smaller the better; None: the letters are not in the path in this order. Linear, whatever the path is."""
    name = path[path.rfind("/") + 1 :]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if wanted in path:
        return 2
    at = -1
    for letter in wanted:
        at = path.find(letter, at + 1)
        if at < 0:
            return None
    return 3
