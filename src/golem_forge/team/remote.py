"""RemoteStore: the store of a team as a person reaches it, through `forge web --team`.

It has the methods of `Store` that a person needs. Each is one request with the person's token; the server checks the
role and acts under the person's name. People of a team never get the address of the database.

Raises StoreUnavailable where the server cannot be reached, and TeamError with the server's own sentence where it
refuses. Threat: the server lies. What it answers is bounded in size and in time, every value has the type that it
should have, ids are plain words; no redirect is followed, so that the token goes nowhere else.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import math
import socket
import ssl
import string
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

from golem_forge.core.regex import regex
from golem_forge.core.text import one_line
from golem_forge.team.audit import AuditHead, AuditRecord, record_from
from golem_forge.team.changes import SessionChanges, changes_from_json
from golem_forge.team.database import StoreUnavailable, TeamError
from golem_forge.team.people import NOT_KNOWN, TOKEN_LASTS_S, AnsweredOne, Person, Role
from golem_forge.team.projects import Project
from golem_forge.team.question_table import no_question
from golem_forge.team.rows import ALL_QUESTIONS, NewSession, QuestionFilter, QuestionRow, StoredSession
from golem_forge.team.schedules import NewSchedule, Schedule
from golem_forge.team.session_table import no_session, the_one
from golem_forge.team.workspace import WorkspaceError

_TIMEOUT_S: Final = 30.0
_WHOLE_S: Final = 120.0
"""Timeout of one whole request, however slowly its answer arrives."""
_MAX_ANSWER: Final = 64 << 20
_MAX_NUMBER: Final = 1 << 53
_MOST_ROWS: Final = 10_000
_MOST_QUESTIONS: Final = 1000
"""Maximum questions in one answer of the server."""
_MAX_ID: Final = 64
_ID_CHARACTERS: Final = string.digits + string.ascii_letters + "_-"
_OTHER_NAME: Final = (62, 64)
"""OpenSSL's error codes for a certificate of another host or address."""
_ID: Final = regex(r"[A-Za-z0-9_-]{1,64}")
_TOKEN: Final = regex(r"[\x21-\x7e]{1,200}")
_TYPES: Final[Mapping[str, Any]] = {
    "str": str, "int": int, "float": (int, float), "bool": (bool, int), "Mapping[str, Any]": dict,
    "Mapping[str, str]": dict,
}  # fmt: skip
_IDS: Final = frozenset({"id", "session", "state"})
_OTHER_VERSION: Final = (
    "The team's server is another version of Forge, or no Forge at all. Upgrade the older one, or check store.url."
)
_CODES: Final = {401: "NOT_A_PERSON", 403: "ROLE", 404: "SESSION_NOT_FOUND", 409: "STORE_REFUSED"}


