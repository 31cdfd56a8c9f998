"""The records of walls: what is asked for (Job), what this machine gives (Level, ProbeReport), what is refused
(WallPlan).

Everything in a Job was judged and approved before. A WallPlan is plain data: `refusal` says why a path, as the child
sees it, cannot be read or changed; it never asks the disk, so what the plan refuses is what was mounted. PathRule is a
path rule of policy as far as walls care; `is_masked` is the one answer for walls (which mask such paths) and for tools
that walk trees (which skip them). ZoneCoverage says which paths of a zone undo could not bring back. Light: imported by
policy, tools and toolsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.sandbox.handles import Parts
from golem_forge.sandbox.host import is_below
from golem_forge.sandbox.walls.exits import NO_EXITS, Exits

if TYPE_CHECKING:
    from golem_forge.config.sandbox_block import HostCredential
    from golem_forge.sandbox.network.credentials import CredentialUse
    from golem_forge.sandbox.network.loopback import SessionLoopback


MOST_READ_ONLY: Final = 40


@dataclass(frozen=True, slots=True)
class UncoveredPath:
    parts: Parts
    why: str
    """The reason, e.g. `40 MiB, above undo.max_file (32 MiB)`."""
    directory: bool = False


@dataclass(frozen=True, slots=True)
class ZoneCoverage:
    """Which paths of a zone could not be undone if a command changed them, and why. A zone is covered if everything in
    it is kept or can be made again by the tool that made it. Other paths are read-only for a command that runs without
    a question; where that takes too many mounts, the zone has a `problem` and its commands ask.
    """

    problem: str = ""
    """Why commands in this zone cannot be undone at all: `more than 200,000 entries`. Empty: they can."""
    uncovered: tuple[UncoveredPath, ...] = ()
    """Paths that are read-only for a contained call; outermost only, at most MOST_READ_ONLY."""

    def below(self, directory: Parts) -> ZoneCoverage:
        """Returns the coverage of a zone that begins at a directory of this one."""
        depth = len(directory)
        if not depth:
            return self
        if any(directory[: len(one.parts)] == one.parts for one in self.uncovered):
            return ZoneCoverage("it lies in a directory that cannot be kept")
        inside = (one for one in self.uncovered if one.parts[:depth] == directory)
        return ZoneCoverage(
            self.problem, tuple(UncoveredPath(one.parts[depth:], one.why, one.directory) for one in inside)
        )

    def at(self, parts: Parts) -> UncoveredPath | None:
        """Returns the uncovered path that this path is or lies in, or None."""
        return next((one for one in self.uncovered if parts[: len(one.parts)] == one.parts), None)


@dataclass(frozen=True, slots=True)
class Coverage:
    zones: Mapping[str, ZoneCoverage] = field(default_factory=dict)
    """Coverage by zone name, for zones that commands can write."""

    @property
    def problem(self) -> str:
        return next((f"/{name}: {one.problem}" for name, one in self.zones.items() if one.problem), "")

    @property
    def not_kept(self) -> tuple[tuple[str, UncoveredPath], ...]:
        """Returns (zone, path in it) of everything uncovered, for `Job.not_kept`."""
        return tuple((name, one) for name, zone in self.zones.items() for one in zone.uncovered)


def fold_uncovered(found: Iterable[UncoveredPath], covered: Iterable[Parts]) -> tuple[UncoveredPath, ...] | None:
    """Returns at most MOST_READ_ONLY paths; if there are more, directories that hold nothing else replace their
    contents. Returns None if there are still too many.
    """
    every = {one.parts: one for one in found}
    if len(every) <= MOST_READ_ONLY:
        return tuple(sorted(every.values(), key=lambda one: one.parts))
    holds_kept = {parts[:length] for parts in covered for length in range(len(parts))}
    folded: dict[Parts, UncoveredPath] = {}
    for parts, one in every.items():
        top = next((parts[:length] for length in range(1, len(parts)) if parts[:length] not in holds_kept), parts)
        folded[top] = one if top == parts else UncoveredPath(top, one.why, directory=True)
    return tuple(sorted(folded.values(), key=lambda one: one.parts)) if len(folded) <= MOST_READ_ONLY else None


class Streams(StrEnum):
    MERGED = "merged"
    """One stream in order of arrival, standard input empty."""
    APART = "apart"
    """Standard output and standard error each for itself, standard input empty."""
    TERMINAL = "terminal"
    """A pseudo-terminal of 40 rows and 120 columns, standard input open."""


class StartDirectory(StrEnum):
    """The private directory where a job without any zone starts."""

    HOME = "home"
    TEMPORARY = "temporary"


@dataclass(frozen=True, slots=True)
class HostGrant:
    """One approved `host:port`; `private`: a rule of the person's own allows a private address for it."""

    host: str
    port: int = 443
    private: bool = False
    service: bool = False
    """A port of this machine's own loopback, at the same address inside: TCP, not through the proxy."""


