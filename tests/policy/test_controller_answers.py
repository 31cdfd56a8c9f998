"""Fingerprints, memory, the request and its answers: A32 to A51 of the approval specification."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import LONG, PATIENCE, within
from tests.tables import table

from golem_forge import Tool, ToolCall, open_session, tool
from golem_forge.core.effects import Effect, Verb
from golem_forge.events.journal import Journal
from golem_forge.policy.base import ApprovalBlocks
from golem_forge.policy.evaluate import ParentPolicy
from golem_forge.policy.fingerprint import args_key, fingerprint
from golem_forge.policy.rules.book import rule_usage
from golem_forge.storage.home import forge_home
from golem_forge.tools.context import Plan

ZEROS = "0" * 64


def test_a32_fingerprint_vectors() -> None:
    assert args_key("exec_command", {"cmd": "ls"}) == "0b7ef44f485c1f14"
    assert args_key("apply_patch", {"b": 1, "a": 2}) == "7cd465b00be48034"
    assert args_key("t", {}) == "14b5e6951226399e"
    assert args_key("t", {"é": "ü"}) == "47f1ad38b51edd8e"
    assert args_key("t", {"n": 1.0}) == "6188dc40cc8661a4"
    assert (
        fingerprint(tool="t", definition=ZEROS, args={}, worker="main", targets=[])
        == "2fd210a774471cc4608aae7fe3f853676b8723bf64657aeb2e27bc540cdb98e0"
    )
    assert (
        fingerprint(
            tool="exec_command",
            definition=ZEROS,
            args={"cmd": "ls"},
            worker="main",
            targets=["cwd /srv/app", "exec /usr/bin/ls"],
        )
        == "e2540ab5cfadd5fb65a648a983ae46e0e64b02b5465916103a4390765ae87978"
    )


def test_a33_key_order_does_not_matter_everything_else_does() -> None:
    def mark(**changes: Any) -> str:
        base: dict[str, Any] = {
            "tool": "t",
            "definition": ZEROS,
            "args": {"a": {"x": 1, "y": 2}, "b": 3},
            "worker": "main",
            "targets": ["write /srv/a"],
        }
        return fingerprint(**{**base, **changes})

    same = mark(args={"b": 3, "a": {"y": 2, "x": 1}})
    assert mark() == same == mark(args={"a": {"x": 1.0, "y": 2}, "b": -0.0 + 3})
    others = [
        mark(args={"a": {"x": 1, "y": 2}, "b": 4}),
        mark(worker="main/a"),
        mark(definition="1" * 64),
        mark(targets=["write /srv/b"]),
        mark(tool="u"),
    ]
    assert len({*others, mark()}) == 6


@tool
def deploy(n: int = 5, note: str = "") -> str:
    """Deploy."""
    deploy_runs.append(n)
    return f"deployed {n}"


deploy_runs: list[int] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    deploy_runs.clear()


async def call(path: Any, **args: Any) -> Any:
    return await path.call(ToolCall("deploy", args))


async def test_a_session_approval_covers_the_same_call_and_no_other(make_path: Any, asked: Any) -> None:
    ask = asked({"approved": True, "remember": "session"})
    path = make_path(deploy, ask=ask)
    assert (await call(path, n=1)).decision.remembered == "session"
    second = await call(path, n=1)
    assert (second.decision.answered_by, second.decision.cached, len(ask)) == ("memory", True, 1)
    await call(path, n=2)
    assert len(ask) == 2


@table("told_as", ["effects", "targets"])
async def test_a_session_approval_covers_only_what_the_call_led_to(make_path: Any, asked: Any, told_as: str) -> None:
    real = "/a"

    def plan(args: dict[str, Any], ctx: Any) -> Plan:
        if told_as == "targets":
            return Plan(run=lambda: "done", effects=(), targets=(f"write {real}",))
        return Plan(run=lambda: "done", effects=(Effect(verb=Verb.WRITE, target="/zone/link", real=real),))

    ask = asked({"approved": True, "remember": "session"})
    path = make_path(
        Tool("save", "Saves.", input_schema={"type": "object"}, planner=plan, needs_approval=True), ask=ask
    )
    for now, cards in (("/a", 1), ("/a", 1), ("/b", 2)):
        real = now
        assert (await path.call(ToolCall("save", {}))).ok
        assert len(ask) == cards


async def test_a_rule_that_stops_a_worker_and_those_above_it_was_met_once(make_path: Any) -> None:
    home = forge_home()
    home.ensure()
    home.rules.write_text("rules:\n  - {id: never, tool: deploy, verdict: blocked, reason: by hand}\n")
    journal = Journal.create(home.path)
    above = tuple(ParentPolicy(worker=worker, blocks=ApprovalBlocks()) for worker in ("main", "main/a"))
    path = make_path(deploy, journal=journal, worker="main/a/b", parents=above)
    for hits in (1, 2):
        assert (await call(path)).status == "policy_denied"
        journal.flush()
        assert rule_usage(home.path)["never"].hits == hits
    journal.close()


async def test_a35_a_denial_is_counted_and_asked_again(make_path: Any, asked: Any) -> None:
    ask = asked({"approved": False}, {"approved": True})
    path = make_path(deploy, ask=ask)
    assert (await call(path)).status == "approval_denied"
    assert (await call(path)).status == "success"
    assert [request.previously_denied for request in ask] == [0, 1]


async def test_a36_a_grant_for_one_tool_never_covers_another(make_path: Any, asked: Any) -> None:
    @tool
    def remove(n: int = 5, note: str = "") -> str:
        return "removed"

    ask = asked({"approved": True, "remember": "session"})
    path = make_path(deploy, remove, ask=ask)
    await call(path)
    await path.call(ToolCall("remove", {}))
    assert [request.tool for request in ask] == ["deploy", "remove"]


async def test_a37_a_grant_belongs_to_its_worker(own_home: Any, asked: Any) -> None:
    from golem_forge import ApprovalController, Orchestrator

    ask = asked({"approved": True, "remember": "session"})
    controller = ApprovalController("interactive", ask)
    for worker in ("main/a", "main/a", "main/b"):
        await call(Orchestrator([deploy], approval=controller, worker=worker))
    assert [request.worker_path[-1]["name"] for request in ask] == ["a", "b"]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.01)


class Slow:
    """A person who answers when told to."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: dict[str, asyncio.Future[Any]] = {}

    async def __call__(self, request: Any) -> Any:
        self.requests.append(request)
        self.answers[request.id] = asyncio.get_running_loop().create_future()
        return await self.answers[request.id]

    async def shown(self, count: int) -> None:
        await until(lambda: len(self.requests) >= count)

    def answer(self, index: int, **answer: Any) -> None:
        self.answers[self.requests[index].id].set_result(answer)


