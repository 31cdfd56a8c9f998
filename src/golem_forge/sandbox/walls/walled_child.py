"""WalledChild: a running process and the walls around it. Once it has ended: what they refused, what it left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from golem_forge.core.leftovers import Leftover
from golem_forge.sandbox.processes.capture import Capture
from golem_forge.sandbox.processes.child import Child
from golem_forge.sandbox.walls import denials
from golem_forge.sandbox.walls.plan import WallPlan

if TYPE_CHECKING:
    from golem_forge.sandbox.network.proxy import HostProxy

_WINDOW: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What is known once a child has ended."""

    denials: tuple[dict[str, Any], ...] = ()
    protected_created: tuple[str, ...] = ()
    """Virtual paths of protected names that did not exist before."""
    leftovers: tuple[Leftover, ...] = ()
    """What the person's own programs would run or obey."""


def _told_nobody(after: Aftermath) -> None:
    return None


def _nothing_to_exchange() -> None:
    return None


class WalledChild:
    def __init__(
        self,
        child: Child,
        plan: WallPlan | None,
        *,
        created: Callable[[], tuple[str, ...]],
        leftovers: Callable[[], tuple[Leftover, ...]] = tuple,
        proxy: HostProxy | None = None,
        tell: Callable[[Aftermath], None] = _told_nobody,
        exchange: Callable[[], None] = _nothing_to_exchange,
    ) -> None:
        """Without a plan there are no walls, which cannot have refused anything. `tell`: see `tell_unread`."""
        self.exchange = exchange
        """Carries over what git has inside and outside. For children that serve many calls, before and after each."""
        self.child = child
        self.plan = plan
        self._created = created
        self._leftovers = leftovers
        self._left: tuple[tuple[str, ...], tuple[Leftover, ...]] | None = None
        self._proxy = proxy
        self._tell = tell

    def refusals_in(self, text: str) -> tuple[dict[str, Any], ...]:
        """What a failure that a child told of in words is evidence of."""
        return denials.find(self.plan, text, exit_code=1) if self.plan is not None else ()

    def aftermath(self) -> Aftermath:
        """Call it after the end. What was left behind is looked for once: the zone may change again after that."""
        if self.plan is None:
            return Aftermath()
        if self._left is None:
            self._left = self._created(), self._leftovers()
        ending = self.child.ending
        texts = (each for each in (self.child.output, self.child.errors) if each is not None)
        text = "\n".join(_ends(each).decode("utf-8", "replace") for each in texts)
        return Aftermath(
            denials=denials.find(
                self.plan,
                text,
                exit_code=ending.exit_code if ending else None,
                signal_number=ending.signal if ending else None,
                refused_hosts=self._proxy.refused if self._proxy else (),
            ),
            protected_created=self._left[0],
            leftovers=self._left[1],
        )

    def tell_unread(self) -> None:
        """After the end of a child that no call reports on (a server, a session that nobody read to its end): what it
        left behind goes to whoever listens at the walls. Nothing if `aftermath` was taken."""
        if self._left is None:
            after = self.aftermath()
            if after.protected_created or after.leftovers:
                self._tell(after)


def _ends(capture: Capture) -> bytes:
    """The beginning and the end of an output; evidence in between is not looked for."""
    if capture.size <= 2 * _WINDOW:
        return capture.read()
    return capture.read(0, _WINDOW) + b"\n" + capture.read(capture.size - _WINDOW)
