"""Planning and running `shell`: words, then the block's rules, then policy; the program itself is started, no shell.

Refuses with the position what needs a shell (input_invalid) and without a prompt what the block does not allow. The
result says how the program ended, then each stream that is not empty.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.core.text import FixedText, TextSource
from golem_forge.policy.shell.strict import quote, render
from golem_forge.sandbox.process.monitor import TIMEOUT, ExitStatus
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.denials import blocked_line, way_line
from golem_forge.sandbox.walls.model import Job, Level, Streams
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.live_output import wait_to_end
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.exec.environment import (
    PRIVATE_DIRECTORY,
    CommandAnalysis,
    ExecEnvironment,
    analyze_command,
    environment_of,
    rewrite_word_paths,
    start_directory,
    to_host_path,
)
from golem_forge.toolsets.exec.result import (
    LIMIT_REASONS,
    JoinedText,
    after_seconds,
    bound_text,
    bound_with_handle,
    command_status,
    limit_line,
    offline_hint,
    output_keeper,
    signal_name,
)
from golem_forge.toolsets.exec.shell import ASK_FOR_ALL, ShellSettings, evaluate_shell_rules, split_words

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walls import Aftermath

_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126


async def plan_program(
    settings: ShellSettings, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext
) -> Plan:
    words = split_words(args["command"])
    if not words or not words[0] or "\0" in args["command"]:
        nul = "\0" in args["command"]
        raise InputInvalid(f"shell: command: {'contains NUL' if nul else 'there is no program in it'}")
    environment = environment_of(sandbox, ctx)
    place = start_directory("", environment.sandbox)
    cwd = place.virtual if place else PRIVATE_DIRECTORY
    try:
        text = " ".join(quote(word) for word in words)
        rule = evaluate_shell_rules(words, text, settings.rules, settings.default, environment.command_world(), cwd)
        asks = f"{rule.by} says ask" if rule.verdict is Verdict.ASK and settings is not ASK_FOR_ALL else ""
        analysis = await analyze_command(text, environment, cwd, walled=Verdict.ASK, contains=ctx.contains, asks=asks)
        effects = tuple(
            replace(effect, said=rule.verdict, said_by=rule.by) if effect.verb is Verb.EXEC else effect
            for effect in analysis.effects
        )
        asked = args["timeout_s"]
        program = _Program(
            settings=settings,
            words=words,
            cwd=place.virtual if place else "",
            timeout_s=settings.timeout_s if asked is None else asked,
            environment=environment,
            analysis=analysis,
        )
        return Plan(
            run=partial(_run_program, program, ctx),
            effects=effects,
            command=analysis.facts,
            payload=args["command"],
            fingerprint_args={"command": text, "timeout_s": program.timeout_s},
            targets=(f"cwd {place.real if place else cwd}", *analysis.exits.targets()),
            read_only=analysis.reads_only,
            recheck=place.recheck if place else None,
            close=place.close if place else None,
        )
    except BaseException:
        if place is not None:
            place.close()
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    settings: ShellSettings
    words: tuple[str, ...]
    cwd: str
    timeout_s: float
    environment: ExecEnvironment
    analysis: CommandAnalysis

    async def job(self, ctx: ToolContext) -> Job:
        level = self.analysis.level
        env = self.environment.child_env(self.settings.env, self.analysis, ctx)
        argv = _proven_words(self.words, self.analysis) if self.analysis.reads_only else self.words
        if level is not Level.FULL:
            argv = rewrite_word_paths(argv, lambda word: to_host_path(word, self.cwd, self.environment.sandbox))
        job = Job(
            argv=argv,
            cwd=self.cwd,
            env=env,
            streams=Streams.APART,
            loopback=await self.environment.loopback(self.analysis, env, ctx),
            lifted=self.analysis.unmasked_paths(ctx.path_rules()),
            not_kept=self.analysis.not_kept(ctx),
            reads_only=self.analysis.reads_only,
            exits=self.analysis.exits,
        )
        return self.environment.walls.as_command(job, level)

    def unusable(self) -> int:
        """0: it can be started; 127: not on the walls' PATH; 126: there, but not executable."""
        name = self.words[0]
        if "/" in name or self.environment.command_world().program(name) is not None:
            return 0
        places = self.environment.walls.search_path(command=True)
        there = any(os.path.lexists(os.path.join(each, name)) for each in places)
        return _NOT_EXECUTABLE if there else _NOT_FOUND


def _proven_words(words: tuple[str, ...], analysis: CommandAnalysis) -> tuple[str, ...]:
    """The words that were proven to only read; those of `bash -c '…'` are in its script."""
    started = analysis.facts.started
    if started is None or started == analysis.facts.parsed:
        return words
    return (*words[:2], render(started)) if started.segments[0].shells else started.segments[0].words


