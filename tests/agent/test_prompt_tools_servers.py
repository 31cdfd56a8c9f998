"""Deferral with a real server behind the tools: two workers, each with its own loaded tools, and a session resumed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls, let_servers_start
from tests.agent.test_delegation import cast, who
from tests.agent.test_prompt_tools import found, names, search, written

from golem_forge.sandbox.walls.bubblewrap import find_bwrap

Play = Callable[..., Any]
PROGRAM = Path(__file__).parents[1] / "mcp" / "programs" / "plenty.py"
ZONE = "sandbox: {zones: [{name: workspace, mode: ro}]}\n"

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="walls around servers need bubblewrap")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A program whose server `library` has 121 tools, and a person who let it start."""
    root = tmp_path / "program"
    root.mkdir()
    (root / "plenty.py").write_bytes(PROGRAM.read_bytes())
    server = {
        "command": os.path.realpath(sys.executable),
        "args": ["-S", "${zone:workspace}/plenty.py", "120"],
        "zones": {"workspace": "ro"},
        "always_load": ["shelve_book_7"],
        "required": True,
    }
    (root / "forge.yaml").write_text(json.dumps({"mcp": {"servers": {"library": server}}}))
    block = 'mcp: {servers: ["*"]}'
    (root / "main.worker").write_text(
        f"---\nname: main\ntoolsets: {{{block}, workers: {{allow: [helper]}}}}\n{ZONE}---\nI am main.\n"
    )
    (root / "workers").mkdir()
    (root / "workers" / "helper.worker").write_text(
        f"---\nname: helper\ntoolsets: {{{block}}}\n{ZONE}---\nI am helper.\n"
    )
    let_servers_start(root)
    return root


async def test_each_worker_has_its_own_loaded_tools(play: Play, library: Path) -> None:
    turns = cast(
        main=[calls(search("library__shelve_book_33", limit=1)), calls(("helper", {"input": "go"})), "done"],
        helper=[calls(("library__shelve_book_55", {"shelf": "a"})), "helped"],
    )
    played = await play(turns, worker="main", directory=library)
    assert (await played.runtime.run("go")).response == "done"
    sent = {name: [each for each in played.script.requests if who(each) == name] for name in ("main", "helper")}
    first, second, third = map(names, sent["main"])
    assert first == ["read_output", "helper", "library__shelve_book_7", "tool_search"]
    assert second == third == [*first, "library__shelve_book_33"]
    before, after = map(names, sent["helper"])
    assert before == ["read_output", "library__shelve_book_7", "tool_search"]
    assert after == [*before, "library__shelve_book_55"]
    assert "did shelve_book_55" in sent["helper"][1].messages[-1].results[0].text


async def test_a_raw_name_finds_the_tool_that_had_to_be_renamed(play: Play, library: Path) -> None:
    turns = [calls(search("ODD.name", limit=1)), calls(("library__odd.name", {})), "ok"]
    played = await play(turns, turn="go", worker="main", directory=library)
    (name,) = found(played.script.results(1)[0][1])
    assert name.startswith("library__odd_name_") and names(played.script.requests[1])[-1] == name
    status, text = played.script.results(2)[0]
    assert status == "success" and "did odd.name" in text


async def test_a_resumed_session_sends_the_same_bytes(play: Play, library: Path) -> None:
    turns = [calls(search("library__shelve_book_33", limit=3)), calls(("library__shelve_book_90", {})), "ok"]
    first = await play(turns, turn="go", worker="main", directory=library)
    sent, session = first.script.requests[-1], first.runtime.session_id
    assert names(sent)[-1] == "library__shelve_book_90" and len(sent.tools) == 8
    await first.runtime.aclose()
    again = await play(["ok"], turn="on", worker="main", directory=library, resume=session)
    assert written(again.script.requests[0]) == written(sent)
