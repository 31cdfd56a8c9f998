"""The words after `forge run`, read: which worker, which input, how. Refuses (UsageError) what contradicts itself.

A first word names a worker if it is a directory, a `.worker` or `.yaml` file or the name of one of the program's
workers; a word that is almost such a name is an error with the right one, anything else is the beginning of the input.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from golem_forge.cli.plain import parser
from golem_forge.cli.run import HELP
from golem_forge.cli.web.words import add_reach
from golem_forge.config.modes import ApprovalMode
from golem_forge.core.nearest import nearest
from golem_forge.core.visible import visible

_TRACES = ("quiet", "summary", "normal", "debug")
_UIS = ("terminal", "web", "terminal,web", "web,terminal")


class UsageError(Exception):
    pass


@dataclass(slots=True, kw_only=True)
class Asked:
    directory: Path
    worker: str | None = None
    """A reference of the program's; None: its entry, or the built-in worker."""
    input: str | None = None
    """None: nothing was said."""
    attach: list[Path] = field(default_factory=list)
    model: str | None = None
    approval: str | None = None
    trace: str | None = None
    headless: bool = False
    json: bool = False
    ui: frozenset[str] = frozenset({"terminal"})
    host: str | None = None
    """Where the page is served; None: on this machine only."""
    allow_host: list[str] = field(default_factory=list)
    resume: str = ""
    overrides: list[str] = field(default_factory=list)
    dry_run: bool = False

    @property
    def on_page(self) -> bool:
        return "web" in self.ui


def read_words(words: list[str]) -> Asked:
    reader = parser("run", HELP)
    reader.add_argument("-m", "--model")
    reader.add_argument("-a", "--approval")
    reader.add_argument("-i", "--input")
    reader.add_argument("-f", "--file")
    reader.add_argument("-A", "--attach", action="append", default=[])
    reader.add_argument("-p", "--program")
    reader.add_argument("-t", "--trace", choices=_TRACES)
    reader.add_argument("--ui", choices=_UIS)
    add_reach(reader)
    reader.add_argument("--headless", action="store_true")
    reader.add_argument("--json", action="store_true")
    reader.add_argument("--resume", default="")
    reader.add_argument("--set", action="append", default=[])
    reader.add_argument("--dry-run", action="store_true")
    reader.add_argument("--max-cost")
    reader.add_argument("words", nargs="*")
    end = words.index("--") if "--" in words else len(words)  # what follows is text, whatever it looks like
    given = reader.parse_intermixed_args(words[:end])
    given.words += words[end + 1 :]
    if given.resume and (given.program or given.dry_run):
        other = "--program" if given.program else "--dry-run"
        raise UsageError(f"--resume goes on where the session was, with what it had: leave {other} out")
    directory, worker, rest = (_here(), None, given.words) if given.resume else _target(given.program, given.words)
    asked = Asked(
        directory=directory,
        worker=worker,
        attach=[Path(name) for name in given.attach],
        model=given.model,
        approval=_mode(given.approval),
        trace=given.trace,
        json=given.json,
        ui=frozenset((given.ui or "terminal").split(",")),
        host=given.host,
        allow_host=given.allow_host,
        resume=given.resume,
        overrides=[*given.set, *_cost(given.max_cost)],
        dry_run=given.dry_run,
    )
    asked.headless = given.headless or (not asked.dry_run and (given.json or not (asked.on_page or _on_terminal())))
    asked.input = _input(given.input, given.file, rest, asked.dry_run or asked.on_page)
    _check_ui(asked, given.ui)
    return asked


def _check_ui(asked: Asked, named: str | None) -> None:
    if not asked.on_page:
        if asked.host is not None or asked.allow_host:
            raise UsageError("--host and --allow-host are for a page: add --ui web")
        return
    if asked.headless or asked.dry_run:
        raise UsageError(f"--ui {named} shows a page; --headless, --json and --dry-run show none")
    if "terminal" in asked.ui and not _on_terminal():
        raise UsageError(f"--ui {named} needs a terminal; --ui web does without")


def _on_terminal() -> bool:
    return _is_terminal(sys.stdin) and _is_terminal(sys.stdout)


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the directory you are in no longer exists; change to another one") from None


def _target(program: str | None, words: list[str]) -> tuple[Path, str | None, list[str]]:
    base = Path(program) if program else _here()
    if not words:
        return base, None, []
    first = words[0]
    if first.endswith((".worker", ".yaml", ".yml")) or os.sep in first:
        path = base / first
        if path.is_dir() and not program:
            return path, None, words[1:]
        if path.is_file():
            return (base if program else path.absolute().parent), str(path.absolute()), words[1:]
        if not any(each.isspace() for each in first):
            raise UsageError(f"no such worker file or directory: {visible(first)}")
    elif (not program and first in (".", "..")) or ((base / first).is_dir() and not program):
        return base / first, None, words[1:]
    elif not any(each.isspace() for each in first):
        names = _worker_names(base)
        if first in names:
            return base, first, words[1:]
        if len(words) == 1 and (close := nearest(first, names)):
            raise UsageError(f"no worker is called '{visible(first)}' (did you mean '{close}'?); -i gives it as input")
    return base, None, words


def _worker_names(base: Path) -> list[str]:
    """Of the program around a directory, as far as it can be read; what is wrong with it is said when it is started."""
    from golem_forge.config.home import forge_home
    from golem_forge.core.errors import ConfigError
    from golem_forge.workers.references import worker_files, worker_places
    from golem_forge.workers.tree import read_program
    from golem_forge.workers.trust_cover import trust_store

    home = forge_home()
    try:
        program = read_program(base, home, trust_store(home))
        return [path.stem for path in worker_files(worker_places(program.root, program.run.worker_paths))]
    except ConfigError:
        return []


def _input(text: str | None, file: str | None, words: list[str], without_stdin: bool) -> str | None:
    ways = {"--input": text, "--file": file, "words": words or None}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"the input was given twice: by {' and by '.join(given)}")
    if text is not None:
        return _sound(text)
    if file is not None:
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", "not UTF-8")
            raise UsageError(f"{visible(file)} cannot be read as input: {why}") from None
    if words:
        return _sound(" ".join(words))
    if without_stdin or sys.stdin is None or _is_terminal(sys.stdin):
        return None
    try:
        return sys.stdin.buffer.read().decode()  # whatever the locale says: a model reads Unicode
    except UnicodeDecodeError:
        raise UsageError("standard input is not UTF-8") from None


def _sound(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the input is not UTF-8") from None
    return text


def _mode(given: str | None) -> str | None:
    if given is not None and given not in set(ApprovalMode):
        raise UsageError(f"--approval must be one of {', '.join(ApprovalMode)}, not {visible(given)!r}")
    return given


def _cost(given: str | None) -> list[str]:
    if given is None:
        return []
    try:
        usd = float(given)
    except ValueError:
        usd = math.nan
    if not 0 < usd < math.inf:
        raise UsageError(f"--max-cost takes an amount of USD above 0, not {visible(given)!r}")
    return [f"budget.max_cost_usd={usd}"]


def _is_terminal(stream: object) -> bool:
    return bool(stream is not None and getattr(stream, "isatty", bool)())
