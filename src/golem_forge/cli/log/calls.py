"""`forge log`: the latest calls, one line each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.cli.log import HELP
from golem_forge.cli.log.finding import ID_SHOWN, NotFound, home_with_sessions, session_id
from golem_forge.cli.log.states import (
    OPEN_WORDS,
    STATUS_WORDS,
    decision_words,
    local_time,
    spoken,
    status_word,
)
from golem_forge.cli.plain import complain, one_line, parser, print_columns, print_json_list, shortened
from golem_forge.events.call_states import CallRecord
from golem_forge.events.index import CallSummary, Index
from golem_forge.events.session_files import is_held, journal_path

if TYPE_CHECKING:
    from argparse import Namespace

_ARGS_WIDTH: Final = 48
_DECISION_WIDTH: Final = 90
_HEAD: Final = ("TIME", "CALL", "STATUS", "TOOL", "ARGUMENTS", "MS", "DECISION")


class Logged(NamedTuple):
    session: str
    call: CallRecord
    status: str


def run_calls(words: list[str]) -> int:
    asked = _parse(words)
    home = home_with_sessions()
    try:
        found = _Calls(home, asked) if home is not None else ()
    except NotFound as error:
        complain("log", str(error))
        return 4
    if asked.json:
        print_json_list(as_json(each) for each in found)
    elif any(True for _ in found):
        print_columns(lambda: itertools.chain([_HEAD], map(_row, found)))
    else:
        complain("log", "no such calls." if home else "nothing was called yet.")
    return 0


def _parse(words: list[str]) -> Namespace:
    reader = parser("log", HELP)
    reader.add_argument("--session", default="")
    reader.add_argument("--tool", default="")
    reader.add_argument("--status", default="", choices=["", *STATUS_WORDS], metavar="STATUS")
    reader.add_argument("--limit", type=int, default=20)
    reader.add_argument("--json", action="store_true")
    return reader.parse_args(words)


class _Calls:
    """The newest that fit, oldest of them first. Each walk over them reads them again: only one is held at a time."""

    def __init__(self, home: Path, asked: Namespace) -> None:
        """Raises NotFound for a session that is none."""
        self._home = home
        self._index = Index(home)
        self._asked = asked
        self._session = session_id(self._index, asked.session) if asked.session else ""
        self._alive = cache(lambda id_: is_held(journal_path(home, id_)))

    def __iter__(self) -> Iterator[Logged]:
        status = self._asked.status
        looked_up = "" if _may_be_open(status) else status
        found = self._index.latest_calls(
            session=self._session,
            tool=self._asked.tool,
            status=looked_up,
            fits=self._has_status if status != looked_up else None,
            limit=self._asked.limit,
        )
        for each in found:
            if (call := self._index.record_of(each)) is not None:
                yield Logged(each.session_id, call, status_word(call, alive=self._alive(each.session_id)))

    def _has_status(self, call: CallSummary) -> bool:
        return bool(status_word(call, alive=self._alive(call.session_id)) == self._asked.status)


def _may_be_open(status: str) -> bool:
    """Words the index does not know, and the one that hides some of them."""
    return status in OPEN_WORDS or status == "interrupted"


def _row(each: Logged) -> tuple[str, ...]:
    call = each.call
    return (
        local_time(call.proposed_at),
        call.id[:ID_SHOWN],
        spoken(each.status),
        call.tool or call.requested,
        shortened(short_args(call.args), _ARGS_WIDTH),
        f"{call.duration_ms:.1f}" if call.finished_at else "",
        shortened(one_line(decision_words(call.decision)) or one_line(call.error), _DECISION_WIDTH),
    )


def short_args(args: Any) -> str:
    """`path=a.txt content="two words"`: enough to recognise a call; `show` has all of it."""
    if not isinstance(args, dict):
        return "" if args is None else one_line(str(args))
    return one_line(" ".join(_pairs(args)))


def _pairs(args: dict[str, Any]) -> Iterator[str]:
    for name, value in args.items():
        plain = isinstance(value, str) and value and not any(char.isspace() or char in "\"'" for char in value)
        yield f"{name}={value if plain else json.dumps(value, ensure_ascii=False)}"


def as_json(each: Logged) -> dict[str, Any]:
    call = each.call
    return {
        "id": call.id,
        "session": each.session,
        "status": each.status,
        "tool": call.tool,
        "requested": call.requested,
        "args": call.args,
        "caller": call.caller,
        "worker": call.worker,
        "parent": call.parent or None,
        "decision": call.decision,
        "error": call.error or None,
        "durationMs": call.duration_ms,
        "proposedAt": call.proposed_at,
        "startedAt": call.started_at or None,
        "finishedAt": call.finished_at or None,
        "outputHandle": call.output_handle or None,
        "protectedCreated": call.more.get("protectedCreated", []),
        "leftovers": call.more.get("leftovers", []),
    }
