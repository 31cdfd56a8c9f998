"""`forge hooks` and `forge review`: those who speak about a call before a person does, and what they would say.

`hooks list` shows which hooks there are here. `hooks test` runs one for real, in the walls it would have, with every
zone read-only; the call itself is only judged.

`review replay` shows what your reviewer would have answered to the questions that you have answered. It reads the
journals of this home and changes nothing. The reviewer runs for real: a program in the walls of this directory, a model
with one request each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from golem_forge.agent.explain import COMMAND_TOOL, DryEvaluator, open_evaluator, plan_for_explain
from golem_forge.agent.review import make_reviewer
from golem_forge.agent.session_hooks import prepare_hooks
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import (
    FAILED,
    USAGE,
    CommandUsageError,
    fail,
    print_error,
    print_json,
    read_args,
    run_verb,
    shell_text,
)
from golem_forge.cli.run import reviewer_override
from golem_forge.cli.sessions import home_with_sessions
from golem_forge.config.hooks_block import Hook, HookPoint
from golem_forge.config.program import Program, load_program
from golem_forge.config.validation import time_span
from golem_forge.core.calls import Caller, ToolCall
from golem_forge.core.decisions import Risk, Verdict
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.signals import InterruptSignal
from golem_forge.core.text import columns, escape_control_chars, nearest_remark, one_line, shorten
from golem_forge.events.journal_files import list_journals
from golem_forge.events.journal_records import join_records, read
from golem_forge.orchestrator.call_state import CallState
from golem_forge.orchestrator.hooks import call_paths
from golem_forge.orchestrator.resolve import resolve, validate
from golem_forge.policy.hooks import HookAnswer, HookOrder, HookRun, hook_input, read_answer
from golem_forge.policy.reviewer import ReviewAnswer, Reviewer, Says
from golem_forge.storage.home import forge_home

if TYPE_CHECKING:
    from argparse import Namespace

    from golem_forge.policy.hooks import ReadyHook

HELP: Final = """usage: forge hooks list [--json]
       forge hooks test NAME [TOOL [JSON] | -- COMMAND…] [--json]

  list   the hooks of your config.yaml and of this program, and whether they count
  test   run one hook and show what it would say: to a call of TOOL with these arguments, or to a command. The call
         is judged and not made, and the hook can change nothing.

