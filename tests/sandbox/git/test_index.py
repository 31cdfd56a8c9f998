"""What a command does to git's index arrives in the person's, entry by entry; what would hide something does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.walls.house import House, Person, Ran, git

from golem_forge.core.calls import Severity
from golem_forge.sandbox.git import transport
from golem_forge.sandbox.git.index import compare_entries, read_entries
from golem_forge.sandbox.git.shadow import GitShadow
from golem_forge.sandbox.git.sides import SyncPhase

NULL, EMPTY = "0" * 40, "e" * 40


def told(ran: Ran) -> str:
    return "\n".join(one.text for one in ran.after.leftovers if one.kind == "git_index")


def listed(where: Path) -> str:
    return git(where, "ls-files", "--stage")


CHANGES = {
    "new": "echo 1 > new; ln -s Makefile link; git add .",
    "changed": "echo 2 > Makefile; git add Makefile",
    "removed": "git rm -q Makefile",
    "renamed": "git mv Makefile Other",
    "made executable": "git update-index --chmod=+x Makefile",
    "a folder in the place of a file": "git rm -q Makefile; mkdir Makefile; echo 1 > Makefile/x; git add .",
    "odd names of empty files": "touch $'a\\nb' $'\\xff' ' ' '*'; git add .",
    "a submodule's commit": "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; mkdir sub",
    "many": "for i in $(seq 400); do echo $i > f$i; done; git add .",
    "a conflict": "git checkout -q -b b HEAD~1; echo b > c; git add c; git commit -qm b; git checkout -q main;"
    " echo m > c; git add c; git commit -qm m; git merge -q b; true",
    "one side of a conflict": "for i in 1 2 3; do echo $i; done | while read i; do"
    ' echo "100644 $(echo $i | git hash-object -w --stdin) $i	c"; done | git update-index --index-info',
}


OF_VERSION_4 = ("renamed", "odd names of empty files", "many", "a conflict")
"""Its paths are shortened by those before them."""


@pytest.mark.parametrize(
    ("version", "large", "changes"),
    [("2", 0, tuple(CHANGES)), ("4", 1 << 20, OF_VERSION_4)],
    ids=["large", "version 4"],
)
def test_entries_arrive(
    house: House,
    person: Person,
    version: str,
    large: int,
    changes: Sequence[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Git reads a large index while it lists the other one."""
    monkeypatch.setattr(transport, "_LARGE_INDEX", large)
    walls = house.walls()
    second = person.says("rev-parse", "HEAD")
    for name in changes:
        script = CHANGES[name]
        person.git("checkout", "-q", "-f", "-B", "main", second)
        person.git("clean", "-q", "-f", "-d", "-x")
        person.git("branch", "-q", "-D", "b")
        person.git("update-index", "--index-version", version)

        ran = house.run(f"git status --short; echo; {script}; git ls-files --stage", walls)

        before, _, after = ran.text.partition("\n")
        assert before == "" and after.endswith(f"{listed(person.where)}\n"), name
        assert house.run("git status --short", walls).text == person.git("status", "--short").stdout, name
        assert person.git("fsck").returncode == 0 and not list(person.where.glob(".git/.forge-*")), name


