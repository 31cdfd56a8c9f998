"""Planner: from a worker's zones, rules and one job to what its walls show and refuse, cached while nothing changed.

Returns a PlannedWalls for a job. Refuses with WALLS_UNAVAILABLE: a zone whose directory was exchanged on disk, a
zone of another user where Forge runs as root, and what `restrictions` refuses. A job that changes nothing about the
plan costs one look at the times of the scanned directories. `nothing_secret_below` searches a whole directory for
secret names, for a program that would read everything there. `explain` says what zones and walls would allow at one
path (`forge sandbox explain`); it builds a plan and starts nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.regex import regex
from golem_forge.sandbox import errors, protected
from golem_forge.sandbox.git import repository
from golem_forge.sandbox.git.remotes import RemoteRefused, config_settings
from golem_forge.sandbox.git.repository import GitPaths, NamedPath, Repository
from golem_forge.sandbox.git.shadow import GitShadow, why_no_shadow
from golem_forge.sandbox.handles import CONTENT, Parts, identity_of
from golem_forge.sandbox.host import SYSTEM, is_below
from golem_forge.sandbox.network.registries import person_mirrors
from golem_forge.sandbox.protected import GIT_FILE, normal_name, own_code_notice
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.target import FileKind
from golem_forge.sandbox.walls import directories, layout, model
from golem_forge.sandbox.walls.bubblewrap import can_hide_mount_table, ripgrep_path
from golem_forge.sandbox.walls.cache import cache_directory
from golem_forge.sandbox.walls.directories import EntryKind, ScanFinding
from golem_forge.sandbox.walls.exits import NO_EXITS, Exits, find_exits
from golem_forge.sandbox.walls.model import Job, PathRule, ShadowPlan
from golem_forge.sandbox.walls.restrictions import (
    MOST_MASKS,
    ReadOnlyGit,
    ZoneRestrictions,
    named_paths,
    not_kept_paths,
    restrictions,
)
from golem_forge.sandbox.walls.scan import MOST_DEPTH, ZoneScan, shared_scan
from golem_forge.sandbox.walls.seccomp import MountTable
from golem_forge.sandbox.walls.toolchains import VisibleToolchains, find_toolchains
from golem_forge.sandbox.zones import USER_TOOLS, AccessMode, Zone

_MOST_CACHED: Final = 16
_LOADING: Final = regex(r"LD_|GCONV_PATH$|LOCPATH$|GLIBC_TUNABLES$")
"""Variables by which programs of the system load other code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingDirectory:
    inner: str
    """The path inside full walls."""
    host: str
    """The host path; empty means a private directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWalls:
    plan: model.WallPlan
    mounts: tuple[layout.Mount, ...]
    """All mounts; the working directory is added at the start."""
    held: Mapping[str, ZoneRestrictions]
    """Restrictions by zone name."""
    known: Mapping[str, tuple[ScanFinding, ...]] = field(default_factory=dict)
    """The findings of each zone's scan before the command ran."""
    bare: frozenset[str] = frozenset()
    """Virtual paths of directories that git took for repositories before."""


