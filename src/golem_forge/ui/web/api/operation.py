"""Operations: each request that a page, or a UI of others, can make is one function; it says what it takes and gives.

    @operation("GET", "/api/sessions", "list_sessions", query=SessionsQuery, answer=SessionList, tag="sessions")
    async def list_sessions(call: Call) -> SessionList:
        '''The sessions of this home, newest first.'''

Query and body are pydantic models: what does not fit them is answered 422 before the function runs, with every problem
by its field. A function refuses by raising Refused; nothing else it raises reaches the caller as more than 500 without
words. The OpenAPI description is made of the same declarations (`api.openapi`), so it cannot say something else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.events.failures import described
from golem_forge.ui.web.wire import Model, Refused

if TYPE_CHECKING:
    from golem_forge.ui.web.house import House
    from golem_forge.ui.web.sdk import Request, Response, Route

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
MOST_BODY_BYTES: Final = 1 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way."""

    house: House
    request: Request
    path: Mapping[str, str] = field(default_factory=dict)
    """The parts of the path by name, decoded."""
    query: Any = None
    body: Any = None


Run = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: Method
    path: str
    name: str
    """Its `operationId`."""
    run: Run
    tag: str
    query: type[Model] | None = None
    body: type[Model] | None = None
    raw_body: str = ""
    """Media type of a body that the function reads itself, in pieces."""
    answer: type[Model] | None = None
    """None: 204 without a body, unless the function gives a Response of its own."""
    status: int = 200
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Status → when, besides those every operation has."""

    @property
    def words(self) -> str:
        return (self.run.__doc__ or "").strip()

    def route(self) -> Route:
        from golem_forge.ui.web.sdk import Route

        return Route(self.path, self.answered, methods=[self.method], name=self.name)

    async def answered(self, request: Request) -> Response:
        from golem_forge.ui.web.sdk import JSONResponse, Response

        try:
            given = await self.run(
                Call(
                    house=request.app.state.house,
                    request=request,
                    path=dict(request.path_params),
                    query=_checked(self.query, _query(request)) if self.query is not None else None,
                    body=await self._body(request),
                )
            )
        except Refused as refused:
            return _refusal(refused)
        except ConfigError as error:
            return _refusal(Refused(422, "\n".join(error.problems)))
        except ForgeError as error:
            return _refusal(Refused(409, error.message))
        except Exception as error:  # its words may quote what nobody may see
            _log.error("%s failed: %s", self.name, described(error, quoting=False))
            return _refusal(Refused(500, "This did not work; the log of the process that serves this page says why."))
        if isinstance(given, Response):
            return given
        if given is None:
            return Response(status_code=204)
        return JSONResponse(given.model_dump(mode="json", by_alias=True), self.status)

    async def _body(self, request: Request) -> Model | None:
        if self.body is None:
            return None
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # a form of another site can send anything but this without asking first
            raise Refused(415, "The body must be application/json.")
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > MOST_BODY_BYTES:
                raise Refused(413, f"A body may have {MOST_BODY_BYTES} bytes.")
        return _checked(self.body, bytes(data))


def operation(method: Method, path: str, name: str, *, tag: str, **more: Any) -> Callable[[Run], Operation]:
    return lambda run: Operation(method=method, path=path, name=name, tag=tag, run=run, **more)


def _query(request: Request) -> dict[str, Any]:
    return {name: values[-1] for name in request.query_params if (values := request.query_params.getlist(name))}


def _checked(model: type[Model], given: Mapping[str, Any] | bytes) -> Model:
    try:
        return model.model_validate_json(given) if isinstance(given, bytes) else model.model_validate(given)
    except (ValidationError, RecursionError) as error:
        raise Refused(422, "The request does not fit what this operation takes.", _fields(error)) from None


def _fields(error: Exception) -> dict[str, str]:
    if not isinstance(error, ValidationError):
        return {}
    return {".".join(map(str, one["loc"])): one["msg"] for one in error.errors(include_url=False, include_input=False)}


def _refusal(refused: Refused) -> Response:
    from golem_forge.ui.web.sdk import JSONResponse

    return JSONResponse(refused.problem.model_dump(by_alias=True), refused.status)
