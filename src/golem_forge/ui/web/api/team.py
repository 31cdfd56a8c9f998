"""The operations of a team's server: log in with a token; the sessions, questions and schedules of the store.

Those that the page shares with `forge web` keep their paths and models. `/api/team/…` gives rows of the store as they
are, for `forge ps`, `inbox`, `send`, `stop` and `run --background` from another machine (`team/remote.py`). Every
operation acts through `PersonStore`, which checks the role of the person behind the request. Those for people, projects
and rules are in `team_management.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from threading import Semaphore
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from golem_forge._version import __version__
from golem_forge.agent.session_state import known_secrets
from golem_forge.core.lazy_dataclass import replace
from golem_forge.net.server_guard import AllowedHosts
from golem_forge.team.changes import MOST_SENT, changes_to_json
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.people import PersonStore, find_person, token_hash
from golem_forge.team.rows import ENDED, SOMEBODY_ELSE, QuestionFilter, QuestionRow, StoredSession
from golem_forge.team.schedules import NewSchedule
from golem_forge.team.session_workspace import read_changes
from golem_forge.team.workspace import WorkspaceError
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ApiModel, ApiRefusal
from golem_forge.ui.web.api import events as page_events
from golem_forge.ui.web.api import sessions as page_sessions
from golem_forge.ui.web.api.events import Action, Envelope, Inbox, InboxRow, OutputPage, OutputQuery, WholeEvent
from golem_forge.ui.web.api.openapi import ApiDescription, openapi_document
from golem_forge.ui.web.api.operation import ApiCall, Operation, operation
from golem_forge.ui.web.api.sessions import LoginCode, ServerInfo, SessionId, SessionsQuery
from golem_forge.ui.web.api.team_management import Rows, ShortText, as_person, management_operations, person_store
from golem_forge.ui.web.app import make_app
from golem_forge.ui.web.sdk import Response
from golem_forge.ui.web.security import LoginStore, RequestGuard, cookie_name
from golem_forge.ui.web.session_registry import SessionRegistry, StartRequest
from golem_forge.ui.web.sign_in import BEGIN, CALLBACK, SignIn
from golem_forge.ui.web.stream.stored_session import TeamSession
from golem_forge.ui.web.team import PAGE_DOOR, TeamGuard, TeamRegistry, serve_team_socket, token_seconds
from golem_forge.ui.web.views import shown_members

_WRONG_TOKEN: Final = "This token is not valid (any more). Ask an admin of the team for another one."
_MAX_ROWS: Final = 1000
_MOST_LISTED: Final = 200
_READS_CHANGES: Final = Semaphore(2)
_CHANGES_WAIT_S: Final = 20.0
_Text = Annotated[str, Field(max_length=500_000)]


def _registry(call: ApiCall) -> TeamRegistry:
    assert isinstance(call.registry, TeamRegistry)
    return call.registry


# ---- login


class TeamInfo(ServerInfo, title="TeamMe"):
    """What the page needs to know before it shows anything."""

    team: bool
    person: str
    role: str
    """The highest that they have anywhere."""
    all_projects: str
    """The role that they have in all projects."""
    projects: dict[str, str]
    """Id of a project → the role that they have in it besides."""


@operation("POST", "/api/login", "log_in", tag="login", refusals={401: "the token is not valid"})
async def log_in(call: ApiCall, body: LoginCode) -> Response:
    """Exchanges a person's token for a cookie that lasts 12 hours."""
    login, hash = call.request.app.state.login, token_hash(body.code.strip())
    store = _registry(call).store
    person = await run_in_thread(lambda: find_person(store, hash) if hash else None)
    if person is None:
        await run_in_thread(lambda: login.refuse_token(store, PAGE_DOOR, hash, call.request.scope))
        raise ApiRefusal(401, _WRONG_TOKEN)
    await run_in_thread(lambda: store.accounts.log_in(person.name, PAGE_DOOR, "token"))
    seconds = await run_in_thread(lambda: token_seconds(store, person))
    answer = Response(status_code=204)
    login.set_cookie(call.request, answer, login.enter(hash, seconds))
    await run_in_thread(login.save)
    return answer


