"""Answers of servers about resources, kept in memory as long as the server's `ttlMs` allows and never longer.

Equal requests in flight share one. A caller that goes away leaves the request to the others; with the last one it
ends too. A session part: nothing of it outlives the session or reaches a disk. Threat: a server that sends much and
says that it stays true for ever; what is kept is bounded in number, size and time.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.signal import InterruptSignal
from golem_forge.tools.context import ToolContext

if TYPE_CHECKING:
    from asyncio import Task

Key = tuple[str, ...]
Answer = dict[str, Any]
Fetch = Callable[[ToolContext], Awaitable[Answer]]

_MOST_KEPT: Final = 200
_LARGEST_KEPT: Final = 256 * 1024
_LONGEST_S: Final = 3600.0


@dataclass(slots=True)
class _Kept:
    answer: Answer
    until: float


@dataclass(slots=True)
class _Shared:
    task: Task[Answer]
    signal: InterruptSignal
    waiting: int = 0


class ResourceAnswers:
    def __init__(self) -> None:
        self._kept: dict[Key, _Kept] = {}
        self._shared: dict[Key, _Shared] = {}

    async def get(self, key: Key, fetch: Fetch, ctx: ToolContext) -> Answer:
        """`fetch` is given a context that is interrupted only when nobody waits any more."""
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept.until:
            return kept.answer
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = self._start(key, fetch, ctx)
        return await self._awaited(key, shared)

    async def aclose(self) -> None:
        for shared in self._shared.values():
            shared.task.cancel()

    def _start(self, key: Key, fetch: Fetch, ctx: ToolContext) -> _Shared:
        import asyncio

        async def fetched() -> Answer:
            try:
                answer = await fetch(replace(ctx, cancel=signal))
                self._keep(key, answer)
                return answer
            finally:
                self._shared.pop(key, None)

        signal = InterruptSignal()
        return _Shared(asyncio.get_running_loop().create_task(fetched()), signal)

    async def _awaited(self, key: Key, shared: _Shared) -> Answer:
        import asyncio

        shared.waiting += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.task.done():
                self._shared.pop(key, None)  # whoever asks from now on begins anew
                shared.signal.interrupt()
                shared.task.cancel()

    def _keep(self, key: Key, answer: Answer) -> None:
        seconds = _seconds(answer.get("ttlMs"))
        if not seconds or _size(answer) > _LARGEST_KEPT:
            self._kept.pop(key, None)
            return
        while len(self._kept) >= _MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[key] = _Kept(answer, time.monotonic() + seconds)


def _seconds(ttl_ms: Any) -> float:
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, (int, float)) or not ttl_ms > 0:
        return 0.0
    return min(ttl_ms / 1000, _LONGEST_S)


def _size(value: Any) -> int:
    """About how many bytes it takes; counting stops once that is too many."""
    total, waiting = 0, [value]
    while waiting and total <= _LARGEST_KEPT:
        each = waiting.pop()
        if isinstance(each, dict):
            total += sum(len(str(name)) for name in each)
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
        total += len(each) if isinstance(each, str) else 8
    return total
