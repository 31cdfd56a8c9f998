"""What else a hostile command tries against its private `.git`, the way back from it, and Forge itself."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from pathlib import Path

import pytest
from tests.deadlines import PATIENCE
from tests.sandbox.walls.house import House, Person, Ran
from tests.tables import table

from golem_forge.core.calls import Severity
from golem_forge.sandbox.git.directory import GitDir, GitLocked
from golem_forge.sandbox.git.rules import sequencer_objection
from golem_forge.sandbox.handles import best_opener
from golem_forge.sandbox.walls.model import Job

from .test_git_attacks import FORGED


def told(ran: Ran, *, severity: Severity = Severity.CRITICAL) -> str:
    return "\n".join(one.text for one in ran.after.leftovers if one.severity is severity)


def test_a_merge_strategy_is_no_program(house: House, person: Person) -> None:
    person.stops_in_a_rebase()
    ran = house.run(
        "mkdir -p build git-merge-; cp evil.sh build/x; echo /../build/x > .git/rebase-merge/strategy; echo c > c.txt;"
        " git add c.txt"
    )
    person.git("rebase", "--continue")

    assert not person.mark.exists()
    assert "strategy names a program" in told(ran)
    assert not (person.where / ".git/rebase-merge/strategy").exists()


def test_options_for_apply_write_no_file(house: House, person: Person) -> None:
    outside = house.root / "bashrc"
    outside.write_text("mine\n")
    ran = house.run(
        "git checkout -q -b b HEAD~1; echo b > c.txt; git add c.txt; git commit -qm b; git checkout -q main;"
        " echo m > c.txt; git add c.txt; git commit -qm m; git rebase -q --apply b;"
        f" printf \" '--build-fake-ancestor={outside}'\" > .git/rebase-apply/apply-opt; echo c > c.txt; git add c.txt"
    )
    person.git("rebase", "--continue")
    person.git("am", "--continue")

    assert outside.read_text() == "mine\n"
    assert "apply-opt names a program, a file" in told(ran)


@table(
    ("name", "content", "good"),
    [
        ("strategy", b"ort\n", True),
        ("strategy", b"x", False),
        ("strategy_opts", b" '--ours'", True),
        ("strategy_opts", b" '--$(x)'", False),
        ("opts", b"[options]\n\tedit = true\n\tstrategy = ort\n", True),
        ("opts", b"[options]\n\tstrategy = /../x\n", False),
        ("opts", b"[core]\n\tfsmonitor = x\n", False),
        ("apply-opt", b" '--whitespace=fix' '-p1'", True),
        ("apply-opt", b" '--directory=../x'", False),
        ("git-rebase-todo", b"pick 1 x\nbreak\n", True),
        ("git-rebase-todo", b"  x make\n", False),
        ("git-rebase-todo", b"pick 1 x\nupdate-ref refs/heads/x\n", True),
        ("git-rebase-todo", b"update-ref refs/replace/x\n", False),
        ("git-rebase-todo", b"u refs/tags/x\n", False),
        ("update-refs", b"refs/heads/x\n%s\n%s\n" % (b"a" * 40, b"b" * 40), True),
        ("update-refs", b"refs/replace/%s\n%s\n%s\n" % (b"a" * 40, b"a" * 40, b"b" * 40), False),
        ("head-name", b"refs/heads/main\n", True),
        ("head-name", b"detached HEAD\n", True),
        ("head-name", b"refs/replace/%s\n" % (b"a" * 40), False),
        ("0001", b"From: x\n", True),
        ("new-of-tomorrow", b"", False),
        ("msgnum", None, False),
    ],
)
def test_what_a_stopped_operation_may_hold(name: str, content: bytes | None, good: bool) -> None:
    assert (sequencer_objection(name, content) == "") is good


def test_a_rebase_with_commands_that_has_finished_is_no_news(house: House, person: Person) -> None:
    ran = house.run("git rebase -q -x 'sleep 0.2' HEAD~1 && git log -1 --format=%s")

    assert ran.text.endswith("second\n"), ran.text
    assert not [one for one in ran.after.leftovers if one.kind == "git_sequencer"]


def test_an_attribute_of_an_earlier_command_hides_nothing(house: House, person: Person) -> None:
    (person.where / "forge_index.py").write_text(FORGED)
    walls = house.walls()
    house.run("echo 'Makefile ident' > .gitattributes; git add .gitattributes; git commit -qm a", walls)

    house.run(
        "printf 'all:\\n\\t./evil.sh\\n' > Makefile; touch -d '2001-01-01' Makefile; python3 forge_index.py", walls
    )

    assert "M Makefile" in person.says("status", "--short")


POISON = {
    "a NUL in a name": 'printf "$(git rev-parse HEAD) refs/heads/a\\0b\\n" >> .git/packed-refs',
    "refs as a file": "rm -rf .git/refs; touch .git/refs",
    "a ref in a ref": 'echo "$(git rev-parse HEAD) refs/heads/main/x" >> .git/packed-refs',
    "a long name": 'echo "$(git rev-parse HEAD) refs/heads/$(printf %0300d 1)" >> .git/packed-refs',
    "a deep directory": "rm .git/HEAD; mkdir -p .git/HEAD/$(printf 'x/%.0s' $(seq 90)); touch .git/HEAD/$(printf"
    " 'x/%.0s' $(seq 90))f",
    "locks that are directories": "mkdir .git/index.lock .git/HEAD.lock .git/shallow.lock",
    "no rights": "chmod 000 .git/refs .git/logs .git; true",
}


@pytest.mark.parametrize("name", POISON)
def test_no_command_keeps_the_next_one_from_running(house: House, person: Person, name: str) -> None:
    """And what it hid beside is judged all the same."""
    walls = house.walls()
    house.run(f"git init -q n; git -C n config core.fsmonitor $PWD/evil.sh; {POISON[name]}", walls)
    assert not (person.where / "n/.git").exists(), "the repository in a folder was not judged"

    person.git("commit", "-q", "--allow-empty", "-m", "by the person")
    again = house.run("git log -1 --format=%s", walls)

    assert again.text == "by the person\n"
    assert person.says("log", "--format=%s", "main").startswith("by the person\nsecond\nfirst")
    person.git("status", where=person.where / "n")
    assert not person.mark.exists()


def test_a_hundred_thousand_files_do_not_either(house: House, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.sandbox.git.shadow.MOST_INSIDE", 200)
    walls = house.walls()
    house.run("mkdir .git/logs/j; cd .git/logs/j; touch $(seq 300)", walls)

    assert house.run("git log -1 --format=%s", walls).text == "second\n"


def test_many_deleted_refs_are_kept(house: House, person: Person) -> None:
    for number in range(12):
        person.git("branch", f"b{number}")

    ran = house.run("git branch | grep b | xargs git branch -q -D")

    kept = person.says("for-each-ref", "--format=%(refname)", "refs/forge/was").split()
    assert len(kept) == 12 and "refs/forge/was/heads/b3" in kept
    assert "are kept as refs/forge/was" in told(ran, severity=Severity.WARNING)


def test_what_the_person_did_while_it_was_written_is_not_overwritten(house: House, person: Person) -> None:
    git_dir = GitDir(os.open(person.where, os.O_PATH), best_opener(), (".git",))
    old = git_dir.ref("refs/heads/main")
    assert old is not None
    person.git("commit", "-q", "--allow-empty", "-m", "by the person")

    with pytest.raises(GitLocked):
        git_dir.set_ref("refs/heads/main", old, old=old)
    with pytest.raises(GitLocked):
        git_dir.delete_ref("refs/heads/main", old=old)
    stamp = git_dir.stamp("index")
    person.git("rm", "-q", "--cached", "Makefile")
    with pytest.raises(GitLocked):
        git_dir.replace("index", b"x", still=lambda: git_dir.stamp("index") == stamp)

    assert person.says("log", "-1", "--format=%s", "main") == "by the person"
    assert not [path for path in (person.where / ".git").rglob("*") if path.suffix in (".lock", ".tmp")]


def test_a_file_with_a_hole_fills_no_disk(house: House, person: Person) -> None:
    ran = house.run("for i in 1 2 3; do truncate -s 200M .git/logs/x$i; done; truncate -s 200M .git/COMMIT_EDITMSG")

    assert sum(path.stat().st_size for path in (person.where / ".git/logs").rglob("*") if path.is_file()) < 100_000
    assert ran.code == 0


def test_links_in_the_store_of_objects_lead_nowhere(house: House, person: Person) -> None:
    outside = house.root / "outside"
    outside.mkdir()
    walls = house.walls()

    ran = house.run(
        f"for d in 00 01 02 pack; do rm -rf .git/objects/$d; ln -s {outside} .git/objects/$d; done; mv .git/objects x;"
        " git commit -q --allow-empty -m x; mkdir -p .git/objects/info; echo /etc > .git/objects/info/alternates",
        walls,
    )

    assert "alternates: Read-only file system" in ran.text
    assert not list(outside.iterdir()) and not [
        path for path in (person.where / ".git").rglob("*") if path.is_symlink()
    ]
    assert person.says("log", "-1", "--format=%s") == "x" and person.git("fsck").returncode == 0
    assert house.run("git log -1 --format=%s", walls).text == "x\n"


FORGERIES = {
    "a tree": "old=$(git rev-parse HEAD:pkg); git add pkg; new=$(git write-tree --prefix=pkg/); f $new $old",
    "a blob": "old=$(git rev-parse HEAD:pkg/mod.py); new=$(git hash-object -w pkg/mod.py); f $new $old",
    "a commit": "old=$(git rev-parse HEAD); new=$(git rev-parse HEAD~1); git unpack-objects < $(ls .git/forge/objects/"
    "pack/*.pack); f $new $old",
}


@pytest.mark.parametrize("name", FORGERIES)
def test_an_object_with_another_content_stays_inside(house: House, person: Person, name: str) -> None:
    """Under the name of one that the person has: their git goes on reading their own."""
    (person.where / "pkg").mkdir()
    (person.where / "pkg/mod.py").write_text("good = 1\n")
    person.git("add", ".")
    person.git("commit", "-q", "-m", "pkg")
    person.git("repack", "-q", "-a", "-d")
    put = "f() { d=.git/objects/${2%${2#??}}; mkdir -p $d; cp -f .git/objects/${1%${1#??}}/${1#??} $d/${2#??}; };"

    ran = house.run(f"echo 'evil = 1' > pkg/mod.py; {put} {FORGERIES[name]}; git branch forged $old")

    assert person.git("fsck").returncode == 0, ran.text
    assert "pkg/mod.py" in person.git("status", "--short").stdout
    assert person.says("show", "HEAD:pkg/mod.py") == "good = 1"


def test_a_ref_to_what_is_not_what_it_says_is_refused(house: House, person: Person) -> None:
    """A new commit whose object was exchanged after git made it."""
    script = (
        "git commit -q --allow-empty -m good; good=$(git rev-parse HEAD); git commit -q --allow-empty -m evil;"
        " o() { echo .git/objects/${1%${1#??}}/${1#??}; }; rm -f $(o $good); cp $(o $(git rev-parse HEAD)) $(o $good);"
        " echo $good > .git/refs/heads/main"
    )

    ran = house.run(script)

    assert person.says("log", "-1", "--format=%s") == "second" and person.git("fsck").returncode == 0
    assert "Git does not accept what the command left at main" in told(ran)
    assert house.run("git log -1 --format=%s").text == "second\n"


def test_what_is_refused_is_shown_by_the_command_that_is_named(house: House, person: Person) -> None:
    """git-fsck finds fault with a commit that is whole: it stays inside, under another name, which is one word."""
    commit = "tree $(git write-tree)\\nauthor x <x> 1 +0000\\ncommitter broken\\n\\nx\\n"
    ran = house.run(
        f'made=$(printf "{commit}" | git hash-object -t commit -w --literally --stdin); git update-ref HEAD $made;'
        " git update-ref 'refs/heads/x;touch${IFS}y' $made"
    )

    assert person.says("log", "-1", "--format=%s") == "second"
    assert "forge sandbox exec -- git log refs/forge/refused/heads/main" in told(ran)
    assert "forge sandbox exec -- git log 'refs/forge/refused/heads/x;touch${IFS}y'`" in told(ran)
    assert house.run("git log -1 --format=%H refs/forge/refused/heads/main").code == 0


def test_an_old_fault_of_the_person_s_own_stops_nothing(house: House, person: Person) -> None:
    """A `.gitmodules` that git would refuse today is in their history: it comes with every tree."""
    (person.where / ".gitmodules").write_text('[submodule "../../x"]\n\tpath = x\n\turl = ./x\n')
    person.git("add", ".")
    person.git("commit", "-q", "-m", "old")

    ran = house.run("echo 1 > new; git add new; git commit -qm new")

    assert person.says("log", "-1", "--format=%s") == "new", ran.after.leftovers


CACHES = {
    "commit-graph": "git commit-graph write --reachable; echo x > .git/objects/info/commit-graph",
    "multi-pack-index": "git repack -q -a -d; git multi-pack-index write; head -c 300 /dev/urandom >"
    " .git/objects/pack/multi-pack-index",
    "idx": "git commit -q --allow-empty -m y; git repack -q -d; chmod u+w .git/objects/pack/*;"
    " for f in .git/objects/pack/*.idx; do head -c 40 /dev/urandom > $f; done",
    "bitmap": "git repack -q -a -d --write-bitmap-index; chmod u+w .git/objects/pack/*;"
    " for f in .git/objects/pack/*.bitmap; do echo x > $f; done",
    "packed-refs": "echo '# pack-refs with: peeled fully-peeled sorted' > .git/packed-refs",
    "shallow": "git rev-parse HEAD > .git/shallow",
    "grafts": "mkdir -p .git/info; echo $(git rev-parse HEAD) > .git/info/grafts",
    "fsmonitor": "git update-index --fsmonitor; git update-index --fsmonitor-valid Makefile",
    "untracked cache": "git update-index --force-untracked-cache; git status",
}


@pytest.mark.parametrize("name", CACHES)
async def test_no_cache_of_a_command_is_believed(house: House, person: Person, name: str) -> None:
    """Neither while it runs nor afterwards: git says what it said before, and what changed on disk."""
    person.git("repack", "-q", "-a", "-d")
    person.git("commit-graph", "write")
    script = f"{{ {CACHES[name]}; }} >/dev/null 2>&1; echo '\t./evil.sh' >> Makefile; echo done; sleep 60"
    walled = await house.walls().start(Job(argv=("bash", "-c", script)))

    def looks() -> None:
        assert person.says("log", "--format=%s").endswith("second\nfirst")
        assert person.git("status", "--short").stdout == " M Makefile\n"
        assert "evil" in person.git("diff", "HEAD").stdout
        assert person.git("fsck").returncode == 0
        assert person.git("clone", "-q", ".", str(house.root / os.urandom(4).hex())).returncode == 0

    try:
        while b"done" not in walled.child.output.read():
            assert walled.child.ending is None
            await asyncio.sleep(0.01)
        await asyncio.to_thread(looks)
    finally:
        await walled.child.end()
    await asyncio.to_thread(looks)


async def test_a_fifo_in_the_store_is_taken_out(house: House, person: Person) -> None:
    script = "git commit -q --allow-empty -m x; for i in 0 1 2 3; do mkfifo .git/objects/pack/pack-$i.idx; done"
    walled = await house.walls().start(Job(argv=("bash", "-c", script)))
    await walled.child.wait(PATIENCE)

    assert person.says("log", "-1", "--format=%s") == "x"


def test_a_pointer_to_nothing_does_not_break_the_repository(house: House, person: Person) -> None:
    ran = house.run(
        'mkdir s; echo "gitdir: ../.git/modules/none" > s/.git;'
        " git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),s"
    )

    assert person.git("status", "--short").returncode == 0
    assert "half of a submodule" in told(ran)


def test_a_branch_called_after_a_hash_is_a_branch(house: House, person: Person) -> None:
    person.git("config", "branch.feat/sha256-sums.merge", "refs/heads/reftable")

    ran = house.run("touch b; git add b; git commit -qm b")

    assert person.says("status", "--short") == "" and not told(ran)


def test_a_sparse_index_works(house: House, person: Person) -> None:
    for name in ("x", "y"):
        (person.where / name).mkdir()
        (person.where / name / "f").write_text(name)
    person.git("add", ".")
    person.git("commit", "-q", "-m", "more")
    person.git("sparse-checkout", "set", "--cone", "--sparse-index", "x")

    ran = house.run("echo 2 > x/f; git add x/f; git commit -qm two")

    assert person.says("log", "-1", "--format=%s") == "two" and person.says("status", "--short") == "", ran.text


def test_a_split_index_hides_nothing_either(house: House, person: Person) -> None:
    person.git("config", "core.splitIndex", "true")
    person.git("update-index", "--split-index")

    ran = house.run("git update-index --skip-worktree Makefile; echo x >> Makefile; touch b; git add b")

    assert "Makefile" in told(ran, severity=Severity.WARNING)
    assert person.git("status", "--short").stdout == " M Makefile\nA  b\n"


async def test_a_slow_exchange_does_not_keep_the_guard_from_its_look(house: House, person: Person) -> None:
    secret = person.where / ".env"
    secret.write_text("OLD")
    script = "echo begun; while sleep 0.02; do git commit -q --allow-empty -m x; cat .env; done"
    walled = await house.walls().start(Job(argv=("bash", "-c", script)))
    try:
        while b"begun" not in walled.child.output.read():
            await asyncio.sleep(0.01)
        (person.where / "fresh").write_text("CANARY")
        os.replace(person.where / "fresh", secret)
        ending = await walled.child.wait(PATIENCE)
    finally:
        await walled.child.end()

    assert ending is not None and ending.code == "WALLS_CHANGED"


def test_locks_of_a_forge_that_was_killed_go_with_the_next_command(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("golem_forge.sandbox.git.directory._STALE_NS", 0)
    heads = person.where / ".git/refs/heads"
    (heads / ".forge-0123456789abcdef.tmp").write_text("x")
    edited = person.where / ".git/.forge-0123456789abcdef.tmp.lock"
    edited.write_text("of git, which another Forge has edit an index")
    os.link(heads / ".forge-0123456789abcdef.tmp", heads / "main.lock")
    (heads / "other.lock").write_text("of somebody else")

    house.run("true")

    assert sorted(os.listdir(heads)) == ["main", "other.lock"] and edited.exists()

    monkeypatch.setattr("golem_forge.sandbox.git.directory._EDITED_NS", 0)
    house.run("true")

    assert not edited.exists()


def test_what_a_killed_forge_did_not_look_at_is_judged_with_the_next_command(house: House, person: Person) -> None:
    script = "git init -q n; git -C n config core.fsmonitor $PWD/evil.sh; touch .pdbrc; echo done; sleep 60"
    with house.another_forge(script) as forge:
        forge.kill()
    assert (person.where / "n/.git").is_dir()

    ran = house.run("true")

    assert not (person.where / "n/.git").exists() and "core.fsmonitor" in told(ran)
    assert ".pdbrc" in told(ran, severity=Severity.WARNING)
    assert not house.run("true").after.leftovers


async def test_what_is_only_on_its_way_is_not_carried_over(house: House, person: Person) -> None:
    """A command takes a branch away and puts it back: to the person it was always there."""
    person.git("branch", "other")
    script = (
        "git branch -q -D other; echo gone; read -t 0.5 x < <(sleep 9);"
        " git branch other; git commit -q --allow-empty -m x"
    )
    walled = await house.walls().start(Job(argv=("bash", "-c", script)))
    seen = []
    while walled.child.ending is None:
        seen.append(await asyncio.to_thread(person.says, "rev-parse", "other"))
        await asyncio.sleep(0.05)

    assert b"gone" in walled.child.output.read() and set(seen) == {person.says("rev-parse", "other")}


def test_the_branch_that_the_person_is_on_cannot_be_deleted(house: House, person: Person) -> None:
    for more in ("", ".git/HEAD"):
        ran = house.run(f"rm -f .git/refs/heads/main .git/packed-refs {more}")

        assert person.says("log", "--format=%s") == "second\nfirst"
        assert "the branch that you are on; it was put back" in told(ran)
    assert house.run("git log -1 --format=%s").text == "second\n"


def test_what_was_left_for_later_arrives_at_the_end(house: House, person: Person) -> None:
    person.git("branch", "other")

    house.run("git branch -q -D other; git rebase -q -f HEAD~1; sleep 0.4")

    assert person.says("branch", "--format=%(refname:short)") == "main"


def test_a_branch_that_the_command_left_can_be_deleted(house: House, person: Person) -> None:
    """The usual end of a piece of work: back to another branch, and the old one goes."""
    person.git("branch", "other")

    ran = house.run("git switch -q other; git branch -q -D main")

    assert person.says("branch", "--format=%(refname:short)") == "other" and not told(ran)
    assert person.says("symbolic-ref", "HEAD") == "refs/heads/other" and person.says("status", "--short") == ""


def test_many_refs_that_are_only_on_their_way_are_not_told_of(house: House, person: Person) -> None:
    for number in range(12):
        person.git("branch", f"b{number}")

    ran = house.run(
        "git branch | grep b | xargs git branch -q -D; sleep 0.4; for i in $(seq 0 11); do git branch b$i; done"
    )

    assert person.says("for-each-ref", "refs/forge/was") == "" and not ran.after.leftovers


def test_a_store_of_objects_is_listed_as_it_is_now(tmp_path: Path) -> None:
    root = os.open(tmp_path, os.O_PATH)
    store = GitDir(root, best_opener(), ())
    assert list(store.objects()) == []
    for change in ("ab/one", "pack/deep/two", "ab/three", "pack/four", "cd/five"):
        time.sleep(0.03)  # what was listed before is settled: it is believed as long as its directory did not change
        (tmp_path / change).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / change).write_bytes(b"x")
        assert sorted(path for path, _ in store.objects()) == sorted(path for path, _ in store.files(""))
    time.sleep(0.03)
    list(store.objects())
    (tmp_path / "ab/one").unlink()
    (tmp_path / "ab/one").symlink_to("/etc")
    assert [path for path, info in store.objects() if stat.S_ISLNK(info.st_mode)] == ["ab/one"]
    os.close(root)
