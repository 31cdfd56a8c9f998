"""Settings on a page: every value with its origin, usage and budget, and the one that can be changed: the mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge import tool
from golem_forge.core.decisions import Status
from golem_forge.storage.home import ForgeHome

pytest_plugins = ("tests.ui.web.asking",)
WRITE = {"path": "/workspace/a.txt", "content": "x"}


async def test_settings_show_how_the_session_runs_and_where_each_value_comes_from(
    sessions: Any, forge_home: ForgeHome
) -> None:
    forge_home.config.write_text("approval: {timeout: 30}\n")
    asked = await sessions(program={"budget": {"max_tokens": 5000}})
    await asked.runtime.turn("Hello")
    shown = await asked.get("settings")
    rows = {each["key"]: each for each in shown["config"]}
    assert rows["budget.max_tokens"]["value"] == "5000"
    assert rows["approval.timeout"]["origin"].endswith("config.yaml:1")
    assert rows["approval.default"]["origin"] == "default"
    assert (shown["worker"], shown["approvalMode"], shown["pending"]) == ("main", "interactive", 0)
    assert {each["mode"] for each in shown["modes"]} == {
        *("interactive", "strict", "contained", "plan", "approve_all", "auto_deny")
    }
    assert shown["zones"] == [{"name": "workspace", "mode": "rw"}]
    budget = {each["limit"]: each for each in shown["budget"]}
    assert budget["max_tokens"]["allowed"] == 5000 and budget["max_tokens"]["used"] > 0
    assert budget["max_cost_usd"]["allowed"] is None and budget["max_requests"]["used"] == 1
    assert shown["usage"]["requests"] == 1 and shown["context"]["used"] > 0
    assert shown["walls"] is None, "nothing was started"
    report = await asked.runtime.walls.report()
    assert (await asked.get("settings"))["walls"]["level"] == report.to_wire()["level"]


async def test_another_mode_holds_from_the_next_call_on_for_every_worker_and_is_told_to_everybody(
    sessions: Any, project: Path
) -> None:
    (project / "b.txt").write_text("b")
    asked = await sessions()
    asked.answer = {"approved": False}
    assert (await asked.call("read_file", path="/workspace/b.txt")).status is Status.SUCCESS
    assert (await asked.call("write_file", **WRITE)).status is Status.APPROVAL_DENIED and len(asked.cards) == 1

    changed = await asked.ask("PATCH", "settings", {"approvalMode": "approve_all"})
    assert changed["approvalMode"] == "approve_all"
    assert (await asked.call("write_file", **WRITE)).status is Status.SUCCESS and len(asked.cards) == 1
    await asked.ask("PATCH", "settings", {"approvalMode": "strict"})
    assert (await asked.call("read_file", path="/workspace/b.txt")).status is Status.APPROVAL_DENIED
    assert len(asked.cards) == 2, "strict asks before every effect"
    await asked.ask("PATCH", "settings", {"approvalMode": "auto_deny"})
    denied = await asked.call("write_file", **WRITE)
    assert denied.status is Status.APPROVAL_DENIED and "Auto-deny" in str(denied.error) and len(asked.cards) == 2
    assert (await asked.call("read_file", path="/workspace/b.txt")).status is Status.SUCCESS

    told = [each for each in asked.said("status") if each.get("code") == "APPROVAL_MODE"]
    assert [each["type"] for each in told] == ["warning", "info", "info"]
    assert told[0]["message"] == "Approval mode: approve_all (was interactive), set in browser."
    await asked.ask("PATCH", "settings", {"approvalMode": "auto_deny"})
    assert len([each for each in asked.said("status") if each.get("code") == "APPROVAL_MODE"]) == 3, "no change"


async def test_blocked_stays_blocked_whatever_the_page_chooses(sessions: Any) -> None:
    ran: list[str] = []

    @tool
    def push() -> str:
        """Push it."""
        ran.append("push")
        return "done"

    asked = await sessions(tools=[push], program={"approval": {"tools": {"push": "blocked"}}})
    for mode in ("approve_all", "interactive", "strict", "auto_deny"):
        await asked.ask("PATCH", "settings", {"approvalMode": mode})
        assert (await asked.call("push")).status is Status.POLICY_DENIED
    assert ran == [] and asked.cards == []


async def test_a_call_that_is_judged_at_once_is_judged_anew_in_another_mode(sessions: Any) -> None:
    """What a judge remembers of tools whose verdict never changes must not outlive the mode."""
    ran: list[str] = []

    @tool(needs_approval=False)
    def count() -> str:
        """Count."""
        ran.append("count")
        return "1"

    asked = await sessions(tools=[count])
    asked.answer = {"approved": False}
    assert (await asked.call("count")).status is Status.SUCCESS
    await asked.ask("PATCH", "settings", {"approvalMode": "strict"})
    assert (await asked.call("count")).status is Status.APPROVAL_DENIED
    await asked.ask("PATCH", "settings", {"approvalMode": "interactive"})
    assert (await asked.call("count")).status is Status.SUCCESS
    assert ran == ["count", "count"]


@pytest.mark.parametrize("body", [{"approvalMode": "yolo"}, {}, {"approvalMode": "strict", "model": "x"}, []])
async def test_what_cannot_be_set_is_refused_and_changes_nothing(sessions: Any, body: Any) -> None:
    asked = await sessions()
    await asked.ask("PATCH", "settings", body, status=422)
    assert asked.runtime.controller.mode.value == "interactive"


async def test_a_session_that_does_not_run_here_has_no_settings_to_change(recorded: Any) -> None:
    asked = await recorded()
    assert "does not run" in (await asked.get("settings", status=409))["problem"]
    await asked.ask("PATCH", "settings", {"approvalMode": "strict"}, status=409)


async def test_a_secret_in_the_configuration_is_not_shown(
    sessions: Any, forge_home: ForgeHome, monkeypatch: Any
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary-value-0123456789")
    forge_home.config.write_text('models: {openai: {base_url: "https://x.test/canary-value-0123456789"}}\n')
    asked = await sessions()
    (row,) = [each for each in (await asked.get("settings"))["config"] if each["key"] == "models.openai.base_url"]
    assert row["value"] == "https://x.test/[secret CANARY_TOKEN]"
