"""Walls: one worker's way to run processes. Takes a Job that was judged and approved, returns a running WalledChild.

The same zones that decide what tools open decide here what the kernel lets a child do. Refuses with
WALLS_UNAVAILABLE, and then nothing was run: a machine without walls, a zone that is not what it was, a job that
needs more than this machine's walls can hold. No single call can go around them, but one: a command that a person
approved word for word, where their own config offers that (`start_outside`). WalledChild is a process and the
walls around it; once it has ended, its Aftermath says what the walls refused and what it left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.config.sandbox_block import (
    PLACEHOLDER,
    TLS_PORT,
    HostCredential,
    ResourceLimits,
    WallSettings,
)
from golem_forge.core.calls import Leftover
from golem_forge.core.changes import UndoSettings
from golem_forge.core.lazy_dataclass import dataclass, field, replace
from golem_forge.core.text import escape_control_chars
from golem_forge.events.redaction import Redactor, StreamRedactor
from golem_forge.sandbox.errors import SandboxError, walls_unavailable
from golem_forge.sandbox.host import person_environ
from golem_forge.sandbox.network.credentials import HeaderCredentials
from golem_forge.sandbox.network.loopback import HostServices
from golem_forge.sandbox.network.proxy import HostProxy, user_proxy
from golem_forge.sandbox.network.registries import person_mirrors
from golem_forge.sandbox.process.child import Child, start_process
from golem_forge.sandbox.process.launch import Capture, Launch, TreeRoot
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.walls import bubblewrap, denials, landlock, layout, probe
from golem_forge.sandbox.walls.cache import (
    BytecodeCache,
    PackageCache,
    cache_directory,
    cache_variables,
    is_look_due,
    kept_home,
    look_after,
    write_gitconfig,
)
from golem_forge.sandbox.walls.environment import (
    Certificates,
    job_environment,
    output_redactor,
    person_identity,
    show_certificates,
    with_part_of_a_work_tree,
)
from golem_forge.sandbox.walls.exits import NO_EXITS, Exits
from golem_forge.sandbox.walls.inspection import Inspection, mount_check
from golem_forge.sandbox.walls.model import Coverage, HostGrant, Job, Level, PathRule, ProbeReport, Streams, WallPlan
from golem_forge.sandbox.walls.planner import PathExplanation, PlannedWalls, Planner, explain, loads_code
from golem_forge.sandbox.walls.restrictions import Mask, put_up, split_masks
from golem_forge.sandbox.walls.seccomp import Network
from golem_forge.sandbox.walls.zone_lease import ZoneLease, remove_stale_placeholders, wait_for_lease
from golem_forge.sandbox.zones import PlaceholderNotes
from golem_forge.storage.home import ForgeHome

if TYPE_CHECKING:
    from golem_forge.sandbox.network.loopback import HostServices, NamespaceHold
    from golem_forge.sandbox.network.proxy import HostProxy
    from golem_forge.sandbox.undo.zone_history import ZoneHistory
    from golem_forge.sandbox.walls.toolchains import VisibleToolchains


class _FullStart:
    """One start in full walls: what it holds until nobody of its tree is left."""

    def __init__(self, planner: Planner, job: Job) -> None:
        self._planner = planner
        self.job = job
        self.inspection = Inspection(planner)
        self.planned: PlannedWalls
        self.proxy: HostProxy | None = None
        self.services: HostServices | None = None
        self.masks: tuple[Mask, ...] = ()
        """Those that bubblewrap does not put up."""
        self._leases: list[ZoneLease] = []
        self._joined: NamespaceHold | None = None

    def join(self) -> tuple[str, ...]:
        """The words that go before those of bubblewrap. Raises WALLS_UNAVAILABLE."""
        if self.job.loopback is None:
            return ()
        try:
            self._joined = self._joined or self.job.loopback.hold()
        except OSError as error:
            raise walls_unavailable(f"the session's loopback is gone ({error})", "Start a new session.") from None
        return self._joined.words

    def joined(self) -> None:
        """Closes the loopback's descriptors: the command is in the namespace, or never will be."""
        if self._joined is not None:
            self._joined.close()

    async def take_zones(self) -> None:
        """Takes the leases of the zones before anything is planned. Raises WALLS_UNAVAILABLE."""
        if self.job.home:
            write_gitconfig(self.job.home, self._planner.gitconfig())
        for zone in self._planner.zones:
            writable = self._planner.is_writable(zone, self.job)
            self._planner.check(zone, writable=writable)
            if writable:
                self._leases.append(await wait_for_lease(zone))
            await self.inspection.begin(zone, self.job, self._leases[-1] if writable else None)
        if self.job.hosts:  # where all are services, the proxy still says of every other one that it is refused
            named = [grant for grant in self.job.hosts if not grant.service]
            store, told = None, self.job.credential_used
            if self.job.credentials and told is not None:
                store = HeaderCredentials(self.job.credentials, person_environ(), told)
            self.proxy = HostProxy(named, upstream=user_proxy(person_environ()), credentials=store)
        if services := [grant for grant in self.job.hosts if grant.service]:
            self.services = HostServices(services, self.job.service_reached)

    def plan(self) -> Callable[[], bool] | None:
        """Sets `planned`; returns the question whether the walls are still what was planned. Ask for it before
        anything of the plan is opened."""
        self.planned = planned = self._planner.planned(self.job)
        self.inspection.planned(planned)
        for lease in self._leases:
            lease.make_placeholders(planned.held[lease.zone.name])
        if self.job.own_program:
            return None
        return self.inspection.while_it_runs(mount_check(planned, self._planner, self.job))

    @property
    def has_work_inside(self) -> bool:
        served = self.proxy is not None or self.services is not None
        return served or bool(self.masks) or self.inspection.has_unsaid

    async def work_inside(self, pid: int) -> None:
        """Sets up masks, proxy and services once the walls stand, before the command starts. Raises
        WALLS_UNAVAILABLE.
        """
        if self.masks:
            await put_up(pid, self.masks)
        await self.inspection.say_unreadable()
        if self.proxy is not None:
            await self.proxy.serve_inside(pid)
        if self.services is not None:
            await self.services.serve_inside(pid)

    def leave(self) -> Awaitable[None] | None:
        """Releases proxy, services and zones. Returns what is left to await, if anything."""
        self.joined()
        if self.proxy is not None:
            self.proxy.close()
        if self.services is not None:
            self.services.close()
        for lease in self._leases:
            lease.release()
        layout.restore_device_modes()
        return self.inspection.finish()

    def created(self) -> tuple[str, ...]:
        """Protected names that were made; call it after `leave`."""
        removed = (escape_control_chars(path) for lease in self._leases for path in lease.removed)
        return (*self._planner.created_protected(self.planned), *removed)


