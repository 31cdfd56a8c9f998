"""The probe: which walls this machine gives, by trying. Nothing is claimed that was not attempted and refused.

For each level a stand-in for Forge (`probe_host`) builds the real walls in a temporary directory (ProbeFixture),
`probe_child` attempts inside what each guarantee forbids, and then the stand-in is killed. Returns a ProbeReport
within two seconds, cached in a file for the same kernel, backend, user and environment. Refuses nothing: a try that
fails is a level not reached. The fixture is the other half of the evidence: whatever the child says, nothing
outside may have changed and nobody may have connected. `explain_failure` gives cause and fix from a few files of
/proc and never guesses beyond them.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import json
import os
import pty
import secrets
import select
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from golem_forge._version import __version__
from golem_forge.config.sandbox_block import ResourceLimits
from golem_forge.sandbox.host import isolated_module
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import GUARANTEES, Level, LevelResult, ProbeReport
from golem_forge.sandbox.walls.seccomp import PROCESSORS
from golem_forge.storage.home import JSON_FILE_ERRORS, read_json, try_lock, write_private

KERNEL_SWITCHES: Final = {
    "kernel.unprivileged_userns_clone": "0",
    "user.max_user_namespaces": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
}
"""Settings of the kernel that keep plain users from making namespaces, with the value that does."""


class ProbeFailure(NamedTuple):
    cause: str
    fix: str


NO_BWRAP: Final = ProbeFailure(
    "bubblewrap is not installed",
    "Install it: `sudo apt-get install bubblewrap` (or your system's package of that name).",
)
TOO_SLOW: Final = ProbeFailure("not tried in time", "Run 'forge doctor' when the machine is less busy.")
NO_LANDLOCK: Final = ProbeFailure(
    "this kernel has no Landlock", "Use Linux 6.2 or later with Landlock among its security modules (`lsm=landlock,…`)."
)
OLD_LANDLOCK: Final = ProbeFailure(
    "this kernel's Landlock cannot keep files from being emptied", "Use Linux 6.2 or later."
)


def explain_failure(said: str) -> ProbeFailure:
    """`said`: the refusal of a start, or empty where walls stood and something did not hold."""
    named = "namespace" in said or "uid map" in said or "Permission denied" in said or "not permitted" in said
    if named and not _is_root():
        for name, closed in KERNEL_SWITCHES.items():
            if kernel_setting(name) == closed:
                return _switched_off(name)
    if named and _own_status("Seccomp") == ["2"]:
        return ProbeFailure(
            "a system call filter around Forge refuses new namespaces, as containers have",
            "Start the container with a profile that allows them, such as `--security-opt seccomp=unconfined`.",
        )
    cause = said.removeprefix("Walls could not be built: ").partition(". The command was not run.")[0]
    return ProbeFailure(cause or "some guarantees of full walls did not hold", "Run 'forge doctor' for the list.")


def _switched_off(name: str) -> ProbeFailure:
    if name == "kernel.apparmor_restrict_unprivileged_userns":
        return ProbeFailure(
            "AppArmor keeps programs without a profile from making user namespaces",
            f"Give bwrap a profile that allows `userns`, or run `sudo sysctl -w {name}=0`.",
        )
    value = "1" if name.endswith("clone") else "10000"
    return ProbeFailure(f"user namespaces are switched off ({name})", f"Run `sudo sysctl -w {name}={value}`.")


def kernel_setting(name: str) -> str:
    """Returns a kernel setting; empty if the kernel has none of that name."""
    return _read_text("/proc/sys/" + name.replace(".", "/")).strip()


def environment_facts() -> list[str]:
    """Returns what a result depends on besides kernel and backend; another value may mean another level."""
    own = _own_status("CapEff", "NoNewPrivs", "Seccomp", "Seccomp_filters")
    label = _read_text("/proc/self/attr/current").strip("\0\n")
    return [*(kernel_setting(name) for name in KERNEL_SWITCHES), *own, label]


def _is_root() -> bool:
    return os.geteuid() == 0


def _own_status(*names: str) -> list[str]:
    status = dict(line.partition(":")[::2] for line in _read_text("/proc/self/status").splitlines())
    return [status.get(name, "").strip() for name in names]


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


WITHIN_S: Final = 2.0
_MORE_TIME: Final = (3, 15)
"""How many times as long each further try may take, on a machine that was too busy for the one before. Half a minute:
without walls nothing runs at all."""
NEEDED: Final = tuple(name for name in GUARANTEES if name != "G8")
"""Guarantees without which a level is not reached."""
_REFUSED: Final = frozenset({"EPERM", "EACCES", "EROFS", "EBUSY", "ENOENT"})
_REFUSALS: Final = {
    "G1": _REFUSED | {"ENOTSUP", "EOPNOTSUPP"},  # how the filter answers root who sets an attribute
    "G5": _REFUSED | {"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EAFNOSUPPORT"},
    "G6": _REFUSED | {"ECONNREFUSED"},
    "G8": _REFUSED | {"ESRCH"},
    "G9": frozenset({"EPERM", "ENOSYS"}),
    "G10": _REFUSED | {"ENXIO"},
    "G12": _REFUSED | {"EMFILE", "EFBIG"},
}
"""The errors with which an attempt must fail; any other error means that not the walls stopped it."""
_NOT_MADE: Final = "the test could not be run"
_LATE: Final = "late"
"""The result of an attempt that was not seen to fail in time, so that it proves nothing."""
_TRANSIENT_CAUSES: Final = (_NOT_MADE, TOO_SLOW.cause)
"""Causes that say something about the moment, not about the machine."""
CACHE_FILE: Final = "walls.json"
_FORMAT: Final = 5
_LONGEST_CACHE: Final = 64 * 1024
_GONE_WITHIN: Final = 0.5
"""The part of the test's time limit for this check; a longer test waits longer for it too."""
_LIVES_ON_AFTER_S: Final = 6.0
"""Threat: on a busy machine the end of a process takes seconds, and what is said then of the walls is kept."""
_HOST_MODULE: Final = "golem_forge.sandbox.walls.probe_host"