Exit: 0 it agrees (list: shown), 1 the hook failed, 2 usage or configuration, 3 it asks, 4 it refuses."""
_VERBS: Final = {"list": ("hooks", "the hooks there are"), "test": ("hooks", "what one would say")}
_WIDTH: Final = 60


def run(words: list[str]) -> int:
    return run_verb("hooks", "golem_forge.cli", _VERBS, words, HELP)


def run_list(words: list[str]) -> int:
    asked = read_args("hooks list", HELP, words, "--json")
    program, withheld = read_hooks(Path.cwd())
    if asked.json:
        print_json([_hook_json(hook, hook not in withheld) for hook in (*program.hooks, *withheld)])
        return 0
    if not program.hooks and not withheld:
        print_error("hooks", "no hooks here. `hooks:` in your config.yaml or in forge.yaml names them.")
        return 0
    rows = [("NAME", "ON", "FOR", "RUNS", "FROM", "")]
    for hook in (*program.hooks, *withheld):
        what = shorten(" ".join((*hook.tools, *hook.paths)), _WIDTH)
        state = "not trusted: it does not run before `forge trust`" if hook in withheld else ""
        rows.append((hook.name, hook.on.value, what or "-", shorten(hook.run, _WIDTH), hook.origin, state))
    print(columns(rows))
    return 0


def _hook_json(hook: Hook, counts: bool) -> dict[str, Any]:
    return {
        "name": hook.name,
        "on": hook.on.value,
        "run": hook.run,
        "tools": list(hook.tools),
        "paths": list(hook.paths),
        "timeoutS": hook.timeout_s,
        "walls": "host" if hook.on_host else "inside",
        "file": hook.origin,
        "own": hook.own,
        "counts": counts,
    }


def read_hooks(directory: Path) -> tuple[Program, tuple[Hook, ...]]:
    """The program, and the hooks that would count if it were trusted. Raises ConfigError."""
    home = forge_home()
    trust = trust_store(home)
    program = load_program(directory, home, trusted=trust.trusted, trusted_with=trust.trusted_with)
    if program.trusted:
        return program, ()
    whole = load_program(directory, home, trusted=lambda _: True)
    return program, tuple(hook for hook in whole.hooks if hook not in program.hooks)


def run_test(words: list[str]) -> int:
    end = words.index("--") if "--" in words else len(words)
    command = words[end + 1 :] if "--" in words else []
    asked = read_args("hooks test", HELP, words[:end], "NAME", "tool?", "args?", "--json", args="{}")
    if "--" in words and (asked.tool or not command):
        return fail("hooks test", "give either TOOL and its arguments as JSON, or a command's words after `--`.", USAGE)
    return asyncio.run(_test(asked, command))


async def _test(asked: Namespace, command: list[str]) -> int:
    home, plan = forge_home(), plan_for_explain(forge_home(), Path.cwd())
    hooks = prepare_hooks(plan.program, plan.trust, home)
    known = {each.hook.name: each for each in (hooks.hooks if hooks is not None else ())}
    if (ready := known.get(asked.name)) is None:
        named = f"no hook '{escape_control_chars(asked.name)}'{nearest_remark(asked.name, known)}"
        return fail("hooks test", f"{named}. `forge hooks list` shows them.", USAGE)
    tool, args = (COMMAND_TOOL, {"cmd": shell_text(command)}) if command else (asked.tool or "", asked.args)
    about_calls = ready.hook.on in (HookPoint.BEFORE_CALL, HookPoint.AFTER_CALL)
    if about_calls and not tool:
        why = f"'{ready.hook.name}' is asked about calls: name a tool, or a command after `--`."
        return fail("hooks test", why, USAGE)
    async with open_evaluator(plan, about=f"{tool} {args}") as dry:
        order = await _order(ready, dry, tool, args) if about_calls else await _plain_order(ready, dry)
        if isinstance(order, str):
            return fail("hooks test", order, USAGE)
        run = await dry.orchestrator.hooks.processes.run(order)
    answer = read_answer(ready.hook, run)
    if asked.json:
        print_json(_answer_json(ready.hook, run, answer))
    else:
        _print_answer(ready.hook, run, answer)
    if answer.failure:
        return FAILED
    return {Verdict.ASK: 3, Verdict.BLOCKED: 4}.get(answer.verdict, 0) if answer.verdict is not None else 0


async def _order(ready: ReadyHook, dry: DryEvaluator, name: str, args: Any) -> HookOrder | str:
    """Returns what the hook would be started with, or why such a call would never reach it."""
    explained = await dry.tool_call(name, args)
    if explained.judged is None:
        assert explained.refusal is not None
        return f"this call would not be judged: {explained.refusal.message}"
    call = ToolCall(name, args, Caller.HUMAN)
    signal = InterruptSignal()
    state = CallState(call, signal, signal)
    try:
        state.tool, raw, _ = resolve(call, dry.catalog, lambda tool, args: ())
        state.arguments = validate(state.tool, raw)
    except ForgeError as error:
        return error.message
    hook, paths = ready.hook, call_paths(ready.hook, explained.judged.facts.effects)
    if paths is None or (hook.on is HookPoint.BEFORE_CALL and hook not in explained.hooks):
        return f"'{hook.name}' is not asked about this call: its `tools` or `paths` name others"
    facts = await dry.orchestrator.hooks.facts(state, explained.judged, paths)
    if hook.on is HookPoint.AFTER_CALL:
        facts["outcome"] = {"status": "success", "error": "", "text": ""}
    return HookOrder(ready=ready, input=hook_input(hook, facts), paths=paths)


async def _plain_order(ready: ReadyHook, dry: DryEvaluator) -> HookOrder:
    facts = {**await dry.orchestrator.hooks.place(), "message": "a test of this hook", "summary": "", "changed": []}
    return HookOrder(ready=ready, input=hook_input(ready.hook, facts))


def _answer_json(hook: Hook, run: HookRun, answer: HookAnswer) -> dict[str, Any]:
    return {
        "hook": hook.name,
        "exitCode": run.exit_code,
        "seconds": round(run.seconds, 3),
        "verdict": answer.verdict.value if answer.verdict is not None else None,
        "reason": answer.reason,
        "toModel": answer.to_model,
        "toPerson": answer.to_person,
        "failure": answer.failure,
        "warnings": list(answer.warnings),
        "stdout": run.out,
        "stderr": run.err,
    }


def _print_answer(hook: Hook, run: HookRun, answer: HookAnswer) -> None:
    if answer.failure:
        effect = "; each call that it is asked about is refused" if hook.on is HookPoint.BEFORE_CALL else ""
        said = f"failed: it {answer.failure}{effect}"
    elif answer.verdict is not None:
        said = f"{answer.verdict.value}: {answer.reason}"
    else:
        said = "nothing against it" if hook.on is HookPoint.BEFORE_CALL else "done"
    rows = [
        ("hook", f"{hook.name} ({hook.origin})"),
        ("says", said),
        ("to you", answer.to_person),
        ("to the model", answer.to_model),
        *(("warning", warning) for warning in answer.warnings),
        ("took", f"{run.seconds:.2f} s"),
    ]
    for name, text in rows:
        if text:
            print(f"{name:<13} {escape_control_chars(text)}")
    for name, text in (("stdout", run.out), ("stderr", run.err)):
        if text.strip():
            print(f"{name}\n  " + escape_control_chars(shorten(text.strip(), 2000)).replace("\n", "\n  "))


REVIEW_HELP: Final = """usage: forge review replay [--since 30d] [--limit N] [--reviewer PATH|MODEL] [--json]

