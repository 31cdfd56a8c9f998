"""Errors that become Outcomes. A ForgeError knows its status and code; its text is written for the caller.

Threat: the message of a foreign exception may carry host paths or secrets, so only a ForgeError's text is passed on
as it is; everything else is reported by exception type and redacted.

`missing_library` says which extra brings an optional library that is not installed.
"""

from __future__ import annotations

from typing import Final, overload

from golem_forge.core.decisions import Status

_BLOCKED: Final = "Blocked by policy"
EXTRAS: Final = {
    "acp": frozenset({"acp"}),
    "models": frozenset({"pydantic_ai", "httpx2", "anthropic", "openai", "google.genai"}),
    "bedrock": frozenset({"boto3"}),
    "mistral": frozenset({"mistralai"}),
    "cohere": frozenset({"cohere"}),
    "mcp": frozenset({"mcp", "mcp_types", "httpx2", "anyio", "starlette", "uvicorn", "sse_starlette"}),
    "web": frozenset({"starlette", "uvicorn", "websockets", "nh3", "markdown_it", "pygments"}),
    "otel": frozenset({"opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"}),
    "team": frozenset({"psycopg", "procrastinate"}),
    "oidc": frozenset({"jwt", "httpx2", "cryptography"}),
    "secrets": frozenset({"cryptography"}),
}
"""Optional libraries, by the extra of the distribution that brings them, as they are imported."""


def install_command(*extras: str) -> str:
    return f"pip install 'golem-forge[{','.join(extras)}]'"


def missing_library(problem: ImportError) -> str:
    """Returns an error text that names the extra to install after a failed import; empty if no extra brings the
    package.
    """
    package = (problem.name or "").partition(".")[0]
    extras = [extra for extra, modules in EXTRAS.items() if package in {each.partition(".")[0] for each in modules}]
    if not extras:
        return ""
    brought = " or ".join(f"`{extra}`" for extra in extras)
    return f"{problem.name} is not installed; it comes with the extra {brought}: {install_command(extras[0])}"


def error_name(error: BaseException) -> str:
    """Returns the name of an exception's type for texts: its `stated_name`, else its class name. Forge's own exceptions
    that can appear in a text state their name, so that the class can be renamed.
    """
    kind = type(error)
    stated = type.__dict__["__dict__"].__get__(kind).get("stated_name")  # not inherited; past a metaclass that lies
    return stated if type(stated) is str else str(type.__dict__["__name__"].__get__(kind))


class ForgeError(Exception):
    """Ends one call (never the session) with `status`; `code` is for programs, the message for people and models."""

    stated_name = "ForgeError"

    def __init__(self, message: str, *, status: Status = Status.EXECUTION_FAILED, code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code


class BlockedError(ForgeError):
    """Raised by a tool or its `needs_approval`: this call must never run.

    `BlockedError(reason)` or `BlockedError(tool, reason)` (`tool_name` is another name of `tool`); the caller reads the
    reason, "Blocked by policy" if it is empty.
    """

    @overload
    def __init__(self, reason: str | None = None, /) -> None: ...
    @overload
    def __init__(self, tool: str, reason: str | None, /) -> None: ...
    @overload
    def __init__(self, tool: str = "", *, reason: str | None) -> None: ...
    @overload
    def __init__(self, *, tool: str, reason: str | None = None) -> None: ...
    @overload
    def __init__(self, *, tool_name: str, reason: str | None = None) -> None: ...
    def __init__(
        self, *said: str | None, tool: str | None = "", reason: str | None = None, tool_name: str | None = ""
    ) -> None:
        if tool and tool_name:
            raise TypeError("BlockedError: tool= and tool_name= are the same; give one of them")
        tool = tool or tool_name
        if len(said) > 2 or (len(said) == 2 and (tool or reason)) or (len(said) == 1 and tool and reason):
            raise TypeError("BlockedError takes a reason, or a tool's name and a reason")
        if len(said) == 2:
            tool, reason = said
        elif said:
            tool, reason = (said[0], reason) if reason is not None else (tool, said[0])
        self.tool = tool or ""
        """The tool that is blocked, where whoever raised it said so."""
        self.reason = reason or _BLOCKED
        super().__init__(self.reason, status=Status.POLICY_DENIED, code="BLOCKED")


class ToolFailed(ForgeError):
    """A tool's own orderly failure: the text goes to the caller unchanged."""

    stated_name = "ToolFailed"


class ConfigError(Exception):
    """A configuration that cannot be used. The text has `file:line: problem` for every problem found."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
