"""Nothing of the person's is lost: objects of every size arrive, or stay where they are.

And git works where it did not: in a linked worktree, below the root of a work tree, beside a tracked secret, after a
Forge that was killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.sandbox.walls.house import House, Person, Ran, git

from golem_forge.core.calls import Severity
from golem_forge.sandbox.git import shadow as shadows
from golem_forge.sandbox.git import transport as transports
from golem_forge.sandbox.git.transport import Transport
from golem_forge.sandbox.walls.model import Job
from golem_forge.sandbox.walls.walls import Walls
from golem_forge.sandbox.zones import ZoneSpec

MIB = 1 << 20
SIZES = (1, MIB, MIB + 1)
LARGE = (5_000_000, 100_000_000, 1_000_000_000)
"""The last is a hole."""


def told(ran: Ran, *kinds: str) -> str:
    return "\n".join(one.text for one in ran.after.leftovers if not kinds or one.kind in kinds)


def content(where: Path, name: str, commit: str = "HEAD") -> str:
    """The digest of a file as git has it."""
    shown = subprocess.Popen(["git", "cat-file", "blob", f"{commit}:{name}"], cwd=where, stdout=subprocess.PIPE)
    assert shown.stdout is not None
    made = hashlib.sha256()
    while block := shown.stdout.read(MIB):
        made.update(block)
    assert shown.wait() == 0
    return made.hexdigest()


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def large(path: str, size: int) -> str:
    """What cannot be compressed: an object is as large as its file."""
    return f"head -c {size} /dev/urandom > {path}" if size < 10**9 else f"truncate -s {size} {path}"


@pytest.mark.parametrize(
    "sizes",
    [SIZES, *(pytest.param([size], marks=pytest.mark.long) for size in LARGE)],
    ids=["all", "5 MB", "100 MB", "1 GB"],
)
def test_a_commit_of_any_size_arrives(house: House, person: Person, sizes: Sequence[int]) -> None:
    ran = house.run("; ".join(f"{large(str(size), size)}; git add {size}; git commit -qm {size}" for size in sizes))

    assert person.says("log", f"-{len(sizes)}", "--reverse", "--format=%s").split() == [*map(str, sizes)], told(ran)
    for size in sizes:
        assert content(person.where, str(size)) == digest(person.where / str(size))
    assert person.git("fsck").returncode == 0 and person.says("status", "--short") == ""


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_what_the_person_commits_during_a_command_stays(house: House, person: Person, packed: bool) -> None:
    with house.another_forge("echo done; sleep 60") as forge:
        for size in SIZES:
            (person.where / str(size)).write_bytes(os.urandom(size))
            person.git("add", str(size))
            person.git("commit", "-qm", "mine")
        if packed:
            person.git("gc", "-q", "--prune=now")
        forge.kill()

    ran = house.run("git log -1 --format=%s")

    assert ran.text == "mine\n" and told(ran, "git_objects") == ""
    assert person.git("fsck").returncode == 0
    for size in SIZES:
        assert content(person.where, str(size)) == digest(person.where / str(size))


@pytest.mark.parametrize("size", [MIB + 1, pytest.param(5_000_000, marks=pytest.mark.long)])
def test_stash_and_pop_of_a_large_file(house: House, person: Person, size: int) -> None:
    (person.where / "big.bin").write_bytes(b"")
    person.git("add", "big.bin")
    person.git("commit", "-qm", "empty")
    walls = house.walls()
    house.run(f"{large('big.bin', size)}; sha256sum big.bin > /tmp/x; git stash -q", walls)
    assert person.says("stash", "list", "--format=%gd") == "stash@{0}" and person.git("fsck").returncode == 0

    person.git("stash", "pop", "-q")
    assert (person.where / "big.bin").stat().st_size == size
    before = digest(person.where / "big.bin")
    house.run("git stash -q; git stash pop -q", walls)

    assert digest(person.where / "big.bin") == before and person.says("stash", "list") == ""


def test_many_objects_arrive_as_a_pack(house: House, person: Person) -> None:
    house.run("mkdir d; for i in $(seq 300); do echo $i > d/$i; done; git add d; git commit -qm many; git gc -q")

    assert person.says("ls-tree", "--name-only", "HEAD", "d/").count("\n") == 299
    assert person.git("fsck", "--strict").returncode == 0
    assert list((person.where / ".git/objects/pack").glob("*.pack"))


def test_a_commit_arrives_although_the_list_of_a_large_index_is_not_read(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git lists an index and packs in the same walls; it must not wait for a reader of its list for ever."""
    asked = []

    def unread(transport: transports.Transport, index: bytes | None, parts: object) -> bytes:
        asked.append(len(index or b""))
        raise transports.GitFailed("it is not asked")

    monkeypatch.setattr(transports.Transport, "entries_inside", unread)
    monkeypatch.setattr(transports, "_WITHIN_S", 3600.0)

    house.run(
        "mkdir d; for i in $(seq 2000); do echo > d/a-name-of-thirty-characters-$i; done; git add d; git commit -qm x"
    )

    assert min(asked) > 1 << 17, "more than a pipe holds"
    assert person.says("log", "-1", "--format=%s") == "x"


