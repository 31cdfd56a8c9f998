"""A person's own tools, as folders and as an agent makes them: custom-tools.md §19, cases 1–19 and 42.

Case 11, that unchanged tools are not opened: tests/usertools/test_registry.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.user_tools import Bench, card_text, diagnosis, offered, parameter, run, yaml_of

from golem_forge.usertools.diagnostics import DiagnosticCode

TYPES = "string, number, integer, boolean, array, object"
GIT_SUMMARIZE = """\
name: git-summarize
description: Summarizes git commit history for a given time period
version: 1.0.0
entrypoint: git-summarize.sh
usage: |
  Pass --since and --until as CLI args for simple usage.
  For complex filtering, create a config.json and pass --config=/path/to/config.json
parameters:
  - name: since
    type: string
    required: false
    description: Start date for commit range
  - name: until
    type: string
    required: false
    description: End date for commit range
  - name: config
    type: string
    required: false
    description: Path to JSON config file for complex filtering
"""
USAGE = (
    "Pass --since and --until as CLI args for simple usage.\n"
    "For complex filtering, create a config.json and pass --config=/path/to/config.json\n"
)
SUMMARIZES = "Summarizes git commit history for a given time period"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def definitions(session: Any) -> dict[str, dict[str, Any]]:
    """What a model is sent, by name."""
    session.refresh()
    return {each["name"]: each for each in session.catalog.definitions("mcp")}


# ---- manifest and registry


async def test_c01_the_original_format_loads_unchanged_and_survives_saving(bench: Bench) -> None:
    bench.tool("git-summarize", 'echo "$@"\n', files={"tool.yaml": GIT_SUMMARIZE})
    async with bench.session() as session:
        assert (await run(session, "git-summarize", {"since": "2020-01-01"})).text == "--since=2020-01-01\n"
        loaded = definitions(session)["git-summarize"]
        assert loaded["description"] == f"{SUMMARIZES}\n\n{USAGE}"
        assert list(loaded["inputSchema"]["properties"]) == ["since", "until", "config"]
        assert loaded["inputSchema"].get("required", []) == []
        assert loaded["inputSchema"]["additionalProperties"] is False
        assert loaded["inputSchema"]["properties"]["until"]["description"] == "End date for commit range"

        # saved by Forge: what is asked for is written as YAML and read back
        words = [{**parameter(name), "description": f'{name}: "quoted" # no comment'} for name in ("since", "until")]
        saved = {"name": "saved", "description": "1.10", "usage": f"{USAGE}\n  indented\n", "version": "007"}
        asked = {**saved, "language": "shell", "source": 'echo "$@"\n', "parameters": words}
        made = await session.call("create_custom_tool", {**asked, "tests": [{"expect": {"stdout": "\n"}}]})
        assert made.ok, made.text
        assert (await run(session, "saved")).ok
        again = definitions(session)["saved"]
        assert again["description"] == f"1.10\n\n{USAGE}\n  indented\n"
        assert [(name, one["description"]) for name, one in again["inputSchema"]["properties"].items()] == [
            (one["name"], one["description"]) for one in words
        ]


async def test_c01_scalars_of_text_keys_are_read_as_written(bench: Bench) -> None:
    texts = ["007", "1.10", "true", "null", "1e5", "~", "2020-01-01", "0x1F"]
    lines = ("name: odd", "description: 2020-01-01", "version: 1.10", "entrypoint: odd.sh", "arguments: stdin-json")
    word = f"{{name: a, type: string, description: yes, default: 007, enum: [{', '.join(texts)}]}}"
    tests = "tests:\n  - {arguments: {a: 1.10}, expect: {json: {a: '1.10'}}}\n"
    bench.tool("odd", "cat\n", files={"tool.yaml": "\n".join((*lines, "parameters:", f"  - {word}", tests))})
    async with bench.session() as session:
        assert (await run(session, "odd")).text == '{"a":"007"}\n'
        assert (await run(session, "odd", {"a": "~"})).text == '{"a":"~"}\n'
        told = definitions(session)["odd"]
        assert told["description"] == "2020-01-01"
        assert told["inputSchema"]["properties"]["a"] == {
            "type": "string",
            "description": "yes",
            "enum": texts,
            "default": "007",
        }


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no-version": ({"without": "version"}, "version: missing required key"),
    "empty-version": ({"version": ""}, "version: must not be empty"),
    "unknown-type": (
        {"parameters": [parameter("a"), parameter("b", "invalid")]},
        f"parameters[1].type: must be one of {TYPES}",
    ),
    "no-description": ({"parameters": [{"name": "a", "type": "string"}]}, "parameters[0].description"),
    "twice": ({"parameters": [parameter("ab"), parameter("AB")]}, "parameters[1].name"),
    "short-timeout": ({"timeout": 0.05}, "timeout: "),
    "preload": ({"env": ["LD_PRELOAD"]}, "env[0]: 'LD_PRELOAD'"),
    "own-approval": ({"needs_approval": False}, "unknown key 'needs_approval'"),
    "hasty": ({"timout": 5}, "unknown key 'timout' (did you mean 'timeout'?)"),
    "deeper": (
        {"parameters": [parameter("a", requird=True)]},
        "parameters[0]: unknown key 'requird' (did you mean 'required'?)",
    ),
}
"""Every rule: tests/usertools/manifest/test_tool_yaml_reading.py."""


async def test_c02_to_c04_what_is_wrong_is_said_by_its_place_and_a_neighbour_loads(bench: Bench) -> None:
    for name, (keys, _) in FAULTS.items():
        bench.tool(name, **keys)
    bench.tool("fine", "echo fine\n")
    async with bench.session() as session:
        said = diagnosis(session)
        for name, (_, words) in FAULTS.items():
            assert said[name].startswith(f"manifest_invalid: tool.yaml: {words}"), (name, said[name])
            refused = await run(session, name)
            assert refused.status == "tool_not_found"
            assert refused.text == f"custom tool '{name}' is not available: {said[name]}"
        assert (await run(session, "fine")).text == "fine\n"


async def test_c05_a_name_that_is_not_its_folders_is_callable_by_neither(bench: Bench) -> None:
    bench.tool("bar", name="foo")
    bench.tool("Baz", name="baz")
    async with bench.session() as session:
        said = diagnosis(session)
        assert said["bar"].startswith("name_mismatch: tool.yaml: name: ") and said["Baz"].startswith("name_mismatch: ")
        for name in ("foo", "bar", "baz", "Baz"):
            for caller in ("llm", "human"):
                assert (await session.call(name, {}, caller=caller)).status == "tool_not_found", name
            assert (await run(session, name)).status == "tool_not_found"
    assert bench.cards == []


async def test_c06_what_is_no_tool_is_no_error_and_one_broken_file_is_one_diagnostic(bench: Bench) -> None:
    bench.tool("fine")
    (bench.tools / "a-file").write_text("just a file")
    (bench.tools / "notes").mkdir()
    (bench.tools / "notes" / "readme.md").write_text("no tool.yaml")
    bench.tool("garbled", files={"tool.yaml": "name: garbled\ndescription: [never\nclosed: }\n"})
    bench.tool("twice", files={"tool.yaml": "name: twice\nversion: 1\nversion: 2\n"})
    bench.tool("anchored", files={"tool.yaml": "name: &n anchored\ndescription: *n\n"})
    async with bench.session() as session:
        said = diagnosis(session)
        assert set(said) == {"fine", "garbled", "twice", "anchored"}  # a new one waits for its owner's yes
        assert said["fine"].startswith("untrusted: ")
        assert said["garbled"].startswith("yaml_invalid: tool.yaml: ")
        [fault] = [each for each in session.user_tools.workshop.registry.diagnostics if each.tool == "garbled"]
        assert fault.line in (2, 3)
        assert (await run(session, "fine")).ok
        assert offered(session) == ["fine"]
    listed = json.loads(bench.forge_here("tools", "list", "--json", "--source", "custom").out)
    assert [each["name"] for each in listed["tools"]] == ["fine"]
    assert [each["tool"] for each in listed["skipped"]] == ["anchored", "garbled", "twice"]


async def test_c07_an_entrypoint_is_a_file_directly_in_the_folder(bench: Bench) -> None:
    outside = {"up": "../evil", "below": "a/b", "here": ".", "above": "..", "absolute": "/bin/ls", "dos": "a\\b"}
    for name, entrypoint in outside.items():
        bench.tool(name, files={"tool.yaml": ""}, entrypoint="run.sh")
        (bench.tools / name / "tool.yaml").write_text(
            yaml_of({"name": name, "description": "d", "version": "1", "entrypoint": entrypoint})
        )
    (bench.tools / "below" / "a").mkdir()
    (bench.tools / "below" / "a" / "b").write_text("echo b\n")
    (bench.tools / "evil").write_text("echo evil\n")
    bench.tool("directory", files={"inner/file": "x"})
    (bench.tools / "directory" / "directory.sh").unlink()
    (bench.tools / "directory" / "directory.sh").mkdir()
    (bench.tools / "directory" / "directory.sh" / "x").touch()
    (bench.tool("missing") / "missing.sh").unlink()
    link = bench.tool("linked") / "linked.sh"
    link.unlink()
    link.symlink_to("/bin/ls")
    async with bench.session() as session:
        codes = {name: reason.partition(":")[0] for name, reason in diagnosis(session).items()}
    assert codes == {
        **dict.fromkeys((*outside, "directory"), "entrypoint_invalid"),
        "missing": "entrypoint_missing",
        "linked": "symlink",
    }


async def test_c08_only_a_program_needs_an_exec_bit(bench: Bench) -> None:
    bench.tool("program", "#!/bin/sh\necho ran\n", entrypoint="program")
    bench.tool("runs", "#!/bin/sh\necho ran\n", entrypoint="runs", executable=True)
    bench.tool("shell", "echo ran\n")
    bench.tool("bashed", "#!/bin/bash\nwords=(a ran)\necho ${words[1]}\n")
    bench.python("python", "print('ran')\n")
    bench.tool("no-program", "echo ran\n", entrypoint="no-program", executable=True)
    async with bench.session() as session:
        for name in ("program", "no-program"):
            refused = await run(session, name)
            assert refused.status == "tool_not_found"
            assert refused.text.startswith(f"custom tool '{name}' is not available: not_executable: "), refused.text
        for name in ("runs", "shell", "bashed", "python"):
            assert (await run(session, name)).text == "ran\n", name


async def test_c09_tools_are_listed_by_name_and_definitions_stay_the_same_bytes(bench: Bench) -> None:
    for name in ("zeta", "Beta", "alpha"):
        bench.tool(name, parameters=[parameter("z"), parameter("a", "integer", min=1, max=5)])
    async with bench.session() as session:
        for name in ("zeta", "alpha", "Beta"):
            assert (await run(session, name)).ok
        assert offered(session) == sorted(("zeta", "Beta", "alpha"))
        for shape in ("mcp", "anthropic", "openai"):
            sent = set()
            for _ in range(20):
                session.refresh()
                sent.add(json.dumps(session.catalog.definitions(shape)).encode())
            assert len(sent) == 1
    async with bench.session() as later:  # nor does a new start change them
        later.refresh()
        assert json.dumps(later.catalog.definitions("openai")).encode() in sent


async def test_c10_a_folder_comes_and_goes_without_a_restart(bench: Bench) -> None:
    told: list[Any] = []
    async with bench.session() as session:
        session.bus.on("catalogChanged", lambda event: told.append(event.data))
        bench.tool("first")
        bench.tool("second")
        assert (await run(session, "first")).ok and (await run(session, "second")).ok
        assert offered(session) == ["first", "second"]
        bench.remove("first")
        gone = await run(session, "first")
        assert gone.status == "tool_not_found"
        assert gone.text == "custom tool 'first' not found. Available tools: second"
        assert (await session.call("first", {})).status == "tool_not_found"
        assert offered(session) == ["second"]
        bench.tool("first")  # the same bytes: trusted still
        assert offered(session) == ["first", "second"]
    assert [(each.added, each.removed) for each in told if each.added or each.removed] == [
        (["first"], []),
        (["second"], []),
        ([], ["first"]),
        (["first"], []),
    ]


async def test_c10_a_model_finds_a_tool_on_its_next_turn(desk: Callable[..., Any]) -> None:
    """The whole loop: an agent makes a tool, runs it, and has it under its own name from then on."""

    def turn(tool: str, **args: Any) -> dict[str, Any]:
        return {"calls": [{"tool": tool, "args": args}]}

    tests = [{"name": "greets", "arguments": {"who": "Ada"}, "expect": {"stdout": "Hello --who=Ada\n"}}]
    made = {"name": "greet", "description": "Greets somebody", "language": "shell", "source": 'echo Hello "$@"\n'}
    turns = (
        turn("greet", who="nobody"),
        turn("create_custom_tool", **made, parameters=[parameter("who")], tests=tests),
        turn("run_custom_tool", tool_name="greet", arguments={"who": "Bob"}),
        turn("greet", who="Cy"),
        {"say": "done"},
    )
    place = desk(
        {
            "forge.yaml": "model: scripted:s.yaml\n",
            "main.worker": "---\nname: main\ntoolsets: {user_tools: {create: true}}\n"
            "sandbox: {zones: [{name: workspace}]}\n---\nDo it.\n",
            "s.yaml": json.dumps({"turns": turns}),
        }
    )
    ran = place.forge("run", "--approval", "approve_all", "go")
    assert ran.code == 0, ran.err
    assert [(call.tool, call.status) for call in place.calls()] == [
        ("greet", "tool_not_found"),
        ("create_custom_tool", "success"),
        ("run_custom_tool", "success"),
        ("greet", "success"),
    ]
    assert "Hello --who=Cy" in json.dumps(place.history())


@pytest.mark.usefixtures("without_go")
def test_c12_the_doctor_names_each_fault_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder for each code there is."""
    faults = {
        "yaml_invalid": bench.tool("a-yaml", files={"tool.yaml": "name: ["}),
        "manifest_invalid": bench.tool("a-manifest", timout=1),
        "unreadable": bench.tool("a-unreadable", without="name"),
        "name_mismatch": bench.tool("a-mismatch", name="other"),
        "name_invalid": bench.tool("a b"),
        "name_conflict": bench.tool("twin"),
        "reserved_name": bench.tool("write_stdin"),
        "entrypoint_invalid": bench.tool("a-entry", files={"tool.yaml": ""}),
        "entrypoint_missing": bench.tool("a-missing"),
        "not_executable": bench.tool("a-bit", "#!/bin/sh\n", entrypoint="a-bit"),
        "symlink": bench.tool("a-link"),
        "too_large": bench.tool("a-large", files={f"f{number}": "" for number in range(200)}),
        "toolchain_missing": bench.tool("a-go", "package main\nfunc main() {}\n", entrypoint="a-go.go"),
        "dependencies_unavailable": bench.python(
            "a-script", '# /// script\n# requires-python = ">=4"\n# dependencies = []\n# ///\n'
        ),
        "build_failed": bench.python("a-syntax", "print('never'\n"),
        "tests_failed": bench.tool("a-test", "echo got\n", tests=[{"expect": {"stdout": "wanted\n"}}]),
        "untrusted": bench.tool("a-new"),
        "changed": bench.tool("a-changed"),
        "shadow_pending": bench.tool("list_files"),
        "retired": bench.tool("a-retired", "echo retired\n"),
        "too_many_tools": bench.tool("zzz-last", timout=1),
    }
    bench.tool("Twin", "echo twin\n")
    bench.tool("a-fine", "echo fine\n")
    (faults["unreadable"] / "tool.yaml").unlink()
    (faults["unreadable"] / "tool.yaml").mkdir()
    invalid = {"name": "a-entry", "description": "d", "version": "1", "entrypoint": "../evil"}
    (faults["entrypoint_invalid"] / "tool.yaml").write_text(yaml_of(invalid))
    (faults["entrypoint_missing"] / "a-missing.sh").unlink()
    (faults["symlink"] / "link").symlink_to("/etc/passwd")
    for words, code in {
        ("activate", "a-fine", "Twin", "a-changed", "a-retired", "--yes"): 0,
        ("activate", "a-test", "--yes"): 1,
        ("retire", "a-retired"): 0,
    }.items():
        said = bench.forge_here("tools", *words)
        assert said.code == code, said.err
    (faults["changed"] / "a-changed.sh").write_text("echo other\n")
    monkeypatch.setattr("golem_forge.usertools.registry.MOST_TOOLS", len(list(bench.tools.iterdir())) - 1)
    said = bench.forge_here("tools", "doctor", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)["diagnostics"]
    assert {each["code"]: each["tool"] for each in told} == {code: folder.name for code, folder in faults.items()}
    assert len(told) == len(faults) == len(DiagnosticCode)
    assert all(each["message"] and str(bench.root) not in each["message"] for each in told)
    assert next(each for each in told if each["code"] == "yaml_invalid")["line"] >= 1
    [failed] = [each for each in told if each["code"] == "tests_failed"]
    assert 'expected "wanted\\n", got "got\\n"' in failed["message"]
    names = [each["tool"] for each in told]
    assert names == sorted(names)


