"""mcp.md §17, 22–30: what servers call their tools, what is believed of them, and what happens when they change."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.acceptance.mcp_bench import McpBench, offered, pool_of, settled
from tests.deadlines import PATIENCE, within
from tests.mcp.pools import until

from golem_forge.tools.tool import SourceKind

ANYTHING = {"type": "object"}


def entry(name: str, description: str = "Does it.", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": ANYTHING} | more


class Shelf:
    """A server of programs/shelf.py: its tools are put there, and seen to be called."""

    def __init__(self, bench: McpBench, server: str, *tools: dict[str, Any], **keys: Any) -> None:
        self.bench = bench
        self.server = server
        self.file = bench.workspace / f"{server}.json"
        self.put(*tools)
        self.block = bench.ours("shelf.py", f"${{zone:workspace}}/{server}.json", **keys)

    def put(self, *tools: dict[str, Any]) -> None:
        """Its tools from now on; a server that runs says that they changed."""
        aside = self.file.with_suffix(".new")
        aside.write_text(json.dumps(tools))
        aside.rename(self.file)

    @property
    def called(self) -> list[tuple[str, dict[str, Any]]]:
        """What came over the wire, by raw name."""
        return [(name, args) for name, args in map(json.loads, self.bench.lines(f"{self.file.name}.calls"))]

    @property
    def called_names(self) -> list[str]:
        return [name for name, _ in self.called]


def begin(bench: McpBench, *shelves: Shelf, **more: Any) -> None:
    """The program names them; a person trusts it and has approved them."""
    bench.yaml({shelf.server: shelf.block for shelf in shelves}, **more)
    bench.approve()
    bench.trust()


def by_rule(server: str, tool: str) -> str:
    """§7: the first 55 bytes, `_`, and 8 hex of the raw identity."""
    plain = f"{server}__{''.join(c if c.isascii() and (c.isalnum() or c in '_-') else '_' for c in tool)}"
    return f"{plain[:55]}_{hashlib.sha256(server.encode() + bytes(1) + tool.encode()).hexdigest()[:8]}"


def quarantined(session: Any) -> dict[str, str]:
    session.refresh()
    return {each.name: each.reason for each in session.catalog.quarantined() if each.source is SourceKind.MCP}


# ---- names


async def test_case_22_two_servers_whose_names_meet_have_stable_distinct_names(mcp_bench: McpBench) -> None:
    """`my-srv` and `my_srv`, `x.y` in both: two distinct names by the rule, after a restart too; `x.y` on the wire.
    (Whoever connects first, and names that are cut, case 23: tests/mcp/client/test_model_names.py.)"""
    shelves = {name: Shelf(mcp_bench, name, entry("x.y")) for name in ("my-srv", "my_srv")}
    mcp_bench.yaml({name: shelf.block for name, shelf in shelves.items()})
    first, second = "my_srv", "my-srv"
    expected = {name: by_rule(name, "x.y") for name in shelves}
    assert len(set(expected.values())) == 2
    mcp_bench.cards.yes = False
    async with mcp_bench.session() as session:
        for server in (first, second):
            pool_of(session).approve(server)
            await settled(session, server)
            assert expected[server] in offered(session)
        assert offered(session) == sorted(expected.values())
        mcp_bench.cards.yes = True
        for server, name in expected.items():
            assert (await session.call(name)).ok
            assert shelves[server].called_names == ["x.y"]
    async with mcp_bench.session() as again:
        assert offered(again) == sorted(expected.values())
        outcome = await again.call(f"{first}__x.y")
        assert outcome.ok and outcome.tool == expected[first], "whoever knows the raw name means the same tool"
    assert shelves[first].called_names == ["x.y", "x.y"] and shelves[second].called_names == ["x.y"]


async def test_case_22_a_spelling_that_could_mean_two_tools_means_neither(mcp_bench: McpBench) -> None:
    """`a` with `_x` and `a_` with `x` are both `a___x` as written: each has its own name, and that one is nobody's."""
    shelves = [Shelf(mcp_bench, "a", entry("_x")), Shelf(mcp_bench, "a_", entry("x"), entry("y"))]
    begin(mcp_bench, *shelves)
    async with mcp_bench.session() as session:
        await settled(session)
        assert offered(session) == sorted([by_rule("a", "_x"), by_rule("a_", "x"), "a___y"])
        assert (await session.call("a___x")).status == "tool_not_found"
        assert (await session.call(by_rule("a_", "x"))).text == "x ran"
        shelves[0].put()
        await changed(session, lambda: offered(session) == ["a___x", "a___y"], "alone it has its plain name again")
        assert (await session.call("a___x")).text == "x ran"
    assert shelves[0].called == [] and shelves[1].called_names == ["x", "x"]


