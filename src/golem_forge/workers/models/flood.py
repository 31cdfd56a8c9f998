"""Flood: how much of one response is taken. A server that never ends its answer must not fill memory and journal.

`add` what arrives, whatever part of the response it is; refuses with ModelError, code TOO_LARGE, not to be tried again.
"""

from __future__ import annotations

from typing import Final

from golem_forge.workers.models.layer import ModelError

MAX_RESPONSE: Final = 32 * 1024 * 1024
"""Characters. The largest answers of today's models are below 2 MiB; a call in the XML format may have 10 MiB."""
MAX_CALLS: Final = 1000
"""In one response."""
TOO_LARGE: Final = "RESPONSE_TOO_LARGE"


class Flood:
    def __init__(self, model: str) -> None:
        self._model = model
        self._size = 0

    def add(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_RESPONSE:
            what = f"more than {MAX_RESPONSE // 1024 // 1024} MiB in one response"
            raise ModelError(f"{self._model} sent {what}; nothing of it was run", code=TOO_LARGE)