# ---- create


def made(bench: Bench, name: str) -> dict[str, Any]:
    """A tool's files as text."""
    return {path.name: path.read_text() for path in (bench.tools / name).iterdir()}


async def test_c13_create_writes_a_manifest_and_a_source_that_runs_once_it_has_a_test(bench: Bench) -> None:
    """What the templates do: tests/usertools/test_create.py."""
    endings = {"": "py", "python": "py", "shell": "sh", "go": "go"}
    async with bench.session() as session:
        for language, ending in endings.items():
            name = f"in_{language or 'default'}"
            asked = {"name": name, "description": f"A test: with a colon, {name}"}
            outcome = await session.call("create_custom_tool", asked | ({"language": language} if language else {}))
            assert outcome.ok, outcome.text
            said = (
                f"Created custom tool '{name}' (draft) in /user_tools/{name}: tool.yaml, {name}.{ending}. Edit the "
                "source, declare parameters and at least one test in tool.yaml, then call run_custom_tool."
            )
            assert outcome.text.startswith(said)
            assert outcome.result.structured == {
                "tool_name": name,
                "version": "1.0.0",
                "source_file": f"{name}.{ending}",
                "state": "draft",
            }
            assert (bench.tools / name).stat().st_mode & 0o777 == 0o700
            files = made(bench, name)
            assert set(files) == {"tool.yaml", f"{name}.{ending}"}
            assert {(bench.tools / name / file).stat().st_mode & 0o777 for file in files} == {0o600}
            lines = files["tool.yaml"].splitlines()
            assert {"version: 1.0.0", f"entrypoint: {name}.{ending}", "parameters: []"} <= set(lines)
            assert f"boolean_flags: {'equals' if ending == 'go' else 'switch'}" in lines
        assert offered(session) == [] and diagnosis(session)["in_python"].startswith("untrusted: ")
        refused = await run(session, "in_python")
        assert refused.status == "execution_failed"
        assert refused.text == "custom tool 'in_python' needs at least one test in tool.yaml before it can be activated"
        manifest = bench.tools / "in_python" / "tool.yaml"
        manifest.write_text(manifest.read_text() + "tests: [{expect: {stdout_matches: .}}]\n")
        outcome = await run(session, "in_python")
        assert outcome.ok and outcome.text, outcome.text
        assert offered(session) == ["in_python"]


