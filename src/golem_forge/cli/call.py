"""`forge call NAME [--param value …]`: a person runs one tool, on the same path as everybody else.

Forge's own flags may stand before or after NAME; a parameter with the name of one of them goes through --args-json. A
command that outlives its call is followed to its end: its output is read with `write_stdin` on the one path (judged,
redacted, bounded, recorded). The command's own time limit holds; an interrupt ends the command, and that is the
outcome. `next_step` says what a person can do about a call that failed, in one sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.session import entry_session
from golem_forge.agent.session_plan import has_entry
from golem_forge.agent.trust import NotTrusted
from golem_forge.cli.command import CommandUsageError, print_json, print_notices, step_drawer
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.calls import EXIT_CODES, Caller, Outcome, outcome_json
from golem_forge.core.decisions import AnsweredBy, Status
from golem_forge.core.effects import Mark
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.signals import run_to_exit_code, termination_signals
from golem_forge.core.text import escape_control_chars
from golem_forge.orchestrator.bound_output import with_handles
from golem_forge.sandbox.walls.denials import blocked_line
from golem_forge.storage.home import forge_home
from golem_forge.tools.cli_args import BindingError, bind_options, words_as_tokens
from golem_forge.toolsets.exec.result import command_status
from golem_forge.toolsets.exec.sessions import ExecSessions
from golem_forge.ui.line_terminal import can_ask
from golem_forge.usertools.diagnostics import name_problem

if TYPE_CHECKING:
    from golem_forge.agent.session import Session
    from golem_forge.policy.request import ApprovalRequest
    from golem_forge.toolsets.exec.sessions import RunningCommand

HELP: Final = """usage: forge call NAME [--param value …] [--args-json JSON] [--json] [--approval MODE] [-p DIR]

Runs one tool with the tools, zones and rules of the program in this directory or above it. Without a program it uses
the built-in worker.
`forge call NAME --help` lists the tool's parameters.

  --param value     an argument of the tool (--param=value, --flag, --no-flag; repeat for lists)
  --args-json JSON  all arguments as one JSON object; `-` reads it from standard input
  --json            the whole Outcome as JSON on standard output
  --approval MODE   interactive, strict, contained, plan, approve_all or auto_deny
  -p, --program DIR run in that directory instead of this one

Without a terminal Forge cannot ask you, so it denies every call that needs approval.
Exit: 0 success, 1 failed, 2 bad arguments or config, 3 denied, 4 no such tool, 124 timed out, 130 interrupted,
143 terminated."""


@dataclass(slots=True)
class CallCommand:
    name: str = ""
    options: list[str] = field(default_factory=list)
    """The tool's own options, not parsed yet."""
    args_json: str | None = None
    json: bool = False
    approval: str | None = None
    program: str = "."
    help: bool = False


def run(words: list[str]) -> int:
    try:
        command = parse(words)
        if command.help and command.name:
            from golem_forge.cli.tools.show import show

            return show(command.name, command.program)
        if command.help or not command.name:
            print(HELP)
            return 0 if command.help else 2
        return run_to_exit_code(_call(command))
    except CommandUsageError as error:
        print(f"forge call: {escape_control_chars(str(error))}", file=sys.stderr)
        return 2


def parse(words: list[str]) -> CallCommand:
    command = CallCommand()
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if word == "--":
            command.options += [word, *rest]
        elif word in ("-h", "--help"):
            command.help = True
        elif word == "--json":
            command.json = True
        elif flag in ("--args-json", "--approval", "-a", "--program", "-p"):
            given = value if equals else next(rest, None)
            if given is None:
                raise CommandUsageError(f"{flag} needs a value")
            _set(command, flag, given)
        elif not command.name and not word.startswith("-"):
            command.name = word
        else:
            command.options.append(word)
    return command


def _set(command: CallCommand, flag: str, value: str) -> None:
    if flag == "--args-json":
        command.args_json = sys.stdin.read() if value == "-" else value
    elif flag in ("-p", "--program"):
        command.program = value
    elif value in set(ApprovalMode):
        command.approval = value
    else:
        modes = ", ".join(ApprovalMode)
        raise CommandUsageError(f"--approval must be one of {modes}, got {escape_control_chars(value)!r}")


async def _call(command: CallCommand) -> int:
    callback = ask_person if can_ask() else None
    try:
        async with entry_session(command.program, approval=command.approval, approval_callback=callback) as session:
            return await call_in_session(session, command)
    except NotTrusted as refused:
        print(f"forge call: {refused}", file=sys.stderr)
        return EXIT_CODES[Status.POLICY_DENIED]


