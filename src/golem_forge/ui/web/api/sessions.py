"""Login and sessions: exchange the printed link's code for a cookie; list, start, resume, end, name, export and delete
sessions.

Login refuses (401) a code that was used, is too old or was never given, without saying which. Threat: guessing; codes
are random, and the request guard counts the tries.
Listing reads the index, and journals that changed since, in a thread. Search looks at the title, the first words, the
worker, the model, the directory and the id. Deleting refuses (409) a session that a process runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import Field

from golem_forge._version import __version__
from golem_forge.agent.files.roster import load_roster
from golem_forge.agent.model.selection import ModelKeys
from golem_forge.agent.recorded_sessions import (
    MAX_TITLE,
    MEDIA_TYPES,
    delete_session,
    export_session,
    priced_sessions,
    rename_session,
    replay,
    session_title,
    session_titles,
)
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session_plan import read_program
from golem_forge.agent.session_state import choose_root_model
from golem_forge.agent.trust import trust_store
from golem_forge.config.program import load_program
from golem_forge.config.run_block import RunSettings
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.text import display_path
from golem_forge.events.index import SessionIndex, SessionSummary
from golem_forge.events.journal_files import SessionNotFound, is_locked, journal_path, sessions_dir
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.threads import run_in_thread
from golem_forge.toolsets.exec.ports import port_rows
from golem_forge.toolsets.search.grep_files import zone_files
from golem_forge.ui.web.api import ApiModel, ApiRefusal
from golem_forge.ui.web.api.operation import ApiCall, RequestedSession, operation, redacted_json
from golem_forge.ui.web.sdk import Response
from golem_forge.ui.web.session_registry import StartRequest
from golem_forge.ui.web.stream.watched_session import LiveSession, SessionStatus

_MAX_CODE: Final = 200
_BAD_CODE: Final = "This link does not work any more: it was used, or it is older than five minutes."
_LOGIN_REFUSALS: Final = {401: "the code is not good (any more)", 429: "too many wrong codes within a minute"}


class LoginCode(ApiModel, title="Code"):
    code: str = Field(max_length=_MAX_CODE)


class ServerInfo(ApiModel, title="Me"):
    """What the page needs to know before it shows anything."""

    current: str
    """The session to show first; empty: none runs here."""
    may_start: bool
    directory: str
    """Where sessions start unless told otherwise."""
    model: str = ""
    """What answers in a new session there; empty: none is chosen yet."""
    notify: bool
    version: str


@operation("POST", "/api/login", "log_in", tag="login", refusals=_LOGIN_REFUSALS)
async def log_in(call: ApiCall, body: LoginCode) -> Response:
    """Exchanges the code of the printed link for a cookie that lasts 12 hours. The code is good once, for 5 minutes."""
    cookie = call.request.app.state.login.exchange(body.code)
    if cookie is None:
        raise ApiRefusal(401, _BAD_CODE)
    answer = Response(status_code=204)
    call.request.app.state.login.set_cookie(call.request, answer, cookie)
    return answer


@operation("POST", "/api/logout", "log_out", tag="login")
async def log_out(call: ApiCall) -> Response:
    """Forgets this browser: its cookie is worth nothing from now on."""
    answer = Response(status_code=204)
    call.request.app.state.login.drop_cookie(call.request, answer)
    return answer


@operation("GET", "/api/me", "who_am_i", tag="login")
async def who_am_i(call: ApiCall) -> ServerInfo:
    """What this server shows, and whether it may start sessions."""
    registry = call.registry
    return ServerInfo(
        current=registry.current,
        may_start=registry.may_start,
        directory=str(registry.directory),
        model=await run_in_thread(lambda: _model_there(registry.home, registry.directory)),
        notify=registry.notify,
        version=__version__,
    )


def _model_there(home: ForgeHome, directory: Path) -> str:
    """Empty too where the configuration cannot be read: who starts a session there is told why."""
    try:
        program = read_program(directory, home, trust_store(home))
        worker = load_roster(program).root
    except (ConfigError, ForgeError):
        return ""
    return choose_root_model(program, worker, ModelKeys(home)).model


MAX_SESSIONS_LISTED: Final = 200
_MAX_SEARCHED: Final = 10_000
_MAX_EXPORT_BYTES: Final = 64 << 20
_ShortText = Annotated[str, Field(max_length=1000)]


class SessionsQuery(ApiModel, title="SessionsQuery"):
    query: _ShortText = ""
    """Every word of it stands somewhere in the first words, the worker, the model, the directory or the id."""
    limit: Annotated[int, Field(ge=1, le=MAX_SESSIONS_LISTED)] = 50
    everything: bool = False
    """Those in which no model was asked anything, too: single calls, starts that failed."""


class SessionRow(ApiModel, title="SessionRow"):
    id: str
    title: str
    """What a person called it, else its first words; empty while nothing was said."""
    state: SessionStatus
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
    cost: float | None = None
    """In USD; null: not known."""
    prices: str = ""
    """Where prices come from that the person did not write: `local`, `as of 2026-10-14`."""


class SessionList(ApiModel, title="SessionList"):
    sessions: list[SessionRow]
    more: bool
    """Whether others fit too."""


class SessionId(ApiModel, title="SessionId"):
    id: str


@operation("GET", "/api/sessions", "list_sessions", tag="sessions")
async def list_sessions(call: ApiCall, query: SessionsQuery) -> SessionList:
    """The sessions of this home, newest activity first."""
    home, running = call.registry.home.path, call.registry.live_sessions()
    here = {session.id for session in running}
    rows, more = await run_in_thread(lambda: _list_rows(home, here, query))
    listed = {row.id for row in rows}
    words = query.query.casefold().split()
    unlisted = [
        row
        for session in reversed(running)
        if session.id not in listed and _matches(row := _row_of_live(session), words)
    ]
    return SessionList(sessions=[*unlisted, *rows][: query.limit], more=more)


@operation("GET", "/api/sessions/{id}", "get_session", tag="sessions")
async def get_session(call: ApiCall) -> SessionRow:
    """What is known of one session."""
    session = await call.registry.find(call.path["id"])
    home, id, state = call.registry.home.path, session.id, session.state
    found = await run_in_thread(lambda: _find_summary(home, id))
    if found is not None:
        return _row_of_summary(found, state, await run_in_thread(lambda: session_titles(home)))
    if isinstance(session, LiveSession):
        return _row_of_live(session)
    raise _no_such_session()


class FileNames(ApiModel, title="FileNames"):
    files: list[str]
    """As the session writes them: `/workspace/src/cart.py`."""


@operation("GET", "/api/sessions/{id}/files", "list_zone_files", tag="sessions")
async def list_zone_files(subject: RequestedSession) -> FileNames:
    """The files that `@` offers: those a search of the session's worker would look at. Empty where it does not run."""
    runtime = subject.runtime
    sandbox = runtime.path.sandbox if runtime is not None else None
    if runtime is None or sandbox is None:
        return FileNames(files=[])
    found = await zone_files(sandbox, runtime.path.path_rules(), _MOST_FILES, _LISTING_S)
    return FileNames.model_validate(subject.redact({"files": found}))


