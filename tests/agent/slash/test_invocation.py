"""Tools run by slash commands and forms: ui.md §6, cases U12 to U16."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr
from tests.deadlines import PATIENCE, within

from golem_forge import tool

ONLY_MODELS = 'is a tool for models only; @tool(mode="both") lets people call it too'


@pytest.mark.parametrize(
    "line",
    [
        "/tool git_push --branch=main --force",
        "/t git_push --branch main --force",
        "/git_push --branch main --force",
        "/GIT_PUSH -b main -f",
        "/Tool Git_Push --force --branch 'main'",
    ],
)
async def test_u12_every_way_runs_the_same_tool(host: Any, ran: Any, line: str) -> None:
    assert await host.type(line) == ""
    assert ran == [{"branch": "main", "remote": "origin", "force": True}]
    (started,), (result,) = host.of("toolStarted"), host.of("toolResult")
    assert (started["caller"], result["status"], result["value"]["content"]) == ("human", "success", "pushed main")


async def test_a_call_that_was_not_let_run_says_so_to_the_person(make_host: Any, ran: Any) -> None:
    """No UI can tell by the events alone whose call it was that never started."""
    host = make_host(approval="auto_deny")
    assert await host.type("/write_file --path a --content b") == (
        "error: Auto-deny mode: write_file requires approval"
    )
    assert host.of("toolStarted") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('/say --msg ""', {"msg": ""}),
        ("/say --n 5", {"n": 5}),
        ("/say --msg -hello", {"msg": "-hello"}),
        ("/say --count -5", {"count": -5}),
        ("/say -abc", {"a": True, "b": True, "c": True}),
        ("/say --no-a", {"a": False}),
        ("/say --tag x --tag y", {"tag": ["x", "y"]}),
        ("/say --msg 007", {"msg": "007"}),
    ],
)
async def test_u14_the_schema_decides(host: Any, ran: Any, line: str, expected: dict[str, Any]) -> None:
    assert await host.type(line) == ""
    assert {name: ran[0][name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/say --n abc", "error: '--n' at position 5: expected integer, got \"abc\""),
        ("/git_push --brnach x", "error: Unknown option '--brnach' at position 10 (did you mean '--branch'?)"),
        ("/git_push --branch", "error: Missing value for '--branch' at position 10"),
        ("/git_push", "error: Missing required: branch"),
        ("/git_push --remote x", "error: '--remote' at position 10: must be one of origin, upstream"),
        ("/git_push main", "error: Unexpected argument 'main' at position 10"),
        ("/tool   git_push  main", "error: Unexpected argument 'main' at position 18"),
        ("/stauts", "error: Unknown command '/stauts' (did you mean '/status'?)"),
        ("/git_pusch", "error: Unknown command '/git_pusch' (did you mean '/git_push'?)"),
        ('/tool "x', "error: Unclosed double quote at position 6"),
        ("/secret_plan", f"error: 'secret_plan' {ONLY_MODELS}"),
        ("/Secret_Plan now", f"error: 'secret_plan' {ONLY_MODELS}"),
        ("/tool secret_plan", f"error: 'secret_plan' {ONLY_MODELS}"),
        ("/tool secret_plans", "error: Unknown tool 'secret_plans'."),
        ("/secret_plans", "error: Unknown command '/secret_plans'"),
        ("hello", "error: That is not a command: write / and a name; /help lists them"),
    ],
)
async def test_u13_u14_u15_what_is_wrong_is_said_where_it_is(host: Any, ran: Any, line: str, said: str) -> None:
    assert await host.type(line) == said
    assert ran == [] and host.of("toolStarted") == []


async def test_u15_a_built_in_wins_and_tool_reaches_the_other(host: Any, ran: Any) -> None:
    assert "/status" in await host.type("/help") and ran == []
    assert await host.type("/tool help --word x") == ""
    assert ran == [{"help": "x"}]


async def opened_form(host: Any, line: str) -> tuple[asyncio.Task[str], dict[str, Any]]:
    """The command as it waits for its form, and the form."""
    host.ui.attach("terminal")
    command = asyncio.create_task(host.type(line))
    await host.until(lambda: host.of("formRequired"))
    (form,) = host.of("formRequired")
    return command, form


def accept(host: Any, form: dict[str, Any], values: dict[str, Any]) -> None:
    host.bus.emit("formResponse", {"requestId": form["requestId"], "action": "accept", "values": values})


async def test_u16_missing_values_open_a_form_with_the_given_ones(host: Any, ran: Any) -> None:
    command, form = await opened_form(host, "/git_push --remote upstream")
    assert (form["title"], form["source"]) == ("Push to Remote", "command")
    by_name = {each["name"]: each for each in form["fields"]}
    assert [each["value"] for each in by_name["remote"]["options"]] == ["origin", "upstream"]
    assert (by_name["remote"]["type"], by_name["remote"]["default"]) == ("select", "upstream")
    assert (by_name["force"]["type"], by_name["branch"]["required"]) == ("boolean", True)
    values = {"branch": "dev", "remote": "upstream", "force": True}
    accept(host, form, values)
    assert await command == "" and ran == [{"branch": "dev", "remote": "upstream", "force": True}]


async def test_u16_i_opens_the_form_although_nothing_is_missing(host: Any, ran: Any) -> None:
    command, form = await opened_form(host, "/git_push --branch main -i")
    values = {each["name"]: each.get("default", "") for each in form["fields"]}
    accept(host, form, values)
    assert await command == "" and ran == [{"branch": "main", "remote": "origin", "force": False}]


async def test_a_form_that_is_wrong_comes_back_with_its_error(host: Any, ran: Any) -> None:
    command, first = await opened_form(host, "/say -i")
    values = {"msg": "kept", "n": "many"}
    accept(host, first, values)
    await host.until(lambda: len(host.of("formRequired")) == 2)
    again = host.of("formRequired")[1]
    by_name = {each["name"]: each for each in again["fields"]}
    assert "error" in by_name["n"] and "error" not in by_name["msg"] and by_name["msg"]["default"] == "kept"
    accept(host, again, {"n": 3})
    assert await command == "" and ran[0]["n"] == 3


async def test_a_closed_form_runs_nothing(host: Any, ran: Any) -> None:
    command, form = await opened_form(host, "/git_push")
    host.bus.emit("formResponse", {"requestId": form["requestId"], "action": "cancel"})
    assert await command == "Nothing was run." and ran == []


async def test_u16_the_ui_goes_while_the_form_is_open(host: Any, ran: Any) -> None:
    gone = host.ui.attach("terminal")
    command = asyncio.create_task(host.type("/git_push"))
    await host.until(lambda: host.of("formRequired"))
    gone()
    assert await command == "error: Missing required: branch" and ran == []


async def test_u16_without_a_ui_i_says_what_to_do(host: Any) -> None:
    assert await host.type("/git_push --branch x -i") == (
        "error: No form can be shown here: give the values as options instead of -i"
    )


async def test_a_secret_typed_as_an_option_is_not_shown_in_the_form(make_host: Callable[..., Any]) -> None:
    got: list[str] = []

    @tool(mode="manual")
    def login(user: str, password: SecretStr) -> str:
        got.append(f"{user} {password.get_secret_value()}")
        return "in"

    host = make_host(login)
    command, form = await opened_form(host, "/login --password canary-word")
    assert "canary" not in repr(form)
    accept(host, form, {"user": "ann", "password": ""})
    assert await command == "" and got == ["ann canary-word"]
    assert "canary" not in repr([event.wire for event in host.events])


async def test_commands_and_forms_come_over_the_bus(host: Any, ran: Any) -> None:
    host.call_ids.add("e" * 32)  # of a model's call, or of one that ran before the session was resumed
    host.bus.emit("manualToolInvoke", {"toolName": "git_push", "args": {"branch": "e"}, "requestId": "e" * 32})
    host.bus.emit("command", {"requestId": "1", "text": "/git_push --branch a"})
    host.bus.emit("manualToolInvoke", {"toolName": "git_push", "args": {"branch": "b"}, "requestId": "f" * 32})
    host.bus.emit("manualToolInvoke", {"toolName": "git_push", "args": {"branch": "b"}, "requestId": "f" * 32})
    host.bus.emit("manualToolInvoke", {"toolName": "git_push", "args": {"branch": "c"}, "requestId": "../1"})
    host.bus.emit("manualToolInvoke", {"toolName": "secret_plan", "args": {}})
    host.bus.emit("manualToolInvoke", {"toolName": "git_push", "args": {"branch": ["b"]}})
    with pytest.raises(ValueError, match="'args' is an object, not list"):
        host.bus.emit("manualToolInvoke", {"toolName": "git_push", "args": ["b"]})
    host.bus.emit("command", {"requestId": "2", "text": "/nothing_like_it"})
    await asyncio.wait_for(host.commands.settled(), PATIENCE)
    assert sorted(each["branch"] for each in ran) == ["a", "b", "c"], "what was sent twice ran once"
    assert host.call_ids == {"e" * 32, "f" * 32}, "a model that gives this id gets another"
    ends = sorted(each["status"] for each in host.of("toolResult"))
    assert ends == ["input_invalid", "success", "success", "success", "tool_not_found"]
    (named,) = [each["args"] for each in host.of("toolResult") if each["toolCallId"] == "f" * 32]
    assert named["branch"] == "b", "who sent the form finds its call by the id it gave"
    assert [each["type"] for each in host.of("status")] == ["error"]
    assert {event.worker_id for event in host.events if event.type == "status"} == {"run-1"}


async def test_after_the_end_nothing_is_heard_and_nothing_runs_on(make_host: Callable[..., Any]) -> None:
    @tool(mode="manual")
    async def wait() -> str:
        await asyncio.sleep(60)
        return "too late"

    host = make_host(wait)
    host.bus.emit("command", {"requestId": "1", "text": "/wait"})
    await host.until(lambda: host.of("toolStarted"))
    with within(1):
        await asyncio.wait_for(host.commands.aclose(), PATIENCE)
    assert [each["status"] for each in host.of("toolResult")] == ["interrupted"]
    host.bus.emit("command", {"requestId": "2", "text": "/status"})
    await asyncio.sleep(0.02)
    assert host.of("status") == []


async def test_an_exclamation_mark_runs_a_command_as_the_persons_own_down_the_one_path(make_host: Any) -> None:
    host = make_host(approval="approve_all")
    assert await host.type("!printf '%s\\n' \"a b\" --x=1 | tr a-z A-Z") == ""
    (started,), (result,) = host.of("toolStarted"), host.of("toolResult")
    assert (started["toolName"], started["caller"], result["status"]) == ("exec_command", "human", "success")
    assert started["args"]["cmd"] == "printf '%s\\n' \"a b\" --x=1 | tr a-z A-Z"
    assert result["value"]["output"] == "A B\n--X=1\n"


async def test_a_command_behind_an_exclamation_mark_is_judged_like_every_other(make_host: Any) -> None:
    host = make_host(approval="auto_deny")
    assert await host.type("!touch made") == "error: Auto-deny mode: exec_command requires approval"
    assert host.of("toolStarted") == []
    bare = make_host(toolsets={"plan": {}})
    assert "has no tool exec_command" in await bare.type("!ls")
