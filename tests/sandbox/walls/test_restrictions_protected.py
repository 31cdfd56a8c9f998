"""Protected paths under real walls: unchanged, not renamed away, not made where they were missing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Verb
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.restrictions import MOST_MOUNTS
from golem_forge.sandbox.zones import ZoneSpec

from .house import House, init, path_rule


def _holds(directory: Path, name: str) -> bool:
    return (directory / name).exists()


def test_hooks_and_settings_of_a_repository_stay_and_commits_work(house: House) -> None:
    init(house.workspace)
    settings = (house.workspace / ".git/config").read_text()

    ran = house.run(
        "touch .git/hooks/x; echo x >> .git/config; mv .git g; mv .git/hooks h; rm -rf .git/hooks;"
        " ln -sf /x .git/config;"
        " touch .git/index.lock && rm .git/index.lock && echo locked;"
        " touch a && git add a && git -c user.name=n -c user.email=e commit -qm one && echo committed"
    )

    assert "locked\n" in ran.text and ran.text.endswith("committed\n")
    assert not _holds(house.workspace, ".git/hooks/x") and (house.workspace / ".git/config").read_text() == settings
    kinds = {(one["kind"], one["target"]) for one in ran.after.denials}
    assert {("protected", "/workspace/.git/hooks/x"), ("protected", "/workspace/.git/config")} <= kinds


@pytest.mark.parametrize("existing", [None, "empty"])
def test_a_missing_repository_cannot_be_made_and_leaves_nothing(house: House, existing: str | None) -> None:
    if existing:
        (house.workspace / ".git").mkdir()

    ran = house.run("mkdir -p .git/hooks; git init -q .; mv .git g; rmdir .git; touch ok; ls -A")

    assert ran.text.endswith(".git\nHEAD\nok\n")
    assert os.listdir(house.workspace) == ["ok"]
    assert ran.after.protected_created == ()
    assert ran.after.denials[0]["target"] == "/workspace/.git/hooks"


def test_missing_hooks_of_a_repository_cannot_be_made(house: House) -> None:
    for name in (".", "lib"):
        init(house.workspace / name)
        for hook in (house.workspace / name / ".git/hooks").iterdir():
            hook.unlink()
        (house.workspace / name / ".git/hooks").rmdir()

    ran = house.run(
        "for r in . lib; do mkdir -p $r/.git/hooks; touch $r/.git/hooks/x; done; mv lib l; git status -s | wc -l"
    )

    assert not _holds(house.workspace, ".git/hooks") and not _holds(house.workspace, "lib/.git/hooks")
    assert ran.text.endswith("\n1\n") and not _holds(house.workspace, "l")


def test_a_start_that_fails_leaves_no_placeholder(house: House) -> None:
    fake = house.root / "bwrap"
    fake.write_text(f"#!/bin/sh\nmkdir {house.workspace}/.git\nexit 1\n")
    fake.chmod(0o755)

    with pytest.raises(SandboxError):
        house.run("true", house.walls(bwrap=str(fake)))

    assert os.listdir(house.workspace) == []


async def test_walls_that_stand_at_once_do_not_undo_each_other(house: House, run_in: Callable[..., Any]) -> None:
    walls = house.walls()
    long = await walls.start(
        Job(argv=("bash", "-c", "until [ -e go ]; do sleep 0.01; done; mkdir .git/hooks; touch late"))
    )

    short = await run_in(walls, "mkdir .git/x")

    assert "Read-only" in short.text and _holds(house.workspace, ".git")
    (house.workspace / "go").touch()
    await long.child.wait(PATIENCE)
    assert b"Read-only" in long.child.output.read()
    assert sorted(os.listdir(house.workspace)) == ["go", "late"]


def test_nor_do_those_of_another_process(house: House) -> None:
    with house.another_forge("echo done; until [ -e go ]; do sleep 0.01; done; mkdir .git/hooks") as other:
        assert "Read-only" in house.run("mkdir .git/x").text

        assert _holds(house.workspace, ".git")
        (house.workspace / "go").touch()
        assert "Read-only" in other.finish()
    assert os.listdir(house.workspace) == ["go"]


async def test_nor_where_a_third_one_was_killed(house: House) -> None:
    """Whoever starts next asks whether it is alone; it still holds its own lock afterwards."""
    with house.another_forge("echo done; until [ -e go ]; do sleep 0.01; done") as other:
        with house.another_forge("echo done; sleep 1000") as killed:
            killed.kill()
        long = await house.walls().start(
            Job(argv=("bash", "-c", "until [ -e now ]; do sleep 0.01; done; mkdir -p .git/hooks && touch .git/hooks/x"))
        )
        (house.workspace / "go").touch()
        await asyncio.to_thread(other.finish)
    assert _holds(house.workspace, ".git")
    (house.workspace / "now").touch()
    await long.child.wait(PATIENCE)
    assert b"Read-only" in long.child.output.read()
    assert sorted(os.listdir(house.workspace)) == ["go", "now"]


def test_a_repository_made_on_the_host_meanwhile_is_kept(house: House) -> None:
    async def scene() -> None:
        walled = await house.walls().start(Job(argv=("sleep", "30")))
        init(house.workspace)
        await walled.child.end()

    asyncio.run(scene())
    assert _holds(house.workspace, ".git/HEAD")


def test_a_zone_that_someone_locks_for_good_gives_a_reason(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.sandbox.walls.zone_lease._LEASE_WITHIN_S", 0.05)
    lock = os.open(house.workspace, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(SandboxError, match="keeps the directory of zone '/workspace' locked"):
            house.run("true")
    finally:
        os.close(lock)


def test_no_hook_of_sixty_nested_repositories_can_be_written(house: House) -> None:
    for index in range(60):
        hooks = house.workspace / f"group{index % 3}/r{index}/.git/hooks"
        hooks.mkdir(parents=True)
        (hooks.parent / "config").touch()
    (house.workspace / "own").mkdir()
    walls = house.walls()

    ran = house.run(
        "for h in */*/.git/hooks; do touch $h/x 2>/dev/null && echo wrote $h; done; touch own/x && echo own;"
        " mv group0 g 2>/dev/null; ls",
        walls,
    )

    assert ran.text == "own\nHEAD\ngroup0\ngroup1\ngroup2\nown\n"
    assert any("/workspace/group0 is read-only" in notice for notice in walls.notices)


def test_repositories_side_by_side_are_guarded_too(house: House) -> None:
    for index in range(60):
        (house.workspace / f"r{index}/.git/hooks").mkdir(parents=True)

    ran = house.run(
        "for r in r*; do touch $r/.git/hooks/x 2>/dev/null && echo wrote $r; mv $r away 2>/dev/null; done;"
        " ls -d r* | wc -l"
    )

    assert ran.text == "60\n"


def test_no_directory_on_the_way_can_be_renamed(house: House) -> None:
    (house.workspace / "a/b/.vscode").mkdir(parents=True)
    (house.workspace / "free").mkdir()

    ran = house.run("mv a x; mv a/b x; mv a/b/.vscode x; touch a/b/.vscode/t; touch a/b/new && mv free x && echo fine")

    assert ran.text.endswith("fine\n") and ran.text.count("mv: ") == 3
    assert _holds(house.workspace, "a/b/.vscode") and not _holds(house.workspace, "a/b/.vscode/t")


@pytest.mark.parametrize("name", [".git", ".forge", "sub/deep/.git", ".GIT"])
def test_a_repository_that_is_a_link_is_refused(house: House, name: str) -> None:
    link = house.workspace / name
    link.parent.mkdir(parents=True, exist_ok=True)
    (house.workspace / "real").mkdir()
    link.symlink_to(house.workspace / "real")

    with pytest.raises(SandboxError) as refused:
        house.run("touch ran")

    assert refused.value.code == "WALLS_UNAVAILABLE" and f"'/workspace/{name}' is a link" in refused.value.message
    assert house.run("echo reads", reads_only=True).text == "reads\n"


def test_other_protected_links_guard_what_they_lead_to(house: House) -> None:
    init(house.workspace)
    (house.workspace / ".git/hooks").rename(house.workspace / "shared")
    (house.workspace / ".git/hooks").symlink_to("../shared")

    ran = house.run("touch shared/x; rm .git/hooks; touch .git/hooks/x; touch fine && echo fine")

    assert ran.text.endswith("fine\n")
    assert not _holds(house.workspace, "shared/x") and (house.workspace / ".git/hooks").is_symlink()


def test_what_a_child_creates_is_told(house: House) -> None:
    (house.workspace / ".envrc").touch()

    ran = house.run("touch .bashrc forge.yaml main.worker plain; git init -q sub; mkdir .forge; touch .envrc")

    assert ran.after.protected_created == (
        "/workspace/.bashrc",
        "/workspace/.forge",
        "/workspace/forge.yaml",
        "/workspace/main.worker",
        "/workspace/sub/.git/config",
        "/workspace/sub/.git/hooks",
    )


def test_a_child_cannot_hide_what_it_made_by_setting_times_back(house: House) -> None:
    walls = house.walls()
    (house.workspace / "sub").mkdir()
    house.run("true", walls)
    time.sleep(0.15)
    house.run("true", walls)

    made = house.run("cp -a sub /tmp/ref; mkdir -p sub/.git/hooks; touch -r /tmp/ref sub", walls)
    again = house.run("touch sub/.git/hooks/x", walls)

    assert made.after.protected_created == ("/workspace/sub/.git/hooks",)
    assert again.code != 0


def test_a_zone_inside_a_repository_s_own_directory_is_read_only(house: House) -> None:
    init(house.workspace)

    ran = house.run("touch x", house.walls(ZoneSpec(name="hooks", path=house.workspace / ".git/hooks")))

    assert ran.code != 0 and not _holds(house.workspace, ".git/hooks/x")


@pytest.mark.parametrize("verdict", [Verdict.ASK, Verdict.BLOCKED])
def test_write_rules_are_read_only_paths(house: House, verdict: Verdict) -> None:
    for name in ("dist/deep", "src", "src/a/b/c/d/e"):
        (house.workspace / name).mkdir(parents=True, exist_ok=True)
    for name in ("src/one.lock", "src/a/b/c/d/e/far"):
        (house.workspace / name).touch()
    rules = (
        path_rule("/workspace/dist/**", verdict, Verb.WRITE, literal="/workspace/dist"),
        path_rule("/workspace/src/a/b/c/d/e/far", verdict, Verb.DELETE, literal="/workspace/src/a/b/c/d/e/far"),
        path_rule("/workspace/**/*.lock", verdict, Verb.WRITE, Verb.DELETE),
        path_rule("/workspace/none/**", verdict, Verb.WRITE, literal="/workspace/none"),
    )

    ran = house.run(
        "touch dist/later dist/deep/later; echo x > src/one.lock; rm -f src/a/b/c/d/e/far; mv dist d; touch src/ok",
        house.walls(rules=lambda: rules),
    )

    assert not _holds(house.workspace, "dist/later") and not _holds(house.workspace, "dist/deep/later")
    assert (house.workspace / "src/one.lock").read_text() == "" and _holds(house.workspace, "src/a/b/c/d/e/far")
    assert _holds(house.workspace, "src/ok") and _holds(house.workspace, "dist") and not _holds(house.workspace, "none")
    assert {one["why"] for one in ran.after.denials} == {"a path rule"}


def test_a_write_rule_on_the_whole_zone(house: House) -> None:
    rules = (path_rule("/workspace/**", Verdict.ASK, Verb.WRITE, literal="/workspace"),)

    assert house.run("touch x", house.walls(rules=lambda: rules)).code != 0
    assert os.listdir(house.workspace) == []


def test_a_linked_worktree_sees_its_repository_read_only(house: House) -> None:
    main = house.root / "main"
    init(main)
    for words in (("commit", "-q", "--allow-empty", "-m", "one"), ("worktree", "add", "-q", str(house.root / "tree"))):
        subprocess.run(
            ["git", "-C", str(main), "-c", "user.name=n", "-c", "user.email=e", *words], check=True, capture_output=True
        )
    walls = house.walls(ZoneSpec(name="tree", path=house.root / "tree"))

    ran = house.run(f"git log --format=%s; touch {main}/.git/x; ls -A {main}; echo gitdir: /x > .git", walls)

    assert ran.text.startswith("one\n") and "ls -A" not in ran.text and "\n.git\n" in ran.text
    assert not _holds(main, ".git/x")

    (main / ".git/worktrees/tree/gitdir").write_text("/elsewhere/.git\n")
    assert (
        "one" not in house.run("git log --format=%s", house.walls(ZoneSpec(name="tree", path=house.root / "tree"))).text
    )


def test_many_protected_paths_cost_a_bounded_number_of_mounts(house: House) -> None:
    for index in range(30):
        (house.workspace / f"d{index}/e/.vscode").mkdir(parents=True)
    walls = house.walls()

    ran = house.run(
        f"grep -c {house.workspace} /proc/self/mountinfo;"
        " for d in d*; do touch $d/e/.vscode/x 2>/dev/null && echo $d; done",
        walls,
    )

    lines = ran.text.split()
    assert len(lines) == 1 and int(lines[0]) <= MOST_MOUNTS + 40
