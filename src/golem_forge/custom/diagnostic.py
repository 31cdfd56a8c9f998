"""Diagnostic: why a folder is no callable tool, for people and programs. One folder never hides another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from golem_forge.core.errors import ForgeError


class Code(StrEnum):
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
    code: Code
    message: str
    line: int | None = None

    @property
    def told(self) -> str:
        """In words, the line with the first of them: a compiler's lines may follow."""
        first, newline, more = self.message.partition("\n")
        place = f" (line {self.line})" if self.line is not None else ""
        return f"{self.code}: {first}{place}{newline}{more}"

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"tool": self.tool, "code": self.code.value, "message": self.message}
        return found if self.line is None else found | {"line": self.line}


class Unusable(ForgeError):
    """A folder, or a step on the way from a folder to a tool, that cannot be used; carries its diagnosis."""

    def __init__(self, code: Code, message: str, *, line: int | None = None) -> None:
        super().__init__(message, code=code.value.upper())
        self.diagnosis = code
        self.line = line

    def of(self, tool: str) -> Diagnostic:
        return Diagnostic(tool=tool, code=self.diagnosis, message=self.message, line=self.line)
