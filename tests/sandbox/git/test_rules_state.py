"""Files of a git directory that git obeys without being told: what a command writes there never harms the person.

Each case was an attack that worked once.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.sandbox.walls.house import House, Person, Ran
from tests.tables import table

from golem_forge.core.calls import Severity
from golem_forge.sandbox.git import refs
from golem_forge.sandbox.git.rules import state_objection
from golem_forge.sandbox.walls.model import Job

ID, LONG = "a" * 40, "b" * 64


def told(ran: Ran) -> str:
    return "\n".join(one.text for one in ran.after.leftovers)


@table(
    ("name", "content", "good"),
    [
        ("ORIG_HEAD", f"{ID}\n", True),
        ("MERGE_HEAD", f"{ID}\n{ID}\n", True),
        ("MERGE_HEAD", f"{LONG}\n", True),
        ("MERGE_HEAD", f"{ID.upper()}\n", False),
        ("CHERRY_PICK_HEAD", "ref: refs/heads/main\n", False),
        ("ORIG_HEAD", "ref: refs/replace/x\n", False),
        ("FETCH_HEAD", f"{ID}\tnot-for-merge\tbranch 'x' of /y\n{ID}\t\tz\n", True),
        ("FETCH_HEAD", "ref: refs/heads/main\n", False),
        ("AUTO_MERGE", f"{ID}\n", True),
        ("BISECT_START", "main\n", True),
        ("BISECT_START", "-f\n", False),
        ("BISECT_TERMS", "bad\ngood\n", True),
        ("BISECT_TERMS", "--x\ngood\n", False),
        ("BISECT_NAMES", " 'src/a b'\n", True),
        ("BISECT_NAMES", "$(touch x)\n", False),
        ("MERGE_MODE", "no-ff", True),
        ("MERGE_MSG", "anything: ref: refs/heads/x\n", True),
        ("refs/bisect/bad", f"{ID}\n", True),
        ("refs/bisect/bad", "rubbish", False),
        ("MERGE_RR", f"{ID}\t/etc/passwd\0", False),
        ("BISECT_RUN", "sh evil\n", False),
    ],
)
def test_what_such_a_file_may_hold(name: str, content: str, good: bool) -> None:
    assert (state_objection(name, content.encode()) == "") is good


def test_no_branch_is_deleted_or_moved_by_the_next_git_command(house: House, person: Person) -> None:
    person.git("branch", "release", "HEAD~1")
    before = person.says("rev-parse", "release")
    for name, words in (("CHERRY_PICK_HEAD", ["checkout", "-q", "-b", "topic"]), ("ORIG_HEAD", ["reset", "HEAD"])):
        ran = house.run(f"printf 'ref: refs/heads/release\\n' > .git/n; mv .git/n .git/{name}")

        person.git(*words)
        assert person.says("rev-parse", "release") == before
        assert name in told(ran)


def test_git_copies_no_file_from_outside_into_the_walls(house: House, person: Person) -> None:
    person.git("config", "rerere.enabled", "true")
    for branch in ("a", "b"):
        person.git("checkout", "-q", "-b", branch, "main")
        (person.where / "c").write_text(f"{branch}\n")
        person.git("add", "c")
        person.git("commit", "-qm", branch)
    person.git("merge", "a")
    (person.where / "c").write_text("c\n")
    person.git("add", "c")
    person.git("commit", "-qm", "m")
    secret = person.home / "id_rsa"
    secret.write_text("CANARY\n")
    walls = house.walls()

    house.run(f"printf '%s.7\\t{secret}\\0' $(ls .git/rr-cache) > .git/n; mv .git/n .git/MERGE_RR", walls)
    person.git("commit", "-q", "--allow-empty", "-m", "x")

    assert house.run("grep -r CANARY .git", walls).text == ""


def stashed(person: Person, *texts: str) -> None:
    for text in texts:
        (person.where / "Makefile").write_text(text)
        assert person.git("stash", "push", "-q", "-m", text).returncode == 0


TAKEN = {
    "an entry of the stash": "sed -i 1d .git/logs/refs/stash",
    "all of the stash": "git stash clear",
    "the log of the stash": "rm .git/logs/refs/stash",
    "the top of the stash": "git stash drop -q",
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_stash_that_a_command_drops_is_kept(house: House, person: Person, name: str) -> None:
    stashed(person, "one", "two")
    entries = set(person.says("log", "-g", "--format=%H", "refs/stash").split())

    ran = house.run(TAKEN[name])

    left = set(person.says("log", "-g", "--format=%H", "refs/stash").split()) if person.says("stash", "list") else set()
    kept = set(person.says("for-each-ref", "--format=%(objectname)", "refs/forge/was").split())
    assert left | kept == entries, told(ran)
    assert not entries - left or "is kept as refs/forge/was/dropped/" in told(ran)


def test_the_autostash_of_the_person_s_rebase_is_kept(house: House, person: Person) -> None:
    (person.where / "Makefile").write_text("precious\n")
    for branch, text in (("theirs", "theirs"), ("main", "mine")):
        person.git("checkout", "-q", *(["-b"] if branch == "theirs" else []), branch)
        (person.where / "c.txt").write_text(text)
        person.git("add", "c.txt")
        person.git("commit", "-q", "-m", text)
    assert person.git("rebase", "--autostash", "theirs").returncode != 0

    house.run("rm -rf .git/rebase-merge")

    [kept] = person.says("for-each-ref", "--format=%(objectname)", "refs/forge/was/dropped").split()
    assert "precious" in person.says("show", f"{kept}:Makefile")


async def test_a_stash_of_the_person_s_during_a_command_stays(house: House, person: Person) -> None:
    """Both change the list: the person's stays whole, whenever the command's arrives."""
    stashed(person, "one")
    script = (
        "git stash list; sed -i 's/one/evil/' .git/logs/refs/stash; touch ready; until [ -e go ]; do sleep 0.02; done"
    )
    walled = await house.walls().start(Job(argv=("bash", "-c", script)))
    while not (person.where / "ready").exists():
        await asyncio.sleep(0.01)
    await asyncio.to_thread(stashed, person, "two")
    (person.where / "go").touch()
    await walled.child.wait()

    assert [line.rpartition(": ")[2] for line in person.says("stash", "list").splitlines()][:1] == ["two"]
    assert person.says("stash", "list").count("\n") == 1


def test_a_directory_where_a_file_belongs_takes_no_commit_along(house: House, person: Person) -> None:
    spoil = "mkdir -p .git/rebase-merge/x .git/worktrees/y/gitdir .git/sharedindex.x; rmdir .git/refs/tags"
    spoil += "; touch .git/refs/tags"
    walls = house.walls()

    house.run(f"git commit -q --allow-empty -m honest; {spoil}", walls)

    assert person.says("log", "-1", "--format=%s") == "honest"
    assert house.run("git log -1 --format=%s", walls).text == "honest\n"


def test_many_new_empty_files(house: House, person: Person) -> None:
    """More than a command line is to name."""
    script = (
        'e=$(git hash-object -w --stdin < /dev/null); seq 1500 | sed "s|.*|100644 $e 0\\tm&/__init__.py|"'
        " | git update-index --add --index-info; git commit -qm many"
    )
    house.run(script)

    assert person.says("ls-files").count("\n") == 1501


def test_refs_that_stand_in_the_way_of_others(house: House, person: Person) -> None:
    person.git("update-ref", "refs/remotes/origin/main", "HEAD")
    ran = house.run(
        "git rev-parse HEAD > .git/refs/notes; echo ref: refs/remotes/origin/main > .git/refs/remotes/origin/main;"
        " git branch x"
    )

    assert person.git("fsck").returncode == 0 and person.says("rev-parse", "origin/main") == person.says(
        "rev-parse", "x"
    )
    assert "stands in the way of others" in told(ran) and person.git("notes", "add", "-m", "n").returncode == 0


@pytest.mark.parametrize(("count", "arrives"), [(10, True), (11, False)])
def test_more_refs_than_anybody_means_stay_inside(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch, count: int, arrives: bool
) -> None:
    monkeypatch.setattr(refs, "_MOST_MADE", 10)
    make = f'h=$(git rev-parse HEAD); for i in $(seq {count}); do echo "create refs/heads/b$i $h"; done'

    ran = house.run(f"git commit -q --allow-empty -m x; {{ {make}; }} | git update-ref --stdin")

    assert person.says("log", "-1", "--format=%s") == "x"
    assert person.says("branch").count("b") == (count if arrives else 0)
    assert ("they stay inside" in told(ran)) is not arrives


async def test_a_flag_that_arrives_while_a_command_runs_hides_nothing_afterwards(house: House, person: Person) -> None:
    script = (
        "echo good > t.py; git add t.py; git commit -qm t; git update-index --skip-worktree t.py; rm t.py;"
        " until [ -e go ]; do sleep 0.02; done; echo evil > t.py; mkdir -p .git/rebase-merge/x"
    )
    walled = await house.walls().start(Job(argv=("bash", "-c", script)))
    while await asyncio.to_thread(person.says, "log", "-1", "--format=%s") != "t":  # it was carried over
        await asyncio.sleep(0.05)
    (person.where / "go").touch()
    await walled.child.wait()

    assert " M t.py" in person.git("status", "--short").stdout


def test_what_a_failed_push_kept_apart_is_gone(house: House, person: Person) -> None:
    script = (
        "head -c 300000 /dev/urandom > a; head -c 300000 /dev/urandom > b; git add a b; git commit -qm x;"
        " o=$(git rev-parse HEAD:b); f=.git/objects/${o%${o#??}}/${o#??}; chmod u+w $f;"
        " printf xxxxxxxxxxxxxxxx | dd of=$f bs=1 seek=200000 conv=notrunc status=none"  # one byte may be an x already
    )
    ran = house.run(script)

    assert not list(Path(person.where / ".git/objects").glob("tmp_*"))
    assert person.says("log", "-1", "--format=%s") == "second" and person.git("fsck").returncode == 0
    assert any(one.severity is Severity.CRITICAL for one in ran.after.leftovers)


def test_many_empty_directories_are_no_burden(house: House, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.sandbox.git.shadow.MOST_INSIDE", 1000)
    walls = house.walls()
    house.run("git commit -q --allow-empty -m x; mkdir -p .git/refs/heads/d{1..200}", walls)

    assert house.run("ls .git/refs/heads | wc -l; git log -1 --format=%s", walls).text in ("1\nx\n", "1\nsecond\n")