@operation("GET", "/api/me", "who_am_i", tag="login")
async def who_am_i(call: ApiCall) -> TeamInfo:
    """Who is logged in, and what they may do."""
    person = await as_person(call, lambda who: who.person)
    return TeamInfo(
        current="",
        may_start=person.may_somewhere("start"),
        directory="",
        notify=False,
        version=__version__,
        team=True,
        person=person.name,
        role=person.highest.value,
        all_projects=person.role.value,
        projects={id: role.value for id, role in person.projects.items()},
    )


@operation("GET", "/api/openapi.json", "describe", tag="login", answer=ApiDescription)
async def describe(call: ApiCall) -> Response:
    """This description."""
    cookie = cookie_name(call.request.scope)
    return await page_events.json_response(lambda: openapi_document(cookie, team_operations()))


# ---- what the page shows


class TeamSessionRow(ApiModel, title="TeamSessionRow"):
    id: str
    title: str
    state: Literal["live", "closed"]
    status: str
    """queued, running, waiting, waiting (held), finished, failed or stopped."""
    finished: bool
    created: str
    updated: str
    worker: str
    model: str
    directory: str
    input: str
    calls: int
    person: str
    """Who started it."""
    project: str
    """The name of its project."""
    answered_by: list[str]
    """Who answered its questions."""
    waits_for: str
    cost: float
    error: str
    notices: list[str]
    """What a person should know of it: calls that may have run, changes that are lost, files that are not at the
    origin."""


class TeamSessionList(ApiModel, title="TeamSessionList"):
    sessions: list[TeamSessionRow]
    more: bool
    people: list[str]
    """Who started those that fit the other filters."""
    projects: list[str]
    """The names of all that whoever asks may see."""


class TeamSessionsFilter(SessionsQuery, title="TeamSessionsFilter"):
    person: ShortText = ""
    """Who started it."""
    project: ShortText = ""
    """The name of a project; empty: all."""
    status: ShortText = ""
    """Names of states with commas between; empty: all."""


@operation("GET", "/api/sessions", "list_sessions", tag="sessions")
async def list_sessions(call: ApiCall, query: TeamSessionsFilter) -> TeamSessionList:
    """The sessions of the store, newest first."""
    who, words = person_store(call), query.query.casefold().split()
    states, person = _checked_states(query.status), query.person

    def read() -> tuple[list[StoredSession], dict[str, list[str]], dict[str, str]]:
        names, project = _project_names(who), query.project
        if project and project not in names.values():
            return [], {}, names
        rows = who.sessions(states=states, limit=_MAX_ROWS, project=project)
        rows = [row for row in rows if all(word in _searched(row) for word in words)]
        return rows, who.answered_by([row.id for row in rows if person in ("", row.person)][: query.limit]), names

    rows, answered, names = await run_in_thread(read)
    fitting = [row for row in rows if person in ("", row.person)]
    return TeamSessionList(
        sessions=[_page_row(row, answered, names) for row in fitting[: query.limit]],
        more=len(fitting) > query.limit,
        people=sorted({row.person for row in rows if row.person})[:_MAX_ROWS],
        projects=sorted(names.values())[:_MAX_ROWS],
    )


def _project_names(who: PersonStore) -> dict[str, str]:
    return {each.id: each.name for each in who.projects()}


@operation("GET", "/api/sessions/{id}", "get_session", tag="sessions")
async def get_session(call: ApiCall) -> TeamSessionRow:
    """What is known of one session."""
    row = await _found(call)
    names = await as_person(call, lambda who: _project_names(who))
    return _page_row(row, await as_person(call, lambda who: who.answered_by([row.id])), names)


@operation("POST", "/api/sessions", "start_session", tag="sessions", status=201, refusals={403: "not an operator"})
async def start_session(call: ApiCall, body: StartRequest) -> SessionId:
    """Queues a session; a runner takes it."""
    return SessionId(id=await _start(call, body))


