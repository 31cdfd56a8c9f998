"""`forge inbox`: every open question of every session, oldest first; `forge inbox answer` answers one.

The first answer counts. No runner has to be alive: the session goes on when one is.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from golem_forge.cli.args import declare, parser, read_args
from golem_forge.cli.format import print_columns, print_json
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store
from golem_forge.cli.team.sessions import age
from golem_forge.config.schema import time_span
from golem_forge.core.decisions import Risk
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.text import one_line, shorten
from golem_forge.team.database import TeamError
from golem_forge.team.people import AnsweredOne, TeamStore
from golem_forge.team.rows import QuestionFilter, QuestionRow
from golem_forge.ui.render.card import approval_card, shown_choices
from golem_forge.ui.render.lines import plain_text

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
_WIDEST: Final = 60
_MOST: Final = 1000


def run_inbox(words: list[str]) -> int:
    try:
        if words[:1] == ["answer"]:
            return _answer(words[1:])
        risks = "|".join(Risk)
        filters = ("--mine", "--project P", "--worker W", f"--risk {risks}", "--tool T", "--older TIME")
        given = read_args(
            "inbox", HELP, words, "QID?", *filters, "--search WORDS", "--limit N", "--after QID", "--watch", "--json"
        )
        wanted, limit = _wanted(given), min(max(given.limit or _MOST, 1), _MOST)
        store = open_store()
        if given.qid:
            question = store.find_question(given.qid)
            _show(question, given.json)
            return 0
        if given.after:
            wanted = replace(wanted, after=store.find_question(given.after).id)
        return _watch(store, wanted, given.json) if given.watch else _list(store, wanted, limit, given.json)
    except TeamError as error:
        return fail_with("inbox", error)


def _wanted(given: Any) -> QuestionFilter:
    older = time_span(given.older) if given.older else 0.0
    if older is None:
        raise TeamError("--older takes a time like 30m, 2h or 1d", "INBOX_FILTER")
    texts = {name: getattr(given, name) or "" for name in ("project", "worker", "risk", "tool")}
    return QuestionFilter(mine=given.mine, older_s=older, words=given.search or "", **texts)


def _list(store: TeamStore, wanted: QuestionFilter, limit: int, as_json: bool) -> int:
    found, now = store.questions(wanted=wanted, limit=limit), store.now()
    if as_json:
        print_json([_as_json(each) for each in found])
        return 0
    if not found:
        print("no open questions" if wanted == QuestionFilter() else "no open question fits")
        return 0

    def table() -> Iterator[tuple[str, ...]]:
        yield ("QUESTION", "AGE", "RISK", "SESSION", "WORKER", "PERSON", "WHAT", "TASK")
        for each in found:
            yield tuple(one_line(cell) for cell in _cells(each, now))

    print_columns(table)
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


def _cells(question: QuestionRow, now: float) -> tuple[str, ...]:
    return (
        question.id[:ID_SHOWN],
        age(now - question.asked),
        question.risk or "-",
        question.session[:ID_SHOWN],
        question.worker or "-",
        question.starter or "-",
        shorten(question.title, _WIDEST),
        shorten(question.task, _WIDEST // 2) or "-",
    )


def _as_json(question: QuestionRow) -> dict[str, Any]:
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
        print_json(_as_json(question))
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
                    print_json(_as_json(each), indent=None)
                else:
                    print("  ".join(one_line(cell) for cell in _cells(each, store.now())))
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
    """Exit 0: all of them count."""
    for each in answered:
        what = one_line(each.problem) if each.problem else "approved" if approved else "denied"
        print(f"{each.question[:ID_SHOWN]} (session {each.session[:ID_SHOWN]}) {what}")
    counted = sum(not each.problem for each in answered)
    print(f"{counted} of {len(answered)} answered")
    return 0 if counted == len(answered) else 1