class Planner:
    def __init__(
        self,
        sandbox: Sandbox,
        settings: WallSettings,
        *,
        forge_home: Path,
        rules: Callable[[], tuple[PathRule, ...]],
        environ: Mapping[str, str],
        home: Path,
        wider: Planner | None = None,
    ) -> None:
        """`wider`: of the worker whose zones these are some of. Toolchains are shown as it shows them: a directory of
        PATH that lies in a zone which is left out here is not shown for being no zone any more."""
        self._wider = wider
        self._sandbox = sandbox
        self._settings = settings
        self.forge_home = forge_home
        self.rules = rules
        self.environ = environ
        self.home = home
        self.zones = tuple(zone for zone in sandbox.zones.values() if zone.name != USER_TOOLS)
        """Those that children can have at all."""
        self._names = tuple(zone.name for zone in self.zones)
        self.scans = {zone.name: shared_scan(zone.host, zone.unprotect) for zone in self.zones}
        self._declared: dict[str, ZoneScan] = {}
        self._toolchains: VisibleToolchains | None = None
        self._system: dict[Exits, tuple[layout.Mount, ...]] = {}
        self._shadows: dict[str, tuple[object, GitShadow | ReadOnlyGit | None]] = {}
        """By zone, for as long as its git directory does not change."""
        self._git_paths = {zone.name: GitPaths(zone, home=str(self.home), environ=self.environ) for zone in self.zones}
        self._cached: dict[object, PlannedWalls] = {}
        self._for_our_own: PlannedWalls | None = None
        self.notices: tuple[str, ...] = ()
        """What the last plan closed more than people may expect."""

    @property
    def toolchains(self) -> VisibleToolchains:
        """The visible toolchains; searched once."""
        if self._toolchains is None:
            self._toolchains = (
                self._wider.toolchains
                if self._wider
                else find_toolchains(
                    self.environ,
                    self.home,
                    forge_home=self.forge_home,
                    extra_read=self._settings.read,
                    zones=[zone.host for zone in self.zones],
                    changed=self._sandbox.known_directories(),
                    shipped=layout.SHIPPED if ripgrep_path() else "",
                    only_system=not self._settings.toolchains,
                )
            )
            self._declared = {path: shared_scan(path) for path in self._toolchains.declared}
        return self._toolchains

    def exits(self) -> tuple[Exits, tuple[str, ...]]:
        """Returns the host devices and sockets that the person's config gives commands now, and a sentence for each
        name that gives nothing.
        """
        if not (self._settings.devices or self._settings.sockets):
            return NO_EXITS, ()
        zones = {zone.name: zone.host for zone in self.zones}
        return find_exits(self._settings, zones, str(self.forge_home))

    def gitconfig(self) -> str:
        return repository.git_identity(str(self.home), self._config_home())

    def _config_home(self) -> str:
        named = self.environ.get("XDG_CONFIG_HOME", "")
        return named if named.startswith("/") else str(self.home / ".config")

    def global_ignores(self) -> bytes:
        """The person's own rules of what git does not show, in all their repositories."""
        return repository.global_ignores(str(self.home), self._config_home())

    def mount_point(self, zone: Zone) -> str:
        return layout.zone_mount_point(zone, self._names)

    def mount_table(self, job: Job, env: Mapping[str, str]) -> MountTable:
        """Hidden for a zone that is not shown at its host path, which the table would name. Threat: what hides it has
        capabilities for a moment, so no program of it may load what a variable names."""
        hides = any(not zone.at_host_path for zone in self.zones) and can_hide_mount_table() and not job.own_program
        return MountTable.HIDDEN if hides and not loads_code(env) else MountTable.SHOWN

    def is_writable(self, zone: Zone, job: Job) -> bool:
        """Whether a child may write the zone; a zone with a blocked write or delete is read-only."""
        return zone.mode is AccessMode.RW and Verdict.BLOCKED not in (zone.write, zone.delete) and not job.reads_only

    def working_directory(self, job: Job) -> WorkingDirectory:
        if not job.cwd and self._sandbox.default_zone is None:
            if job.nowhere is model.StartDirectory.TEMPORARY:
                return WorkingDirectory(inner=layout.TEMPORARY, host="")
            return WorkingDirectory(inner=self.home_of(job) if job.home else layout.EMPTY, host="")
        if not job.cwd and (zone := next((one for one in self.zones if one.name == self._sandbox.default_zone), None)):
            zone.must_be_in_place(zone.virtual(()))
            return WorkingDirectory(inner=self.mount_point(zone), host=zone.host)
        with self._sandbox.target(job.cwd or f"/{self._sandbox.default_zone}", Verb.READ) as target:
            if target.kind is None:
                raise target.obstacle or errors.not_found(target.virtual)
            if target.kind is not FileKind.DIRECTORY:
                raise errors.not_a_directory(target.virtual)
            if target.zone is None:
                return WorkingDirectory(inner="/", host="/")
            if target.zone.name == USER_TOOLS:
                raise errors.zone_access_denied(target.virtual, self._sandbox.describe_zones())
            return WorkingDirectory(inner=os.path.join(self.mount_point(target.zone), *target.parts), host=target.real)

    def check(self, zone: Zone, *, writable: bool) -> None:
        """The directory on disk is the one that was opened, and this process can write there if children should."""
        try:
            now = os.stat(zone.host)
        except OSError:
            raise errors.walls_unavailable(
                f"the directory of zone '/{zone.name}' is gone", "Put it back, or start Forge again."
            ) from None
        if identity_of(now) != zone.root.identity():
            raise errors.walls_unavailable(
                f"another directory was put in the place of zone '/{zone.name}'", "Start Forge again to use it."
            )
        if writable and os.geteuid() == 0 and now.st_uid != 0:
            raise errors.walls_unavailable(
                f"zone '/{zone.name}' belongs to another user, and root inside walls cannot write there",
                f"To use it, run as that user (uid {now.st_uid}).",
            )

    def planned(self, job: Job) -> PlannedWalls:
        """The plan for this job as things are now. Call it with the zones occupied and checked."""
        if job.own_program:
            return self._planned_for_our_own()
        rules = self.rules()
        declared = self._declared.values() if self.toolchains.declared else ()
        for scan in (*self.scans.values(), *declared):
            scan.refresh()
        key = (
            tuple(scan.version for scan in (*self.scans.values(), *self._declared.values())),
            tuple(scan.names_version for scan in self.scans.values() if not all(rule.literal for rule in rules)),
            rules,
            tuple(tuple(named_paths(zone, rules)) for zone in self.zones),
            job.lifted,
            job.only,
            tuple(tuple(not_kept_paths(zone, job.not_kept)) for zone in self.zones if job.not_kept),
            job.reads_only,
            job.shown,
            job.home,
            job.bytecode,
            job.cache,
            job.shares_network,
            job.exits or NO_EXITS,
            tuple(self._git(zone, job) for zone in self.zones),
            tuple(self._named_by_git(zone, job) for zone in self.zones),
        )
        found = self._cached.get(key)
        if found is None:
            if len(self._cached) >= _MOST_CACHED:
                self._cached.clear()
            found = self._cached[key] = self._made(job, rules)
        return found

    def open_shadow(self, zone: Zone, job: Job) -> GitShadow | None:
        """The private copy of the git directory that commands in this zone see; `prepare` it before `planned`, unless
        it is ready."""
        shadow = self._shadow(zone)
        if not isinstance(shadow, GitShadow) or not (self.is_writable(zone, job) or shadow.repository.below):
            return None
        try:
            shadow.open()
        except (errors.SandboxError, OSError):
            closed = ReadOnlyGit("there is no cache directory in which a private copy could be kept")
            self._shadows[zone.name] = (self._shadows[zone.name][0], closed)
            return None
        return shadow

    def has_part_of_a_work_tree(self) -> bool:
        """A zone lies below the root of a work tree: only this part of it is there."""
        shadows = (self._shadow(zone) for zone in self.zones)
        return any(isinstance(one, GitShadow) and bool(one.repository.below) for one in shadows)

    def _named_by_git(self, zone: Zone, job: Job) -> tuple[tuple[NamedPath, bool], ...]:
        """Paths that git's settings name, and whether something is there."""
        if not self.is_writable(zone, job):
            return ()
        known = self._git_paths[zone.name]
        known.refresh()
        return tuple((one, os.path.lexists(zone.real(one.parts))) for one in known.paths)

    def _git(self, zone: Zone, job: Job) -> ShadowPlan | ReadOnlyGit | None:
        shadow = self._shadow(zone)
        writable = self.is_writable(zone, job)
        if isinstance(shadow, GitShadow) and (writable or shadow.repository.below):
            return shadow.plan(writable=writable)
        return shadow if isinstance(shadow, ReadOnlyGit) and writable else None

    def _shadow(self, zone: Zone) -> GitShadow | ReadOnlyGit | None:
        """Returns the shadow of the zone's repository; None if there is no repository or Forge may not copy it."""
        found = repository.find_repository(zone)
        if found is None or not self._may_copy(zone, found):
            return None
        try:
            changed = (found, os.lstat(found.git_dir).st_ctime_ns)
        except OSError:
            return None
        known = self._shadows.get(zone.name)
        if known is None or known[0] != changed:
            known = self._shadows[zone.name] = (changed, self._found_shadow(zone, found, known[1] if known else None))
        return known[1]

    def _found_shadow(
        self, zone: Zone, found: Repository, known: GitShadow | ReadOnlyGit | None
    ) -> GitShadow | ReadOnlyGit | None:
        if why := why_no_shadow(found):
            return ReadOnlyGit(why) if found.in_zone else None
        if isinstance(known, GitShadow) and known.repository == found:
            return known
        personal = repository.personal_settings(str(self.home), self._config_home())
        return GitShadow(zone, found, cache_directory(self.environ, self.home), personal)

    def _may_copy(self, zone: Zone, found: Repository) -> bool:
        if GIT_FILE in map(normal_name, zone.unprotect):
            return False
        return found.in_zone or (self._may_show(found.git_dir) and self._stands_below(zone, found))

    def _may_show(self, git_dir: str) -> bool:
        """Whether a git directory outside of the zone may be shown."""
        if any(is_below(git_dir, one.host) for one in self.zones):
            return False
        forge = os.path.realpath(self.forge_home)
        return not (is_below(git_dir, forge) or is_below(forge, git_dir))

    def _stands_below(self, zone: Zone, found: Repository) -> bool:
        """Git looks for the root of a work tree above: the zone must stand where it does on the host."""
        home = is_below(str(self.home), os.path.dirname(found.git_dir))  # a home under git is nobody's project
        return not found.below or (self.mount_point(zone) == zone.host and not home)

    def _lacks_a_key(self, found: Repository) -> bool:
        """Whether the repository's settings sign every commit and the person has no signing key."""
        try:
            said = {one.name: (one.value or "true").casefold() for one in config_settings(found)}
        except (RemoteRefused, OSError):
            return False
        personal = repository.personal_settings(str(self.home), self._config_home())
        return said.get("commit.gpgsign") in ("true", "yes", "on", "1") and not personal.get("user.signingkey")

    def start_up_notices(self) -> Iterator[str]:
        if notice := person_mirrors(self.environ).notice:
            yield notice
        yield from own_code_notice({zone.virtual(()): zone.host for zone in self.zones if zone.mode is AccessMode.RW})
        for zone in self.zones:
            found = repository.find_repository(zone)
            if found is not None and self._lacks_a_key(found):
                yield (
                    f"/{zone.name}: the repository signs its commits, but those of commands are not signed: there is no"
                    " user.signingKey in your own git settings."
                )
            if found is not None and found.below and self._may_copy(zone, found):
                name = os.path.basename(os.path.dirname(found.git_dir))
                yield (
                    f"/{zone.name} is {'/'.join(found.below)} of the git repository '{name}': commands see and change "
                    "only this part of it."
                )
            elif found is not None and found.below:
                yield (
                    f"/{zone.name} lies inside a git repository whose root is above it: git finds no repository there. "
                    "Make the repository's root the zone to use git."
                )
            if not zone.at_host_path and not can_hide_mount_table():
                yield (
                    f"commands can read where /{zone.name} lies (/proc/self/mountinfo): hiding that needs full walls,"
                    " and unshare, nsenter and setpriv of util-linux in /usr/bin that no profile restricts."
                )
            if zone.at_host_path and self.mount_point(zone) != zone.host:
                yield f"walls cannot show /{zone.name} at its own path: commands see it only at /{zone.name}."

    def created_protected(self, planned: PlannedWalls) -> tuple[str, ...]:
        """Protected names that exist now and did not when this was planned, or are something else now than then (a link
        at the zone's root can be exchanged). A directory that became a repository without a `.git` counts by its HEAD.
        What lies deeper than a scan looks is not seen."""
        found = []
        for zone in self.zones:
            if not planned.held[zone.name].writable:
                continue
            scan = self.scans[zone.name]
            scan.refresh()
            before = {(finding.parts, finding.kind, finding.made) for finding in planned.known[zone.name]}
            there = set(planned.held[zone.name].placeholders)
            found += [
                zone.virtual(one.parts)
                for one in scan.findings
                if one.protected and (one.parts, one.kind, one.made) not in before and one.parts not in there
            ]
            found += sorted(_bare_repositories(zone, scan) - planned.bare)
        return tuple(map(errors.one_line, found))

    def complete(self, zone: Zone, parts: Parts, *, hidden: bool) -> bool:
        """Whether everything below a directory is known by name, so that nothing secret in it is shown. Without
        `hidden`, names that begin with a dot do not count."""
        scan = self.scans.get(zone.name)
        if scan is None:
            return False
        scan.refresh()
        return scan.complete(parts) or nothing_secret_below(
            zone, parts, {one.parts for one in scan.findings if one.secret}, hidden
        )

    def _made(self, job: Job, rules: tuple[PathRule, ...]) -> PlannedWalls:
        held = {
            zone.name: restrictions(
                zone,
                self.scans[zone.name],
                rules,
                writable=self.is_writable(zone, job),
                lifted=job.lifted,
                git=self._git(zone, job),
                named=self._git_paths[zone.name].paths,
                not_kept=tuple(not_kept_paths(zone, job.not_kept)),
            )
            for zone in self.zones
        }
        if job.only is not None:
            held = {name: one.showing(path for path in job.only if path.zone == name) for name, one in held.items()}
        self._check_masks(held)
        exits = job.exits or NO_EXITS
        plans = (held[zone.name].git for zone in self.zones)
        copies = {plan.outside: plan for plan in plans if plan is not None and plan.outside}
        repositories = [path for zone in self.zones if (path := self._repository(zone)) and path not in copies]
        if job.only is not None:
            repositories = []
        mounts: list[layout.Mount] = [*self._system_mounts(job)]
        if job.shares_network:
            mounts += layout.naming_mounts()
        mounts += [layout.RawArguments(("--ro-bind-try", path, path)) for path in sorted(set(repositories))]
        for zone in self.zones:
            if (copy := held[zone.name].git) is not None and copies.pop(copy.outside, None) is not None:
                mounts += layout.git_mounts(zone, copy.outside, copy)
                repositories.append(copy.outside)
        # Outer directories first: a zone may lie in a directory on the way to another one.
        for zone in sorted(self.zones, key=self.mount_point):
            mounts += layout.zone_mounts(zone, self.mount_point(zone), held[zone.name])
        occupied = [*self.toolchains.directories, *repositories, *(f"/{name}" for name in self._names)]
        occupied += [self.mount_point(zone) for zone in self.zones]
        for zone in self.zones:
            mounts += layout.alias_mounts(zone, self.mount_point(zone), occupied)
        mounts += layout.exit_mounts(exits)
        self.notices = (
            *(notice for each in held.values() for notice in each.notices),
            *(notice for zone in self.zones for notice in self.scans[zone.name].notices(zone.virtual(()))),
        )
        return PlannedWalls(
            plan=replace(
                self._plan(
                    held,
                    [*repositories, *(one.inner for one in job.shown), *exits.readable],
                    self.home_of(job),
                ),
                exits=exits,
            ),
            mounts=tuple(mounts),
            held=held,
            known={zone.name: self.scans[zone.name].findings for zone in self.zones},
            bare=frozenset().union(*(_bare_repositories(zone, self.scans[zone.name]) for zone in self.zones)),
        )

    def _check_masks(self, held: Mapping[str, ZoneRestrictions]) -> None:
        """Raises WALLS_UNAVAILABLE where a directory would be hidden although only names in it have to be. Threat: a
        command makes a hundred thousand secret names for the next start."""
        for zone in self.zones:
            if any(one.unlisted and not one.parts for one in self.scans[zone.name].findings):
                raise errors.walls_unavailable(
                    f"{zone.virtual(())} cannot be searched for secret names: {_why_unlisted(zone.host)}",
                    "Use a zone that begins deeper, or make that directory readable and smaller.",
                )
        masked = [
            zone.virtual(one.parts) for zone in self.zones for one in held[zone.name].found if one.masked and one.parts
        ]
        if len(masked) <= MOST_MASKS:
            return
        place, most = Counter(path.rpartition("/")[0] for path in masked).most_common(1)[0]
        raise errors.walls_unavailable(
            f"the zones hold {len(masked):,} secret names, sockets, FIFOs and directories that cannot be listed, and"
            f" walls can hide {MOST_MASKS:,} ({most:,} of them in {errors.one_line(place)})",
            "Move them out of the zone, or hide a whole directory with a rule of your own:"
            f' {{path: "{errors.one_line(place)}/**", access: [read], verdict: blocked}}.',
        )

    def _plan(
        self, held: Mapping[str, ZoneRestrictions], further: list[str], home: str = layout.HOME
    ) -> model.WallPlan:
        return model.WallPlan(
            zones=tuple(
                model.PlannedZone(
                    name=zone.name,
                    host=zone.host,
                    base=self.mount_point(zone),
                    writable=held[zone.name].writable,
                    restrictions=(*held[zone.name].found, *_read_only_in_git(held[zone.name].git)),
                    lifted=held[zone.name].lifted,
                    subpath=zone.subpath,
                    meant_writable=zone.mode is AccessMode.RW,
                    shown=held[zone.name].shown,
                )
                for zone in self.zones
            ),
            private=tuple(dict.fromkeys((*layout.PRIVATE, layout.BYTECODE, home))),
            readable=(*SYSTEM, "/etc", "/proc", layout.SHIPPED, *self.toolchains.directories, *further),
        )

    def _planned_for_our_own(self) -> PlannedWalls:
        """Returns the walls for Forge's own programs; they do not depend on what is in the zones."""
        if self._for_our_own is None:
            held = {zone.name: ZoneRestrictions(writable=False) for zone in self.zones}
            mounts: list[layout.Mount] = [
                *layout.smallest_mounts(),
                layout.RawArguments(("--ro-bind", ripgrep_path(), f"{layout.SHIPPED}/rg")),
            ]
            for zone in sorted(self.zones, key=self.mount_point):
                mounts += layout.zone_mounts(zone, self.mount_point(zone), held[zone.name])
            self._for_our_own = PlannedWalls(plan=self._plan(held, []), mounts=tuple(mounts), held=held)
        return self._for_our_own

    def home_of(self, job: Job) -> str:
        if not job.home:
            return layout.HOME
        zones = (path for zone in self.zones for path in (self.mount_point(zone), *zone.aliases))
        return layout.kept_home_mount_point((*zones, *self.toolchains.directories, *(one.inner for one in job.shown)))

    def has_room_for_cache(self, job: Job) -> bool:
        """Threat: as of `kept_home_mount_point`. Nothing else may stand in a directory that commands write and that
        stays."""
        zones = (path for zone in self.zones for path in (self.mount_point(zone), *zone.aliases))
        shown = (*zones, *self.toolchains.directories, *(one.inner for one in job.shown))
        return not any(is_below(path, layout.CACHE) for path in shown)

    def _system_mounts(self, job: Job) -> Iterator[layout.Mount]:
        exits = job.exits or NO_EXITS
        if exits not in self._system:
            if len(self._system) >= _MOST_CACHED:
                self._system.clear()
            self._system[exits] = layout.system_mounts(uid=os.getuid(), gid=os.getgid(), exits=exits)
        yield from self._system[exits]
        if gitconfig := self.gitconfig():
            yield layout.TextMount(f"{layout.HOME}/.gitconfig", gitconfig)
        yield layout.RawArguments(("--dir", layout.EMPTY))
        if own := ripgrep_path():
            yield layout.RawArguments(("--ro-bind", own, f"{layout.SHIPPED}/rg"))
        if job.home:  # over the private one: nothing is made in it on the way
            yield layout.HostMount(job.home, self.home_of(job), writable=True)
        if job.bytecode:
            yield layout.HostMount(job.bytecode, layout.BYTECODE, writable=True)
        if job.cache:
            yield layout.HostMount(job.cache, layout.CACHE, writable=True)
        yield from (layout.HostMount(one.host, one.inner) for one in job.shown)
        secrets = [
            os.path.join(path, *finding.parts)
            for path, scan in self._declared.items()
            for finding in scan.findings
            if finding.secret or finding.kind is EntryKind.SOCKET
        ]
        yield from layout.shown_directories(self.toolchains.directories, (*self.toolchains.masked, *secrets))

    def _repository(self, zone: Zone) -> str | None:
        """Returns the git directory of a linked worktree, which commands that cannot write see unchanged."""
        found = repository.find_repository(zone)
        return found.git_dir if found is not None and found.own and self._may_show(found.git_dir) else None


