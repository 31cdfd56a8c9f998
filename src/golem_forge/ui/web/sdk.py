"""Gateway to starlette, websockets and what uvicorn has for them. Everything imported here is for others.

Only modules that are loaded with the page import it: together they cost a quarter of a second, and a session without a
page never pays for it.
"""
# ruff: noqa: F401
# mypy: implicit-reexport

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Response as HandshakeResponse
from websockets.server import ServerProtocol
