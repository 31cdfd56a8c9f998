"""`forge log`: what was called, decided and done, from the journals of all sessions. Never writes to a journal.

`forge log` lists the latest calls, `show` prints every record of one call, `sessions` lists sessions, and `verify`
names each journal line that was changed, cut, moved or inserted.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from golem_forge.cli.command import (
    NOT_FOUND,
    CommandUsageError,
    declare,
    fail,
    parser,
    print_columns,
    print_csv,
    print_error,
    print_json,
    print_json_list,
    read_args,
)
from golem_forge.cli.sessions import (
    ALL_SESSIONS,
    DENIALS,
    DENIED_WORD,
    ID_SHOWN,
    OPEN_WORDS,
    STATUS_WORDS,
    IdNotFound,
    LiveSessions,
    NoSuchSession,
    answerer,
    copies_of_stores,
    describe_decision,
    display_status,
    home_of_session,
    home_of_store,
    home_with_sessions,
    is_recorded,
    opened_store,
    session_id,
)
from golem_forge.config.program import program_root
from golem_forge.core.calls import Caller, Leftover, leftover_lines
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.regex import regex
from golem_forge.core.text import columns, display_path, duration, escape_control_chars, local_time, one_line, shorten
from golem_forge.events.index import CallSummary, SessionIndex, SessionSummary
from golem_forge.events.journal_files import journal_path, list_journals, sessions_dir
from golem_forge.events.journal_records import (
    CallRecord,
    CallRecords,
    JournalProblem,
    Verification,
    call_event,
    events_after,
    read,
    verify,
)
from golem_forge.sandbox.undo.log import SessionChangeLog
from golem_forge.ui.render.lines import plain_text
from golem_forge.ui.render.results import whole_value

if TYPE_CHECKING:
    from argparse import Namespace

HELP: Final = """usage: forge log [--session ID|last] [--tool NAME] [--status STATUS] [--caller WHO] [--since TIME]
                 [--until TIME] [--dir DIR] [--store] [--limit N] [--json|--csv]
       forge log show CALL [--json]
       forge log sessions [--store] [--limit N] [--json]
       forge log verify [SESSION|last|all] [--json]

  (nothing)  the latest calls, newest last: time, id, status, tool, arguments, milliseconds, who decided and why
  show       one call: its arguments, who decided and why, what it printed, its records, and the calls that were made
             inside it; CALL is its id or the beginning of it
  sessions   the sessions there are, newest last
  verify     checks that nobody changed the journals, and names each changed, cut, moved or inserted line; also those
             of background sessions, in their store

  --session  only that session (the beginning of its id is enough); `last` is the one with the latest record
  --status   success, execution_failed, input_invalid, tool_not_found, approval_denied, policy_denied, sandbox_denied,
             timeout, interrupted, skipped; denied (any of the three denials); or running, waits, may_have_run,
             never_started
  --caller   llm (a model), human (a person), mcp (a client of `forge mcp serve`) or tool (another tool)
  --since    calls from that time on; --until: calls up to that time. TIME is 2026-11-15, "2026-11-15 09:30" on this
             machine's clock (or with Z, +02:00), today, yesterday, or how long ago: 90s, 30m, 12h, 7d, 2w. --until
             includes the whole day, minute or second
  --dir      only sessions of the program in that directory and of programs below it. Single calls (`forge call`,
             `forge tools run`, `forge sandbox exec`) and calls of `forge mcp serve` do not record their directory:
             leave out --dir to see them
  --store    the calls of background sessions (`forge run --background`), of the newest 200; one that --session names
             is found without it
  --limit    how many at most (20); the latest ones
  --csv      for a spreadsheet, with the names of --json; a cell that would be a formula there begins with '

