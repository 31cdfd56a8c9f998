"""The person's own tools on a page: states and reasons, what exactly a yes is given to, the acts of `forge tools`."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import PATIENCE

from golem_forge import tool
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import Status
from golem_forge.storage.home import ForgeHome
from golem_forge.ui.web.api import user_tools
from golem_forge.usertools.store import ToolStore

pytest_plugins = ("tests.ui.web.asking",)
GREET = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--who", default="nobody")
print(f"Hello {parser.parse_args().who}")
"""
WHO = [{"name": "who", "type": "string", "description": "whom to greet"}]
GREETS = {"name": "greets", "arguments": {"who": "Ada"}, "expect": {"stdout": "Hello Ada\n"}}
FILES: dict[str, Any] = {"filesystem": {}, "user_tools": {}}


def write_tool(home: ForgeHome, name: str = "greet", source: str = GREET, **manifest: Any) -> Path:
    folder = home.ensure("tools") / name
    folder.mkdir(mode=0o700, exist_ok=True)
    keys: dict[str, Any] = {"name": name, "description": f"Does {name}", "version": "1.0", "entrypoint": f"{name}.py"}
    keys |= {"parameters": WHO, "tests": [GREETS]} | manifest
    (folder / "tool.yaml").write_text("".join(f"{key}: {json.dumps(keys[key])}\n" for key in keys))
    (folder / f"{name}.py").write_text(source)
    return folder


