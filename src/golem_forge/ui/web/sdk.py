"""Gateway to starlette, uvicorn and websockets: the only module that imports them.

Imported inside the functions that need it: together they cost a quarter of a second, and a session without a page
never pays for it.
"""

from __future__ import annotations

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Match, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Response as HandshakeResponse
from websockets.server import ServerProtocol

__all__ = [
    "ASGIApp",
    "BaseRoute",
    "ClientDisconnect",
    "H11Protocol",
    "HTTPException",
    "HandshakeResponse",
    "Headers",
    "JSONResponse",
    "Match",
    "Message",
    "PlainTextResponse",
    "Receive",
    "Request",
    "Response",
    "Route",
    "Scope",
    "Send",
    "ServerProtocol",
    "Starlette",
    "StreamingResponse",
    "WebSocket",
    "WebSocketDisconnect",
    "WebSocketRoute",
    "WebSocketState",
    "WebSocketsSansIOProtocol",
    "uvicorn",
]