@pytest.fixture
def person() -> Slow:
    return Slow()


@pytest.fixture
def path(make_path: Any, person: Slow) -> Any:
    return make_path(deploy, ask=person.__call__)


async def test_cancelling_one_of_three_leaves_the_prompt_to_the_others(path: Any, person: Slow) -> None:
    tasks = [asyncio.ensure_future(call(path, n=1)) for _ in range(3)]
    await person.shown(1)
    await until(lambda: person.requests[0].waiting == 3)
    tasks[0].cancel()
    await until(tasks[0].done)
    person.answer(0, approved=True)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert deploy_runs == [1, 1]


async def test_a_remembered_answer_covers_what_waits(path: Any, person: Slow) -> None:
    waiting = asyncio.gather(call(path, n=1), call(path, n=2))
    await person.shown(2)
    wide = next(c for c in person.requests[0].choices if c.rules and c.scope == "session" and not c.rules[0].args)
    person.answer(0, approved=True, choice=wide.id)
    outcomes = await asyncio.wait_for(waiting, PATIENCE)
    assert [o.status for o in outcomes] == ["success", "success"]


async def test_a45_a_secret_never_reaches_prompt_events_or_journal(make_path: Any, asked: Any, own_home: Any) -> None:
    from golem_forge import create_ui_event_bus
    from golem_forge.events.journal import Journal
    from golem_forge.events.redaction import Redactor

    canary = "canary-5f2d9c1e77"

    @tool
    def login(api_key: str, note: str) -> str:
        """Log in."""
        return f"used {note}"

    redactor = Redactor()
    redactor.add_secret("CANARY", canary)
    journal = Journal.create(own_home / ".forge", redact=redactor.value)
    bus = create_ui_event_bus(recorder=journal.record_event, commit=journal.flush, redact=redactor.value)
    events: list[str] = []
    bus.on("*", lambda event: events.append(event.to_json()))
    ask = asked()
    path = make_path(login, ask=ask, bus=bus, journal=journal, redactor=redactor)
    outcome = await path.call(ToolCall("login", {"api_key": "sk-other-canary-1", "note": f"x {canary} y"}))
    journal.close()
    assert outcome.text == "used x [secret CANARY] y"
    shown = json.dumps(ask[0].to_wire())
    written = journal.path.read_text()
    for text in (shown, written, *events):
        assert canary not in text
        assert "sk-other-canary-1" not in text
    assert "[secret CANARY]" in shown and "[redacted 17 chars sha256:" in shown


