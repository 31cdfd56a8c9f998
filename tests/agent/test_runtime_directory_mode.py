"""The question once a directory (flow.md §1): who is asked, what is kept, and in which mode the next session starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.machine import NEW_DIRECTORY

from golem_forge.agent.in_force import effective_config, open_rules
from golem_forge.agent.model.scripted import FunctionScript
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.config.run_block import ApprovalMode
from golem_forge.core.errors import ConfigError
from golem_forge.policy.rules.files import remember_mode, remembered_mode, revoke
from golem_forge.policy.rules.load import parse_rules
from golem_forge.policy.rules.model import RuleOrigin
from golem_forge.sandbox.walls.model import Level, ProbeReport
from golem_forge.storage.home import forge_home


@pytest.fixture(autouse=True)
def new_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NEW_DIRECTORY, "1")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


class Asked:
    """A session of a UI that answers the question with `action`."""

    def __init__(self, project: Path, action: str = "accept", level: Level = Level.FULL, **more: Any) -> None:
        model = FunctionScript(lambda request: "done")
        self.runtime = WorkerRuntime(directory=project, model=model, default_mode="chat", **more)
        self.runtime.uses_directory_mode = True
        self.questions: list[dict[str, Any]] = []
        self.detach: Callable[[], None] = self.runtime.ui.attach("terminal")
        self.level = level

        def answer(event: Any) -> None:
            self.questions.append(dict(event.wire))
            data = {"requestId": event.wire["requestId"], "action": action}
            self.runtime.bus.emit("formResponse", data, source="terminal")

        self.runtime.bus.on("formRequired", answer)

    async def start(self) -> ApprovalMode:
        """The mode after the question, where there was one."""
        async with self.runtime as runtime:
            self.config = effective_config(runtime)

            async def report() -> ProbeReport:
                return ProbeReport(level=self.level)

            runtime.walls.report = report  # type: ignore[method-assign]
            await runtime.ask_directory_mode()
            return runtime.controller.mode


async def test_yes_is_kept_for_this_directory_and_the_next_session_starts_so_and_says_so(project: Path) -> None:
    first = Asked(project)
    assert await first.start() is ApprovalMode.CONTAINED
    (question,) = first.questions
    assert question["accept"].startswith("work on its own here; ask before anything leaves")
    assert question["decline"] == "ask before each change"
    second = Asked(project)
    assert await second.start() is ApprovalMode.CONTAINED and not second.questions
    (row,) = [row for row in second.config if row.key == "approval.mode"]
    (line,) = [line for line in open_rules(forge_home(), project).list() if line.rule.origin is RuleOrigin.REMEMBERED]
    assert row.value == "contained" and line.rule.id in row.origin
    assert line.rule.describe().startswith("mode contained") and str(project) in line.rule.scope.describe()
    async with second.runtime as again:
        assert any(line.rule.id in notice and "on its own" in notice for notice in again._ready.remarks)
    assert revoke(forge_home(), [line.rule.id]) == (line.rule.id,)
    third = Asked(project, "decline")
    assert await third.start() is ApprovalMode.INTERACTIVE and len(third.questions) == 1


async def test_no_is_kept_too_and_no_answer_is_asked_again(project: Path) -> None:
    home = forge_home()
    assert await Asked(project, "cancel").start() is ApprovalMode.INTERACTIVE
    assert remembered_mode(home, project) is None
    assert await Asked(project, "decline").start() is ApprovalMode.INTERACTIVE
    assert remembered_mode(home, project).value is ApprovalMode.INTERACTIVE  # type: ignore[union-attr]
    later = Asked(project)
    assert await later.start() is ApprovalMode.INTERACTIVE and not later.questions


@pytest.mark.parametrize("mode", ["interactive", "strict"])
async def test_who_has_said_so_already_is_not_asked(project: Path, own_home: Path, mode: str) -> None:
    by_flag = Asked(project, approval_mode=mode)
    assert await by_flag.start() is ApprovalMode(mode) and not by_flag.questions
    forge_home().ensure()
    forge_home().config.write_text(f"approval: {{mode: {mode}}}\n")
    by_config = Asked(project)
    assert await by_config.start() is ApprovalMode(mode) and not by_config.questions
    assert remembered_mode(forge_home(), project) is None


async def test_without_full_walls_or_with_a_ui_that_may_not_trust_nobody_is_asked(project: Path) -> None:
    for level in (Level.LANDLOCK, Level.NONE, Level.OFF):
        asked = Asked(project, level=level)
        assert await asked.start() is ApprovalMode.INTERACTIVE and not asked.questions
    editor = Asked(project)
    editor.detach()
    editor.runtime.ui.attach("editor", may_trust=False)
    assert await editor.start() is ApprovalMode.INTERACTIVE and not editor.questions


async def test_an_untrusted_program_does_not_answer(project: Path) -> None:
    (project / "forge.yaml").write_text("approval: {mode: contained}\n")
    asked = Asked(project, "decline")
    approvals: list[Any] = []

    def do_not_trust(event: Any) -> None:
        approvals.append(event)
        data = {"requestId": event.wire["requestId"], "approved": False}
        asked.runtime.bus.emit("approvalResponse", data, source="terminal")

    asked.runtime.bus.on("approvalRequired", do_not_trust)
    assert await asked.start() is ApprovalMode.INTERACTIVE and len(asked.questions) == 1


async def test_a_session_that_nobody_talks_to_does_not_use_the_answer(project: Path) -> None:
    remember_mode(forge_home(), project, ApprovalMode.CONTAINED)
    embedded = WorkerRuntime(directory=project, model=FunctionScript(lambda request: "done"))
    async with embedded as runtime:
        assert runtime.controller.mode is ApprovalMode.AUTO_DENY
        await runtime.ask_directory_mode()


def test_a_later_answer_replaces_the_earlier_and_other_directories_stay(project: Path, tmp_path: Path) -> None:
    home = forge_home()
    remember_mode(home, tmp_path, ApprovalMode.INTERACTIVE)
    remember_mode(home, project, ApprovalMode.INTERACTIVE)
    remember_mode(home, project, ApprovalMode.CONTAINED)
    text = home.remembered.read_bytes()
    kept = parse_rules(text, "remembered.yaml", RuleOrigin.REMEMBERED).rules
    assert [(rule.mode, rule.scope.project) for rule in kept] == [
        ("contained", str(project)),
        ("interactive", str(tmp_path)),
    ]
    assert open_rules(home, project).is_empty(), "it is no rule about calls"
    for origin in (RuleOrigin.USER, RuleOrigin.PROJECT):
        with pytest.raises(ConfigError, match=r"approval\.mode"):
            parse_rules(text, "rules.yaml", origin)
