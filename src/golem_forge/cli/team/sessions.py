"""`forge ps`, `stop`, `send` and `inbox`: what runs and what waits in the store, its end, a message for it, and every
open question, oldest first; `forge inbox answer` answers one.

The first answer counts. No runner has to be alive: the session goes on when one is.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from golem_forge.cli.command import declare, fail, parser, print_json, read_args
from golem_forge.cli.team import ID_SHOWN, open_store
from golem_forge.config.validation import time_span
from golem_forge.core.decisions import Risk
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import columns, one_line, shorten, shorten_prose
from golem_forge.team.database import TeamError
from golem_forge.team.people import AnsweredOne, TeamStore
from golem_forge.team.rows import ENDED, FAILED, QUEUED, RUNNING, WAITING, QuestionFilter, QuestionRow, StoredSession
from golem_forge.ui.render.card import approval_card, shown_choices
from golem_forge.ui.render.lines import plain_text

PS_HELP: Final = """usage: forge ps [--all] [--project P] [--json]

Lists the sessions of the store that run or wait, the newest first, and says why sessions of the last hour failed. --all
also lists those that have ended.

      --project P   only sessions of this project; `forge projects list` shows them"""
STOP_HELP: Final = """usage: forge stop ID

Interrupts a session of the store and ends it. Calls that run are ended within a second, wherever the session runs."""
SEND_HELP: Final = """usage: forge send ID MESSAGE…

