"""From the text of a path to its place in a zone, through links, too."""

from __future__ import annotations

import os
import posixpath
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import best_opener, open_by_kernel, open_by_walk
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
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


EVERY = ("read", "write", "delete", "list", "info", "exists")


def test_s11_a_link_that_leaves_is_refused(
    sandbox: Sandbox, workspace: Path, outside: Path, do: Callable[..., object]
) -> None:
    (outside / "canary").write_text("canary")
    (workspace / "sub").mkdir()
    up = "../../../../../../etc/passwd"
    for text in ("/etc/passwd", "../outside/canary", up, "/etc", "..", "sub/../../outside/canary"):
        (workspace / "link").symlink_to(text)
        for operation in EVERY:
            with pytest.raises(SandboxError) as caught:
                do(operation, sandbox, "/workspace/link")
            assert caught.value.code == "SYMLINK_ESCAPE", (text, operation)
            assert caught.value.message == "'/workspace/link' is a link that leaves its zone."
        assert (outside / "canary").read_text() == "canary" and (workspace / "link").is_symlink()
        (workspace / "link").unlink()


def test_s12_a_directory_link_to_outside_is_refused_below_too(
    sandbox: Sandbox, workspace: Path, outside: Path, do: Callable[..., object]
) -> None:
    (outside / "x").write_text("canary")
    (outside / "deep/er").mkdir(parents=True)
    (outside / "deep/er/x").write_text("canary")
    (workspace / "link").symlink_to(outside)
    (workspace / "chain").symlink_to("link/new/../x")
    (workspace / "sub").mkdir()
    (workspace / "sub/link").symlink_to("../link")
    paths = ("link/x", "link/new/x", "link/deep/x", "link/deep/er/x", "chain", "sub/link/deep/x")
    for path, operation in product(paths, EVERY):
        with pytest.raises(SandboxError) as caught:
            do(operation, sandbox, path)
        assert caught.value.code == "SYMLINK_ESCAPE", (path, operation)
    assert sorted(os.listdir(outside)) == ["deep", "x"] and os.listdir(outside / "deep") == ["er"]


@pytest.mark.parametrize("absolute", [False, True], ids=["relative", "absolute host path"])
def test_s11_a_link_inside_the_zone_leads_to_its_target(
    sandbox: Sandbox, workspace: Path, absolute: bool, do: Callable[..., object]
) -> None:
    (workspace / "sub").mkdir()
    real = workspace / "sub/file"
    real.write_text("old")
    (workspace / "sub/link").symlink_to(real if absolute else "../sub/./file")
    (workspace / "dir").symlink_to("sub")
    target = sandbox.target("dir/link", Verb.READ)
    assert (target.virtual, target.real, target.kind) == ("/workspace/sub/file", str(real), "file")
    assert do("read", sandbox, "dir/link") == b"old"
    do("write", sandbox, "dir/link", b"new")
    assert real.read_text() == "new" and (workspace / "sub/link").is_symlink()
    assert do("list", sandbox, "dir") == ["file", "link"]
    itself = sandbox.target("dir/link", Verb.READ, follow_last=False)
    assert (itself.virtual, itself.kind) == ("/workspace/sub/link", "link")
    assert files.file_info(itself).kind == "link"
    assert sandbox.target("dir/link", Verb.DELETE).virtual == "/workspace/sub/link"
    do("delete", sandbox, "dir/link")
    assert real.read_text() == "new" and not (workspace / "sub/link").is_symlink()


def test_a_dangling_link_is_missing_can_be_written_through_and_deleted(
    sandbox: Sandbox, workspace: Path, do: Callable[..., object]
) -> None:
    (workspace / "link").symlink_to("new/file")
    assert do("exists", sandbox, "link") is False
    with pytest.raises(SandboxError, match="File not found: /workspace/new/file"):
        do("read", sandbox, "link")
    do("write", sandbox, "link", b"x")
    assert (workspace / "new/file").read_text() == "x" and (workspace / "link").is_symlink()
    (workspace / "odd").symlink_to("gone/../file")
    assert do("exists", sandbox, "odd") is False
    with pytest.raises(SandboxError) as caught:
        do("write", sandbox, "odd")
    assert caught.value.code == "NOT_FOUND"
    do("delete", sandbox, "odd")
    assert not (workspace / "odd").is_symlink()


def test_forty_links_and_no_more(sandbox: Sandbox, workspace: Path, do: Callable[..., object]) -> None:
    (workspace / "l0").write_text("end")
    for number in range(1, 42):
        (workspace / f"l{number}").symlink_to(f"l{number - 1}")
    assert do("read", sandbox, "l40") == b"end"
    with pytest.raises(SandboxError, match=r"Invalid path '/workspace/l41': too many links"):
        do("read", sandbox, "l41")


def test_a_loop_is_an_invalid_path(sandbox: Sandbox, workspace: Path, do: Callable[..., object]) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    for operation in EVERY:
        with pytest.raises(SandboxError, match="too many links"):
            do(operation, sandbox, "a")


def test_a_link_may_not_lead_to_another_zone_of_the_same_worker(
    sandbox: Sandbox, workspace: Path, directories: dict[str, Path], do: Callable[..., object]
) -> None:
    (directories["scratch"] / "x").write_text("x")
    (workspace / "link").symlink_to(directories["scratch"] / "x")
    (workspace / "virtual").symlink_to("/scratch/x")
    for path in ("link", "virtual"):
        with pytest.raises(SandboxError, match="leaves its zone"):
            do("read", sandbox, path)


_LINK_TEXTS = st.lists(st.sampled_from(["..", "a", "b", "c", ".", "HOST"]), min_size=1, max_size=5)


@given(
    texts=st.lists(_LINK_TEXTS, min_size=3, max_size=3), asked=st.lists(st.sampled_from("abcd"), min_size=1, max_size=4)
)
def test_whatever_links_say_the_kernel_would_agree_or_we_refuse(texts: list[list[str]], asked: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        zone = Path(place).resolve() / "zone"
        (zone / "d/d").mkdir(parents=True)
        (zone / "d/b").write_text("file")
        for where, text in zip(("a", "b", "d/c"), texts, strict=True):
            (zone / where).symlink_to("/".join(text).replace("HOST", str(zone)).replace(f"/{zone}", str(zone)))
        results = []
        for opener in (open_by_kernel, open_by_walk):
            sandbox = open_sandbox(
                [ZoneSpec(name="z", path=zone)], forge_home=Path(place, "f"), home=Path(place, "h"), opener=opener
            )
            try:
                target = sandbox.target("/z/" + "/".join(asked), Verb.READ)
                results.append((target.real, target.exists))
            except SandboxError as error:
                results.append((error.code, False))
        assert results[0] == results[1]
        real, exists = results[0]
        if exists:
            assert real == os.path.realpath(zone.joinpath(*asked)) and Path(real).is_relative_to(zone)
        elif real == "SYMLINK_ESCAPE":
            assert any(".." in text or "HOST" in text for text in texts)