async def probe_without_saving(cache: Path) -> ProbeReport:
    """Returns the cached test result, or tests without saving; for `Walls` that start nothing."""
    return probe.cached_report(cache) or await probe.probe_with_retry(cache=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WallsHost:
    """The machine around the walls, and its person."""

    environ: Mapping[str, str] = field(default_factory=person_environ)
    home: Path = field(default_factory=Path.home)
    bwrap: str = ""
    """Empty: the system's."""
    report: ProbeReport | None = None
    """What is known of the machine already."""
    tried: Callable[[Path], Awaitable[ProbeReport]] = lambda cache: probe.probe_with_retry(cache=cache)
    """How the machine is tried otherwise. Takes the directory where the result may be kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoScope:
    """For which session the changes of children are kept, and how much of them."""

    session: str = ""
    settings: UndoSettings = field(default_factory=UndoSettings)


class Walls:
    def __init__(
        self,
        sandbox: Sandbox,
        settings: WallSettings | None = None,
        *,
        forge_home: Path,
        redactor: Redactor | None = None,
        rules: Callable[[], tuple[PathRule, ...]] = tuple,
        host: WallsHost | None = None,
        undo: UndoScope | None = None,
        wider: Walls | None = None,
    ) -> None:
        """`wider`: see `narrowed`."""
        host = host or WallsHost()
        self._host = host
        self._undo = undo or UndoScope()
        self._histories: dict[str, ZoneHistory] = {}
        """Kept for the next question about coverage."""
        self._wider = wider
        self.sandbox = sandbox
        self._settings = settings or WallSettings()
        self._redactor = redactor
        self._report = host.report
        self._probing: asyncio.Lock | None = None
        self._listeners: list[Callable[[ProbeReport], None]] = []
        self._unread: list[Callable[[Aftermath], None]] = []
        self._backend: bubblewrap.Backend | None = None
        self._output: tuple[int, Redactor] | None = None
        self._forge_home = forge_home
        self._tidied = False
        self._shares: Hashable | None = None
        self._planner: Planner = Planner(
            sandbox,
            self._settings,
            forge_home=forge_home,
            rules=rules,
            environ=host.environ,
            home=host.home,
            wider=wider._planner if wider else None,
        )
        cache = cache_directory(self._planner.environ, self._planner.home)
        self._bytecode = BytecodeCache(cache, forge_home, self._planner.zones)
        self._cache = PackageCache(forge_home, self._planner.zones)
        self._certificates: Certificates | None = None
        self._certificate_problems: tuple[str, ...] = ()

    def path_rules(self) -> tuple[PathRule, ...]:
        """Returns the present rules about paths inside these walls."""
        return self._planner.rules()

    def narrowed(self, sandbox: Sandbox) -> Walls:
        """Walls around some of these zones, for one tool that may do less than its worker. The report, once it is
        there, and everything else is this one's; the scans of its zones are its own, so keep it."""
        return Walls(
            sandbox,
            self._settings,
            forge_home=self._forge_home,
            redactor=self._redactor,
            rules=self._planner.rules,
            host=replace(self._host, report=None),
            undo=self._undo,
            wider=self,
        )

    async def report(self) -> ProbeReport:
        if self._wider is not None:
            return await self._wider.report()
        if self._report is None and self._settings.off:
            self._report = ProbeReport(level=Level.OFF)
        if self._report is None:
            self._probing = self._probing or asyncio.Lock()
            async with self._probing:
                self._report = self._report or await self._host.tried(self._forge_home / "cache")
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener(self._report)
        return self._report

    def on_report(self, listener: Callable[[ProbeReport], None]) -> None:
        """`listener` is told once, when a report is first asked for: before the first child starts."""
        self._listeners.append(listener)

    def on_unread(self, listener: Callable[[Aftermath], None]) -> None:
        """`listener` is told what a child left behind that no call reports on."""
        self._unread.append(listener)

    def _tell_unread(self, after: Aftermath) -> None:
        if self._wider is not None:
            self._wider._tell_unread(after)
        for listener in self._unread:
            listener(after)

    async def level(self) -> Level:
        return (await self.report()).level

    @property
    def known_report(self) -> ProbeReport | None:
        return self._wider.known_report if self._wider is not None else self._report

    @property
    def known_level(self) -> Level | None:
        """The level without trying: None until somebody has asked for a report."""
        if self._wider is not None:
            return self._wider.known_level
        if self._report is None:
            return Level.OFF if self._settings.off else None
        return self._report.level

    @property
    def limits(self) -> ResourceLimits:
        """The limits of a child whose job sets none."""
        return self._settings.limits

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the person at start-up: what behaves differently from what they may expect, as far as it is
        known.
        """
        exits = self._exit_notices()
        return (*self._planner.start_up_notices(), *self._planner.notices, *self._certificate_problems, *exits)

    def _exit_notices(self) -> Iterator[str]:
        exits, told = self._planner.exits()
        yield from told
        if exits and self.known_level is Level.LANDLOCK:
            names = ", ".join(exits.describe())
            yield f"commands cannot use {names}: that needs full walls, and these are read-only (`forge doctor`)."

    def check_zones(self) -> tuple[str, ...]:
        """Checks every zone for `forge doctor`. Returns the notices, with the error that would stop a start."""
        self._person_certificates()
        try:
            for zone in self._planner.zones:
                self._planner.check(zone, writable=self._planner.is_writable(zone, Job(argv=())))
            self._planner.planned(Job(argv=()))
        except SandboxError as error:
            return (*self.notices, error.message)
        return self.notices

    def toolchains(self) -> VisibleToolchains:
        """The person's toolchains that children see, and those that were refused."""
        return self._planner.toolchains

    def search_path(self, *, command: bool) -> tuple[str, ...]:
        """Host directories of the inner PATH, in order, without Forge's own; `command`: see `Job.zone_programs`."""
        found = self._planner.toolchains
        return tuple(path for path in (found.command_path if command else found.path) if path != layout.SHIPPED)

    def kept_home(self, *names: str) -> str:
        """A directory in the person's cache for `Job.home`, made if it is missing. Raises WALLS_UNAVAILABLE."""
        return kept_home(cache_directory(self._planner.environ, self._planner.home), *names)

    def with_git_settings(self, environ: dict[str, str]) -> dict[str, str]:
        """A command's environment, with what git needs where a zone lies below the root of a work tree."""
        return with_part_of_a_work_tree(environ) if self._planner.has_part_of_a_work_tree() else environ

    def keeping_bytecode(self, job: Job, level: Level) -> Job:
        """A command's job, whose Python leaves no bytecode in a zone, where the person's own Python would run it."""
        writable = [zone for zone in self._planner.zones if self._planner.is_writable(zone, job)]
        if not writable or level is Level.LANDLOCK:
            return job
        kept = self._bytecode.directory(job, writable) if level is Level.FULL else ""
        said = {"PYTHONPYCACHEPREFIX": layout.BYTECODE} if kept else {"PYTHONDONTWRITEBYTECODE": "1"}
        return replace(job, bytecode=kept, env={**said, **job.env})

    def may_join(self, env: Mapping[str, str]) -> bool:
        """Whether a command with these variables may enter the session's loopback. Threat: what enters it runs on the
        host for a moment, so no program of it may load what a variable names."""
        return not loads_code(env)

    def sharing_key(self) -> Hashable:
        """Equal for walls that show and refuse the same: the same zones, modes and rules about paths. Kept from the
        first time: a rule that is added later changes nothing about who shared a loopback before."""
        if self._shares is None:
            zones = sorted(
                (zone.host, zone.mode.value, self._planner.is_writable(zone, Job(argv=())))
                for zone in self._planner.zones
            )
            rules = sorted(
                (rule.pattern, rule.verdict.value, tuple(sorted(rule.access)), rule.accepts_secret)
                for rule in self._planner.rules()
            )
            self._shares = (tuple(zones), tuple(rules))
        return self._shares

    def as_command(self, job: Job, level: Level) -> Job:
        """The job of a command: with programs of zones, `keeping_bytecode`, the person's mirrors of package registries
        and their certificates, and a cache that stays."""
        made = replace(self.keeping_bytecode(job, level), zone_programs=True)
        if job.reads_only or level not in (Level.FULL, Level.OFF):
            return made
        mirrors = person_mirrors(self._planner.environ).env
        if level is Level.OFF:
            return replace(made, env={**mirrors, **made.env})
        certificates = self._person_certificates()
        # What a block hands on as it is would name a file that is not there.
        unseen = {name for name in certificates.env if made.env.get(name) == self._planner.environ.get(name)}
        declared = {name: value for name, value in made.env.items() if name not in unseen}
        writable = [zone for zone in self._planner.zones if self._planner.is_writable(zone, job)]
        cache = self._cache.directory(job, writable) if self._planner.has_room_for_cache(job) else ""
        toolchains = self._planner.toolchains.command_variables
        kept = cache_variables(cache, toolchains, hosts=bool(job.hosts)) if cache else {}
        credentials = self.credentials_for(job.hosts) if job.credential_used is not None else ()
        placed = {each.variable: PLACEHOLDER + each.variable for each in credentials}
        env = {**mirrors, **certificates.env, **kept, **placed, **declared}
        shown = (*certificates.shown, *job.shown)
        return replace(made, env=env, cache=cache, shown=shown, credentials=credentials)

    @property
    def credentials(self) -> tuple[HostCredential, ...]:
        """All of `sandbox.credentials`."""
        return self._settings.credentials

    def credentials_for(self, hosts: Iterable[HostGrant]) -> tuple[HostCredential, ...]:
        """Returns the credentials for commands that may reach these hosts."""
        named = {grant.host for grant in hosts if grant.port == TLS_PORT}
        return tuple(each for each in self._settings.credentials if each.host in named)

    def _person_certificates(self) -> Certificates:
        """Read once. A variable that names none is left out: `notices` says so."""
        if self._certificates is None:
            problems: list[str] = []
            home = ForgeHome(self._forge_home)
            self._certificates = show_certificates(self._planner.environ, home, problems)
            self._certificate_problems = tuple(problems)
        return self._certificates

    async def carry_git(self) -> None:
        """Copies what commands did with git so far into the user's repositories, as happens while they run and when
        they end. Problems are reported with the next command.
        """
        for zone in self._planner.zones if await self.level() is Level.FULL else ():
            shadow = self._planner.open_shadow(zone, Job(argv=()))
            if shadow is not None:
                await asyncio.to_thread(shadow.carry)

    def mount_point(self, zone: str, level: Level = Level.FULL) -> str:
        """Returns the path of a zone inside; empty if there is no zone of that name."""
        found = next((one for one in self._planner.zones if one.name == zone), None)
        if found is None:
            return ""
        return self._planner.mount_point(found) if level is Level.FULL else found.host

    def scan_complete(self, virtual: str, *, hidden: bool = True) -> bool:
        """Whether the scan saw every name below a directory, so that no secret there is left unmasked."""
        place = self.sandbox.locate(virtual)
        return place.zone is not None and self._planner.complete(place.zone, place.parts, hidden=hidden)

    def explain(self, path: str) -> PathExplanation:
        """Explains what a child could do at a path, given by its address or host path, also outside of every zone.
        Raises SandboxError for anything that is no such path.
        """
        return explain(path, self.sandbox, self._planner)

    async def coverage(self) -> Coverage:
        """Returns what could not be undone in the zones that commands can write. Scans what changed since the last
        scan, the first time everything.
        """
        from golem_forge.sandbox.undo.zone_history import zone_history  # loads SQLite

        zones = [zone for zone in self._planner.zones if self._planner.is_writable(zone, Job(argv=()))]
        home, undo = self._forge_home, self._undo

        def look() -> Coverage:
            known = self._histories = {zone.name: zone_history(zone, home, undo.settings) for zone in zones}
            return Coverage({zone.name: known[zone.name].coverage(undo.session).below(zone.subpath) for zone in zones})

        return await asyncio.to_thread(look)

    def exits(self) -> Exits:
        """Returns the host devices and sockets that commands get now: those that the person's own config names and that
        exist.
        """
        return self._planner.exits()[0]

    @property
    def offers_outside(self) -> bool:
        """The person's own config lets a command ask to run outside the walls."""
        return self._settings.outside

    def exit_lines(self) -> tuple[str, ...]:
        """Returns the openings in these walls for cards and start lines: `device nvidia`, `socket /run/docker.sock`,
        `commands outside, each by your own yes`.
        """
        outside = ("commands outside, each by your own yes",) if self._settings.outside else ()
        return (*self.exits().describe(), *outside)

    async def start_outside(self, job: Job) -> WalledChild:
        """One command without walls, where the person's config offers that. Whoever calls has the person's answer to
        exactly this command. Limits, the end of its tree and what its output may say are those of every child."""
        if not self._settings.outside:
            raise walls_unavailable("this session has no way out of its walls", "Run the command yourself.")
        env = {**job.env, **person_identity(self._planner.environ)}
        job = replace(job, outside=True, zone_programs=True, env=env)
        return await self._start_without_namespaces(job, ProbeReport(level=Level.OFF))

    async def start(self, job: Job) -> WalledChild:
        """Returns when the command is about to run. Raises SandboxError; nothing was run then."""
        if not self._tidied:
            self._tidied = True
            remove_stale_placeholders(PlaceholderNotes(self._forge_home))
        report = await self.report()
        if report.level is Level.NONE:
            raise walls_unavailable(report.cause or "this machine has none", report.fix or bubblewrap.FIX)
        if report.level is not Level.FULL:
            return await self._start_without_namespaces(job, report)
        return await self._start_full(job)

    async def _start_full(self, job: Job) -> WalledChild:
        if job.cache and is_look_due(job.cache):
            await asyncio.to_thread(look_after, job.cache)
        start = _FullStart(self._planner, job)
        try:
            await start.take_zones()
            place = self._planner.working_directory(job)
            launch = self._launch(start, place.inner)
        except BaseException:
            if (left := start.leave()) is not None:
                await left
            raise
        child = await start_process(launch, job.streams, stdin=job.stdin, stdout=job.stdout, filter=self._text_filter)
        start.joined()
        plan = replace(start.planned.plan, cwd=place.inner, mounted=True)
        return WalledChild(child, plan, start, tell=self._tell_unread, environ=self._environ_for(job))

    def still_valid(self, walled: WalledChild, job: Job) -> bool:
        """Whether walls built for this job now would show and refuse what those around a running child do: rules and
        the names of secrets may have changed since. Raises RulesUnusable."""
        if (plan := walled.plan) is None:
            return True
        try:
            for zone in self._planner.zones:
                self._planner.check(zone, writable=False)
            now = self._planner.planned(job).plan
        except SandboxError:  # gone, another directory in its place, too much to hide: a new start says so
            return False
        return replace(now, cwd=plan.cwd, mounted=plan.mounted) == plan

    def redact(self, text: str) -> str:
        """Redacts a text of a child that is not its output: zones by their addresses, secrets removed."""
        return self.output_redactor().text(text)

    def prepare_launch(self, job: Job) -> Launch:
        """Returns what would be started at level full, to inspect or measure it. The caller closes its descriptors;
        nothing is locked, and no placeholder is kept.
        """
        start = _FullStart(self._planner, job)
        for zone in self._planner.zones:
            shadow = self._planner.open_shadow(zone, job)
            if shadow is not None and not shadow.is_ready():
                shadow.prepare()
        return self._launch(start, self._planner.working_directory(job).inner)

    def _launch(self, start: _FullStart, cwd: str) -> Launch:
        """Planned once more where something changed on disk meanwhile."""
        job, limits = start.job, start.job.limits or self._settings.limits
        home, toolchains = self._planner.home_of(job), self._planner.toolchains
        env = job_environment(job, toolchains, home=home, tmp=layout.TEMPORARY, level=Level.FULL)
        addresses = [zone.virtual(()) for zone in self._planner.zones]
        joining = start.join()
        for last in (False, True):
            guard = start.plan()
            mounts, start.masks = split_masks((*start.planned.mounts, layout.final_arguments(cwd)))
            try:
                argv, descriptors = bubblewrap.command(
                    self._found_backend(),
                    mounts,
                    job.argv,
                    limits=limits,
                    terminal=job.streams is Streams.TERMINAL,
                    network=_network(job),
                    waits=start.has_work_inside,
                    table=self._planner.mount_table(job, env),
                )
            except bubblewrap.LayoutChanged:
                if last:
                    break
                start.inspection.begin_again()
                continue
            return Launch(
                argv=(*joining, *argv),
                env=env,
                root=TreeRoot.NAMESPACE,
                limits=limits,
                descriptors=descriptors,
                before_go=start.work_inside if start.has_work_inside else None,
                mount_check=guard,
                make_error=lambda text: bubblewrap.start_error(text, self.sandbox.virtualise, addresses),
                on_exit=start.leave,
            )
        raise walls_unavailable("files of a zone changed while they were being built", "Try again.")

    async def _start_without_namespaces(self, job: Job, report: ProbeReport) -> WalledChild:
        level = report.level
        if level is Level.LANDLOCK and (refusal := landlock.needs_full(job, self.sandbox, report.fix or landlock.FIX)):
            raise refusal
        for zone in self._planner.zones:
            self._planner.check(zone, writable=False)
        place = self._planner.working_directory(job)
        if job.home:
            write_gitconfig(job.home, self._planner.gitconfig())
        planned = self._planner.planned(replace(job, reads_only=True, exits=NO_EXITS))
        command = landlock.landlock_command(
            job,
            self.sandbox,
            self._planner,
            planned,
            cwd=place.host,
            env=job_environment(job, self._planner.toolchains, home="", tmp="", level=level),
            limits=job.limits or self._settings.limits,
        )
        child = await start_process(
            landlock.launch(command, level=level),
            job.streams,
            stdin=job.stdin,
            stdout=job.stdout,
            filter=self._text_filter,
        )
        plan = replace(planned.plan, cwd=place.host or "/") if level is Level.LANDLOCK else None
        return WalledChild(child, plan, environ=self._environ_for(job))

    def _environ_for(self, job: Job) -> Mapping[str, str] | None:
        """Says where a person's sockets are, which only commands are told of."""
        return self._planner.environ if job.exits is not None else None

    def _found_backend(self) -> bubblewrap.Backend:
        if self._backend is None:
            path = self._host.bwrap or bubblewrap.find_bwrap()
            if path is None:
                raise walls_unavailable("bubblewrap (bwrap) is not installed", "Install the package bubblewrap.")
            self._backend = bubblewrap.bwrap_backend(path)
        return self._backend

    def _text_filter(self) -> StreamRedactor:
        return StreamRedactor(self.output_redactor())

    def output_redactor(self) -> Redactor:
        """Returns the redactor of children's output; a new object once there are more secrets or paths."""
        known = len(self._redactor.secrets) + len(self._redactor.paths) if self._redactor else 0
        if self._output is None or self._output[0] != known:
            self._output = (known, output_redactor(self._planner.zones, self._redactor))
        return self._output[1]


def _network(job: Job) -> Network:
    if job.own_program:
        return Network.NONE
    if job.shares_network:
        return Network.SHARED
    return Network.OWN if job.loopback is None else Network.JOINED


_WINDOW: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    denials: tuple[dict[str, Any], ...] = ()
    protected_created: tuple[str, ...] = ()
    """Virtual paths of protected names that did not exist before."""
    leftovers: tuple[Leftover, ...] = ()
    """Files and settings that the person's own programs would run or obey."""
    passed_by: tuple[str, ...] = ()
    """Hosts with credentials that it reached by TLS of its own, where no credential is put in."""
    unreached: tuple[str, ...] = ()
    """Granted hosts, with ports, that this computer does not reach either."""


class WalledChild:
    def __init__(
        self,
        child: Child,
        plan: WallPlan | None,
        start: _FullStart | None = None,
        *,
        tell: Callable[[Aftermath], None] = lambda after: None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Without a plan there are no walls that could have refused anything. `start`: of full walls. `tell`: see
        `report_unread`. `environ`: the person's own.
        """
        self._environ = environ
        self.child = child
        self.plan = plan
        self.loopback = start.job.loopback if start is not None else None
        """Of the session, if it is in that one."""
        self._start = start
        self._left: tuple[tuple[str, ...], tuple[Leftover, ...]] | None = None
        self._tell = tell

    async def exchange(self) -> None:
        """Carries over what git has inside and outside. For children that serve many calls, before and after each."""
        if self._start is not None:
            await self._start.inspection.exchange()

    def denials_in(self, text: str) -> tuple[dict[str, Any], ...]:
        """Returns the denials for which a child's own error text is evidence."""
        return denials.find_denials(self.plan, text, exit_code=1) if self.plan is not None else ()

    def aftermath(self) -> Aftermath:
        """Call it after the end. What was left behind is looked for once: the zone may change again after that."""
        if self.plan is None:
            return Aftermath()
        if self._left is None:
            self._left = self._start.created() if self._start else (), self._leftovers()
        ending = self.child.ending
        texts = (each for each in (self.child.output, self.child.errors) if each is not None)
        text = "\n".join(_ends(each).decode("utf-8", "replace") for each in texts)
        proxy = self._start.proxy if self._start else None
        return Aftermath(
            denials=denials.find_denials(
                self.plan,
                text,
                exit_code=ending.exit_code if ending else None,
                signal_number=ending.signal if ending else None,
                refused_hosts=proxy.refused if proxy else (),
                environ=self._environ,
            ),
            protected_created=self._left[0],
            leftovers=self._left[1],
            passed_by=proxy.passed_by if proxy else (),
            unreached=proxy.unreached if proxy else (),
        )

    def _leftovers(self) -> tuple[Leftover, ...]:
        return self._start.inspection.leftovers if self._start else ()

    def report_unread(self) -> None:
        """Reports what a child left, if no call reports on it (a server, a session that nobody read to its end). Does
        nothing if `aftermath` was taken.
        """
        if self._left is None:
            after = self.aftermath()
            if after.protected_created or after.leftovers:
                self._tell(after)


def _ends(capture: Capture) -> bytes:
    """The beginning and the end of an output; evidence in between is not looked for."""
    if capture.size <= 2 * _WINDOW:
        return capture.read()
    return capture.read(0, _WINDOW) + b"\n" + capture.read(capture.size - _WINDOW)
