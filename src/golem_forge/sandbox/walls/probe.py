"""The probe: which walls this machine gives, by trying. Nothing is claimed that was not attempted and refused.

For each level a stand-in for Forge (`probe_host`) builds the real walls in a throw-away place, `probe_child` attempts
inside what each guarantee forbids, and then the stand-in is killed. Gives a WallsReport within two seconds, kept in a
file for the same kernel, backend, user and surroundings. Refuses nothing: a try that fails is a level not reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge._version import __version__
from golem_forge.sandbox.host import isolated_module
from golem_forge.sandbox.walls import landlock_rules, probe_causes
from golem_forge.sandbox.walls.backend import find_bwrap
from golem_forge.sandbox.walls.levels import GUARANTEES, Level, LevelResult, WallsReport
from golem_forge.sandbox.walls.probe_causes import Why
from golem_forge.sandbox.walls.probe_ground import Ground, interpreter

WITHIN_S: Final = 2.0
NEEDED: Final = tuple(name for name in GUARANTEES if name != "G8")
"""Without these a level is not reached."""
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
"""How an attempt must have ended: any other error means that it was not the walls that stopped it."""
_NOT_MADE: Final = "the try could not be made"
_LATE: Final = "late"
"""How an attempt ended that was not seen to fail in time; what becomes of it later is nobody's evidence."""
_PASSING: Final = (_NOT_MADE, probe_causes.TOO_SLOW.cause)
"""Causes that say something about the moment, not about the machine."""
CACHE_FILE: Final = "walls.json"
_FORMAT: Final = 5
_LONGEST_CACHE: Final = 64 * 1024
_GONE_WITHIN_S: Final = 1.0
_LIVES_ON_AFTER_S: Final = 3.0
_HOST: Final = "golem_forge.sandbox.walls.probe_host"


async def probe(*, cache: Path | None, within: float = WITHIN_S) -> WallsReport:
    """`cache`: the folder of the file that keeps the result (FORGE_HOME/cache); None: tried anew and not kept."""
    bwrap = find_bwrap()
    key = _key(bwrap)
    if cache is not None and (known := _kept(cache / CACHE_FILE, key)) is not None:
        return known
    deadline = time.monotonic() + within
    tried = await asyncio.gather(_full(bwrap, deadline), _landlock(deadline))
    level = next((each.level for each in tried if each.reached), Level.NONE)
    report = WallsReport(level=level, tried=tuple(tried))
    if cache is not None and not any(each.cause.startswith(_PASSING) for each in tried):
        _keep(cache / CACHE_FILE, key, report)
    return report


def kept_report(cache: Path) -> WallsReport | None:
    """What an earlier try found, if it still holds. Nothing is tried."""
    return _kept(cache / CACHE_FILE, _key(find_bwrap()))


async def probe_patiently(*, cache: Path | None) -> WallsReport:
    """Once more, with more time, where a busy machine was too slow or had no room for another process: walls that are
    there must not count as missing."""
    report = await probe(cache=cache)
    if report.level is not Level.FULL and any(each.cause.startswith(_PASSING) for each in report.tried):
        return await probe(cache=cache, within=3 * WITHIN_S)
    return report


async def _full(bwrap: str | None, deadline: float) -> LevelResult:
    if bwrap is None:
        return _not_reached(Level.FULL, probe_causes.NO_BWRAP)
    return await _try(Level.FULL, bwrap, deadline)


async def _landlock(deadline: float) -> LevelResult:
    version = landlock_rules.abi()
    if version < 3:
        return _not_reached(Level.LANDLOCK, probe_causes.OLD_LANDLOCK if version else probe_causes.NO_LANDLOCK)
    return await _try(Level.LANDLOCK, None, deadline)


async def _try(level: Level, bwrap: str | None, deadline: float) -> LevelResult:
    try:
        with Ground(level) as ground:
            return await _tried(ground, bwrap, deadline)
    except TimeoutError:
        return _untried(level, tuple(GUARANTEES))
    except (OSError, ValueError, KeyError) as error:
        what = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else type(error).__name__
        return _not_reached(level, Why(f"{_NOT_MADE} ({what})", "Run 'forge doctor'."))


async def _tried(ground: Ground, bwrap: str | None, deadline: float) -> LevelResult:
    host = await _host(ground, bwrap)
    try:
        async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
            assert host.stdout is not None
            line = await host.stdout.readline()
        if not line:
            raise ChildProcessError
        answer = json.loads(line)
        if "said" not in answer:
            why = probe_causes.full(answer["refused"])
            return _not_reached(ground.level, why)
        if answer["said"] is None:
            raise TimeoutError
        found: dict[str, dict[str, str]] = json.loads(answer["said"].partition("\n")[0])
        lived = ground.held_by_somebody()
    finally:
        with contextlib.suppress(ProcessLookupError):
            host.kill()
        await host.wait()
    found["G11"] = found.get("G11", {}) | {"outlive Forge": await _outlived(ground) if lived else _LATE}
    ways = {True: "EPERM", False: "done", None: _LATE}
    found["G12"] |= {f"whole tree {index}": ways[held] for index, held in enumerate(answer["limits"])}
    return _judged(ground, found)


