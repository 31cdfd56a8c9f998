"""Levels landlock and off: a Launch of the launcher, with the order it carries out.

Takes a job's command, its environment and what it may read, as host paths, judged before; returns a Launch. Level
landlock is read-only walls: only a private home and temporary directory can be written, and both are removed
afterwards. Refuses (`needs_full`) what read-only walls cannot hold, so that no user is asked about a call that
cannot run. Threat: Landlock covers neither attributes nor sockets by name nor shared memory; the filter of
`seccomp` refuses those.

Landlock only adds rights: a right on a directory holds for everything below it, so a directory with a masked path
in it gets no right of its own, its other entries get theirs, and a file made there later is unreadable. Threat: a
link that leads a rule onto a masked path; rules are made on real paths only and links get none.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import resource
import secrets
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.decisions import Verdict
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.host import SYSTEM, base_python
from golem_forge.sandbox.process import launcher
from golem_forge.sandbox.process.cleanup import remove_tree
from golem_forge.sandbox.process.launch import ChildFd, Launch, TreeRoot
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls.bubblewrap import ripgrep_path
from golem_forge.sandbox.walls.layout import DEVICES, ETC, etc_secrets, java_settings
from golem_forge.sandbox.walls.model import Job, Level, StartDirectory, Streams
from golem_forge.sandbox.walls.planner import PlannedWalls, Planner
from golem_forge.sandbox.walls.seccomp import AttributeChanges, Network, filter_program
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode, Zone

if TYPE_CHECKING:
    from golem_forge.sandbox.process.launcher import Confinement, Order

_CPU_GRACE_SECONDS: Final = 2
"""Seconds between the signal at the CPU time limit and the one that ends the process."""
_TCP: Final = 3
_MARKER: Final = "FORGE_TREE"
"""The variable that only this tree's processes have, where no wall keeps a child from killing its launcher."""
_ABSTRACT_SOCKETS_AND_SIGNALS: Final = 3
FIX: Final = "Run 'forge doctor' to see why full walls are missing and how to get them."


@dataclass(frozen=True, slots=True, kw_only=True)
class LandlockCommand:
    """A command to run under Landlock, with host paths."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    """Exactly the child's, but for HOME and TMPDIR, which are its own."""
    cwd: str = ""
    """The working directory; empty means a private directory, `nowhere`."""
    nowhere: StartDirectory = StartDirectory.HOME
    streams: Streams = Streams.MERGED
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    readable: tuple[str, ...] = ()
    """Zones, toolchains and single files such as Forge's own rg; system directories come by themselves."""
    masked: tuple[str, ...] = ()
    lifted: tuple[str, ...] = ()
    """Masked paths, or paths below them, that this call may read."""
    network: Network = Network.NONE
    """NONE, or SHARED where a tool or server declares it."""
    gitconfig: str = ""
    """The content of `.gitconfig` in the private home."""
    home: str = ""
    """A home that is kept, instead of a private one."""


def launch(command: LandlockCommand, *, level: Level) -> Launch:
    """Raises WALLS_UNAVAILABLE where the kernel lacks what the level needs; what it made is removed then."""
    private = tempfile.mkdtemp(prefix="forge-")  # 0700
    marker = f"{_MARKER}={secrets.token_hex(16)}" if level is Level.OFF else ""
    try:
        order = _order(command, os.path.realpath(private), level, marker)
        arguments = os.memfd_create("forge-order")
        os.write(arguments, marshal.dumps(dict(order)))
        os.lseek(arguments, 0, os.SEEK_SET)
    except BaseException:
        remove_tree(private)
        raise
    return Launch(
        argv=launcher.argv(base_python()),
        env=dict([marker.split("=", 1)]) if marker else {},
        root=TreeRoot.LAUNCHER,
        limits=command.limits,
        descriptors={ChildFd.ARGUMENTS: arguments},
        marker=marker,
        make_error=_refused,
        on_exit=lambda: remove_tree(private),
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
    """Whether a child may write the zone; a zone with a blocked write or delete is read-only."""
    if zone.mode is not AccessMode.RW or zone.name == USER_TOOLS:
        return False
    return Verdict.BLOCKED not in (zone.write, zone.delete)


def _order(command: LandlockCommand, private: str, level: Level, marker: str) -> Order:
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
        "cwd": os.fsencode(command.cwd or (temporary if command.nowhere is StartDirectory.TEMPORARY else home)),
        "terminal": command.streams is Streams.TERMINAL,
        "limits": _limits(command.limits),
        "landlock": _confinement(command, (home, temporary)) if walled else None,
        "filter": filter_program(network=command.network, changes=AttributeChanges.REFUSED) if walled else b"",
        "waits": False,
        "private": os.fsencode(private),
    }


def _limits(limits: ResourceLimits) -> dict[int, tuple[int, int]]:
    return {
        resource.RLIMIT_CPU: (limits.cpu_s, limits.cpu_s + _CPU_GRACE_SECONDS),
        resource.RLIMIT_FSIZE: (limits.file_size, limits.file_size),
        resource.RLIMIT_NOFILE: (limits.open_files, limits.open_files),
        resource.RLIMIT_CORE: (0, 0),
    }


