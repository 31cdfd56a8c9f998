"""Lines of a `.gitignore` mean here what they mean to git itself, which is asked about each."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_forge.sandbox.git.formats import GitIgnore

PATHS = (
    *(
        "a",
        "b",
        "ab",
        "a.py",
        "b.py",
        "a/b",
        "a/b/c",
        "a/b.py",
        "x/a",
        "x/a.py",
        "x/y/a.py",
        "x/ab/b",
        "axx/b",
        "a/x/b",
    ),
    *("{a,b}", "a b", "a ", "#a", "!a", "[a]", "a]", "a-b", "A", "1", "_", "é", "a\\b", "*", "?", "a\tb", "a\rb"),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ignores")
    subprocess.run(["git", "init", "-q", "."], cwd=made, check=True)
    return made


def by_git(repository: Path, *rules: bytes) -> list[set[str]]:
    """For each `.gitignore`, in a directory of its own, the paths beside it that git leaves out themselves: what is
    above them is not asked about."""
    for number, lines in enumerate(rules):
        (repository / str(number)).mkdir(exist_ok=True)
        (repository / str(number) / ".gitignore").write_bytes(lines)
    asked = [f"{number}/{path}" for number in range(len(rules)) for path in PATHS]
    told = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"],
        cwd=repository,
        input="\0".join(asked).encode(),
        capture_output=True,
        check=False,
    )
    fields = told.stdout.split(b"\0")[:-1]
    rows = [fields[start : start + 4] for start in range(0, len(fields), 4)]
    assert len(rows) == len(asked), told.stderr
    found: list[set[str]] = [set() for _ in rules]
    for _, _, pattern, path in rows:
        number, _, name = path.decode().partition("/")
        if pattern and not pattern.startswith(b"!"):
            found[int(number)].add(name)
    return found


def by_us(rules: bytes) -> set[str]:
    """As git does it: an entry of a directory that is left out is left out with it."""
    ignores = GitIgnore(rules, 0)
    found = set()
    for path in PATHS:
        parts = tuple(path.split("/"))
        above = any(ignores.ignores(parts[:depth], True) for depth in range(1, len(parts)))
        if above or ignores.ignores(parts, False):
            found.add(path)
    return found


LINES = [
    *(
        "a",
        "/a",
        "a/",
        "*.py",
        "!a.py",
        "a/b",
        "/a/b",
        "**/b",
        "a/**",
        "a/**/b",
        "**",
        "**/",
        "*",
        "a**/b",
        "x/a**",
        "***/b",
    ),
    *("{a,b}", "\\{a,b}", "[[:alpha:]]", "[[:digit:]]", "[[:nope:]]", "[[:alpha]", "[!a]", "[^a]", "[a-c].py", "[]-]b"),
    *(
        "a\\ ",
        "a ",
        "a  ",
        "\\#a",
        "\\!a",
        "#a",
        "a\\",
        "a[",
        "[a",
        "a[/]b",
        "a[^/]b",
        "x/[^a]*",
        "?",
        "??",
        "a?b",
        "\\*",
    ),
    *(
        "a\t",
        "a\r",
        "a//b",
        "/",
        "!",
        "//a",
        "a\\/b",
        "**\\/b",
        "x/*",
        "x/*/a.py",
        "[a-",
        "[--a]",
        "[c-a]",
        "[\\]a]",
        "é",
        "[é]",
    ),
    *(
        "**/a/**",
        "**/**/b",
        "a/***",
        "x/**/**/a.py",
        "*b*",
        "a*b*",
        "[[:upper:][:digit:]_]",
        "[a\\-c]",
        "\ufeffa",
        "a\0b",
    ),
]


def test_each_line_means_what_git_says(repository: Path) -> None:
    rules = [each.encode() for line in LINES for each in (line, f"{line}\n", f"{line}\r\n", f"*\n!{line}\n")]
    said = zip(rules, by_git(repository, *rules), strict=True)
    assert [lines for lines, left_out in said if by_us(lines) != left_out] == []


PIECES = st.sampled_from(
    ["a", "b", "*", "**", "?", "/", "[", "]", "!", "^", "-", "\\", "[:alpha:]", ".py", " ", "{", "}"]
)
RULES = st.lists(st.lists(PIECES, min_size=1, max_size=6).map("".join), min_size=1, max_size=3).map("\n".join)


@settings(derandomize=True)
@given(rules=RULES)
def test_any_lines_mean_what_git_says(rules: str, repository: Path) -> None:
    assert [by_us(rules.encode())] == by_git(repository, rules.encode()), rules


def test_no_pattern_takes_longer_than_its_length() -> None:
    """With backtracking one of these lines would take longer than this machine lasts."""
    rules = ("/".join(["**/" + "*a" * 60] * 8) + "b\n").encode()
    assert not GitIgnore(rules, 0).ignores(("a" * 250,) * 15, False)


def test_lines_are_compared_only_while_there_is_time() -> None:
    lines = GitIgnore(b"[!a]x\n" * 2000, 0)
    assert not lines.ignores(("a",), False)
    assert lines.ignores(("a",), False, lambda: True), "what was not compared counts as left out"
    above: GitIgnore | None = None
    for _ in range(100):
        above = GitIgnore(b"[!a]x\n" * 10, 0, above)
    assert above is not None and above.ignores(("a",), False, lambda: True), "the lines of all files count together"


def test_a_line_longer_than_anybody_s_is_not_compared() -> None:
    long = b"/".join([b"**"] * 20_000) + b"/nothing"
    assert GitIgnore(long, 0).ignores(("a",), False)
    assert GitIgnore(b"a\n!" + long, 0).ignores(("a",), False)
