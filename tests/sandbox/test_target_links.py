"""Links inside a zone are followed by hand; what leaves is refused for every operation (S11, S12)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.core.effects import Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import open_by_kernel, open_by_walk
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.zones import ZoneSpec

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
