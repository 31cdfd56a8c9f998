"""Commands that run as sessions: each watched until it ends, numbered once it outlives its call, ended with the Forge
session; and write_stdin, which reads, signals and types into them.

`ExecSessions` is kept in the session's parts. A number belongs to whoever's call started it (a worker, and of a served
session one client); for everybody else it does not exist. At most 64 run at once, the last 64 that ended can still be
read.

write_stdin finds the session, evaluates the line, and only then delivers the characters. Reading, a signal, and Ctrl-C
or Ctrl-D alone run unasked. Everything else asks, unless the person allowed input to this session; a line with danger,
or one whose content is not known for sure, asks in any case.

A line is evaluated whole: a newline or carriage return submits it, unless a shell would go on reading the same command
on the next line. Threat: a dangerous line sent in pieces, over several lines, or after an interrupt that the program
may or may not have obeyed; so every possible reading of the line is evaluated.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import AtMost, Effect, Mark, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.policy.containment import outside_needs
from golem_forge.policy.facts import CommandFacts, SandboxWorld, danger_commands
from golem_forge.policy.shell.lenient import find_commands
from golem_forge.sandbox.process.monitor import ENDED, TIMEOUT, ExitStatus
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.live_output import show_live_output
from golem_forge.toolsets.exec.environment import PRIVATE_DIRECTORY
from golem_forge.toolsets.exec.result import report

if TYPE_CHECKING:
    from golem_forge.config.sandbox_block import HostCredential
    from golem_forge.sandbox.process.child import Child
    from golem_forge.sandbox.walls.walls import WalledChild
    from golem_forge.toolsets.git.signer import CommandSigning

MAX_RUNNING: Final = 64
MAX_ENDED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    owner: str
    """The owner; see `ToolContext.owner`."""
    tty: bool
    timeout_s: float
    no_walls: bool = False
    """Walls are off, or open for a socket: typing into it is then as grave as starting it was."""
    no_walls_because: str = ""
    """The reason; see `Effect.no_walls_because`."""
    hosts: bool = False
    outside: bool = False
    """Whether it runs outside the walls, by a person's answer to it alone."""
    text: str = ""
    """The command, for a hint about what it would have needed."""
    signing: CommandSigning | None = None
    """None if commits are not signed for it."""
    credentials: tuple[HostCredential, ...] = ()
    """Credentials that commands of this session could use, for the same hint."""


class RunningCommand:
    """One started command, from its start until nobody can ask for it any more."""

    def __init__(self, walled: WalledChild, kind: CommandSpec) -> None:
        self.walled = walled
        self.owner = kind.owner
        self.tty = kind.tty
        self.timeout_s = kind.timeout_s
        self.no_walls, self.no_walls_because = kind.no_walls, kind.no_walls_because
        self.outside = kind.outside
        self.signing = kind.signing
        self.offline = not kind.hosts and not kind.no_walls
        self.text = kind.text
        self.credentials = kind.credentials
        self.contained = False
        """Nobody was asked about its start, so its walls hold what could not be undone."""
        self.number = 0
        """0 while its first call still waits for it."""
        self.delivered = 0
        """How much of its output was handed out, in bytes."""
        self.input = PendingInput()
        self.waiters = 0
        """How many calls wait for it now, and will report its end."""
        self._started = time.monotonic()
        self._watch = asyncio.ensure_future(self._watch_to_end())

    @property
    def child(self) -> Child:
        return self.walled.child

    @property
    def ending(self) -> ExitStatus | None:
        return self._watch.result() if self._watch.done() and not self._watch.cancelled() else None

    @property
    def seconds(self) -> float:
        ending = self.ending
        return time.monotonic() - self._started if ending is None else ending.seconds

    async def wait(self, seconds: float) -> None:
        self.waiters += 1
        try:
            await asyncio.wait((self._watch,), timeout=seconds)
        finally:
            self.waiters -= 1

    async def ended(self) -> None:
        """Returns when it has ended and what it left was looked at."""
        await asyncio.wait((self._watch,))

    async def end(self) -> None:
        """Ends the whole tree; goes on doing so even if the caller itself is cancelled meanwhile."""
        await asyncio.shield(asyncio.ensure_future(self.child.end(ENDED)))
        await asyncio.shield(self._watch)

    def on_end(self, callback: Callable[[RunningCommand], None]) -> None:
        self._watch.add_done_callback(lambda _: callback(self))

    async def _watch_to_end(self) -> ExitStatus:
        ending = await self.child.wait(self.timeout_s)
        return await self.child.end(TIMEOUT) if ending is None else ending