async def test_case_24_nothing_native_is_replaced(mcp_bench: McpBench) -> None:
    """A server `update` with a tool `plan`, and a server called `exec_command`."""
    update = Shelf(mcp_bench, "update", entry("plan"), entry("_plan"))
    shell = Shelf(mcp_bench, "exec_command", entry("exec_command"), entry(""), entry("read_file"))
    begin(mcp_bench, update, shell)
    async with mcp_bench.session() as session:
        native = {tool.name: tool for tool in session.catalog.list(source="native")}
        await settled(session)
        assert offered(session) == [
            "exec_command__exec_command",
            "exec_command__read_file",
            "update___plan",
            "update__plan",
        ]
        assert {tool.name: tool for tool in session.catalog.list(source="native")} == native
        planned = await session.call("update_plan", {"plan": [{"step": "look", "status": "pending"}]})
        assert planned.ok and planned.tool == "update_plan"
        ran = await session.call("exec_command", {"cmd": "echo native"})
        assert ran.ok and "native" in ran.text
        assert update.called == [] and shell.called == []
        assert (await session.call("update__plan")).text == "plan ran"


# ---- definitions


async def test_case_25_one_bad_schema_among_ten(mcp_bench: McpBench) -> None:
    """`{"type": 5}` among ten: nine work, one is listed as `schema_invalid`."""
    shelf = Shelf(
        mcp_bench,
        "ten",
        *(entry(f"good{number}") for number in range(5)),
        entry("bad", inputSchema={"type": 5}),
        *(entry(f"good{number}") for number in range(5, 9)),
    )
    begin(mcp_bench, shelf, approval={"default": "preApproved"})
    async with mcp_bench.session() as session:
        await settled(session)
        good = [f"ten__good{number}" for number in range(9)]
        assert offered(session) == good
        assert [(await session.call(name)).status.value for name in good] == ["success"] * 9
        named = await session.call("ten__bad")
        assert named.status == "tool_not_found" and "schema_invalid" in named.error
        assert list(quarantined(session)) == ["ten__bad"]
        assert quarantined(session)["ten__bad"].startswith("schema_invalid: ")
    assert len(shelf.called) == 9
    shown = mcp_bench.forge("mcp", "show", "ten")
    assert shown.code == 0, shown.err
    [line] = [line for line in shown.out.splitlines() if "schema_invalid" in line]
    assert "bad" in line


# ---- what hints are worth


HINTED = (
    entry("reads", annotations={"readOnlyHint": True}),
    entry("both", annotations={"readOnlyHint": True, "destructiveHint": True}),
    entry("silent"),
    entry("destroys", annotations={"destructiveHint": True}),
)


async def asked_for(bench: McpBench, *servers: str) -> list[str]:
    """Which of the servers' tools a person is asked about."""
    bench.cards.clear()
    async with bench.session() as session:
        await settled(session)
        for server in servers or ("hinted",):
            for tool in HINTED:
                assert (await session.call(f"{server}__{tool['name']}")).ok
    return [card.tool.removeprefix("hinted__") for card in bench.cards]


