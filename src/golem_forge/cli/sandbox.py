"""`forge sandbox exec -- CMD` runs the person's own command inside the walls of the worker that `forge call` uses;
`forge sandbox explain PATH | -- CMD` says what zones and walls would allow, and starts nothing.

`exec` is recorded in the journal like a call, but not judged: whoever types it could run it without walls too. No tool,
model or MCP client can get here. Output is passed through as it comes; on a terminal, keys and window size go in.
`explain` shows a path with its zone, its marks, and what a tool and a child process may do there; a command as the
session's command tool sees it: each part, the program it would start, where its operands lead, and the verdict, which
is that of `forge rules explain`.

Threat: a child that inherits our stdin can reopen it through /proc/self/fd and write into the person's file, although
it was opened for reading only. So the child gets the end of a pipe, and a thread copies into it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.explain import DryEvaluator, open_evaluator, plan_for_explain
from golem_forge.agent.session import open_session
from golem_forge.cli.command import fail, print_error, print_json, read_args, shell_text
from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.calls import leftover_lines
from golem_forge.core.decisions import AnsweredBy, Decision, Risk, Status, Verdict, VerdictSource
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.errors import ForgeError
from golem_forge.core.ids import new_id
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import columns, nearest_remark, one_line
from golem_forge.events.journal import CallStart
from golem_forge.policy.risk import floors_of
from golem_forge.policy.shell.strict import CommandWorld
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.environment import exec_environment
from golem_forge.sandbox.walls.model import Job, Refusal, Streams
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode
from golem_forge.storage.home import forge_home

if TYPE_CHECKING:
    from argparse import Namespace

    from golem_forge.sandbox.walls.walls import Aftermath


HELP: Final = """usage: forge sandbox exec [-p DIR] [--timeout S] -- COMMAND [WORD …]
       forge sandbox explain [-p DIR] [--json] PATH
       forge sandbox explain [-p DIR] [--json] -- COMMAND [WORD …]

  exec     runs your command inside the walls that the tools of this directory get: same zones, same masks, no network,
           empty environment. Forge records the command and does not ask, because it is yours. A single
           word is a shell script. On a terminal the command gets a terminal. The exit code is the command's.
  explain  says what zones and walls allow for a path, or where the parts of a command would lead. Starts nothing.

Exit of exec: the command's; 125 walls could not be built, 124 timed out. Of explain: 0, 2 usage."""


def run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(HELP)
        return 0
    verb, rest = words[0], words[1:]
    if verb == "exec":
        return run_exec(rest)
    if verb == "explain":
        return run_explain(rest)
    hint = nearest_remark(verb, ("exec", "explain"))
    return fail("sandbox", f"unknown verb '{verb}'{hint}. `forge sandbox --help` says more.", 2)


def _read_args(verb: str, words: list[str]) -> Namespace:
    """`rest` has the words before `--`, `command` those after it."""
    end = words.index("--") if "--" in words else len(words)
    declared = ("-p,--program DIR", "--timeout S", "--json", "rest*")
    return read_args(f"sandbox {verb}", HELP, words[:end], *declared, program=".", command=words[end + 1 :])


_TOOL: Final = "sandbox exec"
_NO_WALLS: Final = 125
_TIMED_OUT: Final = 124
_PIECE: Final = 64 * 1024


def run_exec(words: list[str]) -> int:
    asked = _read_args("exec", words)
    asked.command = [*asked.rest, *asked.command]
    if not asked.command:
        return fail("sandbox exec", "no command; write it after --, like: forge sandbox exec -- make test", 2)
    return run_to_exit_code(_run(asked))


