"""Why a folder is no callable tool, what a tool may be called, and the errors of this package.

`Diagnostic` is for people and programs; one folder never hides another. `Unusable` carries a diagnostic out of any
step between a folder and a tool. `SharingError` is an import, export or update that was not carried out; its text says
what to do next.

The rules of a name are the same for a folder made by hand, created or imported. `__` separates MCP servers from their
tools. A reserved name, in any case, always stands for the built-in tool.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import clip, display_name, escape_control_chars


class DiagnosticCode(StrEnum):
    YAML_INVALID = "yaml_invalid"
    MANIFEST_INVALID = "manifest_invalid"
    UNREADABLE = "unreadable"
    NAME_MISMATCH = "name_mismatch"
    NAME_INVALID = "name_invalid"
    NAME_CONFLICT = "name_conflict"
    RESERVED_NAME = "reserved_name"
    ENTRYPOINT_INVALID = "entrypoint_invalid"
    ENTRYPOINT_MISSING = "entrypoint_missing"
    NOT_EXECUTABLE = "not_executable"
    SYMLINK = "symlink"
    TOO_LARGE = "too_large"
    TOOLCHAIN_MISSING = "toolchain_missing"
    DEPENDENCIES_UNAVAILABLE = "dependencies_unavailable"
    BUILD_FAILED = "build_failed"
    TESTS_FAILED = "tests_failed"
    UNTRUSTED = "untrusted"
    CHANGED = "changed"
    SHADOW_PENDING = "shadow_pending"
    RETIRED = "retired"
    TOO_MANY_TOOLS = "too_many_tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    tool: str
    code: DiagnosticCode
    message: str
    line: int | None = None

    @property
    def text(self) -> str:
        """The code, message and line as text; further lines of a compiler follow."""
        first, newline, more = self.message.partition("\n")
        place = f" (line {self.line})" if self.line is not None else ""
        return f"{self.code}: {first}{place}{newline}{more}"

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"tool": self.tool, "code": self.code.value, "message": self.message}
        return found if self.line is None else found | {"line": self.line}


class Unusable(ForgeError):
    """A folder, or a step on the way from a folder to a tool, that cannot be used; carries its diagnosis."""

    def __init__(self, code: DiagnosticCode, message: str, *, line: int | None = None) -> None:
        super().__init__(message, code=code.value.upper())
        self.diagnostic_code = code
        self.line = line

    def diagnostic_for(self, tool: str) -> Diagnostic:
        return Diagnostic(tool=tool, code=self.diagnostic_code, message=self.message, line=self.line)


TOOL_NAME: Final = regex(r"(?!.*__)[A-Za-z][A-Za-z0-9_-]{0,63}\Z")

RESERVED_NAMES: Final = frozenset(
    {"create_custom_tool", "run_custom_tool", "exec_command", "write_stdin", "apply_patch"}
)

_LONGEST_SHOWN_NAME: Final = 100


def name_problem(name: str) -> str:
    """Why a tool cannot be called so; empty if it can."""
    if TOOL_NAME.match(name):
        return ""
    shown = escape_control_chars(name[:_LONGEST_SHOWN_NAME]).replace("\n", "\\n")
    return f"invalid tool name '{shown}': use letters, digits, '-' and '_', starting with a letter, at most 64, no '__'"


def is_reserved(name: str) -> bool:
    return name.lower() in RESERVED_NAMES


class SharingError(ForgeError):
    def __init__(self, message: str, *, status: Status = Status.EXECUTION_FAILED) -> None:
        super().__init__(message, status=status, code="SHARING")


def quote_name(name: str) -> str:
    """A name that a stranger chose, for a message: short, and without a character that could steer a terminal."""
    return f"'{clip(display_name(name), 120)}'"
