"""Takes known secrets and host paths out of a result before anyone reads it, keeps it, or shows it.

Only known values are taken out here: a result that happens to have a member named `token` belongs to its caller.
(Events and the journal also hide by name.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from golem_forge.core.result import ToolResult
from golem_forge.events.redaction import Redactor


def redact_result(result: ToolResult, redactor: Redactor) -> ToolResult:
    if not redactor.secrets and not redactor.paths:
        return result
    return replace(
        result,
        text=redactor.text(result.text),
        value=_cleaned(result.value, redactor),
        content=tuple(_cleaned(block, redactor) for block in result.content),
        structured=_cleaned(result.structured, redactor),
    )


def _cleaned(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, dict):
        return {redactor.text(key): _cleaned(item, redactor) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, redactor) for item in value]
    return value