class RemoteStore:
    database: Final = None
    """None: a person of a team has no database."""

    def __init__(self, address: str, token: str) -> None:
        """`address`: https://…, or http:// on this machine. Raises TeamError."""
        parts = urlsplit(address)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        try:
            self._port = parts.port or (443 if self._secure else 80)
        except ValueError:
            raise TeamError("store.url: its port is not a number below 65536") from None
        if not self._host:
            raise TeamError("store.url: the address names no host")
        if _TOKEN.fullmatch(token) is None:
            raise TeamError(NOT_KNOWN, "NOT_A_PERSON")
        self._path = parts.path.rstrip("/")
        self._token = token
        self.shown = f"{parts.scheme}://{self._host}" + (f":{self._port}" if parts.port else "")

    @property
    def person(self) -> Person:
        found = self._get("/api/me")
        name, role, projects = _text(found, "person"), _text(found, "allProjects"), found.get("projects")
        if not isinstance(projects, dict) or not {role, *projects.values()} <= set(Role):
            raise TeamError(_OTHER_VERSION)
        return Person(name=name, role=Role(role), projects={id: Role(each) for id, each in projects.items()})

    # ---- sessions

    def now(self) -> float:
        return float(_number(self._get("/api/team/sessions", limit=1), "now"))

    def sessions(
        self, *, states: Iterable[str] = (), prefix: str = "", limit: int = 1000, batch: str = "", project: str = ""
    ) -> list[StoredSession]:
        """The newest first. More than one answer takes are asked for by one more character of their ids at a time."""
        states, most = tuple(states), min(limit, _MOST_ROWS)
        only = {"project": project} if project else {}  # a server of an earlier version knows no such filter
        wanted = {"states": ",".join(states), "prefix": prefix, "batch": batch, "limit": most, **only}
        rows = [_row(StoredSession, each) for each in self._rows("/api/team/sessions", **wanted)]
        found = {row.id: row for row in rows}
        if len(found) < most or limit == most:
            return list(found.values())
        if len(prefix) >= _MAX_ID or not all(id.startswith(prefix) for id in found):
            raise TeamError(_OTHER_VERSION)  # whoever asks for longer and longer ids would never come to an end
        for character in _ID_CHARACTERS:
            longer = prefix + character
            more = self.sessions(states=states, prefix=longer, batch=batch, limit=limit, project=project)
            found |= {row.id: row for row in more}
        return sorted(found.values(), key=lambda row: (-row.created, row.id))[:limit]

    def find(self, reference: str) -> StoredSession:
        found = self.sessions(prefix=reference, limit=2) if reference else []
        if (row := the_one(reference, found)) is None:
            raise TeamError(no_session(reference), "SESSION_NOT_FOUND")
        return row

    def queue(self, new: NewSession, session_id: str = "") -> str:
        """Starts it where the team's server says: what stands in `facts` about this machine does not go there."""
        return _id(self._post("/api/team/sessions", {**_start(new), "batch": new.batch}), "id")

    def stop(self, session_id: str) -> str:
        return _text(self._post(f"/api/team/sessions/{_part(session_id)}/stop", {}), "state")

    def send(self, session_id: str, kind: str, data: Mapping[str, Any]) -> int:
        body = {"kind": kind, "text": str(data.get("text", ""))}
        return int(_number(self._post(f"/api/team/sessions/{_part(session_id)}/messages", body), "number"))

    def lines(
        self, session_id: str, after: int = 0, *, limit: int = 5000, private: bool = False
    ) -> list[tuple[int, bytes]]:
        wanted = {"after": after, "limit": min(limit, 5000), "private": str(private).lower()}
        found = self._get(f"/api/team/sessions/{_part(session_id)}/lines", **wanted).get("lines")
        try:
            lines = [(int(number), base64.b64decode(line)) for number, line in found or ()]
        except (TypeError, ValueError):
            raise TeamError(_OTHER_VERSION) from None
        numbers = [after, *(number for number, _ in lines)]
        if any(number <= before for before, number in pairwise(numbers)):
            raise TeamError(_OTHER_VERSION)  # whoever reads on after the last number would never come to an end
        return lines

    def facts(self, session_id: str) -> Mapping[str, Any]:
        return next(iter(self._rows(f"/api/team/sessions/{_part(session_id)}/facts")), {})

    def changes(self, session_id: str, *, contents: bool) -> SessionChanges:
        """Returns what a session changed in its git workspace, as the server reads it. Raises WorkspaceError too."""
        wanted = {"contents": str(contents).lower()}
        try:
            told = self._get(f"/api/team/sessions/{_part(session_id)}/changes", **wanted)
        except TeamError as error:
            if error.code != "STORE_REFUSED":
                raise
            raise WorkspaceError(error.message) from None
        return changes_from_json(told)

    def runners(self) -> list[dict[str, Any]]:
        return _checked(self._rows("/api/team/runners"), id=str, host=str, pid=int, slots=int, labels=list)

    def notify(self, notices: Sequence[tuple[str, str]]) -> None:
        """Does nothing: a client that asks for `live` text is known to watch."""

    def live(self, session_id: str, after: int) -> tuple[list[dict[str, Any]], int]:
        """Text that is not recorded, as it came since that many pieces, and how many there are now."""
        found = self._get(f"/api/team/sessions/{_part(session_id)}/live", after=after)
        return [each for each in found["frames"] if isinstance(each, dict)], int(found["count"])

    # ---- schedules

    def schedules(self) -> list[Schedule]:
        return [_row(Schedule, each) for each in self._rows("/api/team/schedules")]

    def add_schedule(self, new: NewSchedule) -> str:
        when = {"cron": new.cron, "timezone": new.timezone, "name": new.name}
        return _text(self._post("/api/team/schedules", {**when, **_start(new.session)}), "name")

    def remove_schedule(self, name: str) -> None:
        self._ask("DELETE", f"/api/team/schedules/{_part(name)}")

    # ---- questions

    def questions(
        self, *, session: str = "", state: str = "open", limit: int = 1000, wanted: QuestionFilter = ALL_QUESTIONS
    ) -> list[QuestionRow]:
        asked = {
            "mine": str(wanted.mine).lower(), "project": wanted.project, "worker": wanted.worker, "risk": wanted.risk,
            "tool": wanted.tool, "olderS": wanted.older_s, "words": wanted.words, "same": wanted.same,
            "after": wanted.after,
        }  # fmt: skip
        rows = self._rows("/api/team/questions", session=session, limit=min(limit, _MOST_QUESTIONS), **asked)
        return [_row(QuestionRow, each) for each in rows]

    def find_question(self, reference: str) -> QuestionRow:
        rows = self._rows("/api/team/questions", prefix=reference) if reference else []
        if not rows:
            raise no_question(reference)
        return cast(QuestionRow, _row(QuestionRow, rows[0]))

    def question(self, question_id: str) -> QuestionRow | None:
        try:
            return self.find_question(question_id)
        except TeamError as error:
            if error.code in ("SESSION_NOT_FOUND", "QUESTION_NOT_FOUND"):
                return None
            raise

    def answer(self, question_id: str, answer: Mapping[str, Any]) -> QuestionRow:
        self._post(f"/api/team/questions/{_part(question_id)}/answer", {"answer": dict(answer)})
        return self.find_question(question_id)

    def answer_alike(self, question_id: str, answer: Mapping[str, Any]) -> list[AnsweredOne]:
        said = self._post(f"/api/team/questions/{_part(question_id)}/answer-alike", answer).get("rows")
        if not isinstance(said, list) or not all(isinstance(row, dict) for row in said):
            raise TeamError(_OTHER_VERSION)
        rows = _checked(said, question=str, session=str, state=str, problem=str)
        return [AnsweredOne(**{name: one_line(row[name])[:1000] for name in AnsweredOne._fields}) for row in rows]

    def answer_form(self, session_id: str, answer: Mapping[str, Any]) -> None:
        """A form with a secret field: the server gives it to the runner, and it never becomes a row."""
        body = {"type": "formResponse", "data": dict(answer)}
        self._ask("POST", f"/api/sessions/{_part(session_id)}/actions", body)

    # ---- people and rules

    def people(self) -> list[dict[str, Any]]:
        numbers: dict[str, Any] = {"created": (int, float), "expires": (int, float)}
        return _checked(self._rows("/api/team/people"), name=str, role=str, issuer=str, **numbers)

    def new_person(self, name: str, role: Role, expires_in: float = TOKEN_LASTS_S) -> str:
        body = {"name": name, "role": role.value, "expiresIn": expires_in}
        return _id(self._post("/api/team/people", body), "token")

    def rotate_token(self, name: str, expires_in: float = TOKEN_LASTS_S) -> str:
        return _id(self._post(f"/api/team/people/{_part(name)}/token", {"expiresIn": expires_in}), "token")

    def restore_person(self, name: str) -> None:
        self._ask("POST", f"/api/team/people/{_part(name)}/restore", {})

    def remove_person(self, name: str) -> None:
        self._ask("DELETE", f"/api/team/people/{_part(name)}")

    def refusals(self, limit: int = 200) -> list[dict[str, Any]]:
        rows = self._rows("/api/team/refusals")
        return _checked(rows, at=(int, float), person=str, door=str, action=str, what=str)

    def audit(self, *, after: int = 0, since: float = 0.0, program: str = "") -> list[AuditRecord]:
        rows = self._rows("/api/team/audit", after=after, since=since, program=program)
        try:
            found = [record_from(each) for each in rows]
        except ValueError:
            raise TeamError(_OTHER_VERSION) from None
        if any(later.n <= before.n for before, later in pairwise(found)) or (found and found[0].n <= after):
            raise TeamError(_OTHER_VERSION)  # whoever reads on after the last number would never come to an end
        return found

    def audit_begin(self) -> AuditHead:
        begin = self._get("/api/team/audit", after=_MAX_NUMBER - 1).get("begin")
        if not isinstance(begin, list) or [type(each) for each in begin] != [int, str]:
            raise TeamError(_OTHER_VERSION)
        return AuditHead(n=begin[0], hash=begin[1])

    def rules(self) -> list[dict[str, Any]]:
        return _checked(self._rows("/api/team/rules"), id=str, rule=dict, person=str)

    def remove_rule(self, rule_id: str) -> None:
        self._ask("DELETE", f"/api/team/rules/{_part(rule_id)}")

    # ---- projects

    def projects(self) -> list[Project]:
        return [_row(Project, each) for each in self._rows("/api/team/projects")]

    def groups(self) -> dict[str, list[str]]:
        rows = _checked(self._rows("/api/team/groups"), name=str, people=list)
        return {each["name"]: [str(person) for person in each["people"]] for each in rows}

    def grant(self, project: str, subject: str, role: Role) -> None:
        body = {"project": project, "subject": subject, "role": role.value}
        self._ask("POST", "/api/team/projects/roles", body)

    def quotas(self) -> list[dict[str, Any]]:
        numbers = dict.fromkeys(("cost", "sessions", "used_cost", "used_sessions"), (int, float))
        return _checked(self._rows("/api/team/quotas"), project=str, person=str, **numbers)

    def set_quota(self, project: str, person: str, cost: float, sessions: int) -> None:
        body = {"project": project, "person": person, "cost": cost, "sessions": sessions}
        self._ask("POST", "/api/team/quotas", body)

    def secrets(self) -> list[dict[str, Any]]:
        return _checked(self._rows("/api/team/secrets"), project=str, name=str, person=str, created=(int, float))

    def secrets_key(self, project: str) -> tuple[str, str]:
        said = self._get(f"/api/team/projects/{_part(project)}/secrets-key")
        return _text(said, "key"), _text(said, "project")

    def put_secret(self, project: str, name: str, sealed: str) -> None:
        body = {"project": project, "name": name, "sealed": sealed}
        self._ask("POST", "/api/team/secrets", body)

    def remove_secret(self, project: str, name: str) -> None:
        self._ask("DELETE", f"/api/team/projects/{_part(project)}/secrets/{_part(name)}")

    def rename_project(self, name: str, new: str) -> None:
        self._ask("POST", f"/api/team/projects/{_part(name)}/name", {"name": new})

    def join(self, group: str, person: str) -> None:
        self._change_group(group, person, True)

    def leave(self, group: str, person: str) -> None:
        self._change_group(group, person, False)

    def _change_group(self, group: str, person: str, member: bool) -> None:
        body = {"group": group, "person": person, "member": member}
        self._ask("POST", "/api/team/groups", body)

    def close(self) -> None:
        """Does nothing: every request has its own connection."""

    # ---- requests

    def _get(self, path: str, **query: Any) -> dict[str, Any]:
        words = urlencode({name: value for name, value in query.items() if value not in ("", None)})
        return _answered(self._ask("GET", f"{path}?{words}" if words else path))

    def _rows(self, path: str, **query: Any) -> list[dict[str, Any]]:
        rows = self._get(path, **query).get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise TeamError(_OTHER_VERSION)
        return rows

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return _answered(self._ask("POST", path, body))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        sent = json.dumps(dict(body)).encode() if body is not None else None
        if sent is not None:
            headers["Content-Type"] = "application/json"
        connection = self._connect()
        wires: list[socket.socket] = []
        too_slow = threading.Timer(_WHOLE_S, _hang_up, (connection, wires))
        too_slow.daemon = True
        too_slow.start()
        try:
            connection.connect()
            wires.append(connection.sock)  # the connection forgets it when the server says that it will close it
            connection.request(method, self._path + path, sent, headers)
            answer = connection.getresponse()
            data = answer.read(_MAX_ANSWER + 1)
            if answer.length and len(data) <= _MAX_ANSWER:
                raise http.client.IncompleteRead(b"", answer.length)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(f"{self.shown} cannot be reached now{_why(error)}.") from None
        finally:
            too_slow.cancel()
            connection.close()
        try:
            said = json.loads(data) if data and len(data) <= _MAX_ANSWER else None
        except (ValueError, RecursionError):
            said = None
        if answer.status in (202, 204) and not data:
            return None
        if answer.status in (200, 201, 202) and isinstance(said, dict):
            return said
        raise self._refused(answer.status, said)

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=_TIMEOUT_S, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)

    def _refused(self, status: int, said: Any) -> TeamError:
        problem = said.get("problem") if isinstance(said, dict) else None
        if not problem and status in (502, 503, 504):
            return StoreUnavailable(f"{self.shown}: its proxy cannot reach `forge web --team`. Is it running there?")
        if not isinstance(problem, str) or not problem:
            return TeamError(f"{self.shown} gave no answer of a team's page (status {status}). Check store.url.")
        if status == 422 and "does not fit" in problem and isinstance(fields := said.get("fields"), dict):
            problem = f"{problem} {'; '.join(f'{name}: {fields[name]}' for name in list(fields)[:5])}"
        words = NOT_KNOWN if status == 401 else one_line(problem)[:1000]
        if status == 503:
            return StoreUnavailable(words)
        code = "FOUR_EYES" if "four_eyes" in words else _CODES.get(status, "STORE_REFUSED")
        return TeamError(words, code)


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAME:
            return ": its certificate is for another host. Write the host in store.url as it stands there"
        return ": its certificate is not trusted here. Set SSL_CERT_FILE to the file of a private CA's certificate"
    if isinstance(error, ssl.SSLError):
        return ": there is no TLS there that this machine understands. Check host and port in store.url"
    return f" ({one_line(getattr(error, 'strerror', '') or type(error).__name__)[:100]})"


