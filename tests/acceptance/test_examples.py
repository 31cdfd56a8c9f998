"""The examples that a stranger copies: each works after `cp -r`, with the commands of its README and without a key."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.deadlines import WHOLE
from tests.ui.terminal.screen import Terminal

EXAMPLES = Path(__file__).parents[2] / "examples"
COPIED = ("reviewer", "analyst", "runbook", "research", "recipes")


@pytest.fixture
def copied(tmp_path: Path, ready_forge: Any) -> Callable[[str], Any]:
    """`copied("runbook")` is `cp -r`; `.forge("call", …)` runs the command there; `.trust()` trusts the program."""

    def copy(name: str) -> Any:
        root = tmp_path / name
        shutil.copytree(EXAMPLES / name, root, ignore=shutil.ignore_patterns("__pycache__"))
        environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}

        def forge(*words: str) -> subprocess.CompletedProcess[str]:
            return ready_forge(*words, cwd=root, env=environ)

        def trust() -> None:
            assert forge("trust", "--yes").returncode == 0

        def terminal() -> Terminal:
            spawn = ready_forge.on_a_terminal
            return Terminal(("forge", "run"), cwd=root, env=environ, columns=110, rows=60, spawn=spawn)

        return SimpleNamespace(root=root, environ=environ, forge=forge, trust=trust, terminal=terminal)

    return copy


@pytest.mark.parametrize("name", COPIED)
def test_a_readme_says_in_thirty_lines_how_to_copy_run_and_what_one_sees(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    assert len(text.splitlines()) <= 30
    for told in (f"cp -r examples/{name} ", "forge trust", "You need no key", "With a key", "You see"):
        assert told in text or told.lower() in text, told
    assert f"[{name}/]({name}/README.md)" in (EXAMPLES / "README.md").read_text()


def test_the_page_of_recipes_quotes_the_examples() -> None:
    page = (EXAMPLES.parent / "docs" / "guides" / "recipes.md").read_text()
    quoted = re.findall(r"<!-- from examples/(\S+) -->\n```\w+\n(.*?)```", page, re.DOTALL)
    assert len(quoted) == page.count("```") // 2
    for name, text in quoted:
        assert text in (EXAMPLES / name).read_text(), name


# ---- reviewer


def workflow() -> dict[str, Any]:
    read: dict[str, Any] = YAML(typ="safe").load(EXAMPLES / "reviewer" / "review.yml")
    return read


def step_of_the_workflow() -> str:
    """The commands of review.yml that run the review, as GitHub runs them."""
    [step] = [step for step in workflow()["jobs"]["review"]["steps"] if step.get("name") == "review"]
    return str(step["run"])


def run_the_workflow(example: Any, ready_forge: Any, commands: str) -> subprocess.CompletedProcess[str]:
    programs = example.root.parent / "programs"
    programs.mkdir()
    (programs / "forge").symlink_to(ready_forge.forge)
    environ = example.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=example.root.parent,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WHOLE,
    )


def test_the_workflow_fails_a_change_that_breaks_a_test(copied: Callable[[str], Any], ready_forge: Any) -> None:
    example = copied("reviewer")

    ran = run_the_workflow(example, ready_forge, step_of_the_workflow())

    assert ran.returncode == 1, ran.stderr
    assert "::error file=prices.py,line=11::An order of exactly 50 euros pays" in ran.stdout
    assert ran.stdout.endswith("verdict: request changes\n")
    events = [json.loads(line) for line in (example.root.parent / "review.jsonl").read_text().splitlines()]
    ended = [event["data"] for event in events if event["type"] == "toolResult"]
    assert [(data["toolName"], data["status"]) for data in ended] == [
        ("read_file", "success"),
        ("exec_command", "execution_failed"),  # the test that fails
        ("exec_command", "approval_denied"),  # the download: nobody is there to ask
        ("tester", "success"),
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (("request_changes", "approve"), 0, "verdict: approve"),
        (("--max-cost 0.50", "--max-cost 0.001"), 4, "budget"),
    ],
)
def test_the_workflow_ends_with_the_code_of_the_review(
    copied: Callable[[str], Any], ready_forge: Any, change: tuple[str, str], code: int, told: str
) -> None:
    example = copied("reviewer")
    script = example.root / "scripts" / "review.yaml"
    script.write_text(script.read_text().replace(*change))

    ran = run_the_workflow(example, ready_forge, step_of_the_workflow().replace(*change))

    assert ran.returncode == code, ran.stdout + ran.stderr
    assert told in ran.stdout + ran.stderr


def test_the_workflow_takes_the_reviewer_from_the_base_branch_and_holds_no_token() -> None:
    first, *_ = steps = workflow()["jobs"]["review"]["steps"]
    assert first["with"]["ref"] == "${{ github.base_ref }}"
    assert workflow()["permissions"] == {"contents": "read"}
    assert all(not step["with"]["persist-credentials"] for step in steps if "uses" in step)
    assert [step for step in steps if "SECRET" in str(step).upper()] == [steps[-1]], "one step has the key"


@pytest.fixture
def gate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gate", EXAMPLES / "reviewer" / "gate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_finding_cannot_give_orders_to_the_workflow(
    gate: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = {"file": "a.py,line=2::x\n::add-mask::b", "line": 1, "problem": "bad\r\n::set-output name=a::b"}
    review = {"verdict": "approve", "findings": [finding]}
    (tmp_path / "r").write_text(json.dumps({"type": "runResult", "data": {"response": json.dumps(review)}}) + "\n")

    assert gate.main(tmp_path / "r") == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].count("::") == 2 and lines[1] == "verdict: approve"


@pytest.mark.parametrize(
    "text", ["", "no json\n", '{"data": {"response": "no json"}}\n', '{"data": {"success": false}}\n']
)
def test_without_a_verdict_the_gate_stays_shut(gate: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "r").write_text(text)
    assert gate.main(tmp_path / "r") == 2


# ---- analyst


@pytest.mark.long
def test_the_analyst_makes_a_tool_that_stays(copied: Callable[[str], Any]) -> None:
    example = copied("analyst")
    example.trust()
    with example.terminal() as terminal:
        terminal.wait_for("analyst on scripted")
        terminal.settle()
        terminal.enter("Which region sold most?")
        approve(terminal, "create_custom_tool")
        approve(terminal, "sum-by")
        terminal.wait_for("South sold most: 500 of 800")
        terminal.settle()
        terminal.enter("And by month?")
        approve(terminal, "sum-by")
        terminal.wait_for("August was best with 290")
        terminal.settle()
        terminal.enter("/exit")
        assert terminal.wait_end() == 0
    words = ("tools", "run", "sum-by", "--file", "/data/sales.csv", "--column", "item")
    again = example.forge(*words, "--approval", "approve_all")
    assert (again.returncode, again.stdout) == (0, "mug\t510\nplate\t290\n"), again.stderr


def approve(terminal: Terminal, tool: str) -> None:
    terminal.wait_for(re.compile(rf"^{tool}: .*Approve\? \[y/N\]", re.MULTILINE), anywhere=False)
    terminal.settle(0.05)
    terminal.send("y")
    terminal.wait_for(re.compile(rf"^[✓✗] {tool}", re.MULTILINE))


# ---- runbook


@pytest.mark.long
def test_only_a_person_acts_on_the_runbook(copied: Callable[[str], Any]) -> None:
    example = copied("runbook")
    example.trust()
    with example.terminal() as terminal:
        terminal.wait_for("operator on scripted")
        terminal.settle()
        terminal.enter("What is wrong?")
        terminal.wait_for('✗ restart service="web" - tool_not_found')
        terminal.wait_for("That is for you to do: /restart --service web")
        terminal.settle()
        assert state(example.root) == {"web": "down", "database": "running"}
        terminal.enter("/restart --service web")
        terminal.wait_for("✓ restart")
        terminal.settle()
        terminal.enter("Is it better?")
        terminal.wait_for("Both services run again.")
        terminal.settle()
        terminal.enter("/exit")
        assert terminal.wait_end() == 0
    assert state(example.root) == {"web": "running", "database": "running"}


def test_the_runbook_without_a_conversation(copied: Callable[[str], Any]) -> None:
    example = copied("runbook")
    example.trust()
    assert example.forge("call", "restart", "--service", "web").stdout == "web: running\n"
    assert json.loads(example.forge("call", "services").stdout) == {"web": "running", "database": "running"}
    moved = example.forge("call", "fail_over", "--region", "south")
    assert moved.returncode == 3 and "approval_denied" in moved.stderr
    assert state(example.root) == {"web": "running", "database": "running"}


def state(root: Path) -> dict[str, str]:
    services = json.loads((root / "state" / "services.json").read_text())
    return {name: service["state"] for name, service in services.items()}


# ---- research


def test_research_over_a_server_that_may_do_more_than_the_worker(copied: Callable[[str], Any]) -> None:
    example = copied("research")
    example.trust()
    card = example.forge("mcp", "approve", "papers", "--yes")
    assert card.returncode == 0 and "zone: /library (read-only)" in card.stdout + card.stderr

    ran = example.forge("run", "Does coffee in the evening hurt?")

    assert ran.returncode == 0 and ran.stdout.startswith("No coffee in the six hours before bed"), ran.stderr
    assert "policy_denied: 'papers__remove' is blocked by policy (" in ran.stderr
    assert "(coffee-and-sleep)" in (example.root / "notes" / "coffee.md").read_text()
    assert (example.root / "library" / "coffee-and-sleep.md").exists()
    hidden = example.forge("call", "papers__publish", "--name", "decaf", "--approval", "approve_all")
    assert hidden.returncode == 4, hidden.stderr
    stays = example.forge("call", "papers__remove", "--name", "decaf", "--approval", "approve_all")
    assert stays.returncode == 3, stays.stderr


# ---- all of them


def test_nothing_in_an_example_is_of_this_machine() -> None:
    for path in EXAMPLES.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            assert str(EXAMPLES.parent) not in path.read_text(), path
            assert sys.prefix not in path.read_text(), path
