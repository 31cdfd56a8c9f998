"""`forge call NAME [--param value …]`: a person runs one tool, on the same path as everybody else.

Forge's own flags may stand before or after NAME; a parameter that has the name of one goes through --args-json.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.call import Caller, Outcome
from golem_forge.core.ending_signals import ending_signals
from golem_forge.core.outcome_json import EXIT, outcome_json
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.policy.request import ApprovalRequest
    from golem_forge.workers.session import Session

HELP: Final = """usage: forge call NAME [--param value …] [--args-json JSON] [--json] [--approval MODE] [-p DIR]

Runs one tool as the entry worker of the program around this directory, else as the built-in worker here.
`forge call NAME --help` lists the tool's parameters.

  --param value     an argument of the tool (--param=value, --flag, --no-flag; repeat for lists)
  --args-json JSON  all arguments as one JSON object; `-` reads it from standard input
  --json            the whole Outcome as JSON on standard output
  --approval MODE   interactive, strict, approve_all or auto_deny
  -p, --program DIR run in that directory instead of this one

Without a terminal nobody can be asked, so a call that asks is denied.
Exit: 0 success, 1 failed, 2 bad arguments or config, 3 denied, 4 no such tool, 124 timed out, 130 interrupted,
143 terminated."""


class UsageError(Exception):
    pass


@dataclass(slots=True)
class Command:
    """What was asked for, its arguments still unread."""

    name: str = ""
    words: list[str] = field(default_factory=list)
    """The tool's own options, still unread."""
    args_json: str | None = None
    json: bool = False
    approval: str | None = None
    program: str = "."
    help: bool = False


def run(words: list[str]) -> int:
    try:
        command = parse(words)
        if command.help and command.name:
            from golem_forge.cli.tools.showing import show

            return show(command.name, command.program)
        if command.help or not command.name:
            print(HELP)
            return 0 if command.help else 2
        return asyncio.run(_call(command))
    except UsageError as error:
        print(f"forge call: {visible(str(error))}", file=sys.stderr)
        return 2


def parse(words: list[str]) -> Command:
    command = Command()
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word == "--":
            command.words += [word, *rest]
        elif word in ("-h", "--help"):
            command.help = True
        elif word == "--json":
            command.json = True
        elif flag in ("--args-json", "--approval", "-a", "--program", "-p"):
            given = value if equals else next(rest, None)
            if given is None:
                raise UsageError(f"{flag} needs a value")
            _set(command, flag, given)
        elif not command.name and not word.startswith("-"):
            command.name = word
        else:
            command.words.append(word)
    return command


def _set(command: Command, flag: str, value: str) -> None:
    from golem_forge.config.modes import ApprovalMode

    if flag == "--args-json":
        command.args_json = sys.stdin.read() if value == "-" else value
    elif flag in ("-p", "--program"):
        command.program = value
    elif value in set(ApprovalMode):
        command.approval = value
    else:
        raise UsageError(f"--approval must be one of {', '.join(ApprovalMode)}, got {visible(value)!r}")


async def _call(command: Command) -> int:
    from golem_forge.cli.plain import can_ask
    from golem_forge.workers.entry_session import entry_session
    from golem_forge.workers.trusting import NotTrusted

    callback = ask if can_ask() else None
    opened = entry_session(command.program, approval=command.approval, approval_callback=callback)
    try:
        async with opened as session:
            return await call_in(session, command)
    except NotTrusted as refused:
        print(f"forge call: {refused}", file=sys.stderr)
        return EXIT[Status.POLICY_DENIED]


async def call_in(session: Session, command: Command) -> int:
    """The call in an open session, to its end: what is printed, and the exit code."""
    for notice in session.notices_for_one_command:
        print(f"forge: {visible(notice)}", file=sys.stderr)
    told_to_end: list[signal.Signals] = []
    for number in ending_signals():
        asyncio.get_running_loop().add_signal_handler(number, _interrupt, session, number, told_to_end)
    await session.look(command.name)  # options are bound by its schema, which may be a server's to tell
    outcome = await session.call(command.name, _arguments(command, session.catalog), caller=Caller.HUMAN)
    if _runs_on(outcome):
        outcome = await _to_the_end(session, outcome, command)
    else:
        _print(outcome, command.json, session)
    _tell_left_behind(outcome, command.json)
    _note_denials(outcome, command.json)
    if outcome.status is Status.INTERRUPTED and told_to_end and told_to_end[0] is not signal.SIGINT:
        from golem_forge.ui.exit_codes import TERMINATED

        return TERMINATED
    return EXIT[outcome.status]


