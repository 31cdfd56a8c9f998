"""The probe: the real walls of this machine, machines that lack something, and what is kept."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sandbox.conftest import in_child

from golem_forge.sandbox.host import isolated
from golem_forge.sandbox.process.monitor import with_environment
from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls import probe as probing
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import GUARANTEES, Level, LevelResult, ProbeReport
from golem_forge.sandbox.walls.probe import NEEDED, ProbeFixture, probe
from golem_forge.sandbox.walls.seccomp import filter_program
from golem_forge.ui.render.reports import walls_lines as walls_line

PATIENT = 50.0
"""This machine may be busy; only the case about time is about time."""
needs_bwrap = pytest.mark.skipif(find_bwrap() is None, reason="bubblewrap is not installed")
needs_landlock = pytest.mark.skipif(landlock.landlock_abi() < 3, reason="this kernel has no Landlock, or an old one")


@pytest.fixture(autouse=True)
def walls_are_known() -> None:
    """They are not: here they are tried."""


def probed() -> list[str]:
    report = asyncio.run(probe(cache=None, within=PATIENT))
    return [report.level, report.cause, report.fix]


async def read_only_walls(within: float) -> LevelResult:
    """As if they had been tried and found to hold."""
    return LevelResult(level=Level.LANDLOCK, held=tuple(GUARANTEES))


def result(report: ProbeReport, level: Level) -> LevelResult:
    return next(each for each in report.tried if each.level is level)


@needs_bwrap
@needs_landlock
async def test_the_real_walls_hold_what_they_promise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also with a long temporary directory: a socket's name has 107 bytes, and a person's TMPDIR may have more."""
    long = tmp_path / ("deep" * 20) / ("er" * 20)
    long.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    report = await probe(cache=None, within=PATIENT)
    full, read_only = result(report, Level.FULL), result(report, Level.LANDLOCK)
    assert report.level is Level.FULL
    assert full.held == tuple(GUARANTEES)
    assert set(read_only.held) >= set(NEEDED)
    assert ("G8" in read_only.held) == (landlock.landlock_abi() >= 6)
    assert (report.cause, report.fix) == ("", "")
    assert not list(long.iterdir())


@needs_landlock
async def test_without_bubblewrap_walls_are_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "find_bwrap", lambda: None)
    monkeypatch.setattr(probing, "_landlock", read_only_walls)
    report = await probe(cache=None, within=PATIENT)
    assert report.level is Level.LANDLOCK
    assert "bubblewrap is not installed" in report.cause
    assert "sudo apt-get install bubblewrap" in report.fix
    assert report.to_wire()["level"] == "read-only"
    assert result(report, Level.FULL).held == ()
    assert result(report, Level.FULL).missing == (), "nothing of it was tried"


async def test_with_neither_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "find_bwrap", lambda: None)
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 0)
    report = await probe(cache=None)
    assert report.level is Level.NONE
    assert report.cause
    assert report.fix
    assert report.held == ()
    assert "Landlock" in result(report, Level.LANDLOCK).cause


@needs_landlock
@pytest.mark.parametrize(
    ("says", "level"),
    [
        ("Permission denied", Level.LANDLOCK),
        ("Creating new namespace failed: Operation not permitted", Level.NONE),  # nor is there a Landlock
    ],
)
async def test_a_backend_that_fails_is_a_level_not_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, says: str, level: Level
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\necho 'bwrap: {says}' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(probing, "find_bwrap", lambda: str(fake))
    if level is Level.NONE:
        monkeypatch.setattr(landlock, "landlock_abi", lambda: 0)
    else:
        monkeypatch.setattr(probing, "_landlock", read_only_walls)
    report = await probe(cache=None, within=PATIENT)
    assert report.level is level
    assert says in report.cause or "namespaces" in report.cause
    assert report.fix


@needs_landlock
@needs_bwrap
def test_a_backend_that_isolates_nothing_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It claims to be ready and runs the command as it is."""
    fake = tmp_path / "bwrap"
    fake.write_text(
        f"#!{sys.executable} -I\n"
        "import os, sys\n"
        "os.write(5, b'{\"child-pid\": %d}' % os.getpid())\n"
        "inside = sys.argv[sys.argv.index('--') + 1:]\n"
        "if os.fork() == 0:\n"
        f"    os.execve(inside[0], inside, {{**os.environ, 'FAKE': {str(tmp_path)!r}}})\n"
        "os.wait()\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(probing, "find_bwrap", lambda: str(fake))
    monkeypatch.setattr(probing, "_landlock", read_only_walls)
    level, cause, _ = in_child(probed, plain=False)
    for pid in with_environment(f"FAKE={tmp_path}"):
        os.kill(pid, signal.SIGKILL)
    assert level == "landlock", cause


@needs_landlock
@needs_bwrap
def test_a_filter_around_forge_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose profile refuses namespaces: the kernel really refuses them here."""
    monkeypatch.setattr(probing, "_landlock", read_only_walls)
    program = filter_program()

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    def filtered() -> list[str]:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(38, 1, 0, 0, 0) == 0
        assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, program)), 0, 0) == 0
        return probed()

    level, cause, fix = in_child(filtered, plain=False)
    assert level == "landlock"
    assert "filter" in cause or "namespaces" in cause
    assert fix


