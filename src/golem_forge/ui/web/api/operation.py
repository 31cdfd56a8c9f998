"""Operations of the REST API: each is one function that declares what it takes and gives.

    @operation("GET", "/api/sessions", "list_sessions", tag="sessions")
    async def list_sessions(call: ApiCall, query: SessionsQuery) -> SessionList:
        '''The sessions of this home, newest first.'''

It takes, by the names of its parameters, the `call`, parts of the path, `query` and `body` (pydantic models: what does
not fit is answered 422 with every problem by its field) and `subject`, the session in the path. It gives a model, None
(204), or a Response of its own; `answer=` names the model of such a one. It refuses by raising ApiRefusal; any other
exception is answered 500 without its text. The OpenAPI description (`api.openapi`) is made of the same declarations.
`RequestedSession` is the session in the request's path. One that runs here is asked itself; of any other the home knows
the tools, the rules and the program. Everything it answers is redacted like events, and is valid JSON.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from inspect import get_annotations
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from golem_forge.agent.runtime import WorkerRuntime
from golem_forge.agent.session_state import known_secrets
from golem_forge.agent.trust import NotTrusted
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.events.bus import describe_failure
from golem_forge.events.index import SessionIndex
from golem_forge.events.redaction import Redactor
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.threads import run_in_thread
from golem_forge.ui.web.api import ApiModel, ApiRefusal
from golem_forge.ui.web.sdk import JSONResponse, Request, Response, Route
from golem_forge.ui.web.session_registry import SessionRegistry

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
MAX_BODY_BYTES: Final = 1 << 20
_STATUS_OF_CODE: Final = {
    "ROLE": 403, "FOUR_EYES": 403, "NOT_A_PERSON": 401, "QUESTION_NOT_FOUND": 404, "PERSON_NOT_FOUND": 404,
    "RULE_NOT_FOUND": 404, "SESSION_NOT_FOUND": 404, "SCHEDULE_NOT_FOUND": 404, "SCHEDULE": 422,
    "ANSWER_INVALID": 422, "STORE_UNAVAILABLE": 503, "PROJECT_NOT_FOUND": 404, "PROJECT_NAME": 422,
    "SIGN_IN_AWAY": 503, "STORE_MESSAGE": 422,
}  # fmt: skip
"""Of a refusal of the store."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall:
    """One request on its way."""

    registry: SessionRegistry
    request: Request
    path: Mapping[str, str] = field(default_factory=dict)
    """The parts of the path by name, decoded."""


OperationHandler = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: Method
    path: str
    name: str
    """Its `operationId`."""
    run: OperationHandler
    takes: tuple[str, ...]
    """The names of its parameters."""
    tag: str
    query: type[ApiModel] | None = None
    body: type[ApiModel] | None = None
    raw_body: str = ""
    """Media type of a body that the function reads itself, in pieces."""
    answer: type[ApiModel] | None = None
    """None: 204 without a body, unless the function gives a Response of its own."""
    media: tuple[str, ...] = ()
    """Media types of a Response of its own that is no JSON of one model."""
    status: int = 200
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Status → when, besides those every operation has."""

    @property
    def description(self) -> str:
        return (self.run.__doc__ or "").strip()

    def route(self) -> Route:
        return Route(self.path, self.respond, methods=[self.method], name=self.name)

    async def respond(self, request: Request) -> Response:
        call = ApiCall(registry=request.app.state.registry, request=request, path=dict(request.path_params))
        try:
            given = await self.run(**await self._arguments(call))
        except Exception as error:
            return self._refused(error)
        if isinstance(given, Response):
            return given
        if given is None:
            return Response(status_code=204)
        return JSONResponse(given.model_dump(mode="json", by_alias=True), self.status)

    async def _arguments(self, call: ApiCall) -> dict[str, Any]:
        known: dict[str, Any] = {**call.path, "call": call}
        if self.query is not None:
            known["query"] = _validated(self.query, dict(call.request.query_params))
        if self.body is not None:
            known["body"] = _validated(self.body, await _json_body(call.request))
        if "subject" in self.takes:
            known["subject"] = await requested_session(call)
        return {name: known[name] for name in self.takes}

    def _refused(self, error: Exception) -> JSONResponse:
        """Not in `respond`: a frame that keeps the exception, whose traceback keeps the frame, would hold the request's
        body until the collector runs."""
        refused = self._refusal_for(error)
        return JSONResponse(refused.problem.model_dump(by_alias=True), refused.status)

    def _refusal_for(self, error: Exception) -> ApiRefusal:
        if isinstance(error, ApiRefusal):
            return error
        if isinstance(error, ConfigError):
            return ApiRefusal(422, "\n".join(error.problems))
        if isinstance(error, NotTrusted):
            return ApiRefusal(409, f"The server refuses: {error}.")
        if isinstance(error, ForgeError):
            return ApiRefusal(_STATUS_OF_CODE.get(error.code, 409), error.message)
        _log.error("%s failed: %s", self.name, describe_failure(error, quoting=False))  # its text may hold a secret
        return ApiRefusal(500, "This did not work; the log of the process that serves this page says why.")


def operation(
    method: Method, path: str, name: str, *, tag: str, **more: Any
) -> Callable[[OperationHandler], Operation]:
    def declare(run: OperationHandler) -> Operation:
        kinds = get_annotations(run, eval_str=True)
        answer = kinds.pop("return", None)
        models: dict[str, Any] = {part: kinds[part] for part in ("query", "body") if part in kinds}
        if isinstance(answer, type) and issubclass(answer, ApiModel):
            models["answer"] = answer
        return Operation(method=method, path=path, name=name, tag=tag, run=run, takes=tuple(kinds), **(models | more))

    return declare


async def _json_body(request: Request) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a form of another site can send anything but this without asking first
        raise ApiRefusal(415, "The body must be application/json.")
    return await read_body(request, MAX_BODY_BYTES, f"A body may have {MAX_BODY_BYTES} bytes.")


async def read_body(request: Request, most: int, problem: str) -> bytes:
    """Refused (413) with `problem` as soon as there are more than `most` bytes."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > most:
            raise ApiRefusal(413, problem)
    return bytes(data)


