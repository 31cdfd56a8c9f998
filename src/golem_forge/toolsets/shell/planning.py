"""Planning and running `shell`: words, then the block's rules, then policy; the program itself is started, no shell.

Refuses with the position what needs a shell (input_invalid) and without a prompt what the block does not allow.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.effects import Verb
from golem_forge.core.finished import Finished
from golem_forge.core.verdict import Verdict
from golem_forge.policy.shell import quote
from golem_forge.policy.shell.strict import render
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.environment import exec_environment, reading_environment
from golem_forge.sandbox.walls.job import Job, Streams
from golem_forge.sandbox.walls.levels import Level
from golem_forge.tools.context import ToolContext
from golem_forge.tools.live_output import shown_live
from golem_forge.tools.plan import Plan
from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.exec.ground import NOWHERE, Ground, as_host_paths, ground_of, start_directory
from golem_forge.toolsets.exec.operands import rewritten_words
from golem_forge.toolsets.exec.settings import declared_env
from golem_forge.toolsets.exec.text import ENDED, TIMED_OUT
from golem_forge.toolsets.exec.weighing import Weighed, weigh
from golem_forge.toolsets.shell.result import Ran, missing_program, shell_result
from golem_forge.toolsets.shell.rules import judge_words
from golem_forge.toolsets.shell.settings import ShellSettings
from golem_forge.toolsets.shell.words import split_words

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.ending import Ending

_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126


async def plan_program(
    settings: ShellSettings, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext
) -> Plan:
    words = split_words(args["command"])
    if not words or not words[0] or "\0" in args["command"]:
        raise InputInvalid("shell: command: there is no program in it" if "\0" not in args["command"] else _NUL)
    ground = ground_of(sandbox, ctx)
    place = start_directory("", ground.sandbox)
    cwd = place.virtual if place else NOWHERE
    try:
        text = " ".join(quote(word) for word in words)
        said = judge_words(words, text, settings.rules, settings.default, ground.world(), cwd)
        weighed = await weigh(text, ground, cwd, walled=Verdict.ASK)
        effects = tuple(
            replace(effect, said=said.verdict, said_by=said.by) if effect.verb is Verb.EXEC else effect
            for effect in weighed.effects
        )
        asked = args["timeout_s"]
        program = _Program(
            settings=settings,
            words=words,
            cwd=place.virtual if place else "",
            timeout_s=settings.timeout_s if asked is None else asked,
            ground=ground,
            weighed=weighed,
        )
        return Plan(
            run=partial(_run, program, ctx),
            effects=effects,
            command=weighed.facts,
            payload=args["command"],
            fingerprint_args={"command": text, "timeout_s": program.timeout_s},
            targets=(f"cwd {place.real if place else cwd}",),
            read_only=weighed.reads_only,
            recheck=place.recheck if place else None,
            close=place.close if place else None,
        )
    except BaseException:
        if place is not None:
            place.close()
        raise


_NUL: Final = "shell: command: contains NUL"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    settings: ShellSettings
    words: tuple[str, ...]
    cwd: str
    timeout_s: float
    ground: Ground
    weighed: Weighed

    def job(self, ctx: ToolContext) -> Job:
        level = self.weighed.level
        argv = _started(self.words, self.weighed) if self.weighed.reads_only else self.words
        if level is not Level.FULL:
            argv = rewritten_words(argv, lambda word: as_host_paths(word, self.cwd, self.ground.sandbox))
        own = exec_environment(tty=False, level=level, hosts=False, workspace=self.ground.workspace(level))
        declared = declared_env(self.settings.env, ctx)
        job = Job(
            argv=argv,
            cwd=self.cwd,
            env=own | (reading_environment(declared) if self.weighed.reads_only else declared),
            streams=Streams.APART,
            lifted=self.weighed.lifted(ctx.path_rules()),
            reads_only=self.weighed.reads_only,
        )
        return self.ground.walls.keeping_bytecode(job, level)

    def unusable(self) -> int:
        """127: no such program on the walls' PATH; 126: it is there, but is none. 0: it can be started."""
        name = self.words[0]
        if "/" in name:
            return 0
        if self.ground.world().program(name) is not None:
            return 0
        there = any(os.path.lexists(os.path.join(each, name)) for each in self.ground.walls.search_path())
        return _NOT_EXECUTABLE if there else _NOT_FOUND


def _started(words: tuple[str, ...], weighed: Weighed) -> tuple[str, ...]:
    """In the words that the proof is of; those of `bash -c '…'` are in its script."""
    started = weighed.facts.started
    if started is None or started == weighed.facts.parsed:
        return words
    return (*words[:2], render(started)) if started.segments[0].shells else started.segments[0].words


async def _run(program: _Program, ctx: ToolContext) -> Finished:
    if code := program.unusable():
        return missing_program(program.words[0], code)
    walled = await program.ground.walls.start(program.job(ctx))
    child = walled.child
    assert child.errors is not None  # the streams were asked for apart
    ending: Ending | None = None
    try:
        async with shown_live(ctx, {"stdout": child.output, "stderr": child.errors}):
            ending = await child.wait(program.timeout_s) or await child.end(TIMED_OUT)
    except asyncio.CancelledError:
        ending = await child.end(ENDED)
        if not ctx.cancel:  # the caller itself is gone: nobody is left to read it
            walled.tell_unread()
            raise
    ran = Ran(ending=ending, out=child.output, err=child.errors, after=walled.aftermath(), timeout_s=program.timeout_s)
    return await shell_result(ran, ctx)