@table(
    ("answer", "names"),
    [
        *((answer, "") for answer in (None, "yes", {}, {"approved": 1}, {"approved": True, "args": [1]}, [])),
        (RuntimeError("ui"), ""),
        ({"approved": True, "choice": "everything"}, ""),
        ({"approved": True, "remember": "bogus"}, "'remember' is 'bogus', not 'session'"),
        ({"approved": True, "remember": True}, "'remember' is not 'session'"),
        ({"approved": True, "remember": "always"}, "named by its 'choice'"),
        ({"approved": True, "remembr": "session"}, "there is no 'remembr'; did you mean 'remember'?"),
        ({"approved": True, "args": "x"}, "'args' is not an object"),
        ({"approved": True, "stop": True}, "cannot also stop"),
        ({"approved": "yes"}, "'approved' is not true or false"),
        (True, "{approved, remember?"),
    ],
)
async def test_anything_that_is_not_clearly_a_yes_denies(make_path: Any, asked: Any, answer: Any, names: str) -> None:
    """And what cannot be understood of it is named."""
    outcome = await call(make_path(deploy, ask=asked(answer)), n=5)
    assert (outcome.status, deploy_runs) == ("approval_denied", [])
    assert names in outcome.error


async def test_the_same_invalid_edit_twice_denies_and_names_the_field(make_path: Any, asked: Any) -> None:
    ask = asked(*[{"approved": True, "args": {"n": "x"}}] * 4)
    outcome = await call(make_path(deploy, ask=ask), n=5)
    assert (outcome.status, len(ask)) == ("approval_denied", 2)
    assert "The edited arguments are not valid (n: " in outcome.error


async def test_a47_an_edit_into_something_blocked_is_refused(make_path: Any, asked: Any) -> None:
    def predicate(args: dict[str, Any]) -> str:
        return "blocked" if args["target"] == "prod" else "ask"

    @tool(needs_approval=predicate)
    def push(target: str) -> str:
        raise AssertionError("ran")

    path = make_path(push, ask=asked({"approved": True, "args": {"target": "prod"}}))
    outcome = await path.call(ToolCall("push", {"target": "dev"}))
    assert (outcome.status, outcome.executed) == ("policy_denied", False)


async def test_an_edit_that_stays_approved_is_remembered_in_its_edited_form(make_path: Any, asked: Any) -> None:
    ask = asked({"approved": True, "args": {"n": 3}, "remember": "session"})
    path = make_path(deploy, ask=ask)
    await call(path, n=5)
    await call(path, n=3)
    assert len(ask) == 1
    await call(path, n=5)
    assert len(ask) == 2