def _validated(model: type[ApiModel], given: Mapping[str, Any] | bytes) -> ApiModel:
    try:
        return model.model_validate_json(given) if isinstance(given, bytes) else model.model_validate(given)
    except (ValidationError, RecursionError) as error:
        found = error.errors(include_url=False, include_input=False) if isinstance(error, ValidationError) else []
        problems = {".".join(map(str, one["loc"])): one["msg"] for one in found}
        raise ApiRefusal(422, "The request does not fit what this operation takes.", problems) from None


_MAX_DEPTH: Final = 100
_NOT_READY: Final = "The session is just being started; try again in a moment."
_READ_ONLY: Final = (
    "This session does not run in the process that serves this page; do it where it runs, or resume it first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSession:
    home: ForgeHome
    root: Path
    """Of its program; where that is gone, the directory this server was started in."""
    runtime: WorkerRuntime | None
    """None: it does not run here."""
    redactor: Redactor

    @property
    def live_runtime(self) -> WorkerRuntime:
        """Refused (409) where it does not run here."""
        if self.runtime is None:
            raise ApiRefusal(409, _READ_ONLY)
        return self.runtime

    async def refresh_tools(self) -> None:
        """What changed on disk counts from now on, as before every command of a person; folders are read off the
        loop."""
        if self.runtime is None:
            return
        if (placed := self.runtime.user_tools) is not None:
            await run_in_thread(placed.workshop.registry.refresh)
        self.runtime.look_at_tools()

    def redact(self, value: Any) -> Any:
        return redacted_json(value, self.redactor.text)


async def requested_session(call: ApiCall) -> RequestedSession:
    """The session in the path of the request. Refused (404): there is none."""
    session = await call.registry.find(call.path["id"])
    runtime: WorkerRuntime | None = getattr(session, "runtime", None)
    if runtime is None:
        return await run_in_thread(lambda: _recorded_session(call, session.id))
    if not runtime.is_ready:
        raise ApiRefusal(409, _NOT_READY)
    tree = runtime.tree
    return RequestedSession(home=runtime.home, root=tree.program.root, runtime=runtime, redactor=tree.redactor)


def _recorded_session(call: ApiCall, session_id: str) -> RequestedSession:
    home = call.registry.home
    known = next(iter(SessionIndex(home.path).sessions(prefix=session_id, limit=1)), None)
    root = Path(known.root) if known is not None and known.root else call.registry.directory
    there = root if root.is_absolute() and root.is_dir() else call.registry.directory
    return RequestedSession(home=home, root=there, runtime=None, redactor=known_secrets(home))


def redacted_json(value: Any, clean: Callable[[str], str], depth: int = 0) -> Any:
    """Strangers' values as JSON that can be written: texts without what must not be shown, no NaN, no lone surrogate,
    bounded nesting."""
    if isinstance(value, str):
        return clean(value).encode("utf-8", "backslashreplace").decode()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > _MAX_DEPTH:
        return "[nested too deep]"
    if isinstance(value, Mapping):
        return {redacted_json(str(key), clean): redacted_json(each, clean, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted_json(each, clean, depth + 1) for each in value]
    return redacted_json(str(value), clean)