class PortRow(ApiModel, title="PortRow"):
    port: int
    command: str
    """Empty: nothing listens there now."""
    since: str
    """Empty: not known."""
    url: str
    """Where programs of this computer reach it; empty: it is not published."""


class PortList(ApiModel, title="PortList"):
    ports: list[PortRow]


@operation("GET", "/api/sessions/{id}/ports", "list_ports", tag="sessions")
async def list_ports(call: ApiCall) -> PortList:
    """What listens in the session's loopback, and what is published. Empty where the session does not run, or not
    yet."""
    runtime: WorkerRuntime | None = getattr(await call.registry.find(call.path["id"]), "runtime", None)
    if runtime is None or not runtime.is_ready:
        return PortList(ports=[])
    path = runtime.path
    redact = path.walls.redact if path.walls is not None else path.redactor.text
    rows = await run_in_thread(lambda: port_rows(path.parts, redact))
    return PortList.model_validate(redacted_json({"ports": rows}, runtime.tree.redactor.text))


_MOST_FILES: Final = 5000
_LISTING_S: Final = 5.0


class SessionTitle(ApiModel, title="SessionTitle"):
    title: Annotated[str, Field(max_length=MAX_TITLE)]
    """An empty one takes the given title back: the first words count again."""


@operation("PATCH", "/api/sessions/{id}", "rename_session", tag="sessions")
async def change_title(call: ApiCall, body: SessionTitle) -> SessionRow:
    """Gives a session a title, also one that runs."""
    session = await call.registry.find(call.path["id"])
    home, id = call.registry.home.path, session.id
    try:
        await run_in_thread(lambda: rename_session(home, id, body.title))
    except SessionNotFound:
        raise ApiRefusal(409, "This session keeps no journal, so it cannot be named.") from None
    return await get_session.run(call)  # type: ignore[no-any-return]


@operation(
    "DELETE", "/api/sessions/{id}", "delete_session", tag="sessions", refusals={409: "a process runs the session"}
)
async def remove_session(call: ApiCall) -> None:
    """Removes all that is kept of a session: journal, attachments, stored outputs. It cannot be brought back."""
    session = await call.registry.find(call.path["id"])
    home, id = call.registry.home.path, session.id
    if isinstance(session, LiveSession):
        raise ApiRefusal(409, "This session runs here; end it first, then delete it.")
    try:
        await run_in_thread(lambda: delete_session(home, id))
    except SessionNotFound:
        raise _no_such_session() from None
    await call.registry.forget(id)


class ExportQuery(ApiModel, title="ExportQuery"):
    format: Literal["markdown", "json"] = "markdown"


