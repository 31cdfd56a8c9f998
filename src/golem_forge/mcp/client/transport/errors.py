"""What can go wrong between Forge and a server, each with a text that may be shown as it is.

No text holds a header, a token or an expanded value; of a URL they name the host at most.
"""

from __future__ import annotations

from golem_forge.core.errors import ForgeError


class TransportError(ForgeError):
    """The way to a server failed, not what the server did with a call."""


class WallsFailed(TransportError):
    """The walls around a server could not be built; nothing ran. The text has the cause and the fix."""


class CannotStart(TransportError):
    """There is no such command inside the walls; nothing ran."""


class LineTooLong(TransportError):
    """A server wrote more than 16 MiB without an end of line: nothing after that can be told apart."""


class NotSent(TransportError):
    """Not one byte of this request was written. It was not processed."""


class Unreachable(TransportError):
    """No connection to the server came about."""


class NeedsLogin(TransportError):
    """401 or 403."""


class SessionUnknown(TransportError):
    """404 or 410 for the session's id: the server does not know this session (any more), and did nothing."""


class ConnectionLost(TransportError):
    """It broke after something was sent: what was asked may have been done."""


class BadAddress(TransportError):
    """A URL that is neither https nor http to this machine; nothing was sent."""


def needs_login(server: str) -> NeedsLogin:
    return NeedsLogin(f"run: forge mcp login {server}", code="NEEDS_LOGIN")