async def call_in_session(session: Session, command: CallCommand) -> int:
    """The call in an open session, to its end: what is printed, and the exit code."""
    print_notices(session)
    if session.user_tools is not None:
        workshop = session.user_tools.workshop
        workshop.report, workshop.on_step = _print_report, step_drawer()
    told_to_end: list[signal.Signals] = []
    for number in termination_signals():
        asyncio.get_running_loop().add_signal_handler(number, _interrupt, session, number, told_to_end)
    await session.look(command.name)
    if command.args_json is None:  # options are bound by the tool's schema, which may be a server's to tell
        with contextlib.suppress(ForgeError):  # the call says it
            await session.path.wait_for_tool(command.name, Caller.HUMAN)
    outcome = await session.call(command.name, _arguments(command, session.catalog), caller=Caller.HUMAN)
    value = outcome.result.value if outcome.ok and outcome.result else None
    if isinstance(value, dict) and value.get("kind") == "exec.result" and "session_id" in value:  # it still runs
        outcome = await _follow_to_end(session, outcome, command)
    else:
        _print(outcome, command.json, session)
    if not command.json:
        _print_remarks(outcome)
    if outcome.status is Status.INTERRUPTED and told_to_end and told_to_end[0] is not signal.SIGINT:
        from golem_forge.ui.session_ui import TERMINATED

        return TERMINATED
    return EXIT_CODES[outcome.status]


def ask_person(request: ApprovalRequest) -> dict[str, Any]:
    """Asks a person. The card is loaded with the first question, because most calls ask nobody."""
    from golem_forge.ui.approval_prompt import ask_for_one_call

    return ask_for_one_call(request)


def _print_report(kind: str, text: str) -> None:
    """Prints the progress and problems of a tool's preparation, for a person who waits."""
    text = f"warning: {text}" if kind == "warning" else text
    print(f"forge: {escape_control_chars(text)}", file=sys.stderr, flush=True)


def _interrupt(session: Session, number: signal.Signals, told_to_end: list[signal.Signals]) -> None:
    told_to_end.append(number)
    if sys.stderr.isatty():
        print(file=sys.stderr)  # what is said next does not go on behind `^C`
    session.interrupt()


async def _follow_to_end(session: Session, first: Outcome, command: CallCommand) -> Outcome:
    """A session would end with this process, so the call lasts as long as its command."""
    if (first.args or {}).get("tty"):
        print("forge: the command runs in a terminal without a keyboard. You cannot type into it.", file=sys.stderr)
    if command.json:
        last = await follow_command(session, first, None)
        _print(last, True, session)
        return last
    for note in first.notes:
        sys.stdout.write(_for_stdout(note))
    assert first.result is not None
    show = _OutputStream()
    show(first.result.value["output"])
    last = await follow_command(session, first, show)
    show.end_line()
    sys.stdout.write(_for_stdout(last_lines(last)))
    _print_failure(last, session)
    return last