async def probe(*, cache: Path | None, within: float = WITHIN_S) -> ProbeReport:
    """`cache`: the folder of the file that keeps the result (FORGE_HOME/cache); None: tried anew and not kept."""
    bwrap = find_bwrap()
    key = _key(bwrap)
    if cache is not None and (known := _kept(cache / CACHE_FILE, key)) is not None:
        return known
    tried = await asyncio.gather(_full(bwrap, within), _landlock(within))
    level = next((each.level for each in tried if each.reached), Level.NONE)
    report = ProbeReport(level=level, tried=tuple(tried))
    if cache is not None and not any(each.cause.startswith(_TRANSIENT_CAUSES) for each in tried):
        _keep(cache / CACHE_FILE, key, report)
    return report


def cached_report(cache: Path) -> ProbeReport | None:
    """Returns the cached result of an earlier test if it is still valid; tests nothing."""
    return _kept(cache / CACHE_FILE, _key(find_bwrap()))


async def probe_with_retry(*, cache: Path | None) -> ProbeReport:
    """Tests the walls, and tests again with more time if a busy machine was too slow or had no room for a process."""
    report = await probe(cache=cache)
    for times in _MORE_TIME:
        if report.level is Level.FULL or not any(each.cause.startswith(_TRANSIENT_CAUSES) for each in report.tried):
            break
        report = await probe(cache=cache, within=times * WITHIN_S)
    return report


async def _full(bwrap: str | None, within: float) -> LevelResult:
    if bwrap is None:
        return _not_reached(Level.FULL, NO_BWRAP)
    return await _try(Level.FULL, bwrap, within)


async def _landlock(within: float) -> LevelResult:
    version = landlock.landlock_abi()
    if version < 3:
        return _not_reached(Level.LANDLOCK, OLD_LANDLOCK if version else NO_LANDLOCK)
    return await _try(Level.LANDLOCK, None, within)


async def _try(level: Level, bwrap: str | None, within: float) -> LevelResult:
    deadline = time.monotonic() + within
    try:
        with ProbeFixture(level) as fixture:
            return await _run_attempts(fixture, bwrap, deadline, _GONE_WITHIN * within)
    except TimeoutError:
        return _untried(level, tuple(GUARANTEES))
    except (OSError, ValueError, KeyError) as error:
        what = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        return _not_reached(level, ProbeFailure(f"{_NOT_MADE} ({what})", "Run 'forge doctor'."))