@dataclass(frozen=True, slots=True)
class HostDirectory:
    """A host directory that this job may read although no zone has it: Forge's own libraries, a snapshot."""

    host: str
    """Its real path; walls are refused if a link leads there by the time they are built."""
    inner: str
    """Its path in full walls. At other levels it is read at its host path."""


@dataclass(frozen=True, slots=True)
class ShownPath:
    """One file or directory of a zone, with all that lies below it."""

    zone: str
    parts: tuple[str, ...]
    directory: bool
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    argv: tuple[str, ...]
    """The command as the child will see it; argv[0] is looked up on the inner PATH."""
    cwd: str = ""
    """Virtual; empty: the default zone's root, or `nowhere` where there is no zone."""
    nowhere: StartDirectory = StartDirectory.HOME
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of this kind of child, added to those that every child gets."""
    streams: Streams = Streams.MERGED
    limits: ResourceLimits | None = None
    """None means the limits of the settings."""
    hosts: tuple[HostGrant, ...] = ()
    """The child may reach exactly these, through the proxy; empty: no network."""
    service_reached: Callable[[HostGrant], None] = lambda grant: None
    """Called for each connection to one of `hosts` that is a service."""
    credentials: tuple[HostCredential, ...] = ()
    """Credentials, without their values, that the proxy may insert into requests to these hosts
    (`Walls.as_command`).
    """
    credential_used: Callable[[CredentialUse], None] | None = None
    """Records each use before it happens. None: the job has no credentials."""
    shares_network: bool = False
    """The host's own network instead, declared by a trusted tool or server: its loopback services and abstract sockets
    are in reach then, too."""
    loopback: SessionLoopback | None = None
    """The loopback of the session, for a command without hosts; None: one of its own. Full walls only."""
    lifted: frozenset[str] = frozenset()
    """Virtual paths of secrets (or of paths with a read rule) that this call's approved effects name."""
    only: tuple[ShownPath, ...] | None = None
    """The only parts of the zones that are shown; None means all. Level full only. Protected and secret paths stay
    restricted. A file is written in place: nothing can be renamed to it, because it is a mount.
    """
    not_kept: tuple[tuple[str, UncoveredPath], ...] = ()
    """(zone, path in it): what could not be brought back (`Walls.coverage`), read-only for a call that runs unasked."""
    reads_only: bool = False
    """Proven read-only (or a tool of ours that only reads): all zones are mounted read-only, and level landlock
    suffices."""
    own_program: bool = False
    """A program of Forge's own that reads zones and needs nothing else. Its walls are quicker to build: no toolchains,
    no /etc, no private directories, no sockets instead of a network of its own. Zones are whole in them: what must not
    be shown of them its caller leaves out, by the same names and rules."""
    host_operands: bool = False
    """Level landlock: argv may name virtual paths, which are handed on as host paths."""
    stdin: bytes | int | None = None
    """The child's input, or a descriptor that it reads from; None means none. Not with a terminal. One end of a socket
    pair is a way to speak with the child: it may write there, too.
    """
    stdout: int | None = None
    """A descriptor of the caller that receives standard output unfiltered; not with a terminal. The result then holds
    the end of standard error.
    """
    zone_programs: bool = False
    """Whether PATH includes the person's directories inside zones; set for commands (`Walls.as_command`). A trusted
    program must not start what a command put there.
    """
    path_first: tuple[str, ...] = ()
    """Directories before all others on the inner PATH."""
    home: str = ""
    """A host directory of this job's own (`kept_home`), its HOME and writable, that stays. Empty: a private one, gone
    afterwards."""
    bytecode: str = ""
    """A host directory that stands at `layout.BYTECODE`, writable, for Python's bytecode (`Walls.keeping_bytecode`)."""
    exits: Exits | None = None
    """Devices and sockets of the host that the person's own config gives this command, as they were judged; level full
    only. None: it is no command that could have any."""
    outside: bool = False
    """One command that a person approved word for word runs without walls, in their own home (`Walls.start_outside`).
    """
    cache: str = ""
    """A host directory that stands at `layout.CACHE`, writable (`PackageCache`). Empty: a private one."""
    shown: tuple[HostDirectory, ...] = ()
    """Read-only, below everything else that is shown: a zone or a toolchain at the same place, and what is masked of
    it, stands on top."""


