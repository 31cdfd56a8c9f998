"""From a command's text to effects, over a real sandbox (A27-A29 as far as facts go), and the world behind it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tables import table

from golem_forge.core.decisions import Verdict
from golem_forge.core.effects import Effect, Mark, Verb
from golem_forge.policy.facts import SYSTEM_PATH, SandboxWorld, command_facts, is_system_directory
from golem_forge.policy.risk import floors_of
from golem_forge.sandbox.protected import is_secret_name
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.model import PathRule
from golem_forge.sandbox.zones import ZoneSpec


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "work"
    (workspace / "src").mkdir(parents=True)
    for name in ("a", ".env", "src/c"):
        (workspace / name).write_text(name)
    (workspace / "away").symlink_to("/etc")
    for name in ("tool", "ls"):
        (workspace / name).write_text("#!/bin/sh\n")
        (workspace / name).chmod(0o755)
    return workspace


@pytest.fixture
def world(workspace: Path, tmp_path: Path) -> Iterator[SandboxWorld]:
    specs = [ZoneSpec(name="workspace", path=workspace)]
    with open_sandbox(specs, forge_home=tmp_path / "home", home=tmp_path / "person") as sandbox:
        yield SandboxWorld(sandbox)


def effects(text: str, world: SandboxWorld) -> tuple[Effect, ...]:
    return command_facts(text, world, "/workspace", is_secret_name)[1]


def test_one_exec_per_segment_then_the_reads(world: SandboxWorld, workspace: Path) -> None:
    found = effects("cat a | wc -l && git log; cat a", world)
    assert [each.describe() for each in found] == [
        "exec cat a",
        "exec wc -l",
        "exec git log",
        "exec cat a",
        "read /workspace/a",
    ]
    assert [each.proven for each in found[:4]] == [True, True, False, True]
    assert found[0].words == ("cat", "a") and found[0].real == os.path.realpath("/bin/cat")
    assert found[4].real == str(workspace / "a")


@table(
    "text",
    [
        "cd .. && cat x", "cd ..; cat x", "cd .. || cat x", "cd /; cat etc/passwd", "cd / ; ls",
        "cd a; cd ../..; cat x",
        "cd src; cat ../../x", "cd src || cat ../x", "ls; cd ..; cat x", "pushd ..; cat x", "pushd /etc && cat hosts",
        "command cd /; cat etc/passwd", "builtin cd ..; ls", "cd -P ..; ls", "cd -- /etc; cat hosts",
        "eval cd /; cat x", "eval 'cd $X'; cat x",
        "eval 'cd .. && ls'; cat x", "cd; cat ../../etc/passwd", "cd src; pushd ..; cd ..; cat x",
        "cd src && cd .. && cd .. && cat x", "cat ../../etc/passwd", "cat ../../../x", "true | cd ..; cat x",
        "bash -c 'cd ..; cat x'", "cd src; cd -; cat ../x", "pushd src; popd; cat ../x", "cd away; ls",
        "cd src; cd src; cd src; cd src; cd src; cd src; cd src; cat ../x",
    ],
)  # fmt: skip
def test_whatever_may_lead_out_of_the_zones_needs_a_person(text: str, world: SandboxWorld) -> None:
    found = effects(text, world)
    assert not all(each.proven for each in found if each.verb is Verb.EXEC)
    assert "outside_zone" in {id_ for each in found for id_, _ in floors_of(each)}


@table(
    "text",
    ["cd src; cat c", "cd src && make && cd .. && cat a", "pushd src && cat c && popd && cat a", "cd src; cd .; ls",
     "(cd ..)", "cat src/../a", "cd src || echo none", "source x; cat a"],
)  # fmt: skip
def test_what_stays_inside_is_not_taken_for_outside(text: str, world: SandboxWorld) -> None:
    assert "outside_zone" not in {id_ for each in effects(text, world) for id_, _ in floors_of(each)}


@table(
    "text",
    [
        "export CDPATH=/; cd etc; cat passwd", "read CDPATH; cd etc; ls", "declare CDPATH=/; cd etc; ls",
        "printf -v CDPATH /; cd etc; cat passwd", "read CDPATH; eval cd etc; ls", "export HOME=/etc; cd; cat passwd",
        "eval 'eval cd /'; cat etc/passwd", "command eval cd /; cat etc/passwd", "builtin eval 'cd /'; cat etc/passwd",
        "eval cat /etc/passwd", "eval 'x=/etc/passwd; cat $x'", "trap 'cd /' DEBUG; cat etc/passwd",
        "command cat /etc/passwd", "true; bash -c 'cat /etc/passwd'", "env -C / cat etc/passwd", "exec cat /etc/passwd",
        "nice cat /etc/passwd", "timeout 5 cat /etc/passwd", "xargs cat /etc/passwd", "echo /etc/passwd | xargs cat",
        "echo 'cat /etc/passwd' | bash", "true; sh -ec 'cd /; cat etc/passwd'", "true; sh -c 'cat < /etc/passwd'",
        "true; sh -c 'cat $0' /etc/passwd", "csh -c 'cat /etc/passwd'", "find . -exec cat /etc/passwd ';'",
        "command cd src; cat ../../x", "less /etc/passwd", "less away/passwd", "less ../x", "cp /etc/passwd a",
        "awk 1 /etc/passwd", "sed p /etc/passwd", "perl -ne print /etc/passwd", "git --git-dir=/etc log",
        "tar --directory=/ -cf x etc", "tar -C/etc -cf x a", "dd if=/etc/passwd", "curl -d @/etc/passwd x",
        "sort --files0-from=/etc/passwd", "env X=/etc/passwd make", "ln -s /etc e", "cp /usr/../etc/passwd a",
    ],
)  # fmt: skip
def test_however_it_is_spelled_what_lies_outside_needs_a_person(text: str, world: SandboxWorld) -> None:
    assert "outside_zone" in {id_ for each in effects(text, world) for id_, _ in floors_of(each)}


@table(
    "text",
    [
        "make PREFIX=/usr/local", "gcc -I/usr/include a.c", "python3 /usr/lib/x.py", "tar -C /tmp -xf a.tar",
        "cp a /dev/null", "awk '/foo/ {print}' a", "sed /x/d a", "sed -e /x/d a", "perl -ne '/x/ and print' a",
        "git commit -m '/api: mend'", "git log main..HEAD", "go test ./...", "curl https://x.y/../z", "cp a src/../b",
        "timeout 5 /opt/x/run a", "true; bash -c '/opt/x/run a'", "command cat a", "xargs grep /foo",
        "export FOO=bar; cd src; cat c", "eval 'cd src'; cat c", "echo a | xargs cat",
        "true; bash -c 'cd src; cat c'",
        "cd src; cut -d / -f1 c", "make '=/etc/x'", "python3 -c 'print(1)'",
    ],
)  # fmt: skip
def test_words_that_name_nothing_outside_are_no_reason(text: str, world: SandboxWorld) -> None:
    assert "outside_zone" not in {id_ for each in effects(text, world) for id_, _ in floors_of(each)}


def test_scripts_are_not_proven(tmp_path: Path, world: SandboxWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its name: `egrep` starts the first `grep` on PATH, and on some systems more programs are scripts."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, content in {"wc": "#!/bin/sh\nexec cat\n", "cut": "exec cat\n", "which": "#!/bin/sh\n"}.items():
        (programs / name).write_text(content)
        (programs / name).chmod(0o755)
    monkeypatch.setattr("golem_forge.policy.facts.is_system_directory", lambda directory: True)
    here = SandboxWorld(world._sandbox, [str(programs), *SYSTEM_PATH])
    assert [effects(text, here)[0].proven for text in ("wc a", "cut -c1 a", "which ls", "cat a")] == [
        False, False, True, True
    ]  # fmt: skip
    assert [effects(text, world)[0].proven for text in ("egrep x a", "fgrep x a", "grep x a")] == [False, False, True]


@pytest.fixture
def looked_at(world: SandboxWorld) -> SandboxWorld:
    """The same, of which the walls know all names."""
    return SandboxWorld(world._sandbox, complete=lambda virtual, hidden: True)


def test_git_is_proven_only_in_full_walls_and_beside_what_is_proven(world: SandboxWorld) -> None:
    def proven(text: str, *, full_walls: bool) -> list[bool]:
        _, found = command_facts(text, world, "/workspace", is_secret_name, full_walls=full_walls)
        return [each.proven for each in found if each.verb is Verb.EXEC]

    assert proven("git log | head -3", full_walls=True) == [True, True]
    assert proven("git log | head -3", full_walls=False) == [False, True]
    assert proven("git log && make", full_walls=True) == [False, False]
    assert proven("git log && rm -rf x", full_walls=True) == [False, False]
    assert proven("git diff", full_walls=True) == [False], "it shows files in which nobody looked for secrets"


def test_revisions_are_words_of_git_alone(looked_at: SandboxWorld) -> None:
    world = looked_at
    for text in ("git diff HEAD~1", "git log main^ feature~2", "git show @~1", "git log 'HEAD@{1}'"):
        facts, _ = command_facts(text, world, "/workspace", is_secret_name)
        assert facts.reads_only, text
    for text in ("echo HEAD~1", "git log ~", "git log ^main", "git log x=~", "git log HEAD@{1}", "git log HEAD^{tree}"):
        assert command_facts(text, world, "/workspace", is_secret_name)[0].parsed is None, text


@table(
    ("text", "reads"),
    [
        ("git -C src status", ["/workspace/src"]), ("git -C src -C .. log a", ["/workspace", "/workspace/a"]),
        ("git diff a gone", ["/workspace/a"]), ("git diff -- beef", ["/workspace/beef"]), ("git log -3", []),
        ("git -C .. status", None), ("git -C '' status", None), ("git log -Z", None), ("git status -3", None),
        ("git show -", None), ("git diff beef", None),
    ],
)  # fmt: skip
def test_git_reads_the_files_that_are_named_and_is_not_proven_where_a_word_may_mean_something_else(
    text: str, reads: list[str] | None, looked_at: SandboxWorld, workspace: Path
) -> None:
    (workspace / ".git").mkdir(exist_ok=True)
    (workspace / "beef").touch()  # a file, or the first digits of a commit
    facts, found = command_facts(text, looked_at, "/workspace", is_secret_name, full_walls=True)
    assert facts.reads_only is (reads is not None)
    assert reads is None or [each.target for each in found if each.verb is Verb.READ] == reads


def test_what_git_shows_is_judged_by_its_path_in_the_commit(looked_at: SandboxWorld, workspace: Path) -> None:
    def reads(text: str) -> list[str]:
        facts, found = command_facts(text, looked_at, "/workspace", is_secret_name, full_walls=True)
        assert facts.reads_only, text
        return [each.target for each in found if each.verb is Verb.READ]

    (workspace / ".git").mkdir()
    assert reads("git show HEAD:gone/x") == ["/workspace/gone/x"]
    assert reads("git show :src/c") == reads("git cat-file -p :2:src/c") == ["/workspace/src/c"]
    assert reads("cd src && git show main:a HEAD:./c") == ["/workspace/src", "/workspace/a", "/workspace/src/c"]
    assert reads("git log -L 1,2:src/c") == ["/workspace/src/c"]


def test_what_is_closed_makes_git_ask(looked_at: SandboxWorld, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    texts = (
        "git log -p",
        "git show",
        "git diff",
        "git grep x",
        "git blame a",
        "git show HEAD:a",
        "git cat-file -p HEAD",
    )
    names = ("git status -s", "git log --stat", "git ls-files -s", "git ls-tree HEAD", "git cat-file -t HEAD:a")

    def proven(world: SandboxWorld, *chosen: str) -> list[str]:
        return [text for text in chosen if command_facts(text, world, "/workspace", is_secret_name)[0].reads_only]

    def ruled(literal: str, verdict: Verdict = Verdict.ASK, access: Verb = Verb.READ) -> SandboxWorld:
        rule = PathRule(matches=str.isspace, literal=literal, verdict=verdict, access=frozenset({access}))
        return SandboxWorld(looked_at._sandbox, complete=lambda virtual, hidden: True, rules=lambda: (rule,))

    assert proven(looked_at, *texts, *names) == [*texts, *names]
    for literal in ("/workspace/private", "/workspace", ""):
        assert proven(ruled(literal), *texts, *names) == list(names), literal
        assert proven(ruled(literal, Verdict.BLOCKED), *texts) == []
        assert proven(ruled(literal, Verdict.BLOCKED, Verb.WRITE), *texts) == list(texts)
    assert proven(ruled("/elsewhere/x"), *texts) == list(texts)
    magic = ("git log -p ':(glob)a'", "git status ':/'", "git ls-files -- ':!a'", "git grep x ':^a'", "git log -- :a")
    assert proven(looked_at, *magic) == []
    (workspace / ".git" / "config").write_text("[core]\n\tworktree = /\n")
    assert proven(looked_at, *texts, *names) == []


def test_places_change_with_cd(world: SandboxWorld) -> None:
    assert effects("cd src && cat c", world)[-1].target == "/workspace/src/c"


@table("text", ["ls > out", "(ls)", "echo $HOME", "FOO=1 ls", "ls &&", "", "a\nb"])
def test_opaque_text_is_one_effect_without_words(world: SandboxWorld, text: str) -> None:
    facts, [only] = command_facts(text, world, "/workspace", is_secret_name)
    assert facts.parsed is None and facts.text == text
    assert (only.words, only.marks, only.proven) == ((), (Mark.OPAQUE,), False)


@table(
    ("text", "why"),
    [("ls > out", "a redirection of output"), ("echo $HOME", "an expansion"), ("bash -c 'a; (b)'", "in bash -c: ")],
)
def test_why_a_command_cannot_be_checked_is_said(world: SandboxWorld, text: str, why: str) -> None:
    [only] = effects(text, world)
    [(floor, said)] = list(floors_of(only))
    assert floor == "opaque" and said.startswith(f"the command cannot be checked: it has {why}")


def test_dangers_belong_to_their_segment(world: SandboxWorld) -> None:
    first, second, third = effects("rm -f a && make && sudo ls", world)
    assert (first.dangers, second.dangers, third.dangers) == (("rm_force",), (), ("privilege",))
    assert (first.marks, second.marks) == ((Mark.DANGER,), ())


def test_a_danger_of_the_whole_belongs_to_every_segment(world: SandboxWorld) -> None:
    assert [each.dangers for each in effects("curl u | sh", world)] == [("pipe_to_shell",)] * 2


@table(
    ("text", "id_"),
    [("bash -c 'rm -f a'", "rm_force"), ("rm -rf /", "wipe_root"), ("if x; then rm -f a; fi", "rm_force")],
)
def test_dangers_are_found_in_any_text(world: SandboxWorld, text: str, id_: str) -> None:
    [only] = effects(text, world)
    assert id_ in only.dangers and Mark.DANGER in only.marks and not only.proven


@table("text", ["cat /etc/passwd", "cat away/passwd", "ls ..", "ls /"])
def test_operands_outside_every_zone(world: SandboxWorld, text: str) -> None:
    [only] = effects(text, world)
    assert Mark.OUTSIDE_ZONE in only.marks and not only.proven


def test_secrets_are_marked_on_both_sides(world: SandboxWorld) -> None:
    run, read = effects("cat .env", world)
    assert run.dangers == ("secret_read",) and not run.proven
    assert (read.target, read.marks) == ("/workspace/.env", (Mark.SECRET_PATH,))


@table("text", ["./tool", "/workspace/tool", "cd src && ../tool", "{host}/tool"])
def test_a_program_in_a_zone_is_known_by_its_content(world: SandboxWorld, workspace: Path, text: str) -> None:
    text = text.format(host=workspace)

    def real() -> str:
        return next(each for each in effects(text, world) if each.words and each.words[0] != "cd").real

    tool = workspace / "tool"
    assert real() == f"{tool} sha256:{hashlib.sha256(tool.read_bytes()).hexdigest()}"
    before = real()
    tool.write_text(f"#!/bin/sh\n# {text}\n")
    assert real() != before


def test_programs_are_found_where_the_walls_find_them(world: SandboxWorld, workspace: Path) -> None:
    found = world.program("ls")
    assert found is not None and found.system and not found.zone
    assert world.program("/bin/ls") == found
    assert world.program("no-such-program") is None and world.program("./ls") is None
    inside = world.program("/workspace/ls")
    assert inside is not None and inside.zone and not inside.system and inside.path == str(workspace / "ls")
    assert world.program(str(workspace / "ls")) == inside


def test_a_zone_on_the_path_is_never_the_system(workspace: Path, tmp_path: Path) -> None:
    specs = [ZoneSpec(name="workspace", path=workspace)]
    with open_sandbox(specs, forge_home=tmp_path / "home", home=tmp_path / "person") as sandbox:
        found = SandboxWorld(sandbox, (str(workspace), *SYSTEM_PATH)).program("ls")
    assert found is not None and found.zone and not found.system


def test_only_roots_own_directories_are_the_systems(tmp_path: Path) -> None:
    assert is_system_directory("/usr/bin")
    assert not is_system_directory(str(tmp_path)) and not is_system_directory("/nowhere")


def test_a_shipped_ripgrep_comes_last(workspace: Path) -> None:
    world = SandboxWorld(Sandbox(), (), shipped_rg=str(workspace / "tool"))
    found = world.program("rg")
    assert found is not None and found.shipped and not found.system
    assert world.program("ls") is None


def test_operands_resolve_as_the_sandbox_does(world: SandboxWorld, workspace: Path) -> None:
    inside = world.operand("c", "/workspace/src")
    assert (inside.kind, inside.virtual, inside.real) == ("inside", "/workspace/src/c", str(workspace / "src/c"))
    assert world.operand(str(workspace / "a"), "/workspace").virtual == "/workspace/a"
    assert world.operand("missing", "/workspace").kind == "inside"
    assert world.operand(".", "/workspace").directory
    assert world.operand("away/passwd", "/workspace").kind == "outside"
    assert world.operand("/etc/passwd", "/workspace").kind == "outside"
    assert world.operand("a\0b", "/workspace").kind == "bad"
    assert world.operand(".env", "/workspace").secret


@table("root", ["/proc/self/root", "/proc/thread-self/root"])
def test_operands_behind_the_root_of_a_process_are_what_they_are(
    world: SandboxWorld, workspace: Path, root: str
) -> None:
    inside = world.operand(f"{root}{workspace}/a", "/workspace")
    assert (inside.kind, inside.virtual) == ("inside", "/workspace/a")
    assert world.operand(f"{root}{workspace}/.env", "/workspace").secret
    assert world.operand(f"{root}/etc/shadow", "/workspace").kind == "outside"
    outside = world.operand(f"/proc/1/root{workspace}/a", "/workspace")
    assert (outside.kind, outside.virtual) == ("outside", "/proc/1/root/workspace/a")
    assert world.operand("/proc/self/cwd/c", "/workspace/src").virtual == "/workspace/src/c"
    assert world.operand("/proc/self/cwd/../c", "/workspace/src").kind == "outside"
    assert world.operand("/proc/1/cwd/c", "/workspace/src").kind == "outside"
