"""What a running child writes is shown as it comes; a quick one is not; a flood is counted, not sent."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.deadlines import PATIENCE

from golem_forge.sandbox.process.launch import Capture
from golem_forge.tools.context import ToolContext
from golem_forge.tools.live_output import show_live_output


class Seen(list[dict[str, Any]]):
    def __init__(self) -> None:
        super().__init__()
        self.ctx = ToolContext(call_id="c1", show=lambda kind, data: self.append({"kind": kind, **data}))

    def text(self, stream: str = "stdout") -> str:
        return "".join(each["delta"] for each in self if each["stream"] == stream)

    async def until(self, text: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while text not in self.text():
                await asyncio.sleep(0.01)


async def test_it_is_shown_while_the_call_waits_and_whole_when_it_ends() -> None:
    seen, out, err = Seen(), Capture(), Capture()
    async with show_live_output(seen.ctx, {"stdout": out, "stderr": err}):
        out.append("one\n")
        err.append("oh\n")
        await seen.until("one\n")
        out.append("two ä\n")
        await seen.until("two ä\n")
        out.append("three\n")
    assert (seen.text(), seen.text("stderr")) == ("one\ntwo ä\nthree\n", "oh\n")
    assert {(each["kind"], each["toolCallId"]) for each in seen} == {("toolOutput", "c1")}


async def test_a_quick_one_shows_nothing() -> None:
    seen, out = Seen(), Capture()
    async with show_live_output(seen.ctx, {"stdout": out}):
        out.append("done\n")
        out.finish()
    assert seen == []


async def test_what_was_shown_before_is_not_shown_again_and_a_flood_is_counted() -> None:
    seen, out = Seen(), Capture()
    out.append("before\n")
    async with show_live_output(seen.ctx, {"stdout": out}, after=out.size):
        out.append("x" * 2_000_000 + "end\n")
        await seen.until("end\n")
    assert "before" not in seen.text() and len(seen.text()) < 20_000
    assert seen.text().startswith("… 1983620 bytes …\n")
