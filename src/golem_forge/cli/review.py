"""`forge review replay`: what your reviewer would have answered to the questions that you have answered.

Reads the journals of this home and changes nothing. The reviewer runs for real: a program in the walls of this
directory, a model with one request each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from golem_forge.agent.explain import open_evaluator, plan_for_explain
from golem_forge.agent.review import make_reviewer
from golem_forge.cli.command import FAILED, USAGE, CommandUsageError, fail, print_error, print_json, read_args, run_verb
from golem_forge.cli.run import reviewer_override
from golem_forge.cli.sessions import home_with_sessions
from golem_forge.config.schema import time_span
from golem_forge.core.decisions import Risk
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.text import columns, escape_control_chars, one_line, shorten
from golem_forge.events.journal_files import list_journals
from golem_forge.events.journal_reader import join_records, read
from golem_forge.policy.reviewer import ReviewAnswer, Reviewer, Says
from golem_forge.storage.home import forge_home

HELP: Final = """usage: forge review replay [--since 30d] [--limit N] [--reviewer PATH|MODEL] [--json]

Runs your reviewer over the questions of calls that you have answered, newest last, and compares its answers with yours.
Do this before you switch it on (approval.reviewer in your config.yaml).

      --since TIME      only questions of the last 30d, 12h, …; by default 30d
      --limit N         at most so many, the newest; by default 200
      --reviewer WHO    this one, instead of the one in your config.yaml

Exit: 0 it would have approved nothing that you denied, 1 it would have, 2 usage or configuration."""
_VERBS: Final = {"replay": ("review", "compare its answers with yours")}
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


def run(words: list[str]) -> int:
    return run_verb("review", "golem_forge.cli", _VERBS, words, HELP)


def run_replay(words: list[str]) -> int:
    asked = read_args(
        "review replay", HELP, words, "--since TIME", "--limit N", "--reviewer WHO", "--json", since="30d", limit=200
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
        print_json([_as_json(question, kind, said) for question, (kind, said) in found])
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


def _as_json(question: AnsweredQuestion, kind: str, said: ReviewAnswer | None) -> dict[str, Any]:
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