# --- time


async def test_a_try_that_takes_too_long_reaches_nothing_and_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path
    scratch = Path(tempfile.mkdtemp(prefix="p-"))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))  # other tests try walls at the same time
    report = await probe(cache=cache, within=0.0)
    assert report.level is Level.NONE
    for each in report.tried:
        assert (each.missing, each.untried, each.cause) == ((), tuple(GUARANTEES), "not tried in time")
    told = report.to_wire()
    assert (told["missing"], told["cause"]) == ([], "full walls were not tried in time")
    [[(_, line)]] = walls_line(told)
    assert line.startswith("walls: none; full walls were not tried in time; ")
    assert list(cache.iterdir()) == []
    scratch.rmdir()  # nothing is left in it
    assert not scratch.exists()


@needs_bwrap
async def test_what_ended_late_was_not_tried_in_time_and_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_GONE_WITHIN", -1.0)  # nothing is ever gone so soon
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 0)  # and only full walls are tried
    report = await probe(cache=None, within=PATIENT)
    full = result(report, Level.FULL)
    assert (full.missing, full.untried) == ((), ("G11",))
    assert full.cause == "not tried in time: G11 (ends when Forge ends)"
    assert set(full.held) == set(GUARANTEES) - {"G11"}
    assert report.cause == f"full walls were {full.cause}"


@pytest.mark.parametrize(
    ("within", "gone_after", "ended"),
    [
        (probing.WITHIN_S, 0.9, "EPERM"),
        (probing.WITHIN_S, 2, "late"),
        (3 * probing.WITHIN_S, 2, "EPERM"),
        (2, 99, "done"),
    ],
)
async def test_whoever_has_more_time_waits_longer_for_the_end_of_what_is_inside(
    monkeypatch: pytest.MonkeyPatch, within: float, gone_after: float, ended: str
) -> None:
    seconds = itertools.count(0, 0.1)
    now = [0.0]

    class Fixture:
        def has_live_process(self) -> bool:
            now[0] = next(seconds)
            return now[0] < gone_after

    monkeypatch.setattr(probing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert await probing._outlived(Fixture(), probing._GONE_WITHIN * within) == ended  # type: ignore[arg-type]


@needs_bwrap
@pytest.mark.parametrize(
    ("answer", "cause", "untried"),
    [
        ('{"said": null, "limits": []}', "not tried in time", tuple(GUARANTEES)),
        ('{"said": "", "limits": []}', "the test could not be run", ()),
        ("", "the test could not be run", ()),
    ],
)
async def test_a_try_that_came_to_nothing_says_so_and_finds_nothing_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, cause: str, untried: tuple[str, ...]
) -> None:
    program = f"print({answer!r}, flush=True)" if answer else "pass"
    monkeypatch.setattr(probing, "isolated_module", lambda *_: isolated("-c", program))
    report = await probe(cache=tmp_path, within=PATIENT)
    assert report.level is Level.NONE
    for each in report.tried:
        assert each.cause.startswith(cause)
        assert (each.missing, each.untried, each.held) == ((), untried, ())
    assert list(tmp_path.iterdir()) == [], "kept"


# --- what is kept

Try = Callable[..., Awaitable[LevelResult]]


def pretend(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Level]:
    """Tries that answer at once; which ones were made."""
    made: list[Level] = []

    async def answer(level: Level, *_: object) -> LevelResult:
        made.append(level)
        return LevelResult(level=level, **{"held": tuple(GUARANTEES), **options})

    monkeypatch.setattr(probing, "_try", answer)
    monkeypatch.setattr(probing, "find_bwrap", lambda: "/usr/bin/env")
    monkeypatch.setattr(landlock, "landlock_abi", lambda: 7)
    return made


async def test_a_result_is_kept_for_the_same_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = pretend(monkeypatch)
    first = await probe(cache=tmp_path / "cache")
    assert await probe(cache=tmp_path / "cache") == first
    assert made == [Level.FULL, Level.LANDLOCK]
    pretend(monkeypatch, held=("G1", "G2"), missing=("G3",), cause="tested, and this did not hold: G3")
    other = await probe(cache=tmp_path / "other")
    assert await probe(cache=tmp_path / "other") == other
    kept = tmp_path / "cache" / "walls.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [path.name for path in kept.parent.iterdir()] == ["walls.json"]


@pytest.mark.parametrize("what", ["find_bwrap", "landlock_abi", "environment_facts"])
async def test_another_backend_kernel_or_setting_is_tried_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    made = pretend(monkeypatch)
    await probe(cache=tmp_path)
    changes: dict[str, tuple[object, object]] = {
        "find_bwrap": (probing, lambda: "/usr/bin/id"),
        "landlock_abi": (landlock, lambda: 6),
        "environment_facts": (probing, lambda: ["changed"]),
    }
    monkeypatch.setattr(changes[what][0], what, changes[what][1])
    await probe(cache=tmp_path)
    assert len(made) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": 1}', "\xff", '{"key": null, "tried": null}'])