class Level(StrEnum):
    FULL = "full"
    """bubblewrap: own user, mount, pid, net, ipc and uts namespaces, and seccomp."""
    LANDLOCK = "landlock"
    """Landlock and seccomp: read-only walls."""
    NONE = "none"
    """No process runs."""
    OFF = "off"
    """The person switched walls off: processes run without, and every call that needs one asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelResult:
    """The result of the test of one level."""

    level: Level
    held: tuple[str, ...] = ()
    """Guarantees (`G1` …) whose forbidden attempt failed."""
    missing: tuple[str, ...] = ()
    """Guarantees that were tested and did not hold."""
    untried: tuple[str, ...] = ()
    """Guarantees that there was no time to test; another test may find that they hold."""
    cause: str = ""
    """Why this level is not reached; empty if it is."""
    fix: str = ""

    @property
    def reached(self) -> bool:
        return not self.cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    level: Level
    tried: tuple[LevelResult, ...] = field(default=())

    @property
    def _own(self) -> LevelResult | None:
        return next((each for each in self.tried if each.level is self.level), None)

    @property
    def held(self) -> tuple[str, ...]:
        return self._own.held if self._own else ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Guarantees that the level in force lacks, by design or as tested."""
        tried = self._own.missing if self._own else ()
        return (*tried, *DIFFERS) if self.level is Level.LANDLOCK else tried

    @property
    def cause(self) -> str:
        """Why the walls are not full; empty if they are."""
        failure = self._first_failure
        if failure is None:
            return ""
        return f"{failure.level} walls were {failure.cause}" if failure.untried else failure.cause

    @property
    def fix(self) -> str:
        return self._first_failure.fix if self._first_failure else ""

    @property
    def _first_failure(self) -> LevelResult | None:
        """Full walls need no excuse for a lower level that was tried beside them."""
        return None if self.level is Level.FULL else next((each for each in self.tried if each.cause), None)

    def to_wire(self) -> dict[str, Any]:
        optional = {"cause": self.cause, "fix": self.fix}
        return {
            "level": "read-only" if self.level is Level.LANDLOCK else self.level.value,
            "guarantees": list(self.held),
            "missing": list(self.missing),
            **{name: text for name, text in optional.items() if text},
        }


DIFFERS = {"G14": "host paths are visible inside; those of zones are rewritten in output"}
"""Guarantees that level landlock never gives, with a description. (It keeps G1 in its own way: no zone is writable at
all.)
"""

