"""The answer of `validate_input`: Ok with the data to run, or Err with a message that names the field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status


@dataclass(frozen=True, slots=True)
class Ok:
    data: dict[str, Any]
    ok: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Err:
    message: str
    ok: Literal[False] = False

    @property
    def error(self) -> str:
        """Another name of `message`."""
        return self.message


class InputInvalid(ForgeError):
    """The arguments do not fit the tool's schema; nothing was judged, asked or run."""

    stated_name = "InputInvalid"

    def __init__(self, message: str, *, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message, status=Status.INPUT_INVALID, code="INPUT_INVALID")
        self.fields = fields
        """(field path, problem) pairs, for forms that show each error at its field."""


class ToolDefinitionError(Exception):
    """A tool that cannot be offered: the text says what to change in its definition."""

    stated_name = "ToolDefinitionError"
