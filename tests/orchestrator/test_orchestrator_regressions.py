"""Attacks and accidents that once worked. Each of these ran something that nobody had judged, or lost something."""

from __future__ import annotations

import asyncio
import functools
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from golem_forge import Caller, Tool, ToolCall, ToolContext, open_session, tool
from golem_forge.tools.context import Plan
from golem_forge.tools.validation import ToolDefinitionError


async def test_a_callback_that_changes_its_request_changes_nothing_else(make_path: Any) -> None:
    ran: list[str] = []

    @tool(needs_approval=lambda args: "blocked" if args["target"] == "production" else "ask")
    async def deploy(target: str) -> str:
        ran.append(target)
        return "ok"

    def tamper(request: Any) -> dict[str, Any]:
        request.args["target"] = "production"
        return {"approved": True}

    outcome = await make_path(deploy, ask=tamper).call(ToolCall("deploy", {"target": "staging"}))
    assert outcome.ok
    assert ran == ["staging"]
    assert outcome.args == {"target": "staging"}


@pytest.mark.parametrize("schema", [None, {"type": "object"}])
async def test_a_caller_that_changes_its_arguments_while_the_card_is_open_changes_nothing(
    make_path: Any, schema: Any
) -> None:
    ran: list[Any] = []

    def keep(data: Any) -> str:
        ran.append(data)
        return "ok"

    if schema is None:
        keeps = tool(name="keep")(keep)
    else:
        keeps = Tool("keep", "Keeps.", input_schema=schema, execute=lambda args: keep(args["data"]))
    args = {"data": {"x": 1, "list": [1]}}

    def tamper(request: Any) -> dict[str, Any]:
        args["data"]["x"] = "EVIL"  # type: ignore[index]
        args["data"]["list"].append("EVIL")  # type: ignore[index]
        return {"approved": True}

    outcome = await make_path(keeps, ask=tamper).call(ToolCall("keep", args))
    assert ran == [{"x": 1, "list": [1]}]
    assert outcome.args == {"data": {"x": 1, "list": [1]}}


async def test_a_tool_that_changes_its_arguments_does_not_change_the_record(make_path: Any) -> None:
    def greedy(args: dict[str, Any]) -> str:
        args["data"].append("mine")
        args["more"] = True
        return "ok"

    grab = Tool("grab", "Grabs.", input_schema={"type": "object"}, execute=greedy, needs_approval=False)
    outcome = await make_path(grab).call(ToolCall("grab", {"data": ["x"]}))
    assert outcome.args == {"data": ["x"]}


async def test_editing_one_field_keeps_the_secret_in_another(make_path: Any) -> None:
    seen: list[Any] = []

    @tool
    def login(user: str, password: str, options: dict[str, str]) -> str:
        seen.append((user, password, options))
        return "ok"

    def edit(request: Any) -> dict[str, Any]:
        assert "hunter" not in str(request.args)
        return {"approved": True, "args": {**request.args, "user": "edited"}}

    args = {"user": "me", "password": "hunter2hunter2", "options": {"token": "hunter3hunter3"}}
    outcome = await make_path(login, ask=edit).call(ToolCall("login", args))
    assert seen == [("edited", "hunter2hunter2", {"token": "hunter3hunter3"})]
    assert outcome.notes == ('The user changed: user "me" → "edited".',)


async def test_in_a_batch_a_call_sees_what_the_one_before_it_made(tmp_path: Path) -> None:
    async with open_session(tmp_path, approval="approve_all") as session:
        outcomes = await session.batch(
            [
                ToolCall("write_file", {"path": "n.txt", "content": "one"}),
                ToolCall("read_file", {"path": "n.txt"}),
                ToolCall("write_file", {"path": "n.txt", "content": "two"}),
                ToolCall("delete_file", {"path": "n.txt"}),
                ToolCall("read_file", {"path": "n.txt"}),
            ]
        )
    assert [o.status for o in outcomes] == ["success"] * 4 + ["execution_failed"]
    assert outcomes[1].text == "L1: one"


