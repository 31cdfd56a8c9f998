"""Many tools through the real loop (mcp.md §10, cases 31 and 32): what each request carries, and what gets loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import calls
from tests.agent.test_user_tools_block import activated, folder
from tests.tools.catalog300 import catalog300, server_tool

import golem_forge
from golem_forge.agent.files.worker import Worker
from golem_forge.agent.model.interface import Request, unfenced
from golem_forge.agent.session import open_session
from golem_forge.agent.session_plan import BUILT_IN_WORKER
from golem_forge.agent.trust import trust_store
from golem_forge.core.calls import Caller
from golem_forge.events.journal_records import read
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.tool import Tool
from golem_forge.toolsets.tool_search import RARE

Play = Callable[..., Any]
NATIVE = ["read_file", "list_files", "file_exists", "file_info", "write_file", "delete_file", "read_output"]


def names(request: Request) -> list[str]:
    return [offer.name for offer in request.tools]


def written(request: Request) -> list[str]:
    """The definitions as bytes would carry them, one by one."""
    return [json.dumps([offer.name, offer.description, offer.schema]) for offer in request.tools]


def search(query: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "tool_search", {"query": query, **more}


def found(text: str) -> list[str]:
    return [tool["name"] for tool in json.loads(unfenced(text))["tools"]]


async def test_31_what_is_found_is_sent_from_the_next_request_on_and_nothing_before_it_changes(play: Play) -> None:
    turns = [
        calls(search("create calendar event")),
        calls(("calendar__create_event", {"title": "Tea"}), search("charge a card again", limit=1)),
        "done",
    ]
    played = await play(turns, tools=catalog300())
    assert (await played.runtime.turn("go")).response == "done"
    first, second, third = played.script.requests
    assert names(first) == [*NATIVE, "tool_search"]
    assert sum(map(len, written(first))) / 4 < 8000
    (searched,) = played.script.results(1)
    loaded = found(searched[1])
    assert searched[0] == "success" and loaded[0] == "calendar__create_event" and len(loaded) == 5
    assert names(second) == [*names(first), *loaded]
    assert names(third) == [*names(second), "billing__retry_failed_payment"]
    assert written(second)[: len(first.tools)] == written(first)
    assert written(third)[: len(second.tools)] == written(second)
    called, _ = played.script.results(2)
    assert called == ("success", called[1]) and "create_event was called" in called[1]


async def test_31_the_answer_holds_descriptions_schemas_and_the_total(play: Play) -> None:
    played = await play([calls(search("calendar__share_calendar", limit=1)), "ok"], turn="go", tools=catalog300())
    (told,) = played.script.results(1)
    answer = json.loads(unfenced(told[1]))
    assert answer["total"] > 1
    (tool,) = answer["tools"]
    assert tool["description"] == "Share a calendar with another person."
    assert set(tool["inputSchema"]["properties"]) == {"calendar_id", "email", "role"}


async def test_its_description_names_sources_and_counts_and_no_tool(play: Play) -> None:
    tools = catalog300()
    played = await play([calls(search("create calendar event")), "ok"], turn="go", tools=tools)
    first, second = ({offer.name: offer for offer in each.tools}["tool_search"] for each in played.script.requests)
    assert first == second
    assert "mcp calendar: 20 tools" in first.description and "mcp shop: 20 tools" in first.description
    assert not any(tool.name in first.description or tool.remote.tool in first.description for tool in tools)


async def test_no_match_names_the_sources(play: Play) -> None:
    played = await play([calls(search("zzqqx")), "ok"], turn="go", tools=catalog300()[:100])
    told = json.loads(unfenced(played.script.results(1)[0][1]))
    assert told["tools"] == [] and told["total"] == 0
    assert told["sources"][0] == {"source": "mcp calendar", "tools": 20} and len(told["sources"]) == 5
    assert names(played.script.requests[1]) == names(played.script.requests[0])


@pytest.mark.parametrize("query", ["", "   ", "\n"])
async def test_32_an_empty_query(play: Play, query: str) -> None:
    played = await play([calls(search(query)), "ok"], turn="go", tools=catalog300())
    (status, text) = played.script.results(1)[0]
    assert status == "input_invalid" and "tool_search: query: must not be empty" in text


async def test_32_a_direct_call_runs_and_loads(play: Play) -> None:
    turns = [calls(("travel__rent_car", {"city": "Rome"}), ("travel__rent_car", {"city": "Bari"})), "ok"]
    played = await play(turns, turn="go", tools=catalog300())
    assert [status for status, _ in played.script.results(1)] == ["success", "success"]
    first, second = played.script.requests
    assert names(second) == [*names(first), "travel__rent_car"]


async def test_a_call_with_guessed_arguments_loads_too_so_that_the_next_one_need_not_guess(play: Play) -> None:
    strict = Tool(
        "deep__dive",
        "Dives.",
        input_schema={"type": "object", "properties": {"metres": {"type": "integer"}}, "required": ["metres"]},
        execute=dict,
        source="mcp",
    )
    played = await play([calls(("deep__dive", {"depth": 3})), "ok"], turn="go", tools=[*catalog300(), strict])
    assert played.script.results(1)[0][0] == "input_invalid"
    assert names(played.script.requests[1])[-1] == "deep__dive"


async def test_a_server_s_own_spelling_loads_the_tool_it_means(play: Play) -> None:
    played = await play([calls(("shop__track.parcel", {})), "ok"], tools=catalog300())
    played.runtime.path.catalog.add_alias("shop__track.parcel", "shop__track_parcel")
    await played.runtime.turn("go")
    assert names(played.script.requests[1])[-1] == "shop__track_parcel"


async def test_an_unknown_name_gets_the_nearest_ones_deferred_or_not(play: Play) -> None:
    played = await play([calls(("calendar__create_evnt", {}), ("raed_file", {})), "ok"], turn="go", tools=catalog300())
    (near, native) = played.script.results(1)
    assert near[0] == "tool_not_found" and "calendar__create_event" in near[1]
    assert 1 <= near[1].count("__") - 1 <= 3
    assert native[0] == "tool_not_found" and "read_file" in native[1]
    assert names(played.script.requests[1]) == names(played.script.requests[0])


async def test_few_tools_are_all_sent_and_there_is_nothing_to_search(play: Play) -> None:
    played = await play([calls(search("calendar")), "ok"], turn="go", tools=catalog300()[:33])
    assert names(played.script.requests[0]) == [*NATIVE, *sorted(tool.name for tool in catalog300()[:33])]
    status, text = played.script.results(1)[0]
    assert status == "tool_not_found" and "tool_search" in text


async def test_one_more_than_the_limit_is_too_many(play: Play) -> None:
    played = await play(["ok"], turn="go", tools=catalog300()[:34])
    assert names(played.script.requests[0]) == [*NATIVE, "tool_search"]


def program(place: Path, said: str) -> Path:
    place.mkdir(exist_ok=True)
    (place / "forge.yaml").write_text(said)
    return place


async def test_the_limits_are_the_programs(play: Play, tmp_path: Path) -> None:
    few = await play(
        ["ok"], turn="go", tools=catalog300()[:3], directory=program(tmp_path / "a", "tools: {defer_above: 9}\n")
    )
    assert names(few.script.requests[0])[-1] == "tool_search"
    many = program(tmp_path / "b", "tools: {defer_above: 1000, defer_tokens: 1000000}\n")
    all_sent = await play(["ok"], turn="go", tools=catalog300(), directory=many)
    assert len(all_sent.script.requests[0].tools) == 307
    heavy = await play(
        ["ok"], turn="go", tools=catalog300()[:30], directory=program(tmp_path / "c", "tools: {defer_tokens: 900}")
    )
    assert names(heavy.script.requests[0])[-1] == "tool_search"


async def test_32_always_load_is_there_from_the_start(play: Play, tmp_path: Path) -> None:
    said = (
        "tools: {always_load: [shop__track_*]}\n"
        "mcp:\n  servers:\n"
        "    travel: {command: x, always_load: ['book_*']}\n"
        "    mail: {command: x, always_load: [travel__rent_car]}\n"
    )
    played = await play(["ok"], turn="go", tools=catalog300(), directory=program(tmp_path / "p", said))
    wanted = ["shop__track_parcel", "travel__book_flight", "travel__book_hotel", "travel__book_train"]
    assert names(played.script.requests[0]) == [*NATIVE, *wanted, "tool_search"]


@golem_forge.tool(always_load=True, needs_approval=False)
def ring_the_bell() -> str:
    """Rings."""
    return "rang"


def own_tools(count: int) -> list[Tool]:
    schema = {"type": "object", "properties": {"customer": {"type": "string", "description": "Who ordered."}}}
    return [
        Tool(f"pack_order_{number}", f"Packs order {number}.", input_schema=schema, execute=lambda args: "packed")
        for number in range(count)
    ]


async def test_tools_of_an_embedder_wait_like_any_others_and_pinned_ones_do_not(play: Play, tmp_path: Path) -> None:
    pinned = program(tmp_path / "p", "tools: {always_load: [pack_order_7]}\n")
    turns = [calls(search("pack_order_33", limit=1), ("pack_order_4", {})), calls(("pack_order_33", {})), "ok"]
    played = await play(turns, turn="go", tools=[*own_tools(60), ring_the_bell, *catalog300()], directory=pinned)
    first, second, _ = played.script.requests
    assert names(first) == [*NATIVE, "pack_order_7", "ring_the_bell", "tool_search"]
    assert names(second) == [*names(first), "pack_order_33", "pack_order_4"]
    assert [status for status, _ in (*played.script.results(1), *played.script.results(2))] == ["success"] * 3
    (offer,) = [each for each in first.tools if each.name == "tool_search"]
    assert offer.description.endswith("program tools: 59 tools.")
    few = await play(["ok"], turn="go", tools=own_tools(33))
    assert len(few.script.requests[0].tools) == len(NATIVE) + 33
    heavy = Tool("heavy", "Long. " * 8000, input_schema={"type": "object"}, execute=dict)
    large = await play(["ok"], turn="go", tools=[heavy, *own_tools(3)])
    assert names(large.script.requests[0]) == [*NATIVE, "tool_search"]


async def test_a_deferred_tool_is_asked_for_as_before(play: Play, asked: Any) -> None:
    ask = asked({"approved": False})
    manual = Tool("by_hand", "Packs by hand.", input_schema={"type": "object"}, execute=dict, mode="manual")
    turns = [calls(search("pack_order_33", limit=1)), calls(("pack_order_33", {}), ("by_hand", {})), "ok"]
    played = await play(turns, turn="go", tools=[*own_tools(60), manual], approval="interactive", approval_callback=ask)
    assert [status for status, _ in played.script.results(2)] == ["approval_denied", "tool_not_found"]
    assert [request.tool for request in ask] == ["pack_order_33"]


CODE = (
    "from golem_forge import tool\n@tool(always_load=True)\ndef {0}_pinned() -> str:\n    return 'pinned'\n"
    + "".join(
        f"@tool(needs_approval=False)\ndef {{0}}_{number}(order: str) -> str:\n    return 'done {number}'\n"
        for number in range(60)
    )
)


async def test_tools_of_modules_and_packages_wait_too(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, site = program(tmp_path / "p", ""), tmp_path / "site"
    (root / "tools.py").write_text(CODE.format("wrap"))
    for name, text in {
        "acme_ship/__init__.py": CODE.format("ship") + "every = [each for each in globals().values() if hasattr(each, "
        "'always_load')]\n",
        "acme_ship-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme-ship\nVersion: 1\n",
        "acme_ship-1.dist-info/top_level.txt": "acme_ship\n",
        "acme_ship-1.dist-info/RECORD": "acme_ship/__init__.py,,\n",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))
    listed = ", ".join(["wrap_pinned", *(f"wrap_{number}" for number in range(60))])
    (root / "main.worker").write_text(
        f"---\nname: main\ntoolsets:\n  filesystem: {{}}\n  custom: {{module: ./tools.py, tools: [{listed}]}}\n"
        "  external: {package: acme-ship, import: 'acme_ship:every'}\n---\nPack.\n"
    )
    trust_store(ForgeHome(tmp_path / "home")).give(root)
    turns = [calls(search("wrap 12", limit=1), search("ship_48", limit=1)), calls(("ship_48", {"order": "x"})), "ok"]
    played = await play(turns, turn="go", worker=root / "main.worker", directory=root, home=tmp_path / "home")
    first, second, _ = played.script.requests
    assert names(first) == [*NATIVE, "ship_pinned", "wrap_pinned", "tool_search"]
    assert names(second) == [*names(first), "wrap_12", "ship_48"]
    (status, text) = played.script.results(2)[0]
    assert status == "success" and unfenced(text) == "done 48"


async def test_the_persons_own_tools_are_deferred_and_found(play: Play, tmp_path: Path) -> None:
    home = tmp_path / "forge-home"
    folder(home, "weigh-parcels")
    folder(home, "count-sheep")
    await activated(play, home, "weigh-parcels", "count-sheep")
    small = program(tmp_path / "p", "tools: {defer_above: 8, always_load: [count-sheep]}\n")
    worker = Worker(name="main", toolsets={"filesystem": {}, "user_tools": {}})
    played = await play([calls(search("weigh parcels")), "ok"], turn="go", home=home, worker=worker, directory=small)
    first, second = (names(each) for each in played.script.requests)
    assert "count-sheep" in first and "weigh-parcels" not in first
    assert second == [*first, "weigh-parcels"]
    (offer,) = [each for each in played.script.requests[0].tools if each.name == "tool_search"]
    assert "user tools: 1 tool" in offer.description


async def test_what_nobody_may_call_is_found_by_nobody(play: Play) -> None:
    tools = catalog300()
    hidden = server_tool("calendar", "create_event_kept_out", "Create a calendar event")
    by_hand = Tool("create_calendar_event", "Create calendar event", execute=dict, input_schema={}, mode="manual")
    broken = Tool("cal__create_event", "Create calendar event", input_schema={"type": 5}, execute=dict, source="mcp")
    aside = Tool("create_event_aside", "Create calendar event", input_schema={"type": "object"}, execute=dict)
    played = await play([calls(search("create calendar event", limit=20)), "ok"], tools=tools)
    catalog = played.runtime.path.catalog
    catalog.add(hidden)
    catalog.quarantine(hidden.name, "mcp", "drift: changed")
    catalog.add(by_hand)
    catalog.add(broken)  # as a tool whose schema nobody has read yet
    catalog.hide(aside, by_models=True)
    await played.runtime.turn("go")
    got = found(played.script.results(1)[0][1])
    assert got[0] == "calendar__create_event" and len(got) == 20
    assert not set(got) & {hidden.name, by_hand.name, broken.name, aside.name, "tool_search"}
    assert {each.name for each in catalog.quarantined()} >= {hidden.name, broken.name}


async def test_what_could_only_be_refused_is_neither_counted_nor_found(play: Play, tmp_path: Path) -> None:
    blocked = program(tmp_path / "p", "approval: {tools: {calendar__create_event: blocked}}\n")
    turns = [calls(search("create calendar event"), ("calendar__create_event", {})), "ok"]
    played = await play(turns, turn="go", tools=catalog300(), directory=blocked)
    searched, called = played.script.results(1)
    assert "calendar__create_event" not in found(searched[1]) and called[0] == "policy_denied"
    assert "calendar__create_event" not in names(played.script.requests[1])
    (offer,) = [each for each in played.script.requests[0].tools if each.name == "tool_search"]
    assert "mcp calendar: 19 tools" in offer.description


async def test_what_always_refuses_by_its_own_word_is_not_found(play: Play) -> None:
    schema = {"type": "object"}
    never = Tool("ring_never", "Rings the bell.", input_schema=schema, execute=dict, needs_approval="blocked")
    played = await play([calls(search("ring bell"), ("ring_never", {})), "ok"], turn="go", tools=[never, *catalog300()])
    searched, called = played.script.results(1)
    assert "ring_never" not in found(searched[1]) and called[0] == "policy_denied"
    assert "ring_never" not in names(played.script.requests[1])


async def test_no_definition_takes_a_secret_along(play: Play) -> None:
    """Sent, found, or told to a UI: in a description, a default, an enum, an example or a name. Also one that is
    learned later; and what nothing was learned about is the same object as before."""
    first, later = "s3cr3t-of-the-start", "s3cr3t-of-later-on"
    said = f"{first} and {later}"
    schema = {
        "type": "object",
        "description": said,
        "properties": {
            "password": {"type": "string", "description": "Stays.", "default": said, "examples": [said]},
            f"of {said}": {"enum": [first, later, "other"]},
        },
        "required": [f"of {said}"],
    }
    leaks = Tool("leaks_all", f"Leaks {said}.", input_schema=schema, execute=dict, always_load=True)
    hides = Tool("hides_all", f"Hides {said}.", input_schema=schema, execute=dict)
    turns = ["ok", "ok", calls(search("hides_all", limit=1)), "ok"]
    played = await play(turns, tools=[leaks, hides, *catalog300()])
    redactor = played.runtime.path.redactor
    redactor.add_secret("FIRST", first)
    await played.runtime.turn("go")
    await played.runtime.turn("go")
    redactor.add_secret("LATER", later)
    await played.runtime.turn("go")
    requests = played.script.requests
    once, twice = (next(each for each in request.tools if each.name == "leaks_all") for request in requests[:2])
    assert once is twice and first not in repr(once) and later in repr(once)
    assert once.schema["properties"]["password"]["description"] == "Stays."
    told = repr(requests[2:]) + repr([event.wire for event in played.seen("toolResult")])
    assert "[secret FIRST] and [secret LATER]" in told and "hides_all" in names(requests[3])
    assert first not in told and later not in told


async def test_searching_asks_nobody_in_any_mode(play: Play, asked: Any) -> None:
    for mode in ("interactive", "strict"):
        ask = asked({"approved": False})
        turns = [calls(search("track parcel"), ("shop__track_parcel", {"tracking": "1"})), "ok"]
        played = await play(turns, turn="go", tools=catalog300(), approval=mode, approval_callback=ask)
        assert [status for status, _ in played.script.results(1)] == ["success", "approval_denied"]
        assert len(ask) == 1


async def test_loaded_tools_come_back_with_a_resumed_session(play: Play) -> None:
    turns = [calls(search("create calendar event")), calls(("shop__track_parcel", {})), "ok"]
    first = await play(turns, turn="go", tools=catalog300())
    before = first.script.requests[-1]
    session = first.runtime.session_id
    await first.runtime.aclose()
    again = await play(["ok"], turn="and on", tools=catalog300(), resume=session)
    assert written(again.script.requests[0]) == written(before)
    assert names(before)[-1] == "shop__track_parcel" and len(before.tools) == 14


async def test_the_journal_keeps_what_is_loaded_by_worker(play: Play) -> None:
    played = await play([calls(search("track parcel", limit=1)), "ok"], turn="go", tools=catalog300())
    path, worker = played.runtime.tree.journal.path, played.runtime.id
    await played.runtime.aclose()
    kept = [record for record in read(path) if record.get("type") == "toolsLoaded"]
    assert [(each["workerId"], each["names"]) for each in kept] == [(worker, ["shop__track_parcel"])]


async def test_a_tool_that_goes_and_comes_back(play: Play) -> None:
    def go(request: Request) -> str:
        catalog.remove("shop__track_parcel")
        return "gone"

    def come(request: Request) -> str:
        catalog.add(server_tool("shop", "track_parcel", "Track"))
        return "back"

    played = await play([calls(search("track parcel", limit=2)), go, come, "ok"], tools=catalog300())
    catalog = played.runtime.path.catalog
    for text in ("one", "two", "three"):
        await played.runtime.turn(text)
    _, second, third, fourth = (names(each) for each in played.script.requests)
    assert "shop__track_parcel" in second and "shop__track_parcel" not in third
    assert fourth == second


async def test_a_tool_used_before_there_were_too_many_stays(play: Play) -> None:
    def connect(request: Request) -> str:
        for tool in catalog300()[20:]:
            catalog.add(tool)
        return "now there are many"

    played = await play([calls(("calendar__list_rooms", {})), connect, "ok"], tools=catalog300()[:20])
    catalog = played.runtime.path.catalog
    await played.runtime.turn("one")
    await played.runtime.turn("two")
    assert "tool_search" not in names(played.script.requests[0])
    assert names(played.script.requests[2]) == [*NATIVE, "tool_search", "calendar__list_rooms"]


async def test_when_they_are_few_again_all_are_sent_and_nothing_is_searched(play: Play) -> None:
    def most_go(request: Request) -> str:
        for tool in catalog300()[10:]:
            catalog.remove(tool.name)
        return "gone"

    played = await play([most_go, calls(search("calendar")), "ok"], tools=catalog300())
    catalog = played.runtime.path.catalog
    await played.runtime.turn("one")
    await played.runtime.turn("two")
    assert len(played.script.requests[1].tools) == len(NATIVE) + 10
    assert played.script.results(2)[0][0] == "tool_not_found"


async def test_another_model_goes_on_with_what_is_loaded(play: Play) -> None:
    played = await play([calls(search("track parcel", limit=1)), "ok", "ok"], turn="one", tools=catalog300())
    run = played.runtime._active
    played.runtime._ready.workers._use(run, run.loop.dialogue.model)
    await played.runtime.turn("two")
    assert names(played.script.requests[2]) == names(played.script.requests[1])


def plenty(count: int) -> list[Tool]:
    return [
        server_tool(
            f"srv{number % 10}", f"do_thing_{number}", f"Does thing number {number} for a customer", "query limit"
        )
        for number in range(count)
    ]


async def test_five_thousand_tools_of_many_sources_cost_little(play: Play) -> None:
    played = await play(["ok"])
    for each in (*own_tools(2500), *plenty(2500)):
        played.runtime.path.catalog.add(each)
    await played.runtime.turn("go")
    request = played.script.requests[0]
    assert sum(map(len, written(request)[len(NATIVE) :])) / 4 < 2000


async def test_three_thousand_tools_cost_a_request_what_three_hundred_do(play: Play) -> None:
    sizes = []
    for count in (300, 3000):
        played = await play([calls(search("thing number 77", limit=3)), "ok"])
        catalog = played.runtime.path.catalog
        for tool in plenty(count):
            catalog.add(tool)
        await played.runtime.turn("go")
        sizes.append([sum(map(len, written(each))) for each in played.script.requests])
        assert names(played.script.requests[1])[-3] == "srv7__do_thing_77"
        built = sum("input" in tool.__dict__ for tool in catalog if tool.source == "mcp")
        assert built == 3  # of what is not sent no schema is made
        deferring = played.runtime._active.scope.model_tools
        seen = deferring.select()
        deferring.offers()
        assert deferring.select() is seen  # worked out once, until something changes
        catalog.add(server_tool("srv0", "one_more", "One more"))
        deferring.offers()
        assert deferring.select() is not seen
        assert built == sum("input" in tool.__dict__ for tool in catalog if tool.source == "mcp")
        await played.runtime.aclose()
    few, many = sizes
    assert all(abs(one - other) <= 10 for one, other in zip(few, many, strict=True))  # ten counts, a digit more each


async def test_without_a_model_it_is_there_too_where_something_is_deferred(tmp_path: Path) -> None:
    kinds = {"approval": "approve_all", "home": tmp_path / "home"}
    place = program(tmp_path / "p", "")
    async with open_session(place, tools=catalog300(), **kinds) as session:
        outcome = await session.call("tool_search", {"query": "create calendar event"}, caller=Caller.HUMAN)
        assert outcome.ok and found(outcome.text)[0] == "calendar__create_event"
        assert "tool_search" not in session.catalog.names()
    async with open_session(place, toolsets={"filesystem": {}}, **kinds) as session:
        assert (await session.call("tool_search", {"query": "x"})).status == "tool_not_found"


async def test_forges_own_rare_tools_wait_by_name_and_are_loaded_by_search_or_by_a_call(play: Play) -> None:
    """The whole built-in worker: what is seldom used is not sent, and nothing is lost."""
    turns = [calls(search("save a memory", limit=1)), calls(("file_exists", {"path": "x"})), "ok"]
    played = await play(turns, turn="go", worker=BUILT_IN_WORKER)
    first, second, third = played.script.requests
    offered = {offer.name: offer for offer in first.tools}
    assert not RARE & offered.keys()
    assert all(name in offered["tool_search"].description for name in RARE)
    assert "save_memory" in names(second) and names(second)[: len(first.tools)] == names(first)
    assert names(third)[-1] == "file_exists" and played.script.results(2)[0][0] == "success"


async def test_a_rare_tool_can_be_sent_always(play: Play, tmp_path: Path) -> None:
    place = program(tmp_path / "p", "tools: {always_load: [get_memory]}\n")
    played = await play(["ok"], turn="go", worker=BUILT_IN_WORKER, directory=place)
    offered = {offer.name: offer for offer in played.script.requests[0].tools}
    assert "get_memory" in offered and "get_memory" not in offered["tool_search"].description