@operation(
    "GET",
    "/api/sessions/{id}/export",
    "export_session",
    tag="sessions",
    media=tuple(MEDIA_TYPES.values()),
    refusals={409: "the session keeps no journal", 413: "the session is too long to be sent at once"},
)
async def download_session(call: ApiCall, subject: RequestedSession, query: ExportQuery) -> Response:
    """The session as one text to keep: Markdown, or a JSON document with its events. Known secrets are redacted."""
    session = await call.registry.find(call.path["id"])
    id, clean = session.id, subject.redactor.text
    text = await run_in_thread(lambda: _export_text(subject.home.path, id, query.format, clean))
    suffix = "md" if query.format == "markdown" else "json"
    headers = {"Content-Disposition": f'attachment; filename="session-{id[:12]}.{suffix}"'}
    return Response(text, media_type=MEDIA_TYPES[query.format], headers=headers)


def _export_text(home: Path, session_id: str, format: str, clean: Callable[[str], str]) -> bytes:
    """Refused where it is longer than one answer may be."""
    found = _find_summary(home, session_id)
    if found is None:
        raise ApiRefusal(409, "This session keeps no journal, so there is nothing to export.")
    title, text = session_title(found, session_titles(home)), bytearray()
    for piece in export_session(found, title, replay(session_id, home=home), format, clean):
        text += piece.encode()
        if len(text) > _MAX_EXPORT_BYTES:
            again = f"`forge sessions export {session_id[:12]} --format {format}` writes it."
            raise ApiRefusal(413, f"This session is too long to be sent at once. {again}")
    return bytes(text)


def _find_summary(home: Path, session_id: str) -> SessionSummary | None:
    found = SessionIndex(home).sessions(prefix=session_id, limit=2)
    return next((each for each in found if each.id == session_id), None)


def _no_such_session() -> ApiRefusal:
    return ApiRefusal(404, "There is no such session; the list of sessions shows all.")


@operation(
    "POST",
    "/api/sessions",
    "start_session",
    tag="sessions",
    status=201,
    refusals={409: "no session is started from here, or it cannot be", 422: "a configuration that cannot be used"},
)
async def start_session(call: ApiCall, body: StartRequest) -> SessionId:
    """Starts a session, or goes on with one (`resume`); answers when there is something to show."""
    if "\0" in body.directory:
        raise ApiRefusal(422, "The directory cannot be used.", {"directory": "not a path"})
    return SessionId(id=await call.registry.start(body))


@operation(
    "POST", "/api/sessions/{id}/end", "end_session", tag="sessions", refusals={409: "the session does not run here"}
)
async def end_session(call: ApiCall) -> None:
    """Ends a session that runs here, in an orderly way; it can be resumed."""
    await call.registry.end(call.path["id"])


def _list_rows(home: Path, here: set[str], query: SessionsQuery) -> tuple[list[SessionRow], bool]:
    if not sessions_dir(home).is_dir():
        return [], False
    index, words, titles = SessionIndex(home), query.query.casefold().split(), session_titles(home)
    most = _MAX_SEARCHED if words else query.limit + 1
    found = index.sessions(limit=most) if query.everything else index.conversations(limit=most)
    fitting = [session for session in found if _matches(session, words, titles)]
    shown = priced_sessions(home, fitting[: query.limit], lambda: _own_settings(home))
    rows = [_row_of_summary(session, _state(home, session.id, here), titles) for session in shown]
    return rows, len(fitting) > query.limit


def _own_settings(home: Path) -> RunSettings:
    """The person's own; no project is read."""
    return load_program(home, ForgeHome(home), trusted=lambda root: False).run


def _state(home: Path, session_id: str, here: Iterable[str]) -> SessionStatus:
    if session_id in here:
        return SessionStatus.LIVE
    return SessionStatus.ELSEWHERE if is_locked(journal_path(home, session_id)) else SessionStatus.CLOSED


def _matches(
    session: SessionSummary | SessionRow, words: list[str], titles: Mapping[str, str] = MappingProxyType({})
) -> bool:
    directory = display_path(session.root) if isinstance(session, SessionSummary) else session.directory
    title = titles.get(session.id, "")
    said = " ".join((title, session.input, session.worker, session.model, directory, session.id)).casefold()
    return all(word in said for word in words)


_SAME_IN_ROW: Final = ("id", "created", "updated", "worker", "model", "input", "calls", "cost", "prices")


def _row_of_summary(session: SessionSummary, state: SessionStatus, titles: Mapping[str, str]) -> SessionRow:
    return SessionRow(
        title=session_title(session, titles),
        state=state,
        finished=session.closed and state is SessionStatus.CLOSED,
        directory=display_path(session.root),
        **{name: getattr(session, name) for name in _SAME_IN_ROW},
    )


def _row_of_live(session: LiveSession) -> SessionRow:
    """One that runs here and is not in the index: it keeps no journal, or nothing was said in it yet."""
    started = session.audience.standing.last("sessionStarted")
    wire, ts = (started.wire, started.ts) if started is not None else ({}, "")
    return SessionRow(
        id=session.id,
        title="",
        state=SessionStatus.LIVE,
        finished=False,
        created=ts,
        updated=ts,
        worker=str(wire.get("worker", "")),
        model=str(wire.get("model", "")),
        directory=display_path(str(session.root)),
        input="",
        calls=0,
    )
