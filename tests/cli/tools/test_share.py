"""`forge tools export | import | browse | update | verify` between two machines: two homes, real archives, real git."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.usertools.share.git_server import git_server

from golem_forge.storage.home import ForgeHome
from golem_forge.usertools.folder import read_folder
from golem_forge.usertools.store import ToolStore

MANIFEST = """\
# how we greet
name: {name}
description: Greets a person by name
version: "1.2"
entrypoint: greet.py
usage: |
  Say --who=NAME.
parameters:
  - {{name: who, type: string, description: Whom to greet}}
"""


def make_tool(folder: Path, name: str = "greet", /, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tool.yaml").write_text(MANIFEST.format(name=name))
    (folder / "greet.py").write_text("print('hello')\n")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "run.bin").write_bytes(b"#!/bin/sh\n\xff\n")
    (folder / "data" / "run.bin").chmod(0o755)
    for each, content in files.items():
        (folder / each).write_text(content)
    return folder


@pytest.fixture
def shell(in_process):
    return in_process


@pytest.fixture
def elsewhere(shell, tmp_path):
    """Another machine: another home and directory."""
    home, project = tmp_path / "home2", tmp_path / "project2"
    home.mkdir()
    project.mkdir()
    return type(shell)(home, project, shell.forge)


def live(machine, name: str = "greet") -> Path:
    return machine.forge_home / "tools" / name


def trust(machine, name: str = "greet") -> None:
    book = ToolStore(ForgeHome(machine.forge_home))
    digest = read_folder(live(machine, name)).digest
    book.trust(name, digest, who="person")
    book.mark_tested(name, digest)
    book.close()


def leftovers(machine) -> list[str]:
    return sorted(each.name for each in machine.forge_home.glob(".staging-*"))


# passing on


def test_what_a_desktop_puts_into_an_archive_does_not_come_along_and_a_similar_tool_is_named(
    shell, elsewhere, tmp_path
):
    before = read_folder(make_tool(live(shell)))
    archive = tmp_path / "greet.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for name in before.files:
            out.write(live(shell) / name, f"greet/{name}")
            out.writestr(f"__MACOSX/greet/._{name}", "fork")
        for name in (".DS_Store", "__pycache__/greet.cpython-311.pyc", ".git/config", "data/run.bin~"):
            out.writestr(f"greet/{name}", "left behind")
    assert elsewhere("tools", "import", str(archive)).code == 0
    assert read_folder(live(elsewhere)) == before
    assert {each.name for each in live(elsewhere).rglob("*")} == {"tool.yaml", "greet.py", "data", "run.bin"}
    assert elsewhere("tools", "verify").code == 0
    (live(shell) / "greet.py").write_text("print('another')\n")
    renamed = elsewhere("tools", "import", str(live(shell)), "--as", "another")
    assert renamed.code == 0 and "Similar tools: greet" in renamed.out


def test_an_earlier_export_makes_room_for_the_next_unless_somebody_wrote_into_it(shell, inside, tmp_path):
    make_tool(live(shell))
    for more in ((), ("--skill",)):
        out = tmp_path / ("skill" if more else "tool")
        inside("export", "greet", "-o", str(out), *more)
        source = live(shell) / "greet.py"
        source.write_text(source.read_text() + "# newer\n")
        assert inside("export", "greet", "-o", str(out), *more).code == 0
        written = out / "greet" / "scripts" / "greet.py" if more else out / "greet" / "greet.py"
        assert written.read_text().endswith("# newer\n") and len(list(out.iterdir())) == 1
        (out / "greet" / "mine").write_text("x")
        ended = inside("export", "greet", "-o", str(out), *more)
        assert ended.code == 1 and "no unchanged export of this tool" in ended.err
        assert (out / "greet" / "mine").exists()


def test_a_skill_of_somebody_else(shell, inside, tmp_path):
    skill = tmp_path / "cleaner"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: cleaner\ndescription: Cleans\nallowed-tools: Bash\n---\nRun it \x1b[2J.\n"
    )
    for name in ("a.py", "b.py"):
        (skill / "scripts" / name).write_text("print(1)\n")
    which = inside("import", str(skill))
    assert which.code == 1 and "--entrypoint FILE: a.py, b.py" in which.err
    taken = inside("import", str(skill), "--entrypoint", "b.py")
    assert taken.code == 0 and "allowed-tools in SKILL.md grants nothing" in taken.err
    assert "\x1b" not in (live(shell, "cleaner") / "tool.yaml").read_text()
    shown = inside("diff", "cleaner").out
    assert "network: none" in shown and "entrypoint: b.py" in shown


# refusing


def test_the_name_of_a_built_in_tool(inside, tmp_path):
    make_tool(tmp_path / "it", "read_file")
    ended = inside("import", str(tmp_path / "it"))
    assert ended.code == 0 and "replaces the built-in tool 'read_file'" in ended.err
    assert "forge tools activate read_file" in ended.out
    assert inside("show", "read_file", "--json").json["source"] == "native"


def test_an_archive_that_leaves_its_folder(shell, inside, tmp_path):
    archive = tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        for name, data in (("tool.yaml", MANIFEST.format(name="greet").encode()), ("../../out\x1b[2J", b"x")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            out.addfile(entry, io.BytesIO(data))
    ended = inside("import", str(archive))
    assert ended.code == 1 and "\x1b" not in ended.err and ended.out == ""
    assert not live(shell).exists() and leftovers(shell) == [] and not (shell.forge_home / "tools.lock").exists()


def test_a_stranger_cannot_steer_the_terminal(inside, tmp_path):
    source = make_tool(tmp_path / "greet")
    (source / "tool.yaml").write_text(MANIFEST.format(name="greet") + "zones: {'\x1b[2J': ro}\n")
    ended = inside("import", str(source))
    assert ended.code == 1 and "\x1b" not in ended.out + ended.err
    (source / "tool.yaml").write_text(MANIFEST.format(name="greet").replace('"1.2"', '"1\\e[2J"'))
    ended = inside("import", str(source))
    assert "\x1b" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["import", "git+http://host.test/repo@" + "1" * 40], 2, "git+https"),
        (["import", "git+https://me:canary-4711@host.test/repo@" + "1" * 40], 2, "user names and tokens"),
        (["import", "https://host.test/x.tar.gz"], 2, "is not a source"),
        (["import", "x\x1b[2J"], 2, "is not a source"),
        (["import", ".", "NAME", "--entrypoint", "x"], 2, "one of them"),
        (["import", ".", "--as", "a__b"], 2, "--as: "),
        (["import", ".", "--as", ""], 2, "--as: "),
        (["import", ".", "--as", "../x"], 2, "--as: "),
        (["import", ".", "--as", "exec_command"], 2, "--as: tool name 'exec_command' is reserved"),
        (["browse", "github:owner/repo@main"], 2, "pin a full commit id"),
        (["browse", "."], 1, "is not a collection"),
        (["export", "nobody", "--skill", "-o", "x.tar.gz"], 2, "-o DIR"),
        (["export", "nobody", "-o", "x"], 4, "no user tool 'nobody'"),
        (["update", "nobody", "@main"], 2, "pin a full commit id"),
    ],
)
def test_words_that_do_not_work(shell, inside, words, code, said):
    ended, out, err = inside(*words)
    assert ended == code and said in err and out == ""
    assert "canary-4711" not in err and "\x1b" not in err
    assert not list(shell.project.iterdir())


# coming back to it


def test_drift_and_update_61(shell, tmp_path):
    witness = tmp_path / "witness"
    source = make_tool(tmp_path / "greet", **{"setup.py": f"open({str(witness)!r}, 'w')\n"})
    shell("tools", "import", str(source))
    trust(shell)
    imported = read_folder(live(shell)).digest
    fine = shell("tools", "verify", "--json")
    assert fine.code == 0 and fine.json == {"ok": True, "checked": ["greet"], "drift": []}

    (live(shell) / "greet.py").write_text("print('mine')\n")
    mine = read_folder(live(shell)).digest
    drifted = shell("tools", "verify")
    assert drifted.code == 1 and "greet: changed since it was imported" in drifted.out
    told = shell("tools", "verify", "--json")
    assert told.code == 1 and told.json["drift"] == [{"name": "greet", "expected": imported, "found": mine}]

    (source / "greet.py").write_text("print('newer \x1b[2J')\n")
    asked = shell("tools", "update", "greet")
    assert asked.code == 3 and "forge tools update greet --yes" in asked.err
    assert "-print('mine')\n+print('newer \\x1b[2J')" in asked.out and "\x1b" not in asked.out + asked.err
    assert "was edited after the import" in asked.err
    assert read_folder(live(shell)).digest == mine, "nobody agreed"

    done = shell("tools", "update", "greet", "--yes")
    assert done.code == 0 and "+print('newer" in done.out
    assert "draft, untrusted" in done.out and "forge tools activate greet" in done.out
    assert (live(shell) / "greet.py").read_text() == "print('newer \x1b[2J')\n"
    assert shell("tools", "verify").code == 0
    assert not witness.exists(), "an import runs nothing, and neither does an update"
    authors = [row["author"] for row in shell("tools", "log", "greet", "--json").json["versions"]]
    imported_from = {"kind": "import", "source": str(source)}
    assert authors == [imported_from, {"kind": "manual"}, imported_from]
    back = shell("tools", "undo", "greet", mine)
    assert back.code == 0 and (live(shell) / "greet.py").read_text() == "print('mine')\n"


def test_an_update_that_brings_nothing(shell, inside, tmp_path):
    source = make_tool(tmp_path / "greet")
    inside("import", str(source))
    code, out, _ = inside("update", "greet")
    assert code == 0 and "is up to date" in out
    (source / "greet.py").write_text("print('both')\n")
    (live(shell) / "greet.py").write_text("print('both')\n")
    assert inside("verify")[0] == 1
    assert inside("update", "greet")[0] == 0, "the same edit on both sides needs no question"
    assert inside("verify")[0] == 0


def test_an_edit_that_broke_the_tool_is_a_version_too(shell, inside, tmp_path):
    inside("import", str(make_tool(tmp_path / "greet")))
    (live(shell) / "tool.yaml").write_text("name: [\n")
    broken = read_folder(live(shell)).digest
    code, out, _ = inside("update", "greet", "--yes")
    assert code == 0 and "-name: [" in out and "+name: greet" in out
    assert inside("undo", "greet", broken)[0] == 0 and read_folder(live(shell)).digest == broken


def test_the_question_of_an_update(shell, on_terminal, tmp_path):
    source = make_tool(tmp_path / "greet")
    shell("tools", "import", str(source))
    (source / "greet.py").write_text("print('newer')\n")
    for typed, code in (("", 3), ("y", 0)):
        ended, screen = on_terminal(["tools", "update", "greet"], (r"\[y/N\] ", typed))
        assert ended == code and "+print('newer')" in screen
        assert ("newer" in (live(shell) / "greet.py").read_text()) is (code == 0)


def test_a_tool_that_was_not_imported_or_is_gone(shell, inside, tmp_path):
    make_tool(live(shell, "own"), "own", more="x")
    assert inside("update", "own")[0] == 1
    inside("import", str(make_tool(tmp_path / "greet")))
    shutil.rmtree(live(shell))
    code, out, _ = inside("verify")
    assert code == 1 and "greet: missing" in out
    code, _, err = inside("update", "greet")
    assert code == 4 and "forge tools undo greet" in err
    inside("undo", "greet")
    assert inside("verify")[0] == 0

    inside("remove", "greet", "--yes")
    assert "No tool was imported" in inside("verify")[1], "what was removed on purpose is no drift"
    inside("undo", "greet")
    assert "1 imported tool is" in inside("verify")[1], "where it came from comes back with it"
    assert "up to date" in inside("update", "greet")[1]


def test_a_lock_that_cannot_be_read_is_left_as_it_is(shell, inside, tmp_path):
    shell.write_home("tools.lock", "{")
    for words in (["verify"], ["import", str(make_tool(tmp_path / "greet"))], ["update", "greet"]):
        code, _, err = inside(*words)
        assert code == 1 and "tools.lock cannot be read" in err
    assert (shell.forge_home / "tools.lock").read_text() == "{" and not live(shell).exists()


# git and collections


class Repository:
    """A repository that an https server on this machine gives out."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder, self.address = folder, address
        folder.mkdir()
        self.git("init", "-q")

    def git(self, *words: str) -> str:
        named = ["-c", "user.name=t", "-c", "user.email=t@example.test", "-c", "init.defaultBranch=main"]
        done = subprocess.run(["git", *named, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a version")
        return self.git("rev-parse", "HEAD")

    def source(self, commit: str, below: str = "") -> str:
        return f"git+{self.address}/{self.folder.name}/.git@{commit}" + (f"#{below}" if below else "")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    if shutil.which("openssl") is None:
        pytest.skip("a certificate is made with openssl")
    with git_server(tmp_path) as (address, environ):
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield Repository(tmp_path / "repository", address)


def test_a_pinned_commit_and_the_next_59(shell, repository):
    folder = make_tool(repository.folder / "tools" / "greet")
    digest, first = read_folder(folder).digest, repository.commit()
    (folder / "tool.yaml").write_text(MANIFEST.format(name="greet").replace("1.2", "1.3"))
    second = repository.commit()

    def record() -> tuple[str, str, str]:
        (found,) = json.loads((shell.forge_home / "tools.lock").read_text())["tools"]
        return found["commit"], found["digest"], found["version"]

    assert shell("tools", "import", repository.source(first, "tools/greet")).code == 0
    assert record() == (first, digest, "1.2")
    assert "up to date" in shell("tools", "update", "greet", f"@{first}").out

    asked = shell("tools", "update", "greet")
    assert asked.code == 3 and "version: 1.2 -> 1.3" in asked.out
    assert f"forge tools update greet @{second} --yes" in asked.err, "exactly what was shown"
    assert shell("tools", "update", "greet", f"@{second}", "--yes").code == 0
    assert (record()[0], record()[2]) == (second, "1.3")

    assert shell("tools", "undo", "greet").code == 0
    assert record()[:2] == (first, digest) and shell("tools", "verify").code == 0

    nowhere = shell("tools", "update", "greet", "@" + "1" * 40)
    assert nowhere.code == 1 and read_folder(live(shell)).digest == digest


def test_a_collection(shell, inside, tmp_path):
    source = tmp_path / "collection"
    folder = make_tool(source / "tools" / "greet")
    make_tool(source / "tools" / "other", "other", more="x")
    listed = [
        {
            "name": "greet",
            "description": "Greets \x1b[2J a person",
            "version": "1.2",
            "path": "tools/greet",
            "digest": read_folder(folder).digest,
        },
        {"name": "other", "description": "Else", "version": "1", "path": "tools/other", "digest": "sha256:" + "0" * 64},
        {"name": "../evil", "description": "x", "version": "1", "path": "..", "digest": ""},
    ]
    (source / "forge-tools.json").write_text(json.dumps({"tools": listed}))
    source = str(source)

    rows = inside("browse", source)
    assert r"Greets \x1b[2J a person" in rows.out and "\x1b" not in rows.out + rows.err
    assert "tools[2]" in rows.err and f"forge tools import {source} NAME" in rows.out
    fits = inside("browse", source, "PERSON", "greets", "--json").json
    assert [row["name"] for row in fits["tools"]] == ["greet"] and len(fits["problems"]) == 1

    whole = inside("import", source)
    assert whole.code == 1 and "It is a collection" in whole.err and "greet, other" in whole.err
    forged = inside("import", source, "other")
    assert forged.code == 1 and "digest" in forged.err and not live(shell, "other").exists()
    taken = inside("import", source, "greet", "--as", "hello")
    assert taken.code == 0 and "Imported tool 'hello'" in taken.out and "draft, untrusted" in taken.out
    assert inside("verify").code == 0


def test_a_folder_of_tools_becomes_a_collection(shell, inside, tmp_path):
    source = tmp_path / "collection"
    make_tool(source / "tools" / "greet")
    make_tool(source / "more" / "deep" / "other", "other", more="x")
    (source / ".git" / "hidden").mkdir(parents=True)
    make_tool(source / ".git" / "hidden" / "third", "third", more="y")
    (source / "more" / "notes.txt").write_text("no tool")
    written = inside("index", str(source))
    assert written.code == 0 and written.err == "" and "forge-tools.json" in written.out
    first = (source / "forge-tools.json").read_bytes()
    rows = json.loads(first)["tools"]
    assert [(row["name"], row["path"]) for row in rows] == [("greet", "tools/greet"), ("other", "more/deep/other")]
    assert rows[0]["digest"] == read_folder(source / "tools" / "greet").digest
    assert inside("browse", str(source), "--json").json == {"tools": rows, "problems": []}
    assert inside("index", str(source), "--json").json["tools"] == rows
    assert (source / "forge-tools.json").read_bytes() == first, "the same files, the same list"
    assert inside("import", str(source), "other").code == 0
    (source / "tools" / "greet" / "extra.txt").write_text("edited")
    assert "digest" in inside("import", str(source), "greet").err
    assert inside("index", str(source)).code == 0 and inside("import", str(source), "greet").code == 0


def test_what_is_no_tool_is_not_listed_and_that_is_said(inside, tmp_path):
    source = tmp_path / "collection"
    make_tool(source / "greet")
    make_tool(source / "again", "greet", more="x")
    (source / "broken").mkdir()
    (source / "broken" / "tool.yaml").write_text("name: [\x1b[2J")
    (source / "elsewhere").symlink_to(tmp_path)
    ended = inside("index", str(source))
    assert ended.code == 1 and "\x1b" not in ended.out + ended.err
    assert "left out: broken: " in ended.err and "left out: greet: has the name of again" in ended.err
    assert [row["path"] for row in json.loads((source / "forge-tools.json").read_text())["tools"]] == ["again"]
    (tmp_path / "empty").mkdir()
    for folder, said in (("empty", "There is no tool to list"), ("collection/greet", "is a tool itself")):
        refused = inside("index", str(tmp_path / folder))
        assert refused.code == 1 and said in refused.err and not (tmp_path / folder / "forge-tools.json").exists()
    for nowhere in (str(tmp_path / "nowhere"), "~nobody-here/tools", ""):
        refused = inside("index", nowhere)
        assert (refused.code, refused.out) == (2, "") and f"{nowhere} is not a folder" in refused.err