@operation("POST", "/api/sessions/{id}/end", "end_session", tag="sessions", refusals={403: "not an operator"})
async def end_session(call: ApiCall) -> None:
    """Interrupts a session and ends it."""
    await as_person(call, lambda who: who.stop(call.path["id"]))


@operation("GET", "/api/questions", "list_questions", tag="events")
async def list_questions(call: ApiCall) -> Inbox:
    """The open questions of all sessions, oldest first; at most 200."""
    rows = await as_person(call, lambda who: who.questions(limit=_MOST_LISTED))
    return Inbox(questions=[_inbox_row(row) for row in rows])


@operation("GET", "/api/sessions/{id}/questions/{requestId}", "get_question", tag="events", answer=WholeEvent)
async def get_question(call: ApiCall) -> Response:
    """One question, whole."""
    session = await _seen_session(call)
    row = await as_person(call, lambda who: who.find_question(call.path["requestId"]))
    if row.session != session.id:
        raise ApiRefusal(404, "No such question is open; what it was is among the events.")
    event = session.question_event(row)
    return await page_events.json_response(lambda: {"event": event.to_dict()})


class TeamQuestion(ApiModel, title="TeamQuestion"):
    question: InboxRow
    person: str
    """Who started the session; with `fourEyes` somebody else has to answer."""
    four_eyes: bool
    title: str
    """Of the session."""
    project: str
    same: str
    """Questions with the same key ask for the same call, and can be answered together; empty: this one is alone."""
    event: Envelope
    view: dict[str, Any]
    """How a page shows it."""


class TeamInbox(ApiModel, title="TeamInbox"):
    questions: list[TeamQuestion]
    more: bool
    projects: list[str]
    """The names of all that whoever asks may see."""


class QuestionsWanted(ApiModel, title="QuestionsWanted"):
    """Which open questions; what is empty leaves nothing out."""

    mine: bool = False
    """Of sessions that whoever asks started."""
    project: ShortText = ""
    """Its name."""
    worker: ShortText = ""
    risk: ShortText = ""
    tool: ShortText = ""
    older_s: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] = 0.0
    """Asked at least so many seconds ago."""
    words: ShortText = ""
    """Each stands in what is asked, in the task, or in the name of whoever started it."""
    same: ShortText = ""
    """Alike: with this key."""
    after: ShortText = ""
    """The next ones after the question of this id."""

    def wanted(self) -> QuestionFilter:
        return QuestionFilter(**{name: getattr(self, name) for name in QuestionsWanted.model_fields})


class InboxQuery(QuestionsWanted, title="InboxQuery"):
    limit: Annotated[int, Field(ge=1, le=100)] = 30


@operation("GET", "/api/inbox", "show_inbox", tag="events", answer=TeamInbox)
async def show_inbox(call: ApiCall, query: InboxQuery) -> Response:
    """The open questions of all sessions with their cards, oldest first."""
    who = person_store(call)
    return await page_events.json_response(lambda: inbox_page(who, query))


def inbox_page(who: PersonStore, query: InboxQuery) -> dict[str, Any]:
    """What the page draws, as JSON has it."""
    rows, names = who.questions(limit=query.limit + 1, wanted=query.wanted()), _project_names(who)
    return {
        "questions": [_question_with_card(row, names) for row in rows[: query.limit]],
        "more": len(rows) > query.limit,
        "projects": sorted(names.values())[:_MAX_ROWS],
    }


def _question_with_card(row: QuestionRow, names: Mapping[str, str]) -> dict[str, Any]:
    shown = shown_members(TeamSession.event_of(row))
    about = {"person": row.starter, "fourEyes": row.four_eyes == SOMEBODY_ELSE, "title": row.task}
    about |= {"project": names.get(row.program, ""), "same": row.same}
    return {"question": _inbox_row(row).model_dump(by_alias=True), **about, **shown}