`may have run` means: the session died when the call was about to run, so Forge does not know whether it ran. `waits`:
the call of a background session waits for an answer, or for a runner after it.
Exit: 0 done, 1 verify found problems, 2 usage, 4 no such session or call, no session in that directory."""


def run(words: list[str]) -> int:
    verb = words[0] if words else ""
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    verbs = {"show": run_show, "sessions": run_sessions, "verify": run_verify}
    try:
        return verbs[verb](words[1:]) if verb in verbs else run_calls(words)
    except IdNotFound as error:
        return fail("log", str(error), NOT_FOUND)


MAX_LISTED: Final = 20
_MOST_INSIDE: Final = 500
_ARGS_WIDTH: Final = 48
_DECISION_WIDTH: Final = 90
_CALL_COLUMNS: Final = ("TIME", "CALL", "STATUS", "TOOL", "ARGUMENTS", "MS", "DECISION")


class LoggedCall(NamedTuple):
    session: str
    call: CallRecord
    status: str


def run_calls(words: list[str]) -> int:
    reader = declare(
        parser("log", HELP),
        *("--session ID", "--tool NAME", f"--status {'|'.join(['', *STATUS_WORDS])}", "--limit N"),
        *(f"--caller {'|'.join(Caller)}", "--since TIME", "--until TIME", "--dir DIR", "--store"),
    )
    declare(reader.add_mutually_exclusive_group(), "--json", "--csv")
    reader.set_defaults(tool="", status="", caller="")
    asked = reader.parse_args(words)
    limited, asked.limit = asked.limit is not None, MAX_LISTED if asked.limit is None else asked.limit
    try:
        asked.since = wire_time(read_time("--since", asked.since)[0]) if asked.since is not None else ""
        asked.until = wire_time(read_time("--until", asked.until)[1]) if asked.until is not None else ""
    except CommandUsageError as error:
        reader.error(str(error))
    if asked.until and asked.since > asked.until:
        reader.error("--since is later than --until, so no call fits")
    if asked.session == "":  # an unset variable must not list the calls of all sessions as those of one
        reader.error("--session: the id of the session is empty")
    if asked.dir == "":
        reader.error("--dir: the name of the directory is empty")
    home = home_of_store() if asked.store else home_of_session(asked.session or "")
    if home is None and asked.session:
        raise IdNotFound(f"no session {asked.session!r}: nothing was recorded yet.")
    found = _Calls(home, asked) if home is not None else ()
    if asked.json:
        print_json_list(call_json(each) for each in found)
    elif asked.csv:
        print_csv(CSV_COLUMNS, (csv_row(call_json(each)) for each in found))
    elif any(True for _ in found):
        print_columns(lambda: _call_table(found, of_sessions=asked.store and not asked.session))
    else:
        print_error("log", "no such calls." if home else "nothing was called yet.")
    if home is not None and asked.session and not (asked.json or asked.csv):
        print_columns(lambda: _people_table(journal_path(home, session_id(home, asked.session)), asked.limit))
    if isinstance(found, _Calls) and not limited and found.more():
        print_error("log", f"these are the latest {MAX_LISTED}. There are older ones: --limit N shows more.")
    return 0


def _people_table(path: Path, limit: int) -> Iterator[tuple[str, ...]]:
    """Yields the latest messages of people in a shared session, and the calls they changed."""
    rows: deque[tuple[str, ...]] = deque(maxlen=limit)
    for record in read(path):
        data = record.get("data") if record.get("type") == "event" else None
        message = data.get("message") if isinstance(data, dict) else None
        if isinstance(message, dict) and message.get("by"):
            said = shorten(one_line(str(message.get("content", ""))), _DECISION_WIDTH)
            rows.append((local_time(record["ts"]), one_line(str(message["by"])), "said", said))
        elif isinstance(data, dict) and record.get("event") == "approvalResolved" and data.get("edited"):
            question = f"the arguments of question {str(data.get('requestId'))[:ID_SHOWN]}"
            rows.append((local_time(record["ts"]), one_line(str(data.get("by"))), "changed", question))
        elif isinstance(data, dict) and data.get("code") == "ANSWER_DROPPED":
            said = one_line(str(data.get("message")))
            rows.append((local_time(record["ts"]), said.partition(" (")[0], "answered", said))
    if rows:
        yield ("TIME", "PERSON", "DID", "WHAT")
        yield from rows


class _Calls:
    """The newest that fit, oldest of them first. Each walk over them reads them again: only one is held at a time."""

    def __init__(self, home: Path, asked: Namespace) -> None:
        """Raises IdNotFound."""
        self._home = home
        self._index = SessionIndex(home)
        self._asked = asked
        self._statuses = DENIALS if asked.status == DENIED_WORD else (asked.status,)
        self._session = session_id(home, asked.session) if asked.session else ""
        self._live = LiveSessions(home)
        self._sessions = _sessions_below(home, asked.dir) if asked.dir is not None else None

    def __iter__(self) -> Iterator[LoggedCall]:
        for each in self._latest(self._asked.limit):
            if (call := self._index.record_of(each)) is not None:
                yield LoggedCall(each.session_id, call, self._live.status(call, each.session_id))

    def more(self) -> bool:
        """Whether there are older calls that match."""
        return bool(sum(1 for _ in self._latest(self._asked.limit + 1)) > self._asked.limit)

    def _latest(self, limit: int) -> Iterator[CallSummary]:
        status = self._asked.status
        # The index does not know the words for open calls, and its `interrupted` hides some of them.
        looked_up = "" if status in (*OPEN_WORDS, DENIED_WORD, "interrupted") else status
        return self._index.latest_calls(
            session=self._session, tool=self._asked.tool, status=looked_up, fits=self._fits, limit=limit
        )

    def _fits(self, call: CallSummary) -> bool:
        asked = self._asked
        return bool(
            asked.caller in ("", call.caller.partition(":")[0])  # `mcp:laptop` names its client
            and asked.since <= call.proposed_at
            and (not asked.until or call.proposed_at <= asked.until)
            and (self._sessions is None or call.session_id in self._sessions)
            and (not asked.status or self._live.status(call, call.session_id) in self._statuses)
        )


def _sessions_below(home: Path, typed: str) -> set[str]:
    """Returns the sessions of the program around that directory and of programs below it; says on standard error if the
    directory of others is unknown. Raises IdNotFound.
    """
    directory = Path(os.path.realpath(os.path.expanduser(typed)))
    places = {directory, program_root(directory)} if directory.is_dir() else {directory}
    sessions = SessionIndex(home).sessions(limit=-1)
    recorded = ((session.id, Path(session.root)) for session in sessions if session.root)
    found = {id for id, root in recorded if root in places or directory in root.parents}
    if not found:
        raise IdNotFound(f"no session ran in {display_path(directory)}. {_NOT_PLACED}.")
    if not all(session.root for session in sessions):
        print_error("log", f"{_NOT_PLACED}.")
    return found


_NOT_PLACED: Final = "Single calls (`forge call`) do not record their directory; `forge log` without --dir lists them"


_AGO: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIME: Final = regex(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?(\.\d{1,6})?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_TIME_FORMS: Final = "2026-11-15, '2026-11-15 09:30', today, yesterday, or how long ago: 90s, 30m, 12h, 7d, 2w"


def read_time(option: str, typed: str) -> tuple[datetime, datetime]:
    """The first and the last moment that was meant: a day, a minute and a second have a length.

    Raises CommandUsageError.
    """
    now = datetime.now()
    days = {"today": now, "yesterday": now - timedelta(days=1)}
    number, unit = typed[:-1], typed[-1:]
    try:
        if unit in _AGO and number.isascii() and number.isdigit():
            ago = datetime.now(UTC) - timedelta(**{_AGO[unit]: int(number)})  # hours that passed, whatever clocks did
            return ago, ago
        text = f"{days[typed]:%Y-%m-%d}" if typed in days else typed
        if found := _TIME.fullmatch(text):
            clock, second, part = found.groups()
            start = datetime.fromisoformat(text)
            unit = "microseconds" if part else "seconds" if second else "minutes" if clock else "days"
            end = start + timedelta(**{unit: 1})
            return start, end - timedelta(microseconds=1)
    except (ValueError, OverflowError):  # a day that no month has, a time before all calendars
        pass
    raise CommandUsageError(f"{option}: '{one_line(typed)}' is not a time; write {_TIME_FORMS}")


def wire_time(at: datetime) -> str:
    """Returns a time as the journal writes it. Without a zone it is local time."""
    try:
        return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a year that no clock has
        raise CommandUsageError(f"the year {at.year} is out of range") from None


CSV_COLUMNS: Final = (
    *("proposedAt", "id", "session", "status", "tool", "requested", "args", "caller", "worker", "parent"),
    *("durationMs", "verdict", "decision", "error"),
)


def csv_row(call: dict[str, Any]) -> list[str]:
    decision = call["decision"] or {}
    args = json.dumps(call["args"], ensure_ascii=False)
    told = call | {"args": args, "verdict": decision.get("verdict"), "decision": describe_decision(call["decision"])}
    return ["" if told[name] is None else str(told[name]) for name in CSV_COLUMNS]


def _call_table(calls: Iterable[LoggedCall], *, of_sessions: bool) -> Iterator[tuple[str, ...]]:
    """`of_sessions`: with a column that says whose call it is."""
    yield (*_CALL_COLUMNS[:2], "SESSION", *_CALL_COLUMNS[2:]) if of_sessions else _CALL_COLUMNS
    depths: dict[str, int] = {}
    for each in calls:
        depth = depths[each.call.id] = depths.get(each.call.parent, 0) + 1 if each.call.parent else 0
        row = _call_row(each, depth)
        yield (*row[:2], each.session[:ID_SHOWN], *row[2:]) if of_sessions else row


def _call_row(each: LoggedCall, depth: int = 0) -> tuple[str, ...]:
    """Formats a call; `depth`: how many calls it is nested in."""
    call = each.call
    return (
        local_time(call.proposed_at),
        call.id[:ID_SHOWN],
        display_status(each.status),
        f"{'  ' * (depth - 1)}└ " * bool(depth) + (call.tool or call.requested),
        shorten(short_args(call.args), _ARGS_WIDTH),
        _duration(call.duration_ms) if call.finished_at else "",
        one_line(describe_decision(call.decision, _DECISION_WIDTH)) or shorten(one_line(call.error), _DECISION_WIDTH),
    )


def _duration(ms: float) -> str:
    """Milliseconds without their unit, as most calls take less than a second."""
    return f"{ms:.1f}" if ms < 999.5 else duration(ms)


def short_args(args: Any) -> str:
    """`path=a.txt content="two words"`: enough to recognise a call; `show` has all of it."""
    if not isinstance(args, dict):
        return "" if args is None else one_line(str(args))
    pairs = []
    for name, value in args.items():
        plain = isinstance(value, str) and value and not any(char.isspace() or char in "\"'" for char in value)
        pairs.append(f"{name}={value if plain else json.dumps(value, ensure_ascii=False)}")
    return one_line(" ".join(pairs))


def call_json(each: LoggedCall) -> dict[str, Any]:
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


_OF_EVERY_RECORD: Final = frozenset({"n", "ts", "type", "call"})


def run_show(words: list[str]) -> int:
    asked = read_args("log show", HELP, words, "CALL", "--json")
    home, call, session = _find_call(asked.call)
    path = journal_path(home, session)
    logged = LoggedCall(session, call, LiveSessions(home).status(call, session))
    records = [record for record in read(path) if _is_about(record, call.id)]
    if asked.json:
        print_json(call_json(logged) | {"records": records})
    else:
        _print_call(logged, records)
        _print_calls_inside(path, call.id, lambda inside: LiveSessions(home).status(inside, session))
    return 0


def _print_calls_inside(path: Path, outer: str, status: Callable[[CallRecord], str]) -> None:
    """The tree of calls that this one made: those of a program, or of a tool that calls others."""
    states, depths = CallRecords(), {outer: -1}
    for record in read(path):
        if (call := states.add(record)) is not None and call.parent in depths and call.id not in depths:
            depths[call.id] = depths[call.parent] + 1
    inside = [call for call in states.calls.values() if call.id in depths and call.id != outer]
    if not inside:
        return
    print(f"calls       {len(inside)} inside it")
    rows = [
        (
            call.id[:ID_SHOWN],
            display_status(status(call)),
            "  " * depths[call.id] + (call.tool or call.requested),
            shorten(short_args(call.args), _ARGS_WIDTH),
            _duration(call.duration_ms) if call.finished_at else "",
        )
        for call in inside[:_MOST_INSIDE]
    ]
    print(columns(rows, indent="  "))
    if len(inside) > _MOST_INSIDE:
        print(f"  … and {len(inside) - _MOST_INSIDE} more; forge log --json has all of them")


def _find_call(typed: str) -> tuple[Path, CallRecord, str]:
    """(where its journal is read, the call, its session): of this home, or of a store's session that was listed."""
    for home in filter(None, (home_with_sessions(), *copies_of_stores())):
        index = SessionIndex(home)
        try:
            found = index.find_call(typed) if typed else None
        except ValueError as error:
            raise IdNotFound(f"{error}. Type more of the id.") from None
        call = index.record_of(found) if found is not None else None
        if found is not None and call is not None:
            return home, call, found.session_id
    raise IdNotFound(f"no call {typed!r}. `forge log` lists the latest, `forge log --store` those in the background.")