async def _run_attempts(fixture: ProbeFixture, bwrap: str | None, deadline: float, gone_within: float) -> LevelResult:
    host = await _start_host(fixture, bwrap, deadline - time.monotonic())
    try:
        async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
            assert host.stdout is not None
            line = await host.stdout.readline()
        if not line:
            raise ChildProcessError
        answer = json.loads(line)
        if "said" not in answer:
            return _not_reached(fixture.level, explain_failure(answer["refused"]))
        if answer["said"] is None:
            raise TimeoutError
        found: dict[str, dict[str, str]] = json.loads(answer["said"].partition("\n")[0])
        lived = fixture.has_live_process()
    finally:
        with contextlib.suppress(ProcessLookupError):
            host.kill()
        await host.wait()
    found["G11"] = found.get("G11", {}) | {"outlive Forge": await _outlived(fixture, gone_within) if lived else _LATE}
    ways = {True: "EPERM", False: "done", None: _LATE}
    found["G12"] |= {f"whole tree {index}": ways[held] for index, held in enumerate(answer["limits"])}
    return _evaluate(fixture, found)


def _evaluate(fixture: ProbeFixture, found: Mapping[str, Mapping[str, str]]) -> LevelResult:
    broken = set(fixture.broken_guarantees())
    held = tuple(name for name in GUARANTEES if name not in broken and _all_refused(name, found.get(name, {})))
    late = {name for name, attempts in found.items() if _LATE in attempts.values()} - broken
    untried = tuple(name for name in GUARANTEES if name in late and _all_refused(name, found[name], but=_LATE))
    missing = tuple(name for name in GUARANTEES if name not in held and name not in untried)
    if lacking := [name for name in missing if name in NEEDED]:
        words = ", ".join(f"{name} ({GUARANTEES[name]})" for name in lacking)
        cause, fix = f"tested, and this did not hold: {words}", explain_failure("").fix
        return LevelResult(level=fixture.level, held=held, missing=missing, untried=untried, cause=cause, fix=fix)
    if untried:
        return _untried(fixture.level, untried, held, missing)
    return LevelResult(level=fixture.level, held=held, missing=missing)


def _all_refused(name: str, attempts: Mapping[str, str], but: str = "") -> bool:
    """`but`: a way to have ended that is left out of account."""
    ways = set(attempts.values()) - {but}
    return bool(attempts) and ways <= _REFUSALS.get(name, _REFUSED)


async def _outlived(fixture: ProbeFixture, gone_within: float) -> str:
    """Returns the result of the check that nothing inside lives on when Forge is killed; late if it ended after all, on
    a slow machine.
    """
    begun = time.monotonic()
    while fixture.has_live_process():
        if time.monotonic() > begun + max(gone_within, _LIVES_ON_AFTER_S):
            return "done"
        await asyncio.sleep(0.01)
    return "EPERM" if time.monotonic() <= begun + gone_within else _LATE


async def _start_host(fixture: ProbeFixture, bwrap: str | None, patience: float) -> asyncio.subprocess.Process:
    python, read = probe_interpreter()
    given: dict[str, Any] = {
        "level": fixture.level,
        "root": str(fixture.root),
        "bwrap": bwrap or "",
        "terminal": fixture.terminal[1],
        "python": python,
        "read": read,
        "asked": fixture.child_arguments(),
        "patience": patience,
    }
    inherited = os.dup(fixture.terminal[1])
    """Inheritable all the way: what of it arrives inside is a descriptor of Forge's."""
    try:
        return await asyncio.create_subprocess_exec(
            *isolated_module(_HOST_MODULE, json.dumps(given)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.defpath, "FORGE_PROBE": fixture.canary, "HOME": str(fixture.root)},
            cwd="/",
            pass_fds=(fixture.terminal[1], inherited),
            start_new_session=True,
            limit=1 << 20,
        )
    finally:
        os.close(inherited)


def _not_reached(level: Level, why: ProbeFailure) -> LevelResult:
    """Returns a result with the cause only: nothing was attempted, so nothing is missing."""
    return LevelResult(level=level, cause=why.cause, fix=why.fix)


def _untried(
    level: Level, untried: tuple[str, ...], held: tuple[str, ...] = (), missing: tuple[str, ...] = ()
) -> LevelResult:
    cause, fix = TOO_SLOW
    if untried != tuple(GUARANTEES):
        cause += ": " + ", ".join(f"{name} ({GUARANTEES[name]})" for name in untried)
    return LevelResult(level=level, held=held, missing=missing, untried=untried, cause=cause, fix=fix)


def _key(bwrap: str | None) -> list[Any]:
    """Returns the cache key: everything that the result depends on, so that a changed setting takes effect."""
    system = os.uname()
    backend: list[Any] = []
    if bwrap is not None:
        info = os.stat(bwrap)
        backend = [bwrap, info.st_ino, info.st_size, info.st_mtime_ns]
    own = [_FORMAT, __version__, sys.executable, os.getuid(), landlock.landlock_abi()]
    return [*own, system.release, system.version, system.machine, *backend, *environment_facts()]