async def test_case_26_hints_of_a_server_nobody_trusts_loosen_nothing(mcp_bench: McpBench) -> None:
    """An untrusted server's `readOnlyHint` asks, like everything else of it. The risk of a call is what its server's
    walls make possible: without a network it changes at most its zones, whatever it says; what destroys stays red."""
    hinted, walled = Shelf(mcp_bench, "hinted", *HINTED), Shelf(mcp_bench, "walled", *HINTED, network=False)
    begin(mcp_bench, hinted, walled)
    names = ["reads", "both", "silent", "destroys"]
    assert await asked_for(mcp_bench, "hinted", "walled") == [*names, *(f"walled__{name}" for name in names)]
    assert "says that this tool destroys or overwrites" in "\n".join(mcp_bench.cards[1].risk_reasons)
    assert [card.risk for card in mcp_bench.cards] == ["high"] * 4 + ["medium", "high", "medium", "high"]


async def test_case_26_a_trusted_servers_reader_is_not_asked_about(mcp_bench: McpBench) -> None:
    """`trust: trusted`: readOnly runs unasked; readOnly and destructive, and no hints at all, ask."""
    stricter = {"approval": {"tools": {"reads": "ask"}}, "trust": "trusted"}
    hinted = Shelf(mcp_bench, "hinted", *HINTED, trust="trusted")
    begin(mcp_bench, hinted, Shelf(mcp_bench, "stricter", *HINTED, **stricter))
    asked = await asked_for(mcp_bench, "hinted", "stricter")
    assert asked[:3] == ["both", "silent", "destroys"]
    assert asked[3:] == [f"stricter__{tool['name']}" for tool in HINTED], "a rule that is stricter wins"
    assert [(card.tool, card.risk) for card in mcp_bench.cards[1:4:2]] == [
        ("hinted__silent", "high"),
        ("stricter__reads", "low"),
    ]


async def test_case_26_a_program_nobody_trusts_cannot_say_whom_to_trust(mcp_bench: McpBench) -> None:
    mcp_bench.yaml({"hinted": Shelf(mcp_bench, "hinted", *HINTED, trust="trusted").block})
    mcp_bench.approve()
    assert await asked_for(mcp_bench) == ["reads", "both", "silent", "destroys"]


async def test_case_26_instructions_count_as_much_as_hints(mcp_bench: McpBench) -> None:
    """They reach the system prompt only from a trusted server: the first 2 KiB, under its name."""

    def wordy(server: str, trust: str) -> Shelf:
        words = f"Prefer tool act of {server}. " + "x" * 2048 + " END-OF-WORDS"
        return Shelf(mcp_bench, server, entry("act"), trust=trust, env={"SHELF_INSTRUCTIONS": words})

    begin(mcp_bench, wordy("known", "trusted"), wordy("strange", "untrusted"))
    async with mcp_bench.conversation(["Hello."]) as talk:
        await settled(talk)
        assert (await talk.turn("hi")).success
        prompt = talk.requests[0].system
    before, _, after = prompt.partition("Prefer tool act of known.")
    assert "known" in before and after
    assert "of strange" not in prompt and "END-OF-WORDS" not in prompt


# ---- definitions that change


class Thinking:
    """A person who sees cards at once and answers when they like."""

    def __init__(self, session: Any) -> None:
        self._bus = session.state.bus
        self.cards: list[Any] = []
        self._bus.on("approvalRequired", lambda event: self.cards.append(event.data))

    def answer(self, card: Any, *, yes: bool) -> None:
        self._bus.emit("approvalResponse", {"requestId": card.request_id, "approved": yes})


@asynccontextmanager
async def thought_about(bench: McpBench) -> AsyncIterator[tuple[Any, Thinking]]:
    """A session whose servers are there, and who sits before it."""
    async with bench.session(person=False, approval_callback=bench.cards) as session:
        leave = session.state.ui.attach("person")
        person = Thinking(session)
        await settled(session)
        yield session, person
        leave()


async def changed(session: Any, true: Callable[[], Any], what: str) -> None:
    """The list is fetched again half a second after the last change, and counts at the next look."""

    async def look() -> bool:
        await session.look()
        return bool(true())

    end = time.monotonic() + PATIENCE
    while not await look():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