@operation("GET", "/api/sessions/{id}/outputs/{handle}", "read_output", tag="events")
async def read_output(call: ApiCall, handle: str, query: OutputQuery) -> OutputPage:
    """Lines of an output that was kept whole, by the handle in `outputHandle`."""
    who, session = person_store(call), await _seen_session(call)
    path = await run_in_thread(lambda: session.kept_output(who, handle))
    redactor = await run_in_thread(lambda: known_secrets(_registry(call).home))
    return await page_events.output_page(path, handle, query, redactor.text)


# ---- rows as they are, for programs


class SessionsWanted(ApiModel, title="TeamSessionsQuery"):
    states: ShortText = ""
    """Names of states with commas between; empty: all."""
    prefix: ShortText = ""
    batch: ShortText = ""
    """Only the sessions of that batch."""
    project: ShortText = ""
    """Only of the project with this name."""
    limit: Annotated[int, Field(ge=1, le=10 * _MAX_ROWS)] = _MAX_ROWS


_STATES: Final = frozenset({"queued", "running", "waiting", *ENDED})


def _checked_states(given: str) -> list[str]:
    states = [each for each in given.split(",") if each]
    if not _STATES.issuperset(states):
        raise ApiRefusal(422, f"A state is one of {', '.join(sorted(_STATES))}.", {"status": "unknown"})
    return states


@operation("GET", "/api/team/sessions", "team_sessions", tag="team")
async def team_sessions(call: ApiCall, query: SessionsWanted) -> Rows:
    """The sessions of the store, newest first."""
    states = _checked_states(query.states)
    wanted = {name: getattr(query, name) for name in ("prefix", "batch", "project", "limit")}
    rows = await as_person(call, lambda who: who.sessions(states=states, **wanted))
    return Rows(rows=[asdict(row) for row in rows], now=await as_person(call, PersonStore.now))


_OF_START: Final = ("input", "worker", "model", "approval", "directory")


class TeamStart(ApiModel, title="TeamStart"):
    input: _Text
    worker: ShortText = ""
    model: ShortText = ""
    approval: ShortText = ""
    directory: Annotated[str, Field(max_length=4096)] = ""
    label: ShortText = ""
    batch: ShortText = ""
    """The batch that it belongs to: sessions of one batch can be listed together."""
    priority: Annotated[int, Field(ge=-10, le=10)] = 0
    """Among those that wait for a runner, the highest comes first."""

    def request(self) -> StartRequest:
        return StartRequest(**{name: getattr(self, name) for name in _OF_START})


@operation("POST", "/api/team/sessions", "team_start", tag="team", status=201)
async def team_start(call: ApiCall, body: TeamStart) -> SessionId:
    """Queues a session. Where its worker names no mode, it ends with its first answer, as `forge run` does."""
    return SessionId(id=await _start(call, body.request(), body))


class TeamNewSchedule(TeamStart, title="TeamNewSchedule"):
    cron: ShortText
    """Five fields, or `@hourly`, `@daily` …"""
    timezone: ShortText = "UTC"
    name: ShortText = ""
    """Empty: one is made up."""


class ScheduleName(ApiModel, title="TeamScheduleName"):
    name: str


@operation("GET", "/api/team/schedules", "team_schedules", tag="team")
async def team_schedules(call: ApiCall) -> Rows:
    """What starts by the clock, by name."""
    rows = await as_person(call, PersonStore.schedules)
    return Rows(rows=[asdict(row) for row in rows], now=await as_person(call, PersonStore.now))


@operation("POST", "/api/team/schedules", "team_add_schedule", tag="team", status=201)
async def team_add_schedule(call: ApiCall, body: TeamNewSchedule) -> ScheduleName:
    """Sessions by the clock, in the name of whoever adds them."""
    who, registry = person_store(call), _registry(call)
    request = body.request()

    def add() -> str:
        who.require_in("schedule", body.input[:100], lambda: registry.program_of(body.directory))
        session = replace(registry.new_session(request, body.label, "single", in_batch=True), priority=body.priority)
        return who.add_schedule(NewSchedule(cron=body.cron, timezone=body.timezone, name=body.name, session=session))

    return ScheduleName(name=await run_in_thread(add))


