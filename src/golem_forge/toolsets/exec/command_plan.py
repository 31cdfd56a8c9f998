"""Planning exec_command: from its arguments to effects, a fingerprint, and what will be started if it is approved.

Refuses before anyone is asked what cannot run: a patch in a command's place, a working directory that is none, too many
sessions, walls that cannot hold it. Nothing is started here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.calls import ToolCompletion
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.policy.facts import SYSTEM_PATH, is_system_directory
from golem_forge.policy.rules.model import expand_groups, host_and_port, is_mirror, is_own_machine
from golem_forge.policy.shell.strict import canonical_text
from golem_forge.sandbox.network.proxy import PROXY_PORT
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import Target
from golem_forge.sandbox.walls.environment import with_git_settings
from golem_forge.sandbox.walls.model import HostDirectory, HostGrant, Job, Level, Streams
from golem_forge.tools.context import Plan, ToolContext
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
    start_directory,
    to_host_path,
)
from golem_forge.toolsets.exec.result import first_wait
from golem_forge.toolsets.exec.sessions import CommandSpec, ExecSessions
from golem_forge.toolsets.git.signing import CommandSigning, SigningServer

if TYPE_CHECKING:
    from golem_forge.sandbox.network.credentials import CredentialUse
    from golem_forge.sandbox.walls.walls import WalledChild

_PRESENTATION_ARGS: Final = frozenset({"yield_time_ms", "max_output_tokens", "justification", "prefix_rule", "reason"})
_PLAIN_START: Final = {"bash": ("--noprofile", "--norc", "-c"), "zsh": ("-f", "-c"), "sh": ("-c",)}
_LOGIN_START: Final = ("-l", "-c")
_MOST_RECORDED: Final = 1_000


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
            lifted=analysis.unmasked_paths(ctx.path_rules()),
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
