"""What every verb shares: reads its words, prints its result, fails with its exit code.

`read_args`, `parser` and `declare` read the arguments. A group of sub-verbs (`forge tools …`, `forge mcp …`) gives its
verbs as verb → (module in the group's package, what it does); the module's function is `run_<verb>`, and only the
module of the named verb is imported (`run_verb`).

Output: aligned columns, JSON, CSV, progress, error lines. Text of others (names, descriptions, arguments) is escaped,
so that nothing printed can steer a terminal.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from golem_forge.core.regex import regex
from golem_forge.core.text import GAP, display_path, escape_control_chars, nearest_remark, one_line, shorten
from golem_forge.storage.home import HOME_ADVICE, forge_home

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _ActionsContainer

    from golem_forge.agent.session import Session

Declared = TypeVar("Declared", bound="_ActionsContainer")
_TYPES: Final = {"N": int, "S": float, "DOLLARS": float}

FAILED: Final = 1
USAGE: Final = 2
DENIED: Final = 3
NOT_FOUND: Final = 4
BY_FLAG: Final = "command line (--yes)"
BY_PERSON: Final = "person"
"""The recorded source of an approval."""

_TELEMETRY_S: Final = 0.5

Verbs = Mapping[str, tuple[str, str]]


class CommandUsageError(Exception):
    """Raised for contradictory or invalid arguments."""


def parser(verb: str, text: str) -> ArgumentParser:
    """A parser whose help is `text`, written by hand: people read one page, not generated fragments of it."""
    from argparse import ArgumentParser, HelpFormatter

    def formatter(prog: str) -> HelpFormatter:
        return HelpFormatter(prog, width=120)  # asking for the terminal's width would load what nothing else here needs

    class Parser(ArgumentParser):
        def format_help(self) -> str:
            return text + "\n"

        def error(self, message: str) -> NoReturn:
            print(f"{self.prog}: {escape_control_chars(message)}. `{self.prog} --help` says more.", file=sys.stderr)
            raise SystemExit(2)

    return Parser(prog=f"forge {verb}", allow_abbrev=False, formatter_class=formatter)


def read_args(verb: str, text: str, words: list[str], *declared: str, **defaults: Any) -> Namespace:
    """Parses the arguments; ends the process with code 2 and a sentence if they are wrong."""
    reader = declare(parser(verb, text), *declared)
    reader.set_defaults(**defaults)
    return reader.parse_args(words)


def declare(reader: Declared, *declared: str) -> Declared:
    """Adds arguments to a parser or a group of one, each written as in a usage line:

    `NAME`, `NAME?`, `NAME*`, `NAME+` stand for themselves, and `names:NAME+` is kept as `names`; `--json` is a flag;
    `-p,--program DIR` takes a value (a whole number for `N`, seconds for `S`), `--mode a|b` one of these, and
    `--set PAIR…` any number of them.
    """
    for each in declared:
        names, _, value = each.partition(" ")
        if not names.startswith("-"):
            name, _, shown = names.rpartition(":")
            metavar = shown.rstrip("?*+")
            reader.add_argument(name or metavar.lower(), metavar=metavar, nargs=shown[len(metavar) :] or None)
        elif not value:
            reader.add_argument(*names.split(","), action="store_true")
        elif value.endswith("…"):
            reader.add_argument(*names.split(","), action="append", default=[])
        else:
            choices = value.split("|") if "|" in value else None
            reader.add_argument(*names.split(","), choices=choices, type=_TYPES.get(value, str))
    return reader


EXIT_OPTIONS: Final = ("--device NAME…", "--socket PATH…")


def exit_overrides(given: Namespace) -> list[str]:
    """`--device` and `--socket` as the overrides that they stand for."""
    sockets = [os.path.abspath(os.path.expanduser(path)) for path in given.socket]
    lists = {"devices": given.device, "sockets": sockets}
    return [f"sandbox.{key}={json.dumps(names)}" for key, names in lists.items() if names]


def run_verb(group: str, package: str, verbs: Verbs, words: list[str], usage: str) -> int:
    """`package`: where the modules of the group are, `golem_forge.cli.tools`."""
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if verb in ("", "-h", "--help"):
        print(usage)
        return 0 if verb else 2
    if verb not in verbs:
        return fail(group, f"unknown verb '{verb}'{nearest_remark(verb, verbs)}. `forge {group} --help` lists them.", 2)
    module = import_module(f"{package}.{verbs[verb][0]}")
    return int(getattr(module, f"run_{verb.replace('-', '_')}")(rest))


def usage_of(group: str, verbs: Verbs, thing: str) -> str:
    """`thing`: what exit code 4 says there is none of."""
    width = max(map(len, verbs))
    lines = "\n".join(f"  {verb:<{width}}  {does}" for verb, (_, does) in verbs.items())
    return (
        f"usage: forge {group} VERB …\n\n{lines}\n\n"
        f"forge {group} VERB --help says more.\n"
        f"Exit: 0 done, 1 it failed, 2 usage or configuration, 3 denied, 4 no such {thing}."
    )


def print_columns(rows: Callable[[], Iterable[Sequence[str]]]) -> None:
    """Prints a table whose rows are too many for memory: it reads them twice, first for the widths."""
    widths: list[int] = []
    for row in rows():
        measured = [len(one_line(cell)) for cell in row[:-1]]
        widths = [max(pair) for pair in zip_longest(widths, measured, fillvalue=0)]
    for row in rows():
        *cells, last = (one_line(cell) for cell in row)
        print(GAP.join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), last]).rstrip())


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Real characters into a pipe or file; on a terminal, and where the stream cannot hold the text, escapes."""
    print(_json_text(value, indent))


