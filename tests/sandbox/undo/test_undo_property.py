"""Whatever commands did in a turn: undo of every turn gives the tree back, byte for byte, with git's view of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.sandbox.undo.tree import Project, git, remove, repository_at, snapshot

NAMES = (
    "a.txt",
    "b.py",
    "src",
    "src/deep",
    "src/deep/er",
    "data",
    ".hidden",
    "new\nline",
    "no-utf8-\udcff",
    "ünïcode",
    "sp ace",
    "[x]*",
)
CONTENTS = (b"", b"one\n", b"two\nlines\n", bytes(range(256)), b"x" * 70_000)
MODES = (0o644, 0o600, 0o755, 0o664)
paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)


def op(name: str, *parts: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *parts)


OPERATIONS = st.one_of(
    op("write", paths, st.sampled_from(CONTENTS), st.sampled_from(MODES)),
    op("append", paths, st.sampled_from(CONTENTS)),
    op("remove", paths),
    op("mkdir", paths),
    op("move", paths, paths),
    op("chmod", paths, st.sampled_from((0o600, 0o755, 0o700, 0o640))),
    op("link", paths, st.sampled_from(("a.txt", "../nowhere", "/etc/hostname"))),
    op("hardlink", paths, paths),
    op(
        "git",
        st.sampled_from(
            (
                "add -A",
                "commit -qam x",
                "commit -q --allow-empty -m y",
                "reset -q --hard",
                "checkout -qf .",
                "stash -q",
                "stash -qu",
                "stash pop -q",
                "checkout -qB other",
                "checkout -q main",
                "rm -rqf --cached .",
                "clean -qfd",
                "commit -q --amend -m z",
                "branch -f spare",
                "branch -D spare",
                "reset -q --hard HEAD~1",
                "tag -f mark",
            )
        ),
    ),
)


def apply(root: Path, operation: tuple[Any, ...]) -> None:
    kind, *rest = operation
    with contextlib.suppress(OSError, ValueError):
        _apply(root, kind, *rest)


def _apply(root: Path, kind: str, *rest: Any) -> None:
    if kind == "git":
        git(root, *rest[0].split(), check=False)
        return
    path = root / rest[0]
    if kind in ("write", "append"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb" if kind == "write" else "ab") as file:
            file.write(rest[1])
        if kind == "write":
            path.chmod(rest[2])
    elif kind == "remove":
        remove(path)
    elif kind == "mkdir":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "move":
        os.rename(path, root / rest[1])
    elif kind == "chmod":
        if not path.is_symlink():
            path.chmod(rest[1])
    elif kind == "link":
        os.symlink(rest[1], path)
    elif kind == "hardlink":
        os.link(path, root / rest[1])


PARTS = 5
"""Of the examples in a repository: each part ends in its time beside other work, too."""
MORE_PARTS = [pytest.param(n, id=f"a repository {n}", marks=pytest.mark.long) for n in range(1, PARTS)]


@pytest.mark.parametrize("part", [pytest.param(0, id="a repository"), *MORE_PARTS, pytest.param(None, id="none")])
def test_undo_of_every_turn_gives_the_tree_back(part: int | None, is_long: bool) -> None:
    @seed(part or 0)
    @settings(
        max_examples=1000 if is_long else 5,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(
        st.lists(OPERATIONS, max_size=6),
        st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), min_size=1, max_size=3),
    )
    def check(before: list[Any], turns: list[list[Any]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _check(Path(folder), before, turns, with_git=part is not None)

    check()


def _check(folder: Path, before: list[Any], turns: list[list[Any]], *, with_git: bool) -> None:
    root = folder / "project"
    if with_git:
        repository_at(root)
    else:
        root.mkdir()
    for operation in before:
        apply(root, operation)
    project = Project(root, folder / "home")
    states = []
    for number, operations in enumerate(turns, 1):
        states.append(_stable(root))
        with project.call(number):
            for operation in operations:
                apply(root, operation)
    final = _stable(root)
    for number in range(len(turns), 0, -1):
        if any(one.turn == number and one.changes for one in project.log.read()):
            left = project.undo(turn=number)
            assert not left, (left, turns)
        assert _stable(root) == states[number - 1], (number, turns)
    redone: Callable[[], Any] = lambda: project.undo(redo=True)  # noqa: E731
    for number in range(1, len(turns) + 1):
        if any(one.turn == number and one.changes for one in project.log.read()):
            assert not redone()
    assert _stable(root) == final


def _stable(root: Path) -> dict[str, object]:
    if (root / ".git").exists():
        git(root, "update-index", "-q", "--refresh", check=False)
    return snapshot(root)