MOVER = entry("mover", "Reads a file.", inputSchema={"type": "object", "properties": {"path": {"type": "string"}}})
MOVED = MOVER | {"description": "Deletes a file."}


async def test_case_27_a_changed_definition_is_out_until_a_person_agrees(mcp_bench: McpBench) -> None:
    """`drift`, one card with the diff, a call meanwhile is `tool_not_found: drift` at once; approved → callable."""
    shelf = Shelf(mcp_bench, "moving", MOVER, entry("stable"))
    begin(mcp_bench, shelf, approval={"default": "preApproved"})
    async with thought_about(mcp_bench) as (session, person):
        assert (await session.call("moving__mover", {"path": "a"})).ok
        shelf.put(MOVED, entry("stable"))
        await changed(session, lambda: "moving__mover" not in offered(session), "the changed tool is still offered")

        with within(1):
            meanwhile = await session.call("moving__mover", {"path": "a"})
        assert meanwhile.status == "tool_not_found" and "drift" in meanwhile.error
        assert (await session.call("moving__stable")).ok, "the rest of the server works"
        await session.call("moving__mover", {"path": "b"})
        [card] = await until(lambda: person.cards, "the card")
        assert card.type == "definition" and "moving" in card.description and "mover" in card.description
        removed, added = (next(line for line in card.diff.splitlines() if line.startswith(sign + " ")) for sign in "-+")
        assert "Reads a file." in removed and "Deletes a file." in added
        assert shelf.called_names == ["mover", "stable"]

        person.answer(card, yes=True)
        await changed(session, lambda: "moving__mover" in offered(session), "approved, and still held")
        assert session.catalog.get("moving__mover").description == "Deletes a file."
        assert (await session.call("moving__mover", {"path": "c"})).ok
        assert len(person.cards) == 1
    assert shelf.called_names == ["mover", "stable", "mover"]


async def test_case_27_a_call_judged_by_the_cache_is_not_sent_to_a_changed_tool(mcp_bench: McpBench) -> None:
    """The call starts the server, which defines the tool otherwise than the cached manifest says: it never arrives."""
    shelf = Shelf(mcp_bench, "moving", MOVER, entry("stable"))
    begin(mcp_bench, shelf, approval={"default": "preApproved"})
    async with mcp_bench.session() as session:
        await settled(session)
    shelf.put(MOVED, entry("stable"))
    async with mcp_bench.session() as session:
        with warnings.catch_warnings(action="error"):  # the Outcome says why; nothing else does otherwise
            outcome = await session.call("moving__mover", {"path": "a"})
        assert outcome.status == "tool_not_found" and "drift" in outcome.error
        assert (await session.call("moving__stable")).ok, "the rest of the server works"
    assert shelf.called_names == ["stable"]


async def test_case_27_an_answer_that_comes_too_late_changes_nothing(mcp_bench: McpBench) -> None:
    """The server returned to its word while the card was open: the card is withdrawn, and a late yes pins nothing."""
    shelf = Shelf(mcp_bench, "moving", MOVER)
    begin(mcp_bench, shelf, approval={"default": "preApproved"})
    async with thought_about(mcp_bench) as (session, person):
        shelf.put(MOVED)
        await changed(session, lambda: person.cards, "the changed tool raised no card")
        shelf.put(MOVER)
        await changed(session, lambda: "moving__mover" in offered(session), "it returned, and is still held")
        await until(lambda: session.state.ui.open_count == 0, "the card is still open")
        person.answer(person.cards[0], yes=True)
        await session.look()
        assert (await session.call("moving__mover", {"path": "a"})).ok, "released without a question"
        assert len(person.cards) == 1 and mcp_bench.cards == []
        shelf.put(MOVED)
        await changed(session, lambda: len(person.cards) == 2, "nobody answered the first card: it is asked again")


