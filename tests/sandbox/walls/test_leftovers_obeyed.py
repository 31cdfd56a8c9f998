"""Names that other programs obey, under real walls: protected ones stay, the others are told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from golem_forge.core.calls import Leftover, Severity
from golem_forge.sandbox.walls.leftovers import obeyed_leftovers
from golem_forge.sandbox.zones import ZoneSpec

from .house import House

PROTECTED = [
    ".claude/settings.json",
    ".cursor/mcp.json",
    ".codex/config.toml",
    ".gemini/settings.json",
    ".zed/settings.json",
    ".devcontainer/devcontainer.json",
    ".devcontainer.json",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".dir-locals.el",
    "app.code-workspace",
    ".helix/languages.toml",
    "a/b/c/.Claude/settings.json",
    "a/b/c/d/x.code-workspace",
]
OBEYED = [
    ".github/workflows/ci.yml",
    ".gitlab-ci.yml",
    ".pre-commit-config.yaml",
    ".cargo/config.toml",
    ".yarnrc.yml",
    ".mise.toml",
    ".pdbrc",
    ".pylintrc",
    ".mypy.ini",
    ".Rprofile",
    "x.pth",
    "sitecustomize.py",
    "a/usercustomize.py",
    "golem_forge/__init__.py",
]
INSTRUCTIONS = ["AGENTS.md", "CLAUDE.md", "a/GEMINI.md", ".cursorrules", ".github/copilot-instructions.md"]


def _put(directory: Path, name: str) -> None:
    (directory / name).parent.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("old")


def _top(name: str) -> str:
    """The protected name in it."""
    parts = name.split("/")
    length = next(n for n, part in enumerate(parts, 1) if part.startswith(".") or part.endswith("code-workspace"))
    return "/".join(parts[:length])


def _told(house: House, *paths: str) -> list[Leftover]:
    [zone] = house.sandbox().zones.values()
    return list(obeyed_leftovers(zone, [tuple(path.split("/")) for path in paths]))


@pytest.mark.parametrize("names", [PROTECTED[:5], PROTECTED[5:10], PROTECTED[10:]], ids=lambda names: names[0])
def test_what_is_there_stays_as_it_is(house: House, names: list[str]) -> None:
    for name in names:
        _put(house.workspace, name)

    ran = house.run(
        "; ".join(
            f"echo new > {name}; rm -f {name}; mv {_top(name)} away; test -e {name} && cat {name} && echo ' {name}'"
            for name in names
        )
    )

    denied = {(one["kind"], one["target"]) for one in ran.after.denials}
    for name in names:
        assert f"old {name}\n" in ran.text and (house.workspace / name).read_text() == "old"
        assert ("protected", f"/workspace/{name}") in denied


def test_what_was_made_is_told(house: House) -> None:
    ran = house.run(" && ".join(f"mkdir -p $(dirname {name}) && echo new > {name}" for name in PROTECTED))

    assert ran.code == 0 and {f"/workspace/{_top(name)}" for name in PROTECTED} <= set(ran.after.protected_created)


def test_each_can_be_unprotected_by_its_name(house: House) -> None:
    names = (".claude/x", ".vscode/x", "a.code-workspace")
    for name in names:
        _put(house.workspace, name)
    zone = ZoneSpec(name="workspace", path=house.workspace, unprotect=(".claude/", ".vscode/", "*.code-workspace"))

    ran = house.run(" && ".join(f"echo new > {name}" for name in names), house.walls(zone))

    assert ran.code == 0, ran.text


def test_npm_settings_are_masked_and_told_if_made(house: House) -> None:
    _put(house.workspace, ".npmrc")

    ran = house.run("cat .npmrc; echo new > .npmrc; rm -f .npmrc; mkdir p && echo script-shell=x > p/.npmrc")

    assert "old" not in ran.text and (house.workspace / ".npmrc").read_text() == "old"
    assert ran.after.protected_created == ("/workspace/p/.npmrc",)


def test_the_others_stay_writable_and_are_told(house: House) -> None:
    names = [*OBEYED, *INSTRUCTIONS]
    for name in names:
        _put(house.workspace, name)

    ran = house.run(" && ".join(f"echo new > {name}" for name in names))

    assert ran.code == 0
    for name in names:
        assert (house.workspace / name).read_text() == "new\n"
        [found] = _told(house, name, "src/a.py")
        assert (found.kind, found.severity, found.paths) == ("obeyed_name", Severity.WARNING, (f"/workspace/{name}",))
        assert found.text.endswith(f": /workspace/{name}") and ("other agents" in found.text) is (name in INSTRUCTIONS)


def test_one_line_for_each_class_and_none_for_what_is_gone_or_ordinary(house: House) -> None:
    many = [f".github/workflows/{number:02}.yml" for number in range(30)]
    ordinary = ["a.py", "GNUmakefile", "node_modules/a/.pylintrc", "vendor/a/CLAUDE.md", ".venv/lib/x.pth", ".claude/x"]
    ordinary.append(".git/refs/heads/x.pth")
    for name in (*many, *ordinary, "AGENTS.md"):
        _put(house.workspace, name)

    obeyed, instructions = _told(house, *many, ".github", ".github/workflows", *ordinary, "AGENTS.md", ".pdbrc")

    assert obeyed.paths == tuple(f"/workspace/{name}" for name in many[:20]) and obeyed.text.endswith(" and 25 more")
    assert instructions.paths == ("/workspace/AGENTS.md",)
    assert "\n" not in obeyed.text + instructions.text and str(house.root) not in obeyed.text


def test_names_on_the_list_come_before_any_number_of_others(house: House) -> None:
    listed = ["sitecustomize.py", ".github/workflows/z.yml", ".pre-commit-config.yaml", "deep/.cargo/config.toml"]
    many = [f".aa{number:02}.sh" for number in range(31)] + [
        f".github/workflows/a{number:02}.yml" for number in range(31)
    ]
    for name in (*listed, *many):
        _put(house.workspace, name)

    [found] = _told(house, *many, *listed)

    named = [f"/workspace/{name}" for name in listed]
    named[1] = "/workspace/.github/workflows/a00.yml"
    assert set(found.paths[:4]) == set(named) and all(path in found.text for path in named)


def test_a_flood_of_files_hides_no_name(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golem_forge.sandbox.walls.leftovers._ORDER_S", 60)
    _put(house.workspace, "zz/sitecustomize.py")
    flood = [f"data/{number}.bin" for number in range(25_000)]

    found, rest = _told(house, *flood, "zz/sitecustomize.py")

    assert found.paths == ("/workspace/zz/sitecustomize.py",)
    assert rest.severity is Severity.WARNING and "further paths changed while the command ran" in rest.text


def test_a_line_break_in_a_name_hides_nothing(house: House) -> None:
    for name in (".a\nrc", ".a\nb.sh", "sitecustomize.a\nb.so", "golem_forge.a\nb.so"):
        (house.workspace / name).touch()
        assert len(_told(house, name)) == 1, name


def test_a_protected_name_that_was_made_cannot_speak_to_a_terminal(house: House) -> None:
    ran = house.run("mkdir \"$(printf 'a\\033[2J\\nb')\" && touch \"$(printf 'a\\033[2J\\nb')/.envrc\"")
    assert ran.after.protected_created == ("/workspace/a\\x1b[2J\\x0ab/.envrc",)


def test_a_directory_that_was_moved_in_whole_is_told(house: House) -> None:
    _put(house.workspace, ".circleci/config.yml")
    assert [one.paths for one in _told(house, ".circleci")] == [("/workspace/.circleci",)]


def test_protected_names_deeper_than_the_scan_are_told(house: House) -> None:
    deep = "a/b/c/d/e/f/.vscode/tasks.json"
    _put(house.workspace, deep)
    _put(house.workspace, "node_modules/a/b/c/d/e/.vscode/tasks.json")
    [found] = _told(house, deep, "node_modules/a/b/c/d/e/.vscode/tasks.json")
    assert found.paths == (f"/workspace/{deep}",)


def test_a_makefile_that_takes_the_place_of_another_is_told(house: House) -> None:
    _put(house.workspace, "Makefile")
    _put(house.workspace, "GNUmakefile")
    assert [one.paths for one in _told(house, "Makefile", "GNUmakefile")] == [("/workspace/GNUmakefile",)]


def test_a_name_is_told_so_that_it_cannot_speak_to_a_terminal(house: House) -> None:
    (house.workspace / "x\x1b[2J\n.pth").touch()
    [found] = _told(house, "x\x1b[2J\n.pth")
    assert "\x1b" not in found.text and "\n" not in found.text
    assert os.listdir(house.workspace) == ["x\x1b[2J\n.pth"]


def _repository(place: Path, *, hooks: bool = True) -> None:
    (place / "db").mkdir(parents=True)
    (place / "format").write_text("5\n")
    (place / "hooks").mkdir()
    (place / "hooks/post-commit.tmpl").write_text("#!/bin/sh\n")
    (place / "hooks/post-commit.tmpl").chmod(0o755)
    if hooks:
        (place / "hooks/post-commit").write_text("#!/bin/sh\n")
        (place / "hooks/post-commit").chmod(0o755)


def test_hooks_of_a_subversion_repository_are_told(house: House) -> None:
    _repository(house.workspace / "repo", hooks=False)
    walls = house.walls()

    assert house.run("touch repo/db/x repo/hooks/notes", walls).after.leftovers == ()
    plain = house.run("echo x > repo/hooks/pre-commit", walls).after.leftovers
    assert not [one for one in plain if "Subversion" in one.text], "nothing runs it without the right to"
    [told] = house.run("chmod +x repo/hooks/pre-commit; ln -s /bin/true repo/hooks/post-lock", walls).after.leftovers[
        :1
    ]

    assert told.severity is Severity.WARNING and "Subversion runs it" in told.text
    assert told.paths == ("/workspace/repo/hooks/post-lock", "/workspace/repo/hooks/pre-commit")


@pytest.mark.parametrize("last", ["format", "db", "hooks"])
def test_hooks_are_told_by_whatever_makes_it_a_subversion_repository(house: House, last: str) -> None:
    _repository(house.workspace / "repo")
    (house.workspace / "repo" / last).rename(house.workspace / "aside")

    ran = house.run(f"mv aside repo/{last}; true")

    assert [one.paths for one in ran.after.leftovers if "Subversion" in one.text] == [
        ("/workspace/repo/hooks/post-commit",)
    ]


def test_a_subversion_working_copy_is_told(house: House) -> None:
    walls = house.walls()

    made = house.run("mkdir -p lib/.svn/tmp && touch lib/.svn/wc.db", walls).after.leftovers
    worked = house.run("cat lib/.svn/wc.db; touch lib/.svn/tmp/x", walls).after.leftovers
    changed = house.run("echo y >> lib/.svn/wc.db", walls).after.leftovers

    assert [(one.severity, one.paths) for one in made] == [(Severity.NOTE, ("/workspace/lib/.svn",))]
    assert worked == ()
    assert [(one.severity, one.paths) for one in changed] == [(Severity.NOTE, ("/workspace/lib/.svn",))]
