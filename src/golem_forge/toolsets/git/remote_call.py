"""RemoteCall: what a push and a fetch have in common: whose repository, which remote, what the card says of it.

`open_call` takes the arguments and the context; carries over what commands did with git so far; gives the user's
repository, the remote and its address, and a private repository to reach it from. A submodule is a repository of the
user's, too: its git directory lies in theirs. Where there is none, an address alone can be listed and cloned. Refuses
(ToolFailed, without a card) what cannot be reached: a repository inside another one whose settings are no part of the
user's, settings that commands may write, an unknown remote.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.core.effects import Effect, Verb
from golem_forge.core.errors import ToolFailed
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.policy.shell.strict import quote
from golem_forge.sandbox.git.host_repository import HostRepository, refusals
from golem_forge.sandbox.git.remotes import (
    GitRemote,
    NoPersonRepository,
    PersonRepository,
    RemoteAddress,
    RemoteRefused,
    config_settings,
    is_remote_address,
)
from golem_forge.sandbox.git.repository import Repository, find_repository
from golem_forge.sandbox.git.rules import pointer_target
from golem_forge.sandbox.host import is_below, person_environ
from golem_forge.sandbox.protected import GIT_FILE, normal_name
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode, Zone
from golem_forge.tools.context import Plan, ToolContext
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec import ExecSettings
from golem_forge.toolsets.exec.command_plan import CommandExtras, plan_command
from golem_forge.toolsets.exec.environment import ExecEnvironment, environment_of, start_directory

if TYPE_CHECKING:
    from golem_forge.sandbox.handles import Parts

_MOST_NAMED: Final = 8
_OF_A_COMMAND: Final[dict[str, Any]] = {
    "shell": "bash",
    "login": False,
    "tty": False,
    "yield_time_ms": 30_000,
    "timeout_ms": 1_800_000,
    "max_output_tokens": 10_000,
    "network": [],
    "justification": "",
    "prefix_rule": [],
}


@dataclass(slots=True, kw_only=True)
class RemoteCall:
    settings: ExecSettings
    sandbox: Sandbox | None
    ctx: ToolContext
    place: str
    """The root of the repository, as commands name it; empty: there is no repository."""
    root: str
    """The host directory that a relative path of the remote counts from."""
    workdir: str
    """As the caller wrote it."""
    person: PersonRepository
    host: HostRepository
    remote: GitRemote
    address: RemoteAddress

    def warnings(self) -> tuple[str, ...]:
        said = []
        if names := self.person.unheeded():
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            said.append(
                f"Not followed, because the repository's own config says it: {', '.join(names[:_MOST_NAMED])}{more}. "
                "What the remote needs belongs into your own git settings."
            )
        if not self.remote.name and self.place:
            said.append("This address is not one of the repository's remotes.")
        if self.address.secrets:
            said.append(
                "The remote's address holds a password or token. Commands can read it in .git/config: use a "
                "credential helper instead."
            )
        return tuple(said)

    def reached(self) -> Effect:
        """For rules about hosts."""
        return Effect(verb=Verb.NET, target=self.address.target)

    async def plan_inside(self, *words: str, extras: CommandExtras | None = None) -> Plan:
        return await plan_inside(self.settings, self.sandbox, self.workdir, words, self.ctx, extras)

    async def plan_local(self, words: Sequence[str], refspecs: Sequence[str]) -> Plan:
        """The same command inside the walls, for a remote on this machine. Raises ToolFailed where no command gets
        there."""
        if not await run_in_thread(self._in_a_zone):
            raise ToolFailed(
                "The remote is a directory of this machine outside every zone, so no command can reach it. "
                "Do it yourself, or add that directory as a zone.",
                code="REMOTE_OUTSIDE_ZONES",
            )
        self.host.close()
        return await self.plan_inside(*words, "--", self.remote.name or self.address.url, *refspecs)

    def _in_a_zone(self) -> bool:
        path = self.address.url.removeprefix("file://")
        place = os.path.realpath(os.path.join(self.root, path))
        zones = environment_of(self.sandbox, self.ctx).sandbox.zones.values()
        return any(is_below(place, zone.host) for zone in zones if zone.name != USER_TOOLS)


async def plan_inside(
    settings: ExecSettings | None,
    sandbox: Sandbox | None,
    workdir: str,
    words: Sequence[str],
    ctx: ToolContext,
    extras: CommandExtras | None = None,
) -> Plan:
    """A git command inside the walls, judged as any other command. With `extras` it never goes on as a session: they
    are there until this call is over."""
    args = {**_OF_A_COMMAND, "cmd": " ".join(map(quote, ("git", *words))), "workdir": workdir}
    if extras:
        args["yield_time_ms"] = args["timeout_ms"]
    plan = await plan_command(settings or ExecSettings(), sandbox, args, ctx, extras)
    return replace(plan, rule_args=({"url": "", "ref": ""},))


class NoRepository(Exception):
    """There is none where the call starts: git says so itself."""

    stated_name = "NoRepository"


async def open_call(
    settings: ExecSettings | None,
    sandbox: Sandbox | None,
    args: dict[str, Any],
    ctx: ToolContext,
    *,
    push: bool,
    needs_repository: bool = True,
) -> RemoteCall:
    """`needs_repository`: an address alone is not enough. Raises ToolFailed, NoRepository."""
    environment = environment_of(sandbox, ctx)
    place = _place(args["workdir"], environment)
    await environment.walls.carry_git()
    return await run_in_thread(
        lambda: _opened(settings or ExecSettings(), sandbox, args, ctx, environment, place, push, needs_repository)
    )


def _opened(
    settings: ExecSettings,
    sandbox: Sandbox | None,
    args: dict[str, Any],
    ctx: ToolContext,
    environment: ExecEnvironment,
    place: tuple[Zone, Parts] | None,
    push: bool,
    needs_repository: bool,
) -> RemoteCall:
    with refusals():
        found = _Found() if args.get("clone_to") or place is None else _repository(*place)
        if found.repository is None and (needs_repository or not is_remote_address(args["remote"])):
            raise NoRepository
        person = NoPersonRepository() if found.repository is None else PersonRepository(found.repository)
        writable = [one.host for one in environment.sandbox.zones.values() if one.mode is AccessMode.RW]
        cache = ctx.home / "cache" if ctx.home is not None else None
        host = HostRepository(person, cache, person_environ(), writable)
        try:
            personal = host.personal("remote.pushdefault") if push and not args["remote"] else ""
            name = args["remote"] or person.default_remote(push=push, personal=personal)
            remote = person.remote(name)
            address = host.address(remote, push=push)
        except BaseException:
            host.close()
            raise
    if ctx.redactor is not None:
        for secret in address.secrets:
            ctx.redactor.add_secret("in the remote's address", secret)
    return RemoteCall(
        settings=settings,
        sandbox=sandbox,
        ctx=ctx,
        place=found.place,
        root=found.root,
        workdir=args["workdir"],
        person=person,
        host=host,
        remote=remote,
        address=address,
    )


def _place(workdir: str, environment: ExecEnvironment) -> tuple[Zone, Parts] | None:
    target = start_directory(workdir, environment.sandbox)
    if target is None or target.zone is None:
        return None
    try:
        return target.zone, target.parts
    finally:
        target.close()


class _Found(NamedTuple):
    repository: Repository | None = None
    place: str = ""
    root: str = ""


def _repository(zone: Zone, parts: Parts) -> _Found:
    """Raises RemoteRefused."""
    free = {normal_name(name) for name in zone.unprotect}
    if free & {GIT_FILE, ".git/config"}:
        raise RemoteRefused(
            "Commands may write this repository's settings (`unprotect`), so your credentials are not used for it."
        )
    inner = [parts[:length] for length in range(len(parts), 0, -1)]
    nested = next((each for each in inner if os.path.lexists(os.path.join(zone.real(each), GIT_FILE))), None)
    if nested is not None:
        repository = _submodule(zone, nested)
        if repository is None:
            raise RemoteRefused(
                "That directory belongs to another repository inside this one; start Forge there to push or fetch it."
            )
        return _Found(repository, zone.virtual(nested), zone.real(nested))
    found = find_repository(zone)
    if found is None:
        return _Found()
    return _Found(found, zone.virtual(()), zone.host if found.in_zone else os.path.dirname(found.git_dir))


def _submodule(zone: Zone, parts: Parts) -> Repository | None:
    """The repository of a submodule whose git directory lies in that of the zone's root, which commands cannot write.
    Threat: a `.git` file that a command made could name the git directory of another submodule, so what it names must
    point back here."""
    own = find_repository(zone)
    target = pointer_target(zone, (*parts, GIT_FILE))
    if own is None or not own.in_zone or target is None or target[:2] != (GIT_FILE, "modules"):
        return None
    git_dir = os.path.realpath(zone.real(target))
    if not is_below(git_dir, own.git_dir) or not os.path.isdir(os.path.join(git_dir, "objects")):
        return None
    said = [one.value for one in config_settings(Repository(git_dir)) if one.name == "core.worktree"]
    back = os.path.realpath(os.path.join(git_dir, said[-1] or "")) if said else ""
    return Repository(git_dir) if back == os.path.realpath(zone.real(parts)) else None


def short_id(one: str | None) -> str:
    return (one or "")[:10]


async def stoppable(work: Callable[[Callable[[], bool]], str]) -> str:
    """`work(stopped)` in a thread, which is told to end when the call is cancelled."""
    stop = threading.Event()

    def guarded() -> str:
        with refusals():
            return work(stop.is_set)

    try:
        return await run_in_thread(guarded)
    except asyncio.CancelledError:
        stop.set()
        raise
