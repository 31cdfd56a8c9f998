"""`forge tools doctor`: why a folder is no active tool, told to people and as it changes. Every reason there is has its
folder in the acceptance test c12."""

from __future__ import annotations

import signal
import subprocess

from tests.cli.own_tools import GREET
from tests.deadlines import PATIENCE


def test_it_speaks_to_people_too(person):
    person.tool("built", "def main(:\n")
    person.tool("fine")
    assert person("activate", "fine", "--yes").code == 0
    said = person("doctor")
    assert said.code == 0
    first, *_, last = said.out.splitlines()
    assert first.startswith("built: build_failed: ") and "built.py:1:" in said.out
    assert last == "1 tool is active, 1 folder is not; $FORGE_HOME/tools"
    [found], [listed] = person("doctor", "--json").json["diagnostics"], person("list", "--json").json["skipped"]
    assert (listed["tool"], listed["code"]) == (found["tool"], found["code"]) == ("built", "build_failed")


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


def test_a_folder_called_like_a_command_is_told_how_to_run(person):
    person.tool("exit")
    assert person("doctor").out.startswith("exit: untrusted: not active; run /tool exit or `forge tools activate exit`")