async def test_always_acts_on_the_very_next_call(tmp_path: Path) -> None:
    @tool
    def ping() -> str:
        return "pong"

    def always(request: Any) -> dict[str, Any]:
        ask.append(request)
        return {"approved": True, "choice": next(c.id for c in request.choices if c.scope == "always")}

    ask: list[Any] = []
    async with open_session(tmp_path, tools=[ping], approval_callback=always) as session:
        for _ in range(4):
            assert (await session.call("ping", {})).ok
    assert len(ask) == 1


async def test_strict_mode_offers_nothing_that_it_would_ignore(make_path: Any, asked: Any) -> None:
    @tool
    def ping() -> str:
        return "pong"

    ask = asked()
    await make_path(ping, ask=ask, mode="strict").call(ToolCall("ping", {}))
    assert {choice.scope for choice in ask[0].choices} == {"session"}


async def test_a_tool_that_only_reads_cannot_call_one_that_writes(make_path: Any) -> None:
    writes = 0

    @tool(needs_approval=False)
    async def write() -> str:
        nonlocal writes
        writes += 1
        return "written"

    @tool(needs_approval=False, read_only=True)
    async def look(*, ctx: ToolContext) -> str:
        return (await ctx.call("write", {})).text

    @tool(needs_approval=False)
    async def act(*, ctx: ToolContext) -> str:
        return (await ctx.call("write", {})).text

    path = make_path(write, look, act)
    assert "is declared read_only and cannot call 'write'" in (await path.call(ToolCall("look", {}))).text
    assert writes == 0
    assert (await path.call(ToolCall("act", {}))).text == "written"


async def test_a_sync_tool_may_call_others_and_wait(make_path: Any) -> None:
    @tool(needs_approval=False)
    def inner(x: int) -> int:
        return x + 1

    @tool(needs_approval=False)
    def outer(*, ctx: ToolContext) -> str:
        return ctx.call_blocking("inner", {"x": 1}).text

    assert (await make_path(inner, outer).call(ToolCall("outer", {}))).text == "2"


async def test_credentials_of_the_environment_are_taken_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", "canary-0b1d2f3a4c")

    @tool(needs_approval=False)
    def leak() -> dict[str, str]:
        return {"note": "key is canary-0b1d2f3a4c"}

    async with open_session(tmp_path, tools=[leak]) as session:
        outcome = await session.call("leak", {})
        assert session.journal is not None
    assert "canary" not in outcome.text + str(outcome.result)
    assert "[secret ACME_API_KEY]" in outcome.text
    assert "canary-0b1d2f3a4c" not in session.journal.path.read_text()


class Adder:
    """Adds."""

    async def __call__(self, a: int, *, ctx: ToolContext) -> int:
        return a + len(ctx.worker)


def power(base: int, exponent: int) -> int:
    """Raise."""
    return int(base**exponent)