def _is_about(record: dict[str, Any], call_id: str) -> bool:
    if record.get("call") == call_id:
        return True
    data = record.get("data")
    return record.get("type") == "event" and isinstance(data, dict) and data.get("toolCallId") == call_id


def _print_call(logged: LoggedCall, records: list[dict[str, Any]]) -> None:
    call = logged.call
    about = [
        ("call", call.id),
        ("session", logged.session),
        ("tool", call.tool + (f" (asked for as {call.requested})" if call.requested not in ("", call.tool) else "")),
        ("by", f"{call.caller}, worker {call.worker}" + (f", inside call {call.parent}" if call.parent else "")),
        (
            "status",
            display_status(logged.status) + (f" in {duration(call.duration_ms, 1)}" if call.finished_at else ""),
        ),
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
    if printed := plain_text(whole_value(call_event("finished", call)[1])):
        print("result")
        print(_indented(printed))
    print("records")
    print(columns((_record_row(record) for record in records), indent="  "))


def left_lines(call: CallRecord) -> list[str]:
    """Returns what the command left behind. Types are checked, since a journal may hold anything."""
    created, left = call.more.get("protectedCreated"), call.more.get("leftovers")
    paths = [str(path) for path in created] if isinstance(created, list) else []
    found = [Leftover.from_wire(one) for one in left if isinstance(one, dict)] if isinstance(left, list) else []
    return [line.text for line in leftover_lines(paths, found)]


def _print_decision(decision: dict[str, Any]) -> None:
    print(f"decision    {decision['verdict']}, risk {decision['risk']}, answered by {answerer(decision)}")
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
        data = record.get("data")
        said = hook_record(data) if record.get("event") == "hookRan" and isinstance(data, dict) else ""
        return f"line {record['n']}", local_time(record["ts"]), f"event {record.get('event')}", said
    fields = ", ".join(name for name in record if name not in _OF_EVERY_RECORD)
    return f"line {record['n']}", local_time(record["ts"]), kind, fields


_MOST_SAID: Final = 200


def hook_record(data: dict[str, Any]) -> str:
    """Formats a `hookRan` event."""
    said = (data.get("verdict"), data.get("reason"), data.get("line"), data.get("told"))
    words = "; ".join(dict.fromkeys(str(each) for each in said if each))
    ran = f"{data.get('hook')} at {data.get('on')}: {data.get('status')}"
    return shorten(one_line(f"{ran} ({words})" if words else ran), _MOST_SAID)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in escape_control_chars(text).splitlines())


