"""What the person and a command do to refs at the same time: neither loses a commit or a stash."""

from __future__ import annotations

import asyncio

import pytest
from tests.sandbox.git.test_transport_objects import told
from tests.sandbox.walls.house import House, Person, Ran

from golem_forge.sandbox.walls.model import Job


def meanwhile(house: House, person: Person, script: str, *commands: tuple[str, ...]) -> Ran:
    """A command runs; the person's own git does its part before the script does."""

    async def both() -> Ran:
        gate = "touch begun; until [ -e go ]; do sleep 0.02; done; rm begun go"
        walled = await house.walls().start(Job(argv=("bash", "-c", f"{gate}; {script}")))
        while not (person.where / "begun").exists():
            await asyncio.sleep(0.01)
        for words in commands:
            said = await asyncio.to_thread(person.git, *words)
            assert said.returncode == 0, said.stderr
        (person.where / "go").touch()
        ending = await walled.child.wait(100)
        assert ending is not None
        return Ran(ending, walled.child.output.read().decode(), walled.aftermath())

    return asyncio.run(both())


def kept(person: Person) -> set[tuple[str, ...]]:
    """Refs of Forge's beside the person's, without the ids in their names: what they are of, and their subjects."""
    lines = person.says("for-each-ref", "--format=%(refname)\t%(subject)", "refs/forge").splitlines()
    found = (line.removeprefix("refs/forge/").split("\t") for line in lines)
    return {(name.rpartition("-")[0], subject) for name, subject in found if not name.startswith("base/")}


@pytest.mark.parametrize(("mine", "theirs"), [("f/x", "f"), ("f", "f/x")])
def test_branches_that_cannot_be_beside_each_other(house: House, person: Person, mine: str, theirs: str) -> None:
    ran = meanwhile(
        house,
        person,
        f"git checkout -q -b {theirs}; git commit -q --allow-empty -m theirs",
        ("checkout", "-q", "-b", mine),
        ("commit", "-q", "--allow-empty", "-m", "mine"),
    )

    assert kept(person) == {(f"heads/{theirs}", "theirs")}
    assert f"Git cannot have {theirs} beside what you made" in told(ran)
    assert person.says("log", "-1", "--format=%s %D") == f"mine HEAD -> {mine}"
    later = house.run("git log -1 --format=%s; git for-each-ref --format='%(refname:short)' refs/heads")
    assert later.text.split() == ["mine", mine, "main"] and told(later) == ""


def test_the_branch_that_the_command_is_on_finds_no_room(house: House, person: Person) -> None:
    """The person's HEAD would be on a branch that there cannot be."""
    ran = meanwhile(
        house, person, "git checkout -q -b f; git commit -q --allow-empty -m theirs", ("branch", "-q", "f/x")
    )

    assert kept(person) == {("heads/f", "theirs")}, told(ran)
    assert person.says("log", "-1", "--format=%s %D") == "second HEAD -> main, f/x"


def test_a_branch_takes_the_place_of_one_below_it(house: House, person: Person) -> None:
    person.git("branch", "f/x")

    ran = house.run("git branch -q -D f/x; git checkout -q -b f; git commit -q --allow-empty -m theirs")

    assert person.says("log", "-1", "--format=%s %D") == "theirs HEAD -> f", told(ran)
    assert kept(person) == set()


def test_a_command_on_no_branch_while_the_person_goes_to_another(house: House, person: Person) -> None:
    ran = meanwhile(
        house,
        person,
        "git checkout -q --detach; git commit -q --allow-empty -m theirs",
        ("checkout", "-q", "-b", "other"),
    )

    assert kept(person) == {("HEAD", "theirs")}
    assert "You and the command both changed the stash or HEAD" in told(ran)
    assert person.says("log", "-1", "--format=%s %D") == "second HEAD -> other, main"
    assert told(house.run("git status")) == "" and person.git("fsck").returncode == 0


