"""The whole web application: the operations, the socket and the page's files, behind the door."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from golem_forge.core.listening import Hosts
from golem_forge.ui.web.api import all_operations
from golem_forge.ui.web.api.operation import Operation
from golem_forge.ui.web.assets import load_assets
from golem_forge.ui.web.door.door import Door
from golem_forge.ui.web.door.login import Login
from golem_forge.ui.web.wire import Problem

if TYPE_CHECKING:
    from golem_forge.ui.web.house import House
    from golem_forge.ui.web.sdk import Request, Response, WebSocket

STREAM: Final = "/api/sessions/{id}/stream"
_WORDS: Final = {
    404: "There is nothing at this address; GET /api/openapi.json lists what there is.",
    405: "This address does not take that method.",
}


def make_app(house: House, *, login: Login, hosts: Hosts) -> Door:
    from golem_forge.ui.web.watching.socket import serve_socket

    return assembled(all_operations(), serve_socket, house, login=login, hosts=hosts)


def assembled(
    operations: Sequence[Operation],
    socket: Callable[[WebSocket], Awaitable[None]],
    house: House,
    *,
    login: Login,
    hosts: Hosts,
) -> Door:
    """`app.state.house` and `app.state.login` are there for every operation and for the socket."""
    from golem_forge.ui.web.sdk import HTTPException, Starlette, WebSocketRoute

    assets = load_assets()
    app = Starlette(
        routes=[
            *(operation.route() for operation in operations),
            WebSocketRoute(STREAM, socket),
            WebSocketRoute("/{anywhere:path}", _no_socket),
            *(asset.route(path) for path, asset in assets.items()),
        ],
        exception_handlers={HTTPException: _said_as_problem},
    )
    app.router.redirect_slashes = False
    app.state.house = house
    app.state.login = login
    return Door(
        app,
        hosts=hosts,
        login=login,
        public=frozenset(assets),
        counts_itself=[operation.route() for operation in operations if operation.raw_body],
    )


async def _no_socket(websocket: WebSocket) -> None:
    await websocket.send_denial_response(_problem(404))


async def _said_as_problem(request: Request, error: Exception) -> Response:
    from golem_forge.ui.web.sdk import HTTPException

    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.headers)


def _problem(status: int, headers: Mapping[str, str] | None = None) -> Response:
    from golem_forge.ui.web.sdk import JSONResponse

    words = _WORDS.get(status, "This request cannot be answered.")
    return JSONResponse(Problem(problem=words).model_dump(by_alias=True), status, headers)