def named(listed: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [each for each in listed if each["name"] == name]
    return found


async def test_the_list_has_forms_of_what_can_be_run_and_reasons_for_what_cannot(
    sessions: Any, forge_home: ForgeHome
) -> None:
    @tool(mode="manual", category="Git", label="Push")
    def git_push(branch: str, force: bool = False) -> str:
        """Push commits."""
        return branch

    write_tool(forge_home)
    (forge_home.ensure("tools") / "broken").mkdir()
    (forge_home.path / "tools" / "broken" / "tool.yaml").write_text("name: broken\nverison: 1\n")
    asked = await sessions(toolsets=FILES, tools=[git_push])
    listed = await asked.get("tools")
    push = named(listed["tools"], "git_push")
    assert (push["label"], push["category"], push["source"]) == ("Push", "Git", "custom")
    assert [(each["name"], each["type"], each["required"]) for each in push["fields"]] == [
        ("branch", "text", True),
        ("force", "boolean", False),
    ]
    assert "read_file" in {each["name"] for each in listed["tools"]}
    greet, broken = named(listed["userTools"], "greet"), named(listed["userTools"], "broken")
    assert (greet["state"], greet["code"]) == ("draft", "untrusted") and "activate greet" in greet["reason"]
    assert broken["state"] == "unusable" and broken["reason"]
    assert listed["servers"] == [] and listed["quarantined"] == []


async def test_a_yes_is_to_the_files_that_were_shown_and_then_the_tool_runs_unasked(
    sessions: Any, forge_home: ForgeHome
) -> None:
    folder = write_tool(forge_home)
    asked = await sessions(toolsets=FILES)
    shown = await asked.get("tools/greet")
    question = shown["own"]["trust"]
    assert question["digest"] == shown["own"]["digest"] and question["problem"] == "" and question["buildHosts"] == []
    assert GREET.splitlines()[3] in question["text"], "every line that would be trusted"
    assert {each["path"]: each["text"] for each in shown["own"]["files"]}["greet.py"] == GREET
    assert shown["own"]["files"][0]["path"] == "tool.yaml" and shown["own"]["tests"] == ["greets"]

    (folder / "greet.py").write_text(GREET + "print('more')\n")
    refused = await asked.post("tools/greet/activate", {"digest": question["digest"]}, status=409)
    assert "changed after the page showed it" in refused["problem"]
    assert ToolStore(forge_home).all_trusted("greet") == frozenset()
    (folder / "greet.py").write_text(GREET)

    said = await asked.post("tools/greet/activate", {"digest": question["digest"]})
    assert said["text"].startswith("tool 'greet' is active")
    given = ToolStore(forge_home).find_trust("greet", question["digest"])
    assert given is not None and given.who == "person"
    assert "greet" in {name for event in asked.said("catalogChanged") for name in event["added"]}
    assert (await asked.call("greet", who="Ada")).status is Status.SUCCESS
    after = await asked.get("tools/greet")
    assert after["offered"] and after["own"]["state"] == "active" and after["own"]["trust"] is None
    assert after["statistics"]["calls"] == 1
    shown = await asked.get("statistics")
    greet = named(shown["tools"], "greet")
    assert (greet["calls"], greet["ran"], greet["successRate"]) == (1, 1, 1.0) and greet["lastUsed"]
    assert list(greet["digests"]) == [question["digest"]] and shown["totals"]["byState"] == {"active": 1}


async def test_failing_tests_and_missing_ones_are_refused_in_their_own_words(
    sessions: Any, forge_home: ForgeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    activate, gate = user_tools._activate, threading.Event()

    async def activate_later(*given: Any) -> str:
        gate.wait(PATIENCE)  # in a thread of its own
        return await activate(*given)

    monkeypatch.setattr(user_tools, "_activate", activate_later)
    write_tool(forge_home, tests=[GREETS | {"expect": {"stdout": "Good day\n"}}])
    asked = await sessions(toolsets=FILES)
    digest = (await asked.get("tools/greet"))["own"]["digest"]
    path = "tools/greet/activate"
    both = {asyncio.create_task(asked.post(path, {"digest": digest}, status=409)) for _ in range(2)}
    [refused], [waits] = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    gate.set()
    assert (await refused)["problem"].startswith("It is being activated already")
    assert "greets" in (await waits)["problem"]
    own = (await asked.get("tools/greet"))["own"]
    assert own["code"] == "tests_failed" and own["state"] != "active"
    await asked.post("tools/greet/deny", {"digest": digest})
    assert "denied once before" in (await asked.get("tools/greet"))["own"]["trust"]["text"]
    ToolStore(forge_home).record_agent_edit("greet", "s", "main")
    write_tool(forge_home, tests=[])
    own = (await asked.get("tools/greet"))["own"]
    assert "needs at least one test" in own["trust"]["problem"]
    refused = await asked.post("tools/greet/activate", {"digest": own["digest"]}, status=409)
    assert "needs at least one test" in refused["problem"]


async def test_a_changed_tool_shows_what_changed_goes_back_and_is_switched_off_and_on(
    sessions: Any, forge_home: ForgeHome
) -> None:
    folder = write_tool(forge_home)
    asked = await sessions(toolsets=FILES)
    first = (await asked.get("tools/greet"))["own"]["digest"]
    await asked.post("tools/greet/activate", {"digest": first})
    (folder / "greet.py").write_text(GREET.replace("Hello", "Howdy"))
    changed = await asked.get("tools/greet")
    assert changed["own"]["code"] == "changed" and not changed["offered"]
    question = changed["own"]["trust"]
    assert '+print(f"Howdy' in question["diff"] and '-print(f"Hello' in question["diff"]
    assert [(each["digest"], each["trusted"], each["current"]) for each in changed["versions"]] == [
        (changed["own"]["digest"], False, True),
        (first, True, False),
    ]
    difference = await asked.get("tools/greet/difference")
    assert difference["before"] == first and difference["after"] == changed["own"]["digest"]
    assert '+print(f"Howdy' in difference["changes"]
    back = await asked.get(f"tools/greet/difference?before={difference['after'][7:20]}&after={first[7:20]}")
    assert '+print(f"Hello' in back["changes"]
    await asked.get("tools/greet/difference?after=abcdef", status=422)

    said = await asked.post("tools/greet/undo", {})
    assert "It is active: exactly these files were trusted before." in said["text"]
    assert (folder / "greet.py").read_text() == GREET
    assert (await asked.get("tools/greet"))["offered"]
    assert (await asked.post("tools/greet/undo", {"version": "zz"}, status=422))["problem"]

    await asked.post("tools/greet/retire")
    assert (await asked.call("greet")).status is Status.TOOL_NOT_FOUND
    assert named((await asked.get("tools"))["userTools"], "greet")["state"] == "retired"
    refused = await asked.post("tools/greet/activate", {"digest": first}, status=409)
    assert "is retired" in refused["problem"]
    assert (await asked.post("tools/greet/restore"))["text"] == "tool 'greet' is active"
    assert (await asked.get("tools/greet"))["offered"]
    for verb, body in (("retire", None), ("restore", None), ("undo", {}), ("activate", {"digest": "x"})):
        await asked.post(f"tools/nosuch/{verb}", body, status=404)
    await asked.post("tools/greet/explode", {}, status=404)


async def test_a_folder_that_is_gone_or_broken_still_has_its_past(sessions: Any, forge_home: ForgeHome) -> None:
    folder = write_tool(forge_home)
    asked = await sessions(toolsets=FILES)
    await asked.get("tools")
    for file in folder.iterdir():
        if file.is_file():
            file.unlink()
    gone = await asked.get("tools/greet")
    assert gone["problem"] and gone["own"] is None and len(gone["versions"]) == 1
    await asked.post("tools/greet/undo", {})
    assert (folder / "greet.py").read_text() == GREET
    close = await asked.get("tools/raed_file", status=404)
    assert "read_file" in close["problem"]


async def test_names_lead_nowhere_but_to_tools(sessions: Any) -> None:
    asked = await sessions(toolsets=FILES)
    for name in ("..%2f..%2fetc", ".hidden", "a%00b", "%2e%2e", "x" * 300):
        refused = [
            await asked.get(f"tools/{name}", status=404),
            await asked.post(f"tools/{name}/undo", {}, status=404),
            await asked.post(f"tools/{name}/activate", {"digest": "x"}, status=404),
        ]
        assert all(answer["problem"] and "own" not in answer for answer in refused), name


async def test_native_tools_say_who_decides_and_secrets_stay_out_of_strangers_words(
    sessions: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "canary-value-0123456789")

    @tool(mode="both")
    def leak(api_key: str = "") -> str:
        """Knows canary-value-0123456789 and \ud800 too."""
        return ""

    asked = await sessions(tools=[leak])
    shown = await asked.get("tools/read_file")
    assert shown["approval"].startswith("by what each call touches") and shown["own"] is None
    assert shown["definition"]["inputSchema"]["properties"]["path"]
    leaky = await asked.get("tools/leak")
    assert "[secret CANARY_API_KEY]" in leaky["description"] and "\\ud800" in leaky["description"]
    assert leaky["definition"]["inputSchema"]["properties"]["api_key"]["type"] == "string"
    assert "canary-value" not in json.dumps(await asked.get("tools"))


async def test_of_a_session_that_ended_the_persons_tools_are_there_and_can_be_acted_on(
    recorded: Any, forge_home: ForgeHome
) -> None:
    write_tool(forge_home)
    asked = await recorded(toolsets=FILES)
    listed = await asked.get("tools")
    assert listed["tools"] == [] and named(listed["userTools"], "greet")["state"] == "draft"
    digest = (await asked.get("tools/greet"))["own"]["digest"]
    assert "is active" in (await asked.post("tools/greet/activate", {"digest": digest}))["text"]
    assert named((await asked.get("tools"))["userTools"], "greet")["state"] == "active"
    assert (await asked.get("statistics"))["totals"]["tools"] == 1


async def test_a_person_still_reaches_the_tool_by_hand_before_anybody_agreed(
    sessions: Any, forge_home: ForgeHome
) -> None:
    """What stands aside is shown, and explained without being built."""
    write_tool(forge_home)
    asked = await sessions(toolsets=FILES)
    told = await asked.post("rules/explain", {"tool": "greet", "args": {"who": "Ada"}})
    assert told["verdict"] == "ask"
    assert "definition_changed" in [each["id"] for each in told["decision"]["sources"]]
    assert not list((forge_home.path / "cache").glob("build*/*")), "nothing was built"
    asked.answer = {"approved": False}
    outcome = await asked.runtime.path.call(ToolCall("greet", {"who": "Ada"}, Caller.HUMAN))
    assert outcome.status is Status.APPROVAL_DENIED