GUARANTEES = {
    "G1": "writes only in rw zones and private directories",
    "G2": "reads only zones, system directories and toolchains",
    "G3": "protected paths unchanged",
    "G4": "secret paths unreadable",
    "G5": "no network",
    "G6": "no Unix socket of the host",
    "G7": "no capability, no new privileges, no remount, no nested namespace",
    "G8": "other processes out of reach",
    "G9": "dangerous system calls refused",
    "G10": "own session, away from your terminal",
    "G11": "ends when Forge ends",
    "G12": "limits on time, memory, processes, files and output",
    "G13": "empty environment, no inherited descriptor",
}
"""Descriptions for people."""


class RefusalReason(StrEnum):
    PROTECTED = "protected"
    SECRET = "secret"
    SEALED = "sealed"
    """A socket or a FIFO from outside, or a directory that nobody could look through: no grant lifts its mask."""
    OWN_CODE = "own_code"
    """The running Forge was loaded from it."""
    RULE = "rule"
    NOT_KEPT = "not_kept"
    """It could not be undone, and the call runs without a question."""
    ZONE = "zone"
    """The whole zone is read-only for this call."""
    OUTSIDE = "outside"
    """Below no zone: a system directory, a toolchain, or something that is not there at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """One path of a zone, with all that lies below it, that a child may not read or may not change."""

    parts: tuple[str, ...]
    why: RefusalReason
    masked: bool = False
    """Neither read nor changed; otherwise only not changed."""
    directory: bool = False
    detail: str = ""
    """Details of `why`, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedZone:
    name: str
    host: str
    base: str
    """Its path inside the walls: its host path, or `/<name>`."""
    writable: bool
    restrictions: tuple[Restriction, ...] = ()
    lifted: tuple[tuple[str, ...], ...] = ()
    """Paths below a masked directory that this call may read all the same."""
    subpath: tuple[str, ...] = ()
    """The components at which it begins inside the zone that rules name."""
    meant_writable: bool = False
    """Its mode is `rw`, whether or not a child may write there now."""
    shown: tuple[ShownPath, ...] | None = None
    """The only parts of it that are shown; None means everything."""

    def virtual(self, parts: Sequence[str]) -> str:
        return "/".join(("", self.name, *parts))

    def inside(self, path: str) -> tuple[str, ...] | None:
        """The components below this zone of a path that names it by its base, its host path or its address."""
        for start in (self.base, self.host, f"/{self.name}"):
            if path == start:
                return ()
            if path.startswith(start + "/"):
                return tuple(path[len(start) + 1 :].split("/"))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An access that the walls refuse at one path."""

    target: str
    """The virtual path if it lies in a zone, else the path as given."""
    access: Verb
    why: RefusalReason
    zone: str = ""
    """Outside of every zone: one that lies in the same directory, if any does."""
    restricted: str = ""
    """The virtual path whose restriction it is (the path itself or a directory above it)."""
    ruled: str = ""
    """The path as rules name it; it differs if the worker's zone begins deeper."""
    meant_writable: bool = False
    """Whether the zone's mode would allow the write."""
    detail: str = ""
    """Details of `why`, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WallPlan:
    zones: tuple[PlannedZone, ...] = ()
    cwd: str = "/"
    """The working directory as the child sees it."""
    private: tuple[str, ...] = ()
    """Writable directories of the call's own, gone afterwards."""
    readable: tuple[str, ...] = ()
    """Directories outside of zones that can be read but not changed."""
    mounted: bool = False
    """A read-only zone is a read-only mount, which refuses with no other error than that."""
    exits: Exits = NO_EXITS

    def refusal(self, path: str, access: Verb) -> Refusal | None:
        """Why this absolute, folded path cannot be read (READ) or changed (WRITE, DELETE); None: the walls allow it."""
        for zone in sorted(self.zones, key=lambda zone: len(zone.base), reverse=True):
            parts = zone.inside(path)
            if parts is not None:
                return _refusal_in(zone, parts, access)
        if self.exits.shows(path):
            return None
        around = [one for one in (*self.private, "/dev", *self.readable) if is_below(path, one)]
        innermost = max(around, key=len, default="")  # which is what stands there
        if around and (access is Verb.READ or innermost in (*self.private, "/dev")):
            return None
        directory = path.rpartition("/")[0]
        beside = (zone.name for zone in self.zones if is_below(zone.base, directory) or is_below(zone.host, directory))
        return Refusal(target=path, access=access, why=RefusalReason.OUTSIDE, zone=next(beside, ""))


