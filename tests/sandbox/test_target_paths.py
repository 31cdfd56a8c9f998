"""Virtual paths as text: S1-S8, and the folding rule for any input."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import best_opener
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import ZoneSpec


@table(
    ("path", "virtual"),
    [
        ("/workspace/lib/../app.ts", "/workspace/app.ts"),
        ("a.txt", "/workspace/a.txt"),
        ("./a.txt", "/workspace/a.txt"),
        ("//workspace///a//b/", "/workspace/a/b"),
        ("../scratch/x", "/scratch/x"),
        ("/scratch/../docs/.", "/docs"),
        ("..", "/"),
        ("./~/x", "/workspace/~/x"),
        ("$HOME/*.txt", "/workspace/$HOME/*.txt"),
    ],
)
def test_a_text_means_one_address(sandbox: Sandbox, path: str, virtual: str) -> None:
    assert sandbox.locate(path).virtual == virtual


def test_s2_relative_paths_begin_in_the_default_zone(
    directories: dict[str, Path], open_zones: Callable[..., Sandbox]
) -> None:
    specs = [ZoneSpec(name=name, path=directories[name]) for name in ("workspace", "scratch")]
    assert open_zones(*specs, default_zone="scratch").locate("a.txt").virtual == "/scratch/a.txt"
    assert open_zones(specs[1]).locate("a.txt").virtual == "/scratch/a.txt"


@table(
    ("path", "why"),
    [
        ("/../etc/passwd", "escapes the root"),
        ("/../x", "escapes the root"),
        ("../../x", "escapes the root"),
        ("", "empty"),
        ("a\0b", "contains NUL"),
        ("~/x", "home directories are not addressable"),
        ("/~/x", "home directories are not addressable"),
        ("x" * 5000, "too long"),
        ("a/" * 2049, "too long"),
        ("é" * 128, "too long"),
        ("a\ud800", "not UTF-8"),
        (None, "not a string"),
    ],
)
def test_what_is_no_path_is_input_invalid(sandbox: Sandbox, path: object, why: str) -> None:
    with pytest.raises(SandboxError) as caught:
        sandbox.target(path, Verb.READ)
    assert caught.value.code == "INVALID_PATH"
    assert caught.value.status is Status.INPUT_INVALID
    assert caught.value.message.startswith("Invalid path '") and caught.value.message.endswith(f"': {why}")
    assert "\0" not in caught.value.message and len(caught.value.message) < 700


def test_a_component_of_255_bytes_is_a_name(sandbox: Sandbox) -> None:
    assert not sandbox.target("é" * 127 + "x", Verb.READ).exists


def test_s3_host_paths_map_to_their_zone_at_whole_components(
    sandbox: Sandbox, workspace: Path, do: Callable[..., object]
) -> None:
    (workspace / "a.txt").write_bytes(b"hello")
    target = sandbox.target(f"{workspace}/a.txt", Verb.READ)
    assert (target.virtual, target.real) == ("/workspace/a.txt", f"{workspace}/a.txt")
    assert files.read_bytes(target) == b"hello"
    assert sandbox.locate(str(workspace)).virtual == "/workspace"
    for path in (f"{workspace}-evil/a", f"{workspace}x", str(workspace.parent), f"{workspace}/../outside/k"):
        with pytest.raises(SandboxError) as caught:
            sandbox.target(path, Verb.READ)
        assert caught.value.code == "ZONE_ACCESS_DENIED"


def test_what_follows_the_root_of_this_process_is_the_path_it_is(sandbox: Sandbox, workspace: Path) -> None:
    for root in ("/proc/self/root", "/proc/thread-self/root", "/proc/self/task/1/root", "//proc/./self//root"):
        assert sandbox.locate(f"{root}{workspace}/a.txt").virtual == "/workspace/a.txt"
        assert sandbox.locate(f"{root}/scratch/a.txt").virtual == "/scratch/a.txt"
        with pytest.raises(SandboxError, match="No access to '/etc/shadow'"):
            sandbox.locate(f"{root}/etc/shadow")
    assert sandbox.locate(f"/proc/self/root/proc/self/root{workspace}").virtual == "/workspace"
    assert sandbox.locate("proc/self/root/x").virtual == "/workspace/proc/self/root/x"


@table("path", ["/proc/1/root{}/a", "/proc/self/root/..{}/a", "/proc/self/root{}/../a", "/proc/self/cwd/a"])
def test_where_another_path_may_be_meant_no_zone_has_it_and_no_host_path_is_said(
    sandbox: Sandbox, workspace: Path, path: str
) -> None:
    with pytest.raises(SandboxError) as caught:
        sandbox.locate(path.format(workspace))
    assert caught.value.code == "ZONE_ACCESS_DENIED"
    assert str(workspace) not in caught.value.message + caught.value.path


def test_a_zone_configured_through_a_link_answers_to_both_spellings(
    tmp_path: Path, workspace: Path, open_zones: Callable[..., Sandbox]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(workspace)
    sandbox = open_zones(ZoneSpec(name="workspace", path=link))
    assert sandbox.locate(f"{link}/a").virtual == sandbox.locate(f"{workspace}/a").virtual == "/workspace/a"


def test_s4_the_root_lists_zones_only(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a.txt").write_text("x")
    root = sandbox.target("/", Verb.READ)
    assert [(entry.name, entry.kind) for entry in files.list_dir(root)] == [
        ("docs", "directory"),
        ("scratch", "directory"),
        ("workspace", "directory"),
    ]
    assert root.exists and files.file_info(root).kind == "directory"
    root.recheck()
    for verb in (Verb.WRITE, Verb.DELETE):
        with pytest.raises(SandboxError, match="'/' is a directory"):
            sandbox.target("/", verb)
    with pytest.raises(SandboxError, match="'/' is a directory"):
        files.read_bytes(root)


@table("path", ["/output/../secret/k", "/workspace/x"])  # S5 and S6
def test_a_path_in_no_zone_is_denied_and_told_what_there_is(
    directories: dict[str, Path], open_zones: Callable[..., Sandbox], path: str, do: Callable[..., object]
) -> None:
    sandbox = open_zones(ZoneSpec(name="output", path=directories["scratch"]))
    for operation in ("read", "write", "delete", "list", "info", "exists"):
        with pytest.raises(SandboxError) as caught:
            do(operation, sandbox, path)
        folded = posixpath.normpath(path)
        assert caught.value.message == f"No access to '{folded}'. Zones: /output (rw)"
        assert (caught.value.status, caught.value.path) == (Status.SANDBOX_DENIED, folded)


def test_s7_exists_answers_false_for_missing_and_refuses_what_it_may_not_see(
    sandbox: Sandbox, workspace: Path, do: Callable[..., object]
) -> None:
    (workspace / "file").write_text("x")
    assert do("exists", sandbox, "file") is True
    assert do("exists", sandbox, "nothing") is False
    assert do("exists", sandbox, "no/such/directory") is False
    assert do("exists", sandbox, "file/below") is False
    with pytest.raises(SandboxError, match="escapes the root"):
        do("exists", sandbox, "/../x")


def test_the_zone_name_wins_over_a_host_directory_of_that_name(
    directories: dict[str, Path], open_zones: Callable[..., Sandbox]
) -> None:
    first = directories["workspace"].parts[1]
    sandbox = open_zones(
        ZoneSpec(name="workspace", path=directories["workspace"]), ZoneSpec(name="scratch", path=directories["scratch"])
    )
    zones = dict(sandbox.zones)
    sandbox.zones = {first: zones["scratch"], "workspace": zones["workspace"]}
    assert sandbox.locate(f"{directories['workspace']}/a").zone is zones["scratch"]


_NAMES = st.sampled_from(["..", ".", "", "a", "b.txt", "workspace", "scratch", "é", "~", "docs", "..."])
_PATHS = st.builds(
    lambda lead, names: lead + "/".join(names), st.sampled_from(["", "/"]), st.lists(_NAMES, max_size=12)
)


@pytest.mark.parametrize("opener", [best_opener()], indirect=True)  # nothing is opened
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.one_of(_PATHS, st.text(max_size=60)))
def test_folding_never_escapes_and_addresses_round_trip(sandbox: Sandbox, path: str) -> None:
    try:
        place = sandbox.locate(path)
    except SandboxError:
        return
    assert not {"", ".", ".."} & set(place.parts)
    assert place.virtual == posixpath.normpath("/" + posixpath.join("/workspace", path).lstrip("/"))
    assert sandbox.locate(place.virtual) == place
    if place.zone:
        assert os.path.commonpath([place.zone.host, place.zone.real(place.parts)]) == place.zone.host
