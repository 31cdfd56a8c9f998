"""How the verbs about versions and strangers' tools end: why something was refused, and where a tool stands now.

A refusal is one text on standard error and an exit code by its status. Threat: texts here quote what others wrote;
they are printed visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from golem_forge.cli.plain import complain, os_problem
from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.core.visible import visible

if TYPE_CHECKING:
    from golem_forge.custom.workshop import Workshop

FAILED: Final = 1
USAGE: Final = 2
DENIED: Final = 3
NO_SUCH_TOOL: Final = 4
_BY_STATUS: Final = {Status.TOOL_NOT_FOUND: NO_SUCH_TOOL, Status.INPUT_INVALID: USAGE}


def look_at_shop() -> Workshop:
    """The person's tools as they are now; what the program around here says does not matter to these verbs."""
    from golem_forge.config.home import forge_home
    from golem_forge.workers.own_shop import shop_to_look_at

    shop = shop_to_look_at(forge_home())
    shop.registry.refresh()
    return shop


def refused(verb: str, error: ForgeError | OSError) -> int:
    if isinstance(error, OSError):
        complain(f"tools {verb}", os_problem(error))
        return FAILED
    from golem_forge.custom.diagnostic import Unusable

    diagnosis = f"{error.diagnosis}: " if isinstance(error, Unusable) else ""
    complain(f"tools {verb}", f"{diagnosis}{error.message}")
    return _BY_STATUS.get(error.status, FAILED)


def wrong_use(verb: str, text: str) -> int:
    complain(f"tools {verb}", f"{text.rstrip('.')}. `forge tools {verb} --help` says more.")
    return USAGE


def standing_line(shop: Workshop, name: str) -> str:
    """Whether the tool as it is now is offered, and what to do if it is not."""
    from golem_forge.custom.trust import switching

    return visible(switching.standing_line(shop, name))
