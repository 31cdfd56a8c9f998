"""Client: one guest as the server knows it. What it was given, what it has under way, what it may go on with.

In the handshake era a client is one connection; on 2026-07-28 it is one token, or the one process at the other end of
a pipe. Bounds: calls under way, parked calls, outputs listed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from golem_forge.core.ids import new_id
from golem_forge.mcp.server.host import Guest, Host
from golem_forge.mcp.server.sealing import Seals
from golem_forge.mcp.server.served_call import Abilities, Question, ServedCall

MOST_CALLS: Final = 128
MOST_OUTPUTS: Final = 1000


class Parked:
    """A call that waits for the next request of its client, and the question that request must answer."""

    __slots__ = ("call", "question")

    def __init__(self, call: ServedCall, question: Question) -> None:
        self.call = call
        self.question = question


class Client:
    def __init__(self, host: Host, guest: Guest) -> None:
        self.guest = guest
        self.parked: Seals[Parked] = Seals(lambda parked: self._later(parked.call, "the client never came back"))
        self._calls = host.calls
        self._under_way: set[ServedCall] = set()
        self._outputs: OrderedDict[str, str] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._gone = False

    @property
    def full(self) -> bool:
        return self._gone or len(self._under_way) >= MOST_CALLS

    def begin(self, name: str, args: object, abilities: Abilities) -> ServedCall:
        call = ServedCall(new_id(), abilities, self)
        self._under_way.add(call)
        self._calls.add(call)
        work = self.guest.call(name, args, call_id=call.id, cancel=call.cancel, progress=call.report)
        call.start(work, over=lambda: self._over(call))
        return call

    def was_given(self, handle: str, of: str) -> None:
        self._outputs[handle] = of
        if len(self._outputs) > MOST_OUTPUTS:
            self._outputs.popitem(last=False)

    def outputs(self) -> dict[str, str]:
        """Handle → the tool whose output it is, newest first. Only what this client was told of."""
        return dict(reversed(self._outputs.items()))

    async def aclose(self) -> None:
        """The client left: everything it had under way ends with it."""
        if self._gone:
            return
        self._gone = True
        self.parked.take_all()
        await asyncio.gather(*(call.end("the client left") for call in list(self._under_way)), *self._ending)
        await self.guest.aclose()

    def _over(self, call: ServedCall) -> None:
        self._under_way.discard(call)
        self._calls.discard(call)

    def _later(self, call: ServedCall, why: str) -> None:
        task = asyncio.get_running_loop().create_task(call.end(why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