async def _run(asked: Namespace) -> int:
    on_terminal = bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty())
    async with open_session(asked.program) as session:
        for notice in session.notices_for_one_command:
            print_error("sandbox exec", notice)
        walls = session.path.walls
        assert walls is not None
        level = await walls.level()
        streams = Streams.TERMINAL if on_terminal else Streams.APART
        limits = ResourceLimits(timeout_s=asked.timeout)
        zone = session.sandbox.default_zone
        workspace = walls.mount_point(zone, level) if zone else ""
        environment = walls.with_git_settings(
            exec_environment(tty=on_terminal, level=level, hosts=False, workspace=workspace)
        )
        feed = None if on_terminal else standard_input()
        stdin = feed.child_end if feed else None
        # One word is a script, as it would be for a shell's `-c`; several are a program and its arguments.
        script = ("bash", "--noprofile", "--norc", "-c", *asked.command)
        argv = script if len(asked.command) == 1 else tuple(asked.command)
        job = Job(argv=argv, env=environment, streams=streams, limits=limits, stdin=stdin, exits=walls.exits())
        record = _Record(session, asked.command)
        try:
            try:
                walled = await walls.start(walls.as_command(job, level))
                if feed:
                    feed.start()
            except ForgeError as error:
                print_error("sandbox exec", error.message)
                record.end(Status.EXECUTION_FAILED, error.message)
                return _NO_WALLS
            code = await _run_attended(walled.child, on_terminal, asked.timeout)
            after = walled.aftermath()
            status = Status.SUCCESS if code == 0 else Status.EXECUTION_FAILED
            record.end(status, "" if code == 0 else f"exit {code}", after)
            for line in leftover_lines(after.protected_created, after.leftovers):
                print_error("sandbox exec", line.text)
            for denial in after.denials:
                refused = f"{denial['access']} {denial['target']} ({denial['why']})"
                print_error("sandbox exec", f"the walls refused: {refused}")
            return code
        finally:
            record.end(Status.INTERRUPTED, "interrupted")  # unless it has ended already


async def _run_attended(child: Any, on_terminal: bool, limit: float | None) -> int:
    """Passes everything through until the command is over."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, child.signal, signal.SIGINT)
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.create_task(child.end()))
    shown = [asyncio.create_task(_copy_output(child.output, sys.stdout.buffer))]
    if child.errors is not None:
        shown.append(asyncio.create_task(_copy_output(child.errors, sys.stderr.buffer)))
    with _raw_terminal(child) if on_terminal else contextlib.nullcontext():
        ending = await child.wait()
        await asyncio.gather(*shown)
    if ending.code == "TIMEOUT":
        return fail("sandbox exec", f"timed out after {ending.seconds if limit is None else limit:g} s", _TIMED_OUT)
    if ending.code:
        print_error("sandbox exec", f"ended by a limit: {ending.code}; see `sandbox.limits` in forge.yaml")
    return 128 + ending.signal if ending.signal is not None else ending.exit_code or 0


async def _copy_output(capture: Any, to: Any) -> None:
    """Copies output as it arrives, to its end, byte for byte."""
    done = 0
    while True:
        grown = await capture.more(done, 0.5)
        while done < capture.size:
            piece = capture.read(done, min(done + _PIECE, capture.size))
            to.write(piece)
            to.flush()
            done += len(piece)
        if not grown and capture.complete:
            return


@contextmanager
def _raw_terminal(child: Any) -> Iterator[None]:
    """The person's keys go to the command, every one of them; the terminal is put back however it ends."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    loop = asyncio.get_running_loop()
    waiting: set[asyncio.Task[None]] = set()

    def resize() -> None:
        size = os.get_terminal_size(fd)
        child.resize(size.lines, size.columns)

    def keys() -> None:
        if data := os.read(fd, 4096):
            task = loop.create_task(child.write(data))
            waiting.add(task)
            task.add_done_callback(waiting.discard)

    tty.setraw(fd)
    try:
        resize()
        loop.add_signal_handler(signal.SIGWINCH, resize)
        loop.add_reader(fd, keys)
        yield
    finally:
        loop.remove_reader(fd)
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