@pytest.mark.usefixtures("without_go")
async def test_c13_go_where_there_is_none(bench: Bench) -> None:
    async with bench.session() as session:
        outcome = await session.call("create_custom_tool", {"name": "a", "description": "d", "language": "go"})
        assert outcome.text.endswith(
            "run_custom_tool. Go was not found on this machine; the tool cannot be built here."
        )
        bench.tool("b", "package main\nfunc main() {}\n", entrypoint="b.go")
        refused = await run(session, "b")
        assert refused.text.startswith("custom tool 'b' is not available: toolchain_missing: "), refused.text
        assert refused.status == "tool_not_found"
    assert [card.tool for card in bench.cards] == ["create_custom_tool"]


async def test_c13_a_person_makes_a_tool_that_needs_no_test(bench: Bench) -> None:
    async with bench.session() as session:
        asked = {"name": "mine", "description": "Says mine", "language": "shell", "source": "echo mine\n"}
        assert (await session.call("create_custom_tool", asked, caller="human")).ok
        assert (await session.call("mine", {}, caller="human")).text == "mine\n"
        made, called = bench.cards
        assert "it has no tests" in made.warnings and "echo mine" in made.diff
        assert "echo mine" not in card_text(called), "what was just read is not shown again"


async def test_a_whole_manifest_one_card_and_how_arguments_arrive(bench: Bench) -> None:
    """What was shown when it was made is trusted when it first runs, as long as nobody changed it."""
    out = {**parameter("out", "string"), "path": "write", "required": True}
    loud = {**parameter("loud", "boolean")}
    asked = {
        "name": "stamp",
        "description": "Writes a stamp",
        "language": "shell",
        "source": 'printf stamped > "${1#--out=}"\necho "{\\"n\\": $#}"\n',
        "parameters": [out, loud],
        "tests": [{"arguments": {"out": "/workspace/x"}, "expect": {"json": {"n": 1}}}],
        "zones": {"workspace": "rw"},
        "output": "json",
        "timeout": 5,
    }
    async with bench.session() as session:
        made = await session.call("create_custom_tool", asked)
        assert made.ok and "--out=STRING, --loud or nothing" in made.text and "Call run_custom_tool" in made.text
        manifest = (bench.home / "tools" / "stamp" / "tool.yaml").read_text()
        assert "workspace: rw" in manifest and "output: json" in manifest and "timeout: 5" in manifest
        ran = await run(session, "stamp", {"out": "/workspace/made.txt", "loud": True})
        assert ran.ok and ran.result.structured == {"n": 2}, ran.text
        created, called = bench.cards
        assert any("a yes also trusts these files" in each for each in created.warnings)
        assert "printf stamped" not in card_text(called)
        other = {**asked, "name": "other", "description": "Something else", "source": "echo '{\"n\": 1}'\n"}
        assert (await session.call("create_custom_tool", other)).ok
        source = bench.home / "tools" / "other" / "other.sh"
        source.write_text(source.read_text() + "# edited\n")
        assert (await run(session, "other", {"out": "/workspace/y"})).ok
        assert "# edited" in card_text(bench.cards.last), "somebody changed it since"


