"""What the built-in commands say and do: ui.md §6, U10; approval.md §8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agent.conftest import put

from golem_forge import Tool, tool
from golem_forge.agent.session_state import kept_approvals
from golem_forge.agent.slash.invocation import manual_tools_event
from golem_forge.storage.home import forge_home
from golem_forge.ui.render.reports import manual_tool_lines


async def test_help_lists_commands_and_describes_one_and_a_tool(host: Any) -> None:
    every = await host.type("/help")
    for name in ("/tools", "/tool NAME", "/model", "/clear", "/status", "/config", "/exit", "/rules", "/why", "/trace"):
        assert name in every
    assert "or revoke one" in await host.type("/help rules")
    about = await host.type("/help GIT_PUSH")
    assert "Push commits" in about and "--branch" in about and "required" in about
    assert "origin|upstream" in about and "Target branch" in about
    assert "default origin" in about and "default false" in about, "as it is typed, not as Python writes it"
    assert "/tool help runs it" in await host.type("/help help")
    assert (await host.type("/help nope")).startswith("error: Unknown tool 'nope'")


async def test_tools_by_category_own_ones_first_and_what_is_kept_out(make_host: Callable[..., Any]) -> None:
    @tool(mode="manual", category="Git")
    def pull() -> str:
        """Pull."""
        return ""

    @tool(mode="manual")
    def loose() -> str:
        """Belongs nowhere."""
        return ""

    broken = Tool("broken", "Broken.", input_schema={"type": 3}, execute=lambda args: "", mode="manual")
    host = make_host(loose, pull)
    host.path.catalog.add_checked(broken)  # as a source that finds tools does
    said = await host.type("/tools")
    headings = [line for line in said.splitlines() if not line.startswith(" ")]
    assert headings[:2] == ["Git", "Other"] and headings[-1] == "Not offered"
    assert any(heading.startswith("Built-in: ") for heading in headings[2:-1])
    assert "/pull" in said and "/read_file" in said and "broken" in said.partition("Not offered")[2]


async def test_the_event_about_manual_tools_has_their_forms_own_ones_first(host: Any) -> None:
    tools = manual_tools_event(host.path.catalog)["tools"]
    names = [each["name"] for each in tools]
    assert "secret_plan" not in names and names.index("git_push") < names.index("read_file")
    push = next(each for each in tools if each["name"] == "git_push")
    assert (push["label"], push["category"]) == ("Push to Remote", "Git")
    assert [field["name"] for field in push["fields"]] == ["branch", "remote", "force"]
    host.bus.emit("manualToolsAvailable", manual_tools_event(host.path.catalog))
    assert host.of("manualToolsAvailable")


async def test_model_is_shown_and_switched_or_refused(host: Any) -> None:
    first, *listed = (await host.type("/model")).splitlines()
    assert first == "Model: anthropic:small" and "Providers: anthropic, openai" in listed[-1]
    assert await host.type("/model openai:large") == "Model: openai:large, from the next request on."
    set_two = await host.type("/model effort=high stop='a b'")
    assert set_two == "Model: openai:large, effort high, stop a b, from the next request on."
    assert host.generation.effort == "high" and host.generation.stop == ("a b",)
    back = await host.type("/model openai:large effort=default temperature=0.5")
    assert back == "Model: openai:large, temperature 0.5, stop a b, from the next request on."
    assert "one of low, medium, high" in await host.type("/model effort=extreme")
    for wrong in ("efort=low", "efort=default"):
        assert await host.type(f"/model {wrong}") == "error: /model: efort: unknown key 'efort'; did you mean 'effort'?"
    assert await host.type("/model nothing") == "error: model 'nothing' names no provider"
    assert host.model_name == "openai:large"


async def test_clear_and_exit(host: Any) -> None:
    assert await host.type("/clear") == "The history is empty." and host.history == []
    assert await host.type("/exit") == "" and host.left


async def test_status_has_worker_model_context_and_cost(host: Any) -> None:
    said = await host.type("/status")
    for words in ("main", host.session_id, "anthropic:small", "500 of 1,000 tokens", "cost $0.0123", "0 waiting"):
        assert words in said


async def test_config_says_where_each_value_comes_from(make_host: Callable[..., Any], tmp_path: Path) -> None:
    put(
        tmp_path,
        "project/forge.yaml",
        "approval:\n  default: ask\n  tools: {git_push: blocked}\n"
        "sandbox:\n  zones:\n    docs: {path: ., mode: ro}\n  limits: {processes: 100}\n",
    )
    put(forge_home().path, "config.yaml", "approval:\n  timeout: 30\nsandbox:\n  toolchains: off\n")
    said = await make_host().type("/config")
    rows = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert rows["approval.mode"].endswith("--approval, or nobody can be asked")
    assert rows["approval.default"].split()[1:] == ["ask", "forge.yaml:2"]
    assert rows["approval.tools.git_push"].split()[1:] == ["blocked", "forge.yaml:3"]
    assert "30 s" in rows["approval.timeout"] and "config.yaml:2" in rows["approval.timeout"]
    assert "ro" in rows["sandbox.zones.docs"] and rows["sandbox.zones.docs"].endswith("forge.yaml:6")
    assert "off" in rows["sandbox.toolchains"] and "config.yaml:4" in rows["sandbox.toolchains"]
    assert rows["sandbox.limits.processes"].split()[1:] == ["100", "forge.yaml:7"]
    assert rows["sandbox.limits.cpu_s"].endswith("default")
    assert "not trusted" in said


async def test_why_tells_the_decision_that_the_card_showed(make_host: Callable[..., Any], asked: Any) -> None:
    """U10"""
    home = forge_home()
    put(home.path, "rules.yaml", "version: 1\nrules:\n  - {tool: git_push, verdict: ask, reason: pushing is public}\n")
    cards = asked({"approved": False, "reason": "not today"})
    host = make_host(approval="interactive", approval_callback=cards)
    assert await host.type("/why") == "No call was made in this session yet."
    await host.type("/git_push --branch main")
    said = await host.type("/why")
    assert cards[0].why in said and "pushing is public" in said and "rules.yaml:3" in said
    assert "answered by" in said and "Denied by the user: not today" in said
    call_id = host.of("toolResult")[0]["toolCallId"]
    assert await host.type(f"/why {call_id}") == await host.type(f"/why {call_id[:10]}") == said
    assert await host.type("/why git_push") == said
    assert (await host.type("/why zzz")).startswith("error: No call 'zzz'")


async def test_why_of_a_zone_and_of_a_tools_own_predicate(make_host: Callable[..., Any], asked: Any) -> None:
    """U10"""

    @tool(mode="manual", needs_approval=lambda args: args["n"] > 3)
    def count(n: int) -> str:
        return str(n)

    cards = asked()
    host = make_host(count, approval="interactive", approval_callback=cards)
    await host.type("/count --n 5")
    assert cards[-1].why in await host.type("/why")
    await host.type("/write_file --path /workspace/a.txt --content hello")
    assert cards[-1].why in await host.type("/why")
    assert len(cards) == 2 and cards[0].why != cards[1].why


async def test_rules_lists_and_revokes_what_holds_for_the_session(make_host: Callable[..., Any], asked: Any) -> None:
    ask = asked({"approved": True, "remember": "session"})
    host = make_host(approval="interactive", approval_callback=ask)
    for _ in range(2):
        await host.type("/git_push --branch main")
    assert len(ask) == 1
    listed = await host.type("/rules")
    line = next(line for line in listed.splitlines() if "this session" in line)
    id_ = line.split()[0]
    assert (await host.type(f"/rules revoke {id_}")).startswith(f"Revoked {id_}")
    await host.type("/git_push --branch main")
    assert len(ask) == 2
    assert (await host.type("/rules revoke 000000000000")).startswith("error: Nothing with the id")
    assert (await host.type("/rules remove x")).startswith("error: /rules lists")


async def test_rules_revokes_a_remembered_rule_in_its_file(make_host: Callable[..., Any]) -> None:
    """Also A42: the next call asks."""
    asked: list[Any] = []

    def answer(request: Any) -> dict[str, Any]:
        asked.append(request)
        always = next(each for each in request.choices if each.scope == "always")
        return {"approved": True, "choice": always.id}

    host = make_host(approval="interactive", approval_callback=answer)
    for name in ("a", "a"):
        await host.type(f"/write_file --path /workspace/{name}.txt --content x{len(asked)}")
    assert len(asked) == 1
    listed = await host.type("/rules")
    line = next(line for line in listed.splitlines() if "remembered.yaml" in line)
    assert "never" not in line
    said = await host.type(f"/rules revoke {line.split()[0]}")
    assert "removed from ~/.forge/remembered.yaml" in said
    await host.type("/write_file --path /workspace/a.txt --content z")
    assert len(asked) == 2


async def test_rules_points_to_what_a_person_wrote(make_host: Callable[..., Any]) -> None:
    put(
        forge_home().path, "rules.yaml", "version: 1\nrules:\n  - {id: mine, tool: git_push, verdict: ask, reason: r}\n"
    )
    host = make_host()
    assert "rules.yaml:3" in await host.type("/rules")
    assert "rules.yaml:3: mine was written by hand" in await host.type("/rules revoke mine")
    assert "builtin_off: [wipe_root]" in await host.type("/rules revoke wipe_root")


async def test_a_revoked_approval_does_not_come_back_with_a_resumed_session(make_host: Callable[..., Any]) -> None:
    from golem_forge.agent.session_state import kept_recorder
    from golem_forge.events.journal_records import read

    host = make_host(
        approval="interactive", approval_callback=lambda request: {"approved": True, "remember": "session"}
    )
    host.path._approval_stage._on_kept = kept_recorder(host.journal)
    await host.type("/git_push --branch main")
    (fingerprint,) = host.controller.memory.grants()
    records = lambda: list(read(host.journal.path))  # noqa: E731
    assert [kept.key for kept in kept_approvals(records())] == [fingerprint]
    await host.type(f"/rules revoke {fingerprint[:12]}")
    assert kept_approvals(records()) == ()


async def test_a_grant_for_the_worker_is_listed_and_revoked(host: Any) -> None:
    host.path.judge.grant("default", "any command inside the walls")
    line = next(line for line in (await host.type("/rules")).splitlines() if "any command" in line)
    assert "worker default" in line
    assert (await host.type(f"/rules revoke {line.split()[0]}")).startswith("Revoked ")
    assert host.path.judge.grants() == {}


async def test_plan_output_sessions_and_trace(host: Any) -> None:
    assert await host.type("/plan show") == "There is no plan."
    step = '[{"step": "look", "status": "completed"}, {"step": "do", "status": "in_progress"}]'
    await host.type(f"/update_plan --plan '{step}'")
    assert await host.type("/plan show") == "[x] look\n[>] do"
    assert (await host.type("/plan up")).startswith("error: /plan begins plan mode")
    assert await host.type("/sessions") == "There was no conversation yet."  # only calls of this person's
    assert await host.type("/trace DEBUG") == "Trace level: debug"
    assert (await host.type("/trace debg")).startswith("error: 'debg' is not a trace level (did you mean 'debug'?)")
    assert "/mcp [reconnect NAME]" in await host.type("/help")


async def test_sessions_are_the_rows_of_the_list_in_its_order(
    host: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from golem_forge.agent.history import History
    from golem_forge.agent.model.interface import UserMessage
    from golem_forge.agent.session_state import RunFacts, record_run
    from golem_forge.cli.sessions import run_list
    from golem_forge.events.journal import Journal
    from golem_forge.events.serialization import iso_now

    for name, root in (("one", "/srv/elsewhere"), ("two", str(host.program.root))):
        journal = Journal.create(host.home.path, f"session-{name}")
        record_run(journal, RunFacts(name="main", worker_id="w1", directory=root, root=root, model="scripted:a"))
        History(journal, "w1").add(UserMessage(text=f"Input {name}"))
        journal.close()
        ended = iso_now()
        while iso_now() == ended:  # so that the next one is later
            pass
    monkeypatch.chdir(host.program.root)
    assert run_list([]) == 0
    listed = capsys.readouterr().out.rstrip()
    assert [line.split()[-1] for line in listed.splitlines()] == ["TITLE", "one", "two"]
    assert (await host.type("/sessions")).splitlines()[:-1] == listed.splitlines()
    assert " /srv/elsewhere  " in listed and " .   " in listed
    assert host.refreshed == 0
    await host.type("/tools")
    assert host.refreshed == 1


async def test_output_shows_stored_output_by_its_lines(make_host: Callable[..., Any]) -> None:
    @tool(mode="manual")
    def count() -> str:
        return "\n".join(f"line {number}" for number in range(1, 20_001))

    host = make_host(count)
    await host.type("/count")
    handle = host.of("toolResult")[0]["outputHandle"]
    assert await host.type(f"/output {handle} 1000-1001") == ""
    shown = host.of("toolResult")[-1]["value"]["content"]
    assert "line 1000" in shown and "line 1001" in shown and "line 1002" not in shown
    assert (await host.type("/output out_000000000000")).startswith("error: No output")
    assert (await host.type(f"/output {handle} x-y")).startswith("error: 'x-y' is not a range")
    assert (await host.type("/output")).startswith("error: /output HANDLE")


@pytest.mark.parametrize("line", ["/model a b", "/why a b", "/rules revoke", "/output a 2-1", "/trace", "/tool"])
async def test_what_a_command_cannot_use_is_an_error_that_says_how(host: Any, line: str) -> None:
    said = await host.type(line)
    assert said.startswith("error: ") and len(said) > 15


async def test_a_command_that_breaks_is_told_and_the_next_one_works(host: Any) -> None:
    host.meter = None
    assert await host.type("/status") == "error: The command failed (AttributeError)."
    assert (await host.type("/model")).startswith("Model: anthropic:small\n")


async def test_config_speaks_of_trust_only_where_there_is_a_program(
    make_host: Callable[..., Any], tmp_path: Path
) -> None:
    assert "not trusted" not in await make_host().type("/config")
    put(tmp_path, "project/forge.yaml", "approval: {default: preApproved}\n")
    assert "not trusted" in await make_host().type("/config")


async def test_tools_are_told_in_a_sentence_that_fits_beside_their_name(make_host: Callable[..., Any]) -> None:
    long = Tool("long", "Wanders " * 50, input_schema={"type": "object"}, execute=lambda args: "", mode="manual")
    said = (await make_host(long).type("/tools")).splitlines()
    assert next(line for line in said if "/read_file" in line).endswith("Read a text file")
    assert next(line for line in said if "/long" in line).endswith("…") and max(map(len, said)) < 100


async def test_a_tool_called_like_a_command_is_listed_as_it_is_run(make_host: Callable[..., Any]) -> None:
    exit = Tool("exit", "Leaves nothing.", input_schema={"type": "object"}, execute=lambda args: "ran", mode="manual")
    host = make_host(exit)
    assert "  /tool exit" in await host.type("/tools")
    assert manual_tool_lines([{"name": "exit", "category": "Git"}]) == [[("dim", "Git: /tool exit")]]


async def test_no_category_passes_for_one_of_forges_own(make_host: Callable[..., Any]) -> None:
    spoof = Tool(
        *("spoof", "Spoofs."),
        input_schema={"type": "object"},
        execute=lambda args: "",
        mode="manual",
        category="Built-in: Files",
    )
    said = await make_host(spoof).type("/tools")
    assert said.index("/spoof") < said.index("Built-in: ")
