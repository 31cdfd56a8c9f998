"""What is typed into a secret field reaches the tool and nobody else: no journal, no page, no model, under any name."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from golem_forge import prompt, tool
from golem_forge.agent.conversation import Conversation

pytest_plugins = ("tests.ui.web.asking",)

Phrase = Annotated[str, Field(json_schema_extra={"writeOnly": True})]


MISTYPED = (
    *("/tool UNLOCK --phrase canary --door", '/unlock --phrase "canary', "/unlock --phrasee canary", "/unlock canary"),
    *("/unlock -pcanary", "/unlock --phrase=canary --phrase=canary", "/sign --door canary", "/pick 'canary"),
    *("/unlokc --phrase canary", "/unlokc canary", "/unlokc=canary", "/unlokc:canary", "/tool unlokc canary"),
    *("/t unlokc=canary x", "/pick --word canary", "/pick --word=canary", "unlock --phrase canary", "/ canary"),
    *("/brief --tokn canary", "/brief canary", '/brief --token "canary', "/note 'canary", "/note --texxt canary"),
)
"""None of these can be run as it was typed, and what was meant to be secret stands anywhere in it."""


class Account(BaseModel):
    user: str
    word: Annotated[str, Field(json_schema_extra={"format": "password"})]


async def test_a_secret_field_is_recorded_and_shown_nowhere(sessions: Any) -> None:
    got: list[Any] = []

    @tool(mode="both", needs_approval=False)
    def unlock(door: str, phrase: Phrase, api_key: str = "", account: Account | None = None) -> str:
        """Opens."""
        got.append((phrase, account.word if account else ""))
        return "open"

    @tool(mode="both", needs_approval=True)
    def sign(phrase: Phrase) -> str:
        """Signs."""
        got.append(phrase)
        return "signed"

    @tool(mode="both", needs_approval=False)
    def pick(many: int) -> str:
        """Picks."""
        return "picked"

    @prompt(needs_approval=False)
    def brief(topic: str, token: str = "") -> str:
        """Asks for a brief."""
        return "A brief, please."

    @prompt(needs_approval=False)
    def note(text: str) -> str:
        """Asks for a note."""
        return "A note, please."

    asked = await sessions(tools=[unlock, sign, pick, brief, note])
    page = await asked.served.page(session=asked.session)
    await page.until("caught_up")
    talking = asyncio.ensure_future(Conversation(asked.runtime).run())
    await asked.until(lambda: bool(asked.said("inputPrompt")))
    invoked = {"door": "front", "phrase": "canary-1", "account": {"user": "ada", "word": "canary-2"}}
    await page.act("manualToolInvoke", toolName="unlock", args=invoked)
    await asked.until(lambda: len(got) == 1)
    await page.act("command", requestId="r", text="/unlock --door back --phrase canary-3")
    await asked.until(lambda: len(got) == 2)
    for typed in MISTYPED:
        await page.act("command", requestId="r", text=typed)
    await asked.until(lambda: len([said for said in asked.said("status") if said["type"] == "error"]) == len(MISTYPED))
    for typed in ("/brief --topic x --token canary", "/note --text words", "/help unlock"):
        await page.act("command", requestId="r", text=typed)
    asked.answer = {"approved": True, "args": {"phrase": "canary-4"}}
    await page.act("manualToolInvoke", toolName="sign", args={"phrase": "canary-5"})
    await asked.until(lambda: len(got) == 3)
    await page.act("manualToolInvoke", toolName="unlock", args={"door": 5, "phrase": "canary-6"})
    await asked.until(lambda: len(asked.said("toolResult")) == 6)
    assert got == [("canary-1", "canary-2"), ("canary-3", ""), "canary-4"]
    talking.cancel()
    await asyncio.wait({talking})
    journal = (asked.runtime.home.path / "sessions" / f"{asked.session}.jsonl").read_text()
    assert "front" in journal and "/help unlock" in journal and "/note --text words" in journal
    assert "ada" in journal and "canary" not in journal
    commands = {event.wire["text"] for event in asked.events if event.type == "command"}
    assert {f"/{name} [not recorded: mistyped]" for name in ("unlokc", "pick", "note")} < commands
    assert "/brief [not recorded: a secret was typed]" in commands
    assert "Unknown command '/unlokc…' (did you mean '/unlock'?)" in [said["message"] for said in asked.said("status")]
    assert "canary" not in json.dumps(page.frames) and "canary" not in repr([event.wire for event in asked.events])
    for path in ("events", "rules", "settings", "tools"):
        assert "canary" not in json.dumps(await asked.get(path))


async def test_a_tool_that_repeats_a_secret_tells_it_to_nobody(sessions: Any) -> None:
    @tool(mode="both", needs_approval=False)
    def parrot(phrase: Phrase, account: Account | None = None) -> dict[str, Any]:
        """Says it again."""
        return {"you said": phrase, "and": account.word if account else "", "list": [f"<{phrase}>"]}

    @tool(needs_approval=True)
    def sign(phrase: Phrase) -> str:
        """Fails with it."""
        raise ValueError(f"no such phrase: {phrase}")

    asked = await sessions(tools=[parrot, sign], answer={"approved": True, "args": {"phrase": "canary-9"}})
    page = await asked.served.page(session=asked.session)
    await page.until("caught_up")
    talking = asyncio.ensure_future(Conversation(asked.runtime).run())
    await asked.until(lambda: bool(asked.said("inputPrompt")))
    typed = {"phrase": "canary-1", "account": {"user": "ada", "word": "canary-2"}}
    await page.act("manualToolInvoke", toolName="parrot", args=typed)
    await asked.until(lambda: len(asked.said("toolResult")) == 1)
    assert "[secret parrot]" in repr(asked.said("toolResult")[0]["value"])
    outcome = await asked.call("sign", phrase="mine")
    assert outcome.error == "ValueError: no such phrase: [secret sign]"
    talking.cancel()
    await asyncio.wait({talking})
    journal = (asked.runtime.home.path / "sessions" / f"{asked.session}.jsonl").read_text()
    assert "canary" not in journal and "canary" not in json.dumps(page.frames)


async def test_an_edited_secret_is_not_told_to_the_model(sessions: Any) -> None:
    @tool(needs_approval=True)
    def sign(phrase: Phrase, place: str) -> str:
        """Signs."""
        return "signed"

    asked = await sessions(tools=[sign], answer={"approved": True, "args": {"phrase": "canary-9", "place": "B"}})
    outcome = await asked.call("sign", phrase="mine", place="A")
    assert any('place "A"' in note for note in outcome.notes) and "canary" not in repr(outcome.notes)


@pytest.mark.parametrize(
    "args", [{"phrase": ["canary"]}, {"phrase": {"canary": 1}}, {"other": "x", "phrase": "canary"}]
)
async def test_one_that_fits_no_field_is_not_recorded_either(sessions: Any, args: dict[str, Any]) -> None:
    @tool(mode="both", needs_approval=False)
    def unlock(phrase: Phrase) -> str:
        """Opens."""
        return "open"

    asked = await sessions(tools=[unlock])
    asked.runtime.bus.emit("manualToolInvoke", {"toolName": "unlock", "args": args}, source="browser")
    await asked.call("unlock", **args)
    journal = (asked.runtime.home.path / "sessions" / f"{asked.session}.jsonl").read_text()
    assert "unlock" in journal and "canary" not in journal