@operation("DELETE", "/api/team/schedules/{name}", "team_remove_schedule", tag="team")
async def team_remove_schedule(call: ApiCall) -> None:
    """One's own schedule; that of another person, for admins."""
    await as_person(call, lambda who: who.remove_schedule(call.path["name"]))


class LinesQuery(ApiModel, title="TeamLinesQuery"):
    after: Annotated[int, Field(ge=0, le=(1 << 53) - 1)] = 0
    limit: Annotated[int, Field(ge=1, le=5000)] = 1000
    private: bool = False
    """With the lines that hold host paths, for admins."""


class Lines(ApiModel, title="TeamLines"):
    lines: list[tuple[int, str]]
    """(number, line in base64)."""


@operation("GET", "/api/team/sessions/{id}/lines", "team_lines", tag="team")
async def team_lines(call: ApiCall, query: LinesQuery) -> Lines:
    """Lines of a session's journal."""
    id = call.path["id"]
    found = await as_person(call, lambda who: who.lines(id, query.after, limit=query.limit, private=query.private))
    return Lines(lines=[(number, base64.b64encode(line).decode()) for number, line in found])


class LiveQuery(ApiModel, title="TeamLiveQuery"):
    after: Annotated[int, Field(ge=0, le=(1 << 53) - 1)] = 0


class LiveFrames(ApiModel, title="TeamLiveFrames"):
    frames: list[dict[str, Any]]
    count: int
    """How many there were so far: the next `after`."""


@operation("GET", "/api/team/sessions/{id}/live", "team_live", tag="team")
async def team_live(call: ApiCall, query: LiveQuery) -> LiveFrames:
    """What a session says right now and no journal keeps: text as it comes, output, progress. Pieces may be missing."""
    session = await _seen_session(call)
    frames, count = await session.live_frames(query.after)
    return LiveFrames(frames=frames, count=count)


@operation("GET", "/api/team/sessions/{id}/facts", "team_facts", tag="team")
async def team_facts(call: ApiCall) -> Rows:
    """Where a session runs and with what, for admins."""
    return Rows(rows=[dict(await as_person(call, lambda who: who.facts(call.path["id"])))])


class ChangesQuery(ApiModel, title="TeamChangesQuery"):
    contents: bool = False
    """With the contents of the files, for operators."""


class TeamChanges(ApiModel, title="TeamChanges"):
    files: list[dict[str, Any]]
    diff: str
    cut: bool
    """There was more."""
    base: str = ""
    commit: str = ""
    differences: list[list[str]] = Field(default_factory=list)
    """As `git diff-tree --raw` tells them."""
    blobs: dict[str, str] = Field(default_factory=dict)
    """Object id → content in base64."""


@operation("GET", "/api/team/sessions/{id}/changes", "team_changes", tag="team", answer=TeamChanges)
async def team_changes(call: ApiCall, query: ChangesQuery) -> Response:
    """What a session changed in its git workspace, up to its last checkpoint."""
    who, id, home = person_store(call), call.path["id"], _registry(call).home

    def read() -> dict[str, Any]:
        facts = who.workspace_of(id, "apply" if query.contents else "see")
        if not facts:
            raise TeamError(f"session {id[:12]} has no git workspace", "WORKSPACE")
        if not _READS_CHANGES.acquire(timeout=_CHANGES_WAIT_S):  # each may fetch a whole repository
            raise StoreUnavailable("The server reads the changes of other sessions now. Try again in a minute.")
        try:
            found = read_changes(facts, home.path, id, contents=query.contents, limit=MOST_SENT)
            return changes_to_json(
                found._replace(diff=replace(found.diff, text=known_secrets(home).text(found.diff.text)))
            )
        except WorkspaceError as error:
            raise TeamError(error.message, "WORKSPACE") from None
        finally:
            _READS_CHANGES.release()

    return await page_events.json_response(read)


