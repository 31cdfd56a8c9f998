"""Rules on a page: listed with file and last use, explained without a run, taken back so that the next call asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from golem_forge.core.decisions import Status
from golem_forge.policy.rules import book
from golem_forge.storage.home import ForgeHome

pytest_plugins = ("tests.ui.web.asking",)
WRITE = {"path": "/workspace/a.txt", "content": "x"}


def rules_yaml(home: ForgeHome, text: str) -> None:
    home.rules.write_text(f"version: 1\nrules:\n{text}")


async def test_every_rule_says_where_it_stands_what_it_matches_and_when_it_was_last_used(
    sessions: Any, forge_home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules_yaml(
        forge_home,
        '  - {path: "/workspace/**", access: [write], verdict: preApproved, reason: notes}\n'
        "  - {tool: old, verdict: ask, scope: {until: 2020-01-01T00:00:00Z}}\n",
    )
    asked = await sessions(program={"approval": {"mode": "interactive"}})
    assert (await asked.call("write_file", **WRITE)).status is Status.SUCCESS
    assert asked.cards == []
    asked.runtime.journal.flush()
    listed = {each["what"]: each for each in (await asked.get("rules"))["rules"]}
    path = listed["path /workspace/** (write)"]
    assert path["keptIn"].endswith("rules.yaml:3") and "~" in path["keptIn"]
    assert (path["verdict"], path["origin"], path["revocable"], path["inactive"]) == ("preApproved", "user", False, "")
    assert path["hits"] == 1 and path["lastUsed"].endswith("Z")
    assert listed["tool old"]["inactive"].startswith("ended 2020") and listed["tool old"]["lastUsed"] is None
    assert any(each["origin"] == "builtin" for each in listed.values())

    reads: list[Path] = []
    decisions = book._decisions
    monkeypatch.setattr(book, "_decisions", lambda path: reads.append(path) or decisions(path))
    assert listed == {each["what"]: each for each in (await asked.get("rules"))["rules"]}
    assert reads == [], "a journal that says nothing new is not read again"
    assert (await asked.call("write_file", **WRITE)).status is Status.SUCCESS
    asked.runtime.journal.flush()
    again = {each["what"]: each for each in (await asked.get("rules"))["rules"]}
    assert again["path /workspace/** (write)"]["hits"] == 2 and len(reads) == 1


async def test_a_removed_rule_asks_again_and_so_does_a_revoked_approval_of_the_session(
    sessions: Any, forge_home: ForgeHome
) -> None:
    """Acceptance 35, in this session and for one that resumes it."""
    asked = await sessions()
    asked.answer = {"approved": True, "remember": "session"}
    await asked.call("write_file", **WRITE)
    await asked.call("write_file", **WRITE)
    assert len(asked.cards) == 1, "it was remembered for the session"
    shown = await asked.get("rules")
    kept = shown["approvals"] + [each for each in shown["rules"] if each["origin"] == "session"]
    assert kept
    for each in kept:
        said = await asked.ask("DELETE", f"rules/{each['id']}")
        assert said["text"].startswith(f"Revoked {each['id']}")
    await asked.call("write_file", **WRITE)
    assert len(asked.cards) == 2
    assert [each["message"] for each in asked.said("status") if each.get("code") == "REVOKED"]

    always = next(choice for choice in asked.cards[0]["choices"] if choice["scope"] == "always")
    asked.answer = {"approved": True, "choice": always["id"]}
    for each in (await asked.get("rules"))["approvals"]:
        await asked.ask("DELETE", f"rules/{each['id']}")
    for each in (await asked.get("rules"))["rules"]:
        if each["origin"] == "session":
            await asked.ask("DELETE", f"rules/{each['id']}")
    before = len(asked.cards)
    await asked.call("write_file", **WRITE)
    await asked.call("write_file", **WRITE)
    assert len(asked.cards) == before + 1
    (rule,) = [each for each in (await asked.get("rules"))["rules"] if each["origin"] == "remembered"]
    assert rule["revocable"] and "remembered.yaml" in rule["keptIn"]
    await asked.ask("DELETE", f"rules/{rule['id']}")
    assert rule["id"] not in forge_home.remembered.read_text()
    await asked.call("write_file", **WRITE)
    assert len(asked.cards) == before + 2


async def test_what_somebody_wrote_by_hand_is_pointed_to_and_unknown_ids_are_said_to_be(
    sessions: Any, forge_home: ForgeHome
) -> None:
    rules_yaml(forge_home, '  - {path: "/workspace/**", access: [write], verdict: ask}\n')
    asked = await sessions()
    (rule,) = [each for each in (await asked.get("rules"))["rules"] if each["origin"] == "user"]
    refused = await asked.ask("DELETE", f"rules/{rule['id']}", status=409)
    assert "rules.yaml:3" in refused["problem"] and "by hand" in refused["problem"]
    (builtin,) = [each for each in (await asked.get("rules"))["rules"] if each["id"] == "fork_bomb"]
    assert "builtin_off" in (await asked.ask("DELETE", f"rules/{builtin['id']}", status=409))["problem"]
    assert "Nothing with the id" in (await asked.ask("DELETE", "rules/nothing", status=404))["problem"]


async def test_explaining_says_what_would_happen_and_does_nothing(sessions: Any, project: Path) -> None:
    asked = await sessions(toolsets={"filesystem": {}, "exec": {}})
    asked.answer = {"approved": True, "remember": "session"}
    told = await asked.post("rules/explain", {"tool": "write_file", "args": WRITE})
    assert told["verdict"] == "ask" and told["then"].startswith("Forge would ask a person")
    assert told["decision"]["decidedBy"]["source"] == "base" and told["decision"]["risk"] == "medium"
    assert [each["effect"] for each in told["effects"]] == ["write /workspace/a.txt"]
    assert not (project / "a.txt").exists() and asked.cards == [] and asked.said("toolStarted") == []
    told = await asked.post("rules/explain", {"command": "rm -rf /"})
    assert told["verdict"] == "blocked" and told["then"].startswith("it would be refused")
    told = await asked.post("rules/explain", {"command": "ls"})
    assert told["verdict"] == "preApproved"
    outside = await asked.post("rules/explain", {"tool": "read_file", "args": {"path": "/nowhere/x"}})
    assert outside["verdict"] == "blocked" and outside["status"] == "sandbox_denied" and outside["decision"] is None
    unknown = await asked.post("rules/explain", {"tool": "raed_file", "args": {}})
    assert unknown["verdict"] is None and "read_file" in unknown["error"]
    bad = await asked.post("rules/explain", {"tool": "read_file", "args": {"path": 5}})
    assert bad["verdict"] is None and bad["status"] == "input_invalid"
    both = await asked.post("rules/explain", {"tool": "read_file", "command": "ls"}, status=422)
    assert both["problem"]

    await asked.call("write_file", **WRITE)
    told = await asked.post("rules/explain", {"tool": "write_file", "args": WRITE})
    assert told["then"].startswith("it would run")


async def test_secrets_in_what_is_explained_stay_out_of_the_answer(sessions: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-value-0123456789")
    asked = await sessions()
    args = {"path": "/workspace/a.txt", "content": "canary-value-0123456789"}
    told = await asked.post("rules/explain", {"tool": "write_file", "args": args})
    assert told["args"]["content"] == "[secret CANARY_API_KEY]"
    assert "canary-value" not in str(told)


async def test_of_a_session_that_ended_the_homes_rules_are_shown_and_can_be_revoked(
    recorded: Any, forge_home: ForgeHome
) -> None:
    forge_home.remembered.write_text(
        'version: 1\nrules:\n  - {path: "/workspace/**", access: [write], verdict: preApproved}\n'
    )
    asked = await recorded()
    shown = await asked.get("rules")
    assert shown["approvals"] == []
    (rule,) = [each for each in shown["rules"] if each["origin"] == "remembered"]
    told = await asked.post("rules/explain", {"tool": "write_file", "args": WRITE})
    assert told["tool"] == "write_file"
    await asked.ask("DELETE", f"rules/{rule['id']}")
    assert rule["id"] not in forge_home.remembered.read_text()
    assert [each for each in (await asked.get("rules"))["rules"] if each["origin"] == "remembered"] == []


async def test_only_who_is_logged_in_is_answered_and_only_about_sessions_that_exist(sessions: Any) -> None:
    asked = await sessions()
    await asked.get("/api/sessions/nosuch/rules", status=404)
    me = await asked.get("/api/me")
    assert me["current"] == asked.session and me["mayStart"] is False and me["version"]
