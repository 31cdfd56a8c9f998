"""Levels landlock and off: a Launch of the launcher, with the order it carries out.

Takes a command, its environment and what it may read, all as host paths, judged before; gives a Launch. Level landlock
is read-only walls: nothing but a private home and temporary directory can be written, and both are gone afterwards.
Refuses (`needs_full`) what read-only walls cannot hold, so that nobody is asked about a call that cannot run. Threat:
Landlock knows neither attributes nor sockets by name nor shared memory; the filter of `seccomp` refuses those.
"""

from __future__ import annotations

import marshal
import os
import resource
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from golem_forge.core.verdict import Verdict
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.host import base_python
from golem_forge.sandbox.limits import Limits
from golem_forge.sandbox.processes import launcher
from golem_forge.sandbox.processes.clearing import clear
from golem_forge.sandbox.processes.launch import ARGUMENTS, Launch, Root
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls import landlock_rules
from golem_forge.sandbox.walls.job import Job, Nowhere, Streams
from golem_forge.sandbox.walls.levels import Level
from golem_forge.sandbox.walls.seccomp import Changes, Network, filter_program
from golem_forge.sandbox.zones import USER_TOOLS, Mode, Zone

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.launcher import Confinement, Order

_CPU_GRACE_SECONDS: Final = 2
"""Between the signal that says the time is up and the one that ends the process."""
_TCP: Final = 3
_MARKER: Final = "FORGE_TREE"
"""The variable that only this tree's processes have, where no wall keeps a child from killing its launcher."""
_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 3
FIX: Final = "Run 'forge doctor' to see why full walls are missing and how to get them."


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command, in words of the host."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Exactly the child's, but for HOME and TMPDIR, which are its own."""
    cwd: str = ""
    """Empty: a private directory, `nowhere`."""
    nowhere: Nowhere = Nowhere.HOME
    streams: Streams = Streams.MERGED
    limits: Limits = field(default_factory=Limits)
    readable: tuple[str, ...] = ()
    """Zones, toolchains and single files such as Forge's own rg; system directories come by themselves."""
    masked: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()
    """Of what is masked, or lies below it, what this call may read."""
    network: Network = Network.NONE
    """NONE, or SHARED where a tool or server declares it."""
    gitconfig: str = ""
    """What stands in the private home as `.gitconfig`."""
    home: str = ""
    """A home that is kept, instead of a private one."""


def launch(command: Command, *, level: Level) -> Launch:
    """Raises WALLS_UNAVAILABLE where the kernel lacks what the level needs; what it made is removed then."""
    private = tempfile.mkdtemp(prefix="forge-")  # 0700
    marker = f"{_MARKER}={secrets.token_hex(16)}" if level is Level.OFF else ""
    try:
        order = _order(command, os.path.realpath(private), level, marker)
        arguments = os.memfd_create("forge-order")
        os.write(arguments, marshal.dumps(dict(order)))
        os.lseek(arguments, 0, os.SEEK_SET)
    except BaseException:
        clear(private)
        raise
    return Launch(
        argv=launcher.argv(base_python()),
        env=dict([marker.split("=", 1)]) if marker else {},
        root=Root.LAUNCHER,
        limits=command.limits,
        descriptors={ARGUMENTS: arguments},
        marker=marker,
        refused=_refused,
        afterwards=lambda: clear(private),
    )


def needs_full(job: Job, sandbox: Sandbox, fix: str = FIX) -> SandboxError | None:
    """Why read-only walls are not enough for this job, if they are not."""
    if job.hosts:
        return walls_unavailable("network access needs full walls", fix)
    if not job.reads_only and any(_writable(zone) for zone in sandbox.zones.values()):
        return walls_unavailable("this machine has read-only walls, and the command may want to write", fix)
    return None


def host_operands(argv: Sequence[str], sandbox: Sandbox) -> tuple[str, ...]:
    """The command with virtual paths handed on as host paths: operands, and values of `--option=`."""
    return (*argv[:1], *(_host_operand(each, sandbox) for each in argv[1:]))


def _host_operand(text: str, sandbox: Sandbox) -> str:
    option, equals, value = text.partition("=") if text.startswith("-") else ("", "", text)
    first, *rest = value[1:].split("/") if value.startswith("/") else ("", "")
    zone = sandbox.zones.get(first)
    if zone is None or zone.name == USER_TOOLS or ".." in rest:
        return text
    return option + equals + os.path.join(zone.host, *(part for part in rest if part))


def _writable(zone: Zone) -> bool:
    """In the eyes of a child: consent that is never given is a read-only mount."""
    if zone.mode is not Mode.RW or zone.name == USER_TOOLS:
        return False
    return Verdict.BLOCKED not in (zone.write, zone.delete)


def _order(command: Command, private: str, level: Level, marker: str) -> Order:
    home, temporary = (os.path.join(private, name) for name in ("home", "tmp"))
    for path in (home, temporary):
        os.mkdir(path, 0o700)
    if command.home:
        home = command.home
    elif command.gitconfig:
        with open(os.path.join(home, ".gitconfig"), "w", encoding="utf-8") as file:
            file.write(command.gitconfig)
    walled = level is Level.LANDLOCK
    env = {**command.env, "HOME": home, "TMPDIR": temporary}
    if marker:
        env[_MARKER] = marker.partition("=")[2]
    if walled and os.path.exists("/etc/gitconfig"):
        env["GIT_CONFIG_NOSYSTEM"] = "1"  # it is not shown, and git takes a file it may not read for an error
    return {
        "argv": [os.fsencode(each) for each in command.argv],
        "env": {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        "cwd": os.fsencode(command.cwd or (temporary if command.nowhere is Nowhere.TEMPORARY else home)),
        "terminal": command.streams is Streams.TERMINAL,
        "limits": _limits(command.limits),
        "landlock": _confinement(command, (home, temporary)) if walled else None,
        "filter": filter_program(network=command.network, changes=Changes.REFUSED) if walled else b"",
        "waits": False,
        "private": os.fsencode(private),
    }


def _limits(limits: Limits) -> dict[int, tuple[int, int]]:
    return {
        resource.RLIMIT_CPU: (limits.cpu_s, limits.cpu_s + _CPU_GRACE_SECONDS),
        resource.RLIMIT_FSIZE: (limits.file_size, limits.file_size),
        resource.RLIMIT_NOFILE: (limits.open_files, limits.open_files),
        resource.RLIMIT_CORE: (0, 0),
    }


def _confinement(command: Command, private: tuple[str, ...]) -> Confinement:
    version = landlock_rules.abi()
    if version == 0:
        raise walls_unavailable("this kernel has no Landlock", FIX)
    files = landlock_rules.handled_files(version)
    names = landlock_rules.NAMING if command.network is Network.SHARED else ()
    found = landlock_rules.rules((*command.readable, *names), command.masked, command.lifted, private)
    return {
        "rules": [(os.fsencode(path), rights & files) for path, rights in found],
        "files": files,
        "network": _TCP if version >= 4 and command.network is Network.NONE else 0,
        "scopes": _ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0,
        "only_files": landlock_rules.ONLY_FILES,
    }


def _refused(text: str) -> SandboxError:
    """`launcher: step: why` is its own line; anything else (an interpreter that did not start) is not passed on."""
    said = [line.removeprefix("launcher: ") for line in text.splitlines() if line.startswith("launcher: ")]
    return walls_unavailable(f"the launcher stopped at '{said[-1]}'" if said else "the launcher did not start", FIX)