async def test_c14_what_is_missing_is_said_and_nothing_is_written(bench: Bench) -> None:
    async with bench.session() as session:
        for given, said in [
            ({}, "name"),
            ({"name": "", "description": "d"}, "name"),
            ({"name": "x", "description": "  "}, "description"),
        ]:
            outcome = await session.call("create_custom_tool", given)
            assert outcome.status == "input_invalid", given
            assert outcome.text == f"create_custom_tool: {said}: missing required parameter", given
        for more, said in [
            ({"parameters": [parameter("a", "invalid")]}, f"parameters[0].type: must be one of {TYPES}"),
            ({"tests": [{"expects": {}}]}, "did you mean 'expect'?"),
            ({"netwrok": True}, "netwrok"),
            ({"zones": {"workspace": "rx"}}, "zones.workspace"),
            ({"tests": [{"arguments": {}}]}, "tests[0].expect: a test says what must come out"),
            ({"tests": [{"arguments": {}, "expect": {"exit_code": 0}}]}, "tests[0].expect"),
            (
                {"parameters": [{**parameter("out", "string"), "path": "write"}]},
                'parameters[0].path: write needs a zone that the tool may write; add zones: {"workspace": "rw"}',
            ),
        ]:
            outcome = await session.call("create_custom_tool", {"name": "x", "description": "d", **more})
            assert outcome.status == "input_invalid" and said in outcome.text, outcome.text
    assert bench.state() == {} and bench.cards == []