def _judged(ground: Ground, found: Mapping[str, Mapping[str, str]]) -> LevelResult:
    broken = set(ground.touched())
    held = tuple(name for name in GUARANTEES if name not in broken and _all_refused(name, found.get(name, {})))
    late = {name for name, attempts in found.items() if _LATE in attempts.values()} - broken
    untried = tuple(name for name in GUARANTEES if name in late and _all_refused(name, found[name], but=_LATE))
    missing = tuple(name for name in GUARANTEES if name not in held and name not in untried)
    if lacking := [name for name in missing if name in NEEDED]:
        words = ", ".join(f"{name} ({GUARANTEES[name]})" for name in lacking)
        cause, fix = f"tried, and this did not hold: {words}", probe_causes.full("").fix
        return LevelResult(level=ground.level, held=held, missing=missing, untried=untried, cause=cause, fix=fix)
    if untried:
        return _untried(ground.level, untried, held, missing)
    return LevelResult(level=ground.level, held=held, missing=missing)


def _all_refused(name: str, attempts: Mapping[str, str], but: str = "") -> bool:
    """`but`: a way to have ended that is left out of account."""
    ways = set(attempts.values()) - {but}
    return bool(attempts) and ways <= _REFUSALS.get(name, _REFUSED)


async def _outlived(ground: Ground) -> str:
    """How it ended that what is inside lives on when Forge is killed. Gone after all, but late, is a slow machine."""
    begun = time.monotonic()
    while ground.held_by_somebody():
        if time.monotonic() > begun + _LIVES_ON_AFTER_S:
            return "done"
        await asyncio.sleep(0.01)
    return "EPERM" if time.monotonic() <= begun + _GONE_WITHIN_S else _LATE


async def _host(ground: Ground, bwrap: str | None) -> asyncio.subprocess.Process:
    python, read = interpreter()
    given: dict[str, Any] = {
        "level": ground.level,
        "root": str(ground.root),
        "bwrap": bwrap or "",
        "terminal": ground.terminal[1],
        "python": python,
        "read": read,
        "asked": ground.asked(),
    }
    inherited = os.dup(ground.terminal[1])
    """Inheritable all the way: what of it arrives inside is a descriptor of Forge's."""
    try:
        return await asyncio.create_subprocess_exec(
            *isolated_module(_HOST, json.dumps(given)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.defpath, "FORGE_PROBE": ground.canary, "HOME": str(ground.root)},
            cwd="/",
            pass_fds=(ground.terminal[1], inherited),
            start_new_session=True,
            limit=1 << 20,
        )
    finally:
        os.close(inherited)


def _not_reached(level: Level, why: Why) -> LevelResult:
    """Nothing was attempted, so nothing is missing: the cause is all that is known."""
    return LevelResult(level=level, cause=why.cause, fix=why.fix)


def _untried(
    level: Level, untried: tuple[str, ...], held: tuple[str, ...] = (), missing: tuple[str, ...] = ()
) -> LevelResult:
    cause = probe_causes.TOO_SLOW.cause
    if untried != tuple(GUARANTEES):
        cause += ": " + ", ".join(f"{name} ({GUARANTEES[name]})" for name in untried)
    fix = probe_causes.TOO_SLOW.fix
    return LevelResult(level=level, held=held, missing=missing, untried=untried, cause=cause, fix=fix)


def _key(bwrap: str | None) -> list[Any]:
    """What the result depends on. A person who changes a setting is not told yesterday's answer."""
    system = os.uname()
    backend: list[Any] = []
    if bwrap is not None:
        info = os.stat(bwrap)
        backend = [bwrap, info.st_ino, info.st_size, info.st_mtime_ns]
    own = [_FORMAT, __version__, sys.executable, os.getuid(), landlock_rules.abi()]
    return [*own, system.release, system.version, system.machine, *backend, *probe_causes.surroundings()]


def _kept(file: Path, key: list[Any]) -> WallsReport | None:
    try:
        with open(file, "rb") as opened:
            kept = json.loads(opened.read(_LONGEST_CACHE))
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
        return WallsReport(level=level, tried=tried)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # a file that cannot be understood is as good as none


def _keep(file: Path, key: list[Any], report: WallsReport) -> None:
    tried = [
        {"level": each.level, "held": each.held, "missing": each.missing, "cause": each.cause, "fix": each.fix}
        for each in report.tried
    ]
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as opened:
            json.dump({"key": key, "tried": tried}, opened)
        os.replace(fresh, file)