class _Record:
    """The journal's two lines about it: that it starts, and how it ended."""

    def __init__(self, session: Any, command: list[str]) -> None:
        self._journal = session.journal
        self._id = new_id()
        self._started = time.perf_counter()
        self._ended = False
        person = VerdictSource(source="person", verdict=Verdict.PRE_APPROVED, reason="the person's own command")
        decision = Decision(Verdict.PRE_APPROVED, (person,), person, Risk.HIGH, answered_by=AnsweredBy.PERSON)
        if self._journal is not None:
            args = {"command": command}
            self._journal.begin(CallStart(self._id, _TOOL, args, decision, "human", session.path.worker, "", _TOOL))

    def end(self, status: Status, error: str = "", after: Aftermath | None = None) -> None:
        if self._journal is not None and not self._ended:
            self._ended = True
            took = (time.perf_counter() - self._started) * 1e3
            self._journal.finish(self._id, status, took, error, more=_leftover_fields(after))


def _leftover_fields(after: Aftermath | None) -> dict[str, Any] | None:
    """Returns the fields of a `toolResult`: what the walls refused and what the command left behind."""
    if after is None:
        return None
    fields = {
        "denials": list(after.denials),
        "protectedCreated": list(after.protected_created),
        "leftovers": [one.to_wire() for one in after.leftovers],
    }
    return {name: value for name, value in fields.items() if value} or None


class StdinPipe:
    def __init__(self, source: int) -> None:
        self._source = source
        self.child_end, self._ours = os.pipe()
        """`child_end`: what the child reads from; `start` closes our copy of it."""

    def start(self) -> None:
        """The child has its end. The thread ends with our input, with its reader, or with this process."""
        os.close(self.child_end)
        threading.Thread(target=self._copy, daemon=True).start()

    def _copy(self) -> None:
        try:
            while data := self._read():
                view = memoryview(data)
                while view:
                    view = view[os.write(self._ours, view) :]
        except OSError:
            pass  # nobody reads it any more
        finally:
            with contextlib.suppress(OSError):
                os.close(self._ours)

    def _read(self) -> bytes:
        try:
            return os.read(self._source, _PIECE)
        except OSError as error:
            print_error("sandbox exec", f"standard input cannot be read: {os.strerror(error.errno or 0)}")
            return b""


