"""Effects of a call: what it may do by its manifest, and where its path arguments really lead."""

from __future__ import annotations

import pytest
from tests import descriptors
from tests.tables import table

from golem_forge.core.decisions import Risk, Status, Verdict
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.lazy_dataclass import replace
from golem_forge.policy.risk import leaves_of, risk_of_all
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.model import Level, lifted_paths
from golem_forge.usertools.manifest import PathUse
from golem_forge.usertools.run.access import contain, is_read_only, manifest_hosts, plan_access, tool_access

from .run_ground import Ground, manifest, parameter


@pytest.fixture
def ground(tmp_path):
    return Ground(tmp_path)


def touch(ground, values=None, level=Level.FULL, **keys):
    entry, _ = ground.tool({}, **keys)
    return plan_access(entry, values or {}, tool_access(entry.manifest, ground.ctx), level)


def described(found):
    return [effect.describe() for effect in found.effects]


def test_the_program_the_zones_and_the_hosts(ground):
    assert described(touch(ground)) == ["exec probe (probe.sh)", "read /workspace", "read /docs"]
    named = touch(ground, zones={"workspace": "rw"}, network=("b.test:8443", "A.test"))
    assert described(named) == ["exec probe (probe.sh)", "write /workspace", "net b.test:8443", "net a.test:443"]
    assert named.effects[1].zone_verdict is Verdict.ASK and named.effects[1].real == str(ground.workspace)
    assert described(touch(ground, zones={}, network=True)) == ["exec probe (probe.sh)", "net any host"]


@table(
    ("keys", "level", "risk"),
    [
        ({}, Level.FULL, Risk.LOW),
        ({"zones": {"workspace": "ro"}}, Level.LANDLOCK, Risk.LOW),
        ({"zones": {}}, Level.FULL, Risk.LOW),
        ({"zones": {"workspace": "rw"}}, Level.FULL, Risk.MEDIUM),
        ({"network": ("a.test",)}, Level.FULL, Risk.HIGH),
        ({"zones": {}, "network": True}, Level.FULL, Risk.HIGH),
        ({}, Level.OFF, Risk.CRITICAL),
    ],
)
def test_its_risk_is_what_its_manifest_makes_possible(ground, keys, level, risk):
    assert risk_of_all(touch(ground, level=level, **keys).effects) is risk


def test_no_walls_is_a_mark(ground):
    assert touch(ground, level=Level.OFF).effects[0].marks == (Mark.NO_WALLS,)


def test_hosts_in_every_spelling():
    named = manifest(network=("a.test", "a.test:443", "[::1]:80", "::1", "10.0.0.1"))
    assert manifest_hosts(named) == (("a.test", 443), ("::1", 80), ("::1", 443), ("10.0.0.1", 443))
    assert ("pypi.org", 443) in manifest_hosts(manifest(network=("group:python",)))
    assert manifest_hosts(manifest(network=True)) == () == manifest_hosts(manifest())


def test_readers_and_writers(ground):
    for keys, reads in (({}, True), ({"zones": {"workspace": "rw"}}, False), ({"network": True}, False)):
        said = manifest(**keys)
        assert is_read_only(said, tool_access(said, ground.ctx)) is reads


READS = (parameter("file", path=PathUse.READ),)
WRITES = (parameter("file", path=PathUse.WRITE),)


def test_a_path_is_judged_by_what_it_leads_to(ground):
    (ground.workspace / ".env").write_text("x")
    (ground.workspace / "harmless").symlink_to(".env")
    found = touch(ground, {"file": "harmless"}, parameters=READS)
    assert described(found)[-1] == "read /workspace/.env"
    assert found.effects[-1].marks == (Mark.SECRET_PATH,)
    assert found.paths == {"file": f"{ground.workspace}/.env"}
    assert lifted_paths(found.effects, ()) == {"/workspace/.env"}
    found.close()


def test_a_default_is_a_path_too_and_an_absent_one_is_none(ground):
    declared = (parameter("file", path=PathUse.READ, has_default=True, default="/docs/a"),)
    assert touch(ground, parameters=declared).paths == {"file": f"{ground.root}/docs/a"}
    assert touch(ground, parameters=READS).paths == {}


