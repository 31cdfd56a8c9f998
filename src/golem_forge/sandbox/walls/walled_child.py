"""WalledChild: a running process and the walls around it. Once it has ended: what they refused, what it left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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


class WalledChild:
    def __init__(
        self,
        child: Child,
        plan: WallPlan | None,
        *,
        created: Callable[[], tuple[str, ...]],
        proxy: HostProxy | None = None,
    ) -> None:
        """Without a plan there are no walls, which cannot have refused anything."""
        self.child = child
        self.plan = plan
        self._created = created
        self._proxy = proxy

    def refusals_in(self, text: str) -> tuple[dict[str, Any], ...]:
        """What a failure that a child told of in words is evidence of."""
        return denials.find(self.plan, text, exit_code=1) if self.plan is not None else ()

    def aftermath(self) -> Aftermath:
        """Call it after the end."""
        if self.plan is None:
            return Aftermath()
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
            protected_created=self._created(),
        )


def _ends(capture: Capture) -> bytes:
    """The beginning and the end of an output; evidence in between is not looked for."""
    if capture.size <= 2 * _WINDOW:
        return capture.read()
    return capture.read(0, _WINDOW) + b"\n" + capture.read(capture.size - _WINDOW)
