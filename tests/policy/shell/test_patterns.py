"""Token patterns of rules: strict for what lets run, lenient for what asks or blocks (A14-A17, A20, A26, A31)."""

from __future__ import annotations

from tests.tables import table

from golem_forge.policy.shell.lenient import find_commands
from golem_forge.policy.shell.patterns import (
    Pattern,
    matches_exact,
    matches_lenient,
    matches_lenient_exact,
    matches_strict,
)
from golem_forge.policy.shell.prover import segment_places
from golem_forge.policy.shell.strict import CommandWorld, Opaque, parse_strict


def all_match(
    pattern: Pattern, text: str, world: CommandWorld, *, exact: bool = False, cwd: str = "/workspace"
) -> bool:
    parsed = parse_strict(text)
    if isinstance(parsed, Opaque):
        return False
    places = segment_places(parsed, world, cwd)
    match = matches_exact if exact else matches_strict
    return all(match(pattern, part, world, place) for part, place in zip(parsed.segments, places, strict=True))


@table(
    ("case", "pattern", "text", "expected"),
    [
        ("A14", ("git", "status"), "git status -s", True),
        ("A14", ("git", "status"), "git stash", False),
        ("A14", ("git", "status"), "git -c a=b status", False),
        ("A14", ("git", "status"), "git", False),
        ("A14", ("git", "status"), "gitx status", False),
        ("A15", ("git", ("log", "push")), "git push", True),
        ("A15", ("git", ("log", "push")), "git log --oneline", True),
        ("A15", ("git", ("log", "push")), "git pull", False),
        ("A16", ("cat",), "cat a && curl u", False),
        ("A16", ("cat",), "cat <<E > f", False),
        ("A16", ("cat",), "cat a && cat b", True),
        ("A16", ("cat",), "cat $x", False),
        ("A17", ("npm", ("ci", "test")), "npm ci", True),
        ("A17", ("npm", ("ci", "test")), "npm install", False),
        ("A20", ("ls",), "lsof", False),
        ("A20", ("ls",), "./ls", False),
        ("A20", ("ls",), "/bin/ls", True),
        ("A20", ("ls",), "/usr/bin/ls -a", True),
        ("A20", ("git",), "/opt/x/git", False),
        ("A20", ("git",), "/workspace/git", False),
        ("A20", ("git",), "bin/git", False),
        ("A20", ("ls",), "/bin/cat", False),
        ("", (("ls", "cat"),), "cat a", True),
        ("", ("git", "status"), "bash -lc 'git status'", True),
        ("", ("git", "status"), "zsh -lc 'git status'", False),  # this zsh is not the system's
        ("", (), "ls", False),
    ],
)
def test_strict(case: str, pattern: Pattern, text: str, expected: bool, world: CommandWorld) -> None:
    assert all_match(pattern, text, world) is expected, case


@table(
    ("text", "cwd", "expected"),
    [
        ("/workspace/gradlew build", "/workspace", True),
        ("./gradlew build", "/workspace", True),
        ("../gradlew", "/workspace/src", True),
        ("./gradlew", "/workspace/src", False),
        ("gradlew", "/workspace", False),
        ("/workspace/src/../gradlew", "/workspace", True),
        ("cd src && ../gradlew", "/workspace", False),  # cd itself does not match
        ("/etc/gradlew", "/workspace", False),
    ],
)
def test_a_program_given_as_path(text: str, cwd: str, expected: bool, world: CommandWorld) -> None:
    assert all_match(("/workspace/gradlew",), text, world, cwd=cwd) is expected


def test_a_path_after_an_untracked_cd_never_matches(world: CommandWorld) -> None:
    for text, expected in (
        ("cd src && ../gradlew", True),
        ("ls; cd src && ./gradlew", False),
        ("cd src; ../gradlew", False),
    ):
        parsed = parse_strict(text)
        assert not isinstance(parsed, Opaque)
        places = segment_places(parsed, world, "/workspace")
        assert matches_strict(("/workspace/gradlew",), parsed.segments[-1], world, places[-1]) is expected


def test_a_system_program_given_as_path(world: CommandWorld) -> None:
    assert all_match(("/usr/bin/git", "log"), "/bin/git log", world)
    assert not all_match(("/usr/bin/git", "log"), "git log", world)
    assert not all_match(("/usr/bin/git",), "/usr/bin/ls", world)


def test_a26_exact_is_the_whole_argv(world: CommandWorld) -> None:
    pattern = ("rm", "-rf", "build")
    assert all_match(pattern, "rm -rf build", world, exact=True)
    assert all_match(pattern, "/bin/rm -rf build", world, exact=True) is False  # not a program of this world
    assert not all_match(pattern, "rm -rf dist", world, exact=True)
    assert not all_match(pattern, "rm -rf build x", world, exact=True)
    assert all_match(pattern, "rm -rf build x", world)


@table(
    "text",
    ["/bin/rm a", " rm a", "'rm' a", "r\\m a", "env rm a", "rm\ta", "./rm a", "x; rm a", "$(rm a)", "sudo -u x rm a",
     "bash -c 'rm a'", "rm", "if a; then rm b; fi", "ls | xargs rm", "find . -exec rm {} \\;", "echo rm a | sh"],
)  # fmt: skip
def test_a31_block_rm(text: str) -> None:
    assert matches_lenient(("rm",), find_commands(text))


@table("text", ["rmdir a", "echo rm a", "ls rm", "git rm a", "'rm a'", "grep rm f", "command -v rm", "# rm a"])
def test_a31_does_not_block(text: str) -> None:
    assert not matches_lenient(("rm",), find_commands(text))


@table(
    ("pattern", "text", "expected"),
    [
        (("git", "push"), "git push", True),
        (("git", "push"), "git -C d push", True),
        (("git", "push"), "git --no-pager push", True),
        (("git", "push"), "git -C d -c a=b push origin", True),
        (("git", "push"), "/usr/bin/git push", True),
        (("git", "push"), "git log push", False),
        (("git", "push"), "git log -n push", False),
        (("git", "push"), "git commit -m push", False),
        (("git", ("push", "fetch")), "git fetch", True),
        (("git", "push", "origin"), "git push -u origin", True),
        (("git", "push", "origin"), "git push --tags x origin", True),
        (("git", "push", "origin"), "git push a origin", False),
        (("rm", "-rf"), "rm -rf x", True),
        (("rm", "-rf"), "rm -v -rf x", True),
        (("rm", "-rf"), "rm x", False),
        ((("rm", "mv"),), "mv a b", True),
        (("/bin/rm",), "rm a", True),
        ((), "ls", False),
        (("git", "push"), "git", False),
    ],
)
def test_lenient(pattern: Pattern, text: str, expected: bool) -> None:
    assert matches_lenient(pattern, find_commands(text)) is expected


def test_lenient_exact() -> None:
    assert matches_lenient_exact(("rm", "a"), find_commands("env /bin/rm 'a'"))
    assert not matches_lenient_exact(("rm", "a"), find_commands("rm a b"))
    assert not matches_lenient_exact((), find_commands("rm"))
