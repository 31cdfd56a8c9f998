"""The page and API of a team: a person behind every request, and the sessions of the store instead of this home's.

`TeamLogin` gives a cookie for a person's token; programs send the token itself (`Authorization: Bearer …`). At an
address that stays the same, logins outlive the process (`LoginFile`).
`TeamGuard` finds the person before anything else looks at a request, and puts the store as that person may use it
into its scope. `TeamRegistry` shows the sessions of the store and queues new ones. When a person is removed, their
logins end and their sockets are closed: the store rings, and everybody who is logged in is looked up again.

Threat: a token of a removed person, a page of another site (the guard of every page still holds), and a person who
wants more than their role: a session that is started here gets no settings of its starter, only a directory below the
one that this server offers.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from golem_forge.agent.session_plan import SessionRequest, is_built_in, plan_session
from golem_forge.agent.trust import NotTrusted
from golem_forge.config.program import program_root
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.regex import regex
from golem_forge.core.text import one_line, shorten
from golem_forge.net.server_guard import Message, Receive, Scope, Send, header_values, secret_hash
from golem_forge.storage.home import (
    JSON_FILE_ERRORS,
    ForgeHome,
    open_lock,
    open_private,
    read_bounded,
    wait_for_lock,
    write_private,
)
from golem_forge.team.accounts import SIGNED_IN
from golem_forge.team.database import TeamError, complaints
from golem_forge.team.dispatch import Rings, listen
from golem_forge.team.live import LIVE_CHANNEL
from golem_forge.team.people import NOT_LOOSER, Person, PersonStore, all_people, find_person, token_hash
from golem_forge.team.rows import NewSession, program_id
from golem_forge.team.session_table import no_session
from golem_forge.team.session_workspace import workspace_facts
from golem_forge.team.store import Store
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ApiRefusal
from golem_forge.ui.web.listen import make_directory
from golem_forge.ui.web.sdk import WebSocket
from golem_forge.ui.web.security import COOKIE_SECONDS, GuardRefusal, LoginStore, RequestGuard
from golem_forge.ui.web.session_registry import SessionRegistry, StartRequest
from golem_forge.ui.web.stream.socket import serve_socket
from golem_forge.ui.web.stream.stored_session import PERSON, TeamSession
from golem_forge.ui.web.stream.watched_session import WatchedSession

PAGE_DOOR: Final = "page"
API_DOOR: Final = "api"
_BEARER: Final = "forge.bearer"
_LOOK_AGAIN_S: Final = 0.05
_MAX_FOLLOWED: Final = 32
_MAX_LOGINS: Final = 8
"""Maximum logins of one person."""
_MAX_FILE_BYTES: Final = 1 << 18
_HASHES: Final = regex("[0-9a-f]{128}")
NO_SUCH_SESSION: Final = ApiRefusal(404, "There is no such session; the list of sessions shows all.")
_TOO_MANY_TOKENS: Final = (
    "Too many tokens that are not valid; wait a minute, or ask an admin of the team for a new one."
)
_log = logging.getLogger(__name__)
_NO_PERSON: Final = GuardRefusal(
    401,
    "Log in with your token of this team, or send it as `Authorization: Bearer …`. An admin makes one: "
    "`forge people add NAME`.",
    {"WWW-Authenticate": 'Bearer realm="golem-forge"'},
    {"team": "token"},
)


class LoginFile:
    """The logins of browsers at one port: FORGE_HOME/state/web/PORT-logins.json, held by one process at a time.

    Threat: whoever reads it, or the tokens' hashes in the store with a runner's role, must not be able to log in. So of
    a cookie, which is 256 random bits, only the hash is kept. Whoever writes it could make a login of their own. So it
    is not in the store, directory and file are this account's alone, and a file that another one could have written
    counts as none. A login is worth no more than its token: a removed person has none, whatever stands here.
    """

    def __init__(self, home: ForgeHome, port: int) -> None:
        """Raises OSError, also where another process keeps holding it. Blocks."""
        folder = make_directory(home)
        self._path = folder / f"{port}-logins.json"
        self._lock = open_lock(folder / f".{port}-logins.lock")
        try:
            wait_for_lock(self._lock, f"the file with the logins of port {port}")  # of a process that is about to end
        except BaseException:
            self.close()
            raise

    def read(self) -> list[tuple[str, str, float]]:
        """(hash of the cookie, hash of the token, until when), the oldest first. Raises JSON_FILE_ERRORS."""
        try:
            with open_private(self._path, _MAX_FILE_BYTES, owned=True) as file:
                kept = json.loads(read_bounded(file, _MAX_FILE_BYTES))["logins"]
        except FileNotFoundError:
            return []
        return [(str(each["cookie"]), str(each["token"]), float(each["until"])) for each in kept]

    def write(self, logins: Iterable[tuple[str, str, float]]) -> None:
        """Raises OSError. Threat: a login that ended comes back; where none can be written there is no file at all."""
        rows = [{"cookie": cookie, "token": token, "until": until} for cookie, token, until in logins]
        try:
            write_private(self._path, json.dumps({"logins": rows}, indent=1).encode())
        except OSError:
            self._path.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        os.close(self._lock)


class TeamLogin(LoginStore):
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._file: LoginFile | None = None
        self._file_lock = threading.Lock()
        self._ahead = 0.0
        """Of our clock is the store's, by which a login that is kept ends."""

    def keep(self, home: ForgeHome, port: int, now: float) -> None:
        """Logins of browsers outlive this process from now on, and those of the one before count. `now`: by the store's
        clock. Blocks."""
        try:
            file = LoginFile(home, port)
        except OSError as error:
            _log.warning("people log in again after a restart: %s", error.strerror or error)
            return
        try:
            kept = file.read()
        except JSON_FILE_ERRORS as error:
            _log.warning("people log in again: the logins that were kept cannot be used (%s)", error)
            kept = []
        for cookie, token, until in kept:
            # a token that stands for itself is never kept; and no clock that was set back makes a login longer
            if _HASHES.fullmatch(cookie + token) and cookie != token and 0 < until - now <= COOKIE_SECONDS:
                self._add(cookie, token, until - now)
        self._ahead, self._file = now - self._clock(), file

    def save(self) -> None:
        """Saves the logins after somebody logged in or out, so that they survive a crash; runs in a thread."""
        with self._file_lock:
            if self._file is None:
                return
            logins = ((known, each.token_hash, each.until) for known, each in dict(self._logins).items())
            lasting = [each for each in logins if each[0] != each[1] and not each[1].startswith(SIGNED_IN)]
            now = self._clock()
            try:
                self._file.write((known, token, until + self._ahead) for known, token, until in lasting if until > now)
            except OSError as error:
                _log.warning("people log in again after a restart: %s", error.strerror or error)

    def close(self) -> None:
        """Releases the file for the next process."""
        with self._file_lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()

    def new_code(self) -> str:
        """Returns no code: people log in with their tokens."""
        return ""

    def enter(self, hash: str, seconds: float = COOKIE_SECONDS) -> str:
        """A cookie for the person whose token has this hash, and lasts so long. Threat: somebody who logs in again and
        again would push everybody else out; their own oldest login goes."""
        own = [known for known, login in self._logins.items() if login.token_hash == hash != known]
        for known in own[: max(0, len(own) - _MAX_LOGINS + 1)]:
            self._end(known)
        return self._enter(secrets.token_urlsafe(32), hash, seconds)

    def has(self, cookie_hash: str) -> bool:
        return cookie_hash in self._logins and self._logins[cookie_hash].until > self._clock()

    def is_watched(self, cookie_hash: str) -> bool:
        """Whether a socket is open for this login."""
        return cookie_hash in self._logins and bool(self._logins[cookie_hash].watching)

    def end(self, cookie_hash: str) -> None:
        """Ends a login and closes its sockets."""
        if cookie_hash in self._logins:
            self._end(cookie_hash)

    def refuse_token(self, store: Store, door: str, hash: str, scope: Scope) -> None:
        """Records an invalid token; runs in a thread. Raises ApiRefusal (429) after too many; those of each former
        owner are counted apart, so that a flood of unknown tokens hides nothing.
        """
        whose = store.accounts.whose_was(hash) if hash else ""
        self._count_failure(whose, _TOO_MANY_TOKENS)
        client = scope.get("client")
        store.accounts.refuse_login(whose, door, str(client[0]) if client else "")

    def take_bearer(self, scope: Scope, token: str, seconds: float) -> bool:
        """The token of a program, which is good: its requests share one login, as those of a browser do. True: this is
        the first of them."""
        is_first = not self.knows(token)
        if is_first:
            self._enter(token, secret_hash(token), seconds)
        scope[_BEARER] = token
        return is_first

    def cookie_of(self, scope: Scope) -> str | None:
        return scope.get(_BEARER) or super().cookie_of(scope)

    def proves_itself(self, scope: Scope) -> bool:
        return _BEARER in scope

    def keep_only(self, hashes: set[str]) -> None:
        """Ends the logins of everybody else."""
        for known in [known for known, login in self._logins.items() if login.token_hash not in hashes]:
            self._end(known)