class ExecSessions:
    def __init__(self) -> None:
        self._last = 0
        self._before = 0
        """Up to here the numbers are those of an earlier process of this session."""
        self._starting = 0
        self._running: set[RunningCommand] = set()
        self._ended: OrderedDict[int, RunningCommand] = OrderedDict()

    @property
    def busy(self) -> bool:
        """Whether a command runs or is starting."""
        return bool(self._running or self._starting)

    @property
    def in_background(self) -> int:
        """Number of running commands that no call waits for."""
        return sum(each.number > 0 for each in self._running)

    def continue_after(self, number: int) -> None:
        """The session goes on in another process: commands up to this number ended with the one before."""
        self._last = self._before = number

    def explain_missing(self, number: int) -> str:
        if 0 < number <= self._before:
            return f"Session {number} ended with its runner."
        return f"Session {number} not found."

    def check_room(self) -> None:
        if len(self._running) + self._starting >= MAX_RUNNING:
            raise ToolFailed(f"too many running sessions ({MAX_RUNNING}); end one first", code="TOO_MANY_SESSIONS")

    async def start(self, start: Callable[[], Awaitable[WalledChild]], kind: CommandSpec) -> RunningCommand:
        """Starts a command and watches it. What is about to start counts already: many may be asked for at once."""
        self.check_room()
        self._starting += 1
        try:
            walled = await start()
        finally:
            self._starting -= 1
        running = RunningCommand(walled, kind)
        self._running.add(running)
        running.on_end(self._on_end)
        return running

    def assign_number(self, running: RunningCommand) -> int:
        """Makes it a session: from now on it is found by this number."""
        if not running.number:
            self._last += 1
            running.number = self._last
            if running.ending is not None:
                self._keep_ended(running)
        return running.number

    def find(self, number: int, owner: str) -> RunningCommand | None:
        found = self._ended.get(number) or next((each for each in self._running if each.number == number), None)
        return found if found is not None and number > 0 and found.owner == owner else None

    async def end_owned_by(self, owner: str) -> None:
        """Its owner has left: nobody else could ever read or end what is still running."""
        left = [each for each in self._running if each.owner == owner]
        await asyncio.gather(*(each.end() for each in left), return_exceptions=True)
        left += [each for each in self._ended.values() if each.owner == owner]
        _report_unread(left)
        for number in [number for number, each in self._ended.items() if each.owner == owner]:
            del self._ended[number]

    async def aclose(self) -> None:
        """Ends all commands with the session."""
        running, self._running = list(self._running), set()
        with contextlib.suppress(Exception):
            await asyncio.gather(*(each.end() for each in running), return_exceptions=True)
        _report_unread([*running, *self._ended.values()])
        self._ended.clear()

    def _on_end(self, running: RunningCommand) -> None:
        self._running.discard(running)
        if running.number:
            if not running.waiters:  # perhaps nobody ever reads it again
                _report_unread([running])
            self._keep_ended(running)

    def _keep_ended(self, running: RunningCommand) -> None:
        self._ended[running.number] = running
        while len(self._ended) > MAX_ENDED:
            _report_unread([self._ended.popitem(last=False)[1]])


def _report_unread(forgotten: list[RunningCommand]) -> None:
    """Reports what these commands left, since nobody reads their result."""
    for running in forgotten:
        if running.ending is not None:
            with contextlib.suppress(Exception):
                running.walled.report_unread()


_SIGNALS: Final = {"INT": signal.SIGINT, "TERM": signal.SIGTERM, "KILL": signal.SIGKILL}
_TYPED_WAIT_MS: Final = 250
_MAX_TYPED_WAIT_MS: Final = 30_000
_READ_WAIT_MS: Final = 5_000
_INPUT_IGNORED: Final = "The session has ended; the characters were ignored."


