"""Planning exec_command: from its arguments to effects, a fingerprint, and what will be started if it is approved.

Refuses before anyone is asked what cannot run: a patch in a command's place, a working directory that is none, too many
sessions, walls that cannot hold it. Nothing is started here.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.errors import ToolFailed
from golem_forge.policy.rules.hosts import host_and_port
from golem_forge.policy.shell import canonical_text
from golem_forge.policy.world import SYSTEM_PATH, is_system_directory
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.environment import exec_environment, reading_environment
from golem_forge.sandbox.walls.job import HostGrant, Job, Streams
from golem_forge.sandbox.walls.levels import Level
from golem_forge.tools.context import ToolContext
from golem_forge.tools.plan import Plan
from golem_forge.tools.validation import InputInvalid
from golem_forge.toolsets.edit.command import BARE_PATCH, is_bare_patch
from golem_forge.toolsets.exec.ground import NOWHERE, Ground, as_host_paths, ground_of, start_directory
from golem_forge.toolsets.exec.operands import rewritten, started_text
from golem_forge.toolsets.exec.running import first_wait
from golem_forge.toolsets.exec.sessions import ExecSessions, Started
from golem_forge.toolsets.exec.settings import ExecSettings, declared_env
from golem_forge.toolsets.exec.weighing import Weighed, weigh

if TYPE_CHECKING:
    from golem_forge.sandbox.walls.walled_child import WalledChild

_PRESENTATION: Final = frozenset({"yield_time_ms", "max_output_tokens", "justification", "prefix_rule"})
_PLAIN_START: Final = {"bash": ("--noprofile", "--norc", "-c"), "zsh": ("-f", "-c"), "sh": ("-c",)}
_LOGIN_START: Final = ("-l", "-c")


async def plan_command(settings: ExecSettings, sandbox: Sandbox | None, args: dict[str, Any], ctx: ToolContext) -> Plan:
    text: str = args["cmd"]
    if is_bare_patch(text):
        raise InputInvalid(BARE_PATCH)
    sessions = ctx.parts.get(ExecSessions)
    sessions.check_room()
    shell = system_shell(args["shell"])
    ground = ground_of(sandbox, ctx)
    place = start_directory(args["workdir"], ground.sandbox)
    cwd = place.virtual if place else NOWHERE
    try:
        weighed = await weigh(text, ground, cwd, hosts=args["network"], walled=settings.walled)
        return Plan(
            run=partial(
                first_wait,
                sessions,
                _starter(settings, args, ctx, ground, place.virtual if place else "", shell, weighed),
                Started(
                    owner=ctx.owner,
                    tty=args["tty"],
                    timeout_s=args["timeout_ms"] / 1000,
                    no_walls=weighed.level is Level.OFF,
                    hosts=bool(args["network"]),
                ),
                args,
                ctx,
            ),
            effects=weighed.effects,
            command=weighed.facts,
            payload=text,
            fingerprint_args=_identity(args, cwd),
            targets=(f"cwd {place.real if place else cwd}",),
            read_only=weighed.reads_only,
            recheck=place.recheck if place else None,
            close=place.close if place else None,
            model_note=args["justification"],
        )
    except BaseException:
        if place is not None:
            place.close()
        raise


def system_shell(name: str) -> str:
    """Its path in a system directory: a toolchain or a zone may bring a `bash` of its own."""
    for directory in SYSTEM_PATH:
        found = os.path.join(directory, name)
        if is_system_directory(directory) and os.access(found, os.X_OK):
            return found
    raise ToolFailed(f"shell '{name}' is not installed in a system directory; use bash or sh.")


def _identity(args: dict[str, Any], cwd: str) -> dict[str, Any]:
    """The call without presentation, its command and directory in their one spelling."""
    kept = {name: value for name, value in args.items() if name not in _PRESENTATION}
    return kept | {"cmd": canonical_text(args["cmd"]), "workdir": cwd}


def _starter(
    settings: ExecSettings,
    args: dict[str, Any],
    ctx: ToolContext,
    ground: Ground,
    cwd: str,
    shell: str,
    weighed: Weighed,
) -> Callable[[], Awaitable[WalledChild]]:
    text = started_text(weighed.facts) if weighed.reads_only else args["cmd"]
    if weighed.level is not Level.FULL:
        text = rewritten(text, lambda word: as_host_paths(word, cwd, ground.sandbox))
    options = _LOGIN_START if args["login"] else _PLAIN_START[args["shell"]]

    async def start() -> WalledChild:
        hosts = bool(args["network"])
        own = exec_environment(
            tty=args["tty"], level=weighed.level, hosts=hosts, workspace=ground.workspace(weighed.level)
        )
        declared = declared_env(settings.env, ctx)
        job = Job(
            argv=(shell, *options, text),
            cwd=cwd,
            env=own | (reading_environment(declared) if weighed.reads_only else declared),
            streams=Streams.TERMINAL if args["tty"] else Streams.MERGED,
            hosts=tuple(_granted(target, ctx) for target in args["network"]),
            lifted=weighed.lifted(ctx.path_rules()),
            reads_only=weighed.reads_only,
        )
        return await ground.walls.start(ground.walls.keeping_bytecode(job, weighed.level))

    return start


def _granted(target: str, ctx: ToolContext) -> HostGrant:
    place = host_and_port(target)
    assert place is not None  # checked when the arguments were
    host, port = place
    return HostGrant(host, port, private=ctx.host_rule(host, port).private)
