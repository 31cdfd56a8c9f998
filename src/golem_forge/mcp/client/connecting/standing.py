"""Standing: the state one server is in, as it is shown, and what a caller is told who cannot use it.

Every change is told as it happens; whoever listens cannot change what happens. Threat: a server may say back in an
error what it was given in confidence, so words are redacted before they are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.events.redaction import Redactor
from golem_forge.mcp.client.definitions.offered import Offered
from golem_forge.mcp.client.state import ServerStatus, State

_log = logging.getLogger(__name__)


class Standing:
    def __init__(
        self, offered: Offered, redactor: Redactor, tell: Callable[[ServerStatus], None], changed: Callable[[], None]
    ) -> None:
        self._offered = offered
        self._redactor = redactor
        self._tell = tell
        self._changed = changed
        self._retry_at: float | None = None
        self._stderr: tuple[str, ...] = ()
        self._untold = False
        self.state = State.DISABLED
        self.error = ""

    @property
    def _name(self) -> str:
        return self._offered.spec.name

    def status(self) -> ServerStatus:
        manifest = self._offered.manifest
        return ServerStatus(
            server=self._name,
            state=self.state,
            error=self.error,
            retry_at=self._retry_at,
            tools=self._offered.count,
            stderr=self._stderr,
            protocol=manifest.protocol if manifest is not None else "",
            info=manifest.info if manifest is not None else {},
        )

    def rest(self, state: State, error: str) -> None:
        """Before anything happened: it can be looked at, and is told when the session begins."""
        self.state, self.error = state, self._redactor.text(error)
        self._untold = state is not State.DISABLED

    def set(
        self, state: State, error: str = "", *, retry_at: float | None = None, stderr: tuple[str, ...] = ()
    ) -> None:
        error = self._redactor.text(error)
        before = (self.state, self.error, self._retry_at)
        self.state, self.error, self._retry_at, self._stderr = state, error, retry_at, stderr
        if self._untold or before != (state, error, retry_at):
            self.tell()

    def tell(self) -> None:
        self._untold = False
        self._changed()
        try:
            self._tell(self.status())
        except Exception as error:
            _log.warning("the state of %s could not be told: %s", self._name, type(error).__name__)

    @property
    def waits(self) -> str:
        return f"server '{self._name}' waits for approval; run: forge mcp approve {self._name}"

    def pend(self) -> ForgeError:
        """Waits for a person. The error is for whoever wanted to use it."""
        text = self.waits
        self.set(State.PENDING, text)
        return ForgeError(text, status=Status.APPROVAL_DENIED, code="SERVER_PENDING")

    def need_login(self) -> ForgeError:
        self.set(State.NEEDS_LOGIN, f"run: forge mcp login {self._name}")
        return ForgeError(f"server '{self._name}' needs a login; {self.error}", code="NEEDS_LOGIN")

    def not_kept(self, error: ForgeError) -> None:
        """A person agreed to it, and that could not be written down: nothing is started on such a yes."""
        self.set(State.PENDING, f"{self.waits} ({error.message})")

    def failure(self) -> ForgeError:
        """What a caller is told of a server that gave up."""
        text = f"server '{self._name}' failed: {self.error}; then run: forge mcp reconnect {self._name}"
        return ForgeError(text, code="SERVER_FAILED")

    def closed(self) -> ForgeError:
        return ForgeError(f"server '{self._name}' was closed", code="CLOSED")