@table("args", [{"n": 5}, {"n": 5, "note": ""}, {"note": "", "n": 5.0}, {"n": "5"}])
async def test_an_edit_that_changes_nothing_is_none(make_path: Any, asked: Any, args: dict[str, Any]) -> None:
    deploy_runs.clear()
    outcome = await call(make_path(deploy, ask=asked({"approved": True, "args": args})), n=5)
    assert (outcome.text, outcome.decision.edited, deploy_runs) == ("deployed 5", False, [5])


@pytest.mark.parametrize("choice", ["file:session", "extension:session", "directory:session", "file:always"])
async def test_what_is_remembered_with_an_edit_is_the_same_choice_of_the_edited_call(
    tmp_path: Path, asked: Any, choice: str
) -> None:
    edited = {"path": "/workspace/new/b.md", "content": "b"}
    ask = asked({"approved": True, "choice": choice, "args": edited}, {"approved": False})
    async with open_session(tmp_path, approval_callback=ask) as session:
        first = await session.call("write_file", {"path": "/workspace/old/a.txt", "content": "a"})
        assert first.ok and first.decision.edited and first.decision.remembered == choice.partition(":")[2]
        assert (await session.call("write_file", {"path": "/workspace/new/b.md", "content": "c"})).ok
        beside = await session.call("write_file", {"path": "/workspace/new/c.md", "content": "c"})
        assert beside.ok is (not choice.startswith("file"))
        before = await session.call("write_file", {"path": "/workspace/old/a.txt", "content": "a"})
        assert before.status == "approval_denied", "what was not run is not allowed"


async def test_effects_that_no_rule_covers_are_told_apart_and_one_of_them_is_why(tmp_path: Path, asked: Any) -> None:
    rule = {"path": "/workspace/docs/**", "access": ["write"], "verdict": "preApproved"}
    forge_home().rules.parent.mkdir(parents=True, exist_ok=True)
    forge_home().rules.write_text(json.dumps({"version": 1, "rules": [rule]}))
    ask = asked({"approved": False})
    async with open_session(tmp_path, approval_callback=ask) as session:
        for names in (("docs/a.md", "src/b.py"), ("src/b.py", "docs/a.md"), ("src/b.py", "src/c.py"), ("src/b.py",)):
            files = "".join(f"*** Add File: {name}\n+x\n" for name in names)
            await session.call("apply_patch", {"patch": f"*** Begin Patch\n{files}*** End Patch\n"})
    marked = [[effect for effect in request.effects if "no rule" in effect] for request in ask]
    only = ["write /workspace/src/b.py (no rule covers it)"]
    assert marked == [only, only, [], []], "where all are alike nothing is marked"
    assert [request.why for request in ask] == [
        *["Writing /workspace/src/b.py asks."] * 3,
        "Writing in /workspace asks.",
    ]
    assert [request.choices[0].label for request in ask[:2]] == ["write /workspace/src/b.py"] * 2


@table(
    ("rule", "marked"),
    [
        ({"command": ["npm", "ci"]}, ["exec make all (no rule covers it)"]),
        ({"command": ["make", "all"], "exact": True}, ["exec npm ci (no rule covers it)"]),
        ({"tool": "exec_command"}, []),
    ],
)
async def test_what_a_rule_asks_about_is_covered_by_a_rule(
    tmp_path: Path, asked: Any, rule: dict[str, Any], marked: list[str]
) -> None:
    rules = [{"command": ["cargo", "check"], "verdict": "preApproved"}, {**rule, "verdict": "ask"}]
    forge_home().rules.parent.mkdir(parents=True, exist_ok=True)
    forge_home().rules.write_text(json.dumps({"version": 1, "rules": rules}))
    ask = asked({"approved": False})
    async with open_session(tmp_path, approval_callback=ask) as session:
        await session.call("exec_command", {"cmd": "cargo check && npm ci && make all"})
    assert [effect for effect in ask[0].effects if "no rule" in effect] == marked