def test_where_zones_stand_at_their_address(tmp_path):
    ground = Ground(tmp_path, at_host_path=False)
    assert touch(ground, {"file": "a"}, parameters=READS).paths == {"file": "/workspace/a"}
    outside = touch(ground, {"file": "a"}, level=Level.LANDLOCK, parameters=READS)
    assert outside.paths == {"file": f"{ground.workspace}/a"}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/etc/passwd", "ZONE_ACCESS_DENIED"),
        ("/docs/a", "ZONE_ACCESS_DENIED"),
        ("/user_tools/x", "ZONE_ACCESS_DENIED"),
        ("/", "ZONE_ACCESS_DENIED"),
        ("out", "SYMLINK_ESCAPE"),
    ],
)
def test_outside_of_the_tools_zones_nobody_is_asked(ground, path, code):
    (ground.workspace / "out").symlink_to("/etc/passwd")
    before = descriptors.held()
    declared = (parameter("first", path=PathUse.READ), *READS)
    with pytest.raises(SandboxError) as refused:
        touch(ground, {"first": ".", "file": path}, parameters=declared, zones={"workspace": "ro"})
    assert (refused.value.code, refused.value.status) == (code, Status.SANDBOX_DENIED)
    del refused  # its traceback holds what was open on the way
    assert descriptors.no_more_than(before)


def test_a_path_to_write_needs_a_zone_to_write_in(ground):
    with pytest.raises(SandboxError, match=r'declare "zones: \{workspace: rw\}" in tool.yaml') as refused:
        touch(ground, {"file": "a"}, parameters=WRITES)
    assert (refused.value.code, refused.value.status) == ("READ_ONLY_ZONE", Status.SANDBOX_DENIED)
    with pytest.raises(SandboxError, match=r"^Zone '/docs' is read-only; '/docs/a' was not changed\.$"):
        touch(ground, {"file": "/docs/a"}, parameters=WRITES)
    found = touch(ground, {"file": "new/a"}, parameters=WRITES, zones={"workspace": "rw"})
    assert described(found)[-1] == "write /workspace/new/a"
    assert found.effects[-1].zone_verdict is Verdict.ASK


def test_a_directory_can_be_written_in(ground):
    (ground.workspace / "out").mkdir()
    found = touch(ground, {"file": "out"}, parameters=WRITES, zones={"workspace": "rw"})
    assert described(found)[-1] == "write /workspace/out" and found.effects[-1].verb is Verb.WRITE
    with pytest.raises(SandboxError, match="is a directory"):
        touch(ground, {"file": "/"}, parameters=WRITES, zones={"workspace": "rw"})


def test_a_path_that_leads_elsewhere_after_the_wait_is_noticed(ground):
    (ground.workspace / "a").write_text("1")
    found = touch(ground, {"file": "a"}, parameters=READS)
    found.recheck()
    (ground.workspace / "a").unlink()
    (ground.workspace / "a").symlink_to("b")
    with pytest.raises(SandboxError) as changed:
        found.recheck()
    assert changed.value.code == "PATH_CHANGED"
    found.close()


@pytest.mark.parametrize(
    ("keys", "because"),
    [
        ({}, ()),
        ({"zones": {"workspace": "rw"}}, ()),
        ({"calls": ("read_file",)}, ("'probe' calls other tools",)),
        ({"network": ("a.test",)}, ("it reaches a.test:443",)),
    ],
)
async def test_a_tool_that_is_given_nothing_outside_is_contained(ground, keys, because):
    ctx = replace(ground.ctx, contains=True)
    entry, _ = ground.tool({}, **keys)
    access = tool_access(entry.manifest, ctx)
    planned = plan_access(entry, {}, access, Level.FULL)
    await contain(planned, entry.manifest, access, ctx)
    assert tuple(dict.fromkeys(why for effect in planned.effects for why in leaves_of(effect))) == because