def loads_code(env: Mapping[str, str]) -> bool:
    """Whether one of these variables names code that programs of the system load."""
    return any(map(_LOADING.match, env))


def _why_unlisted(path: str) -> str:
    try:
        with os.scandir(path) as entries:
            many = sum(1 for _ in islice(entries, directories.MOST_NAMES + 1)) > directories.MOST_NAMES
    except OSError as error:
        return f"it cannot be listed ({error.strerror})"
    return f"it holds more than {directories.MOST_NAMES:,} names" if many else "names in it cannot be looked at"


def _read_only_in_git(git: ShadowPlan | None) -> Iterator[model.Restriction]:
    for mount in git.mounts if git is not None and not git.outside else ():
        if not mount.writable:
            parts = (GIT_FILE, *mount.path.split("/"))
            yield model.Restriction(parts=parts, why=model.RefusalReason.PROTECTED, directory=mount.directory)


def _bare_repositories(zone: Zone, scan: ZoneScan) -> frozenset[str]:
    found = scan.repositories()
    return frozenset(zone.virtual((*parts, "HEAD")) for parts, entries in found if repository.is_bare(parts, entries))


_MOST_SEARCHED: Final = 50_000
"""Maximum number of entries; a search of more takes longer than a person needs to answer."""


def nothing_secret_below(zone: Zone, parts: Parts, known: Collection[Parts], hidden: bool) -> bool:
    """Whether there is no secret name besides the `known` ones, which walls mask; False also if not everything could be
    searched.
    """
    left = _MOST_SEARCHED
    waiting = [parts]
    while waiting:
        here = waiting.pop()
        try:
            directory = zone.open(here, CONTENT | os.O_DIRECTORY)
            with os.scandir(directory.fd) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return False
                    name = entry.name
                    if not hidden and name.startswith("."):
                        continue
                    below = (*here, name)
                    if below in known:
                        continue
                    if not protected.is_plain(name) and Mark.SECRET_PATH in protected.marks(below):
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        if len(below) > MOST_DEPTH:
                            return False
                        waiting.append(below)
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PathExplanation:
    virtual: str
    inner: str
    """The path inside the walls."""
    read: model.Refusal | None
    write: model.Refusal | None
    stands: str = ""
    """What a child finds there, if it differs from what a person finds."""