def run_sessions(words: list[str]) -> int:
    asked = read_args("log sessions", HELP, words, "--store", "--limit N", "--json", limit=20)
    home = home_of_store() if asked.store else home_with_sessions()
    found = SessionIndex(home).sessions(limit=max(asked.limit, 0))[::-1] if home else []
    live = LiveSessions(home) if home else None
    states = {each.id: live.word(each.id) or _end_state(each) for each in found} if live else {}
    if asked.json:
        print_json([_session_json(each, states[each.id]) for each in found])
    elif found:
        rows = [
            (each.id[:ID_SHOWN], local_time(each.created), local_time(each.updated), str(each.calls), states[each.id])
            for each in found
        ]
        print(columns([("SESSION", "STARTED", "LAST RECORD", "CALLS", "STATE"), *rows]))
    else:
        print_error("log", "no session was recorded yet.")
    return 0


def _end_state(session: SessionSummary) -> str:
    return "closed" if session.closed else "not closed (it crashed, or lines are missing)"


def _session_json(session: SessionSummary, state: str) -> dict[str, Any]:
    return {
        "id": session.id,
        "created": session.created,
        "updated": session.updated,
        "calls": session.calls,
        "lines": session.lines,
        "state": state.partition(" (")[0].replace(" ", "_"),
        "worker": session.worker,
    }