def test_a_head_on_no_branch_that_names_nothing_stands_in_nobodys_way(house: House, person: Person) -> None:
    meanwhile(house, person, f"echo {'1' * 40} > .git/HEAD", ("checkout", "-q", "-b", "other"))

    ran = house.run("git commit -q --allow-empty -m next; git status")

    assert told(ran).startswith("Git refs of /workspace moved: other"), told(ran)
    assert person.says("log", "-1", "--format=%s %D") == "next HEAD -> other" and kept(person) == set()


def test_both_stash(house: House, person: Person) -> None:
    (person.where / "Makefile").write_text("changed\n")

    ran = meanwhile(
        house,
        person,
        "for i in 1 2 3; do echo $i > f$i; git add f$i; git stash -q -m s$i; done",
        ("stash", "push", "-q", "-m", "mine"),
    )

    assert kept(person) == {("stash", f"On main: s{number}") for number in (1, 2, 3)}, told(ran)
    stashed = person.says("for-each-ref", "--format=%(objectname)", "refs/forge/stash-*").split()
    assert {person.says("ls-tree", "--name-only", one, "f1", "f2", "f3") for one in stashed} == {"f1", "f2", "f3"}
    assert person.says("stash", "list", "--format=%gs") == "On main: mine"
    assert told(house.run("git status")) == "" and person.git("fsck").returncode == 0


def test_a_new_branch_that_git_does_not_accept_is_not_where_the_person_is(house: House, person: Person) -> None:
    """Their git would say `No commits yet`."""
    ran = house.run(
        "git checkout -q -b bad; empty=$(git hash-object -w --stdin < /dev/null);"
        " tree=$(printf '100644 blob %s\\t.git\\n' $empty | git mktree);"
        " git update-ref HEAD $(git commit-tree -m bad -p HEAD $tree)"
    )

    assert "Git does not accept what the command left at bad" in told(ran)
    assert person.says("log", "-1", "--format=%s %D") == "second HEAD -> main"
    assert person.says("status", "--short") == ""


def test_what_was_taken_out_of_the_stash_is_told_once(house: House, person: Person) -> None:
    (person.where / "Makefile").write_text("changed\n")
    person.git("stash", "push", "-q", "-m", "mine")
    walls = house.walls()
    assert "is kept as refs/forge/was/dropped/" in told(house.run("git stash drop -q", walls))

    assert told(house.run("git status", walls)) == ""
    assert person.says("for-each-ref", "--format=%(subject)", "refs/forge/was/dropped") == "On main: mine"


def test_many_new_refs_do_not_hide_what_is_taken_out_of_the_stash(house: House, person: Person) -> None:
    (person.where / "Makefile").write_text("changed\n")
    person.git("stash", "push", "-q", "-m", "mine")

    ran = house.run(
        "git stash drop -q; at=$(git rev-parse HEAD); for i in $(seq 2001); do echo $at refs/heads/b$i; done"
        " >> .git/packed-refs"
    )

    assert "The command made 2,001 refs: they stay inside" in told(ran)
    assert person.says("for-each-ref", "--format=%(subject)", "refs/forge/was/dropped") == "On main: mine"
    assert person.says("branch", "--format=%(refname:short)") == "main"


def test_a_branch_of_too_many_levels_stays_inside_and_is_told(house: House, person: Person) -> None:
    name = "/".join("x" * 30)
    walls = house.walls()

    ran = house.run(f"git checkout -q -b {name}; git commit -q --allow-empty -m deep", walls)

    assert "made refs of too many levels: they stay inside" in told(ran)
    assert person.says("log", "-1", "--format=%s %D") == "second HEAD -> main"
    assert house.run(f"git log -1 --format=%s {name}", walls).text == "deep\n"


def test_a_ref_that_no_file_can_be_is_told_as_that(house: House, person: Person) -> None:
    walls = house.walls()
    ran = house.run(f"echo $(git rev-parse HEAD) refs/heads/{'x' * 252} >> .git/packed-refs", walls)

    assert "a ref with a name that git does not allow" in told(ran) and "lock" not in told(ran)
    assert told(house.run("git status", walls)) == ""