def plan_input(args: dict[str, Any], ctx: ToolContext) -> Plan:
    sessions = ctx.parts.get(ExecSessions)
    number, chars = args["session_id"], args["chars"]
    running = sessions.find(number, ctx.owner)
    if running is None:
        raise ToolFailed(sessions.explain_missing(number), code="NO_SESSION")
    if chars and running.ending is None and not running.tty:
        raise ToolFailed(f"Session {number} has no terminal; start it with tty=true.", code="NO_TERMINAL")
    run = partial(_deliver, sessions, running, args, ctx)
    identity: dict[str, Any] = {"session_id": number, "chars": chars, "signal": args["signal"]}
    if not chars or chars in INTERRUPTS or running.ending is not None:
        return Plan(run=run, effects=(_unasked_effect(number, args),), fingerprint_args=identity)
    judged = running.input.preview(chars)
    run = partial(_deliver, sessions, running, args, ctx, judged.line)
    if len(judged.line) > MAX_PENDING_INPUT:
        raise ToolFailed(f"The line is longer than {MAX_PENDING_INPUT} characters; submit it with a newline first.")
    return Plan(
        run=run,
        effects=(_line_effect(number, judged, running, ctx),),
        command=CommandFacts(
            text="\n".join(reading.replace("\r", "\n") for reading in judged.readings),
            parsed=None,  # whatever reads this need not be a shell: no rule that allows a command speaks of it
            world=SandboxWorld(ctx.sandbox or Sandbox(has_block=False)),
            cwd=ctx.workspace or PRIVATE_DIRECTORY,
        ),
        payload=judged.line,
        fingerprint_args={**identity, "line": judged.line},
    )


def _unasked_effect(number: int, args: dict[str, Any]) -> Effect:
    sends = args["signal"] or {"\x03": "Ctrl-C", "\x04": "Ctrl-D"}.get(args["chars"], "")
    target = f"{sends} to session {number}" if sends else f"read session {number}"
    said_by = "reading a session, signals, Ctrl-C and Ctrl-D need no approval"
    return Effect(verb=Verb.EXEC, target=target, said=Verdict.PRE_APPROVED, said_by=said_by, at_most=AtMost.READS)


def _line_effect(number: int, judged: PendingLine, running: RunningCommand, ctx: ToolContext) -> Effect:
    """One for the whole line: what it is to the program that reads it, nobody here knows."""
    texts = [reading.replace("\r", "\n") for reading in judged.readings]
    dangers = {id_: part for text in texts for id_, part in danger_commands(text, is_secret_name).items()}
    marks = ((Mark.OPAQUE, judged.opaque), (Mark.DANGER, bool(dangers)), (Mark.NO_WALLS, running.no_walls))
    leaves = None
    if ctx.contains and running.contained:
        needs = (need for text in texts for need in outside_needs(find_commands(text)))
        leaves = tuple(dict.fromkeys(f"`{words}` needs {what}" for words, what in needs))
    return Effect(
        verb=Verb.EXEC,
        target=judged.line,
        real=f"session {number}: {judged.line}",
        marks=tuple(mark for mark, holds in marks if holds),
        dangers=tuple(dangers),
        danger_parts=tuple(dangers.values()),
        no_walls_because=running.no_walls_because,
        grant=f"input to session {number}",
        leaves=leaves,
    )


async def _deliver(
    sessions: ExecSessions, running: RunningCommand, args: dict[str, Any], ctx: ToolContext, line: str | None = None
) -> ToolCompletion:
    """`line`: what was judged; None where nothing had to be."""
    chars = args["chars"]
    notes: list[str] = []
    if running.ending is not None:
        notes += [_INPUT_IGNORED] if chars else []
    else:
        if line is not None and running.input.preview(chars).line != line:
            raise ToolFailed(f"Other input reached session {running.number} first; nothing was typed.")
        if chars:
            await running.child.write(chars.encode())
            running.input.commit(chars)
        if args["signal"]:
            running.child.signal(_SIGNALS[args["signal"]])
        async with show_live_output(ctx, {"stdout": running.child.output}, after=running.delivered):
            await running.wait(_wait_seconds(args))
    return await report(sessions, running, args["max_output_tokens"], ctx, notes)


def _wait_seconds(args: dict[str, Any]) -> float:
    asked = args["yield_time_ms"]
    if args["chars"]:
        return (_TYPED_WAIT_MS if asked is None else min(asked, _MAX_TYPED_WAIT_MS)) / 1000
    return (_READ_WAIT_MS if asked is None else asked) / 1000