class Sent(ApiModel, title="TeamMessage"):
    kind: Literal["message", "interrupt", "command"] = "message"
    """`command`: `/ports`, `/publish PORT` or `/unpublish PORT`."""
    text: _Text = ""


class Said(ApiModel, title="TeamSaid"):
    state: str = ""
    number: int = 0


@operation("POST", "/api/team/sessions/{id}/messages", "team_send", tag="team")
async def team_send(call: ApiCall, body: Sent) -> Said:
    """A message for the next turn, an interrupt of this one, or a command about the session's ports."""
    data = {} if body.kind == "interrupt" else {"text": body.text}
    return Said(number=await as_person(call, lambda who: who.send(call.path["id"], body.kind, data)))


@operation("POST", "/api/team/sessions/{id}/stop", "team_stop", tag="team")
async def team_stop(call: ApiCall) -> Said:
    """Interrupts a session and ends it; gives the state it had."""
    return Said(state=await as_person(call, lambda who: who.stop(call.path["id"])))


class QuestionsQuery(QuestionsWanted, title="TeamQuestionsQuery"):
    session: ShortText = ""
    prefix: ShortText = ""
    """Only the question whose id begins so, in whatever state it is."""
    limit: Annotated[int, Field(ge=1, le=_MAX_ROWS)] = _MAX_ROWS


@operation("GET", "/api/team/questions", "team_questions", tag="team")
async def team_questions(call: ApiCall, query: QuestionsQuery) -> Rows:
    """Open questions, oldest first, or one question."""
    if query.prefix:
        rows = [await as_person(call, lambda who: who.find_question(query.prefix))]
    else:
        wanted = query.wanted()
        rows = await as_person(call, lambda who: who.questions(session=query.session, limit=query.limit, wanted=wanted))
    return Rows(rows=[asdict(row) for row in rows], now=await as_person(call, PersonStore.now))


class TeamAnswer(ApiModel, title="TeamAnswer"):
    answer: dict[str, Any]
    """`{approved, choice?, args?, reason?, stop?}`"""


@operation("POST", "/api/team/questions/{id}/answer", "team_answer", tag="team")
async def team_answer(call: ApiCall, body: TeamAnswer) -> Said:
    """Answers a question. The first answer counts."""
    answered = await as_person(call, lambda who: who.answer(call.path["id"], body.answer))
    return Said(state=answered.state)


class AlikeAnswer(ApiModel, title="TeamAlikeAnswer"):
    approved: bool
    reason: _Text = ""
    """The model reads it."""


@operation("POST", "/api/team/questions/{id}/answer-alike", "team_answer_alike", tag="team")
async def team_answer_alike(call: ApiCall, body: AlikeAnswer) -> Rows:
    """Answers a question and every open one that asks for the same call. Each is judged by itself; `problem` says why
    an answer did not count."""
    id = call.path["id"]
    answer = {"approved": body.approved} | ({"reason": body.reason} if body.reason else {})
    return Rows(rows=[each._asdict() for each in await as_person(call, lambda who: who.answer_alike(id, answer))])


@operation("GET", "/api/team/runners", "team_runners", tag="team")
async def team_runners(call: ApiCall) -> Rows:
    """The runners that were seen lately."""
    return Rows(rows=await as_person(call, PersonStore.runners), now=await as_person(call, PersonStore.now))


# ---- inside


async def _start(call: ApiCall, request: StartRequest, asked: TeamStart | None = None) -> str:
    """`asked`: of a program, whose sessions end with their answer."""
    who, registry = person_store(call), _registry(call)
    label, batch, priority = (asked.label, asked.batch, asked.priority) if asked is not None else ("", "", 0)

    def queue() -> str:
        who.require_in("start", request.input[:100], lambda: registry.program_of(request.directory))
        new = registry.new_session(request, label, "single" if asked is not None else "chat", in_batch=bool(batch))
        if batch and new.mode != "single":
            words = f"worker {new.worker} is a conversation (mode: chat), which never ends by itself"
            raise ApiRefusal(422, f"{words}; a batch needs workers with mode: single.", {"worker": words})
        return who.queue(replace(new, batch=batch, priority=priority))

    return await run_in_thread(queue)


