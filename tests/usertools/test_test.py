"""A tool's own tests: every case here is a real process in real walls."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE, ever_longer, within
from tests.tables import table

from golem_forge.core.text import duration
from golem_forge.sandbox.errors import SandboxError
from golem_forge.sandbox.walls.bubblewrap import find_bwrap
from golem_forge.sandbox.walls.model import HostDirectory, Level, ProbeReport
from golem_forge.storage.home import ForgeHome
from golem_forge.usertools import expectations as testing_pattern
from golem_forge.usertools.expectations import CaseResult, expected_got, failed_tests_text, first_difference
from golem_forge.usertools.folder import TOOL_DIR, ProgramKind, ToolEntry, ToolProgram
from golem_forge.usertools.manifest.tool_yaml import read_manifest
from golem_forge.usertools.test import run_tests

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")
FULL = ProbeReport(level=Level.FULL)


@dataclass
class Bench:
    root: Path
    home: ForgeHome = field(init=False)

    def __post_init__(self) -> None:
        self.home = ForgeHome(self.root / "home")

    def entry(self, manifest: str, source: str, suffix: str = ".sh") -> ToolEntry:
        folder = self.root / "tools" / "x"
        folder.mkdir(parents=True, exist_ok=True)
        head = f"name: x\ndescription: A tool.\nversion: 1.2.3\nentrypoint: x{suffix}\n"
        data = (head + textwrap.dedent(manifest)).encode()
        (folder / "tool.yaml").write_bytes(data)
        (folder / f"x{suffix}").write_text(textwrap.dedent(source))
        return ToolEntry(name="x", folder=folder, manifest=read_manifest(data, folder="x"), digest="sha256:0", files=())

    def program(self, entry: ToolEntry) -> Callable[[Level], ToolProgram]:
        shown = [HostDirectory(os.path.realpath(entry.folder), TOOL_DIR)]
        script = f"{TOOL_DIR}/{entry.manifest.entrypoint}"
        if entry.manifest.entrypoint.endswith(".sh"):
            made = ToolProgram(kind=ProgramKind.SHELL, argv=("sh", script), shown=tuple(shown))
        else:
            base = os.path.realpath(sys.base_prefix)
            shown.append(HostDirectory(base, base))
            python = (f"{base}/bin/python3", "-E", "-s", "-S", "-B")
            made = ToolProgram(kind=ProgramKind.PYTHON, argv=python, script=script, shown=tuple(shown))
        return lambda _: made

    async def run(self, manifest: str, source: str, *, suffix: str = ".sh", **options: Any) -> tuple[CaseResult, ...]:
        entry = self.entry(manifest, source, suffix)
        options = {"report": FULL, **options}
        return await run_tests(entry, self.program(entry), home=self.home, **options)

    async def one(self, expect: str, source: str, case: str = "", manifest: str = "", **options: Any) -> CaseResult:
        text = f"{manifest}\ntests:\n  - name: greets\n    arguments: {{}}\n{case}\n    expect: {expect}\n"
        (result,) = await self.run(text, source, **options)
        return result


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


GREET = """
    parameters:
      - {name: name, type: string, description: Who., default: ""}
      - {name: count, type: integer, description: How often.}
    tests:
      - name: greets
        arguments: {name: Ada}
        expect: {stdout: "Hello Ada\\n"}
      - arguments: {name: ""}
        expect: {stdout: "Hello Ada\\n"}
      - name: wrong
        arguments: {count: many}
"""
HELLO = 'for word; do case "$word" in --name=*) echo "Hello ${word#--name=}";; esac; done\n'


CALL = "exec /forge/bin/forge call other --n=1"
CALL_FROM_PYTHON = """
import sys
import forge_tool
try:
    forge_tool.call("other", n=1)
except forge_tool.CallFailed as failed:
    sys.stderr.write(str(failed))
    sys.exit(failed.exit_code)