async def _run_program(program: _Program, ctx: ToolContext) -> ToolCompletion:
    if code := program.unusable():
        return missing_program(program.words[0], code)
    walled = await program.environment.walls.start(await program.job(ctx))
    if ctx.recording is not None:
        ctx.recording.processes.append(walled.child)
    child, ending = walled.child, await wait_to_end(walled, ctx, program.timeout_s)
    assert child.errors is not None  # the streams were asked for apart
    ran = ProgramRun(
        ending=ending,
        out=child.output,
        err=child.errors,
        after=walled.aftermath(),
        timeout_s=program.timeout_s,
        command="" if program.analysis.level is Level.OFF else program.analysis.facts.text,
    )
    return await shell_result(ran, ctx)


_MAX_SHOWN_BYTES: Final = 32 * 1024
_NOT_STARTED: Final = {126: "permission denied", 127: "command not found"}
_START_FAILURE: Final = regex(rb"sh: [0-9]+: exec: (.*): (?:not found|Permission denied)\n", re.DOTALL)
"""The message of the stage before the program, when the program could not be started."""
_MAX_START_FAILURE: Final = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRun:
    ending: ExitStatus
    out: TextSource
    err: TextSource
    after: Aftermath
    timeout_s: float
    command: str = ""
    """The text, for a hint about what it would have needed; empty: it had the network."""


async def shell_result(ran: ProgramRun, ctx: ToolContext) -> ToolCompletion:
    ending, found = ran.ending, ran.after
    state = command_status(ending, session=0, timeout_s=ran.timeout_s)
    status, code = state.status, state.code
    head = [_status_line(ending, ran.timeout_s)]
    if found.denials and status is Status.EXECUTION_FAILED and not code:
        status = Status.SANDBOX_DENIED
        head += filter(None, (blocked_line(found.denials), way_line(found.denials)))
    error, err = "" if status is Status.SUCCESS else head[min(1, len(head) - 1)], _program_stderr(ran)
    if ending.exit_code and not found.denials:
        head += offline_hint(ran.command, JoinedText([ran.out, err]))
    whole = JoinedText([FixedText("\n".join(head).encode()), *_sections(ran.out, err)])
    # What must be kept on disk may be 64 MiB; the loop does not wait for it.
    shown = await run_in_thread(lambda: bound_text(whole, _MAX_SHOWN_BYTES, output_keeper(ctx)))
    value: dict[str, Any] = {
        "kind": "exec.result",
        "exit_code": ending.exit_code,
        "signal": ending.signal,
        "stdout": bound_with_handle(ran.out, _MAX_SHOWN_BYTES, shown.handle).text,
        "stderr": bound_with_handle(err, _MAX_SHOWN_BYTES, shown.handle).text,
        "duration_ms": round(ending.seconds * 1000, 1),
        "truncated": shown.cut,
        "denials": list(found.denials),
    }
    if head[1:]:
        value["ways"] = head[1:]
    if shown.handle:
        value["handle"] = shown.handle
    return ToolCompletion(
        result=ToolResult(value, shown.text),
        status=status,
        error=error,
        code=code,
        denials=found.denials,
        protected_created=found.protected_created,
        leftovers=found.leftovers,
        output_handle=shown.handle,
        bounded=True,
    )


def missing_program(name: str, exit_code: int) -> ToolCompletion:
    """The result of a program that could not be started, as a shell would word it."""
    text = f"{name}: {_NOT_STARTED[exit_code]}"
    value = {
        "kind": "exec.result",
        "exit_code": exit_code,
        "signal": None,
        "stdout": "",
        "stderr": f"{text}\n",
        "duration_ms": 0.0,
        "truncated": False,
        "denials": [],
    }
    result = ToolResult(value, f"exit {exit_code} (0.00 s)\nstderr:\n{text}\n")
    return ToolCompletion(result=result, status=Status.EXECUTION_FAILED, error=f"exit {exit_code} (0.00 s)")


def _program_stderr(ran: ProgramRun) -> TextSource:
    """Its standard error; of a program that was never started, without the message of the stage that tried."""
    code = ran.ending.exit_code
    if code not in _NOT_STARTED or ran.out.size or ran.err.size > _MAX_START_FAILURE:
        return ran.err
    said = _START_FAILURE.fullmatch(ran.err.read())
    return FixedText(said[1] + f": {_NOT_STARTED[code]}\n".encode()) if said else ran.err


def _status_line(ending: ExitStatus, timeout_s: float) -> str:
    if ending.code == TIMEOUT:
        return f"timed out {after_seconds(ending, timeout_s)}"
    if ending.code in LIMIT_REASONS:
        return f"{limit_line(ending.code)} ({ending.seconds:.2f} s)"
    how = f"ended by signal {signal_name(ending.signal)}" if ending.signal else f"exit {ending.exit_code}"
    return f"{how} ({ending.seconds:.2f} s)"


def _sections(out: TextSource, err: TextSource) -> list[TextSource]:
    """`stdout:` and `stderr:`, each only if it is not empty."""
    parts: list[TextSource] = []
    newline = True
    for name, stream in (("stdout", out), ("stderr", err)):
        if stream.size:
            before = "\n" if newline else ""
            parts += [FixedText(f"{before}{name}:\n".encode()), stream]
            newline = not stream.read(stream.size - 1).endswith(b"\n")
    return parts or [FixedText(b"\n(no output)")]