class ConfirmedLogins(Protocol):
    """The logins of people who sign in elsewhere (`sign_in.SignIn`)."""

    paths: frozenset[str]
    """Paths that need no login."""
    shown: str
    """Where they sign in."""

    def is_confirmed(self, cookie: str) -> bool: ...
    async def confirm(self, cookie: str) -> bool: ...


def token_seconds(store: Store, person: Person) -> float:
    """Returns how long the token of this person lasts; runs in a thread."""
    return max(person.expires - store.now(), 0.0) if person.expires else COOKIE_SECONDS


class TeamGuard(RequestGuard):
    def __init__(self, store: Store, sign_in: ConfirmedLogins | None, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.store = store
        self.sign_in = sign_in
        self.not_logged_in = _NO_PERSON
        if sign_in is not None:
            self._public |= sign_in.paths
            self.not_logged_in = replace(_NO_PERSON, fields={**_NO_PERSON.fields, "signIn": sign_in.shown})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope["path"] not in self._public:
            try:
                await self._identify(scope)
            except TeamError as error:
                # Threat: the address of the database is for runners alone.
                complaints.tell("the people of the team cannot be looked up", error)
                said = "The database of the team cannot be reached now. Try again; the log of the page says why."
                await self._refuse(GuardRefusal(503, said), scope, receive, send)
                return
            except ApiRefusal as refused:
                await self._refuse(GuardRefusal(refused.status, refused.problem.problem), scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    async def _identify(self, scope: Scope) -> None:
        """Looks up the person for every request, so that a removed token is worth nothing at once."""
        login = self._login
        assert isinstance(login, TeamLogin)
        given = header_values(scope, b"authorization")
        token = given[0][7:].strip() if len(given) == 1 and given[0][:7].lower() == "bearer " else ""
        cookie = None if token else login.cookie_of(scope)
        hash = token_hash(token) if token else login.token_hash_of(cookie) if cookie else ""
        if not hash and not token:
            return
        person = await run_in_thread(lambda: find_person(self.store, hash)) if hash else None
        if person is None:
            if cookie:
                login.forget(cookie)
            else:
                await run_in_thread(lambda: login.refuse_token(self.store, API_DOOR, hash, scope))
            return
        if token and login.take_bearer(scope, token, await run_in_thread(lambda: token_seconds(self.store, person))):
            await run_in_thread(lambda: self.store.accounts.log_in(person.name, API_DOOR, "token"))
        if not hash.startswith(SIGNED_IN):
            scope[PERSON] = PersonStore(self.store, hash, API_DOOR if token else PAGE_DOOR)
        elif cookie and self.sign_in is not None and await self.sign_in.confirm(cookie):
            is_confirmed = partial(self.sign_in.is_confirmed, cookie)
            scope[PERSON] = PersonStore(self.store, hash, PAGE_DOOR, is_confirmed)
        elif cookie:
            login.forget(cookie)

    async def _refuse(self, refusal: GuardRefusal, scope: Scope, receive: Receive, send: Send) -> None:
        async def none_read() -> Message:
            return {"type": "http.disconnect"}

        await refusal.response()(scope, none_read, send)


class TeamRegistry(SessionRegistry):
    may_start = True

    def __init__(self, store: Store, home: ForgeHome, directory: Path, login: TeamLogin) -> None:
        """`directory`: new sessions start there, or below."""
        super().__init__(home, directory)
        self.store = store
        self.login = login
        self._place = Path(tempfile.mkdtemp(prefix="forge-team-"))
        self._stored: dict[str, TeamSession] = {}
        self._rings: Rings | None = None
        self._channels: set[str] = set()
        """Where runners of other machines send the text of sessions that somebody looks at."""
        self._looking: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._people_known: dict[str, Person] = {}
        self._people_lock = asyncio.Lock()
        self._shown: dict[object, tuple[str, str]] = {}
        """Of each open socket: the hash of its person's token, and the project that it shows."""

    # ---- who is logged in

    def watch_people(self) -> None:
        """Starts to log out removed people at once."""
        loop = asyncio.get_running_loop()

        def rung(session_id: str) -> None:
            if not session_id:  # else it is not about people
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._look_soon)

        def heard(channel: str, what: str) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._take_live, channel.removeprefix(LIVE_CHANNEL), what)

        self._rings = listen(self.store, rung, self._channels, heard)
        self._look_soon()

    def _take_live(self, session_id: str, what: str) -> None:
        if (known := self._stored.get(session_id)) is not None:
            known.live.heard(what)

    def _look_soon(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look_now)

    def _look_now(self) -> None:
        self._looking = None
        task = asyncio.get_running_loop().create_task(self._look_at_people())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look_at_people(self) -> None:
        """One look after the other: each compares with what the one before it saw."""
        async with self._people_lock:
            await self._compare_people()

    async def _compare_people(self) -> None:
        with contextlib.suppress(TeamError):  # nobody can do anything meanwhile: every request looks too
            shown = list(self._shown.values())  # before the look: what is opened later looks for itself
            people = await run_in_thread(lambda: all_people(self.store))
            known, self._people_known = self._people_known, people
            lost = {token for token, now in people.items() if token in known and _lost_some(known[token], now)}
            lost |= {token for token, program in shown if token in people and not people[token].may("see", program)}
            self.login.keep_only(people.keys() - lost)

    @contextlib.contextmanager
    def showing(self, scope: Scope, program: str) -> Iterator[None]:
        """Inside, a socket shows something of this project: it is closed when its person may not see it any more."""
        mark = object()
        self._shown[mark] = (self.login.token_hash_of(self.login.cookie_of(scope) or ""), program)
        try:
            yield
        finally:
            del self._shown[mark]

    # ---- sessions

    async def find(self, session_id: str) -> WatchedSession:
        known = self._stored.pop(session_id, None)
        if known is None:
            await run_in_thread(lambda: self._check_stored(session_id))
            known = TeamSession(self.store, self._place, session_id, self.home.path / "state", self._channels)
        await known.open()
        self._stored[session_id] = known
        while len(self._stored) > _MAX_FOLLOWED:
            await self._drop(next(iter(self._stored)))
        return known

    def _check_stored(self, session_id: str) -> None:
        try:
            found = self.store.find(session_id).id == session_id
        except TeamError:
            found = False
        if not found:
            raise NO_SUCH_SESSION

    async def _drop(self, session_id: str) -> None:
        known = self._stored.pop(session_id)
        await known.close()
        known.remove()

    def new_session(
        self, request: StartRequest, label: str = "", mode: str = "chat", *, in_batch: bool = False
    ) -> NewSession:
        """Builds a session, in a thread. `mode`: of a worker that names none; in a batch the built-in one ends with its
        answer too. Raises what a start would refuse, and ApiRefusal for what a person of a team may not choose.
        """
        if not request.input.strip():
            raise ApiRefusal(422, "The first message is missing.", {"input": "say what is to be done"})
        if request.resume:
            raise ApiRefusal(409, "A session of the store goes on by itself; send it a message.")
        if request.approval not in NOT_LOOSER:
            words = f"{one_line(request.approval)[:40]} cannot be chosen by a person of a team"
            raise ApiRefusal(422, f"{words}: use interactive, strict or auto_deny.", {"approval": words})
        directory = self._directory_for(request.directory)
        program = self.program_of(request.directory)
        plan = plan_session(directory, SessionRequest(home=self.home, answers=True), request.worker or None)
        if plan.waits_for_trust:
            raise NotTrusted(plan.program.root)
        host = socket.gethostname()
        facts: dict[str, Any] = {
            "directory": str(directory),
            "worker": request.worker,
            "model": request.model,
            "approval": request.approval,
            "overrides": [],
            "host": host,
        }
        if (cloned := workspace_facts(plan)) is not None:
            facts["workspace"] = cloned
        return NewSession(
            facts=facts,
            input=request.input,
            worker=plan.worker.name,
            mode="single" if in_batch and is_built_in(plan.worker) else plan.worker.mode or mode,
            title=shorten(one_line(request.input), 200),
            program=program,
            project=plan.program.root.name,
            label=label or f"host:{host}",
        )

    def program_of(self, wanted: str) -> str:
        """Returns the project of a session in this directory, in a thread. It reads no file there, so that a person who
        may not start there learns nothing. Raises ApiRefusal.
        """
        return program_id(program_root(self._directory_for(wanted)))

    def _directory_for(self, wanted: str) -> Path:
        """Threat: `..`, a link or an absolute path that leads out of what this server offers."""
        base = Path(os.path.realpath(self.directory))
        found = Path(os.path.realpath(base / wanted)) if "\0" not in wanted else Path("/")
        if (wanted and Path(wanted).is_absolute()) or not found.is_relative_to(base) or not found.is_dir():
            problem = "not a directory below the one that this server offers"
            raise ApiRefusal(422, f"The directory cannot be used: {problem}.", {"directory": problem})
        return found

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        if self._rings is not None:
            await run_in_thread(self._rings.close)
        for session_id in list(self._stored):
            await self._drop(session_id)
        await super().close()
        await run_in_thread(lambda: shutil.rmtree(self._place, ignore_errors=True))


def _lost_some(before: Person, now: Person) -> bool:
    """Whether somebody sees less than before: a page that shows it is closed, and they log in again."""
    return any(before.may("see", each) and not now.may("see", each) for each in (None, *before.projects))


async def serve_team_socket(websocket: WebSocket) -> None:
    who: PersonStore = websocket.scope[PERSON]
    try:
        row = await run_in_thread(lambda: who.session(websocket.path_params["id"], "see", "a session's stream"))
        with websocket.app.state.registry.showing(websocket.scope, row.program):
            person = await run_in_thread(lambda: who.person)  # once more: a role may have been taken back meanwhile
            if not person.may("see", row.program):
                raise TeamError(no_session(row.id), "SESSION_NOT_FOUND")
            await serve_socket(websocket, read_only=not person.may("send", row.program))
    except TeamError as error:
        if error.code == "SESSION_NOT_FOUND":  # as for one that is not there at all
            await serve_socket(websocket, read_only=True, find=_none_found)
        else:
            await websocket.close(1008)


async def _none_found(session_id: str) -> WatchedSession:
    raise NO_SUCH_SESSION
