"""Walls around some of a worker's zones: only these are there, in their modes, and the rest is the worker's."""

from __future__ import annotations

import pytest

from golem_forge.sandbox.walls import landlock
from golem_forge.sandbox.walls.model import Level, ProbeReport, StartDirectory
from golem_forge.sandbox.zones import AccessMode, ZoneRequest, ZoneSpec


def narrowed(house, walls, *requests):
    return walls.narrowed(walls.sandbox.restricted("tool", "main", requests))


def two_zones(house, **options):
    (house.root / "docs").mkdir()
    (house.root / "docs" / "a").write_text("doc")
    return house.walls(
        ZoneSpec(name="workspace", path=house.workspace), ZoneSpec(name="docs", path=house.root / "docs"), **options
    )


def test_a_zone_that_is_left_out_is_not_there(house):
    walls = two_zones(house)
    some = narrowed(house, walls, ZoneRequest(name="docs", mode=AccessMode.RO))
    ran = house.run("pwd; cat a; echo x > b; ls /workspace", some)
    assert ran.text.startswith("/docs\ndoc")
    assert "Read-only" in ran.text and "No such file" in ran.text
    assert not (house.root / "docs" / "b").exists()
    assert house.run("echo x > /docs/b; ls /workspace", walls).code == 0


def test_a_toolchain_in_a_zone_that_is_left_out_stays_hidden(house):
    """A directory of PATH in the workspace is shown as part of the zone, and not for being a toolchain."""
    own = house.workspace / "bin"
    own.mkdir()
    (own / "own").write_text("#!/bin/sh\necho mine\n")
    (own / "own").chmod(0o755)
    house.path = f"{own}:{house.path}"
    walls = two_zones(house)
    assert house.run("own", walls, zone_programs=True).text == "mine\n"
    some = narrowed(house, walls, ZoneRequest(name="docs"))
    assert house.run("own", some, zone_programs=True).code == 127


async def test_the_report_is_asked_for_once(house, monkeypatch):
    calls = []

    async def probe(**_: object) -> ProbeReport:
        calls.append(1)
        return ProbeReport(level=Level.FULL)

    monkeypatch.setattr("golem_forge.sandbox.walls.probe.probe_with_retry", probe)
    walls = two_zones(house, report=None)
    some = narrowed(house, walls, ZoneRequest(name="docs"))
    assert some.known_level is None
    assert await some.level() is Level.FULL is await walls.level()
    assert calls == [1] and some.known_level is Level.FULL


@pytest.mark.parametrize(
    "level",
    [
        Level.FULL,
        pytest.param(Level.LANDLOCK, marks=pytest.mark.skipif(landlock.landlock_abi() < 3, reason="no Landlock here")),
    ],
)
def test_where_a_job_without_zones_starts(house, level):
    walls = house.walls(report=ProbeReport(level=level))
    none = narrowed(house, walls)
    script = 'test "$PWD" = "$TMPDIR" && : > made && echo temporary'
    assert house.run(script, none, nowhere=StartDirectory.TEMPORARY).text == "temporary\n"
    assert "temporary" not in house.run(script, none).text
