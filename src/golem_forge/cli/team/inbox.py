"""`forge inbox`: every open question of every session, oldest first; `forge inbox answer` answers one.

The first answer counts. No runner has to be alive: the session goes on when one is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from golem_forge.cli.args import declare, parser, read_args
from golem_forge.cli.format import print_columns, print_json
from golem_forge.cli.team import ID_SHOWN, fail_with, open_store
from golem_forge.cli.team.sessions import age
from golem_forge.core.text import one_line, shorten
from golem_forge.team.database import TeamError
from golem_forge.team.people import TeamStore
from golem_forge.team.rows import RUNNING, WAITING, QuestionRow, StoredSession
from golem_forge.ui.render.card import approval_card, shown_choices
from golem_forge.ui.render.lines import plain_text

HELP: Final = """usage: forge inbox [QID] [--watch] [--json]
       forge inbox answer QID (--approve | --deny [MESSAGE] | --choice ID)

Lists the open questions of all sessions of the store, the oldest first. With QID it shows one question as its card,
with the choices that can be remembered. `answer` answers it; the first answer counts.

      --watch       print new questions as they come, until Ctrl-C
      --approve     allow the call, once
      --deny        refuse it; the model reads MESSAGE
      --choice ID   allow it and remember this choice of the card
      --json        for programs"""
_WIDEST: Final = 60


def run_inbox(words: list[str]) -> int:
    try:
        if words[:1] == ["answer"]:
            return _answer(words[1:])
        given = read_args("inbox", HELP, words, "QID?", "--watch", "--json")
        store = open_store()
        if given.qid:
            question = store.find_question(given.qid)
            _show(question, store.find(question.session), given.json)
            return 0
        return _watch(store, given.json) if given.watch else _list(store, given.json)
    except TeamError as error:
        return fail_with("inbox", error)


def _list(store: TeamStore, as_json: bool) -> int:
    found, now, sessions = store.questions(), store.now(), _open_sessions(store)
    if as_json:
        print_json([_as_json(each, sessions.get(each.session)) for each in found])
        return 0
    if not found:
        print("no open questions")
        return 0

    def table() -> Iterator[tuple[str, ...]]:
        yield ("QUESTION", "AGE", "RISK", "SESSION", "WORKER", "PERSON", "WHAT", "TASK")
        for each in found:
            yield tuple(one_line(cell) for cell in _cells(each, sessions.get(each.session), now))

    print_columns(table)
    print(
        f"\n`forge inbox {found[0].id[:ID_SHOWN]}` shows one; `forge inbox answer … --approve` or `--deny` answers it"
    )
    return 0


def _open_sessions(store: TeamStore) -> dict[str, StoredSession]:
    return {row.id: row for row in store.sessions(states=(WAITING, RUNNING))}


def _cells(question: QuestionRow, session: StoredSession | None, now: float) -> tuple[str, ...]:
    return (
        question.id[:ID_SHOWN],
        age(now - question.asked),
        question.risk or "-",
        question.session[:ID_SHOWN],
        question.worker or "-",
        (session.person if session else "") or "-",
        shorten(question.title, _WIDEST),
        shorten(session.title, _WIDEST // 2) if session else "-",
    )


def _as_json(question: QuestionRow, session: StoredSession | None) -> dict[str, Any]:
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
        "task": session.title if session else "",
        "startedBy": session.person if session else "",
        "answeredBy": question.person,
        "door": question.door,
    }


def _show(question: QuestionRow, session: StoredSession, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(question, session))
        return
    print(f"{one_line(session.title)} (session {session.id[:ID_SHOWN]}, started by {one_line(session.person) or '-'})")
    if question.kind != "approval":
        print(f"{question.id[:ID_SHOWN]}: a form; answer it with `forge attach {question.session[:ID_SHOWN]}`")
        return
    print(plain_text(approval_card(question.wire)), end="")
    for choice in shown_choices(question.wire.get("choices") or ()):
        print(f"  --choice {choice['id']}   {one_line(str(choice.get('label', '')))}")
    if question.state != "open":
        by = f" by {question.person}" if question.person else ""
        print(f"{question.state}{by}")


def _watch(store: TeamStore, as_json: bool) -> int:
    seen: set[str] = set()
    while True:
        asked = store.questions()
        sessions = _open_sessions(store) if {each.id for each in asked} - seen else {}
        for each in asked:
            if each.id not in seen:
                seen.add(each.id)
                if as_json:
                    print_json(_as_json(each, sessions.get(each.session)), indent=None)
                else:
                    print("  ".join(one_line(cell) for cell in _cells(each, sessions.get(each.session), store.now())))
                sys.stdout.flush()
        time.sleep(0.5)


def _answer(words: list[str]) -> int:
    reader = declare(parser("inbox", HELP), "QID", "--approve", "--choice ID")
    reader.add_argument("--deny", nargs="?", const="", default=None)
    given = reader.parse_args(words)
    if sum((given.approve, given.deny is not None, given.choice is not None)) != 1:
        reader.error("give one of --approve, --deny and --choice")
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
    store.answer(question.id, answer)
    print(f"{question.id[:ID_SHOWN]} {'approved' if answer['approved'] else 'denied'}")
    return 0