def _refusal_in(zone: PlannedZone, parts: tuple[str, ...], access: Verb) -> Refusal | None:
    changes = access is not Verb.READ
    for one in zone.restrictions:
        if parts[: len(one.parts)] == one.parts and (changes or (one.masked and parts not in zone.lifted)):
            return Refusal(
                target=zone.virtual(parts),
                access=access,
                why=one.why,
                zone=zone.name,
                restricted=zone.virtual(one.parts),
                ruled=zone.virtual((*zone.subpath, *one.parts)),
                detail=one.detail,
            )
    if changes and not zone.writable:
        return Refusal(
            target=zone.virtual(parts),
            access=access,
            why=RefusalReason.ZONE,
            zone=zone.name,
            restricted=zone.virtual(()),
            meant_writable=zone.meant_writable,
        )
    return None


@dataclass(frozen=True, slots=True)
class GitMount:
    """One thing that stands in a private copy of a git directory."""

    path: str
    """The path below `ShadowPlan.tree`."""
    directory: bool
    real: str = ""
    """The path below the user's git directory that is mounted there."""
    host: str = ""
    """Or a host directory of Forge that is mounted there."""
    writable: bool = False
    missing: bool = False
    """Whether an empty read-only directory is mounted instead."""


@dataclass(frozen=True, slots=True)
class ShadowPlan:
    """The mounts that replace a user's git directory inside the walls."""

    tree: str
    """The host directory that is mounted."""
    mounts: tuple[GitMount, ...]
    """Mounts inside the tree, parents first."""
    outside: str = ""
    """The user's git directory, where it does not lie at the zone's root: the copy stands at the same path."""
    writable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """A `path` rule as far as walls care: one that tightens, or one that accepts secrets."""

    matches: Callable[[str], bool]
    """Whether a virtual path (as the program names it) is meant."""
    literal: str
    """The virtual path that stands for all it matches (`/zone/a`, or `/zone/dir` for `/zone/dir/**`); empty if only a
    scan can find what it matches."""
    verdict: Verdict
    access: frozenset[Verb]
    accepts_secret: bool = False
    """A preApproved rule of the person's own that accepts `secret_path`: what it matches is not masked."""
    pattern: str = ""
    """The pattern as written."""


def is_masked(virtual: str, *, secret: bool, rules: Sequence[PathRule]) -> bool:
    """`secret`: the path has the mark SECRET_PATH. A held-back path stays so, whatever another rule accepts."""
    said = [rule for rule in rules if Verb.READ in rule.access and rule.matches(virtual)]
    if any(rule.verdict is not Verdict.PRE_APPROVED for rule in said):
        return True
    return secret and not any(rule.accepts_secret for rule in said)


def lifted_paths(effects: Iterable[Effect], rules: Sequence[PathRule]) -> frozenset[str]:
    """Returns the masked paths that a call's own effects name: once approved, they are visible to it."""
    return frozenset(
        effect.target
        for effect in effects
        if effect.verb is Verb.READ
        and is_masked(effect.outer or effect.target, secret=Mark.SECRET_PATH in effect.marks, rules=rules)
    )


def is_read_only(virtual: str, rules: Sequence[PathRule]) -> bool:
    """A write or delete rule of `ask` or `blocked` holds inside walls as a read-only path."""
    return any(
        rule.verdict is not Verdict.PRE_APPROVED and rule.matches(virtual)
        for rule in rules
        if Verb.WRITE in rule.access or Verb.DELETE in rule.access
    )