def _kept(file: Path, key: list[Any]) -> ProbeReport | None:
    try:
        kept = read_json(file, _LONGEST_CACHE)
        if kept["key"] != key:
            return None
        tried = tuple(
            LevelResult(
                level=Level(each["level"]),
                held=tuple(name for name in GUARANTEES if name in each["held"]),
                missing=tuple(name for name in GUARANTEES if name in each["missing"]),
                cause=str(each["cause"]),
                fix=str(each["fix"]),
            )
            for each in kept["tried"]
        )
        level = next((each.level for each in tried if each.reached and set(NEEDED) <= set(each.held)), Level.NONE)
        return ProbeReport(level=level, tried=tried)
    except JSON_FILE_ERRORS:
        return None  # a file that cannot be understood is as good as none


def _keep(file: Path, key: list[Any], report: ProbeReport) -> None:
    tried = [
        {"level": each.level, "held": each.held, "missing": each.missing, "cause": each.cause, "fix": each.fix}
        for each in report.tried
    ]
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, json.dumps({"key": key, "tried": tried}).encode(), durable=False)


_GIT_NAMES: Final = {"HEAD", "config", "hooks", "objects", "refs"}
PROBE_LIMITS: Final = ResourceLimits(cpu_s=60, file_size=1 << 16, open_files=64)
FORBIDDEN_CALLS: Final = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "io_uring_setup", "bpf", "perf_event_open", "keyctl"),
    *("add_key", "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen", "fsmount", "mount_setattr"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
)
_SYSTEM_PYTHON: Final = "/usr/bin/python3"
_UNREACHABLE: Final = -1
"""Used for every argument: a call that nothing refuses fails with another error and does no harm."""

_PREFIX: Final = "forge-probe-"
_UNLOCKED: Final = "forge-new-probe-"
_LOCKED_WITHIN_S: Final = 60.0
"""Seconds after which a running probe has locked its new directory."""
_LONGEST_PLACE: Final = 60
"""Maximum length of the directory's path, since the name of a socket has 107 bytes."""


class ProbeFixture:
    def __init__(self, level: Level) -> None:
        self.level = level
        self.root, self._in_use = _new_root()
        self.zone, self.closed, self.outside = (self.root / name for name in ("zone", "closed", "outside"))
        self.forge_home = self.root / "home"
        self.canary = secrets.token_hex(16)
        self.abstract = f"forge-probe-{self.canary[:8]}"
        self.sockets: dict[str, socket.socket] = {}
        self.terminal = (-1, -1)
        self._before: dict[Path, tuple[int, ...]] = {}

    def __enter__(self) -> Self:
        try:
            self._lay_out()
            self._listen()
            self.terminal = pty.openpty()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for made in self.sockets.values():
            made.close()
        for descriptor in self.terminal:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        shutil.rmtree(self.root, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._in_use)
        with contextlib.suppress(OSError):
            os.unlink(f"/usr/{self.abstract}")  # only where walls did not hold

    def child_arguments(self) -> dict[str, Any]:
        numbers = PROCESSORS[os.uname().machine].numbers
        return {
            "zone": str(self.zone),
            "closed": str(self.closed),
            "outside": str(self.outside),
            "canary": self.canary,
            "names": ["FORGE_PROBE"],
            "mark": self.abstract,
            "abstract": self.abstract,
            "unix": str(self.outside / "socket"),
            "tcp": self.sockets["tcp"].getsockname()[1],
            "udp": self.sockets["udp"].getsockname()[1],
            "terminal": os.ttyname(self.terminal[1]),
            "hidden": self.level is Level.FULL,
            "calls": {name: [numbers[name], *[_UNREACHABLE] * 6] for name in FORBIDDEN_CALLS if name in numbers},
            "limits": {
                "CPU": PROBE_LIMITS.cpu_s,
                "FSIZE": PROBE_LIMITS.file_size,
                "NOFILE": PROBE_LIMITS.open_files,
                "CORE": 0,
            },
        }

    def broken_guarantees(self) -> Iterator[str]:
        """Guarantees that were broken, whatever the child said."""
        if any(_file_state(path) != before for path, before in self._before.items()) or self._more_names():
            yield "G1"
            yield "G3"
        if set(os.listdir(self.zone / ".git")) != _GIT_NAMES:
            yield "G3"
        for name, guarantee in {"tcp": "G5", "udp": "G5", "stream": "G6", "datagram": "G6", "abstract": "G6"}.items():
            if select.select([self.sockets[name]], [], [], 0)[0]:
                yield guarantee

    def has_live_process(self) -> bool:
        """Whether a process from inside still lives: it holds the lock."""
        with open(self.closed / "lock", "rb") as file, contextlib.suppress(OSError):
            return not try_lock(file.fileno())
        return False

    def _lay_out(self) -> None:
        for folder in (self.zone / ".git" / "hooks", self.zone / "deep" / "er", self.closed, self.outside):
            folder.mkdir(parents=True)
        self.forge_home.mkdir()
        for path in (self.outside / "file", self.zone / ".env", self.zone / "deep" / "er" / "id_rsa"):
            path.write_text(self.canary)
        git = self.zone / ".git"
        for path in (self.closed / "file", self.closed / "lock", git / "config", self.zone / "plain"):
            path.write_text("plain\n")
        (self.zone / "to_secret").symlink_to(".env")
        for name in ("objects", "refs"):
            (git / name).mkdir()
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        watched = (self.outside / "file", self.closed / "file", git / "config", git / "hooks", git / "HEAD")
        self._before = {path: _file_state(path) for path in watched}

    def _more_names(self) -> bool:
        names = {*os.listdir(self.outside), *os.listdir(self.closed)}
        return not names <= {"file", "lock", "socket", "datagrams"} or os.path.lexists(f"/usr/{self.abstract}")

    def _listen(self) -> None:
        places: dict[str, tuple[int, int, Any]] = {
            "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "stream": (socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "socket")),
            "datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, str(self.outside / "datagrams")),
            "abstract": (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.abstract),
        }
        for name, (family, kind, address) in places.items():
            self.sockets[name] = made = socket.socket(family, kind)
            made.bind(address)
            if kind == socket.SOCK_STREAM:
                made.listen()


