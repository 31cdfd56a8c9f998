"""Targets: judged once, held open, checked again after a wait; S9."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import descriptors
from tests.tables import table

from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.effects import Mark, Verb
from golem_forge.sandbox import files
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.handles import Opener, best_opener, open_by_kernel
from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.sandbox.zones import ZoneSpec


def _changed(action: Callable[[], object]) -> None:
    with pytest.raises(SandboxError) as caught:
        action()
    assert caught.value.code == "PATH_CHANGED"
    assert caught.value.message.endswith("changed while it was being used; nothing was done.")


def test_this_kernel_has_openat2() -> None:
    assert best_opener() is open_by_kernel


def test_s9_a_read_only_zone_reads_and_never_changes(
    sandbox: Sandbox, directories: dict[str, Path], do: Callable[..., object]
) -> None:
    (directories["docs"] / "a.txt").write_text("text")
    assert do("read", sandbox, "/docs/a.txt") == b"text"
    for operation, path in (("write", "a.txt"), ("delete", "a.txt"), ("write", "new")):
        with pytest.raises(SandboxError) as caught:
            do(operation, sandbox, f"/docs/{path}")
        assert caught.value.message == f"Zone '/docs' is read-only; '/docs/{path}' was not changed."
        assert (caught.value.code, caught.value.status) == ("READ_ONLY_ZONE", Status.SANDBOX_DENIED)
    assert os.listdir(directories["docs"]) == ["a.txt"]


def test_the_effect_says_what_policy_needs(directories: dict[str, Path], open_zones: Callable[..., Sandbox]) -> None:
    workspace = directories["workspace"]
    sandbox = open_zones(
        ZoneSpec(name="workspace", path=workspace, write=Verdict.PRE_APPROVED, unprotect=(".vscode/",))
    )
    for name in (".env", "plain", ".ssh/config", ".vscode/tasks.json"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("x")
    (workspace / "innocent").symlink_to(".env")
    effect = sandbox.target("innocent", Verb.READ).effect()
    assert (effect.verb, effect.target, effect.real) == ("read", "/workspace/.env", f"{workspace}/.env")
    assert (effect.zone_verdict, effect.marks) == (Verdict.PRE_APPROVED, (Mark.SECRET_PATH,))
    assert sandbox.target(".env", Verb.WRITE).effect().marks == (Mark.SECRET_PATH,)
    assert sandbox.target(".env", Verb.DELETE).effect().marks == (Mark.SECRET_PATH,)
    assert sandbox.target(".env", Verb.WRITE).marks == (Mark.SECRET_PATH,)
    assert sandbox.target(".ssh/config", Verb.READ).effect().marks == (Mark.SECRET_PATH,)
    assert set(sandbox.target(".ssh/config", Verb.DELETE).effect().marks) == {Mark.PROTECTED_PATH, Mark.SECRET_PATH}
    assert sandbox.target(".vscode/tasks.json", Verb.WRITE).effect().marks == ()
    plain = sandbox.target("plain", Verb.WRITE).effect()
    assert (plain.zone_verdict, plain.marks) == (Verdict.PRE_APPROVED, ())
    assert sandbox.target("plain", Verb.DELETE).effect().zone_verdict is Verdict.ASK


def test_obeyed_names_matter_when_they_are_changed(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / ".github/workflows").mkdir(parents=True)
    (workspace / ".github/workflows/ci.yml").touch()
    (workspace / "innocent").symlink_to(".github/workflows/ci.yml")
    (workspace / ".npmrc").touch()
    for verb in (Verb.WRITE, Verb.DELETE):
        assert sandbox.target(".github/workflows/ci.yml", verb).effect().marks == (Mark.OBEYED_PATH,)
    assert sandbox.target("innocent", Verb.WRITE).effect().marks == (Mark.OBEYED_PATH,)
    assert sandbox.target(".github/workflows/ci.yml", Verb.READ).effect().marks == ()
    assert sandbox.target(".github/workflows", Verb.READ).effect(Verb.WRITE).marks == (Mark.OBEYED_PATH,)
    assert sandbox.target("sitecustomize.py", Verb.WRITE).effect().marks == (Mark.OBEYED_PATH,)
    assert sandbox.target("golem_forge/__init__.py", Verb.WRITE).effect().marks == (Mark.OBEYED_PATH,)
    assert sandbox.target("AGENTS.md", Verb.WRITE).effect().marks == ()
    assert set(sandbox.target(".npmrc", Verb.WRITE).effect().marks) == {Mark.PROTECTED_PATH, Mark.SECRET_PATH}
    assert sandbox.target(".npmrc", Verb.READ).effect().marks == (Mark.SECRET_PATH,)


def test_what_git_s_settings_name_is_obeyed(sandbox: Sandbox, workspace: Path, own_home: Path) -> None:
    """Commands cannot write there at all; a tool for files must not be a way round."""
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    subprocess.run(["git", "-C", str(workspace), "config", "core.hooksPath", "tools/hooks"], check=True)
    (workspace / "settings").touch()
    (own_home / ".gitconfig").symlink_to(workspace / "settings")
    (workspace / "a_link").symlink_to("settings")
    for path in ("tools/hooks/pre-commit", "settings", "a_link"):
        assert sandbox.target(path, Verb.WRITE).effect().marks == (Mark.OBEYED_PATH,), path
    assert sandbox.target("tools/a", Verb.WRITE).effect().marks == ()
    assert sandbox.target("settings", Verb.READ).effect().marks == ()


def test_a_file_that_takes_the_place_of_another_is_obeyed(sandbox: Sandbox, workspace: Path) -> None:
    for name, other in (("GNUmakefile", "Makefile"), ("makefile", "Makefile"), ("compose.yaml", "docker-compose.yml")):
        (workspace / f"of {name}").mkdir()
        assert sandbox.target(f"of {name}/{name}", Verb.WRITE).effect().marks == (), "the only one there"
        (workspace / f"of {name}/{other}").touch()
        assert sandbox.target(f"of {name}/{name}", Verb.WRITE).effect().marks == (Mark.OBEYED_PATH,)
        assert sandbox.target(f"of {name}/{other}", Verb.WRITE).effect().marks == ()


def test_a_link_does_not_make_a_protected_path_harmless(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "data/hooks").mkdir(parents=True)
    (workspace / ".git").symlink_to("data")
    assert sandbox.target(".git/hooks/pre-commit", Verb.WRITE).effect().marks == (Mark.PROTECTED_PATH,)


def test_git_is_protected_as_a_file_also_before_it_exists(
    sandbox: Sandbox, workspace: Path, directories: dict[str, Path]
) -> None:
    assert sandbox.target(".git", Verb.WRITE).effect().marks == (Mark.PROTECTED_PATH,)
    (workspace / ".git").mkdir()
    assert sandbox.target(".git/index", Verb.WRITE).effect().marks == ()
    (directories["scratch"] / ".git").write_text("gitdir: elsewhere")
    assert sandbox.target("/scratch/.git", Verb.DELETE).effect().marks == (Mark.PROTECTED_PATH,)


def test_what_was_judged_is_what_is_read(sandbox: Sandbox, workspace: Path, outside: Path) -> None:
    (outside / "canary").write_text("canary")
    (workspace / "a").write_text("judged")
    target = sandbox.target("a", Verb.READ)
    (workspace / "a").unlink()
    (workspace / "a").symlink_to(outside / "canary")
    assert files.read_bytes(target) == b"judged"
    _changed(target.recheck)


def test_an_undisturbed_target_passes_every_check(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub/a").write_text("x")
    (workspace / "link").symlink_to("sub/a")
    (workspace / "dangling").symlink_to("nowhere/file")
    cases = [("sub/a", verb) for verb in (Verb.READ, Verb.WRITE, Verb.DELETE)]
    cases += [("link", Verb.READ), ("link", Verb.WRITE), ("link", Verb.DELETE), ("new", Verb.WRITE)]
    cases += [("n1/n2/new", Verb.WRITE), ("gone", Verb.READ), ("sub/a/below", Verb.READ), (".", Verb.READ)]
    cases += [("dangling", Verb.READ), ("dangling", Verb.WRITE)]
    for path, verb in cases:
        with sandbox.target(path, verb) as target:
            target.recheck()


@table("verb", [Verb.READ, Verb.WRITE, Verb.DELETE])
@table("swap", ["link", "inode", "gone", "directory link", "directory moved", "other directory"])
def test_a_swap_during_a_wait_is_path_changed(
    sandbox: Sandbox, workspace: Path, outside: Path, verb: Verb, swap: str
) -> None:
    place = workspace / f"{swap} {verb}"
    directory, file = place / "d", place / "d/f"
    directory.mkdir(parents=True)
    file.write_text("judged")
    (outside / "f").write_text("canary")
    target = sandbox.target(f"{place.name}/d/f", verb)
    if swap in ("link", "inode", "gone"):
        file.rename(place / "kept")
    else:
        directory.rename(outside / place.name if swap == "directory moved" else place / "kept")
    if swap == "link":
        file.symlink_to("../kept")
    elif swap == "inode":
        file.write_text("judged")
    elif swap == "directory link":
        directory.symlink_to(outside)
    elif swap == "other directory":
        directory.mkdir()
        file.write_text("judged")
    _changed(target.recheck)
    if verb is Verb.WRITE:
        _changed(lambda: files.write_atomic(target, b"new"))
    elif verb is Verb.DELETE:
        _changed(lambda: files.delete(target))
    assert (outside / "f").read_text() == "canary"
    left = [name for _, _, names in os.walk(workspace.parent) for name in names]
    assert not [name for name in left if name.startswith(".forge-")]


def test_missing_then_there_is_path_changed(sandbox: Sandbox, workspace: Path) -> None:
    for path in ("new", "n1/n2/new"):
        target = sandbox.target(path, Verb.WRITE)
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text("someone else's")
        _changed(target.recheck)
        _changed(lambda target=target: files.write_atomic(target, b"x"))  # type: ignore[misc]
        assert (workspace / path).read_text() == "someone else's"


def test_a_retargeted_link_is_path_changed(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("a")
    (workspace / "b").write_text("b")
    (workspace / "link").symlink_to("a")
    target = sandbox.target("link", Verb.READ)
    (workspace / "link").unlink()
    (workspace / "link").symlink_to("b")
    _changed(target.recheck)


def test_content_changed_in_place_stops_a_write_but_not_a_read_or_delete(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "log").write_text("one")
    targets = {verb: sandbox.target("log", verb) for verb in (Verb.READ, Verb.WRITE, Verb.DELETE)}
    with (workspace / "log").open("a") as log:
        log.write("two")
    _changed(targets[Verb.WRITE].recheck)
    _changed(lambda: files.write_atomic(targets[Verb.WRITE], b"x"))
    targets[Verb.READ].recheck()
    assert files.read_bytes(targets[Verb.READ]) == b"onetwo"
    files.delete(targets[Verb.DELETE])
    assert not (workspace / "log").exists()


def test_targets_hold_few_descriptors_and_let_go(sandbox: Sandbox, workspace: Path, opener: Opener) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub/a").write_text("x")
    (workspace / "link").symlink_to("sub/a")

    before = descriptors.below(workspace)
    reads = [sandbox.target("link", Verb.READ) for _ in range(10)]
    assert len(descriptors.below(workspace)) == len(before) + 10
    writes = [sandbox.target("link", Verb.WRITE) for _ in range(10)]
    assert len(descriptors.below(workspace)) == len(before) + 30
    for target in reads:
        target.close()
    del writes, target
    assert descriptors.below(workspace) == before


def test_a_closed_sandbox_addresses_nothing_but_targets_live_on(sandbox: Sandbox, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    target = sandbox.target("a", Verb.WRITE)
    sandbox.close()
    with pytest.raises(SandboxError, match="No access"):
        sandbox.target("/workspace/a", Verb.READ)
    target.recheck()
    files.write_atomic(target, b"y")
    assert (workspace / "a").read_text() == "y"