def run_verify(words: list[str]) -> int:
    asked = read_args("log verify", HELP, words, "session?", "--json", session="all")
    home = home_with_sessions()
    of_store = asked.session == ALL_SESSIONS or not _is_here(home, asked.session)
    paths = [] if home is None or (of_store and asked.session != ALL_SESSIONS) else _journals(home, asked.session)
    anchors = {} if home is None else SessionIndex(home).anchors()
    unsound: list[Path] = []

    def results() -> Iterator[tuple[Path, Verification]]:
        if of_store:
            yield from map(counted, _of_store(asked.session))
        for path in paths:
            if path.exists():
                result = _with_changes(path, verify(path, anchors.get(path.stem)))
            else:
                missing = JournalProblem(1, "the journal is missing (deleted)")
                result = Verification(ok=False, lines=0, problems=[missing], notes=[])
            yield counted((path, result))

    def counted(each: tuple[Path, Verification]) -> tuple[Path, Verification]:
        if not each[1].ok:
            unsound.append(each[0])
        return each

    checked = 0
    if asked.json:
        print_json_list(_verification_json(*each) for each in results())
        return 1 if unsound else 0
    for each in results():
        _print_verification(*each)
        checked += 1
    if not checked:
        print_error("log", "no session was recorded yet.")
    return 1 if unsound else 0