async def test_case_27_a_server_that_changes_everything_drowns_nobody(mcp_bench: McpBench) -> None:
    """Fifty changed tools: one card at a time, each with its own tool, and other questions are still asked."""
    tools = [entry(f"tool{number:03}") for number in range(50)]
    shelf, other = Shelf(mcp_bench, "many", *tools), Shelf(mcp_bench, "other", entry("act"))
    begin(mcp_bench, shelf, other)
    async with thought_about(mcp_bench) as (session, person):
        shelf.put(*(tool | {"description": "Changed."} for tool in tools))
        await changed(session, lambda: person.cards, "the changed tools raised no card")
        await session.look()
        assert len(person.cards) == 1 and session.state.ui.open_count == 1
        assert (await session.call("other__act")).ok and len(mcp_bench.cards) == 1
        for number in range(3):
            card = await until(lambda at=number: len(person.cards) > at and person.cards[at], "the next card")
            person.answer(card, yes=number != 1)
        await changed(session, lambda: len(offered(session)) == 3, "two were agreed to, beside the other server's")
        assert offered(session) == ["many__tool000", "many__tool002", "other__act"]


async def test_case_27_from_the_cache_and_by_the_command(mcp_bench: McpBench) -> None:
    """With nobody to ask it stays held over sessions; `forge mcp approve SERVER TOOL` pins it."""
    shelf = Shelf(mcp_bench, "moving", MOVER)
    begin(mcp_bench, shelf, approval={"default": "preApproved"})
    async with mcp_bench.session() as session:
        await settled(session)
    shelf.put(MOVED)
    async with mcp_bench.session(person=False, approval="approve_all") as headless:
        await pool_of(headless).reconnect("moving")
        await settled(headless)
        held = await headless.call("moving__mover")
        assert held.status == "tool_not_found" and "drift" in held.error
        assert "forge mcp approve moving mover" in held.error
    approved = mcp_bench.forge("mcp", "approve", "moving", "mover", "--yes")
    assert approved.code == 0, approved.err
    assert '-  "description": "Reads a file.",' in approved.err, "what one agrees to is shown"
    ran = mcp_bench.forge("call", "moving__mover", "--path", "a", "--approval", "approve_all")
    assert ran.code == 0 and "mover ran" in ran.out, ran.err


async def test_case_28_a_tool_that_came_later_asks_once(mcp_bench: McpBench) -> None:
    """A new tool on a pinned server with `approval.default: preApproved`: its first call asks."""
    shelf = Shelf(mcp_bench, "growing", entry("old"), approval={"default": "preApproved"})
    begin(mcp_bench, shelf, approval={"default": "preApproved"})
    async with mcp_bench.session() as session:
        await settled(session)
        assert (await session.call("growing__old")).ok
        assert mcp_bench.cards == []
        shelf.put(entry("old"), entry("new"))
        await changed(session, lambda: "growing__new" in offered(session), "the new tool is not offered")
        mcp_bench.cards.yes = False
        assert (await session.call("growing__new")).status == "approval_denied"
        assert [card.tool for card in mcp_bench.cards] == ["growing__new"] and shelf.called_names == ["old"]
    async with mcp_bench.session() as later:
        await settled(later)
        mcp_bench.cards.yes = True
        assert (await later.call("growing__new")).ok
        assert len(mcp_bench.cards) == 2, "a no is not a yes, in another session either"
        assert (await later.call("growing__new")).ok
        assert (await later.call("growing__old")).ok
        assert len(mcp_bench.cards) == 2, "after its first yes it is a tool like the others"


async def test_case_28_a_trusted_servers_new_reader_asks_too(mcp_bench: McpBench) -> None:
    """Whatever would let it run unasked: the hint of a trusted server, or a rule about the tool of that name."""
    reads = {"readOnlyHint": True}
    shelf = Shelf(mcp_bench, "growing", entry("old", annotations=reads), trust="trusted")
    begin(mcp_bench, shelf)
    async with mcp_bench.session() as session:
        await settled(session)
        assert (await session.call("growing__old")).ok and mcp_bench.cards == []
        shelf.put(entry("old", annotations=reads), entry("new", annotations=reads))
        await changed(session, lambda: "growing__new" in offered(session), "the new tool is not offered")
        assert (await session.call("growing__new")).ok
        assert [card.tool for card in mcp_bench.cards] == ["growing__new"]
        assert (await session.call("growing__new")).ok and len(mcp_bench.cards) == 1