def print_json_list(items: Iterable[Any]) -> None:
    """A list the same way, printed one by one as they come."""
    before = "["
    for item in items:
        print(before, _json_text(item).replace("\n", "\n  "), sep="\n  ", end="")
        before = ","
    print("[]" if before == "[" else "\n]")


_FORMULA: Final = regex("(^|;) *(?=[=+@\uff1d\uff0b\uff0d\uff20-])")


def print_csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """RFC 4180, one line a row. Threat: a spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula,
    and may take `;` for the end of a cell; such a place begins with an apostrophe, which makes it text."""
    import csv

    def text(cell: str) -> str:
        return _FORMULA.sub(r"\g<0>'", one_line(cell))

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([text(cell) for cell in row] for row in rows)


def _json_text(value: Any, indent: int | None = 2) -> str:
    text = json.dumps(value, ensure_ascii=sys.stdout.isatty(), indent=indent, default=str)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, indent=indent, default=str)
    return text


@contextmanager
def progress_message(text: str) -> Iterator[None]:
    """A line to a person who waits at a terminal, gone when the wait is over."""
    shown = sys.stderr is not None and sys.stderr.isatty()
    if shown:
        print(escape_control_chars(text), end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            clear_progress()


def clear_progress() -> None:
    """Takes such a line away, for another one to stand there."""
    if sys.stderr is not None and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def draw_step(text: str, seconds: int | None) -> None:
    """Draws one line on the terminal about a slow step, with the seconds; None removes the line."""
    clear_progress()
    if seconds is not None:
        counted = f" {seconds} s" if seconds else ""
        width = max(20, shutil.get_terminal_size().columns - len(counted) - 1)
        print(shorten(one_line(text), width) + counted, end="", file=sys.stderr, flush=True)


def step_drawer() -> Callable[[str, int | None], None] | None:
    """Returns the drawer; None if standard error is no terminal, so that lines are written instead."""
    return draw_step if sys.stderr is not None and sys.stderr.isatty() else None


_REFUSALS: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
_NO_ROOM: Final = (errno.ENOENT, errno.ENOSPC, errno.EDQUOT)


def describe_os_error(error: OSError) -> str:
    """Describes an OSError. A file is named without its host path. For a problem with FORGE_HOME, its path and the
    advice are given.
    """
    why = error.strerror or type(error).__name__
    name = error.filename if isinstance(error.filename, str | bytes) else ""  # it may be the number of a handle
    path, home = Path(os.fsdecode(name)), forge_home().path
    if error.errno in _REFUSALS and not path.is_absolute() and home.is_dir() and not os.access(home, os.W_OK):
        path = home  # it was named inside a directory that was open
    if not path.name:
        return why
    keeps = path == home or home in path.parents or (path in home.parents and not home.exists())
    if keeps and error.errno in (*_REFUSALS, *_NO_ROOM):
        return f"{display_path(path)}: {why}. Forge keeps its files there; {HOME_ADVICE}."
    return f"'{path.name}': {why}"


def print_notices(session: Session) -> None:
    """Prints what a session for a single command has to say when it opens."""
    for notice in session.notices_for_one_command:
        print(f"forge: {escape_control_chars(notice)}", file=sys.stderr)


def exit_now() -> NoReturn:
    """Ends the process without the interpreter's own shutdown, which would wait for the thread that reads standard
    input, or longer than clients were promised. Everything is closed and on disk by now; telemetry gets half a second.
    """
    if (telemetry := sys.modules.get("golem_forge.events.telemetry")) is not None:
        telemetry.close_telemetry(_TELEMETRY_S)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


def first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def shell_text(words: Sequence[str]) -> str:
    """The command that the words after `--` stand for: a single word is a shell's text, several are quoted."""
    from golem_forge.policy.shell.strict import quote

    return words[0] if len(words) == 1 else " ".join(map(quote, words))


def print_error(verb: str, text: str) -> None:
    """One line (or more) for the person, on standard error, so that standard output stays the answer."""
    print(f"forge {verb}: {escape_control_chars(text)}", file=sys.stderr)


def fail(verb: str, text: str, code: int) -> int:
    """Prints the reason and returns the exit code."""
    print_error(verb, text)
    return code