Runs your reviewer over the questions of calls that you have answered, newest last, and compares its answers with yours.
Do this before you switch it on (approval.reviewer in your config.yaml).

      --since TIME      only questions of the last 30d, 12h, …; by default 30d
      --limit N         at most so many, the newest; by default 200
      --reviewer WHO    this one, instead of the one in your config.yaml

Exit: 0 it would have approved nothing that you denied, 1 it would have, 2 usage or configuration."""
_REVIEW_VERBS: Final = {"replay": ("hooks", "compare its answers with yours")}
_MOST_LISTED: Final = 20
_NOT_ITS: Final = "not its to answer"
_AGREES: Final = "it agrees with you"
_ASKS: Final = "it would have asked you"
_FALSE_NO: Final = "it would have denied what you approved"
_FALSE_YES: Final = "it would have approved what you denied"
_KINDS: Final = (_NOT_ITS, _AGREES, _ASKS, _FALSE_NO, _FALSE_YES)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredQuestion:
    """One card, what stood around it, and what the person answered."""

    session: str
    call: str
    card: dict[str, Any]
    decision: dict[str, Any]
    message: str
    """The person's own words."""
    others: str
    """The whole input, where somebody else wrote a part of it."""
    calls: tuple[dict[str, Any], ...]
    approved: bool


def run_review(words: list[str]) -> int:
    return run_verb("review", "golem_forge.cli", _REVIEW_VERBS, words, REVIEW_HELP)


def run_replay(words: list[str]) -> int:
    asked = read_args(
        "review replay",
        REVIEW_HELP,
        words,
        "--since TIME",
        "--limit N",
        "--reviewer WHO",
        "--json",
        since="30d",
        limit=200,
    )
    if (seconds := time_span(asked.since)) is None:
        return fail("review replay", "--since takes a time like 12h or 30d.", USAGE)
    try:
        overrides = reviewer_override(asked.reviewer)
    except CommandUsageError as error:
        return fail("review replay", f"{error}.", USAGE)
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    return asyncio.run(_replay(since, max(asked.limit, 0), overrides, asked.json))


async def _replay(since: str, limit: int, overrides: list[str], as_json: bool) -> int:
    home = forge_home()
    plan = plan_for_explain(home, Path.cwd(), overrides=overrides)
    settings = plan.program.approval.reviewer
    if settings is None:
        text = "no reviewer: name one with --reviewer, or as approval.reviewer in your config.yaml."
        return fail("review replay", text, USAGE)
    unlimited = replace(settings, max_requests=limit + 1)
    approval = replace(plan.program.approval, reviewer=unlimited)
    reviewer = make_reviewer(replace(plan.program, approval=approval), home)
    assert reviewer is not None
    questions = answered_questions(home_with_sessions(), since)[-limit:] if limit else []
    if not questions:
        print_error("review replay", "you have answered no question of a call in that time.")
        return 0
    async with open_evaluator(plan) as dry:
        processes = dry.orchestrator.hooks.processes
        found = [(each, await _compare(each, reviewer, processes)) for each in questions]
    if as_json:
        print_json([_question_json(question, kind, said) for question, (kind, said) in found])
    else:
        _print_comparison(reviewer.name, found)
    return FAILED if any(kind == _FALSE_YES for _, (kind, _) in found) else 0