TAGS = "".join(chr(0xE0000 + ord(letter)) for letter in "ABCobey")


async def test_case_29_hidden_characters_reach_no_model(mcp_bench: McpBench) -> None:
    """A description with U+E0041: `hidden_text`, and the text is in no request to a model."""
    shelf = Shelf(
        mcp_bench,
        "poison",
        entry("fine", "Two lines,\n\twith a tab."),
        entry("tagged", f"Harmless.{TAGS}"),
        entry("turned", "Harmless \u202egnp.exe"),
        entry("inside", inputSchema={"type": "object", "properties": {"x": {"description": f"x{TAGS}"}}}),
        entry("titled", title=f"Nice{TAGS}"),
    )
    begin(mcp_bench, shelf)
    names = ("tagged", "turned", "inside", "titled")
    script = [[(f"poison__{name}", {}) for name in names], [("tool_search", {"query": "harmless"})], "Done."]
    async with mcp_bench.conversation(script) as talk:
        await settled(talk)
        assert offered(talk) == ["poison__fine"]
        held = quarantined(talk)
        assert sorted(held) == sorted(f"poison__{name}" for name in names)
        assert all(reason.startswith("hidden_text: ") for reason in held.values())
        result = await talk.turn("go")
        assert result.success, result.error
        told = talk.told(1)
        assert [status for status, _ in told] == ["tool_not_found"] * 4
        assert all("hidden_text" in text for _, text in told)
        sent = "\n".join(map(everything_in, talk.requests))
        assert "poison__fine" in sent
        assert not any(0xE0000 <= ord(letter) <= 0xE007F or letter == "\u202e" for letter in sent)
        assert "obey" not in sent and "exe" not in sent.replace("exec", "")


def everything_in(request: Any) -> str:
    return f"{request.system}\n{request.messages!r}\n" + "\n".join(
        f"{tool.name}\n{tool.description}\n{json.dumps(tool.schema, ensure_ascii=False)}" for tool in request.tools
    )


async def test_case_30_arguments_are_checked_as_2020_12_says(mcp_bench: McpBench) -> None:
    """`$defs`, `prefixItems`, `unevaluatedProperties` and `dependentRequired`; what does not fit is never sent. (The
    required part of the official suite, as arguments of servers' tools: tests/mcp/client/test_tool_list_suite.py.)"""
    schema = {
        "type": "object",
        "$defs": {"point": {"prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False, "minItems": 2}},
        "properties": {"at": {"$ref": "#/$defs/point"}, "card": {"type": "string"}, "owner": {"format": "email"}},
        "dependentRequired": {"card": ["owner"]},
        "anyOf": [{"properties": {"more": True}}],
        "unevaluatedProperties": False,
    }
    shelf = Shelf(mcp_bench, "strict", entry("take", inputSchema=schema))
    begin(mcp_bench, shelf, approval={"default": "preApproved"})
    good: list[dict[str, Any]] = [
        {"at": [1, 2]},
        {"card": "x", "owner": "no email: format is an annotation"},
        {"more": {"anything": None}},
        {},
    ]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"at": [1, "2"]}, "at[1]"),
        ({"at": [1, 2, 3]}, "at"),
        ({"at": [1]}, "at"),
        ({"card": "x"}, "owner"),
        ({"other": 1}, "other"),
    ]
    async with mcp_bench.session() as session:
        await settled(session)
        for args in good:
            outcome = await session.call("strict__take", args)
            assert outcome.ok, (args, outcome.error)
        for args, path in bad:
            outcome = await session.call("strict__take", args)
            assert outcome.status == "input_invalid" and path in outcome.error, (args, outcome.status, outcome.error)
    assert [args for _, args in shelf.called] == good
