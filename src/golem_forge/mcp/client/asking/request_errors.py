"""Refused: a request of a server that is answered with a JSON-RPC error; its words are for the server's author."""

from __future__ import annotations

from typing import Final

INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
REJECTED: Final = -1
"""What MCP's own pages show for a sampling request that a person turned down."""


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
