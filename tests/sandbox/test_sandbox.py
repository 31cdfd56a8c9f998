"""What a sub-worker gets of its parent's zones, and host paths in texts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Mark, Verb
from golem_forge.core.errors import ConfigError
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import AccessMode, ZoneRequest, ZoneSpec

EVERY = ("read", "write", "delete", "list", "info", "exists")
ASK, YES, NO = Verdict.ASK, Verdict.PRE_APPROVED, Verdict.BLOCKED


@table("path", ["a.txt", "/workspace/a.txt", ".", "/etc/passwd", "../x"])
@table("child", [False, True])
def test_s18_without_a_sandbox_block_there_is_no_file_access(
    tmp_path: Path, sandbox: Sandbox, path: str, child: bool, do: Callable[..., object]
) -> None:
    empty = sandbox.without_zones() if child else open_sandbox([], forge_home=tmp_path, has_block=False)
    for operation in EVERY:
        with pytest.raises(SandboxError) as caught:
            do(operation, empty, path)
        assert (caught.value.code, caught.value.status) == ("NO_SANDBOX", Status.SANDBOX_DENIED)
        assert caught.value.message == (
            'This worker has no file access. Add "sandbox: {zones: [{name: workspace}]}" to its file.'
        )
    assert do("list", empty, "/") == [] and do("exists", empty, "/") is True


def test_s18_the_built_in_worker_is_told_otherwise(tmp_path: Path) -> None:
    empty = open_sandbox([], forge_home=tmp_path, has_block=False, builtin_worker=True)
    with pytest.raises(SandboxError) as caught:
        empty.target("a", Verb.READ)
    assert caught.value.message == "This worker has no file access. Start forge in a project directory."


def test_s19_a_child_gets_no_more_than_its_parent(sandbox: Sandbox, workspace: Path, outside: Path) -> None:
    with pytest.raises(SandboxError) as caught:
        sandbox.restricted("coder", "main", [ZoneRequest(name="docs", mode=AccessMode.RW)])
    assert (caught.value.code, caught.value.status) == ("PERMISSION_ESCALATION", Status.SANDBOX_DENIED)
    assert caught.value.message == "Worker 'coder' asks for more than 'main' has: /docs rw."
    (workspace / "link").symlink_to(outside)
    for subpath in ("..", "../outside", "a/../../x", "link"):
        with pytest.raises(SandboxError) as caught:
            sandbox.restricted("coder", "main", [ZoneRequest(name="workspace", subpath=subpath)])
        assert caught.value.code == "PERMISSION_ESCALATION" and subpath in caught.value.message
    with pytest.raises(SandboxError) as caught:
        sandbox.restricted("coder", "main", [ZoneRequest(name="cache")])
    assert caught.value.message == "No access to '/cache'. Zones: /docs (ro), /scratch (rw), /workspace (rw)"
    with pytest.raises(SandboxError, match="File not found: /workspace/gone"):
        sandbox.restricted("coder", "main", [ZoneRequest(name="workspace", subpath="gone")])
    with pytest.raises(ConfigError, match="twice"):
        sandbox.restricted("coder", "main", [ZoneRequest(name="docs"), ZoneRequest(name="docs")])
    assert list(sandbox.zones) == ["workspace", "scratch", "docs"]


def test_a_child_has_exactly_the_zones_it_names(sandbox: Sandbox) -> None:
    child = sandbox.restricted(
        "coder", "main", [ZoneRequest(name="docs"), ZoneRequest(name="scratch", mode=AccessMode.RO)]
    )
    assert child.describe_zones() == "/docs (ro), /scratch (ro)" and child.default_zone == "docs"
    with pytest.raises(SandboxError, match="is read-only"):
        child.target("/scratch/a", Verb.WRITE)
    assert sandbox.target("/scratch/a", Verb.WRITE).zone is not None
    with pytest.raises(SandboxError, match="more than 'coder' has: /scratch rw"):
        child.restricted("deeper", "coder", [ZoneRequest(name="scratch", mode=AccessMode.RW)])


@table(
    ("parent", "child", "effective"),
    [(ASK, YES, ASK), (None, YES, ASK), (YES, None, YES), (YES, ASK, ASK), (NO, YES, NO), (YES, NO, NO)],
)
def test_s20_verdicts_combine_strictest_first(
    directories: dict[str, Path],
    open_zones: Callable[..., Sandbox],
    parent: Verdict | None,
    child: Verdict | None,
    effective: Verdict,
) -> None:
    above = open_zones(ZoneSpec(name="workspace", path=directories["workspace"], write=parent, delete=parent))
    below = above.restricted("coder", "main", [ZoneRequest(name="workspace", write=child, delete=child)])
    assert below.target("a", Verb.WRITE).effect().zone_verdict is effective
    assert below.zones["workspace"].verdict(Verb.DELETE) is effective


def test_s21_a_subpath_is_the_childs_root(sandbox: Sandbox, workspace: Path, do: Callable[..., object]) -> None:
    (workspace / "src/lib").mkdir(parents=True)
    (workspace / "src/a").write_text("child's")
    (workspace / "a").write_text("parent's")
    (workspace / "src/up").symlink_to("../a")
    (workspace / "src/absolute").symlink_to(workspace / "src/a")
    child = sandbox.restricted("coder", "main", [ZoneRequest(name="workspace", subpath="src")])
    assert do("read", child, "/workspace/a") == do("read", sandbox, "/workspace/src/a") == b"child's"
    assert do("read", child, "absolute") == b"child's"
    assert child.target(f"{workspace}/src/a", Verb.READ).virtual == "/workspace/a"
    refusals = {
        "/workspace/../..": "INVALID_PATH",
        "/workspace/../a": "ZONE_ACCESS_DENIED",
        f"{workspace}/a": "ZONE_ACCESS_DENIED",
        "up": "SYMLINK_ESCAPE",
    }
    for path, code in refusals.items():
        with pytest.raises(SandboxError) as caught:
            do("read", child, path)
        assert caught.value.code == code and str(workspace) not in caught.value.message
    grandchild = child.restricted("deep", "coder", [ZoneRequest(name="workspace", subpath="lib")])
    do("write", grandchild, "x", b"deep")
    assert (workspace / "src/lib/x").read_text() == "deep"


def test_a_subpath_does_not_hide_protected_names(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / ".git/hooks").mkdir(parents=True)
    child = sandbox.restricted("coder", "main", [ZoneRequest(name="workspace", subpath=".git")])
    assert child.target("hooks/pre-commit", Verb.WRITE).effect().marks == (Mark.PROTECTED_PATH,)


def test_s22_two_sandboxes_are_independent(
    directories: dict[str, Path], open_zones: Callable[..., Sandbox], do: Callable[..., object]
) -> None:
    where = os.getcwd()
    one = open_zones(ZoneSpec(name="data", path=directories["workspace"]))
    two = open_zones(ZoneSpec(name="data", path=directories["scratch"], mode=AccessMode.RO))
    do("write", one, "a", b"one")
    (directories["scratch"] / "a").write_text("two")
    assert (do("read", one, "a"), do("read", two, "a")) == (b"one", b"two")
    with pytest.raises(SandboxError, match="No access"):
        two.target(f"{directories['workspace']}/a", Verb.READ)
    two.close()
    do("write", one, "a", b"still")
    assert do("read", one, "a") == b"still" and os.getcwd() == where


def test_s23_user_tools_are_reached_only_by_those_who_may(
    sandbox: Sandbox, directories: dict[str, Path], do: Callable[..., object]
) -> None:
    tools = directories["forge_home"] / "tools"
    (tools / "x").mkdir(parents=True)
    (tools / "x/tool.yaml").write_text("name: x")
    (directories["forge_home"] / "rules.yaml").write_text("rules")
    for path in ("/user_tools/x/tool.yaml", str(tools / "x/tool.yaml")):
        for operation in EVERY:
            with pytest.raises(SandboxError) as caught:
                do(operation, sandbox, path)
            assert caught.value.code == "ZONE_ACCESS_DENIED"
            assert str(directories["forge_home"]) not in caught.value.message
    maker = sandbox.with_user_tools(tools)
    assert do("read", maker, "/user_tools/x/tool.yaml") == b"name: x"
    effect = maker.target("/user_tools/y/tool.yaml", Verb.WRITE).effect()
    assert (effect.zone_verdict, effect.marks) == (ASK, ())
    do("write", maker, "/user_tools/y/tool.yaml", b"name: y")
    assert (tools / "y/tool.yaml").read_text() == "name: y"
    (tools / "out").symlink_to("../rules.yaml")
    outside_tools = ("/user_tools/../rules.yaml", str(directories["forge_home"] / "rules.yaml"), "/user_tools/out")
    for path in outside_tools:
        with pytest.raises(SandboxError) as caught:
            do("read", maker, path)
        assert caught.value.code in ("ZONE_ACCESS_DENIED", "SYMLINK_ESCAPE")
    assert maker.default_zone == "workspace" and list(sandbox.zones) == ["workspace", "scratch", "docs"]
    with pytest.raises(SandboxError, match="No access to '/user_tools'"):
        maker.restricted("coder", "main", [ZoneRequest(name="user_tools")])
    alone = sandbox.without_zones().with_user_tools(tools)
    assert [entry.name for entry in files.list_dir(alone.target("/", Verb.READ))] == ["user_tools"]
    assert alone.target("/user_tools/x/tool.yaml", Verb.READ).exists
    with pytest.raises(SandboxError, match="no file access"):
        alone.target("a.txt", Verb.READ)


SPELT = ("~/.forge/tools", "$HOME/.forge/tools", "${FORGE_HOME}/tools", "/root/.forge/tools", "/home/me/.forge/tools")


@table("spelt", SPELT)
def test_the_folder_of_user_tools_as_people_spell_it_points_to_the_zone(
    sandbox: Sandbox, directories: dict[str, Path], do: Callable[..., object], spelt: str
) -> None:
    tools = directories["forge_home"] / "tools"
    tools.mkdir(parents=True, exist_ok=True)
    maker = sandbox.with_user_tools(tools)
    for operation in EVERY:
        with pytest.raises(SandboxError) as caught:
            do(operation, maker, f"{spelt}/./x//tool.yaml")
        assert caught.value.code in ("INVALID_PATH", "ZONE_ACCESS_DENIED")
        assert caught.value.message.endswith("User tools are in /user_tools: use '/user_tools/x/tool.yaml'")
        with pytest.raises(SandboxError, match="which this worker does not have"):
            do(operation, sandbox, f"{spelt}/x/tool.yaml")
    for outside in (f"{spelt}/../rules.yaml", f"{spelt}.old/x"):
        if not outside.startswith("$"):
            with pytest.raises(SandboxError) as caught:
                maker.target(outside, Verb.READ)
            assert "/user_tools:" not in caught.value.message
    assert not list(tools.iterdir()) and not (directories["workspace"] / "$HOME").exists()


def test_the_real_folder_of_user_tools_is_the_zone_or_points_to_it(
    sandbox: Sandbox, directories: dict[str, Path], do: Callable[..., object]
) -> None:
    tools = directories["forge_home"] / "tools"
    (tools / "x").mkdir(parents=True)
    do("write", sandbox.with_user_tools(tools), str(tools / "x/a"), b"made")
    assert (tools / "x/a").read_bytes() == b"made"
    for reaching in (sandbox, sandbox.restricted("coder", "main", [ZoneRequest(name="workspace")])):
        with pytest.raises(SandboxError) as caught:
            do("read", reaching, str(tools / "x/a"))
        assert "User tools are in /user_tools, which" in caught.value.message
        assert str(directories["forge_home"]) not in caught.value.message


@table(
    ("text", "expected"),
    [
        ("cannot open {workspace}/a b", "cannot open /workspace/a b"),
        ("in {workspace}.", "in /workspace."),
        ("'{workspace}': {scratch}/x, {docs}", "'/workspace': /scratch/x, /docs"),
        ("gcc -I{workspace}/include", "gcc -I/workspace/include"),
        ("PATH={workspace}/bin:{scratch}/bin", "PATH=/workspace/bin:/scratch/bin"),
        ("file://{workspace}/a", "file:///workspace/a"),
        ("{workspace}! {workspace}\n{workspace}", "/workspace! /workspace\n/workspace"),
        ("{workspace}-evil/a", "{workspace}-evil/a"),
        ("{workspace}2 {workspace}.bak", "{workspace}2 {workspace}.bak"),
        ("/data{workspace}/a", "/data{workspace}/a"),
        ("/proc/self/root{workspace}/a, /proc/7/root{docs}", "/proc/self/root/workspace/a, /proc/7/root/docs"),
        ("/usr/..{workspace}/a", "/usr/../workspace/a"),
        ("/proc/self/root{forge_home}/rules.yaml", "/proc/self/root<outside>"),
        ("/data/proc/self/root{workspace}/a", "/data/proc/self/root{workspace}/a"),
        ("{forge_home}/rules.yaml: bad", "<outside>: bad"),
        ("nothing here", "nothing here"),
    ],
)
def test_only_whole_directories_are_replaced(
    sandbox: Sandbox, directories: dict[str, Path], text: str, expected: str
) -> None:
    assert sandbox.virtualise(text.format_map(directories)) == expected.format_map(directories)


def test_a_child_reads_outside_where_only_its_parent_may_go(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "src").mkdir()
    child = sandbox.restricted("coder", "main", [ZoneRequest(name="workspace", subpath="src")])
    assert child.virtualise(f"{workspace}/src/a {workspace}/b/c") == "/workspace/a <outside>"