def test_files_of_git_lfs_are_carried_by_their_digest(house: House, person: Person) -> None:
    """Without git-lfs itself: a store of files that are called after their SHA-256."""
    good, body = hashlib.sha256(b"x" * 2_000_000).hexdigest(), "head -c 2000000 /dev/zero | tr '\\0' x"
    place = f".git/lfs/objects/{good[:2]}/{good[2:4]}"
    forged = f".git/lfs/objects/ab/ab/{'ab' * 32}"

    ran = house.run(
        f"mkdir -p {place} .git/lfs/objects/ab/ab; {body} > {place}/{good}; echo evil > {forged}; git commit -q"
        " --allow-empty -m x"
    )

    assert digest(person.where / place / good) == good
    assert not (person.where / forged).exists() and "another content than its name says" in told(ran, "git_objects")
    assert house.run(f"ls .git/forge/{place.removeprefix('.git/')}").text == f"{good}\n", "the person's own, inside"


def test_a_store_that_grew_is_emptied_once_everything_arrived(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadows, "_MOST_STORED", 10)
    walls = house.walls()
    house.run("for i in $(seq 20); do git commit -q --allow-empty -m $i; done", walls)
    person.git("commit", "-q", "--allow-empty", "-m", "mine")

    ran = house.run("find .git/objects -type f | wc -l; git fsck && git log -2 --format=%s", walls)

    assert ran.text == "1\nmine\n20\n"


