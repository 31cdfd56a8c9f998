"""EditorAgent: what a client of the protocol may ask for, method by method; the sessions that it has open.

Params are checked by the SDK's schema, imported here and nowhere else. A refusal says where and what, and never repeats
what was sent: an MCP server's environment is among it. `session/new` and `session/load` start a session of the program
around the editor's directory, as it is trusted now. Nothing that the editor names is started or trusted by it: its MCP
servers wait for `forge mcp approve`, and the first message says so. Keys are typed in a terminal, never sent here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from acp import schema
from acp.meta import PROTOCOL_VERSION
from pydantic import BaseModel, ValidationError

from golem_forge._version import __version__
from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.recorded_sessions import delete_session, session_title, session_titles
from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import NotTrusted, trust_store
from golem_forge.config.program import program_root
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.ids import is_id
from golem_forge.core.lazy_dataclass import dataclass, replace
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars, one_line
from golem_forge.events.index import SessionIndex, find_session
from golem_forge.events.journal_files import SessionNotFound
from golem_forge.net.stdio import StdioDescriptors
from golem_forge.sandbox.zones import is_zone_name
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.acp.questions import EditorFacts, SessionLink
from golem_forge.ui.acp.session import EditorSession
from golem_forge.ui.acp.transport import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    FrameConnection,
    Json,
    Reply,
    RpcError,
)
from golem_forge.ui.acp.updates import DRAFT_UPDATES

MAX_SESSIONS: Final = 16
_PAGE: Final = 100
_MOST_LISTED: Final = 10_000
_MOST_ERRORS: Final = 10
_MOST_SERVERS: Final = 50
_MOST_DIRECTORIES: Final = 16
_SETUP: Final = "setup"
_SETUP_IN_TERMINAL: Final = "setup-in-terminal"
_ZONE_NAME: Final = regex(r"[^a-z0-9-]+")
_NAME: Final = regex(r"[^A-Za-z0-9._-]+")
_SAYS_INPUT: Final = frozenset({"union_tag_invalid", "value_error", "assertion_error", "url_parsing", "url_scheme"})
"""Types of validation errors whose message repeats the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Command-line options that hold for every session."""

    home: ForgeHome
    worker: str | None = None
    model: str | None = None
    approval: str | None = None
    overrides: Sequence[str] = ()


class EditorAgent:
    def __init__(self, options: AgentOptions, pipes: StdioDescriptors) -> None:
        self._options = options
        self._connection = FrameConnection(self, pipes)
        self._client: EditorFacts | None = None
        self._sessions: dict[str, EditorSession] = {}
        self._opening = 0
        self._logged_out = False

    async def run(self) -> None:
        """Serves until the client has gone, then ends every session."""
        try:
            await self._connection.run()
        finally:
            await self._close_all()
            await self._connection.aclose()
            await self._close_all()  # a session that was being opened

    def hang_up(self) -> None:
        self._connection.hang_up()

    # ---- frames

    async def request(self, method: str, params: Json) -> Reply:
        if method not in _REQUESTS:
            raise RpcError(METHOD_NOT_FOUND, f"there is no method {one_line(method)[:80]!r}")
        if self._client is None and method != "initialize":
            raise RpcError(INVALID_REQUEST, "the first request is initialize")
        model, handle = _REQUESTS[method]
        reply = await handle(self, checked(model, params))
        if method == "initialize" and self._client is not None:
            self._client = replace(self._client, extras=_draft_updates(params))
        return reply

    async def notification(self, method: str, params: Json) -> None:
        if method == "session/cancel":
            asked = checked(schema.CancelNotification, params)
            if (session := self._sessions.get(asked.session_id)) is not None:
                session.cancel()

    # ---- methods

    async def _initialize(self, asked: schema.InitializeRequest) -> Reply:
        if self._sessions:
            raise RpcError(INVALID_REQUEST, "this connection is initialized, and has open sessions")
        capabilities = asked.client_capabilities
        able = capabilities.elicitation if capabilities else None
        meta = (capabilities.field_meta if capabilities else None) or {}
        info = asked.client_info
        self._client = EditorFacts(
            name=_NAME.sub("-", info.name).strip("-")[:40] or "client" if info is not None else "client",
            forms=able is not None and able.form is not None,
            urls=able is not None and able.url is not None,
            terminals=meta.get("terminal_output") is True,
        )
        return Reply(
            {
                "protocolVersion": PROTOCOL_VERSION,
                "agentInfo": {"name": "golem-forge", "title": "Golem Forge", "version": __version__},
                "agentCapabilities": {
                    "loadSession": True,
                    "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                    "mcpCapabilities": {"http": True, "sse": False},
                    "sessionCapabilities": {
                        "list": {},
                        "resume": {},
                        "close": {},
                        "delete": {},
                        "additionalDirectories": {},
                    },
                    "auth": {"logout": {}},
                },
                "authMethods": _auth_methods(
                    terminal=bool(capabilities and capabilities.auth and capabilities.auth.terminal)
                ),
            }
        )

    async def _authenticate(self, asked: schema.AuthenticateRequest) -> Reply:
        """The key is typed in a terminal, never over this connection. Here it is only said that it was done; whether a
        model can answer shows when a session starts."""
        if asked.method_id not in (_SETUP, _SETUP_IN_TERMINAL):
            raise RpcError(INVALID_PARAMS, f"methodId: there are {_SETUP} and {_SETUP_IN_TERMINAL}")
        self._logged_out = False
        return Reply({})

    async def _logout(self, asked: schema.LogoutRequest) -> Reply:
        """Ends the sessions, and no new one starts before `authenticate`. Threat: a client that says this by itself
        would delete keys that the person has nowhere else, so stored keys stay: `forge models forget` removes one."""
        self._logged_out = True
        await self._close_all()
        return Reply({})

    async def _new_session(self, asked: schema.NewSessionRequest) -> Reply:
        session = await self._open(_directory(asked), _more_directories(asked))
        return await self._opened(session, {"sessionId": session.id}, asked)

    async def _load_session(self, asked: schema.LoadSessionRequest) -> Reply:
        session = await self._reopen(asked)
        await session.replay()
        return await self._opened(session, {}, asked)

    async def _resume_session(self, asked: schema.ResumeSessionRequest) -> Reply:
        return await self._opened(await self._reopen(asked), {}, asked)

    async def _list_sessions(self, asked: schema.ListSessionsRequest) -> Reply:
        try:
            first = int(asked.cursor or 0)
        except ValueError:
            first = -1
        if not 0 <= first <= _MOST_LISTED:
            raise RpcError(INVALID_PARAMS, "this cursor was not given out")
        root = _listed_root(asked.cwd) if asked.cwd else ""
        home = self._options.home.path

        def read() -> list[Json]:
            titles = session_titles(home)
            found = SessionIndex(home).conversations(root=root, limit=first + _PAGE + 1)[first:]
            return [
                {
                    "sessionId": each.id,
                    "cwd": each.root,
                    "title": one_line(session_title(each, titles)),
                    "updatedAt": each.updated,
                }
                for each in found
            ]

        listed = await run_in_thread(read)
        more = {"nextCursor": str(first + _PAGE)} if len(listed) > _PAGE else {}
        return Reply({"sessions": listed[:_PAGE], **more})

    async def _close_session(self, asked: schema.CloseSessionRequest) -> Reply:
        session = self._find(asked.session_id)
        await self._close(session)
        return Reply({})

    async def _delete_session(self, asked: schema.DeleteSessionRequest) -> Reply:
        """One that is open here is ended first. One that is gone already is no error: the client wanted it gone."""
        session_id, home = asked.session_id, self._options.home.path
        if (session := self._sessions.get(session_id)) is not None:
            await self._close(session)
        if not is_id(session_id):
            raise RpcError(NOT_FOUND, "there is no such session")
        with contextlib.suppress(SessionNotFound):
            await run_in_thread(lambda: delete_session(home, session_id))
        return Reply({})

    async def _prompt(self, asked: schema.PromptRequest) -> Reply:
        session = self._find(asked.session_id)
        answer = await session.prompt(asked.prompt)
        if session.has_left:
            await self._close(session)
        return Reply(answer)

    async def _set_mode(self, asked: schema.SetSessionModeRequest) -> Reply:
        self._find(asked.session_id).set_mode(asked.mode_id)
        return Reply({})

    async def _set_option(self, asked: schema.SetSessionConfigOptionSelectRequest) -> Reply:
        session = self._find(asked.session_id)
        session.set_option(asked.config_id, asked.value)
        return Reply({"configOptions": session.config_options()})

    # ---- sessions

    def _find(self, session_id: str) -> EditorSession:
        if (session := self._sessions.get(session_id)) is None:
            raise RpcError(NOT_FOUND, "no such session is open here; session/load opens an earlier one")
        return session

    async def _close(self, session: EditorSession) -> None:
        session_id = session.id
        await session.aclose()
        if self._sessions.get(session_id) is session:
            del self._sessions[session_id]

    async def _close_all(self) -> None:
        await asyncio.gather(*map(self._close, list(self._sessions.values())), return_exceptions=True)

    async def _reopen(self, asked: schema.LoadSessionRequest | schema.ResumeSessionRequest) -> EditorSession:
        directory, session_id = _directory(asked), asked.session_id
        session = self._sessions.get(session_id)
        if session is not None and session.is_closing:
            await self._close(session)  # to its end; then it is opened again
            session = self._sessions.get(session_id)
        if session is not None:
            _check_root(str(session.root), directory)
            return session
        if not is_id(session_id):
            raise RpcError(NOT_FOUND, "there is no such session")
        try:
            recorded = await run_in_thread(lambda: find_session(self._options.home.path, session_id))
        except ForgeError:
            raise RpcError(NOT_FOUND, "there is no such session") from None
        if recorded.root:
            _check_root(recorded.root, directory)
        return await self._open(directory, _more_directories(asked), session_id)

    async def _open(self, directory: Path, more: Sequence[Path], resume: str = "") -> EditorSession:
        """Refuses as a start at the terminal would. `more`: the other roots of the editor's workspace, which are in
        zones, or become zones where nobody wrote which zones there are."""
        assert self._client is not None
        if self._logged_out:
            raise RpcError(AUTH_REQUIRED, f"you logged out of Forge; authenticate with {_SETUP!r}")
        zones: list[str] = []
        if more:
            try:
                zones = await run_in_thread(lambda: _zone_overrides(directory, more, self._options.home))
            except ConfigError as error:
                raise RpcError(INTERNAL_ERROR, escape_control_chars("\n".join(error.problems))) from None
        if len(self._sessions) + self._opening >= MAX_SESSIONS:
            raise RpcError(INVALID_REQUEST, f"{MAX_SESSIONS} sessions are open here; close one first")
        options = self._options
        try:
            runtime = WorkerRuntime(
                None if resume else options.worker,
                directory=directory,
                model=options.model,
                approval_mode=options.approval,
                overrides=[*zones, *options.overrides],
                home=options.home.path,
                resume=resume,
                needs_model=True,
                default_mode="chat",
            )
            session = EditorSession(runtime, self._link(runtime))
            self._opening += 1
            try:
                await session.open([directory, *more])
            finally:
                self._opening -= 1
        except ConfigError as error:
            raise RpcError(INTERNAL_ERROR, escape_control_chars("\n".join(error.problems))) from None
        except ModelError as error:  # it has no model, or no key for it
            raise RpcError(AUTH_REQUIRED, escape_control_chars(error.message)) from None
        except NotTrusted as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from None
        except ForgeError as error:
            raise RpcError(INTERNAL_ERROR, escape_control_chars(error.message)) from None
        self._sessions[session.id] = session
        return session

    def _link(self, runtime: WorkerRuntime) -> SessionLink:
        connection = self._connection
        assert self._client is not None

        def send(update: Json) -> None:
            connection.notify("session/update", {"sessionId": runtime.session_id, "update": update})

        async def ask(method: str, params: Json) -> Any:
            return await connection.ask(method, {"sessionId": runtime.session_id, **params})

        return SessionLink(client=self._client, send=send, ask=ask, has_room=connection.has_room)

    async def _opened(self, session: EditorSession, answer: Json, asked: Any) -> Reply:
        notices = await session.use_servers(_server_entries(asked.mcp_servers or ()))
        session.note_state()
        return Reply({**answer, **session.state()}, partial(session.begin, notices))


_Handle = Callable[[EditorAgent, Any], Awaitable[Reply]]
_REQUESTS: Final[dict[str, tuple[type[BaseModel], _Handle]]] = {
    "initialize": (schema.InitializeRequest, EditorAgent._initialize),
    "authenticate": (schema.AuthenticateRequest, EditorAgent._authenticate),
    "logout": (schema.LogoutRequest, EditorAgent._logout),
    "session/new": (schema.NewSessionRequest, EditorAgent._new_session),
    "session/load": (schema.LoadSessionRequest, EditorAgent._load_session),
    "session/resume": (schema.ResumeSessionRequest, EditorAgent._resume_session),
    "session/list": (schema.ListSessionsRequest, EditorAgent._list_sessions),
    "session/close": (schema.CloseSessionRequest, EditorAgent._close_session),
    "session/delete": (schema.DeleteSessionRequest, EditorAgent._delete_session),
    "session/prompt": (schema.PromptRequest, EditorAgent._prompt),
    "session/set_mode": (schema.SetSessionModeRequest, EditorAgent._set_mode),
    "session/set_config_option": (schema.SetSessionConfigOptionSelectRequest, EditorAgent._set_option),
}


def checked(model: type[BaseModel], params: Json) -> Any:
    """Raises RpcError with the place and the reason of each problem."""
    try:
        return model.model_validate(params)
    except ValidationError as error:
        problems = [
            {
                "location": ".".join(str(part)[:80] for part in each["loc"]),
                "message": "this value is not allowed here" if each["type"] in _SAYS_INPUT else each["msg"],
            }
            for each in error.errors(include_input=False, include_url=False, include_context=False)[:_MOST_ERRORS]
        ]
    except RecursionError:
        problems = [{"location": "", "message": "the params are nested too deeply"}]
    said = "; ".join(f"{each['location']}: {each['message']}" for each in problems)
    raise RpcError(INVALID_PARAMS, f"invalid params: {said}", {"errors": problems})


def _directory(asked: Any) -> Path:
    """The editor's. Its path is in no message: who sent it knows it."""
    if not os.path.isabs(asked.cwd) or "\0" in asked.cwd:
        raise RpcError(INVALID_PARAMS, "cwd: an absolute path is needed")
    if not os.path.isdir(asked.cwd):
        raise RpcError(INVALID_PARAMS, "cwd: the editor's working directory does not exist")
    return Path(asked.cwd)