async def test_callable_objects_and_partials_are_tools_too(make_path: Any) -> None:
    path = make_path(
        tool(name="adder", needs_approval=False)(Adder()),
        tool(name="square", needs_approval=False)(functools.partial(power, exponent=2)),
    )
    assert (await path.call(ToolCall("adder", {"a": 1}))).text == "5"
    assert (await path.call(ToolCall("square", {"base": 7}))).text == "49"
    with pytest.raises(TypeError, match="needs a name"):
        tool(lambda: 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"needs_approval": "yes"}, "needs_approval"), ({"timeout": "5"}, "timeout"), ({"timeout": 0}, "timeout")],
)
def test_a_wrong_option_is_refused_where_it_stands(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tool(name="x", **options)(lambda: 1)


async def test_a_bad_tool_is_refused_where_it_is_given_and_quarantined_where_it_was_found(tmp_path: Path) -> None:
    @tool(needs_approval=False)
    def anything(**kwargs: Any) -> str:
        return "ok"

    def plain(n: int) -> int:
        """A plain function is a tool that asks."""
        return n

    with pytest.raises(ToolDefinitionError, match=r"'anything' cannot be offered: .* cannot be filled by name"):
        open_session(tmp_path, tools=[anything, plain], approval="approve_all")
    async with open_session(tmp_path, tools=[plain], approval="approve_all") as session:
        notices = session.scope.add_tools([anything], {})
        bad = await session.call("anything", {})
        assert bad.status == "tool_not_found" and "cannot be filled by name" in bad.error
        assert any("'anything' is not offered" in notice for notice in notices)
        assert (await session.call("plain", {"n": 3})).text == "3"


@pytest.mark.parametrize("how", ["sync", "async"])
async def test_a_generator_is_a_failed_call(make_path: Any, how: str) -> None:
    def items():  # type: ignore[no-untyped-def]
        yield 1

    async def later():  # type: ignore[no-untyped-def]
        yield 1

    lazy = tool(name="lazy", needs_approval=False)(items if how == "sync" else lambda: later())
    outcome = await make_path(lazy).call(ToolCall("lazy", {}))
    assert outcome.status == "execution_failed"
    assert "return its items as a list" in outcome.error


async def test_nobody_else_may_call(make_path: Any) -> None:
    @tool(needs_approval=False, mode="manual")
    def press() -> str:
        return "pressed"

    path = make_path(press)
    with pytest.raises(ValueError, match="alien"):
        await path.call(ToolCall("press", {}, "alien"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="alien"):
        await path.batch([ToolCall("press", {}, "alien")])  # type: ignore[arg-type]
    outcome = await path.call(ToolCall("press", {}, "human"))  # type: ignore[arg-type]
    assert outcome.ok and outcome.call.caller is Caller.HUMAN


async def test_the_forge_home_is_for_its_owner_alone(tmp_path: Path, own_home: Path) -> None:
    async with open_session(tmp_path):
        await asyncio.sleep(0)
    home = own_home / ".forge"
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in (home, *home.iterdir()) if path.is_dir()} == {
        ".forge": "0o700",
        "sessions": "0o700",
        "output": "0o700",
        "state": "0o700",
        "tools": "0o700",
    }


async def test_what_a_call_held_is_let_go_with_its_outcome_not_by_the_collector(make_path: Any) -> None:
    """Each call left a circle behind: with many calls, memory that only grew till the collector came."""

    class Held:
        pass

    seen: list[Any] = []

    async def plan(args: dict[str, Any], ctx: ToolContext) -> Plan:
        held = Held()
        seen.append(weakref.ref(held))

        async def run() -> str:
            return f"{ctx.call_id and held and 'ran'}"

        return Plan(run=run, effects=())

    path = make_path(Tool("holds", "Holds.", input_schema={"type": "object"}, planner=plan, needs_approval=False))
    gc.disable()
    try:
        outcome = await path.call(ToolCall("holds", {}))
        assert outcome.text == "ran"
        del outcome
        await asyncio.sleep(0)
        assert [held() for held in seen] == [None]
    finally:
        gc.enable()


async def test_a_tool_that_calls_after_its_end_is_refused_and_told_why(make_path: Any) -> None:
    kept: list[ToolContext] = []

    @tool(needs_approval=False)
    async def early(*, ctx: ToolContext) -> str:
        kept.append(ctx)
        return "ok"

    @tool(needs_approval=False)
    async def other() -> str:
        raise AssertionError("ran")

    path = make_path(early, other)
    first = await path.call(ToolCall("early", {}))
    assert first.ok
    for name in ("early", "other"):
        late = await kept[0].call(name, {})
        assert (late.status, late.executed) == ("policy_denied", False)
        assert late.error == "'early' has ended and can call no more tools."
        assert late.call.parent_id == first.call.id
    assert len(kept) == 1
