"""Calls that a model wrote as text: which are taken, which stay an answer, and what is shown meanwhile."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.agent.model.interface import (
    AssistantMessage,
    Completed,
    Finish,
    ModelEvent,
    Request,
    TextDelta,
    TokenUsage,
    ToolOffer,
    UserMessage,
)
from golem_forge.agent.model.text_calls import TextCallModel, may_become_call, read_named_call, read_text_calls

ONE = '{"name": "read", "arguments": {"path": "a.py"}}'
READ = ("read", {"path": "a.py"})


def calls(text: str) -> Any:
    return list(read_text_calls(text, lambda name: name in ("read", "list")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ONE, [READ]),
        (f"\n  {ONE}\n", [READ]),
        (f"```json\n{ONE}\n```", [READ]),
        (f"```\n{ONE}\n```", [READ]),
        (f"~~~tool_call\n{ONE}\n~~~", [READ]),
        (f"<tool_call>\n{ONE}\n</tool_call>", [READ]),
        (f"<tool_call>\n{ONE}", [READ]),
        (f"<tools>{ONE}</tools>", [READ]),
        (f"<function_call>{ONE}</function_call>\n<function_call>{ONE}</function_call>", [READ, READ]),
        (f"<tool_call>{ONE}\n{ONE}</tool_call>", [READ, READ]),
        (f"<functioncall> {ONE}", [READ]),
        (f"```xml\n<tool_use>\n{ONE}\n</tool_use>\n```", [READ]),
        ('<function>{"name": "list", "arguments": null}</function>', [("list", {})]),
        (f"```json\n<tool_call>{ONE}</tool_call>\n```", [READ]),
        ('<function=read>{"path": "a.py"}</function>', [READ]),
        (f"[TOOL_CALLS] [{ONE}]", [READ]),
        (f"<|python_tag|>{ONE}<|eom_id|>", [READ]),
        (f"[{ONE}, {ONE}]", [READ, READ]),
        (f"{ONE}\n{ONE}", [READ, READ]),
        (f"```json\n{ONE}\n```\n```json\n{ONE}\n```", [READ, READ]),
        ('```json\n{"tool": "list", "args": {"a": "```py\\n```"}}\n```', [("list", {"a": "```py\n```"})]),
        ('{"tool": "list", "args": {}}', [("list", {})]),
        ('{"name": "read", "parameters": {"path": "a.py"}}', [READ]),
        ('{"name": "read", "arguments": "{\\"path\\": \\"a.py\\"}"}', [("read", '{"path": "a.py"}')]),
        ('{"id": "1", "type": "function", "function": {"name": "list", "arguments": {}}}', [("list", {})]),
    ],
)
def test_an_answer_that_is_nothing_but_calls(text: str, found: list[Any]) -> None:
    assert calls(text) == found
    assert all(may_become_call(text[:at]) for at in range(len(text))), "it was held back from its first character on"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello.",
        f"I will read it: {ONE}",
        f"{ONE}\nThat is the call.",
        f"```json\n{ONE}\n```\nDone.",
        '{"name": "unknown", "arguments": {}}',
        f'[{ONE}, {{"name": "unknown", "arguments": {{}}}}]',
        '{"name": "read"}',
        '{"name": "read", "arguments": {}, "answer": 42}',
        '{"name": "read", "arguments": [1]}',
        '{"name": 7, "arguments": {}}',
        '{"arguments": {}}',
        "[]",
        "{}",
        "```json\n```",
        '{"name": "read", "arguments": {"path": NaN}}',
        '{"name": "read", "arguments": {"path": "a", "path": "b"}}',
        '{"name": "read", "arguments": {"path": "a.p',
        "[" * 100_000,
        '{"name": "read", "arguments": ' * 50_000,
        "<tool_call></tool_call>",
    ],
)
def test_everything_else_is_an_answer(text: str) -> None:
    assert calls(text) == []


@pytest.mark.parametrize(
    "text", ["H", "{7", '{"answer"', '{"answer": 1}', "# Title", "[1", "```python\nprint", "<p>", "<div", "- a"]
)
def test_what_cannot_become_a_call_is_shown_at_once(text: str) -> None:
    assert not may_become_call(text)


NAMED: dict[str, Any] = {
    "read": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
    },
    "move": {
        "type": "object",
        "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
        "required": ["old", "new"],
    },
    "count": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    "list": {"type": "object", "properties": {"path": {"type": "string"}}},
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<read><path>a.py</path></read>", READ),
        ("\n<read>\n  <path>a.py</path>\n  <limit>5</limit>\n</read>\n", ("read", {"path": "a.py", "limit": 5})),
        ("```xml\n<read><path>a.py</path></read>\n```", READ),
        ('<read>{"path": "a.py"}</read>', READ),
        ("<read>What is in it?</read>", ("read", {"path": "What is in it?"})),
        ("<read><path><![CDATA[<a>]]></path></read>", ("read", {"path": "<a>"})),
        ("<list></list>", ("list", {})),
        ('read(path="a.py", limit=5)', ("read", {"path": "a.py", "limit": 5})),
        ("read('a.py')", READ),
        ("read('a.py', limit=5)", ("read", {"path": "a.py", "limit": 5})),
        ("read(a.py)", READ),
        ("```python\nread('a.py')\n```", READ),
        ("read(path='a\\d')", ("read", {"path": "a\\d"})),
        ("count(number=7)", ("count", {"number": 7})),
        ("list()", ("list", {})),
        ("move(old='a', new='b')", ("move", {"old": "a", "new": "b"})),
    ],
)
def test_a_call_in_the_form_of_its_tool(text: str, found: Any) -> None:
    assert read_named_call(text, NAMED.get) == found
    assert all(may_become_call(text[:at], NAMED) for at in range(len(text))), "it was held back from its beginning on"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "read",
        "It is read('a.py').",
        "read('a.py') reads it.",
        "<read><path>a.py</path></read> is the call.",
        "Use <read><path>a.py</path></read>",
        "unknown('a.py')",
        "<unknown>a.py</unknown>",
        "<p>read</p>",
        "read('a', 'b')",
        "read(**words)",
        "read(f(x))",
        "read(open('x').read())",
        "move(a)",
        "<move>a</move>",
        "count(7)",
        "count(seven)",
        "read(7)",
        "list(a)",
        "read(path=1j)",
        "read(path={1})",
        "read(limit=1e999)",
        "read(" + "(" * 10_000 + ")",
        "read('" + "a" * 20_000 + "')",
        "<read>a <b>c</b></read>",
        "<read></read><read></read>",
        "<read><path>a</path></read><read><path>b</path></read>",
    ],
)
def test_what_only_resembles_that_form_is_an_answer(text: str) -> None:
    assert read_named_call(text, NAMED.get) is None


class Saying:
    name = "test:m"
    context_window = None
    max_output_tokens = 100
    calls_natively = True

    def __init__(self, text: str, piece: int = 3, finish: Finish = Finish.STOP) -> None:
        self.text, self.piece, self.finish = text, piece, finish

    def takes(self, media_type: str) -> bool:
        return False

    async def aclose(self) -> None: ...

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        for at in range(0, len(self.text), self.piece):
            yield TextDelta(self.text[at : at + self.piece])
        message = AssistantMessage(text=self.text, model=self.name, raw={"x": 1})
        yield Completed(message=message, usage=TokenUsage(input=1, output=1), finish=self.finish)


async def said(text: str, *, piece: int = 3, finish: Finish = Finish.STOP, tools: bool = True) -> tuple[str, Completed]:
    offer = ToolOffer(name="read", description="Reads.", schema=NAMED["read"])
    request = Request(
        system="",
        messages=(UserMessage(text="go"),),
        tools=(offer,) if tools else (),
        schema_of=lambda name: {"type": "object"} if name == "waiting" else {},
    )
    shown, last = "", None
    async for event in TextCallModel(Saying(text, piece, finish)).stream(request):
        if isinstance(event, TextDelta):
            shown += event.text
        elif isinstance(event, Completed):
            last = event
    assert last is not None
    return shown, last


async def test_a_call_is_taken_told_and_never_shown_as_text() -> None:
    shown, done = await said(f"```json\n{ONE}\n```")
    [call] = done.message.calls
    assert (call.name, call.args, done.message.text, shown) == ("read", {"path": "a.py"}, "", "")
    assert done.note == "test:m wrote its call as text; taken as a call of read"
    assert done.message.raw is None, "the history shows the model its call in the right form"


async def test_a_tool_that_waits_to_be_found_can_be_called_so_too() -> None:
    _, done = await said(ONE.replace('"read"', '"waiting"'))
    assert [call.name for call in done.message.calls] == ["waiting"]


@pytest.mark.parametrize("text", ["<read><path>a.py</path></read>", "read(path='a.py')", "```\nread(a.py)\n```"])
async def test_a_call_in_the_form_of_its_tool_is_taken_and_never_shown(text: str) -> None:
    shown, done = await said(text)
    [call] = done.message.calls
    assert (call.name, call.args, done.message.text, shown) == ("read", {"path": "a.py"}, "", "")
    assert done.note == "test:m wrote its call as text; taken as a call of read"


@pytest.mark.parametrize("more", [{"finish": Finish.LENGTH}, {"tools": False}], ids=["cut", "no tools"])
async def test_what_was_cut_or_had_no_tools_is_no_call(more: Any) -> None:
    shown, done = await said(ONE, **more)
    assert not done.message.calls and shown == done.message.text == ONE and not done.note


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (f"I read it now.\n\n```json\n{ONE}\n```", "read"),
        (f"1. Look.\n```py\nx = 1\n```\n2. Read:\n```\n{ONE}\n```\n", "read"),
        (f"So:\n<tool_call>\n{ONE}\n</tool_call>", "read"),
        (f"So:\n{ONE}", "read"),
        (f"So:\n{{\n{ONE[1:]}", "read"),
        (f"A call looks like this:\n```json\n{ONE}\n```\nand then its result comes.", ""),
        ("So:\n```json\n{}\n```".replace("{}", ONE.replace("read", "unknown")), "unknown"),
        (ONE.replace("read", "unknown"), ""),
        ('They are:\n```json\n{"name": "Ada", "age": 36}\n```', ""),
        ("It is 5.", ""),
        ("x\n```\n" * 50_000, ""),
        ("x\n{\n" * 50_000, ""),
    ],
)
async def test_a_call_behind_words_is_named_and_not_taken(text: str, tool: str) -> None:
    shown, done = await said(text, piece=1_000)
    assert (done.unsent, done.message.calls, shown, done.message.text) == (tool, (), text, text)


_NEAR = [ONE[:30], "```json\n{", "<tool_call>hm", '{"name": "x"}', f"{ONE} yes"]
_texts = st.text(max_size=60) | st.sampled_from(_NEAR)


@given(_texts, st.integers(1, 9))
async def test_an_answer_is_shown_byte_by_byte(text: str, piece: int) -> None:
    shown, done = await said(text, piece=piece)
    if not done.message.calls:
        assert shown == text == done.message.text


_keys = st.sampled_from(["name", "arguments", "args", "function", "type", "other"])
_values = st.recursive(st.integers() | st.sampled_from(["read", "{}"]), lambda inner: st.dictionaries(_keys, inner))


@given(_values)
def test_whatever_is_taken_names_a_tool_and_has_arguments(value: Any) -> None:
    for name, args in calls(json.dumps(value)):
        assert name in ("read", "list") and isinstance(args, (dict, str))