def explain(path: str, sandbox: Sandbox, planner: Planner) -> PathExplanation:
    """Raises SandboxError for what is neither an address nor a host path."""
    try:
        place = sandbox.locate(path)
    except errors.SandboxError:
        if not path.startswith("/"):
            raise
        return _explain_outside(os.path.normpath("/" + path.lstrip("/")), planner)
    if place.zone is not None and place.zone.name not in {zone.name for zone in planner.zones}:
        return _explain_outside(place.virtual, planner)  # a zone of the tools alone, as `/user_tools`
    base = planner.mount_point(place.zone) if place.zone else "/"
    inner = os.path.join(base, *place.parts)
    plan = planner.planned(Job(argv=())).plan
    return PathExplanation(
        virtual=place.virtual,
        inner=inner,
        read=(read := plan.refusal(inner, Verb.READ)),
        write=plan.refusal(inner, Verb.WRITE),
        stands=_hidden_below(plan, inner)
        if read is None
        else layout.IS_HIDDEN
        if read.restricted == read.target
        else layout.IS_ABSENT,
    )


def _hidden_below(plan: model.WallPlan, inner: str) -> str:
    """Says how many names in or below a directory a child sees but cannot open."""
    for zone in plan.zones:
        parts = zone.inside(inner)
        if parts is not None:
            hidden = sum(one.masked and one.parts[: len(parts)] == parts for one in zone.restrictions)
            return f"{hidden:,} names in it are hidden: there, empty and unreadable" if hidden else ""
    return ""


def _explain_outside(path: str, planner: Planner) -> PathExplanation:
    planned = planner.planned(Job(argv=(), exits=planner.exits()[0]))
    read, write = (planned.plan.refusal(path, verb) for verb in (Verb.READ, Verb.WRITE))
    if any(zone.inside(path) is not None for zone in planned.plan.zones):
        return PathExplanation(virtual="", inner=path, read=read, write=write)
    stands = layout.describe_outside(path, planned.mounts, planner.toolchains.directories)
    if stands in (layout.IS_ABSENT, layout.IS_HIDDEN):
        read = model.Refusal(target=path, access=Verb.READ, why=model.RefusalReason.OUTSIDE)
    elif read is not None and stands == layout.IS_PARENT:
        read = None
    return PathExplanation(virtual="", inner=path, read=read, write=write, stands=stands)
