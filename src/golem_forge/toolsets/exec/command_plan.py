"""Planning exec_command and shell: from their arguments to effects, a fingerprint, and what will be started if it is
approved.

`plan_command` plans a script for a shell. Refuses before anyone is asked what cannot run: a patch in a command's place,
a working directory that is none, too many sessions, walls that cannot hold it. Nothing is started here.

`plan_program` plans one program that is started without a shell: words, then the rules of the block (`shell`), then
policy. Refuses with the position what needs a shell (input_invalid) and without a prompt what the block does not allow.
The result says how the program ended, then each stream that is not empty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.core.results import ToolResult
from golem_forge.core.text import FixedText, TextSource
from golem_forge.policy.facts import SYSTEM_PATH, is_system_directory
from golem_forge.policy.rules.model import expand_groups, host_and_port, is_mirror, is_own_machine
from golem_forge.policy.shell.strict import canonical_text, quote, render
from golem_forge.sandbox.network.proxy import PROXY_PORT
from golem_forge.sandbox.process.monitor import TIMEOUT, ExitStatus
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Target
from golem_forge.sandbox.walls.denials import blocked_line, way_line
from golem_forge.sandbox.walls.environment import with_git_settings
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job, Level, Streams, lifted_paths
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.live_output import wait_to_end
from golem_forge.tools.threads import run_in_thread
from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.edit.patch import BARE_PATCH, is_bare_patch
from golem_forge.toolsets.exec import ExecSettings
from golem_forge.toolsets.exec.environment import (
    PRIVATE_DIRECTORY,
    CommandAnalysis,
    ExecEnvironment,
    analyze_command,
    environment_of,
    proven_text,
    rewrite_paths,
    rewrite_word_paths,
    start_directory,
    to_host_path,
)
from golem_forge.toolsets.exec.result import (
    LIMIT_REASONS,
    JoinedText,
    after_seconds,
    bound_output,
    bound_with_handle,
    command_status,
    first_wait,
    limit_line,
    offline_hint,
    output_keeper,
    signal_name,
)
from golem_forge.toolsets.exec.sessions import CommandSpec, ExecSessions
from golem_forge.toolsets.exec.shell import ASK_FOR_ALL, ShellSettings, evaluate_shell_rules, split_words
from golem_forge.toolsets.git.signer import CommandSigning, SigningServer

if TYPE_CHECKING:
    from golem_forge.sandbox.network.credentials import CredentialUse
    from golem_forge.sandbox.walls.walls import Aftermath, WalledChild

_PRESENTATION_ARGS: Final = frozenset({"yield_time_ms", "max_output_tokens", "justification", "prefix_rule", "reason"})
_PLAIN_START: Final = {"bash": ("--noprofile", "--norc", "-c"), "zsh": ("-f", "-c"), "sh": ("-c",)}
_LOGIN_START: Final = ("-l", "-c")
_MOST_RECORDED: Final = 1_000
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_MAX_SHOWN_BYTES: Final = 32 * 1024
_NOT_STARTED: Final = {126: "permission denied", 127: "command not found"}
_START_FAILURE: Final = regex(rb"sh: [0-9]+: exec: (.*): (?:not found|Permission denied)\n", re.DOTALL)
"""The message of the stage before the program, when the program could not be started."""
_MAX_START_FAILURE: Final = 40_000


async def plan_command(
    settings: ExecSettings,
    sandbox: Sandbox | None,
    args: dict[str, Any],
    ctx: ToolContext,
    extras: CommandExtras | None = None,
) -> Plan:
    text: str = args["cmd"]
    if is_bare_patch(text):
        raise InputInvalid(BARE_PATCH)
    if "\0" in text:
        raise InputInvalid("exec_command: cmd: contains NUL")
    ctx.parts.get(ExecSessions).check_room()
    shell = system_shell(args["shell"])
    environment = environment_of(sandbox, ctx)
    _check_outside(args, ctx)
    place = start_directory(args["workdir"], environment.sandbox)
    cwd = place.virtual if place else PRIVATE_DIRECTORY
    hosts = expand_groups(args["network"])
    try:
        analysis = await analyze_command(
            text,
            environment,
            cwd,
            hosts=hosts,
            walled=settings.walled,
            contains=ctx.contains,
            asks="its toolset says walled: ask" if settings.asks else "",
            outside=bool(args.get("outside")),
        )
        command = PlannedCommand(
            settings, args, ctx, environment, analysis, place, shell, tuple(hosts), extras or CommandExtras()
        )
        return Plan(
            run=command.run,
            effects=analysis.effects,
            command=analysis.facts,
            payload=text,
            fingerprint_args=_fingerprint_args(args, cwd),
            targets=(f"cwd {place.real if place else cwd}", *analysis.exits.targets()),
            read_only=analysis.reads_only,
            recheck=place.recheck if place else None,
            close=place.close if place else None,
            model_note=args.get("reason") or args["justification"],
            warnings=(*_service_warnings(environment, hosts), *_credential_warnings(environment, hosts)),
        )
    except BaseException:
        if place is not None:
            place.close()
        raise


@dataclass(frozen=True, slots=True)
class CommandExtras:
    """What a tool adds to a command of its own, besides what every command has."""

    shown: tuple[HostDirectory, ...] = ()
    """Directories of Forge that it may read."""
    git: dict[str, str] = field(default_factory=dict)
    """Git settings."""


@dataclass(frozen=True, slots=True)
class PlannedCommand:
    """One command as it was judged, and how it is started."""

    settings: ExecSettings
    args: dict[str, Any]
    ctx: ToolContext
    environment: ExecEnvironment
    analysis: CommandAnalysis
    place: Target | None
    shell: str
    hosts: tuple[str, ...]
    extras: CommandExtras
    signing: CommandSigning = field(default_factory=CommandSigning)

    async def run(self) -> ToolCompletion:
        analysis, args, ctx = self.analysis, self.args, self.ctx
        kind = CommandSpec(
            owner=ctx.owner,
            tty=args["tty"],
            timeout_s=args["timeout_ms"] / 1000,
            no_walls=analysis.no_walls,
            no_walls_because=analysis.exits.no_walls_because,
            outside=analysis.outside,
            hosts=bool(self.hosts),
            text=args["cmd"],
            signing=self.signing,
            credentials=self.environment.walls.credentials,
        )
        return await first_wait(ctx.parts.get(ExecSessions), self.start, kind, args, ctx)

    async def start(self) -> WalledChild:
        args, ctx, analysis, environment = self.args, self.ctx, self.analysis, self.environment
        cwd = self.place.virtual if self.place else ""
        env = environment.child_env(self.settings.env, analysis, ctx, tty=args["tty"], hosts=bool(self.hosts))
        if analysis.level is Level.FULL and not analysis.reads_only and not analysis.outside:
            zone = environment.sandbox.locate(cwd).zone if cwd else None
            await ctx.parts.get(SigningServer).prepare(self.signing, zone, ctx)
        env = self.signing.applied(env)
        env = with_git_settings(env, self.extras.git) if self.extras.git else env
        job = Job(
            argv=self._argv(cwd),
            cwd=cwd,
            env=env,
            shown=(*self.signing.shown, *self.extras.shown),
            streams=Streams.TERMINAL if args["tty"] else Streams.MERGED,
            hosts=tuple(_host_grant(target, environment, ctx) for target in self.hosts),
            service_reached=_ServiceLog(ctx).reached,
            loopback=None if self.hosts else await environment.loopback(analysis, env, ctx),
            lifted=lifted_paths(analysis.effects, ctx.path_rules()),
            not_kept=analysis.not_kept(ctx),
            reads_only=analysis.reads_only,
            exits=analysis.exits,
            credential_used=partial(_show_use, ctx),
        )
        if analysis.outside:
            return await environment.walls.start_outside(job)
        return await environment.walls.start(environment.walls.as_command(job, analysis.level))

    def _argv(self, cwd: str) -> tuple[str, ...]:
        analysis, sandbox = self.analysis, self.environment.sandbox
        text = proven_text(analysis.facts) if analysis.reads_only else self.args["cmd"]
        if analysis.level is not Level.FULL and not analysis.outside:
            text = rewrite_paths(text, lambda word: to_host_path(word, cwd, sandbox))
        options = _LOGIN_START if self.args["login"] else _PLAIN_START[self.args["shell"]]
        return (self.shell, *options, text)


def _check_outside(args: dict[str, Any], ctx: ToolContext) -> None:
    """Raises InputInvalid, or ToolFailed for a caller that has no person of this machine behind it."""
    if not args.get("outside"):
        if args.get("reason"):
            raise InputInvalid("exec_command: reason: is for `outside: true`; use `justification`")
        return
    if not args["reason"].strip():
        raise InputInvalid("exec_command: reason: say why the command cannot run inside the walls")
    if args["tty"] or args["network"]:
        key = "tty" if args["tty"] else "network"
        raise InputInvalid(f"exec_command: {key}: has no place beside `outside`: one exact command runs, with no walls")
    if ctx.guest:
        raise ToolFailed("A client of a served session cannot run a command outside the walls.", code="OUTSIDE_WALLS")


def system_shell(name: str) -> str:
    """Its path in a system directory: a toolchain or a zone may bring a `bash` of its own."""
    for directory in SYSTEM_PATH:
        found = os.path.join(directory, name)
        if is_system_directory(directory) and os.access(found, os.X_OK):
            return found
    raise ToolFailed(f"shell '{name}' is not installed in a system directory; use bash or sh.")


def _fingerprint_args(args: dict[str, Any], cwd: str) -> dict[str, Any]:
    """The call without presentation, its command and directory in their one spelling."""
    kept = {name: value for name, value in args.items() if name not in _PRESENTATION_ARGS}
    if kept.get("outside"):
        return kept | {"workdir": cwd}  # exact bytes
    kept.pop("outside", None)
    return kept | {"cmd": canonical_text(args["cmd"]), "workdir": cwd}


def _credential_warnings(environment: ExecEnvironment, hosts: Iterable[str]) -> Iterator[str]:
    places = (place for host in hosts if (place := host_and_port(host)) is not None)
    for each in environment.walls.credentials_for(HostGrant(*place) for place in places):
        whose = "the project's" if each.of_project else "your"
        yield f"it can use {whose} {each.variable} at {each.host} ({each.describe()})"


def _show_use(ctx: ToolContext, use: CredentialUse) -> None:
    """Records the use of a credential in the journal before the request is sent."""
    data = {"variable": use.variable, "host": use.host, "method": use.method, "path": use.path}
    ctx.show("credentialUsed", {"toolCallId": ctx.call_id, **data})


def _host_grant(target: str, environment: ExecEnvironment, ctx: ToolContext) -> HostGrant:
    """A mirror that the person's own settings name may be at a private address, as any host that a rule says so of."""
    place = host_and_port(target)
    assert place is not None  # checked when the arguments were
    host, port = place
    if _is_direct(environment, host, port):  # that the call runs means that somebody agreed to this very place
        return HostGrant(host, port, private=True, service=True)
    return HostGrant(host, port, private=ctx.host_rule(host, port).private or is_mirror(host, port))