def standard_input() -> StdinPipe | None:
    """Returns piped or redirected input for the command; None for a keyboard or no input."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    return StdinPipe(sys.stdin.fileno())


_TOOLS: Final = {Verb.READ: "read_file", Verb.WRITE: "write_file", Verb.DELETE: "delete_file"}
"""Each stands for every tool that does the same to a path."""


def run_explain(words: list[str]) -> int:
    asked = _read_args("explain", words)
    asked.path = " ".join(asked.rest)
    if bool(asked.path) == bool(asked.command):
        return fail("sandbox explain", "name one path, or a command after --", 2)
    said = asyncio.run(_explained(asked))
    if asked.json:
        print_json(said)
    else:
        print(columns(_lines(said)))
    return 0


async def _explained(asked: Namespace) -> dict[str, Any]:
    about = " ".join((asked.path, *asked.command))
    async with open_evaluator(plan_for_explain(forge_home(), asked.program), about=about) as dry:
        for notice in dry.notices:
            print_error("sandbox explain", notice)
        sandbox, walls = dry.orchestrator.sandbox, dry.orchestrator.walls
        assert sandbox is not None
        assert walls is not None
        if asked.path:
            return await _about_path(dry, sandbox, walls, asked.path)
        return await _about_command(dry, sandbox, asked.command)


async def _about_path(dry: DryEvaluator, sandbox: Sandbox, walls: Walls, path: str) -> dict[str, Any]:
    said: dict[str, Any] = {"path": path, "virtual": "", "zone": "", "tools": {}, "walls": {}}
    for verb in _TOOLS:
        said["tools"][verb.value] = await _tool_says(dry, sandbox, path, verb, said)
    try:
        inside = walls.explain(path)
    except ForgeError as error:
        said["walls"] = {"read": error.message, "write": error.message}
        return said
    shows = {"shows": inside.stands} if inside.stands else {}
    allows = {"read": _refused(inside.read), "write": _refused(inside.write)}
    said["walls"] = {"place": inside.inner, **shows, **allows}
    return said


async def _tool_says(dry: DryEvaluator, sandbox: Sandbox, path: str, verb: Verb, said: dict[str, Any]) -> str:
    try:
        with sandbox.target(path, verb) as target:
            said["virtual"] = target.virtual
            said["zone"] = target.zone.label if target.zone else "the list of zones"
            judged = await dry.touching(_TOOLS[verb], path, target)
    except ForgeError as error:
        return error.message
    verdict, by = judged.decision.verdict.value, judged.decision.decided_by
    if judged.decision.answered_by is AnsweredBy.CONTAINED:
        return f"{verdict}: it would run, as it can be undone (mode contained)"
    if judged.decision.not_contained:
        return f"{verdict}: {'; '.join(judged.decision.not_contained)}"
    effects = judged.facts.effects or ()
    if floors := [why for each in effects for _, why in floors_of(each)] if verdict == Verdict.ASK else []:
        return f"{verdict}: {'; '.join(floors)}"
    return f"{verdict}: {by.describe()}" if by is not None and by.source == "rules" else verdict


def _refused(refusal: Refusal | None) -> str:
    if refusal is None:
        return "allowed"
    where = f", by {refusal.restricted}" if refusal.restricted and refusal.restricted != refusal.target else ""
    return f"refused ({refusal.why.value}{where})"


async def _about_command(dry: DryEvaluator, sandbox: Sandbox, command: list[str]) -> dict[str, Any]:
    text = shell_text(command)
    explained = await dry.command(text)
    if explained.judged is not None:
        by = explained.judged.decision.decided_by
        why = by.describe() if by else ""
    else:
        why = explained.refusal.message if explained.refusal is not None else ""
    facts = explained.judged.facts if explained.judged is not None else None
    effects = facts.effects or () if facts is not None else ()
    execs = [effect for effect in effects if effect.verb is Verb.EXEC]
    world = facts.command.world if facts is not None and facts.command is not None else None
    return {
        "command": text,
        "parts": [_part(effect, world) for effect in execs],
        "reads": [effect.target for effect in effects if effect.verb is Verb.READ],
        "network": "off; a call of exec_command can name hosts in `network`",
        "writes": sorted(
            f"/{each.name}"
            for each in sandbox.zones.values()
            if each.mode is AccessMode.RW and each.name != USER_TOOLS  # which stands in no walls
        ),
        "verdict": explained.verdict.value if explained.verdict else "none",
        "why": why,
    }


def _part(effect: Effect, world: CommandWorld | None) -> dict[str, Any]:
    if Mark.OPAQUE in effect.marks or world is None:
        return {"text": effect.target, "program": "", "is": "unknown: Forge cannot read it without running it"}
    found = world.program(effect.words[0])
    kind = "proven read-only" if effect.proven else "runs in the walls"
    if effect.dangers:
        kind += f"; dangerous: {', '.join(effect.dangers)}"
    if Mark.OUTSIDE_ZONE in effect.marks:
        kind += "; names something outside every zone"
    return {"text": effect.target, "program": _where(found), "is": kind}


def _where(found: Any) -> str:
    if found is None:
        return "not found on the walls' PATH"
    if found.shipped:
        return "Forge's own"
    return "of the system" if found.system else "in a zone" if found.zone else "of a toolchain"


def _lines(said: dict[str, Any], indent: str = "") -> list[tuple[str, str]]:
    """Returns one line for each fact, nested ones indented."""
    lines: list[tuple[str, str]] = []
    for name, value in said.items():
        if isinstance(value, dict):
            lines += [(f"{indent}{name}", ""), *_lines(value, indent + "  ")]
        elif isinstance(value, list):
            for number, item in enumerate(value):
                label = f"{indent}{name}" if number == 0 else ""
                shown = " — ".join(str(part) for part in item.values() if part) if isinstance(item, dict) else str(item)
                lines.append((label, one_line(shown)))
        elif value:
            lines.append((f"{indent}{name}", one_line(str(value))))
    return lines
