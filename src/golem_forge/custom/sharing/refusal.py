"""SharingError: an import, export or update that was not carried out; its text says what to do next."""

from __future__ import annotations

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status
from golem_forge.sandbox.tree import shown_name


class SharingError(ForgeError):
    def __init__(self, message: str, *, status: Status = Status.EXECUTION_FAILED) -> None:
        super().__init__(message, status=status, code="SHARING")


def quoted(name: str) -> str:
    """A name that a stranger chose, for a message: short, and without a character that could steer a terminal."""
    shown = shown_name(name)
    return f"'{shown}'" if len(shown) <= 120 else f"'{shown[:120]}…'"
