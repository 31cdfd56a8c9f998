"""The menu below the input line: commands while `/` begins the line, files of the zones while `@` begins a word.

`Menu.typed` takes the text before the cursor after each change of it; `lines` gives the rows to draw, `taken` the text
to put into the line and how many characters it replaces. Typing never waits for it: files are listed in a task of
their own, once for a while, and what comes late is drawn when it comes. A source that fails offers nothing.
Commands are found by the beginning of their name, then by any part of it; files by the letters typed, in their order.
Threat: names of files, tools and prompts are other people's. Each is one line, escaped, and nothing is sent by taking
one: the person still presses Enter.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from golem_forge.agent.slash.commands import BUILT_IN_COMMANDS
from golem_forge.core.text import slash_command
from golem_forge.ui.render.lines import fit_width, one_line, width_of
from golem_forge.ui.terminal.input_line import CompletionSources, quoted_word
from golem_forge.ui.terminal.tty import StyledLine

MAX_ROWS: Final = 8
_MAX_FOUND: Final = 100
_FILES_FRESH_S: Final = 10.0
_MAX_NAME_COLUMNS: Final = 32
_KEYS: Final = "↑↓ choose · Tab or Enter takes · Esc closes"
_LOOKING: Final = "looking for files …"

_log = logging.getLogger(__name__)


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