def _confinement(command: LandlockCommand, private: tuple[str, ...]) -> Confinement:
    version = landlock_abi()
    if version == 0:
        raise walls_unavailable("this kernel has no Landlock", FIX)
    files = handled_files(version)
    names = NAMING_FILES if command.network is Network.SHARED else ()
    found = access_rules((*command.readable, *names), command.masked, command.lifted, private)
    return {
        "rules": [(os.fsencode(path), rights & files) for path, rights in found],
        "files": files,
        "network": _TCP if version >= 4 and command.network is Network.NONE else 0,
        "scopes": _ABSTRACT_SOCKETS_AND_SIGNALS if version >= 6 else 0,
        "only_files": ONLY_FILES,
    }


def _refused(text: str) -> SandboxError:
    """`launcher: step: why` is its own line; anything else (an interpreter that did not start) is not passed on."""
    said = [line.removeprefix("launcher: ") for line in text.splitlines() if line.startswith("launcher: ")]
    return walls_unavailable(f"the launcher stopped at '{said[-1]}'" if said else "the launcher did not start", FIX)


def landlock_command(
    job: Job,
    sandbox: Sandbox,
    planner: Planner,
    planned: PlannedWalls,
    *,
    cwd: str,
    env: Mapping[str, str],
    limits: ResourceLimits,
) -> LandlockCommand:
    zones = {zone.name: zone for zone in planner.zones}
    masked = [(zones[name], one.parts) for name, held in planned.held.items() for one in held.found if one.masked]
    masked += [(zones[name], ()) for name, held in planned.held.items() if held.masked]
    lifted = [(zones[name], parts) for name, held in planned.held.items() for parts in held.lifted]
    toolchains = planner.toolchains
    rg = ripgrep_path()
    return LandlockCommand(
        argv=host_operands(job.argv, sandbox) if job.host_operands else job.argv,
        env=env,
        cwd=cwd,
        nowhere=job.nowhere,
        streams=job.streams,
        limits=limits,
        readable=(
            *(zone.host for zone in zones.values()),
            *toolchains.directories,
            *((rg,) if rg else ()),
            *(one.host for one in job.shown),
        ),
        masked=(*(zone.real(parts) for zone, parts in masked), *toolchains.masked),
        lifted=tuple(zone.real(parts) for zone, parts in lifted),
        network=Network.SHARED if job.shares_network else Network.NONE,
        gitconfig=planner.gitconfig(),
        home=str(planner.home) if job.outside else job.home,
    )


EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << bit for bit in range(4))
_REMOVE_DIR, _REMOVE_FILE, _MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK = (1 << bit for bit in range(4, 10))
_MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM, _REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(10, 16))

READING: Final = EXECUTE | READ_FILE | READ_DIR
DEVICE: Final = READ_FILE | WRITE_FILE | TRUNCATE
WRITING: Final = (
    READING
    | WRITE_FILE
    | TRUNCATE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_FIFO
    | _MAKE_SYM
    | _REFER
)
"""All rights except those on devices and sockets."""
ONLY_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

_ETC: Final = (*ETC, "group", "hosts", "nsswitch.conf", "passwd")
NAMING_FILES: Final = ("/etc/resolv.conf", "/etc/host.conf", "/etc/gai.conf")
"""Files for name lookup, shown only to a child that shares the host's network."""
_PROC: Final = ("cpuinfo", "meminfo", "stat", "version")

AccessRule = tuple[str, int]


def landlock_abi() -> int:
    """The kernel's Landlock version by its own word; 0 where there is none, or it is switched off."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(ctypes.c_long(444), None, ctypes.c_long(0), ctypes.c_long(1))))


def handled_files(version: int) -> int:
    """Returns every right on files that this kernel can forbid."""
    bits = 16 if version >= 5 else 15 if version >= 3 else 14 if version == 2 else 13
    return (1 << bits) - 1


def access_rules(
    readable: Iterable[str], masked: Iterable[str], lifted: Iterable[str], private: Iterable[str]
) -> Iterator[AccessRule]:
    """Yields all rules. `lifted` is readable though masked; `private` directories are writable for the child."""
    hidden = {real for path in (*masked, *etc_secrets()) for real in (os.path.abspath(path), os.path.realpath(path))}
    above = {parent for path in hidden for parent in _parents(path)}
    settings = (f"/etc/{name}" for name in (*_ETC, *java_settings()))
    shown = {os.path.realpath(path) for path in (*SYSTEM, *settings, *readable)}
    for path in sorted(shown):
        if hidden.isdisjoint(_parents(path)):
            yield from _reading(path, hidden, above)
    for path in lifted:
        yield os.path.realpath(path), READING
    for name in _PROC:
        yield f"/proc/{name}", READ_FILE
    for name in DEVICES:
        yield f"/dev/{name}", DEVICE | (IOCTL_DEV if name == "tty" else 0)
    for path in private:
        yield os.path.realpath(path), WRITING


def _reading(path: str, hidden: Collection[str], above: Collection[str]) -> Iterator[AccessRule]:
    """`above`: the directories on the way to what is hidden."""
    if path in hidden:
        return
    if path not in above:
        yield path, READING
        return
    yield path, READ_DIR  # names only; listing a directory is not reading what is in it
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return
    for each in names:
        yield from _reading(each, hidden, above)


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path