async def test_c15_what_exists_is_left_as_it_is(bench: Bench) -> None:
    asked = {"name": "greet", "description": "Greets", "language": "shell", "source": "echo one\n"}
    bench.tool("broken", files={"tool.yaml": "name: ["})
    async with bench.session() as session:
        assert (await session.call("create_custom_tool", asked)).ok
        before, questions = bench.state(), len(bench.cards)
        for name, there in (("greet", "greet"), ("Greet", "greet"), ("broken", "broken")):
            again = await session.call("create_custom_tool", asked | {"name": name, "source": "echo two\n"})
            assert again.status == "input_invalid"
            assert again.text == f"create_custom_tool: tool '{name}' already exists at /user_tools/{there}"
        twin = await session.call("create_custom_tool", asked | {"name": "greet2"})
        assert twin.text == "create_custom_tool: identical to custom tool 'greet'"
    assert bench.state() == before and len(bench.cards) == questions


async def test_c16_names(bench: Bench) -> None:
    """The rule: tests/usertools/test_diagnostics_names.py."""
    async with bench.session() as session:
        for name in ("../a", "a b", "x" * 65, "a\u202eb"):
            outcome = await session.call("create_custom_tool", {"name": name, "description": "d"})
            assert outcome.status == "input_invalid", name
            assert outcome.text.startswith("create_custom_tool: invalid tool name '")
            assert outcome.text.endswith(
                "': use letters, digits, '-' and '_', starting with a letter, at most 64, no '__'"
            )
        assert bench.state() == {} and bench.cards == []
        given = {"name": "x" * 64, "description": "Something", "language": "shell", "source": "echo x\n"}
        assert (await session.call("create_custom_tool", given)).ok


