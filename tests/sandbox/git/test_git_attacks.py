"""What a hostile command tries so that the person's own git runs something, and what the person's git then does.

Each attack runs in real walls; afterwards and meanwhile the person asks git the everyday things. A program that leaves
a mark outside of the zone must never have run.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.walls.house import House, Person, ran

from golem_forge.core.calls import Severity
from golem_forge.sandbox.walls.model import Job

ATTACKS = {
    "bare repository at the root": "rm -f .git/HEAD; mkdir -p objects refs; echo ref: refs/heads/main > HEAD;"
    " printf '[core]\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = %s/evil.sh\\n' $PWD > config;"
    " mkdir -p hooks; cp evil.sh hooks/pre-commit",
    "commondir": "mkdir -p fake; cp -r .git/. fake/ 2>/dev/null; rm -rf fake/config;"
    " printf '[core]\\n\\tfsmonitor = %s/evil.sh\\n' $PWD > fake/config;"
    " echo ../fake > .git/commondir",
    "commondir of another repository": "git init -q fake; git -C fake config core.fsmonitor $PWD/evil.sh;"
    " echo ../fake/.git > .git/commondir",
    "config": "git config core.fsmonitor $PWD/evil.sh;"
    " printf '[core]\\n\\tfsmonitor = %s/evil.sh\\n' $PWD >> .git/config; mv .git/config .git/c;"
    " cp evil.sh .git/config",
    "the whole .git anew": "mv .git old; rm -rf .git; git init -q .; git config core.fsmonitor $PWD/evil.sh",
    "hooks": "for h in pre-commit post-commit post-index-change reference-transaction;"
    " do cp evil.sh .git/hooks/$h; done; mv .git/hooks .git/h",
    "info": "mkdir -p .git/info; echo '* filter=e' > .git/info/attributes; echo Makefile > .git/info/exclude",
    "link at COMMIT_EDITMSG": "rm -f .git/COMMIT_EDITMSG; ln -s ../../outside.txt .git/COMMIT_EDITMSG",
    "link at logs/HEAD": "rm -f .git/logs/HEAD; ln -s ../../../outside.txt .git/logs/HEAD",
    "link at logs": "rm -rf .git/logs; ln -s ../.. .git/logs",
    "link at index": "rm -f .git/index; ln -s ../../outside.txt .git/index",
    "link at refs": "rm -rf .git/refs/heads; ln -s ../../.. .git/refs/heads",
    "link at HEAD": "rm -f .git/HEAD; ln -s ../evil.sh .git/HEAD",
    "link at ORIG_HEAD": "ln -sf ../../outside.txt .git/ORIG_HEAD; ln -sf ../../outside.txt .git/FETCH_HEAD",
    "HEAD as a path": "echo ref: ../evil.sh > .git/HEAD",
    "HEAD removed": "rm -f .git/HEAD",
    "exec in a rebase": "mkdir .git/rebase-merge; echo main > .git/rebase-merge/head-name;"
    " git rev-parse HEAD > .git/rebase-merge/onto;"
    " git rev-parse HEAD > .git/rebase-merge/orig-head; touch .git/rebase-merge/interactive;"
    " printf 'exec ./evil.sh\\n' > .git/rebase-merge/git-rebase-todo; touch .git/rebase-merge/done",
    "a folder in the place of a file": "rm .git/index; mkdir .git/index; touch .git/index/x",
    "a pipe in the place of a file": "rm .git/HEAD .git/index; mkfifo .git/HEAD .git/index",
    "modules": "mkdir -p .git/modules/x; cp -r .git/refs .git/HEAD .git/modules/x/;"
    " printf '[core]\\n\\tfsmonitor = %s/evil.sh\\n' $PWD > .git/modules/x/config",
    "a worktree that leads elsewhere": "mkdir -p .git/worktrees/x; echo ../../fake > .git/worktrees/x/commondir;"
    " echo /tmp/.git > .git/worktrees/x/gitdir; cp .git/HEAD .git/worktrees/x/",
    "gitdir": "echo /tmp > .git/gitdir; echo x > .git/config.worktree; mkdir -p .git/remotes .git/branches;"
    " echo 'URL: ext::sh -c ./evil.sh' > .git/remotes/origin",
    "hidden by the index": "git update-index --skip-worktree Makefile; echo '\t./evil.sh' >> Makefile",
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_the_person_s_git_runs_nothing_while_the_command_runs_and_afterwards(
    house: House, person: Person, name: str
) -> None:
    walls = house.walls()
    command = f"{{ {ATTACKS[name]}; }} 2>/dev/null; echo done; read x"
    reader, writer = os.pipe()
    walled = await walls.start(Job(argv=("bash", "-c", command), stdin=reader))
    os.close(reader)
    try:
        while b"done" not in walled.child.output.read() and walled.child.ending is None:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(person.works_as_usual)
        stopped = walled.child.ending
    finally:
        os.close(writer)
        await walled.child.wait()
    ending = walled.child.ending
    assert stopped is None or stopped.code == "WALLS_CHANGED"
    assert ending is not None and ending.code in ("", "WALLS_CHANGED")

    await asyncio.to_thread(person.works_as_usual, "fake", "old")
    assert person.git("rebase", "--continue").returncode != 0
    assert not person.mark.exists()
    assert person.git("status").returncode == 0

    again = await ran(walls, "git status --short")
    assert again.code == 0, again.text


def test_replacements_stay_inside(house: House, person: Person) -> None:
    ran = house.run("git replace HEAD HEAD~1 && git log -1 --format=%s")

    assert ran.text == "first\n"
    assert person.git("log", "-1", "--format=%s").stdout == "second\n"
    assert person.git("for-each-ref", "refs/replace").stdout == ""
    assert [one.kind for one in ran.after.leftovers if one.severity is Severity.CRITICAL] == ["git_refs"]


def test_settings_of_a_worktree_outside_cannot_be_made(house: House, person: Person) -> None:
    person.git("config", "extensions.worktreeConfig", "true")
    elsewhere = house.root / "elsewhere"
    person.git("worktree", "add", "-q", "-b", "there", str(elsewhere))

    ran = house.run(
        "for d in .git .git/worktrees/*; do"
        " printf '[core]\\n\\tfsmonitor = %s/evil.sh\\n' $PWD > $d/config.worktree; done"
    )

    person.works_as_usual()
    person.git("status", where=elsewhere)
    assert not person.mark.exists()
    assert not list((person.where / ".git").rglob("config.worktree")), ran.text


def test_what_both_changed_stays_the_person_s(house: House, person: Person) -> None:
    async def both() -> Any:
        script = "git commit -q --allow-empty -m inside; touch done; until [ -e go ]; do sleep 0.02; done"
        walled = await house.walls().start(Job(argv=("bash", "-c", script)))
        # Without a turn of the loop, in which the command's commit would be carried over before the person commits.
        deadline = time.monotonic() + PATIENCE
        while not (person.where / "done").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        person.git("commit", "-q", "--allow-empty", "-m", "by the person")
        (person.where / "go").touch()
        await walled.child.wait()
        return walled.aftermath()

    after = asyncio.run(both())

    assert person.git("log", "-1", "--format=%s").stdout == "by the person\n"
    kept = person.git("for-each-ref", "--format=%(refname) %(subject)", "refs/forge/heads").stdout
    assert kept.startswith("refs/forge/heads/main-") and kept.endswith(" inside\n")
    assert any("kept as refs/forge/heads/main-" in one.text for one in after.leftovers)
    assert house.run("git log -1 --format=%s").text == "by the person\n"


def test_moved_refs_are_told(house: House, person: Person) -> None:
    forward = house.run("git commit -q --allow-empty -m third; git tag v1")
    back = house.run("git reset -q --hard HEAD~2")

    [told] = forward.after.leftovers
    assert (told.kind, told.severity) == ("git_refs", Severity.NOTE)
    assert "main " in told.text and "→" in told.text and "tag v1 made at" in told.text
    [told] = back.after.leftovers
    assert told.severity is Severity.WARNING and "no longer in main" in told.text


def test_a_forge_that_was_killed_loses_no_commit(house: House, person: Person) -> None:
    """The next command, of another Forge, carries over what the first one could not."""
    with house.another_forge("git commit -q --allow-empty -m inside; echo done; sleep 60") as forge:
        forge.kill()
    assert person.says("log", "-1", "--format=%s") == "second"

    ran = house.run("git log -1 --format=%s")

    assert ran.text == "inside\n"
    assert person.says("log", "-1", "--format=%s") == "inside"


NAMED = {
    "hooks that are there": (
        {"core.hooksPath": ("scripts",)},
        "cp evil.sh scripts/pre-commit; mv scripts s",
    ),
    "what is missing": (
        {
            "core.hooksPath": ("githooks",),
            "include.path": ("../local.inc", "../conf/x"),
            "core.fsmonitor": ("tools/watch.sh",),
        },
        "mkdir -p githooks; cp evil.sh githooks/pre-commit; mkdir -p tools; cp evil.sh tools/watch.sh; mkdir conf;"
        " for f in local.inc conf/x; do printf '[core]\\n\\tfsmonitor = %s/evil.sh\\n' $PWD > $f; done",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_paths_that_git_s_settings_name_cannot_be_made(house: House, person: Person, name: str) -> None:
    settings, attack = NAMED[name]
    (person.where / "scripts").mkdir()
    for key, values in settings.items():
        for value in values:
            person.git("config", "--add", key, value)
    (person.where / ".git/info/exclude").write_text("githooks\nconf\nlocal.inc\nscripts\ntools\n")
    walls = house.walls()

    house.run(attack, walls)
    house.run(attack, walls)

    person.works_as_usual()
    assert sorted(os.listdir(person.where)) == [".git", "Makefile", "evil.sh", "scripts"]


async def test_the_person_s_git_works_while_a_placeholder_stands(house: House, person: Person) -> None:
    person.git("config", "include.path", "../local.inc")
    walled = await house.walls().start(Job(argv=("sleep", "60")))
    try:
        ran = await asyncio.to_thread(person.git, "log", "-1", "--format=%s")
        assert (ran.returncode, ran.stdout) == (0, "second\n")
        assert (person.where / "local.inc").read_bytes() == b""
    finally:
        await walled.child.end()
    assert not (person.where / "local.inc").exists()


FORGED = """
import hashlib, os, struct
data = bytearray(open('.git/index', 'rb').read()[:-20])
at = data.index(b'Makefile') - 62
info = os.stat('Makefile')
fields = list(struct.unpack('>10I', data[at:at + 40]))
fields[:4] = int(info.st_ctime), info.st_ctime_ns % 10**9, int(info.st_mtime), info.st_mtime_ns % 10**9
fields[5], fields[9] = info.st_ino & 0xFFFFFFFF, info.st_size
data[at:at + 40] = struct.pack('>10I', *fields)
open('.git/index', 'wb').write(bytes(data) + hashlib.sha1(data).digest())
"""


def test_a_forged_index_entry_stays_inside_and_git_sees_the_change(house: House, person: Person) -> None:
    (person.where / "forge_index.py").write_text(FORGED)
    script = (
        "printf 'all:\\n\\t./evil.sh\\n' > Makefile; touch -d '2001-01-01' Makefile;"
        " python3 forge_index.py; git status --short"
    )

    ran = house.run(script)

    assert ran.text == "?? forge_index.py\n"  # inside, git believes it
    assert " M Makefile" in person.git("status", "--short").stdout


def test_a_new_gitlink_to_a_repository_that_runs_something_is_harmless(house: House, person: Person) -> None:
    house.run(
        "git init -q inner; git -C inner -c user.name=n -c user.email=e commit -q --allow-empty -m x;"
        " git add inner 2>/dev/null; git -C inner config core.fsmonitor $PWD/evil.sh"
    )
    person.works_as_usual("inner")
    assert not person.mark.exists(), "nothing of it ran"