async def _compare(question: AnsweredQuestion, reviewer: Reviewer, processes: Any) -> tuple[str, ReviewAnswer | None]:
    decision = question.decision
    asks = [one["source"] for one in decision["sources"] if one["verdict"] == "ask"]
    if reviewer.not_its_to_answer(Risk(decision["risk"]), asks):
        return _NOT_ITS, None
    reviewer.set_turn(question.message, question.others, question.calls)
    said = await reviewer.review(question.card, processes)
    if said.says is Says.UNSURE:
        return _ASKS, said
    if (said.says is Says.APPROVE) is question.approved:
        return _AGREES, said
    return (_FALSE_YES if said.says is Says.APPROVE else _FALSE_NO), said


def answered_questions(home: Path | None, since: str) -> list[AnsweredQuestion]:
    """Returns the answered questions of all journals of this home, oldest first."""
    found: list[tuple[str, AnsweredQuestion]] = []
    for path in list_journals(home) if home is not None else ():
        found += _of_session(path.stem, join_records(read(path)), since)
    return [question for _, question in sorted(found, key=lambda each: each[0])]


def _of_session(
    session: str, records: Iterable[Mapping[str, Any]], since: str
) -> Iterator[tuple[str, AnsweredQuestion]]:
    """Yields (time of the answer, question) of one session."""
    message = others = ""
    calls: list[dict[str, Any]] = []
    cards: dict[str, dict[str, Any]] = {}
    decisions: dict[str, dict[str, Any]] = {}
    started: dict[str, dict[str, Any]] = {}
    for record in records:
        kind, call, ts = record.get("type"), str(record.get("call", "")), str(record.get("ts", ""))
        data = record.get("data") if kind == "event" else None
        if isinstance(data, dict) and record.get("event") == "message":
            said = data.get("message")
            if isinstance(said, dict) and said.get("role") == "user":
                whole, calls = str(said.get("content", "")), []
                message, others = (str(said["said"]), whole) if "said" in said else (whole, "")
        elif isinstance(data, dict) and record.get("event") == "approvalRequired" and data.get("toolCallId"):
            cards[str(data["toolCallId"])] = data
        elif kind == "decided":
            decisions[call] = record["decision"]
        elif kind in ("proposed", "started", "begun", "done"):
            started[call] = {"tool": record.get("tool"), "args": record.get("args")}
        if kind in ("finished", "done"):
            decision, card = decisions.pop(call, {}), cards.pop(call, None)
            by_person = decision.get("answeredBy") == "person" and not decision.get("edited")
            if by_person and card is not None and ts >= since:
                approved = record.get("status") != "approval_denied"
                question = AnsweredQuestion(
                    session=session,
                    call=call,
                    card=card,
                    decision=decision,
                    message=message,
                    others=others,
                    calls=tuple(calls),
                    approved=approved,
                )
                yield ts, question
            value = record.get("value")
            output = str(value.get("content", "")) if isinstance(value, dict) else ""
            told = {"status": str(record.get("status")), "output": output}
            calls.append(started.pop(call, {"tool": "", "args": {}}) | told)


def _question_json(question: AnsweredQuestion, kind: str, said: ReviewAnswer | None) -> dict[str, Any]:
    return {
        "session": question.session,
        "call": question.call,
        "tool": question.card.get("tool"),
        "risk": question.decision.get("risk"),
        "you": "approve" if question.approved else "deny",
        "reviewer": said.says.value if said is not None else None,
        "reason": said.reason if said is not None else "",
        "result": kind,
    }


def _print_comparison(name: str, found: list[tuple[AnsweredQuestion, tuple[str, ReviewAnswer | None]]]) -> None:
    sessions = len({question.session for question, _ in found})
    print(f"{name}: {len(found)} questions that you answered, of {sessions} sessions")
    print(columns([(str(sum(kind == each for _, (kind, _) in found)), each) for each in _KINDS], indent="  "))
    for wrong in (_FALSE_YES, _FALSE_NO):
        listed = [(question, said) for question, (kind, said) in found if kind == wrong and said is not None]
        if listed:
            print(f"{wrong}:")
            rows = [
                (question.call[:12], str(question.card.get("tool")), _what(question.card), said.reason)
                for question, said in listed[-_MOST_LISTED:]
            ]
            print(columns(rows, indent="  "))


def _what(card: dict[str, Any]) -> str:
    return shorten(escape_control_chars(one_line(str(card.get("payload", "")))), 60)