def _start(new: NewSession) -> dict[str, Any]:
    asked = {name: str(new.facts.get(name) or "") for name in ("worker", "model", "approval", "directory")}
    return {"input": new.input, "label": new.label, "priority": new.priority, **asked}


def _part(text: str) -> str:
    return quote(text, safe="")


def _hang_up(connection: http.client.HTTPConnection, wires: list[socket.socket]) -> None:
    for wire in wires or [connection.sock]:
        with contextlib.suppress(OSError, TypeError):
            socket.socket.shutdown(wire, socket.SHUT_RDWR)  # not the library's: whoever reads from it finds its end


def _answered(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise TeamError(_OTHER_VERSION)
    return said


def _text(said: Mapping[str, Any], name: str) -> str:
    if not isinstance(found := said.get(name), str):
        raise TeamError(_OTHER_VERSION)
    return found


def _id(said: Mapping[str, Any], name: str) -> str:
    if _ID.fullmatch(found := _text(said, name)) is None:
        raise TeamError(_OTHER_VERSION)
    return found


def _number(said: Mapping[str, Any], name: str) -> int | float:
    found = said.get(name)
    if not isinstance(found, (int, float)) or not _is_number(found):
        raise TeamError(_OTHER_VERSION)
    return found


def _is_number(value: int | float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= _MAX_NUMBER


def _checked(rows: list[dict[str, Any]], **types: Any) -> list[dict[str, Any]]:
    """Rows of which these members are used, each of its type."""
    for row in rows:
        for name, type in types.items():
            value = row.get(name)
            if not isinstance(value, type) or (isinstance(value, (int, float)) and not _is_number(value)):
                raise TeamError(_OTHER_VERSION)
    return rows


def _row(kind: Any, given: Mapping[str, Any]) -> Any:
    """Fields that this version does not know are left out; a missing one is an answer of another version."""
    known = {name: value for name, value in given.items() if name in kind.__lazy_fields__}
    types = {name: _TYPES.get(kind.__annotations__.get(name, ""), object) for name in kind.__lazy_fields__}
    _checked([known], **types)
    for name in _IDS & known.keys():
        _id(known, name)
    return kind(**known)
