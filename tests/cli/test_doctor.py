"""`forge doctor`: what works, what does not, and what to do about it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests import known_walls

from golem_forge._version import __version__
from golem_forge.cli.doctor import _level_findings
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import GUARANTEES, Level, LevelResult, ProbeReport
from golem_forge.sandbox.walls.probe import TOO_SLOW, probe

from .conftest import new_shell
from .test_cli_system_errors import each_said


@pytest.fixture
def shell(in_process, told_of_walls):
    """It knows of the walls, which most tests here are not about."""
    return in_process


@pytest.fixture
def trying(tmp_path, ready_forge):
    """The command as it is: it tries the walls each time, and is run again where the machine was too busy for that."""
    tries = new_shell(tmp_path, ready_forge)

    def run(*words):
        for _ in range(5):
            ended = tries(*words)
            if TOO_SLOW.cause not in ended.out:
                break
        return ended

    return run


NOT_READ = "data cannot be read by this account, so no worker in there is found"


def findings(ended, about):
    return [each for each in ended.json["findings"] if each["about"] == about]


def test_all_is_well_in_an_empty_project(shell, trying):
    ended = trying("doctor")
    assert ended.code == 0, ended.out
    assert f"forge {__version__}" in ended.out and "PROBLEM" not in ended.out
    assert "/workspace (rw)" in ended.out and "write ask, delete ask" in ended.out
    assert "full: 13 of 13 guarantees tried and held" in ended.out
    assert "read-only: 13 of 13 guarantees tried and held; no zone is writable" in ended.out
    assert "Everything that is needed works." in ended.out
    assert not shell.forge_home.exists(), "looking changes nothing"


def test_paths_are_shown_from_home(shell):
    project = shell.home / "src" / "app"
    project.mkdir(parents=True)
    ended = shell("doctor", cwd=project)
    assert "~/src/app" in ended.out and str(shell.home) not in ended.out


@pytest.mark.parametrize(
    ("mode", "state"), [(0o700, "ok"), (0o750, "note"), (0o755, "note"), (0o777, "problem"), (0o770, "problem")]
)
def test_a_home_that_is_too_open(shell, mode, state):
    shell.forge_home.mkdir()
    shell.forge_home.chmod(mode)
    ended = shell("doctor", "--json")
    (found,) = findings(ended, "FORGE_HOME")
    assert found["state"] == state
    assert (found["fix"] == "chmod 700 ~/.forge") is (state != "ok")
    assert ended.code == (1 if state == "problem" else 0)


def test_a_home_that_is_a_file(shell):
    shell.forge_home.write_text("")
    ended = shell("doctor", "--json")
    assert ended.code == 1
    assert (
        findings(ended, "FORGE_HOME")[0]["state"] == "problem" and findings(ended, "journal")[0]["state"] == "problem"
    )


def test_a_program_and_its_trust(shell):
    shell.write("forge.yaml", "approval: {mode: approve_all}\n")
    shell.write(".forge/rules.yaml", "version: 1\nrules: []\n")
    ended = shell("doctor", "--json")
    assert ended.code == 0
    (trust,) = findings(ended, "trust")
    assert trust["state"] == "note" and "approve_all" in trust["text"] and "forge trust" in trust["fix"]
    assert findings(ended, "rules")[0]["state"] == "note"
    shell("trust", "--yes")
    ended = shell("doctor", "--json")
    assert findings(ended, "trust")[0]["state"] == "ok" and findings(ended, "rules")[0]["state"] == "ok"
    assert "approve_all (forge.yaml:1)" in findings(ended, "approval")[0]["text"]


def test_hooks_are_named_and_those_of_a_program_wait_for_trust(shell):
    shell.write("forge.yaml", 'hooks: [{on: after_call, tools: [write_file], run: "ruff format {paths}"}]\n')
    (hook,) = findings(shell("doctor", "--json"), "hooks")
    assert hook["state"] == "note" and "after_call" in hook["text"] and hook["fix"] == "read it, then: forge trust"
    shell("trust", "--yes")
    (hook,) = findings(shell("doctor", "--json"), "hooks")
    assert hook["state"] == "ok" and "runs on after_call (forge.yaml" in hook["text"]


def test_code_of_a_worker_waits_for_trust(shell):
    shell("init")
    (trust,) = findings(shell("doctor", "--json"), "trust")
    assert trust["state"] == "note" and trust["fix"] == "read it, then: forge trust"
    assert trust["text"].endswith("is not trusted; not used: the code of its workers")
    (shell.project / "main.worker").write_text("---\nname: main\ntoolsets: {filesystem: }\n---\nHelp.\n")
    (trust,) = findings(shell("doctor", "--json"), "trust")
    assert trust["state"] == "ok" and trust["text"].endswith("nothing in it needs trust")


def test_a_broken_forge_yaml(shell):
    shell.write("forge.yaml", "aproval: {}\nsandbox: {zones: {a: {}}}\n")
    ended = shell("doctor", "--json")
    assert ended.code == 1
    texts = [each["text"] for each in findings(ended, "program")]
    assert any("forge.yaml:1" in text and "'approval'" in text for text in texts) and len(texts) == 2


@pytest.mark.parametrize("words", [["call", "read_file", "--path", "x"], ["run", "--dry-run"], ["run", "-i", "x"]])
def test_what_is_wrong_with_a_strange_file_is_said_without_steering_the_terminal(shell, words):
    shell.write("forge.yaml", '"\\e]0;owned\\a\\u202e": 1\n')
    ended = shell(*words)
    assert ended.code == 2
    assert "\\x1b]0;owned\\x07\\u202e" in ended.err
    assert not set(ended.err + ended.out) & set("\x1b\x07\u202e")


def test_zones_with_problems(shell):
    shell.write("forge.yaml", "sandbox:\n  zones:\n    docs: {path: ./docs, mode: ro}\n")
    ended = shell("doctor", "--json")
    assert ended.code == 1
    wrong = [each for each in findings(ended, "zone") if each["state"] == "problem"]
    assert wrong[0]["text"].startswith("forge.yaml:3: ") and "does not exist" in wrong[0]["text"]
    (shell.project / "docs").mkdir()
    ended = shell("doctor")
    assert ended.code == 0 and "/docs (ro)" in ended.out and "read only" in ended.out


def test_in_the_home_directory_there_is_no_zone(shell):
    ended = shell("doctor", "--json", cwd=shell.home)
    assert ended.code == 0 and findings(ended, "zones")[0]["state"] == "note"


def test_broken_rules(shell):
    shell.write_home("rules.yaml", "version: 1\nrules:\n  - {command: [ls], verdit: ask}\n")
    ended = shell("doctor", "--json")
    assert ended.code == 1
    assert "~/.forge/rules.yaml:3" in findings(ended, "rules")[0]["text"]


def test_names_in_the_approval_block(shell):
    shell.write("forge.yaml", "approval: {tools: {raed_file: ask, write_file: blocked}}\n")
    ended = shell("doctor", "--json")
    assert ended.code == 0
    assert any(each["state"] == "note" and "'read_file'" in each["text"] for each in findings(ended, "approval"))


def test_a_directory_whose_name_is_not_unicode(shell):
    strange = Path(os.fsdecode(os.fsencode(shell.project) + b"/caf\xe9"))
    strange.mkdir()
    for words in (["doctor"], ["doctor", "--json"], ["trust"], ["rules", "list"]):
        assert shell(*words, cwd=strange).code in (0, 4)


def test_walls_that_were_not_tried_in_time_miss_nothing():
    report = asyncio.run(probe(cache=None, within=0.0))
    said = [f"{each.state} {each.text} {each.fix}" for each in _level_findings(report, off=False)]
    assert [line.partition(" Run ")[0] for line in said] == [
        "note full: not tried in time",
        "note read-only: not tried in time",
        "problem full walls were not tried in time: until they are, nothing that needs a process runs",
    ]
    assert all("less busy" in line for line in said)


ONLY_READ_ONLY = ProbeReport(
    level=Level.LANDLOCK,
    tried=(
        LevelResult(level=Level.FULL, cause="user namespaces are switched off", fix="sysctl user.max_user_namespaces"),
        LevelResult(level=Level.LANDLOCK, held=tuple(GUARANTEES)),
    ),
)


@pytest.fixture
def only_read_only(monkeypatch):
    async def tried(cache):
        return ONLY_READ_ONLY

    monkeypatch.setattr("golem_forge.cli.doctor.probe_with_retry", tried)


def test_read_only_walls_alone_are_not_all_that_is_needed(shell, only_read_only):
    ended = shell("doctor")
    assert ended.code == 1 and "Everything that is needed works." not in ended.out
    assert "Something that is needed does not work." in ended.out
    assert "commands that only read can run, all others cannot" in ended.out
    assert "user namespaces are switched off" in ended.out and "sysctl user.max_user_namespaces" in ended.out
    said = shell("doctor", "--json").json
    assert said["ok"] is False and "walls" in [each["about"] for each in said["todo"]]


def test_read_only_walls_are_enough_where_no_zone_can_be_written(shell, only_read_only):
    shell.write("forge.yaml", "sandbox: {zones: {workspace: {path: ., mode: ro}}}\n")
    ended = shell("doctor", "--json")
    assert ended.code == 0, ended.out
    assert any(each["state"] == "note" and "only read" in each["text"] for each in findings(ended, "walls"))


def test_read_only_walls_do_not_matter_where_walls_are_off(shell, only_read_only):
    shell.write_home("config.yaml", "sandbox: {walls: off}\n")
    assert shell("doctor", "--json").code == 0


def test_the_mode_of_a_session_here_and_what_becomes_of_it(shell, only_read_only):
    shell.write_home("config.yaml", "approval: {mode: contained}\n")
    said = [each["text"] for each in findings(shell("doctor", "--json"), "approval")]
    assert said[0].startswith("mode contained (")
    assert "there are no full walls here" in said[1] and said[1].endswith("asks as in the mode interactive")


def test_a_worker_that_cannot_be_started_is_a_problem(shell):
    shell.write("forge.yaml", "entry: main.worker\n")
    shell.write("main.worker", "---\nname: main\ntoolsets:\n  workers: {allow: [reviewer]}\n---\nHelp.\n")
    ended = shell("doctor", "--json")
    assert ended.code == 1
    assert "main.worker:4" in findings(ended, "worker")[0]["text"]


def test_bubblewrap_off_the_path_is_no_contradiction(shell, monkeypatch, tmp_path):
    """It is looked for where the walls look for it, and a program of that name elsewhere is not it."""
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    monkeypatch.setenv("PATH", str(elsewhere))
    (found,) = findings(shell("doctor", "--json"), "bubblewrap")
    assert found["state"] == "ok" and found["text"] == find_bwrap()
    (elsewhere / "bwrap").write_text("#!/bin/sh\n")
    (elsewhere / "bwrap").chmod(0o755)
    monkeypatch.setattr("golem_forge.cli.doctor.find_bwrap", lambda: None)
    (found,) = findings(shell("doctor", "--json"), "bubblewrap")
    assert found["state"] == "note" and "is not used" in found["text"] and found["fix"]


def test_nothing_is_announced_that_is_there_and_nothing_asked_for_that_serves_the_tests(shell):
    said = shell("doctor").out
    assert "later version" not in said and "chromium" not in said
    assert "user tools written in Go" in said and "later" not in said


def test_extras_are_named_with_how_to_get_them(shell, monkeypatch):
    def find(name, *more):
        return None if name.partition(".")[0] in ("nh3", "websockets") else find_spec(name, *more)

    monkeypatch.setattr("golem_forge.cli.doctor.find_spec", find)
    ended = shell("doctor", "--json")
    found = {each["text"].partition(",")[0]: each for each in findings(ended, "extras")}
    assert ended.code == 0 and list(found) == ["models", "mcp", "acp", "web", "otel", "team"]
    assert found["mcp"]["state"] == "ok"
    assert found["web"]["state"] == "note" and found["web"]["text"].endswith("missing nh3, websockets")
    assert found["web"]["fix"] == "pip install 'golem-forge[web]'"


def test_keys_are_told_by_name_and_never_by_value(shell, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (found,) = findings(shell("doctor", "--json"), "keys")
    assert found["state"] == "note" and "ANTHROPIC_API_KEY" in found["text"] and found["fix"]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-1234567890")
    monkeypatch.setenv("OPENROUTER_API_KEY", "")
    for words in (["doctor"], ["doctor", "--json"]):
        ended = shell(*words)
        assert "set: OPENAI_API_KEY" in ended.out and "OPENROUTER" not in ended.out
        assert "canary" not in ended.out + ended.err


def test_the_last_lines_say_what_is_missing_for_this_person(shell):
    ended = shell("doctor")
    summary = ended.out.partition("Missing for you:\n")[2]
    assert "model   forge models setup" in summary or "model  forge models setup" in summary
    shell.forge_home.mkdir(parents=True, exist_ok=True)
    (shell.forge_home / "config.yaml").write_text("model: ollama:small\n")
    ended = shell("doctor", "--json")
    assert findings(ended, "model")[0]["state"] == "ok" and "config.yaml" not in str(ended.json["todo"])
    assert "model" not in [each["about"] for each in ended.json["todo"]]


def test_telemetry_is_told_where_it_is_switched_on(shell, monkeypatch):
    assert findings(shell("doctor", "--json"), "telemetry") == []
    with socket.socket() as place:  # taken all the time, so that nobody else comes to listen there
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://person:canary-pw@127.0.0.1:{port}/otlp")
        with socket.create_server(("127.0.0.1", port), reuse_port=True):
            there = shell("doctor", "--json")
        gone = shell("doctor", "--json")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    other = shell("doctor", "--json")
    (found,) = findings(there, "telemetry")
    assert found["state"] == "ok" and found["text"].startswith(f"spans and metrics go to 127.0.0.1:{port} ")
    (found,) = findings(gone, "telemetry")
    assert (
        found["state"] == "note" and "no collector answers" in found["text"] and found["fix"] in str(gone.json["todo"])
    )
    (found,) = findings(other, "telemetry")
    assert found["state"] == "note" and "set it to otlp or none" in found["text"]
    assert "canary" not in there.out + gone.out + other.out


def test_a_folder_that_cannot_be_read_is_named_once(shell, monkeypatch):
    (shell.project / "data").mkdir()
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "data" and may(path, mode))
    assert shell("doctor").out.count(NOT_READ) == 1


def test_a_folder_that_cannot_be_read_is_passed_over_and_named_once(tmp_path: Path, tried_walls: Path) -> None:
    """As an account without the right to read everything."""
    without_rights = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    if without_rights and shutil.which("setpriv") is None:
        pytest.skip("root reads everything, and setpriv is not installed")
    home, program = tmp_path / "home", tmp_path / "program"
    home.mkdir(mode=0o700)
    known_walls.put(tried_walls, home)
    (program / "data").mkdir(parents=True)
    (program / "data").chmod(0)
    (program / "script.yaml").write_text("turns: [{say: done}]\n")

    environ = {**os.environ, "FORGE_HOME": str(home)}
    try:
        [run] = each_said(("run -m scripted:script.yaml hi",), environ, program, without_rights)
        assert (run.count(NOT_READ), run.endswith("done\n= 0\n")) == (1, True), run
    finally:
        (program / "data").chmod(0o700)