def _places() -> list[str]:
    places = [tempfile.gettempdir(), "/tmp", "/var/tmp"]  # noqa: S108 - a directory of its own is made there
    return [place for place in places if len(os.fsencode(os.path.realpath(place))) <= _LONGEST_PLACE]


def _new_root() -> tuple[Path, int]:
    """(a directory, a handle that keeps it locked). It is locked before it gets its name, so whoever finds one of that
    name unlocked may remove it. In the temporary directory, unless its path is too long for a socket's name: then in a
    shorter one."""
    for place in _places():
        with contextlib.suppress(OSError):
            return _locked_root(tempfile.mkdtemp(prefix=_UNLOCKED, dir=place))
    return _locked_root(tempfile.mkdtemp(prefix=_UNLOCKED))


def _locked_root(made: str) -> tuple[Path, int]:
    new = Path(os.path.realpath(made))
    handle = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        try_lock(handle)
    return new.rename(new.with_name(new.name.replace(_UNLOCKED, _PREFIX, 1))), handle


def remove_abandoned_probes() -> None:
    """Directories of this account whose probe was killed: nobody holds their lock."""
    places = {*_places(), tempfile.gettempdir()}
    for place, (prefix, age) in product(places, ((_PREFIX, 0.0), (_UNLOCKED, _LOCKED_WITHIN_S))):
        for root in glob.glob(f"{glob.escape(place)}/{prefix}*"):
            with contextlib.suppress(OSError):
                handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    found = os.fstat(handle)
                    is_old = age == 0.0 or time.time() - found.st_ctime > age
                    if found.st_uid == os.geteuid() and is_old and try_lock(handle):
                        shutil.rmtree(root, ignore_errors=True)
                finally:
                    os.close(handle)


def probe_interpreter() -> tuple[str, tuple[str, ...]]:
    """A Python that can run inside, and what must be shown for it: nothing if it belongs to the system, which saves
    looking through a whole installation for secrets."""
    if os.access(_SYSTEM_PYTHON, os.X_OK) and glob.glob("/usr/lib*/python3.*/lib-dynload/_ctypes.*"):
        return _SYSTEM_PYTHON, ()
    base = os.path.realpath(sys.base_prefix)
    return os.path.realpath(sys.executable), () if base in ("/usr", "/usr/local") else (base,)


def _file_state(path: Path) -> tuple[int, ...]:
    try:
        info = path.stat()
    except OSError:
        return ()
    return info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_uid