def _more_directories(asked: Any) -> list[Path]:
    named = asked.additional_directories or []
    if len(named) > _MOST_DIRECTORIES:
        raise RpcError(INVALID_PARAMS, f"additionalDirectories: at most {_MOST_DIRECTORIES}")
    for at, path in enumerate(named):
        if not os.path.isabs(path) or "\0" in path:
            raise RpcError(INVALID_PARAMS, f"additionalDirectories.{at}: an absolute path is needed")
        if not os.path.isdir(path):
            raise RpcError(INVALID_PARAMS, f"additionalDirectories.{at}: this directory does not exist")
    return [Path(os.path.realpath(path)) for path in named]


def _zone_overrides(directory: Path, more: Sequence[Path], home: ForgeHome) -> list[str]:
    """`--set` words for the workspace and a zone for each other root that is in none of the earlier ones, with the name
    of its directory. None where a program or the person wrote which zones there are: an editor widens no such list.
    Raises ConfigError."""
    program = read_program(directory, home, trust_store(home))
    if [zone.origin for zone in program.zones] != ["default"]:
        return []
    zones = {program.zones[0].name: program.root}
    for path in more:
        if any(path.is_relative_to(known) for known in zones.values()):
            continue
        stem = _ZONE_NAME.sub("-", path.name.lower()).strip("-")[:20] or "root"
        stem = stem if is_zone_name(stem) else f"root-{stem}"
        names = (f"{stem}{number}" for number in ("", *(f"-{at}" for at in range(2, _MOST_DIRECTORIES + 2))))
        zones[next(name for name in names if name not in zones)] = path
    if len(zones) == 1:
        return []
    return [f"sandbox.zones.{name}={json.dumps({'path': str(path), 'mode': 'rw'})}" for name, path in zones.items()]


