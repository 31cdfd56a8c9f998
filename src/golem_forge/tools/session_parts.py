"""SessionParts: what tools keep between the calls of one session (running processes, plans), ended with it.

A tool object serves every session of a process, so nothing of one session may live in the tool itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class SessionParts:
    def __init__(self) -> None:
        self._parts: dict[type, Any] = {}

    def get(self, kind: type[T], make: Callable[[], T] | None = None) -> T:
        """The session's one object of this kind, made when first asked for."""
        if kind not in self._parts:
            self._parts[kind] = (make or kind)()
        return cast(T, self._parts[kind])

    async def close(self) -> None:
        """Ends every part that has an `aclose`; one that fails does not keep the others alive."""
        parts, self._parts = self._parts, {}
        for part in parts.values():
            if hasattr(part, "aclose"):
                with contextlib.suppress(Exception):
                    await part.aclose()
