"""XML calls of servers' tools: by server and raw name, also where the tool has another name here or is deferred."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import let_servers_start

from golem_forge.agent.model.xml_reader import XmlReader
from golem_forge.sandbox.walls.bubblewrap import find_bwrap

PROGRAM = Path(__file__).parents[2] / "mcp" / "programs" / "shelf.py"
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}, "word": {"type": "string"}}}
CALL = (
    "<tool><server_name>shelf</server_name><tool_name>{}</tool_name>"
    "<arguments><count>7</count><word>007</word></arguments></tool>"
)


def test_a_name_that_was_not_sent_is_looked_up_elsewhere() -> None:
    asked: list[str] = []
    reader = XmlReader({"shelf__sent": SCHEMA}, lambda name: asked.append(name) or SCHEMA)
    reader.feed(CALL.format("put.book") + CALL.format("sent"))
    first, second = reader.finish().calls
    assert (first.name, first.args) == ("shelf__put.book", {"count": 7, "word": "007"})
    assert second.args == first.args and asked == ["shelf__put.book"]


@pytest.mark.skipif(find_bwrap() is None, reason="walls around servers need bubblewrap")
@pytest.mark.parametrize("above", [40, 1], ids=["sent", "deferred"])
async def test_the_raw_name_reaches_a_renamed_tool_with_typed_arguments(
    play: Callable[..., Any], tmp_path: Path, above: int
) -> None:
    root = tmp_path / "program"
    root.mkdir()
    (root / "shelf.py").write_bytes(PROGRAM.read_bytes())
    tools = [{"name": name, "description": "Puts it.", "inputSchema": SCHEMA} for name in ("put.book", "other")]
    (root / "tools.json").write_text(json.dumps(tools))
    server = {
        "command": os.path.realpath(sys.executable),
        "args": ["-S", "${zone:workspace}/shelf.py", "${zone:workspace}/tools.json"],
        "zones": {"workspace": "rw"},
        "required": True,
    }
    (root / "forge.yaml").write_text(
        json.dumps(
            {
                "sandbox": {"zones": {"workspace": {"path": ".", "mode": "rw"}}},
                "mcp": {"servers": {"shelf": server}},
                "tools": {"defer_above": above},
            }
        )
    )
    (root / "main.worker").write_text(
        "---\nname: main\ntool_format: xml\ntoolsets: {mcp: {servers: [shelf]}}\n"
        "sandbox: {zones: [{name: workspace, mode: rw}]}\n---\nI am main.\n"
    )
    let_servers_start(root)
    played = await play([CALL.format("put.book"), "done"], turn="go", worker="main", directory=root)
    assert ("tool_search" in played.script.requests[0].system) is (above == 1)
    called = [json.loads(line) for line in (root / "tools.json.calls").read_text().splitlines()]
    assert called == [["put.book", {"count": 7, "word": "007"}]]
