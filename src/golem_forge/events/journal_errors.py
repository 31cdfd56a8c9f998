"""What can go wrong with a journal. Each text says what to do next."""

from __future__ import annotations

from golem_forge.core.errors import ForgeError


class JournalError(ForgeError):
    """A record could not be written. No record, no run: the call it belongs to must not start."""

    stated_name = "JournalError"

    def __init__(self, message: str) -> None:
        super().__init__(message, code="JOURNAL_UNAVAILABLE")


class SessionInUse(ForgeError):
    """Another process holds this session."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session is in use: {session_id}", code="SESSION_IN_USE")


class SessionExists(ForgeError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} exists already; resume it, or choose another id", code="SESSION_EXISTS")


class SessionNotFound(ForgeError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"no session {session_id!r}; `forge sessions list` shows them", code="SESSION_NOT_FOUND")


class SessionAmbiguous(ForgeError):
    def __init__(self, typed: str) -> None:
        super().__init__(
            f"several sessions start with {typed!r}; type more of the id (`forge sessions list` shows them)",
            code="SESSION_AMBIGUOUS",
        )


class JournalDamaged(ForgeError):
    """The file is not what was written. It can be read, not continued."""

    def __init__(self, session_id: str, line: int, what: str) -> None:
        super().__init__(
            f"session {session_id}: line {line} of its journal: {what}; "
            f"it can be shown and exported, but not resumed. Start a new session.",
            code="JOURNAL_DAMAGED",
        )
        self.line = line