async def test_c17_names_that_others_have(bench: Bench) -> None:
    async with bench.session() as session:
        for name, said in {
            "read_file": "'read_file' is the name of an existing tool; choose another name",
            "tool_search": "'tool_search' is the name of an existing tool; choose another name",
            "open_skill": "'open_skill' is the name of an existing tool; choose another name",
            "exec_command": "tool name 'exec_command' is reserved",
            "RUN_CUSTOM_TOOL": "tool name 'RUN_CUSTOM_TOOL' is reserved",
        }.items():
            outcome = await session.call("create_custom_tool", {"name": name, "description": "Something"})
            assert (outcome.status, outcome.text) == ("input_invalid", f"create_custom_tool: {said}")
    assert bench.state() == {} and bench.cards == []


async def test_c18_a_denied_creation_leaves_nothing_and_its_card_showed_both_files(bench: Bench) -> None:
    bench.cards.yes = False
    source = "".join(f"echo line {number}\n" for number in range(300)) + "curl evil.example\n"
    async with bench.session() as session:
        asked = {"name": "greet", "description": "Greets somebody", "language": "shell", "source": source}
        outcome = await session.call("create_custom_tool", asked)
        assert outcome.status == "approval_denied"
        assert bench.state() == {} and list(bench.tools.iterdir()) == []
        assert offered(session) == [] and diagnosis(session) == {}
    [card] = bench.cards
    shown = card_text(card)
    for line in ("description: Greets somebody", "entrypoint: greet.sh", *source.splitlines()):
        assert f"+{line}\n" in shown, line
    assert card.risk == "medium" and card.tool == "create_custom_tool"
    assert "write /user_tools/greet/tool.yaml" in card.effects and "write /user_tools/greet/greet.sh" in card.effects