Queues a message for the next turn of a session of the store."""
_OPEN_STATES: Final = ("queued", "running", "waiting")
_WIDEST: Final = 40
_WIDEST_WAIT: Final = 60
_RECENT_S: Final = 3600
"""Seconds for which `forge ps` lists a session that failed."""


def run_ps(words: list[str]) -> int:
    given = read_args("ps", PS_HELP, words, "--all", "--project P", "--json")
    store = open_store()
    now = store.now()
    names, project = {each.id: each.name for each in store.projects()}, given.project or ""
    rows = store.sessions(states=() if given.all else _OPEN_STATES, project=project)
    failed = [] if given.all else store.sessions(states=(FAILED,), project=project)
    failed = [row for row in failed if now - row.ended < _RECENT_S]
    slots = Slots.read(store) if any(row.state == QUEUED or row.is_woken for row in rows) else Slots([], {})
    if given.json:
        print_json([_session_json(row, slots, now) | {"project": names.get(row.program, "")} for row in rows])
        return 0
    if not rows:
        print("no session runs or waits; `forge run --background …` starts one" if not given.all else "no sessions yet")
        _print_failures(failed, now)
        return 0

    head = ("SESSION", "STATE", "WORKER", "PERSON", "RUNNER", "AGE", "COST", "WAITS FOR", "TITLE")
    table: list[tuple[str, ...]] = [head]
    table += [_session_cells(row, slots, now) for row in rows]
    if len({row.program for row in rows}) > 1:
        projects = ("PROJECT", *(names.get(row.program, "-") for row in rows))
        table = [(cells[0], project, *cells[1:]) for cells, project in zip(table, projects, strict=True)]
    print(columns(table))
    print_notices(rows)
    _print_failures(failed, now)
    return 0


def _print_failures(rows: Iterable[StoredSession], now: float) -> None:
    """A session that fails at once is in no list of what runs: whoever started it looks here."""
    for row in rows:
        first, *more = row.error.splitlines() or ["no reason was given"]
        print(f"! {row.id[:ID_SHOWN]} failed {age(now - row.ended)} ago: {one_line(first)}")
        for line in more:
            print(f"! {row.id[:ID_SHOWN]}: {one_line(line)}")


def print_notices(rows: Iterable[StoredSession]) -> None:
    """Prints notices that do not fit into the table of sessions."""
    for row in rows:
        reason = row.error.splitlines() if len(row.error) > _WIDEST_WAIT else []
        for notice in (*reason, *row.notice.splitlines()):
            print(f"! {row.id[:ID_SHOWN]}: {one_line(notice)}")


def _session_cells(row: StoredSession, slots: Slots, now: float) -> tuple[str, ...]:
    return (
        row.id[:ID_SHOWN],
        row.shown_state,
        row.worker or "-",
        row.person or "-",
        row.runner[:8] or "-",
        age(now - row.created),
        f"${row.cost:.4f}" if row.cost else "-",
        shorten_prose(slots.waits_for(row) or row.error, _WIDEST_WAIT) or "-",
        shorten(row.title, _WIDEST),
    )


class Slots(NamedTuple):
    """The runners and their free slots, to explain why a session waits."""

    runners: list[dict[str, Any]]
    busy: Mapping[str, int]
    running: Sequence[StoredSession] = ()

    @classmethod
    def read(cls, store: TeamStore) -> Slots:
        runners = [each for each in store.runners() if not each.get("draining")]
        held = store.sessions(states=(RUNNING, WAITING)) if runners else []
        return cls(runners, Counter(row.runner for row in held if row.runner), [r for r in held if r.state == RUNNING])

    def waits_for(self, row: StoredSession) -> str:
        if row.state != QUEUED and not row.is_woken:
            return row.waits_for
        came = f" ({row.what_came})" if row.is_woken else ""
        fitting = [each for each in self.runners if row.label in ("", *each["labels"]) and _takes_project(each, row)]
        wanted = f"a runner with the label {row.label}" if row.label else "a runner"
        if not fitting:
            return f"{wanted}: there is none{came}"
        if all(self.busy.get(each["id"], 0) >= each["slots"] for each in fitting):
            full = f"the runners with {row.label} are full" if row.label else "all runners are full"
            return f"a free slot: {full}{came}"
        if all(limits := [self._limit(row, each) for each in fitting]):
            return f"{limits[0]}{came}"
        return row.shown_wait or wanted

    def _limit(self, row: StoredSession, runner: Mapping[str, Any]) -> str:
        """Returns the limit of this runner that holds the session back; empty if none does."""
        offers = runner.get("offers")
        limits = offers.get("limits") if isinstance(offers, Mapping) else None
        for name, column, whose in (("per_person", "person", row.person), ("per_program", "program", "this program")):
            most = limits.get(name) if isinstance(limits, Mapping) else None
            mine = getattr(row, column)
            count = sum(getattr(each, column) == mine for each in self.running) if mine else 0
            if isinstance(most, int) and 0 < most <= count:
                return f"store.limits.{name} ({most}): {count} of {whose} run now"
        return ""


def _takes_project(runner: Mapping[str, Any], row: StoredSession) -> bool:
    offers = runner.get("offers")
    projects = offers.get("projects") if isinstance(offers, Mapping) else None
    return not isinstance(projects, list) or not projects or row.program in projects


def _session_json(row: StoredSession, slots: Slots, now: float) -> dict[str, Any]:
    return {
        "session": row.id,
        "state": row.state,
        "held": bool(row.held),
        "worker": row.worker,
        "person": row.person,
        "runner": row.runner,
        "ageSeconds": round(now - row.created, 3),
        "cost": row.cost,
        "waitsFor": slots.waits_for(row),
        "title": row.title,
        "result": row.result,
        "error": row.error,
        "notice": row.notice,
    }


def age(seconds: float) -> str:
    """Formats a duration: `45s`, `12m`, `3h`, `2d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def run_stop(words: list[str]) -> int:
    given = read_args("stop", STOP_HELP, words, "ID")
    store = open_store()
    row = store.find(given.id)
    before = store.stop(row.id)
    if before in ENDED:
        return fail("stop", f"session {row.id[:ID_SHOWN]} has ended already ({before})", 1)
    until = time.monotonic() + 10
    while store.find(row.id).state not in ENDED and time.monotonic() < until:
        time.sleep(0.05)
    state = store.find(row.id).state
    print(f"{row.id[:ID_SHOWN]} {state if state in ENDED else 'is told to stop'}")
    return 0


def run_send(words: list[str]) -> int:
    given = read_args("send", SEND_HELP, words, "ID", "message:MESSAGE+")
    store = open_store()
    row = store.find(given.id)
    store.send(row.id, "message", {"text": " ".join(given.message)})
    print(f"{row.id[:ID_SHOWN]} gets it as its next message")
    return 0


HELP: Final = """usage: forge inbox [QID] [--watch] [--json]
       forge inbox [--mine] [--project P] [--worker W] [--risk R] [--tool T] [--older TIME] [--search WORDS]
                   [--limit N] [--after QID] [--json]
       forge inbox answer QID (--approve | --deny [MESSAGE] | --choice ID) [--alike]

Lists the open questions of all sessions of the store, the oldest first. With QID it shows one question as its card,
with the choices that can be remembered. `answer` answers it; the first answer counts.

      --mine          of sessions that you started
      --project P     of this project
      --worker W      of this worker
      --risk R        low, medium, high or critical
      --tool T        that ask for this tool
      --older TIME    asked at least so long ago: 30m, 2h, 1d
      --search WORDS  each word stands in what is asked, in the task, or in the name of who started it
      --limit N       so many (1000 at most)
      --after QID     the next ones after this question
      --watch         print new questions as they come, until Ctrl-C
      --approve       allow the call, once
      --deny          refuse it; the model reads MESSAGE
      --choice ID     allow it and remember this choice of the card
      --alike         the same yes or no for every open question that asks for the same call in that project (same
                      tool, arguments, targets and diff); each is judged by itself
      --json          for programs"""
_WIDEST_QUESTION: Final = 60
_MOST: Final = 1000


def run_inbox(words: list[str]) -> int:
    if words[:1] == ["answer"]:
        return _answer(words[1:])
    filters = ("--mine", "--project P", "--worker W", f"--risk {'|'.join(Risk)}", "--tool T", "--older TIME")
    given = read_args(
        "inbox", HELP, words, "QID?", *filters, "--search WORDS", "--limit N", "--after QID", "--watch", "--json"
    )
    wanted, limit = _wanted(given), min(max(given.limit or _MOST, 1), _MOST)
    store = open_store()
    if given.qid:
        _show(store.find_question(given.qid), given.json)
        return 0
    if given.after:
        wanted = replace(wanted, after=store.find_question(given.after).id)
    return _watch(store, wanted, given.json) if given.watch else _list(store, wanted, limit, given.json)


def _wanted(given: Any) -> QuestionFilter:
    older = time_span(given.older) if given.older else 0.0
    if older is None:
        raise TeamError("--older takes a time like 30m, 2h or 1d", "INBOX_FILTER")
    texts = {name: getattr(given, name) or "" for name in ("project", "worker", "risk", "tool")}
    return QuestionFilter(mine=given.mine, older_s=older, words=given.search or "", **texts)


def _list(store: TeamStore, wanted: QuestionFilter, limit: int, as_json: bool) -> int:
    found, now = store.questions(wanted=wanted, limit=limit), store.now()
    if as_json:
        print_json([_question_json(each) for each in found])
        return 0
    if not found:
        print("no open questions" if wanted == QuestionFilter() else "no open question fits")
        return 0
    head = ("QUESTION", "AGE", "RISK", "SESSION", "WORKER", "PERSON", "WHAT", "TASK")
    print(columns([head, *(_question_cells(each, now) for each in found)]))
    print(
        f"\n`forge inbox {found[0].id[:ID_SHOWN]}` shows one; `forge inbox answer … --approve` or `--deny` answers it"
    )
    alike = Counter(each.same for each in found if each.same)
    if (most := alike.most_common(1)) and most[0][1] > 1:
        first = next(each for each in found if each.same == most[0][0])
        how = f"`forge inbox answer {first.id[:ID_SHOWN]} --approve --alike`"
        print(f"{most[0][1]} of them ask for the same; {how} answers all of these")
    if len(found) == limit:
        print(f"there may be more: --after {found[-1].id[:ID_SHOWN]}")
    return 0


def _question_cells(question: QuestionRow, now: float) -> tuple[str, ...]:
    return (
        question.id[:ID_SHOWN],
        age(now - question.asked),
        question.risk or "-",
        question.session[:ID_SHOWN],
        question.worker or "-",
        question.starter or "-",
        shorten(question.title, _WIDEST_QUESTION),
        shorten(question.task, _WIDEST_QUESTION // 2) or "-",
    )


def _question_json(question: QuestionRow) -> dict[str, Any]:
    return {
        "question": question.id,
        "session": question.session,
        "kind": question.kind,
        "worker": question.worker,
        "risk": question.risk,
        "state": question.state,
        "askedAt": question.asked,
        "title": question.title,
        "card": dict(question.wire),
        "alike": question.same,
        "task": question.task,
        "startedBy": question.starter,
        "answeredBy": question.person,
        "door": question.door,
    }


def _show(question: QuestionRow, as_json: bool) -> None:
    if as_json:
        print_json(_question_json(question))
        return
    started = f"(session {question.session[:ID_SHOWN]}, started by {one_line(question.starter) or '-'})"
    print(f"{one_line(question.task)} {started}")
    if question.kind != "approval":
        print(f"{question.id[:ID_SHOWN]}: a form; answer it with `forge attach {question.session[:ID_SHOWN]}`")
        return
    print(plain_text(approval_card(question.wire)), end="")
    for choice in shown_choices(question.wire.get("choices") or ()):
        print(f"  --choice {choice['id']}   {one_line(str(choice.get('label', '')))}")
    if question.state != "open":
        by = f" by {question.person}" if question.person else ""
        print(f"{question.state}{by}")


def _watch(store: TeamStore, wanted: QuestionFilter, as_json: bool) -> int:
    seen: set[str] = set()
    while True:
        for each in store.questions(wanted=wanted):
            if each.id not in seen:
                seen.add(each.id)
                if as_json:
                    print_json(_question_json(each), indent=None)
                else:
                    print("  ".join(one_line(cell) for cell in _question_cells(each, store.now())))
                sys.stdout.flush()
        time.sleep(0.5)


def _answer(words: list[str]) -> int:
    reader = declare(parser("inbox", HELP), "QID", "--approve", "--choice ID", "--alike")
    reader.add_argument("--deny", nargs="?", const="", default=None)
    given = reader.parse_args(words)
    if sum((given.approve, given.deny is not None, given.choice is not None)) != 1:
        reader.error("give one of --approve, --deny and --choice")
    if given.alike and given.choice is not None:
        reader.error("--alike goes with --approve and --deny: a choice is remembered for one session")
    store = open_store()
    question = store.find_question(given.qid)
    if question.kind != "approval":
        raise TeamError(f"this is a form; answer it with `forge attach {question.session[:ID_SHOWN]}`")
    answer: dict[str, Any] = {"approved": given.deny is None}
    if given.choice is not None:
        offered = [str(each.get("id")) for each in question.wire.get("choices") or ()]
        if given.choice not in offered:
            raise TeamError(f"choice {given.choice!r} was not offered; there is {', '.join(offered) or 'none'}")
        answer["choice"] = given.choice
    if given.deny:
        answer["reason"] = given.deny
    if given.alike:
        return _tell_alike(store.answer_alike(question.id, answer), bool(answer["approved"]))
    store.answer(question.id, answer)
    print(f"{question.id[:ID_SHOWN]} {'approved' if answer['approved'] else 'denied'}")
    return 0


def _tell_alike(answered: list[AnsweredOne], approved: bool) -> int:
    """Prints the results. Returns 0 if all answers count."""
    for each in answered:
        what = one_line(each.problem) if each.problem else "approved" if approved else "denied"
        print(f"{each.question[:ID_SHOWN]} (session {each.session[:ID_SHOWN]}) {what}")
    counted = sum(not each.problem for each in answered)
    print(f"{counted} of {len(answered)} answered")
    return 0 if counted == len(answered) else 1