"""


async def test_one_line_a_case_and_a_summary(bench: Bench) -> None:
    results = await bench.run(GREET, HELLO)
    assert [one.ok for one in results] == [True, False, False]
    good, bad, wrong = (one.line for one in results)
    assert good == f"ok greets ({duration(results[0].duration_ms)})"
    assert bad == 'FAIL test 2: stdout: expected "Hello Ada\\n", got "Hello \\n"'
    assert wrong.startswith("FAIL wrong: arguments: count: ")
    assert failed_tests_text("x", results) == "\n".join(("custom tool 'x' failed its tests: 2 of 3", good, bad, wrong))


async def test_what_can_be_expected(bench: Bench) -> None:
    source = """
        printf '{"a": [1, 2.0, true]}\\n'
        echo careful >&2
        mkdir out dir; printf done > out/made.txt
        cat given.txt deep/er.txt > both.txt
        exit 3
    """
    case = "    files: {given.txt: one, deep/er.txt: two}"
    good = await bench.one(
        "{exit_code: 3, stdout_contains: ['\"a\"', '2.0'], stdout_matches: '^.{2}a', stderr_contains: [careful],"
        " json: {a: [1, 2, true]}, files: {out/made.txt: done, both.txt: onetwo}}",
        source,
        case,
    )
    assert good.ok, good.problems
    bad = await bench.one(
        "{stdout_contains: [b], stdout_matches: '^a', stderr_contains: [reckless], json: {a: [1, 2, 1]},"
        " files: {out/made.txt: undone, none.txt: x, dir: x}}",
        source,
        case,
    )
    assert bad.problems == (
        "exit_code: expected 0, got 3",
        'stdout: expected to contain "b", got "{\\"a\\": [1, 2.0, true]}\\n"',
        'stdout: expected to match "^a", got "{\\"a\\": [1, 2.0, true]}\\n"',
        'stderr: expected to contain "reckless", got "careful\\n"',
        "json: a[2]: expected 1, got true",
        'files: "out/made.txt": expected "undone", got "done"',
        'files: "none.txt" was not written',
        'files: "dir" is not a regular file',
    )


async def test_a_failure_brings_its_reason(bench: Bench) -> None:
    failed = await bench.one("{}", "echo 'no such thing' >&2; exit 2")
    assert failed.problems == ('exit_code: expected 0, got 2, stderr "no such thing"',)
    killed = await bench.one("{}", "kill -KILL $$")
    assert killed.problems == ("exit_code: expected 0, got 137 (SIGKILL)",)
    assert (await bench.one("{exit_code: 137}", "kill -KILL $$")).ok


async def test_json_that_is_none_names_the_place(bench: Bench) -> None:
    result = await bench.one("{json: {}}", "printf '{\"a\": }'")
    assert result.problems[0].startswith("json: stdout is not JSON (line 1, column 7: ")
    result = await bench.one("{json: 1}", "echo NaN")
    assert result.problems[0].startswith("json: stdout is not JSON (NaN is not a JSON number)")
    deep = "i=0; while [ $i -lt 40 ]; do printf '[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[['; i=$((i+1)); done"
    result = await bench.one("{json: 1}", deep)
    assert result.problems[0].startswith("json: ")


async def test_bytes_that_are_no_text_and_escapes_cannot_steer_a_terminal(bench: Bench) -> None:
    result = await bench.one("{stdout: A}", "printf '\\033[2J\\302\\233A'")
    assert result.problems == ('stdout: expected "A", got "\\u001b[2J\\x9bA"',)
    assert result.line.isprintable()
    result = await bench.one("{stdout: A}", "printf '\\377A'")
    assert result.problems == ('stdout: expected "A", got "\\\\xffA"',)
    assert result.stdout is None and result.as_expected


async def test_long_values_are_shown_around_the_first_difference(bench: Bench) -> None:
    result = await bench.one("{stdout: short}", "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done")
    assert len(result.line) < 1000
    text = expected_got("a" * 5000 + "b" + "c" * 5000, "a" * 5000 + "X" + "c" * 5000)
    assert "ab" in text and "aX" in text and "first difference at character 5001" in text
    assert len(text) < 700


@table(
    ("one", "other", "at"),
    [("", "", 0), ("a", "", 0), ("abc", "abd", 2), ("abc", "abcd", 3), ("x" * 999, "x" * 998 + "y", 998)],
)
def test_first_difference(one: str, other: str, at: int) -> None:
    assert first_difference(one, other) == at


async def test_time_is_bounded_for_a_case_and_for_all(bench: Bench) -> None:
    for seconds in ever_longer(1.25):
        with within(seconds):
            result = await bench.one("{}", "echo began >&2; sleep 60", f"    timeout: {seconds}")
        assert not result.as_expected and result.stdout is None
        if "began" in result.problems[0]:
            break
    assert result.problems == (f'timed out after {seconds:g} seconds, stderr "began"',)
    cases = "tests:\n" + "  - {arguments: {}, timeout: 60}\n" * 3
    for seconds in ever_longer(0.4):
        with within(seconds):
            results = await bench.run(cases, "sleep 60", whole_run_s=seconds)
        not_run = f"was not run: all cases together may take {seconds:g} seconds"
        assert [one.problems[0] for one in results[1:]] == [not_run] * 2
        if results[0].problems[0] != not_run:
            break
    assert results[0].problems[0].startswith("timed out after ")


async def test_output_is_bounded(bench: Bench) -> None:
    result = await bench.one("{}", "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done")
    assert result.problems == ("printed more than 1 MiB",)


async def test_a_pattern_that_would_never_end_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing_pattern, "PATTERN_SECONDS", 0.5)
    with within(3):
        result = await bench.one("{stdout_matches: '^(a+)+$'}", "printf %060d 0 | tr 0 a; echo b")
    assert result.problems[0].endswith("but the pattern takes too long on this text; use a simpler one")


async def test_patterns_are_those_of_python(bench: Bench) -> None:
    source = "echo Hello Ada; echo 42"
    assert (await bench.one("{stdout_matches: '(?m)^Hello (?P<who>\\w+)$'}", source)).ok
    assert (await bench.one("{stdout_matches: '42$'}", source)).ok
    assert not (await bench.one("{stdout_matches: '42\\Z'}", source)).ok


async def test_the_environment_is_complete(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-4711")
    source = "printenv | cut -d= -f1 | sort | tr '\\n' ' '; echo; pwd; echo $FORGE_WORKSPACE $FORGE_TOOL_NAME"
    source += " $FORGE_TOOL_DIR $FORGE_TOOL_VERSION $GREETING; printenv CANARY_TOKEN || echo absent"
    source += "; test $FORGE_DEADLINE -ge $(date +%s) && echo later; ls -A"
    result = await bench.one("{}", source, "    env: {GREETING: hi}", "env: [CANARY_TOKEN]")
    assert result.ok, result.problems
    names, *rest = (result.stdout or "").splitlines()
    assert rest == ["/workspace", "/workspace x /forge/tool 1.2.3 hi", "absent", "later"]
    own = {name for name in names.split() if name.startswith(("FORGE_", "GREET", "CANARY"))}
    assert own == {
        *("FORGE_CALL_ID", "FORGE_DEADLINE", "FORGE_SESSION_ID", "FORGE_TOOL_DIR", "FORGE_TOOL_NAME"),
        *("FORGE_TOOL_VERSION", "FORGE_WORKSPACE", "GREETING"),
    }


async def test_walls_are_the_strictest_whatever_the_manifest_asks(bench: Bench) -> None:
    (bench.home.ensure() / "canary").write_text("canary-4711")
    source = f"""
        cat {bench.home.path}/canary 2>/dev/null && echo LEAK
        tail -n +3 /proc/net/dev | grep -v '^ *lo:'
        touch /docs/x /forge/tool/x 2>/dev/null && echo WROTE
        ls /docs 2>/dev/null && echo SEEN
        echo end
    """
    result = await bench.one('{stdout: "end\\n"}', source, manifest="network: true\nzones: {docs: rw, workspace: ro}")
    assert result.ok, result.problems


async def test_each_case_starts_fresh_and_nothing_is_left(bench: Bench) -> None:
    cases = "tests:\n" + "  - {arguments: {}, expect: {stdout: ''}}\n" * 2
    results = await bench.run(cases, "ls -A; touch left; mkdir locked; touch locked/x; chmod 0 locked")
    assert [one.ok for one in results] == [True, True]
    assert os.listdir(bench.home.path / "cache" / "tests") == []


async def test_a_tree_without_end_in_the_workspace_is_removed(bench: Bench) -> None:
    source = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\n"
    (result,) = await bench.run("tests: [{arguments: {}}]", source, suffix=".py")
    assert result.ok, result.problems
    assert os.listdir(bench.home.path / "cache" / "tests") == []


async def test_a_link_in_the_workspace_is_not_followed(bench: Bench) -> None:
    secret = bench.root / "secret"
    secret.write_text("canary-4711")
    source = f"ln -s {secret} out.txt; ln -s {bench.root} dir"
    result = await bench.one("{files: {out.txt: x, dir/secret: y}}", source)
    assert len(result.problems) == 2
    assert "canary-4711" not in result.line
    assert all("cannot be read" in one or "was not written" in one for one in result.problems)


async def test_files_named_like_secrets_are_the_cases_own(bench: Bench) -> None:
    result = await bench.one("{stdout: 'A=1'}", "cat .env", "    files: {.env: A=1}")
    assert result.ok, result.problems


async def test_paths_are_addresses_in_the_workspace(bench: Bench) -> None:
    manifest = """
        parameters:
          - {name: file, type: string, description: Which., path: read}
        tests:
          - {arguments: {file: /workspace/a.txt}, files: {a.txt: one}, expect: {stdout: "one/workspace/a.txt\\n"}}
          - {arguments: {file: a.txt}, files: {a.txt: one}, expect: {stdout: "one/workspace/a.txt\\n"}}
          - {arguments: {file: /docs/a.txt}}
          - {arguments: {file: ../../etc/passwd}}
    """
    results = await bench.run(manifest, 'path=${1#--file=}; cat "$path"; echo "$path"')
    assert [one.ok for one in results] == [True, True, False, False]
    assert results[2].problems == ("arguments: file: No access to '/docs/a.txt'. Zones: /workspace (rw)",)
    assert results[3].problems[0].startswith("arguments: file: ")


async def test_variables_that_decide_what_runs_are_refused(bench: Bench) -> None:
    entry = bench.entry("tests: [{arguments: {}}]", "echo $LD_PRELOAD")
    case = replace(entry.manifest.tests[0], env={"LD_PRELOAD": "/x.so"})
    entry = replace(entry, manifest=replace(entry.manifest, tests=(case,)))
    (result,) = await run_tests(entry, bench.program(entry), home=bench.home, report=FULL)
    assert result.problems[0].startswith("env: LD_PRELOAD cannot be given to a child")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "", "a//b", "a\0b"])
async def test_names_of_files_do_not_leave_the_workspace(bench: Bench, name: str) -> None:
    entry = bench.entry("tests: [{arguments: {}}]", "true")
    for case in (
        replace(entry.manifest.tests[0], files={name: "x"}),
        replace(entry.manifest.tests[0], expect=replace(entry.manifest.tests[0].expect, files={name: "x"})),
    ):
        tried = replace(entry, manifest=replace(entry.manifest, tests=(case,)))
        (result,) = await run_tests(tried, bench.program(tried), home=bench.home, report=FULL)
        assert "is not the name of a file below the workspace" in result.problems[0]


async def test_python_and_standard_input(bench: Bench) -> None:
    manifest = """
        arguments: stdin-json
        parameters: [{name: a, type: string, description: A., required: true}]
        tests: [{arguments: {a: "é"}, expect: {json: {got: {a: "é"}, argv: 1}}}]
    """
    source = "import json, sys\nprint(json.dumps({'got': json.load(sys.stdin), 'argv': len(sys.argv)}))\n"
    (result,) = await bench.run(manifest, source, suffix=".py")
    assert result.ok, result.problems


async def test_a_cancel_ends_the_tree_and_removes_the_workspace(bench: Bench) -> None:
    marker = f"87{os.getpid()}"
    task = asyncio.create_task(bench.one("{}", f"setsid sleep {marker} & sleep {marker}"))
    async with asyncio.timeout(PATIENCE):
        while not _running(marker):
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _running(marker)
    assert os.listdir(bench.home.path / "cache" / "tests") == []


def _running(marker: str) -> bool:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path("/proc", name, "cmdline").read_bytes() == b"sleep\0" + marker.encode() + b"\0":
                return True
        except OSError:
            continue
    return False


async def test_walls_that_cannot_be_built_are_not_a_failing_test(bench: Bench) -> None:
    with pytest.raises(SandboxError) as refused:
        await bench.one("{}", "true", report=ProbeReport(level=Level.LANDLOCK))
    assert refused.value.code == "WALLS_UNAVAILABLE"


@pytest.mark.parametrize(("suffix", "source"), [(".sh", CALL), (".py", CALL_FROM_PYTHON)])
async def test_no_tool_can_be_called_from_a_test(bench: Bench, suffix: str, source: str) -> None:
    expect = '{exit_code: 3, stderr_contains: ["tools cannot be called from a test"]}'
    result = await bench.one(expect, source, manifest="calls: [other]", suffix=suffix)
    assert result.ok, result.problems


@pytest.mark.parametrize(
    "call",
    ['{"name": "other", "arguments": {}, "status": []}', '{"name": "other", "arguments": {}, "status": {"a": 1}}', "7"],
)
async def test_a_recording_that_is_none_fails_its_case_alone(bench: Bench, call: str) -> None:
    manifest = "calls: [other]\ntests:\n  - {calls: told.json}\n  - {expect: {stdout: ''}}\n"
    entry = bench.entry(manifest, "true")
    (entry.folder / "told.json").write_text(f'{{"calls": [{call}]}}')
    spoilt, sound = await run_tests(entry, bench.program(entry), home=bench.home, report=FULL)
    assert "told.json: a recorded call has" in spoilt.line
    assert sound.ok, sound.problems


async def test_without_calls_there_is_no_way_to_call(bench: Bench) -> None:
    result = await bench.one('{stdout: "none\\n"}', "echo ${FORGE_SOCKET:-none}${FORGE_CALL_TOKEN}; ! forge")
    assert result.ok, result.problems
