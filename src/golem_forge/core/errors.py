"""Errors that become Outcomes. A ForgeError knows its status and code; its text is written for the caller.

Threat: the message of a foreign exception may carry host paths or secrets, so only a ForgeError's text is passed on
as it is; everything else is reported by exception type and redacted.
"""

from __future__ import annotations

from golem_forge.core.verdict import Status


class ForgeError(Exception):
    """Ends one call (never the session) with `status`; `code` is for programs, the message for people and models."""

    def __init__(self, message: str, *, status: Status = Status.EXECUTION_FAILED, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code


class BlockedError(ForgeError):
    """Raised by a tool or its `needs_approval`: this call must never run."""

    def __init__(self, reason: str = "Blocked by policy") -> None:
        super().__init__(reason, status=Status.POLICY_DENIED, code="BLOCKED")


class ToolFailed(ForgeError):
    """A tool's own orderly failure: the text goes to the caller unchanged."""


class ConfigError(Exception):
    """A configuration that cannot be used. The text has `file:line: problem` for every problem found."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
