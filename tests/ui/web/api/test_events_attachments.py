"""Files that a page sends: what came in this way, for this session, goes to the model; never a file of the host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from golem_forge.agent.conversation import Conversation

pytest_plugins = ("tests.ui.web.asking",)


async def said_after(asked: Any, attachments: list[Any]) -> list[str]:
    """What the session says to an input with these attachments, until it waits for the next."""
    talking = asyncio.ensure_future(Conversation(asked.runtime).run())
    try:
        await asked.until(lambda: bool(asked.said("inputPrompt")))
        answer = {"requestId": asked.said("inputPrompt")[-1]["requestId"], "content": "look"}
        asked.runtime.bus.emit("userInput", {**answer, "attachments": attachments}, source="test")
        await asked.until(lambda: len(asked.said("inputPrompt")) == 2)
    finally:
        talking.cancel()
        await asyncio.wait({talking})
    return [each["message"] for each in asked.said("status") if each["type"] == "error"]


@pytest.mark.parametrize("named", ["path", None, 7, ["x"]])
async def test_an_input_cannot_name_a_file_of_the_host(sessions: Any, tmp_path: Path, named: Any) -> None:
    """Threat: whoever can say something on a page would have any file of this account read to a model."""
    (tmp_path / "canary.txt").write_text("canary")
    asked = await sessions()
    attachments = [str(tmp_path / "canary.txt") if named == "path" else named]
    [problem] = await said_after(asked, attachments)
    assert problem.endswith("was not received; attach it again") and str(tmp_path) not in problem
    assert asked.said("message") == []


async def test_a_page_is_told_at_once_that_it_cannot(sessions: Any) -> None:
    asked = await sessions()
    body = {"type": "userInput", "data": {"requestId": "x", "content": "x", "attachments": ["/etc/hostname"]}}
    assert "attachments" in (await asked.post("actions", body, status=422))["fields"]


async def test_more_files_than_the_worker_takes_are_not_even_read(
    sessions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await sessions()
    kept = asked.runtime.receive("a.txt", b"x")
    read: list[str] = []
    store = type(asked.runtime._ready.workers.attachments)
    monkeypatch.setattr(store, "read", lambda self, digest: read.append(digest) or b"x")
    [problem] = await said_after(asked, [{"digest": kept.digest, "name": kept.name}] * 5000)
    assert problem == "5000 attachments; this worker takes at most 4" and read == []


async def test_files_that_no_input_names_do_not_fill_the_disk(sessions: Any, forge_home: Any) -> None:
    asked = await sessions()
    for number in range(5):
        asked.runtime.receive("f.bin", bytes([number]) * 9_000_000)
    where = f"/api/sessions/{asked.session}/attachments?name=last.bin"
    sent = await asked.client.post(where, content=b"x" * 2_000_000)
    assert sent.status_code == 201
    folder = forge_home.path / "sessions" / f"{asked.session}.files"
    there = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert sum(there.values()) <= 4 * 10_000_000
    last = sent.json()["digest"]
    assert last in there and await said_after(asked, [{"digest": last, "name": "last.bin"}]) == []
    for number in range(100, 105):
        asked.runtime.receive("more.bin", bytes([number]) * 9_000_000)
    assert (folder / last).is_file(), "a message has it"