def _draft_updates(params: Json) -> frozenset[str]:
    """Returns the draft features that a client asks for; the models of the stable schema do not include them."""
    found: Any = params.get("clientCapabilities")
    found = found.get("session") if isinstance(found, dict) else None
    return frozenset(name for name in DRAFT_UPDATES if isinstance(found, dict) and isinstance(found.get(name), dict))


def _auth_methods(*, terminal: bool) -> list[Json]:
    """Returns the ways to set up a model. Keys are typed in a terminal only, because a client stores
    what it is sent.
    """
    by_hand = {
        "id": _SETUP,
        "name": "Choose a model and a key",
        "description": "Run `forge models setup` in a terminal, then come back. A model on this machine needs no key.",
    }
    in_terminal = {**by_hand, "id": _SETUP_IN_TERMINAL, "type": "terminal", "args": ["--setup"]}
    in_terminal["description"] = "Opens a terminal that asks for a provider, a key and a model."
    return [in_terminal, by_hand] if terminal else [by_hand]


def _check_root(root: str, directory: Path) -> None:
    if root != str(program_root(directory)):
        raise RpcError(INVALID_PARAMS, "this session belongs to another directory; session/list names it")


def _listed_root(cwd: str) -> str:
    """Returns the program root of a directory that may be gone. Raises RpcError."""
    try:
        if os.path.isabs(cwd):
            return str(program_root(Path(cwd)))
    except (OSError, ValueError):
        pass
    raise RpcError(INVALID_PARAMS, "cwd: an absolute path is needed")


def _server_entries(servers: Sequence[Any]) -> dict[str, Json]:
    """The editor's MCP servers as `.mcp.json` would have them, the last of a name. A kind that Forge does not know is
    named by its `type`, and shown as one that cannot be used."""
    entries: dict[str, Json] = {}
    for server in servers[:_MOST_SERVERS]:
        kind = getattr(server, "type", "stdio")
        if kind == "stdio":
            env = {each.name: each.value for each in server.env}
            entries[server.name] = {"command": server.command, "args": list(server.args), "env": env}
        else:
            headers = {each.name: each.value for each in getattr(server, "headers", ())}
            entries[server.name] = {"type": kind, "url": getattr(server, "url", ""), "headers": headers}
    return entries
