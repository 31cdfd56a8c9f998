"""`forge tools doctor`: every reason why a folder is no active tool, each from a real folder and told once."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter

import pytest
from tests.cli.own_tools import GREET, Person
from tests.deadlines import PATIENCE

from golem_forge.usertools.diagnostics import DiagnosticCode

GO = "package main\n\nfunc main() {}\n"


@pytest.mark.usefixtures("without_go")
def test_one_fault_of_each_code_is_listed_once(person, monkeypatch):
    _faulty_folders(person)
    _faults_of_their_lives(person)
    _one_too_many(person, monkeypatch)
    said = person("doctor", "--json")
    assert said.code == 0
    found = {each["tool"]: each for each in said.json["diagnostics"]}
    codes = Counter(each["code"] for each in said.json["diagnostics"])
    assert codes == {code.value: 1 for code in DiagnosticCode}
    assert said.json["active"] == ["Twin", "fine"]
    assert found["a-yaml"]["line"] == 2
    assert found["a-manifest"]["message"] == "tool.yaml: unknown key 'timout' (did you mean 'timeout'?)"
    assert found["toolchain"]["message"].startswith("Go was not found on this machine")
    assert "built.py:1:" in found["built"]["message"] and "expected" in found["tested"]["message"]
    listed = {each["tool"]: each["code"] for each in person("list", "--json").json["skipped"]}
    assert listed == {name: each["code"] for name, each in found.items()}, "`list` says the same"


def test_it_speaks_to_people_too(person):
    person.tool("built", "def main(:\n")
    person.tool("fine")
    assert person("activate", "fine", "--yes").code == 0
    said = person("doctor")
    assert said.code == 0
    first, *_, last = said.out.splitlines()
    assert first.startswith("built: build_failed: ") and "built.py:1:" in said.out
    assert last == "1 tool is active, 1 folder is not; $FORGE_HOME/tools"


def test_every_verb_says_in_which_line(person):
    folder = person.tool("typo")
    (folder / "tool.yaml").write_text("name: typo\nverson: 1\n")
    told = "manifest_invalid: tool.yaml: unknown key 'verson' (did you mean 'version'?) (line 2)"
    assert f"typo: {told}\n" in person("doctor").out
    for verb in ("activate", "test", "run", "show"):
        said = person(verb, "typo")
        assert said.code == 4 and said.err.endswith(f"is not a usable tool: {told}\n"), (verb, said.err)


def test_a_folder_without_a_manifest_is_told_from_a_misspelt_name(person):
    person.tool("greet")
    (person.folders / "notes").mkdir()
    said = person("activate", "notes")
    assert said.code == 4 and "$FORGE_HOME/tools/notes has no tool.yaml, so it is not a tool." in said.err
    assert "did you mean 'greet'?" in person("activate", "gret").err


def test_what_is_only_skipped_is_no_empty_list(person):
    person.tool("greet")
    said = person("list", "--source", "custom")
    assert said.code == 0 and said.err == "" and "greet  untrusted" in said.out


def test_what_a_folder_says_cannot_steer_the_terminal(person):
    folder = person.tool("evil")
    (folder / "tool.yaml").write_text('name: evil\n"\x1b[2J": 1\n')
    (person.folders / "\x1b[2Jx").mkdir()
    (person.folders / "\x1b[2Jx" / "tool.yaml").write_text("name: x\n")
    for words in (["doctor"], ["list"], ["show", "evil"]):
        said = person(*words)
        assert "\x1b" not in said.out + said.err, words


def test_watch_tells_of_a_fault_when_it_comes(shell):
    folder = shell.forge_home / "tools" / "x"
    folder.mkdir(parents=True)
    (folder / "x.py").write_text(GREET)
    (folder / "tool.yaml").write_text("name: x\ndescription: d\nversion: '1'\nentrypoint: y.py\n")
    words = ["forge", "tools", "doctor", "--watch"]
    watching = shell.forge.start(words, cwd=shell.project, env=shell.environ)
    try:
        assert "x: entrypoint_missing" in watching.stdout.readline()
        watching.stdout.readline()
        mended = shell.write("tool.yaml", "name: x\ndescription: d\nversion: '1'\nentrypoint: x.py\n")
        mended.replace(folder / "tool.yaml")  # at once: half of a file would be another fault
        assert "x: untrusted" in watching.stdout.readline()
    finally:
        assert _interrupted(watching) == 130


def _interrupted(process):
    """Python drops an interrupt that comes while it runs a finalizer; a person would press again."""
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        try:
            return process.wait(PATIENCE / 5)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.wait()


def _faulty_folders(person: Person) -> None:
    (person.tool("a-yaml") / "tool.yaml").write_text("name: a-yaml\n\tversion: 1\n")
    person.tool("a-manifest", timout=5)
    unreadable = person.tool("a-nest") / "tool.yaml"
    unreadable.unlink()
    unreadable.mkdir()
    person.tool("mismatch", name="other")
    person.tool("in__valid")
    person.tool("Twin")
    person.tool("twin")
    person.tool("exec_command")
    person.tool("outside", entrypoint="../outside.py")
    person.tool("missing", entrypoint="other.py")
    person.tool("no-bit", "#!/bin/sh\n", file="no-bit")
    (person.tool("linked") / "link").symlink_to("/etc/passwd")
    large = person.tool("large")
    for number in range(200):
        (large / f"file{number}").touch()
    (person.folders / "plain-file").write_text("no tool and no fault")
    (person.folders / "no-manifest").mkdir()


def _faults_of_their_lives(person: Person) -> None:
    person.tool("toolchain", GO, file="toolchain.go")
    person.tool("depends", '# /// script\n# requires-python = ">=3.99"\n# ///\nprint(1)\n')
    person.tool("built", "def main(:\n")
    person.tool("tested", tests=[{"expect": {"stdout": "nothing of the kind"}}])
    person.tool("read_file")
    person.tool("untrusted")
    changed = person.tool("changed")
    person.tool("retired", "print('retired')\n")
    person.tool("fine", "print('fine')\n")
    assert person("activate", "tested", "--yes").code == 1
    assert person("activate", "Twin", "changed", "retired", "fine", "--yes").code == 0
    assert person("retire", "retired").code == 0
    (changed / "changed.py").write_text("print('changed')\n")


def _one_too_many(person: Person, monkeypatch) -> None:
    """Last in the order of names; the limit is lowered to what is there without it."""
    from golem_forge.usertools import registry as registry_listing

    person.tool("zz-beyond")
    folders = sum(each.is_dir() for each in person.folders.iterdir())
    monkeypatch.setattr(registry_listing, "MOST_TOOLS", folders - 1)


def test_a_folder_called_like_a_command_is_told_how_to_run(person):
    person.tool("exit")
    assert person("doctor").out.startswith("exit: untrusted: not active; run /tool exit or `forge tools activate exit`")
