"""Sessions: those of this home, newest first, with what each is; starting one, going on with one, ending one.

Listing reads the index, and journals that changed since, so it happens in a thread. Searching looks at what a person
would remember: the first words, the worker, the model, the directory, the id.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from golem_forge.core.homely import homely
from golem_forge.events.index import Index, SessionSummary
from golem_forge.events.session_files import is_held, journal_path, sessions_dir
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api.operation import Call, Operation, operation
from golem_forge.ui.web.watching.live import LiveSession
from golem_forge.ui.web.watching.session import SessionState
from golem_forge.ui.web.wire import Model, Refused

MOST: Final = 200
_MOST_SEARCHED: Final = 10_000
_Words = Annotated[str, Field(max_length=1000)]


class SessionsQuery(Model, title="SessionsQuery"):
    query: _Words = ""
    """Every word of it stands somewhere in the first words, the worker, the model, the directory or the id."""
    limit: Annotated[int, Field(ge=1, le=MOST)] = 50
    everything: bool = False
    """Those in which no model was asked anything, too: single calls, starts that failed."""


class SessionRow(Model, title="SessionRow"):
    id: str
    state: SessionState
    finished: bool
    """Whether it was ended in an orderly way; false also while it runs."""
    created: str
    updated: str
    worker: str
    model: str
    directory: str
    input: str
    """The first words that a person said."""
    calls: int


class SessionList(Model, title="SessionList"):
    sessions: list[SessionRow]
    more: bool
    """Whether others fit too."""


class NewSession(Model, title="NewSession"):
    directory: Annotated[str, Field(max_length=4096)] = ""
    worker: _Words = ""
    model: _Words = ""
    approval: _Words = ""
    resume: _Words = ""
    """The id of a session that goes on."""
    input: Annotated[str, Field(max_length=500_000)] = ""


class SessionId(Model, title="SessionId"):
    id: str


@operation("GET", "/api/sessions", "list_sessions", tag="sessions", query=SessionsQuery, answer=SessionList)
async def list_sessions(call: Call) -> SessionList:
    """The sessions of this home, newest activity first."""
    home, running, query = call.house.home.path, call.house.live_sessions(), call.query
    here = {session.id for session in running}
    rows, more = await run_in_thread(lambda: _listed(home, here, query))
    listed = {row.id for row in rows}
    words = query.query.casefold().split()
    unlisted = [
        row for session in reversed(running) if session.id not in listed and _fits(row := _bare(session), words)
    ]
    return SessionList(sessions=[*unlisted, *rows][: query.limit], more=more)


@operation("GET", "/api/sessions/{id}", "get_session", tag="sessions", answer=SessionRow)
async def get_session(call: Call) -> SessionRow:
    """What is known of one session."""
    session = await call.house.find(call.path["id"])
    home, id, state = call.house.home.path, session.id, session.state
    found = await run_in_thread(lambda: [each for each in Index(home).sessions(prefix=id, limit=2) if each.id == id])
    if found:
        return _row(found[0], state)
    if isinstance(session, LiveSession):
        return _bare(session)
    raise Refused(404, "There is no such session; the list of sessions shows those there are.")


@operation(
    "POST",
    "/api/sessions",
    "start_session",
    tag="sessions",
    body=NewSession,
    answer=SessionId,
    status=201,
    refusals={409: "no session is started from here, or it cannot be", 422: "a configuration that cannot be used"},
)
async def start_session(call: Call) -> SessionId:
    """Starts a session, or goes on with one (`resume`); answers when there is something to show."""
    from golem_forge.ui.web.house import Wish

    body: NewSession = call.body
    if "\0" in body.directory:
        raise Refused(422, "The directory cannot be used.", {"directory": "not a path"})
    wish = Wish(
        directory=body.directory,
        worker=body.worker,
        model=body.model,
        approval=body.approval,
        resume=body.resume,
        input=body.input,
    )
    return SessionId(id=await call.house.start(wish))


@operation(
    "POST", "/api/sessions/{id}/end", "end_session", tag="sessions", refusals={409: "the session does not run here"}
)
async def end_session(call: Call) -> None:
    """Ends a session that runs here, in an orderly way; it can be resumed."""
    await call.house.end(call.path["id"])


def _listed(home: Path, here: set[str], query: SessionsQuery) -> tuple[list[SessionRow], bool]:
    if not sessions_dir(home).is_dir():
        return [], False
    index, words = Index(home), query.query.casefold().split()
    most = _MOST_SEARCHED if words else query.limit + 1
    found = index.sessions(limit=most) if query.everything else index.conversations(limit=most)
    fitting = [session for session in found if _fits(session, words)]
    rows = [_row(session, _state(home, session.id, here)) for session in fitting[: query.limit]]
    return rows, len(fitting) > query.limit


def _state(home: Path, session_id: str, here: Iterable[str]) -> SessionState:
    if session_id in here:
        return SessionState.LIVE
    return SessionState.ELSEWHERE if is_held(journal_path(home, session_id)) else SessionState.CLOSED


def _fits(session: SessionSummary | SessionRow, words: list[str]) -> bool:
    directory = homely(session.root) if isinstance(session, SessionSummary) else session.directory
    said = " ".join((session.input, session.worker, session.model, directory, session.id)).casefold()
    return all(word in said for word in words)


def _row(session: SessionSummary, state: SessionState) -> SessionRow:
    return SessionRow(
        id=session.id,
        state=state,
        finished=session.closed and state is SessionState.CLOSED,
        created=session.created,
        updated=session.updated,
        worker=session.worker,
        model=session.model,
        directory=homely(session.root),
        input=session.input,
        calls=session.calls,
    )


def _bare(session: LiveSession) -> SessionRow:
    """One that runs here and is not in the index: it keeps no journal, or nothing was said in it yet."""
    started = session.standing.last("sessionStarted")
    wire = started.wire if started is not None else {}
    ts = started.ts if started is not None else ""
    return SessionRow(
        id=session.id,
        state=SessionState.LIVE,
        finished=False,
        created=ts,
        updated=ts,
        worker=str(wire.get("worker", "")),
        model=str(wire.get("model", "")),
        directory=homely(str(session.root)),
        input="",
        calls=0,
    )


OPERATIONS: Final[tuple[Operation, ...]] = (list_sessions, get_session, start_session, end_session)
