"""`forge tools`: the life of a tool of one's own, from `new` to `remove`, in real walls; nobody is at the terminal."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.cli.own_tools import GREET, GREETS, Person

from golem_forge.cli.command import BY_FLAG, step_drawer
from golem_forge.cli.tools.workshop import open_workshop
from golem_forge.usertools.build import Builder
from golem_forge.usertools.trust import make_ready, report_lines


def test_new_takes_a_source_as_it_is(person, tmp_path):
    source = tmp_path / "count.sh"
    source.write_text("#!/bin/sh\necho '$(id)' \"${1}\"\n")
    assert person("new", "count", "--source", str(source)).code == 0
    assert (person.folders / "count" / "count.sh").read_bytes() == source.read_bytes()
    assert person("new", "run", "--language", "go").code == 0
    assert (person.folders / "run" / "run.go").exists()
    assert "boolean_flags: equals" in (person.folders / "run" / "tool.yaml").read_text()
    empty = tmp_path / "empty.py"
    empty.write_text("")
    for path, why in ((empty, "is empty"), (tmp_path / "none.py", "No such file")):
        said = person("new", "other", "--source", str(path))
        assert said.code == 2 and why in said.err
    assert not (person.folders / "other").exists()


def test_new_declares_parameters_and_tests(person, tmp_path):
    source = tmp_path / "greet.py"
    source.write_text(GREET.replace("print", 'parser.add_argument("--count", type=int)\nprint'))
    case = {"arguments": {"who": "Ada", "count": 1}, "expect": {"stdout": "Hello Ada\n"}}
    declared = ("--param", "who", "--param", "count:integer=2", "--test", f"--test={json.dumps(case)}")
    made = person("new", "--source", str(source), *declared, "greet")
    assert made.code == 0 and "then run `forge tools activate greet`" in made.out and "declare" not in made.out
    schema = person("show", "greet", "--json").json["definition"]["inputSchema"]
    assert schema["required"] == ["who"] and schema["properties"]["count"]["default"] == 2
    assert schema["properties"]["who"]["type"] == "string" and schema["properties"]["count"]["type"] == "integer"
    ended = person("test", "greet", "--yes")
    assert ended.code == 0 and "2 passed, 0 failed" in ended.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--param", "n:intger"), "--param n:intger: the type must be one of string, number, integer, boolean, array"),
        (("--param", "n:integer=many"), "--param n:integer=many: a default of type integer is written as JSON"),
        (("--param", "n:integer=1.5"), "parameters[0].default: must be an integer"),
        (("--param", "a b"), "parameters[0].name: "),
        (("--param", "n", "--param", "N"), "parameters[1].name: "),
        (("--test", '{"args": {}}'), "tests[0]: unknown key 'args'"),
        (("--test=[]",), "--test: must be a JSON object"),
        (("--test={",), "--test: not JSON"),
    ],
)
def test_new_declares_nothing_that_tool_yaml_could_not(person, words, said):
    ended = person("new", "greet", *words)
    assert ended.code == 2 and said in ended.err
    assert list(person.folders.iterdir()) == []


def test_new_refuses_in_the_words_of_create_custom_tool(person):
    person.greet()
    before = (person.folders / "greet" / "tool.yaml").read_bytes()
    for name, why in {
        "a__b": "invalid tool name 'a__b': use letters, digits, '-' and '_', starting with a letter",
        "..": "invalid tool name '..'",
        "exec_command": "tool name 'exec_command' is reserved",
        "Exec_Command": "tool name 'Exec_Command' is reserved",
        "read_file": "'read_file' is the name of an existing tool; choose another name",
        "greet": "tool 'greet' already exists at $FORGE_HOME/tools/greet",
        "GREET": "tool 'GREET' already exists at $FORGE_HOME/tools/greet",
    }.items():
        said = person("new", name)
        assert said.code == 2 and why in said.err and "create_custom_tool" not in said.err, (name, said.err)
    said = person("new", "other", "--description", "")
    assert said.code == 2 and "description: missing required parameter" in said.err
    assert [each.name for each in person.folders.iterdir()] == ["greet"]
    assert (person.folders / "greet" / "tool.yaml").read_bytes() == before


def test_new_names_similar_tools(person):
    person.tool("git-summarize", description="Summarize recent git commits of a repository")
    said = person("new", "git-summary", "--description", "Summarize the recent git commits of a repository")
    assert said.code == 0 and "Similar tools: git-summarize" in said.out
    assert "Similar" not in person("new", "one").out + person("new", "two").out


def test_nothing_runs_before_a_yes(person, tmp_path):
    """Not even its tests: the card is shown, and the exit code says that nobody agreed."""
    person.greet()
    for verb in ("activate", "test", "run"):
        said = person(verb, "greet")
        assert said.code == 3, (verb, said)
        assert "--yes" in said.err and "Hello {parser.parse_args().who}" in said.err, "the card shows the source"
        assert "ok greets" not in said.out
    assert person.book.find_trust("greet", _digest(person)) is None
    assert not person.book.build_status("greet", _digest(person)).tested
    assert person.codes() == {"greet": "untrusted"}


def test_yes_is_for_the_named_tools_alone(person):
    person.greet()
    person.tool("other")
    assert person("activate", "greet", "--yes").code == 0
    assert person.codes() == {"other": "untrusted"}
    assert person("test", "--yes").code == 2
    said = person("test")
    assert said.code == 0 and "other: no tests" in said.out, "what has no tests runs nothing, so nothing is asked"


def test_test_update_keeps_what_is_printed_now(person):
    folder = person.greet(tests=[GREETS, {"name": "shouts", "expect": {"stdout": "HELLO\n"}}])
    said = person("test", "greet", "--yes", "--update")
    assert said.code == 0 and "updated shouts" in said.out
    assert "Hello nobody" in (folder / "tool.yaml").read_text() and "HELLO" not in (folder / "tool.yaml").read_text()
    assert person.codes() == {"greet": "changed"}, "another version, which is trusted anew"
    asked = person("activate", "greet")
    assert asked.code == 3 and "Hello nobody" in asked.err, "the card shows what changed"
    assert person("test", "greet", "--yes").code == 0
    assert person.active() == {"greet"}


def test_an_identical_tool_is_refused(person):
    person.greet()
    (person.folders / "hello").mkdir()
    text = (person.folders / "greet" / "tool.yaml").read_text().replace('name: "greet"', 'name: "hello"')
    (person.folders / "hello" / "tool.yaml").write_text(text)
    (person.folders / "hello" / "greet.py").write_text(GREET)
    said = person("activate", "hello", "--yes")
    assert said.code == 1 and "identical to custom tool 'greet'" in said.err
    assert person.book.last_trusted("hello") == ""


def test_build_says_what_the_compiler_says(person):
    person.tool("broken", "def main(:\n    pass\n")
    person.greet()
    said = person("build", "broken", "greet")
    assert said.code == 1 and "tool 'greet' is built" in said.out
    assert "custom tool 'broken' failed to build:" in said.err and "broken.py:1:" in said.err
    assert person.codes() == {"broken": "build_failed", "greet": "untrusted"}
    assert person("show", "greet", "--json").json["state"] == "built"
    person.tool("broken", "print(1)\n")
    assert person("build", "broken").code == 0 and person.codes()["broken"] == "untrusted"


def test_packages_that_must_be_fetched_are_asked_for(person, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://packages.example.test/simple")
    person.tool("needs", '# /// script\n# dependencies = ["nothing"]\n# ///\nprint(1)\n')
    said = person("build", "needs")
    assert said.code == 3 and "packages.example.test" in said.err and "--yes" in said.err


def test_retire_and_restore(person):
    person.greet()
    assert person("activate", "greet", "--yes").code == 0
    assert person("retire", "greet").code == 0
    assert person.active() == set() and person.codes() == {"greet": "retired"}
    said = person.forge("call", "greet")
    assert said.code == 4 and "retired" in said.err
    assert person("run", "greet").code == 4 and person("activate", "greet", "--yes").code == 1
    said = person("restore", "greet")
    assert said.code == 0 and "tool 'greet' is active" in said.out
    assert person.active() == {"greet"}
    assert "was not retired" in person("restore", "greet").out
    assert person("retire", "gret").code == 4


def test_a_shadow_waits_and_then_replaces(person):
    person.tool("read_file", "print('mine')\n")
    assert person.codes() == {"read_file": "shadow_pending"}
    told = person("show", "read_file", "--json").json
    assert told["source"] == "native" and told["waiting"]["state"] == "draft"
    said = person("activate", "read_file", "--yes")
    assert said.code == 0 and "replaces the built-in tool 'read_file'" in said.err
    assert person.active() == {"read_file"} and person("show", "read_file", "--json").json["source"] == "custom"


def test_run_takes_arguments_like_call(person):
    person.greet()
    said = person("run", "greet", "--who=Ada", "--yes")
    assert (said.code, said.out) == (0, "Hello Ada\n") and "user tool 'greet'" in said.err
    assert person.book.find_trust("greet", _digest(person)).who == BY_FLAG
    said = person("run", "greet", "--args-json", '{"who": "Bob"}', "--yes", "--json")
    assert said.code == 0 and said.json["value"]["stdout"] == "Hello Bob\n"
    said = person("run", "greet", "--whom=Ada", "--yes")
    assert said.code == 2 and "whom" in said.err
    said = person("run", "greet")
    assert said.code == 3, "an active tool asks for its calls like any other"


def test_yes_does_not_answer_for_what_the_tool_calls(person):
    source = 'forge call greet --who=Ada; echo "ended with $?"\n'
    person.greet()
    person.tool("outer", source, file="outer.sh", calls=["greet"])
    assert person("activate", "greet", "--yes").code == 0
    said = person("run", "outer", "--yes")
    assert "ended with 3" in said.out and "Hello Ada" not in said.out


def test_debug_runs_the_source(person):
    person.tool("dev", "import sys\nprint(sys.flags.dev_mode)\n")
    person.tool("traced", "echo hello\n", file="traced.sh")
    assert person("activate", "dev", "traced", "--yes").code == 0
    assert person("run", "dev", "--yes").out == "False\n"
    assert person("run", "--debug", "dev", "--yes").out == "True\n"
    value = person("run", "--debug", "traced", "--yes", "--json").json["value"]
    assert value["stdout"] == "hello\n" and "+ echo hello" in value["stderr"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "httpx\n"),
        ("requirements-dev.txt", "httpx\n"),
        ("pyproject.toml", '[project]\ndependencies = ["httpx"]\n'),
        ("pyproject.toml", '[tool.poetry.dependencies]\nhttpx = "*"\n'),
    ],
)
def test_packages_named_where_nothing_reads_them(person, file, text):
    """PEP 723 is the only way, and whoever tries another one is told so."""
    (person.tool("fetch", "import httpx_that_is_nowhere\n") / file).write_text(text)
    assert f"forge tools: warning: fetch: {unread(file)}\n" in person("doctor").err


def test_packages_that_nothing_reads_are_told_at_the_build_on_the_card_and_when_it_fails(person):
    folder, said = person.tool("fetch", "import httpx_that_is_nowhere\n"), unread("requirements.txt")
    (folder / "requirements.txt").write_text("httpx\n")
    assert f"forge tools: warning: fetch: {said}\n" in person("build", "fetch").err
    assert f"warning: {said}\n" in person("activate", "fetch", "--yes").err
    failed = person.forge("call", "fetch", "--approval", "approve_all")
    assert failed.code == 1 and said in failed.out
    (folder / "fetch.py").write_text("# /// script\n# dependencies = []\n# ///\nprint('ran')\n")
    assert said not in person("activate", "fetch", "--yes").err, "the script says it itself"


def unread(file: str) -> str:
    return f"{file} is not read; name the packages in a `# /// script` block at the top of fetch.py (PEP 723)."


def test_a_project_file_that_names_no_packages_is_no_matter(person):
    folder = person.tool("plain", "print('ran')\n")
    (folder / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert "PEP 723" not in person("build", "plain").err


async def test_whoever_waits_for_a_build_hears_every_second_that_it_goes_on(person, monkeypatch):
    person.tool("slow", "print('ran')\n")
    workshop = open_workshop()
    heard: list[tuple[str, int | None]] = []
    build = Builder.build

    async def build_slowly(self, *about, report, **more):
        report("compiling \u2026")
        while heard[-1][1] == 0:
            await asyncio.sleep(0.05)
        return await build(self, *about, **more)

    monkeypatch.setattr(Builder, "build", build_slowly)
    ready = await make_ready(workshop, workshop.registry.entries["slow"], lambda *step: heard.append(step))
    assert ready.prepared is not None
    assert [text for text, _ in heard] == ["compiling \u2026"] * len(heard)
    begins, *counted, ends = (seconds for _, seconds in heard)
    assert (begins, ends) == (0, None) and counted[0] >= 1
    assert len(asyncio.all_tasks()) == 1, "nothing counts on"


def test_a_build_is_told_in_lines_and_counted_on_a_terminal(capsys, monkeypatch):
    lines: list[str] = []
    told = report_lines(lines.append)
    for seconds in (0, 1, 9, 11, 12, 20, 21, None):
        told("compiling \u2026", seconds)
    told("linking \u2026", 0)
    assert lines == ["compiling \u2026", "compiling \u2026 (11 s)", "compiling \u2026 (21 s)", "linking \u2026"]

    assert step_drawer() is None, "no terminal: lines"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    draw = step_drawer()
    for seconds in (0, 41, None):
        draw("compiling what it uses of Go's standard library", seconds)
    first, counted, end = capsys.readouterr().err.removeprefix("\r\x1b[K").split("\r\x1b[K")
    assert first.startswith("compiling what it uses") and len(first) < 40
    assert counted.endswith("\u2026 41 s") and len(counted) < 40
    assert end == "", "the line is gone"


@pytest.mark.parametrize("how", ["changed", "more", "emptied"])
def test_a_stored_copy_that_somebody_changed_is_not_run_and_that_is_told_once(person, how):
    person.tool("greet", "echo good\n", file="greet.sh")
    assert person("activate", "greet", "--yes").code == 0
    [stored] = (person.forge_home / "store").glob("*/greet.sh")
    stored.parent.chmod(0o700)
    stored.chmod(0o600)
    if how == "changed":
        stored.write_text("echo evil\n")
    elif how == "more":
        (stored.parent / "argparse.py").write_text("evil\n")
    else:
        for each in stored.parent.iterdir():
            each.unlink()
    call = ("call", "greet", "--approval", "approve_all")
    first, second = person.forge(*call), person.forge(*call)
    assert (first.code, first.out, second.out, second.err) == (0, "good\n", "good\n", "")
    assert first.err.startswith("forge: warning: the stored copy of tool 'greet' was changed outside of Forge")


def test_call_is_made_by_the_entry_worker(person, tmp_path):
    person.greet()
    assert person("activate", "greet", "--yes").code == 0
    worker = tmp_path / "project" / "main.worker"
    worker.write_text("---\nname: clerk\ndescription: d\ntoolsets:\n  filesystem: {}\n---\nGo.\n")
    said = person.forge("call", "greet", "--approval", "approve_all")
    assert said.code == 4, "a worker without the block sees none of them"
    worker.write_text("---\nname: clerk\ndescription: d\ntoolsets:\n  user_tools: {tools: ['gr*']}\n---\nGo.\n")
    said = person.forge("call", "greet", "--approval", "approve_all")
    assert (said.code, said.out) == (0, "Hello nobody\n")
    assert person("run", "greet", "--yes").out == "Hello nobody\n", "one's own tools run wherever one is"


def test_unknown_names_do_nothing_by_halves(person):
    person.greet()
    for verb in ("activate", "build", "test", "retire", "remove"):
        words = ["greet", "gret", *(["--yes"] if verb != "retire" and verb != "build" else [])]
        said = person(verb, *words)
        assert said.code == 4 and "did you mean 'greet'?" in said.err, verb
    assert person.codes() == {"greet": "untrusted"}
    person.tool("bad", timeout="soon")
    said = person("activate", "bad")
    assert said.code == 4 and "manifest_invalid" in said.err


def _digest(person: Person) -> str:
    return person("show", "greet", "--json").json["digest"]
