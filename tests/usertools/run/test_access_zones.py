"""A tool's zones are never more than its worker's, and never another tool's folder."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.model import Level, LevelResult, ProbeReport
from golem_forge.sandbox.zones import AccessMode
from golem_forge.usertools.run.access import check_walls, tool_access

from .run_ground import Ground, manifest


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


def test_by_default_every_zone_is_there_and_read_only(ground):
    reach = tool_access(manifest(), ground.ctx)
    assert {name: zone.mode for name, zone in reach.sandbox.zones.items()} == {
        "workspace": AccessMode.RO,
        "docs": AccessMode.RO,
    }
    assert reach.reads_only and reach.walls is ground.walls and reach.sandbox.default_zone == "workspace"
    assert ground.sandbox.zones["workspace"].mode is AccessMode.RW
    assert reach.could_write("workspace") and not reach.could_write("docs")


def test_named_zones_are_exactly_these_and_walls_are_kept_for_them(ground):
    reach = tool_access(manifest(zones={"docs": "ro"}), ground.ctx)
    assert list(reach.sandbox.zones) == ["docs"] and reach.reads_only and reach.sandbox.default_zone == "docs"
    assert tool_access(manifest(name="other", zones={"docs": "ro"}), ground.ctx).walls is reach.walls
    writes = tool_access(manifest(zones={"docs": "ro", "workspace": "rw"}), ground.ctx)
    assert not writes.reads_only and writes.walls is not reach.walls
    assert writes.sandbox.default_zone == "workspace"
    nothing = tool_access(manifest(zones={}), ground.ctx)
    assert not nothing.sandbox.zones and nothing.workspace(Level.FULL) == ""


def test_more_than_the_worker_has_is_refused(ground):
    for zones, code in (
        ({"elsewhere": "ro"}, "ZONE_ACCESS_DENIED"),
        ({"docs": "rw"}, "PERMISSION_ESCALATION"),
        ({"user_tools": "ro"}, "ZONE_ACCESS_DENIED"),
    ):
        with pytest.raises(SandboxError) as refused:
            tool_access(manifest(zones=zones), ground.ctx)
        assert (refused.value.code, refused.value.status) == (code, Status.SANDBOX_DENIED)
    with pytest.raises(SandboxError, match=r"^Tool 'probe' asks for more than worker 'main' has: /docs rw\.$"):
        tool_access(manifest(zones={"docs": "rw"}), ground.ctx)


def test_the_folder_of_tools_is_never_among_them(ground):
    (ground.home.path / "tools").mkdir(parents=True, exist_ok=True)
    ground.ctx.sandbox = ground.sandbox.with_user_tools(ground.home.path / "tools")
    assert "user_tools" not in tool_access(manifest(), ground.ctx).sandbox.zones
    with pytest.raises(SandboxError, match="No access to '/user_tools'"):
        tool_access(manifest(zones={"user_tools": "rw"}), ground.ctx)
    assert not tool_access(manifest(), ground.ctx).could_write("user_tools")


async def test_narrowed_walls_know_what_the_workers_know(ground):
    reach = tool_access(manifest(zones={"docs": "ro"}), ground.ctx)
    assert await reach.walls.report() is await ground.walls.report()
    assert reach.walls.known_level is Level.FULL
    assert reach.walls.toolchains() is ground.walls.toolchains()
    assert reach.walls.mount_point("workspace") == "" and reach.walls.mount_point("docs")


READ_ONLY = ProbeReport(
    level=Level.LANDLOCK, tried=(LevelResult(level=Level.FULL, cause="no bwrap", fix="Install it."),)
)


@table("keys", [{"zones": {"workspace": "rw"}}, {"network": ("a.test",)}, {"calls": ("other",)}])
def test_what_read_only_walls_cannot_hold_is_refused(keys):
    with pytest.raises(SandboxError, match=r"Walls could not be built: .* Install it\.") as refused:
        check_walls(READ_ONLY, manifest(**keys))
    assert refused.value.code == "WALLS_UNAVAILABLE"
    check_walls(ProbeReport(level=Level.FULL), manifest(**keys))
    check_walls(ProbeReport(level=Level.OFF), manifest(**keys))


def test_what_read_only_walls_can_hold_and_what_nothing_can():
    for keys in ({}, {"zones": {"workspace": "ro"}}, {"network": True}):
        check_walls(READ_ONLY, manifest(**keys))
        with pytest.raises(SandboxError, match="Walls could not be built"):
            check_walls(ProbeReport(level=Level.NONE), manifest(**keys))