async def test_a_broken_file_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    made = pretend(monkeypatch)
    (tmp_path / "walls.json").write_bytes(text.encode("latin-1"))
    assert (await probe(cache=tmp_path)).level is Level.FULL
    assert len(made) == 2


async def test_a_kept_level_without_its_guarantees_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, held=("G1", "G2"))
    await probe(cache=tmp_path)
    assert (await probe(cache=tmp_path)).level is Level.NONE


# --- how attempts are judged

ALL_REFUSED = {name: {"something": "EPERM"} for name in GUARANTEES}


def test_only_what_was_attempted_and_refused_counts() -> None:
    with ProbeFixture(Level.FULL) as ground:
        assert probing._evaluate(ground, ALL_REFUSED).held == tuple(GUARANTEES)
        for outcome in ("done", "not made (KeyError)", "EINVAL", "OSError"):
            found = probing._evaluate(ground, {**ALL_REFUSED, "G4": {"a": "EACCES", "b": outcome}})
            assert found.missing == ("G4",)
            assert "secret paths unreadable" in found.cause
        untried = {name: attempts for name, attempts in ALL_REFUSED.items() if name != "G9"}
        assert probing._evaluate(ground, untried).missing == ("G9",)
        assert probing._evaluate(ground, {**ALL_REFUSED, "G9": {"ptrace": "ESRCH"}}).missing == ("G9",)
        late = probing._evaluate(ground, {**ALL_REFUSED, "G12": {"memory": "late", "files": "EMFILE"}})
        assert (late.missing, late.untried, late.reached) == ((), ("G12",), False)
        both = probing._evaluate(ground, {**ALL_REFUSED, "G12": {"memory": "late", "files": "done"}})
        assert (both.missing, both.untried) == (("G12",), ())
        other_processes = probing._evaluate(ground, {**ALL_REFUSED, "G8": {"signal": "done"}})
        assert other_processes.reached
        assert other_processes.missing == ("G8",)


def test_what_happened_outside_counts_more_than_what_was_said() -> None:
    with ProbeFixture(Level.FULL) as ground:
        assert list(ground.broken_guarantees()) == []
        with socket.create_connection(ground.sockets["tcp"].getsockname()):
            assert "G5" in probing._evaluate(ground, ALL_REFUSED).missing
    with ProbeFixture(Level.FULL) as ground, socket.socket(socket.AF_UNIX) as caller:
        caller.connect("\0" + ground.abstract)
        assert "G6" in probing._evaluate(ground, ALL_REFUSED).missing
    with ProbeFixture(Level.LANDLOCK) as ground:
        os.chmod(ground.outside / "file", 0o600)
        assert "G1" in probing._evaluate(ground, ALL_REFUSED).missing
    assert not ground.root.exists()


def test_causes_name_the_switch_and_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_is_root", lambda: False)
    said = "Walls could not be built: bubblewrap stopped with 'No permissions to create new namespace'. The command"
    for name, closed in probing.KERNEL_SWITCHES.items():
        monkeypatch.setattr(
            probing, "kernel_setting", lambda asked, name=name, closed=closed: closed if asked == name else ""
        )
        why = probing.explain_failure(said)
        assert name in why.cause + why.fix
        assert "sysctl" in why.fix


@pytest.mark.parametrize(
    ("slow", "reached", "seconds"), [(1, Level.FULL, [2, 6]), (2, Level.FULL, [2, 6, 30]), (3, Level.NONE, [2, 6, 30])]
)
async def test_a_busy_machine_gets_longer_tries(
    monkeypatch: pytest.MonkeyPatch, slow: int, reached: Level, seconds: list[float]
) -> None:
    """`slow`: how many of them it is too slow for."""
    tries: list[float] = []

    async def slow_at_first(*, cache: object, within: float = 2.0) -> ProbeReport:
        tries.append(within)
        late = LevelResult(level=Level.FULL, cause=probing.TOO_SLOW.cause)
        return ProbeReport(level=Level.NONE, tried=(late,)) if len(tries) <= slow else ProbeReport(level=Level.FULL)

    monkeypatch.setattr(probing, "probe", slow_at_first)
    assert (await probing.probe_with_retry(cache=None)).level is reached
    assert tries == seconds


def test_what_a_killed_probe_left_is_removed_and_one_that_is_used_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_places", lambda: [str(tmp_path)])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "forge-probe-killed" / "zone").mkdir(parents=True)
    (tmp_path / "forge-new-probe-made").mkdir()
    (tmp_path / "forge-probe-link").symlink_to(tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    with ProbeFixture(Level.FULL) as used:
        probing.remove_abandoned_probes()
        assert used.zone.exists()
        left = [used.root.name, "forge-probe-link", "kept"]
        assert sorted(os.listdir(tmp_path)) == sorted([*left, "forge-new-probe-made"])  # may be locked soon
        monkeypatch.setattr(probing, "_LOCKED_WITHIN_S", -1.0)
        probing.remove_abandoned_probes()
        assert sorted(os.listdir(tmp_path)) == sorted(left)