def ask(request: ApprovalRequest) -> dict[str, Any]:
    """Nobody is asked in most calls, so the card is loaded with the first question."""
    from golem_forge.cli.ask import ask_for_one_call

    return ask_for_one_call(request)


def _interrupt(session: Session, number: signal.Signals, told_to_end: list[signal.Signals]) -> None:
    told_to_end.append(number)
    if sys.stderr.isatty():
        print(file=sys.stderr)  # what is said next does not go on behind `^C`
    session.interrupt()


def _runs_on(outcome: Outcome) -> bool:
    value = outcome.result.value if outcome.ok and outcome.result else None
    return isinstance(value, dict) and value.get("kind") == "exec.result" and "session_id" in value


async def _to_the_end(session: Session, first: Outcome, command: Command) -> Outcome:
    """A session would end with this process, so the call lasts as long as its command."""
    from golem_forge.cli.following import followed, last_lines

    if (first.args or {}).get("tty"):
        print("forge: it runs in a terminal without a keyboard: nothing can be typed into it here.", file=sys.stderr)
    if command.json:
        last = await followed(session, first, None)
        _print(last, True, session)
        return last
    for note in first.notes:
        sys.stdout.write(_for_stdout(note))
    assert first.result is not None
    begun = first.result.value["output"]
    show = _Shown()
    show(begun)
    last = await followed(session, first, show)
    show.end_line()
    sys.stdout.write(_for_stdout(last_lines(last)))
    _complain(last, session)
    return last


class _Shown:
    """Output on its way to standard output; knows whether its last line is still open."""

    def __init__(self) -> None:
        self._open = False

    def __call__(self, text: str) -> None:
        if text:
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def end_line(self) -> None:
        if self._open:
            sys.stdout.write("\n")


def _tell_left_behind(outcome: Outcome, as_json: bool) -> None:
    """On standard error: what reads the output of a tool does not take these lines for part of it."""
    if outcome.left_lines and not as_json:
        sys.stdout.flush()
        for line in outcome.left_lines:
            print(f"forge: {line}", file=sys.stderr)


def _note_denials(outcome: Outcome, as_json: bool) -> None:
    """A command may succeed although the walls refused some of it; that is not to go unseen."""
    if outcome.ok and outcome.denials and not as_json:
        from golem_forge.sandbox.walls.denials import blocked_line

        print(f"forge: note: {visible(blocked_line(outcome.denials))}", file=sys.stderr)


def _arguments(command: Command, catalog: Any) -> Any:
    """Binding uses the tool's schema; a tool that does not exist is left to the path to refuse."""
    if command.args_json is not None:
        if command.words:
            raise UsageError("give the arguments either as --args-json or as options, not both")
        return command.args_json
    from golem_forge.core.errors import ForgeError
    from golem_forge.tools.binding import BindingError, bind_options, words_as_tokens

    try:
        tool = catalog.resolve(command.name, Caller.HUMAN)
    except ForgeError:
        return {}
    try:
        return bind_options(tool.input_schema, words_as_tokens(command.words))
    except BindingError as error:
        raise UsageError(f"{error}. `forge tools show {tool.name}` lists its parameters.") from None


def _print(outcome: Outcome, as_json: bool, session: Session) -> None:
    if as_json:
        print(json.dumps(outcome_json(outcome, session.id), ensure_ascii=sys.stdout.isatty(), default=str))
        return
    if outcome.ok:
        sys.stdout.write(_for_stdout(outcome.own_text))
        return
    if outcome.result is not None and outcome.result.text != outcome.error:
        sys.stdout.write(_for_stdout(outcome.result.text))
    _complain(outcome, session)


def _complain(outcome: Outcome, session: Session) -> None:
    if outcome.ok:
        return
    from golem_forge.cli.next_step import next_step

    sys.stdout.flush()
    print(f"forge: {outcome.status.value}: {visible(outcome.error)}", file=sys.stderr)
    if advice := next_step(outcome, session):
        print(f"forge: {advice}", file=sys.stderr)


def _for_stdout(text: str) -> str:
    """As it is into a pipe or file; on a terminal nothing may steer it."""
    text = visible(text) if sys.stdout.isatty() else text
    return text if text.endswith("\n") or not text else text + "\n"