class _ServiceLog:
    """Writes each connection of one call to a service of this machine into the journal."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._count = 0

    def reached(self, grant: HostGrant) -> None:
        self._count += 1
        if self._count <= _MOST_RECORDED:
            last = {"last": True} if self._count == _MOST_RECORDED else {}
            target = f"[{grant.host}]:{grant.port}" if ":" in grant.host else f"{grant.host}:{grant.port}"
            self._ctx.show("serviceReached", {"toolCallId": self._ctx.call_id, "target": target, **last})


def _is_direct(environment: ExecEnvironment, host: str, port: int) -> bool:
    """Whether the host is this computer and is reached without the proxy, which Go, for example, does not use there. A
    host with a credential, and a mirror at the proxy's own port, are reached through the proxy.
    """
    if port == PROXY_PORT and is_mirror(host, port):
        return False
    return is_own_machine(host) and not environment.walls.credentials_for([HostGrant(host, port)])


def _is_service(environment: ExecEnvironment, host: str, port: int) -> bool:
    """Whether the host is a service that needs its own approval. A mirror belongs to its group."""
    return _is_direct(environment, host, port) and not is_mirror(host, port)


def _service_warnings(environment: ExecEnvironment, targets: Sequence[str]) -> tuple[str, ...]:
    """Returns the warning for the card that explains what a service is."""
    places = ((target, host_and_port(target)) for target in targets)
    own = [target for target, place in places if place is not None and _is_service(environment, *place)]
    return (f"{' and '.join(own)}: a service of this computer, with all that it lets its users do.",) if own else ()


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
            lifted=lifted_paths(self.analysis.effects, ctx.path_rules()),
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
    shown = await run_in_thread(lambda: bound_output(whole, _MAX_SHOWN_BYTES, output_keeper(ctx)))
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