async def test_a_reason_quotes_the_command_it_is_about_and_is_short(tmp_path: Path, asked: Any) -> None:
    ask = asked({"approved": False})
    filler = "x" * 30_000
    commands = {
        f"echo {filler}; rm -rf found": "'rm -rf found'",
        f"rm -rf found > log; echo {filler}": "'rm -rf found >log'",
        f"echo {filler[:9000]} && rm -rf found": "'rm -rf found'",
        f"rm -rf {filler[:9000]} found": " found'",
        f"ls && bash -c 'echo {filler[:4000]}; rm -rf found; echo {filler[:4000]}'": "'rm -rf found' is on",
        f"sudo {filler}": "'sudo xxx",
        f"cat /etc/{filler[:9000]} /etc/found": " /etc/found reaches outside",
    }
    async with open_session(tmp_path, approval_callback=ask) as session:
        for text, quoted in commands.items():
            await session.call("exec_command", {"cmd": text})
            said = (*ask[-1].risk_reasons, ask[-1].why)
            assert any(quoted in reason for reason in said), said
            assert max(map(len, said)) < 300
        await session.call("exec_command", {"cmd": f"make {filler[:9000]} last"})
    assert len(ask[-1].why) < 300 and " last asks unless a rule allows it" in ask[-1].why


async def test_an_edit_answers_only_the_oldest_of_identical_calls(path: Any, person: Slow) -> None:
    waiting = asyncio.gather(*(call(path, n=1) for _ in range(3)))
    await person.shown(1)
    await until(lambda: person.requests[0].waiting == 3)
    person.answer(0, approved=True, args={"n": 7})
    await person.shown(2)
    await until(lambda: person.requests[1].waiting == 2)
    person.answer(1, approved=False)
    outcomes = await waiting
    assert sorted(o.status for o in outcomes) == ["approval_denied", "approval_denied", "success"]
    assert deploy_runs == [7]


async def test_twenty_bad_edits_end_the_request(make_path: Any, asked: Any) -> None:
    ask = asked(*({"approved": True, "args": {"n": f"x{number}"}} for number in range(30)))
    outcome = await call(make_path(deploy, ask=ask))
    assert outcome.status == "approval_denied" and "without a valid form (n: " in outcome.error
    assert len(ask) == 20
    assert not deploy_runs


async def test_a48_a_denial_message_reaches_the_model(make_path: Any, asked: Any) -> None:
    outcome = await call(make_path(deploy, ask=asked({"approved": False, "reason": "use staging"})))
    assert (outcome.status, outcome.text) == ("approval_denied", "Denied by the user: use staging")


async def test_a49_no_answer_in_time_denies(make_path: Any) -> None:
    async def never(request: Any) -> Any:
        await asyncio.sleep(LONG)

    with within(1):
        outcome = await call(make_path(deploy, ask=never, timeout=0.2))
    assert (outcome.status, outcome.error) == ("approval_denied", "No answer within 0.2 s.")
    assert not deploy_runs


async def test_more_than_a_hundred_pending_are_refused(path: Any, person: Slow) -> None:
    waiting = [asyncio.ensure_future(call(path, n=n)) for n in range(101)]
    await person.shown(100)
    await until(lambda: any(each.done() for each in waiting))
    for index in range(100):
        person.answer(index, approved=False)
    outcomes = await asyncio.gather(*waiting)
    assert [o.error for o in outcomes if o.error != "Denied by the user."] == ["too many pending approvals"]


async def test_a44_hostile_arguments_are_shown_escaped_and_whole(make_path: Any, asked: Any) -> None:
    ask = asked()
    await call(make_path(deploy, ask=ask), note="\x1b[2J\u202egnirts " + "x" * 10_000 + "; rm -rf x")
    payload = ask[0].payload
    assert "\x1b" not in payload and "\u202e" not in payload
    assert "u001b" in payload or "\\x1b" in payload
    assert "; rm -rf x" in payload
    assert "2 control or invisible characters are shown as escapes" in ask[0].warnings


async def test_a_tool_without_a_description_is_asked_about_by_its_name(make_path: Any, asked: Any) -> None:
    ask = asked({"approved": True})
    path = make_path(Tool("send", "", execute=lambda: "sent"), ask=ask)
    assert (await path.call(ToolCall("send", {}))).text == "sent"
    assert ask[0].description == "send"
