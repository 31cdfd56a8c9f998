"""Property: on trees with difficult `.gitignore` files both engines find the same lines of the same files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.tables import table

from golem_forge.sandbox.sandbox import Sandbox
from golem_forge.tools.context import ToolContext
from golem_forge.tools.pattern_child import GitIgnoreFile, GlobError, compile_glob
from golem_forge.toolsets.search import create_grep_files_tool

NAMES = (
    *("a", "b", "c", "ab", "a.log", "b.txt", "foo", "Foo", "x y", "build", ".hid"),
    *("#c", "!n", "[z]", "{q}", "a-b", "é", "d\\e"),
)
PATTERNS = (
    *("a", "*.log", "!a.log", "/a", "a/", "/b/", "**/a", "a/**", "a/**/b", "**/b/c", "!b", "*", "!*/", "?", "[ab]"),
    *("[!a]", "a?", "foo/", "FOO", "/foo/*", "!/foo/a", "#c", "\\#c", "\\!n", "x\\ y", "x y", "build/ ", "{a,b}"),
    *("*.{log,txt}", "a*", "**", "a/b", "/**/c", "c/", "[^a]", "[a-c]", "[", "a[", "\\", "{a", "[]a]", "é", "??"),
    *("**foo", "foo**", "a**b", "***", "a/*/c", "!a/b/", "  a", ".hid", ".*", "!.*", "/", "//a", "a//b", "\\a"),
    *("\\[z\\]", "[[]z]", "d\\\\e", "!", "/*", "/**", "!**/c", "b/**/"),
)
INCLUDES = ("", "", "*.log", "a/**", "**/b*", "!*.txt", "{a,b}*")


def grow(directory: Path, dice: random.Random, depth: int = 0) -> None:
    for name in dice.sample(NAMES, dice.randint(1, 6)):
        if depth < 3 and dice.random() < 0.45:
            (directory / name).mkdir()
            grow(directory / name, dice, depth + 1)
        else:
            (directory / name).write_text("needle\nhay\nneedle two\n")
    if dice.random() < (0.3 if depth else 0.9):
        lines = "\n".join(dice.choices(PATTERNS, k=dice.randint(1, 5)))
        (directory / ".gitignore").write_text(lines + dice.choice(("", "\n", "\r\n")))


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 60))])
async def test_t44_both_engines_find_the_same(seed: int, workspace: Path, sandbox: Sandbox, bare_walls: Any) -> None:
    dice = random.Random(seed)
    grow(workspace, dice)
    directories = [str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.is_dir()]
    for path in (".", *dice.choices(directories or ["."], k=2)):
        args: dict[str, Any] = {"pattern": "needle", "path": path, "include": dice.choice(INCLUDES), "limit": 2000}
        answers = [
            await create_grep_files_tool().execute({**args, "mode": "lines"}, ToolContext(sandbox=sandbox, walls=walls))
            for walls in (bare_walls(), None)
        ]
        assert [answer.value["engine"] for answer in answers] == ["rg", "python"]
        assert answers[0].text == answers[1].text, (path, args)


@table(
    ("text", "left_out", "kept"),
    [
        ("*.log", ["a.log", "d/a.log"], ["a.txt"]),
        ("/a.log", ["a.log"], ["d/a.log"]),
        ("build/", ["build|"], ["build"]),
        ("*.log\n!keep.log", ["a.log"], ["keep.log", "d/keep.log"]),
        ("a/**/z", ["a/z", "a/b/c/z"], ["z", "b/a/z"]),
        ("d/**", ["d/x", "d/x/y"], ["d"]),
        ("# comment\n\n\\#real", ["#real"], ["# comment", "real"]),
        ("a b \nc\\ ", ["a b", "c "], ["a b ", "c"]),
        ("[!a].txt", ["b.txt"], ["a.txt", "/.txt"]),
    ],
)
def test_what_a_gitignore_leaves_out(text: str, left_out: list[str], kept: list[str]) -> None:
    ignores = GitIgnoreFile(text, 0)
    for path, expected in [*((path, True) for path in left_out), *((path, False) for path in kept)]:
        parts = tuple(path.removesuffix("|").split("/"))
        assert ignores.ignores(parts, path.endswith("|")) is expected, path


def test_the_nearest_gitignore_decides() -> None:
    below = GitIgnoreFile("!a.log", 1, GitIgnoreFile("*.log", 0))
    assert not below.ignores(("sub", "a.log"), False)
    assert below.ignores(("sub", "b.log"), False)


@table("glob", ["{a", "a}", "a\\", "[b-a]"])
def test_globs_that_cannot_be(glob: str) -> None:
    with pytest.raises(GlobError):
        compile_glob(glob)