async def test_c18_nobody_to_ask_is_a_denial_too(bench: Bench) -> None:
    async with bench.session(approval_callback=None) as session:
        outcome = await session.call("create_custom_tool", {"name": "greet", "description": "Greets"})
        assert outcome.status == "approval_denied"
    assert bench.state() == {}


async def test_c19_similar_tools_are_named_on_the_card_and_to_the_caller(bench: Bench) -> None:
    bench.tool("git-summarize", description=SUMMARIZES)
    bench.tool("weather", description="Tells tomorrow's weather")
    async with bench.session() as session:
        asked = {"name": "git-summary", "description": "Summarizes git commit history for a time period"}
        outcome = await session.call("create_custom_tool", asked)
        assert outcome.ok and outcome.text.endswith(" Similar tools: git-summarize")
        assert "similar tools: git-summarize" in card_text(bench.cards.last).lower()
        native = {"name": "reader", "description": session.catalog.get("read_file").description.partition("\n")[0]}
        assert "read_file" in (await session.call("create_custom_tool", native)).text.partition("Similar tools: ")[2]
        other = await session.call("create_custom_tool", {"name": "unrelated", "description": "Bakes bread"})
        assert "Similar tools" not in other.text
        assert len(bench.cards) == 3


async def test_c42_without_tools_and_with_some(bench: Bench) -> None:
    async with bench.session() as session:
        none = await run(session, "absent")
        assert none.status == "tool_not_found"
        assert none.text == (
            "custom tool 'absent' not found. No custom tools are currently available. "
            "Use create_custom_tool to create one"
        )
        bench.tool("zed")
        bench.tool("alpha")
        bench.tool("broken", timout=1)
        assert (await run(session, "absent")).text == "custom tool 'absent' not found. Available tools: alpha, zed"
        for name in ("", "..", "../zed", "a\0b", "x" * 5000):
            assert (await run(session, name)).status in ("tool_not_found", "input_invalid")
        stray = await session.call("run_custom_tool", {"tool_name": "zed", "who": 1, "count": 2})
        assert stray.status == "input_invalid"
        assert stray.text == 'run_custom_tool: put tool parameters inside "arguments"; unexpected: who, count'
    async with bench.session(toolsets={"user_tools": {"tools": ["z*"], "create": False}}) as narrow:
        assert (await run(narrow, "alpha")).text == "custom tool 'alpha' not found. Available tools: zed"
        assert (await run(narrow, "zed")).ok
        assert (await narrow.call("create_custom_tool", {"name": "x", "description": "d"})).status == "tool_not_found"