@pytest.mark.parametrize("script", ["git add new", "git add new; git commit -qm new"], ids=["add", "commit"])
def test_one_start_of_walls_lists_the_index_and_packs(
    house: House, person: Person, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = transport.Transport._start

    def counted(self: transport.Transport, argv: Sequence[str], **given: Any) -> Any:
        started.append(os.path.basename(argv[0]))
        return start(self, argv, **given)

    monkeypatch.setattr(transport.Transport, "_start", counted)

    house.run(f"echo 1 > new; {script}")

    assert started.count("bwrap") == 1 and "new" in listed(person.where)


def test_a_conflict_that_a_command_resolves(house: House, person: Person) -> None:
    person.stops_in_a_rebase()

    house.run("echo both > c.txt; git add c.txt")

    assert person.says("ls-files", "--unmerged") == ""
    assert person.git("rebase", "--continue").returncode == 0


def test_what_was_only_intended_is_told(house: House, person: Person) -> None:
    ran = house.run("echo 1 > later; touch empty; git add -N later; git add empty")

    assert "git add -N" in told(ran) and "later" in told(ran)
    assert "later" not in listed(person.where) and "empty" in listed(person.where)


def test_a_flag_of_a_command_hides_nothing(house: House, person: Person) -> None:
    ran = house.run(
        "git update-index --skip-worktree Makefile; git update-index --assume-unchanged evil.sh;"
        " echo x | tee -a Makefile evil.sh > /dev/null; git status --short"
    )

    assert ran.text == "" and "Makefile" in told(ran) and "evil.sh" in told(ran)
    assert person.git("status", "--short").stdout == " M Makefile\n M evil.sh\n"


def test_nor_in_a_submodule_and_a_worktree(house: House, person: Person) -> None:
    library = house.root / "library"
    git(house.root, "init", "-q", "-b", "main", "library")
    (library / "f").write_text("1\n")
    git(library, "add", ".")
    git(library, "commit", "-qm", "lib")
    git(person.where, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "sub")
    person.git("commit", "-qm", "sub")
    person.git("worktree", "add", "-q", "-b", "side", str(person.where / "tree"))
    hide = "git update-index --skip-worktree {0}; echo x >> {0}"

    ran = house.run(f"(cd sub; {hide.format('f')}); (cd tree; {hide.format('Makefile')})")

    assert "/workspace/sub/f" in told(ran) and "/workspace/tree/Makefile" in told(ran)
    assert person.git("status", "--short", where=person.where / "sub").stdout == " M f\n"
    assert person.git("status", "--short", where=person.where / "tree").stdout == " M Makefile\n"


def test_a_file_that_the_person_told_git_not_to_look_at(house: House, person: Person) -> None:
    person.git("update-index", "--assume-unchanged", "Makefile")

    assert "Makefile" in told(house.run("echo x >> Makefile"))
    assert told(house.run("echo 1 > other")) == ""
    assert person.git("ls-files", "-v", "Makefile").stdout == "h Makefile\n", "their flag stays"


def test_times_that_anybody_can_set_are_not_believed(house: House, person: Person) -> None:
    """`core.trustctime = false` makes git call a file clean that has the old size and time of writing."""
    for scope in ("--local", "--global"):
        person.git("config", scope, "core.trustctime", "false")
        os.utime(person.where / "Makefile", (10**9, 10**9))
        person.git("status")

        house.run("printf 'all:\\n\\tevil\\n' > Makefile; touch -d @1000000000 Makefile")

        assert person.git("status", "--short").stdout == " M Makefile\n", scope
        person.git("config", scope, "--unset", "core.trustctime")
        person.git("checkout", "-q", "Makefile")


def test_ordinary_work_is_quiet(house: House, person: Person) -> None:
    ran = house.run("echo 1 > a; git add a; git commit -qm a; echo 2 > a; git commit -qam b; git status --short")

    assert told(ran) == "" and [one.severity for one in ran.after.leftovers] == [Severity.NOTE]
    assert person.says("status", "--short") == ""


def test_the_person_s_git_status_is_no_change_of_their_index(house: House, person: Person) -> None:
    """Editors ask all the time, and git then writes its index with other times."""
    walls = house.walls()
    house.run("true", walls)
    os.utime(person.where / "Makefile", (10**9, 10**9))
    person.git("status")

    ran = house.run("echo 1 > a; git add a", walls)

    assert told(ran) == "" and "a" in listed(person.where)


@pytest.mark.parametrize("is_unborn", [False, True], ids=["with an index", "without one"])
def test_what_both_staged_comes_together(house: House, person: Person, is_unborn: bool) -> None:
    """Where both staged the same file, the person's entry stays."""
    walls = house.walls()
    if is_unborn:
        shutil.rmtree(person.where / ".git")
        person.git("init", "-q", "-b", "main", ".")
    script = "echo c > both; echo c > theirs; git add both theirs; echo done; sleep 60"
    with house.another_forge(script) as forge:
        for name in ("mine", "both"):
            (person.where / name).write_text("p\n")
            person.git("add", name)
        forge.kill()

    ran = house.run("git ls-files", walls)

    entries = listed(person.where)
    assert "mine" in entries and "theirs" in entries and "both staged these files" in told(ran)
    assert person.says("show", ":both") == "p" and {"both", "mine", "theirs"} <= {*ran.text.split()}


@pytest.mark.parametrize("waits", ["", "until [ -e .git/carried ]; do sleep 0.05; done"], ids=["short", "long"])
def test_a_sparse_checkout_stays_one(house: House, person: Person, monkeypatch: pytest.MonkeyPatch, waits: str) -> None:
    """However long the command runs: what it did is carried over meanwhile, too."""
    carry = GitShadow.sync

    def tell_when_carried(self: GitShadow, when: SyncPhase, *changed: Any, **more: Any) -> None:
        carry(self, when, *changed, **more)
        if when is SyncPhase.RUNNING and person.says("branch", "--show-current") == "other":
            (Path(self.tree) / "carried").touch()

    monkeypatch.setattr(GitShadow, "sync", tell_when_carried)
    for name in ("x", "y"):
        (person.where / name).mkdir()
        (person.where / name / "f").write_text(name)
    person.git("add", ".")
    person.git("commit", "-q", "-m", "more")
    person.git("checkout", "-q", "-b", "other")
    (person.where / "y/f").write_text("other")
    (person.where / "y/new").write_text("other")
    person.git("add", ".")
    person.git("commit", "-q", "-m", "other")
    person.git("checkout", "-q", "main")
    person.git("sparse-checkout", "set", "--cone", "x")

    ran = house.run(f"git checkout -q other\n{waits}\ngit status --short")

    assert ran.text == "" and told(ran) == ""
    assert person.says("status", "--short") == "" and not (person.where / "y").exists()


def test_only_lines_that_differ_are_taken_apart() -> None:
    lines = [b"H 100644 %040d 0\tf%d\0" % (number, number) for number in range(5)]
    ours = [*lines[1:4], b"S 100644 %040d 0\tf4\0" % 4, b"H 100644 %s 0\tnew\0" % EMPTY.encode()]

    change = compare_entries(b"".join(lines), b"".join(ours), null_id=NULL, empty=EMPTY, expected=lambda path: False)

    assert change.paths == [b"f0", b"new"] and change.hidden == [b"f4"] and change.maybe_intended == [b"new"]
    assert change.objects == {EMPTY} and b"f4" not in b"".join(change.lines)
    assert [one.path for one in read_entries(b"".join(lines))] == [b"f%d" % number for number in range(5)]
