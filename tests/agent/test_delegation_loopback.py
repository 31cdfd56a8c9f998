"""Which workers of a session share a loopback: those with the same zones and modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls
from tests.agent.test_delegation import cast, program

from golem_forge.sandbox.walls.bubblewrap import find_bwrap

pytestmark = pytest.mark.skipif(find_bwrap() is None, reason="full walls need bubblewrap")
WHERE = "cd /; for one in 1; do readlink /proc/self/ns/net; done"
ASKED = ("exec_command", {"cmd": WHERE, "yield_time_ms": 30_000})
SAME = "[{name: workspace, mode: rw}]"


@pytest.mark.parametrize(
    ("zones", "shares"),
    [
        (SAME, True),
        ("[{name: workspace, mode: ro}]", False),
        ("[{name: workspace, mode: rw, subpath: part}]", False),
        ("[{name: workspace, mode: rw}, {name: secret, mode: ro}]", False),
        ("[]", False),
    ],
)
async def test_a_sub_worker_shares_it_only_with_the_same_zones(
    play: Any, tmp_path: Path, zones: str, shares: bool
) -> None:
    tools = "toolsets: {exec: {walled: preApproved}, workers: {allow: [helper]}}\n"
    both = "[{name: workspace, mode: rw}, {name: secret, mode: rw}]" if "secret" in zones else SAME
    folder = program(
        tmp_path / "p",
        main=f"{tools}sandbox: {{zones: {both}}}\n",
        helper=f"description: Helps.\ntoolsets: {{exec: {{walled: preApproved}}}}\nsandbox: {{zones: {zones}}}\n",
    )
    (folder / "work" / "part").mkdir()
    turns = cast(
        main=[calls(ASKED), calls(("helper", {"input": "go"})), calls(ASKED), "done"],
        helper=[calls(ASKED), "done"],
    )
    played = await play(turns, worker="main", directory=folder, approval="approve_all")
    await played.runtime.run("go")
    results = [event.wire for event in played.seen("toolResult") if event.wire["toolName"] == "exec_command"]
    first, helpers, last = (each["value"]["output"].strip() for each in results)
    assert first.startswith("net:[") and helpers.startswith("net:[")
    assert first == last
    assert (helpers == first) is shares