async def _found(call: ApiCall) -> StoredSession:
    id = call.path["id"]
    return await as_person(call, lambda who: who.session(id))


async def _seen_session(call: ApiCall) -> TeamSession:
    """The session of the path as pages see it, for whoever may see it."""
    found = await call.registry.find((await _found(call)).id)
    assert isinstance(found, TeamSession)
    return found


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _page_row(row: StoredSession, answered: Mapping[str, list[str]], names: Mapping[str, str]) -> TeamSessionRow:
    return TeamSessionRow(
        id=row.id,
        title=row.title,
        state="closed" if row.state in ENDED else "live",
        status=row.shown_state,
        finished=row.state == "finished",
        created=_moment(row.created),
        updated=_moment(row.updated),
        worker=row.worker,
        model=row.model,
        directory="",
        input=row.title,
        calls=0,
        person=row.person,
        project=names.get(row.program, ""),
        answered_by=answered.get(row.id, []),
        waits_for=row.shown_wait,
        cost=row.cost,
        error=row.error,
        notices=row.notice.splitlines(),
    )


def _searched(row: StoredSession) -> str:
    return " ".join((row.title, row.worker, row.model, row.person, row.shown_state, row.id)).casefold()


def _inbox_row(row: QuestionRow) -> InboxRow:
    return InboxRow(
        session=row.session,
        request_id=row.id,
        kind="approval" if row.kind == "approval" else "form",
        asks=row.title[:200],
        risk=row.risk,
        since=_moment(row.asked),
    )


def _seen(shared: Operation) -> Operation:
    """An operation of `forge web`, for whoever may see."""
    run = shared.run

    async def checked(**given: Any) -> Any:
        await _found(given["call"])
        return await run(**given)

    return replace(shared, run=checked)


async def _act(call: ApiCall, body: Action) -> Response:
    await _found(call)
    answer: Response = await page_events.act.run(call, body)
    return answer


async def _log_out(call: ApiCall) -> Response:
    answer: Response = await page_sessions.log_out.run(call)
    await run_in_thread(call.request.app.state.login.save)
    return answer


def team_operations() -> tuple[Operation, ...]:
    declared = [value for value in globals().values() if isinstance(value, Operation)]
    seen = [_seen(page_events.list_events), _seen(page_events.get_event)]
    shared = [replace(page_sessions.log_out, run=_log_out), *seen, replace(page_events.act, run=_act)]
    return (*declared, *management_operations(), *shared)


def sign_in_operations(sign_in: SignIn) -> tuple[Operation, ...]:
    """For browsers, on their way to the provider and back."""

    async def begin_sign_in(call: ApiCall) -> Response:
        """Sends the browser to the sign-in provider."""
        return await sign_in.begin(call.request)

    async def complete_sign_in(call: ApiCall) -> Response:
        """The provider sends the browser back to here."""
        return await sign_in.complete(call.request)

    return (
        operation("GET", BEGIN, "begin_sign_in", tag="login", status=302)(begin_sign_in),
        operation("GET", CALLBACK, "complete_sign_in", tag="login", status=302)(complete_sign_in),
    )


def team_app(
    registry: SessionRegistry, *, login: LoginStore, hosts: AllowedHosts, sign_in: SignIn | None = None
) -> RequestGuard:
    assert isinstance(registry, TeamRegistry)
    return make_app(
        registry,
        login=login,
        hosts=hosts,
        operations=team_operations() + (sign_in_operations(sign_in) if sign_in is not None else ()),
        socket=serve_team_socket,
        guard=lambda *given, **named: TeamGuard(registry.store, sign_in, *given, **named),
    )
