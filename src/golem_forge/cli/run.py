"""`forge run`, and `forge` alone: a worker on the terminal, or one answer on standard output. Reads the arguments.

A first word names a worker if it is a directory, a `.worker` or `.yaml` file or the name of one of the program's
workers; a word that is almost such a name is an error with the right one; anything else is the beginning of the input.
Arguments that contradict each other raise CommandUsageError.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.files.worker_file import worker_files, worker_places
from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import EXIT_OPTIONS, CommandUsageError, declare, exit_overrides, parser
from golem_forge.cli.web import ADDRESS_OPTIONS
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.errors import ConfigError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import closest_match, escape_control_chars
from golem_forge.storage.home import forge_home

HELP: Final = """usage: forge [run] [DIR|FILE|NAME] [INPUT…]

Starts a worker: the one of the program in DIR, of a .worker or .yaml FILE, or the worker NAME of this program. Without
any of these it starts the program in this directory or above it. Where there is no program, it starts the built-in
worker. With INPUT the worker answers once. Without INPUT, on a terminal, a conversation begins.

  -m, --model PROVIDER:NAME   the root worker's model (also FORGE_MODEL)
  -a, --approval MODE         interactive, strict, contained, plan, approve_all or auto_deny
      --reviewer PATH|MODEL   who answers small questions first: a program by its absolute path, or a model as
                              PROVIDER:NAME; `off`: nobody, whatever your config.yaml says
  -i, --input TEXT            the input; or -f, --file FILE; or words; or standard input
  -A, --attach FILE           hand a file over with the input (repeat for more)
  -p, --program DIR           run the program in that directory instead of this one
  -t, --trace LEVEL           quiet, summary, normal or debug; by default normal, headless summary
      --ui terminal|web|terminal,web
                              which UI: this terminal, a page in the browser, or both at once
      --plain                 at a terminal: line by line, without escape codes; so it is with TERM=dumb
      --host ADDR             serve the page at another address than 127.0.0.1; needs --allow-host
      --allow-host NAME       a name (or name:port) under which the page may be reached (repeat for more)
      --headless              ask nothing and deny every call that needs approval; print only the answer
      --json                  headless, one event a line on standard output, the result last
      --resume ID             go on with an earlier session; words are its input. ID is its id, the beginning of it, or
                              `last`: the latest of the program in this directory, else the latest of all
      --set KEY.PATH=VALUE    a value of forge.yaml for this run (repeat for more)
      --device NAME           let commands use nvidia, dri, kvm or a node below /dev (repeat for more)
      --socket PATH           let commands reach this Unix socket of the host; each then asks (repeat for more)
      --background            queue it in the store and return; `forge ps` and `forge inbox` show how it goes on
      --no-runner             with --background: start no runner on this machine
      --worker NAME           the worker NAME, where the first word would not be taken for it (a team's server)
      --label L               with --background: only runners with this label take it
      --priority N            with --background: from -10 (last) to 10 (first) among those that wait for a runner
      --workspace GIT[@REF]   with --background: work in a clone of its own of this repository (address or path)
                              instead of the program's `workspace`; `none`: work in the directory itself
      --dry-run               show tools, verdicts and zones (--json for programs); ask no model, start no process
      --max-cost USD          end the run before it costs more

Exit: 0 an answer, 1 the run failed, 2 usage or configuration, 3 program not trusted, 4 a limit was reached,
5 model not available, 130 interrupted, 143 terminated."""


def run(words: list[str]) -> int:
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0

    try:
        asked = parse_run_args(words)
    except CommandUsageError as error:
        print(f"forge run: {escape_control_chars(str(error))}. `forge run --help` says more.", file=sys.stderr)
        return 2
    if asked.dry_run:
        from golem_forge.cli.dry_run import print_dry_run

        return print_dry_run(asked)
    if asked.background:
        from golem_forge.cli.team.background import run_background

        return run_background(asked)
    from golem_forge.cli.run_session import start

    return run_to_exit_code(start(asked))


@dataclass(slots=True, kw_only=True)
class RunArgs:
    directory: Path
    worker: str | None = None
    """A reference of the program's; None: its entry, or the built-in worker."""
    input: str | None = None
    """None if there is no input."""
    attach: list[Path] = field(default_factory=list)
    model: str | None = None
    approval: str | None = None
    trace: str | None = None
    headless: bool = False
    json: bool = False
    plain: bool = False
    """Whether a terminal is used line by line."""
    ui: frozenset[str] = frozenset({"terminal"})
    host: str | None = None
    """The address for the page; None means this machine only."""
    allow_host: list[str] = field(default_factory=list)
    resume: str = ""
    overrides: list[str] = field(default_factory=list)
    dry_run: bool = False
    background: bool = False
    no_runner: bool = False
    label: str = ""
    priority: int = 0
    workspace: Any = None
    """The git repository that a background session gets a clone of (`team.workspace.Workspace`)."""

    @property
    def on_page(self) -> bool:
        return "web" in self.ui


def parse_run_args(words: list[str]) -> RunArgs:
    reader = declare(
        parser("run", HELP),
        *("-m,--model NAME", "-a,--approval MODE", "-i,--input TEXT", "-f,--file FILE", "-A,--attach FILE…"),
        *("-p,--program DIR", "-t,--trace quiet|summary|normal|debug", "--ui terminal|web|terminal,web|web,terminal"),
        *ADDRESS_OPTIONS,
        *EXIT_OPTIONS,
        *("--headless", "--json", "--resume ID", "--set PAIR…", "--dry-run", "--max-cost USD", "words*"),
        *("--plain", "--reviewer WHO"),
        *("--background", "--no-runner", "--worker NAME", "--label L", "--priority N", "--workspace GIT"),
    )
    end = words.index("--") if "--" in words else len(words)  # what follows is text, whatever it looks like
    given = reader.parse_intermixed_args(words[:end])
    given.words += words[end + 1 :]
    for option in ("resume", "program", "worker", "model"):
        if vars(given)[option] == "":  # of a variable that is not set: no other session or directory is meant
            raise CommandUsageError(f"--{option}: the value is empty")
    if given.resume and (given.program or given.worker or given.dry_run):
        other = "--program" if given.program else "--worker" if given.worker else "--dry-run"
        raise CommandUsageError(f"--resume keeps the directory and the settings of the session: leave {other} out")
    directory, worker, rest = (
        (_current_directory(), None, given.words) if given.resume else _target(given.program, given.worker, given.words)
    )
    if given.approval is not None and given.approval not in set(ApprovalMode):
        modes = ", ".join(ApprovalMode)
        raise CommandUsageError(f"--approval must be one of {modes}, not {escape_control_chars(given.approval)!r}")
    asked = RunArgs(
        directory=directory,
        worker=worker,
        attach=[Path(name) for name in given.attach],
        model=given.model,
        approval=given.approval,
        trace=given.trace,
        json=given.json,
        plain=given.plain or os.environ.get("TERM") == "dumb",
        ui=frozenset((given.ui or "terminal").split(",")),
        host=given.host,
        allow_host=given.allow_host,
        resume=given.resume or "",
        overrides=[
            *given.set,
            *exit_overrides(given),
            *_cost_override(given.max_cost),
            *reviewer_override(given.reviewer),
        ],
        dry_run=given.dry_run,
        background=given.background,
        no_runner=given.no_runner,
        label=given.label or "",
        priority=given.priority or 0,
        workspace=given.workspace,
    )
    _check_background(asked)
    asked.headless = given.headless or (not asked.dry_run and (given.json or not (asked.on_page or _on_terminal())))
    asked.input = _input(given.input, given.file, rest, asked.dry_run or asked.on_page)
    _check_ui(asked, given.ui)
    return asked


def reviewer_override(named: str | None) -> list[str]:
    """Converts `--reviewer` to words of `--set`. Raises CommandUsageError."""
    if named is None:
        return []
    if named == "off":
        return ["approval.reviewer={}"]
    if not named.startswith("/") and ":" not in named:
        raise CommandUsageError("--reviewer takes the absolute path of a program, PROVIDER:NAME, or `off`")
    key = "run" if named.startswith("/") else "model"
    return [f"approval.reviewer={json.dumps({key: named})}"]


def _check_background(asked: RunArgs) -> None:
    if asked.background and (asked.resume or asked.json or asked.dry_run or asked.on_page):
        raise CommandUsageError("--background queues a new session: leave --resume, --json, --dry-run and --ui out")
    if asked.background and asked.attach:
        raise CommandUsageError("--background takes no files: name them in the input, so that its tools read them")
    if (asked.no_runner or asked.label or asked.priority or asked.workspace) and not asked.background:
        raise CommandUsageError("--no-runner, --label, --priority and --workspace belong to --background")


def _check_ui(asked: RunArgs, named: str | None) -> None:
    if not asked.on_page:
        if asked.host is not None or asked.allow_host:
            raise CommandUsageError("--host and --allow-host are for a page: add --ui web")
        return
    if asked.headless or asked.dry_run:
        raise CommandUsageError(f"--ui {named} opens a page; --headless, --json and --dry-run open none")
    if "terminal" in asked.ui and not _on_terminal():
        raise CommandUsageError(f"--ui {named} needs a terminal; --ui web does not")


def _on_terminal() -> bool:
    return _is_terminal(sys.stdin) and _is_terminal(sys.stdout)


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise CommandUsageError("the directory you are in no longer exists; change to another one") from None


def _target(program: str | None, worker: str | None, words: list[str]) -> tuple[Path, str | None, list[str]]:
    base = Path(program) if program else _current_directory()
    if worker:
        return base, worker, words
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
            raise CommandUsageError(f"no such worker file or directory: {escape_control_chars(first)}")
    elif (not program and first in (".", "..")) or ((base / first).is_dir() and not program):
        return base / first, None, words[1:]
    elif not any(each.isspace() for each in first):
        names = _worker_names(base)
        if first in names:
            return base, first, words[1:]
        if len(words) == 1 and (close := closest_match(first, names)):
            raise CommandUsageError(
                f"no worker is called '{escape_control_chars(first)}' (did you mean '{close}'?); -i gives it as input"
            )
    return base, None, words


def _worker_names(base: Path) -> list[str]:
    """Returns the workers of the program around a directory; empty if it cannot be read, which the start reports."""
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
        raise CommandUsageError(f"the input was given twice: by {' and by '.join(given)}")
    if text is not None:
        return _check_utf8(text)
    if file is not None:
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", "not UTF-8")
            raise CommandUsageError(f"{escape_control_chars(file)} cannot be read as input: {why}") from None
    if words:
        return _check_utf8(" ".join(words))
    if without_stdin or sys.stdin is None or _is_terminal(sys.stdin):
        return None
    try:
        return sys.stdin.buffer.read().decode()  # whatever the locale says: a model reads Unicode
    except UnicodeDecodeError:
        raise CommandUsageError("standard input is not UTF-8") from None


def _check_utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CommandUsageError("the input is not UTF-8") from None
    return text


def _cost_override(given: str | None) -> list[str]:
    if given is None:
        return []
    try:
        usd = float(given)
    except ValueError:
        usd = math.nan
    if not 0 < usd < math.inf:
        raise CommandUsageError(f"--max-cost takes an amount of USD above 0, not {escape_control_chars(given)!r}")
    return [f"budget.max_cost_usd={usd}"]


def _is_terminal(stream: object) -> bool:
    return bool(stream is not None and getattr(stream, "isatty", bool)())
