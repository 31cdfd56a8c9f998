"""`forge log show CALL`: everything the journal has about one call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.log import HELP
from golem_forge.cli.log.calls import Logged, as_json
from golem_forge.cli.log.finding import NotFound, home_with_sessions
from golem_forge.cli.log.states import local_time, spoken, status_word
from golem_forge.cli.plain import columns, complain, parser, print_json
from golem_forge.core.leftovers import Leftover, leftover_lines
from golem_forge.core.visible import visible
from golem_forge.events.call_states import CallRecord
from golem_forge.events.index import Index
from golem_forge.events.journal_reader import read
from golem_forge.events.session_files import is_held, journal_path

_OF_EVERY_RECORD: Final = frozenset({"n", "ts", "type", "call"})


def run_show(words: list[str]) -> int:
    reader = parser("log show", HELP)
    reader.add_argument("call", metavar="CALL")
    reader.add_argument("--json", action="store_true")
    asked = reader.parse_args(words)
    home = home_with_sessions()
    try:
        if home is None:
            raise NotFound("nothing was called yet.")
        call, session = _find(home, asked.call)
    except NotFound as error:
        complain("log", str(error))
        return 4
    path = journal_path(home, session)
    logged = Logged(session, call, status_word(call, alive=is_held(path)))
    records = [record for record in read(path) if _is_about(record, call.id)]
    if asked.json:
        print_json(as_json(logged) | {"records": records})
    else:
        _print(logged, records)
    return 0


def _find(home: Path, typed: str) -> tuple[CallRecord, str]:
    index = Index(home)
    try:
        found = index.find_call(typed) if typed else None
    except ValueError as error:
        raise NotFound(f"{error}. Type more of the id.") from None
    call = index.record_of(found) if found is not None else None
    if found is None or call is None:
        raise NotFound(f"no call {typed!r}. `forge log` lists the latest.")
    return call, found.session_id


def _is_about(record: dict[str, Any], call_id: str) -> bool:
    if record.get("call") == call_id:
        return True
    data = record.get("data")
    return record.get("type") == "event" and isinstance(data, dict) and data.get("toolCallId") == call_id


def _print(logged: Logged, records: list[dict[str, Any]]) -> None:
    call = logged.call
    about = [
        ("call", call.id),
        ("session", logged.session),
        ("tool", call.tool + (f" (asked for as {call.requested})" if call.requested not in ("", call.tool) else "")),
        ("by", f"{call.caller}, worker {call.worker}" + (f", inside call {call.parent}" if call.parent else "")),
        ("status", spoken(logged.status) + (f" in {call.duration_ms:.1f} ms" if call.finished_at else "")),
        ("error", call.error),
        ("output", call.output_handle),
    ]
    print(columns([row for row in about if row[1]]))
    if left := left_lines(call):
        print("left behind")
        print(_indented("\n".join(left)))
    print("arguments")
    print(_indented(json.dumps(call.args, ensure_ascii=False, indent=2)))
    if call.decision:
        _print_decision(call.decision)
    print("records")
    print(columns((_record_row(record) for record in records), indent="  "))


def left_lines(call: CallRecord) -> list[str]:
    """What the command left behind, as every door shows it; a journal may hold anything."""
    created, left = call.more.get("protectedCreated"), call.more.get("leftovers")
    paths = [str(path) for path in created] if isinstance(created, list) else []
    found = [Leftover.from_wire(one) for one in left if isinstance(one, dict)] if isinstance(left, list) else []
    return [line.text for line in leftover_lines(paths, found)]


def _print_decision(decision: dict[str, Any]) -> None:
    print(f"decision    {decision['verdict']}, risk {decision['risk']}, answered by {decision['answeredBy']}")
    if decision["message"]:
        print(_indented(decision["message"]))
    rows = []
    for source in decision["sources"]:
        place = f"{source['file']}:{source['line']}" if source["line"] else source["file"]
        reason = f"{source['reason']} ({place})".strip() if place else source["reason"]
        mark = "→" if source == decision["decidedBy"] else " "
        rows.append((mark, source["verdict"], source["source"], source["id"], reason))
    print(columns(rows, indent="  "))


def _record_row(record: dict[str, Any]) -> tuple[str, ...]:
    kind = str(record.get("type", ""))
    if kind == "event":
        return f"line {record['n']}", local_time(record["ts"]), f"event {record.get('event')}", ""
    said = ", ".join(name for name in record if name not in _OF_EVERY_RECORD)
    return f"line {record['n']}", local_time(record["ts"]), kind, said


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in visible(text).splitlines())