class _OutputStream:
    """Output on its way to standard output; knows whether its last line is still open."""

    def __init__(self) -> None:
        self._open = False

    def __call__(self, text: str) -> None:
        if text:
            sys.stdout.write(escape_control_chars(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
            self._open = not text.endswith("\n")

    def end_line(self) -> None:
        if self._open:
            sys.stdout.write("\n")


def _print_remarks(outcome: Outcome) -> None:
    """Prints what a command left behind, and what the walls refused although it succeeded. On standard error, so that
    nobody takes these lines for output of the tool.
    """
    if outcome.leftover_texts:
        sys.stdout.flush()
        for line in outcome.leftover_texts:
            print(f"forge: {line}", file=sys.stderr)
    if outcome.ok and outcome.denials:
        print(f"forge: note: {escape_control_chars(blocked_line(outcome.denials))}", file=sys.stderr)


def _arguments(command: CallCommand, catalog: Any) -> Any:
    """Binding uses the tool's schema; a tool that does not exist is left to the path to refuse."""
    if command.args_json is not None:
        if command.options:
            raise CommandUsageError("give the arguments either as --args-json or as options, not both")
        return command.args_json
    try:
        tool = catalog.resolve(command.name, Caller.HUMAN)
    except ForgeError:
        return {}
    try:
        return bind_options(tool.input_schema, words_as_tokens(command.options))
    except BindingError as error:
        raise CommandUsageError(f"{error}. `forge tools show {tool.name}` lists its parameters.") from None


def _print(outcome: Outcome, as_json: bool, session: Session) -> None:
    if as_json:
        print_json(outcome_json(outcome, session.id), indent=None)
        return
    if outcome.ok:
        sys.stdout.write(_for_stdout(with_handles(outcome.text_without_leftovers, outcome.result, outcome.media)))
        return
    if outcome.result is not None and outcome.result.text != outcome.error:
        sys.stdout.write(_for_stdout(outcome.result.text))
    _print_failure(outcome, session)


def _print_failure(outcome: Outcome, session: Session) -> None:
    if outcome.ok:
        return
    sys.stdout.flush()
    print(f"forge: {outcome.status.value}: {escape_control_chars(outcome.error)}", file=sys.stderr)
    if advice := next_step(outcome, session):
        print(f"forge: {advice}", file=sys.stderr)


def _for_stdout(text: str) -> str:
    """Returns text unchanged for a pipe or file; control characters are escaped for a terminal."""
    text = escape_control_chars(text) if sys.stdout.isatty() else text
    return text if text.endswith("\n") or not text else text + "\n"


_SOONEST_MS: Final = 200
_LATEST_MS: Final = 2_000
"""Maximum pause between two reads while there is no output."""
_PATIENT_MS: Final = 300_000
"""The pause if each read asks a person, or only the end is wanted."""
_MOST_TOKENS: Final = 50_000
_LOOK_EVERY_S: Final = 0.2
"""Seconds until an interrupt is noticed while a command runs that must not be read."""


async def follow_command(session: Session, first: Outcome, show: Callable[[str], None] | None) -> Outcome:
    """`show` is given the output as it comes; without it, the outcome has all of it."""
    assert first.result is not None
    number: int = first.result.value["session_id"]
    running = session.path.parts.get(ExecSessions).find(number, session.path.worker)
    if running is None:
        return first
    tokens = (first.args or {}).get("max_output_tokens", 10_000) if show is None else _MOST_TOKENS
    last = await _read_to_the_end(session, running, tokens, show)
    return replace(
        last,
        call=first.call,
        tool=first.tool,
        args=first.args,
        decision=first.decision,
        notes=first.notes if show is None else (),
        duration_ms=running.seconds * 1e3,
    )


def last_lines(outcome: Outcome) -> str:
    """Returns the last lines of the result, without the output that was already shown."""
    text = outcome.result.text if outcome.result and outcome.result.text else ""
    return "\n".join(takewhile(lambda line: not line.startswith("Output ("), text.splitlines()))


async def _read_to_the_end(
    session: Session, running: RunningCommand, tokens: int, show: Callable[[str], None] | None
) -> Outcome:
    patient = show is None or session.path.judge.mode is ApprovalMode.STRICT
    wait = _PATIENT_MS if patient else _SOONEST_MS
    while True:
        if show is None:
            running.delivered = 0  # the last report has the whole output, and says so in one piece
        asked = {"session_id": running.number, "yield_time_ms": wait, "max_output_tokens": tokens}
        report = await session.call("write_stdin", asked, caller=Caller.HUMAN)
        said: dict[str, Any] = report.result.value if report.executed and report.result is not None else {}
        if show is not None:
            show(said.get("output", ""))
        if session.path.signal:
            await running.end()
            session.reset()
            continue
        if not report.executed:  # a rule or mode does not let it be read; how it ended is known all the same
            while running.ending is None:
                await running.wait(_LOOK_EVERY_S)
                if session.path.signal:
                    await running.end()
                    session.reset()
            return _end_outcome(running, report)
        if "session_id" not in said:
            return report
        if report.decision is not None and report.decision.answered_by is AnsweredBy.PERSON:
            patient = True
        wait = _PATIENT_MS if patient else _SOONEST_MS if said.get("bytes") else min(2 * wait, _LATEST_MS)


def _end_outcome(running: RunningCommand, unread: Outcome) -> Outcome:
    ended = command_status(running.ending, session=running.number, timeout_s=running.timeout_s)
    error = "" if ended.status.value == "success" else ended.line
    after = running.walled.aftermath()
    return replace(
        unread,
        status=ended.status,
        code=ended.code,
        error=error,
        result=None,
        denials=after.denials,
        protected_created=after.protected_created,
        leftovers=after.leftovers,
    )


def next_step(outcome: Outcome, session: Session) -> str:
    if outcome.status is Status.TOOL_NOT_FOUND:
        return _where_to_find_tools(outcome, session)
    if outcome.code == "NOT_CONNECTED":
        return f"`forge mcp test {outcome.call.name.partition('__')[0]}` tries it and says more."
    if outcome.status is Status.INPUT_INVALID:
        return f"`forge tools show {outcome.tool}` lists its parameters."
    if (
        outcome.status is Status.APPROVAL_DENIED
        and outcome.decision
        and not outcome.decision.message.startswith("Denied")
        # no rule lifts distrust, and its text says what does
        and all(source.id != Mark.DEFINITION_CHANGED for source in outcome.decision.sources)
    ):
        if outcome.decision.only_a_person:
            return "run it on a terminal to be asked: no mode and no rule answers this one."
        return "run it on a terminal to be asked, or use --approval approve_all, or add a rule (`forge rules --help`)."
    if outcome.status is Status.POLICY_DENIED:
        return "`forge rules explain` shows which rule or zone decides."
    return ""


def _where_to_find_tools(outcome: Outcome, session: Session) -> str:
    name = outcome.call.name
    if "run: forge mcp" in outcome.error:  # a server's tool that changed
        return ""
    tool = session.catalog.get(name)
    if tool is not None and tool.mode == "llm":
        return f"'{name}' is for models only; `@tool(mode=\"both\")` lets people call it too."
    if has_entry(session.program):
        shows = "`forge run --dry-run` shows the tools of this program's worker."
        folder = forge_home().path / "tools" / name
        if not name_problem(name) and folder.is_dir() and "run_custom_tool" not in session.catalog:
            how = "write `user_tools:` under `toolsets` in its file"
            return f"'{name}' is a tool of yours, and the worker here has none of them: {how}. {shows}"
        return shows
    return "`forge tools list` shows all tools."