def test_a_store_that_grew_is_not_emptied_while_refs_stay_inside(
    house: House, person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git on the host does not accept the branch; the sentence about it says how to look at it."""
    walls = house.walls()
    ran = house.run(
        "git checkout -q -b bad; tree=$(printf '100644 blob %s\\t.git\\n' $(git hash-object -w --stdin < /dev/null) |"
        " git mktree); git update-ref HEAD $(git commit-tree -m inside -p HEAD $tree)",
        walls,
    )
    assert "git log refs/forge/refused/heads/bad" in told(ran)
    monkeypatch.setattr(shadows, "_MOST_STORED", 0)
    for _ in range(2):
        person.git("commit", "-q", "--allow-empty", "-m", "mine")
        ran = house.run("git log -1 --format=%s refs/forge/refused/heads/bad", walls)

    assert ran.text == "inside\n"


def test_what_the_person_pruned_meanwhile_is_no_ground_that_gives_way(house: House, person: Person) -> None:
    """The command builds on a commit that the person takes back and has git forget."""
    script = "until [ -e go ]; do sleep 0.02; done; echo 1 > new; git add new; git commit -qm inside"

    async def both() -> None:
        walled = await house.walls().start(Job(argv=("bash", "-c", script)))
        await asyncio.to_thread(person.git, "reset", "-q", "--hard", "HEAD~1")
        await asyncio.to_thread(person.git, "reflog", "expire", "--expire=now", "--all")
        await asyncio.to_thread(person.git, "gc", "-q", "--prune=now")
        (person.where / "go").touch()
        await walled.child.wait(100)

    asyncio.run(both())

    kept = person.says("for-each-ref", "--format=%(refname)", "refs/forge/heads")
    assert person.says("log", "--format=%s", kept) == "inside\nsecond\nfirst"
    assert person.says("log", "--format=%s") == "first" and person.git("fsck").returncode == 0


def test_what_arrived_is_found_loose_and_packed_and_a_name_that_is_a_path_is_not_opened(
    person: Person, tmp_path: Path
) -> None:
    """A FIFO would be waited for."""
    there = Transport(str(person.where / ".git"), str(tmp_path), str(tmp_path), [])
    os.mkfifo(tmp_path / "fifo")
    head, first = person.says("rev-parse", "HEAD"), person.says("rev-parse", "HEAD~1")
    tree, blob = person.says("rev-parse", "HEAD^{tree}"), person.says("rev-parse", "HEAD:Makefile")
    names = [head, f"{head}~1", f"{first}~1", tree, blob, f"ab{tmp_path}/fifo", "0" * 40]
    expected = {head: (head, "commit"), f"{head}~1": (first, "commit"), tree: (tree, "tree"), blob: (blob, "blob")}

    assert there.found(names) == expected
    person.git("gc", "-q")
    assert there.found(names) == expected


def test_a_commit_that_got_no_ref_of_the_persons_is_not_in_their_commit_graph(house: House, person: Person) -> None:
    """The person's git has the lock of the branch while a commit arrives, which the command takes back afterwards. A
    graph that names it would fail `git fsck` once a repack has dropped it."""
    script = (
        "git commit -q --allow-empty -m one; touch made; until [ -e go ]; do sleep 0.02; done;"
        " git commit -q --amend --allow-empty -m two"
    )

    async def both() -> None:
        walls = house.walls()
        walled = await walls.start(Job(argv=("bash", "-c", script)))
        while not (person.where / "made").exists():
            await asyncio.sleep(0.01)
        lock = person.where / ".git/refs/heads/main.lock"
        lock.touch()
        await walls.carry_git()
        lock.unlink()
        await asyncio.to_thread(person.git, "gc", "-q")
        (person.where / "go").touch()
        await walled.child.wait(100)

    asyncio.run(both())
    person.git("repack", "-q", "-a", "-d")

    assert person.says("log", "-1", "--format=%s") == "two" and person.git("fsck").returncode == 0


def test_a_commit_under_way_when_both_moved_the_branch_is_refused_by_git_and_none_is_lost(
    house: House, person: Person
) -> None:
    """As where two commit in one repository: git says that the branch is elsewhere now."""
    script = (
        "git commit -q --allow-empty -m one; export GIT_EDITOR='sh -c \"touch editing; until [ -e go ]; do sleep 0.02;"
        " done; echo two > \\$0\"'; git commit -q --allow-empty 2> said; echo $? >> said"
    )

    async def both() -> None:
        walls = house.walls()
        walled = await walls.start(Job(argv=("bash", "-c", script)))
        while not (person.where / "editing").exists():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(person.git, "commit", "-q", "--allow-empty", "-m", "mine")
        await walls.carry_git()
        (person.where / "go").touch()
        await walled.child.wait(100)

    asyncio.run(both())

    said = (person.where / "said").read_text()
    assert "cannot lock ref 'HEAD'" in said and said.endswith("\n128\n")
    assert person.says("log", "-1", "--format=%s") == "mine"
    kept = person.says("for-each-ref", "--format=%(subject)", "refs/forge/heads")
    assert kept == "one" and person.git("fsck").returncode == 0


def test_person_and_agent_work_at_once_and_nobody_loses_anything(house: House, person: Person, is_long: bool) -> None:
    """Commits, stashes, gc and repack on both sides. Of two that commit at the same moment, git refuses one."""
    rounds = 200 if is_long else 2
    walls = house.walls()
    made: set[str] = set()
    said: dict[str, str] = {}
    for number in range(rounds):
        over = threading.Event()

        def work(number: int = number, over: threading.Event = over) -> None:
            for turn in range(4):
                (person.where / "mine").write_text(f"{number} {turn}\n")
                person.git("add", "mine")
                person.git("commit", "-qm", f"p{number}-{turn}", "--", "mine")
                made.add(person.says("rev-parse", "HEAD"))
                person.git(*(["gc", "-q"], ["repack", "-q", "-a", "-d"], ["stash", "list"], ["status"])[turn])
                if over.is_set() and turn > 1:
                    break

        thread = threading.Thread(target=work)
        thread.start()
        ran = house.run(
            f"for i in 1 2 3; do echo {number} $i > theirs; git add theirs; git commit -qm c{number}-$i -- theirs &&"
            f" echo c{number}-$i; git branch b{number}-$i; echo s > theirs; git stash -q; git gc -q; git stash pop -q;"
            " done",
            walls,
        )
        over.set()
        thread.join()

        said |= {line: told(ran) for line in ran.text.splitlines() if line.startswith(f"c{number}-")}
        looked = house.run("git fsck", walls)  # by now: while packs of the other store go, git finds them not opened
        assert looked.code == 0, looked.text
        assert person.git("fsck").returncode == 0, number
    reachable = set(person.says("rev-list", "--all").split())
    subjects = set(person.says("log", "--all", "--format=%s").split())
    assert made <= reachable
    assert {subject: what for subject, what in said.items() if subject not in subjects} == {}
    assert len(said) > rounds


# --- a Forge that was killed


def test_a_command_works_at_once_after_a_forge_was_killed_in_the_middle_of_commits(
    house: House, person: Person, is_long: bool
) -> None:
    script = "echo done; while :; do echo $RANDOM > f; git add f; git commit -qm x; done"
    for _ in range(60 if is_long else 1):
        with house.another_forge(script) as forge:
            while person.says("log", "-1", "--format=%s", "main") and not (person.where / "f").exists():
                pass
            forge.kill()

        ran = house.run("git add -A && git commit -q --allow-empty -m after && git fsck", house.walls())

        assert ran.code == 0, ran.text
        assert person.says("log", "-1", "--format=%s") == "after" and person.git("fsck").returncode == 0
        (person.where / "f").unlink()


def test_a_lock_of_a_killed_command_is_gone_before_the_next(house: House, person: Person) -> None:
    with house.another_forge("touch .git/index.lock .git/objects/pack/tmp_pack_x; echo done; sleep 60") as forge:
        forge.kill()

    ran = house.run("git commit -q --allow-empty -m after && ls .git/objects/pack")

    assert (ran.code, ran.text) == (0, "")


# --- where git did not work


def test_a_tracked_secret_is_no_obstacle(house: House, person: Person) -> None:
    (person.where / ".npmrc").write_text("token=CANARY\n")
    (person.where / ".aws").mkdir()
    (person.where / ".aws/credentials").write_text("CANARY\n")
    person.git("add", ".")
    person.git("commit", "-qm", "secrets")
    walls = house.walls()

    ran = house.run(
        "echo 1 > a; git add -A && git commit -qam a && echo 2 > a && git stash -q && git stash pop -q && git status"
        " --short; git checkout -q -b b && cat .npmrc",
        walls,
    )

    assert ran.text.endswith(" M a\ncat: .npmrc: Permission denied\n"), ran.text
    assert told(ran, "git_index") == ""
    assert person.says("show", "HEAD:.npmrc") == "token=CANARY" and person.says("status", "--short") == "M a"
    assert person.git("ls-files", "-v", ".npmrc").stdout == "H .npmrc\n", "no flag on the person's side"


def test_a_commit_in_which_the_secret_differs_is_refused_in_words(house: House, person: Person) -> None:
    for text in ("one", "two"):
        (person.where / ".npmrc").write_text(f"token={text}\n")
        person.git("add", ".")
        person.git("commit", "-qm", text)

    for script in ("git checkout -q HEAD~1", "git reset -q --hard HEAD~1"):
        ran = house.run(script)

        [denial] = ran.after.denials
        assert ran.code and denial["target"] == "/workspace/.npmrc" and denial["why"].startswith("secret")
        assert (person.where / ".npmrc").read_text() == "token=two\n" and person.says("status", "--short") == ""


def test_a_secret_that_comes_later_is_none_either(house: House, person: Person) -> None:
    walls = house.walls()
    house.run("git status", walls)
    house.run("echo token=x > .npmrc; git add .npmrc; git commit -qm npmrc", walls)

    ran = house.run("echo 1 > a; git add -A && git commit -qm a", walls)

    assert ran.code == 0, ran.text
    assert person.says("status", "--short") == ""


@pytest.fixture
def linked(house: House, person: Person) -> Path:
    place = house.root / "linked"
    person.git("worktree", "add", "-q", "-b", "side", str(place))
    return place


def walls_at(house: House, place: Path) -> Walls:
    return house.walls(ZoneSpec(name="workspace", path=place))


def test_a_zone_that_is_a_linked_worktree(house: House, person: Person, linked: Path) -> None:
    walls = walls_at(house, linked)

    ran = house.run(
        "echo 1 > a; git add -A; git commit -qm there; echo 2 > a; git stash -q; git stash pop -q;"
        " git switch -q -c new; git status --short; git log -1 --format=%s",
        walls,
    )

    assert ran.text == " M a\nthere\n", ran.text
    assert git(linked, "status", "--short") == " M a" and git(linked, "branch", "--show-current") == "new"
    assert person.says("branch", "--show-current") == "main" and person.says("status", "--short") == ""
    assert person.git("fsck").returncode == 0


def test_the_other_work_tree_is_not_its_affair(house: House, person: Person, linked: Path) -> None:
    common = person.where / ".git"
    ran = house.run(
        f"echo ref: refs/heads/side > {common}/HEAD; cp {common}/worktrees/linked/index {common}/index; rm -f {common}/"
        f"ORIG_HEAD; touch {common}/hooks/pre-commit; echo x >> {common}/config",
        walls_at(house, linked),
    )

    assert person.says("branch", "--show-current") == "main" and person.says("status", "--short") == ""
    assert "belongs to a work tree outside of the zone" in told(ran)
    assert not (common / "hooks/pre-commit").exists() and ran.text.count("Read-only file system") == 2


@pytest.fixture
def package(person: Person) -> Path:
    """A folder of the repository, beside another one that a branch `dev` changed."""
    for name in ("pkg", "other"):
        (person.where / name).mkdir()
        (person.where / name / "f").write_text(f"{name}\n")
    person.git("add", ".")
    person.git("commit", "-qm", "two folders")
    person.git("checkout", "-q", "-b", "dev")
    (person.where / "other/f").write_text("dev\n")
    (person.where / "other/new").write_text("dev\n")
    person.git("add", ".")
    person.git("commit", "-qm", "dev")
    person.git("checkout", "-q", "main")
    return person.where / "pkg"


def test_a_zone_below_the_root_of_a_work_tree(house: House, person: Person, package: Path) -> None:
    walls = walls_at(house, package)
    assert any("pkg of the git repository 'workspace'" in notice for notice in walls.notices)

    ran = house.run(
        "git status --short; echo 1 > a; git add -A && git commit -qm inside && git log -1 --format=%s; ls .. ../other",
        walls,
    )
    reading = house.run("git status --short; git log -1 --format=%s", walls, reads_only=True)

    assert ran.text.startswith("inside\n") and "other" not in ran.text.replace("../other", "")
    assert reading.text == "inside\n"
    assert person.says("show", "--stat", "--format=", "HEAD").startswith("pkg/a") and person.says("status", "-s") == ""
    assert told(ran, "git_index") == ""


def test_files_outside_of_the_zone_do_not_change(house: House, person: Person, package: Path) -> None:
    before = person.says("rev-parse", "HEAD")
    for script in ("git checkout -q dev", "git merge -q dev", "git reset -q --hard dev"):
        ran = house.run(script, walls_at(house, package))

        assert "outside of the zone" in told(ran), script
        assert person.says("rev-parse", "HEAD") == before and person.says("branch", "--show-current") == "main"
        assert person.says("status", "--short") == "" and (person.where / "other/f").read_text() == "other\n"
        again = house.run("git status --short; git branch --show-current", walls_at(house, package))
        assert again.text == "main\n"


def test_a_clone_that_a_command_makes_borrows_from_the_person_s_store(house: House, person: Person) -> None:
    house.run("git commit -q --allow-empty -m x; git clone -q . copy; git -C copy log --format=%s")

    copy = person.where / "copy"
    assert person.git("log", "--format=%s", where=copy).stdout == "x\nsecond\nfirst\n"
    assert person.git("fsck", where=copy).returncode == 0
    assert house.run("git -C copy log -1 --format=%s").text == "x\n", "the same path holds inside"


# --- what a stopped rebase would do


def test_a_planted_list_of_refs_makes_no_replacement(house: House, person: Person) -> None:
    person.stops_in_a_rebase()
    ran = house.run(
        'h=$(git rev-parse HEAD); printf "refs/replace/$h\\n$h\\n$h\\n" > .git/rebase-merge/update-refs;'
        " echo c > c.txt; git add c.txt"
    )
    person.git("rebase", "--continue")

    assert person.says("for-each-ref", "refs/replace") == ""
    assert "update-refs" in told(ran) and any(one.severity is Severity.CRITICAL for one in ran.after.leftovers)
