"""Hints: what a failed command cannot know about its walls, and a model would otherwise try again and again.

Takes a command that ended, gives lines for the caller. A hint is no denial: the text of an output proves nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from golem_forge.toolsets.exec.sessions import Running

NETWORK_IS_OFF: Final = "The network is off inside; name hosts in 'network'."
_LOOKED_AT: Final = 64 * 1024
_NO_NETWORK: Final = re.compile(
    r"could not resolve|temporary failure in name resolution|name or service not known|failed to lookup address"
    r"|unable to resolve host|getaddrinfo|network is unreachable|no such host|ENOTFOUND|EAI_AGAIN|ENETUNREACH",
    re.IGNORECASE,
)


def network_hint(running: Running) -> tuple[str, ...]:
    """For a command without hosts that failed and whose last words are about reaching one."""
    ending = running.ending
    if ending is None or not ending.exit_code or not running.offline:
        return ()
    output = running.child.output
    text = output.read(max(0, output.size - _LOOKED_AT)).decode("utf-8", "replace")
    return (NETWORK_IS_OFF,) if _NO_NETWORK.search(text) else ()