_LINE_ENDS: Final = regex(r"[\r\n]")
_CONTROL: Final = regex(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_HISTORY: Final = regex(r"!(?![\s=('\"]|\Z)|^[ ]*\^", re.MULTILINE)
"""`!!`, `!rm`, `^old^new`: a shell puts an earlier line in their place."""
_LITERAL: Final = regex(r"'[^'\n]*'")
"""Text in single quotes, in which a shell replaces nothing."""
INTERRUPTS: Final = frozenset({"\x03", "\x04"})
"""Ctrl-C and Ctrl-D, sent alone."""
MAX_PENDING_INPUT: Final = 64 * 1024
_MAX_LINES: Final = 16
_MAX_UNFINISHED: Final = 16 * 1024
"""Characters (and `_MAX_LINES` lines) that are taken as one unfinished command. The program that reads them need not be
a shell, so the next line is asked about, and then it counts as submitted."""


@dataclass(frozen=True, slots=True)
class PendingLine:
    line: str
    """The text that is not yet submitted, with the new input."""
    readings: tuple[str, ...]
    """Each text that a program may take it for; more than one after an interrupt, or if it began on an earlier line."""
    opaque: bool
    """Whether the meaning of the line is unknown: it holds control characters that edit it, names an earlier line, or
    begins at an unknown place.
    """


class PendingInput:
    def __init__(self) -> None:
        self.text = ""
        """May hold lines that were sent, if the command they begin is not finished."""
        self._since_interrupt: str | None = None
        """What was typed after the last interrupt; None: there was none since the last submitted line."""

    def preview(self, chars: str) -> PendingLine:
        line = self.text + chars
        outside_quotes = _LITERAL.sub("''", line.replace("\r", "\n"))
        opaque = _CONTROL.search(line) is not None or _HISTORY.search(outside_quotes) is not None
        starts = [match.end() for match in _LINE_ENDS.finditer(self.text)]
        readings = [line, *(line[start:] for start in starts[-_MAX_LINES:])]
        if self._since_interrupt is not None:
            readings.append(self._since_interrupt + chars)
        unknown = self._since_interrupt is not None or self._is_too_long()
        return PendingLine(line, tuple(dict.fromkeys(readings)), opaque or unknown)

    def commit(self, chars: str) -> None:
        if chars in INTERRUPTS:
            if self.text:
                self._since_interrupt = ""
            return
        if self._since_interrupt is not None:
            self._since_interrupt += chars
        too_long = self._is_too_long()
        self.text += chars
        ends = [match.start() for match in _LINE_ENDS.finditer(self.text)]
        begins = 0
        for end in ends[-2 * _MAX_LINES :]:
            if not is_unfinished(self.text[begins:end].replace("\r", "\n")):
                begins = end + 1
        if too_long and ends:  # given up as one command; a last line that goes on is the beginning of another
            last = ends[-2] + 1 if len(ends) > 1 else 0
            begins = last if is_unfinished(self.text[last : ends[-1]].replace("\r", "\n")) else ends[-1] + 1
        if begins:
            self.text, self._since_interrupt = self.text[begins:], None

    def _is_too_long(self) -> bool:
        lines = len(_LINE_ENDS.findall(self.text))
        return lines >= _MAX_LINES or (lines > 0 and len(self.text) > _MAX_UNFINISHED)


_SHELL_TOKEN: Final = regex(
    r"\\.|\\\Z|'[^']*'|\"(?:\\.|[^\"\\])*\"|(?:(?<=\s)|(?<![^\n]))#[^\n]*|[\"'`(){}]", re.DOTALL
)
_HEREDOC: Final = regex(r"<<-?[ \t]*(['\"\\]?)(?!\d+\b)([\w.-]+)")
_CONTINUES: Final = ("|", "&&", "|&")


def is_unfinished(text: str) -> bool:
    brackets = ticks = 0
    for match in _SHELL_TOKEN.finditer(text):
        token = match[0]
        if token == "\\" or token in ("'", '"'):
            return True  # the last backslash, or a quote that nothing closes
        if token in "({":
            brackets += 1
        elif token in ")}":
            brackets -= 1
        elif token == "`":
            ticks += 1
    if brackets > 0 or ticks % 2 or text.rstrip().endswith(_CONTINUES):
        return True
    lines = text.split("\n")
    return any(
        not any(line.lstrip("\t") == match[2] for line in lines[text.count("\n", 0, match.end()) + 1 :])
        for match in _HEREDOC.finditer(text)
    )