def _with_changes(journal: Path, result: Verification) -> Verification:
    """Beside the journal: the change log of the session, whose hashes the journal has."""
    names = (event.wire.get("logHash") for event in events_after(journal) if event.type == "filesChanged")
    log = SessionChangeLog(journal.parent.parent, journal.stem)
    found = [JournalProblem(line, f"of {log.path.name}: {what}") for line, what in log.problems(filter(None, names))]
    return replace(result, ok=result.ok and not found, problems=[*result.problems, *found])


def _is_here(home: Path | None, typed: str) -> bool:
    """Whether this home has a session of that name, or several."""
    if home is None:
        return False
    try:
        return bool(_journals(home, typed))
    except IdNotFound:
        return is_recorded(home, typed)


def _of_store(typed: str) -> Iterator[tuple[Path, Verification]]:
    """Journals of the store of background sessions, by the name that their files would have. Raises IdNotFound."""
    try:
        with opened_store() as found:
            if found is None:
                if typed != ALL_SESSIONS:
                    raise IdNotFound(f"no session {typed!r}. `forge log sessions` lists them.")
                return
            from golem_forge.team.mirror import verify_sessions

            store, address = found
            rows = None if typed == ALL_SESSIONS else [store.find(typed)]
            for row, result in verify_sessions(store, address, rows):
                yield Path(f"{row.id}.jsonl"), result
    except NoSuchSession as error:
        raise IdNotFound(str(error)) from None


def _journals(home: Path, typed: str) -> list[Path]:
    """Oldest first. Includes journals that are gone while their `.head` file is still there."""
    recorded = [path.with_suffix(".jsonl") for path in sorted(sessions_dir(home).glob("*.head"))]
    lost = [path for path in recorded if not path.exists()]
    if typed == "all":
        return [*lost, *reversed(list_journals(home))]
    if found := [path for path in lost if path.stem.startswith(typed)]:
        return found
    return [journal_path(home, session_id(home, typed))]


def _print_verification(path: Path, result: Verification) -> None:
    for line, what in result.problems:
        print(f"{display_path(path)}:{line}: {one_line(what)}")
    notes = "".join(f"; {note}" for note in result.notes)
    state = "ok" if result.ok else "NOT ok"
    print(f"{path.stem[:ID_SHOWN]}  {state}, {result.lines} lines{notes}")


def _verification_json(path: Path, result: Verification) -> dict[str, Any]:
    return {
        "session": path.stem,
        "file": str(path),
        "ok": result.ok,
        "lines": result.lines,
        "problems": [{"line": line, "what": what} for line, what in result.problems],
        "notes": result.notes,
    }
