"""Prompts as commands: their names and forms, and the text that comes into the input line."""

from __future__ import annotations

from typing import Any

from tests.tables import table

from golem_forge.mcp.client.model import ServerManifest, ServerState, ServerStatus
from golem_forge.mcp.client.resources import PromptCommand, prompt_commands, prompt_text

GREET = {
    "name": "greet",
    "description": "A greeting",
    "arguments": [{"name": "who", "description": "Whom", "required": True}, {"name": "how"}],
}
HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")


class FakePool:
    def __init__(self, state: ServerState = ServerState.READY, **prompts: list[Any]) -> None:
        self._state = state
        self._prompts = prompts

    def status(self, name: str) -> ServerStatus:
        return ServerStatus(server=name, state=self._state)

    def manifest(self, name: str) -> ServerManifest:
        return ServerManifest(
            server=name, scope="", config_digest="", fetched_at=0.0, prompts=tuple(self._prompts.get(name, ()))
        )


def commands(pool: Any, *servers: str) -> dict[str, PromptCommand]:
    return prompt_commands(pool, servers)


def test_a_prompt_is_a_command_with_a_form_of_texts() -> None:
    found = commands(FakePool(docs=[GREET]), "docs")
    assert list(found) == ["docs__greet"]
    command = found["docs__greet"]
    assert (command.server, command.prompt, command.description) == ("docs", "greet", "A greeting")
    shape = [(field["name"], field["type"], field["required"], field["description"]) for field in command.fields]
    assert shape == [("who", "text", True, "Whom"), ("how", "text", False, "")]


@table("state", list(ServerState))
def test_only_servers_that_are_ready_or_known_have_commands(state: ServerState) -> None:
    found = commands(FakePool(state, docs=[GREET]), "docs")
    assert bool(found) is (state in (ServerState.READY, ServerState.KNOWN))


def test_names_that_would_meet_are_told_apart_and_the_raw_one_is_kept() -> None:
    pool = FakePool(**{"a-b": [{"name": "x.y"}], "a_b": [{"name": "x.y"}]})
    found = commands(pool, "a-b", "a_b")
    assert len(found) == 2 and {command.prompt for command in found.values()} == {"x.y"}
    assert all(len(name) <= 64 and "." not in name for name in found)


@table(
    "entry",
    [
        7,
        {},
        {"name": ""},
        {"name": 5},
        {"name": "x" * 300},
        {"name": "a\x1b[2J"},
        {"name": "a", "arguments": {"x": 1}},
        {"name": "a", "arguments": [{"name": f"n{number}"} for number in range(51)]},
        {"name": "a", "arguments": [{"name": f"n{HIDDEN}"}]},
        {"name": "a", "arguments": ["x"]},
    ],
)
def test_an_entry_that_is_no_prompt_costs_the_others_nothing(entry: Any) -> None:
    assert list(commands(FakePool(docs=[entry, GREET]), "docs")) == ["docs__greet"]


COMMAND = PromptCommand(name="docs__greet", server="docs", prompt="greet")


def said(*messages: Any) -> str:
    return prompt_text(COMMAND, {"messages": list(messages)})


def user(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_the_text_says_first_whose_it_is() -> None:
    assert said(user(words("/exit"))) == "[prompt 'greet' of the MCP server 'docs']\n/exit"


def test_several_messages_say_who_speaks() -> None:
    assert said(user(words("a")), user(words("b"), "assistant")).splitlines()[1:] == ["User: a", "Assistant: b"]


def test_what_is_no_text_is_named() -> None:
    parts = [
        {"type": "image", "data": "canary", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "x:1", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "x:2", "blob": "canary"}},
        {"type": "resource_link", "uri": "x:3"},
    ]
    text = said(user(parts))
    assert "canary" not in text
    assert text.splitlines()[1:] == [
        "[image, left out]",
        "[resource x:1]",
        "inside",
        "[resource x:2] (binary, left out)",
        "[resource x:3]",
    ]


def test_nothing_is_hidden_and_nothing_is_endless() -> None:
    assert "\\U000e006f" in said(user(words(HIDDEN))) and "\\x1b" in said(user(words("\x1b[2J")))
    long = said(user(words("é" * 100_000)))
    assert len(long.encode()) < 33_000 and long.endswith("bytes more]")
    assert said(*[user(words("x"))] * 500).endswith("[300 messages more]")


@table("result", [{}, {"messages": 5}, {"messages": [5, {"content": 7}, {}]}])
def test_an_answer_of_another_shape_is_an_empty_prompt(result: dict[str, Any]) -> None:
    assert prompt_text(COMMAND, result).startswith("[prompt 'greet'")
