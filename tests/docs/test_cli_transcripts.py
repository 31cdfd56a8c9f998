"""Every transcript in the pages of docs/ is what the commands print."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from golem_forge.cli.main import VERBS

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DOCS = ROOT / "docs"
FORGE = Path(sys.executable).with_name("forge")

_spec = importlib.util.spec_from_file_location("transcripts", HERE / "transcripts.py")
assert _spec and _spec.loader
transcripts = importlib.util.module_from_spec(_spec)
sys.modules["transcripts"] = transcripts
_spec.loader.exec_module(transcripts)


def test_every_verb_is_shown():
    steps = transcripts.steps_of((DOCS / "guides/command-line.md").read_text())
    assert {step.command.split()[1] for step in steps if step.command.startswith("forge ")} >= set(VERBS)


@pytest.mark.parametrize(
    "page",
    [
        "start.md",
        "concepts/zones-and-walls.md",
        "guides/clients.md",
        "guides/command-line.md",
        "guides/development.md",
        "guides/editors.md",
        "guides/mcp.md",
        "guides/programs.md",
        "guides/telemetry.md",
        "guides/user-tools.md",
        "guides/workers.md",
        "guides/write-a-tool.md",
        "reference/tools.md",
        "team.md",
    ],
)
def test_the_page_shows_what_forge_prints(page, tmp_path, ready_forge):
    assert_shown(page, (DOCS / page).read_text(), tmp_path, ready_forge.place)


def test_the_readme_shows_what_forge_prints_of_a_tool_that_stays(tmp_path, ready_forge):
    _, section = (ROOT / "README.md").read_text().split("\n## Tools that stay\n")
    assert_shown("README.md, Tools that stay", section.split("\n## ")[0], tmp_path, ready_forge.place)


def assert_shown(page, text, folder, place):
    steps = transcripts.steps_of(text)
    assert steps
    printed = transcripts.run_steps(steps, folder, FORGE, place)
    wrong = [
        f"{page}:{step.line}: $ {step.command}\n--- the page says\n"
        + "\n".join(step.expected)
        + f"\n--- printed\n{said}"
        for step, said in zip(steps, printed, strict=True)
        if not transcripts.matches(step.expected, said)
    ]
    assert not wrong, "\n\n".join(wrong)


def test_the_forge_that_runs_the_pages_is_the_one_people_have(tmp_path, ready_forge):
    commands = [
        "forge tools show nothing",
        "echo $?",
        """echo hello > a.txt; echo '{"path": "a.txt"}' | forge call read_file --args-json - 2>/dev/null; echo $?""",
        "FORGE_HOME=$PWD/other forge tools list --json | head -1",
    ]
    real = [command.replace("forge ", f"{FORGE} ") for command in commands]
    lines = ["mkdir here && cd here", *commands, "cd .. && rm -r here && mkdir here && cd here", *real]
    _, *printed = transcripts.run_steps(
        [transcripts.Step(1, line, ()) for line in lines], tmp_path, FORGE, ready_forge.place
    )
    assert printed[: len(commands)] == printed[len(commands) + 1 :]
    assert all(printed[: len(commands)])


def test_what_a_command_prints_may_look_like_a_line_of_it():
    page = "```console\n$ cat <<'END'\n> a\n>\n> END\n> a\n$ forge run\n> hello\n```\n"
    assert [(step.command, step.expected) for step in transcripts.steps_of(page)] == [
        ("cat <<'END'\na\n\nEND", ("> a",)),
        ("forge run", ("> hello",)),
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "fits"),
    [
        (("a",), "a\n", True),
        (("a",), "a\nb\n", False),
        (("a…c",), "abbbc\n", True),
        (("a…c",), "ab\nc\n", False),
        (("a", "…", "z"), "a\nb\nc\nz\n", True),
        (("a", "…", "z"), "a\nz\n", True),
        (("…",), "", True),
        ((), "", True),
        ((), "x\n", False),
        (("(a)*",), "(a)*\n", True),
        (("2026-01-01 10:00:00  abcdefabcdef  x  1.5  y",), "2027-02-02 11:11:11  012345678901  x  123.4    y\n", True),
        (("abcdefabcdef  x  1.5  y",), "012345678901  x  1.5 s  y\n", True),
        (("abcdefabcdef  x",), "012345678901  y\n", False),
        (("ok (… ms)",), "ok (1.3 s)\n", True),
        (("status   success in 6.3 ms",), "status   success in 2 min 4 s\n", True),
        (("status   success in 6.3 ms",), "status   success\n", False),
    ],
)
def test_the_checker_itself(expected, printed, fits):
    assert transcripts.matches(expected, printed) is fits
