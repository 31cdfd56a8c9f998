"""Takes known secrets out of a result before anyone reads it, keeps it, or shows it; learns those a person types.

Only known values are taken out here: a result that happens to have a member named `token` belongs to its caller, and
the content of a file keeps its paths, or it could not be written back. (Events and the journal also hide by name.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from golem_forge.core.result import ToolResult
from golem_forge.events.all_texts import all_texts
from golem_forge.events.redaction import Redactor
from golem_forge.tools.json_values import safe_json
from golem_forge.tools.tool import Tool

_SHORTEST_TYPED: Final = 6


def learn_typed_secrets(tool: Tool, args: dict[str, Any], redactor: Redactor) -> None:
    """What a person typed into a secret field is known from now on. Threat: a tool that repeats it, in its result, its
    error or its progress. What is shorter than a password would be found in ordinary words."""
    from golem_forge.tools.prefill import secret_texts

    for text in secret_texts(tool.secret_fields, args):
        if len(text) >= _SHORTEST_TYPED and text not in redactor.secrets:
            redactor.add_secret(tool.name, text)


def redact_result(result: ToolResult, redactor: Redactor) -> ToolResult:
    plain = replace(
        result,
        text=str(result.text),
        value=_json(result.value),
        content=tuple(_json(block) for block in result.content),
        structured=_json(result.structured),
        meta=_json(result.meta),
    )
    if not redactor.secrets:
        return plain
    return replace(
        plain,
        text=redactor.secrets_out(plain.text),
        value=_cleaned(plain.value, redactor),
        content=tuple(_cleaned(block, redactor) for block in plain.content),
        structured=_cleaned(plain.structured, redactor),
        meta=_cleaned(plain.meta, redactor),
    )


def is_plain(result: ToolResult, redactor: Redactor) -> bool:
    """Whether it is little, pure JSON in plain ASCII, and holds no secret: it is given as it is, as most are.

    False means only: look closer.
    """
    clean = redactor.secrets_out
    if type(result.text) is not str or clean(result.text) is not result.text:
        return False
    value, structured = result.value, result.structured
    if structured is not None and value.get("data") is structured:
        structured = None  # the value holds it
    said = all_texts(value, structured, result.meta, *result.content)
    return said is not None and said.isascii() and clean(said) is said


def _json(value: Any) -> Any:
    """A tool's own ToolResult may hold anything; what is not JSON could not be looked through."""
    return safe_json(value)[0]


def _cleaned(value: Any, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.secrets_out(value)
    if isinstance(value, dict):
        return {redactor.secrets_out(key): _cleaned(item, redactor) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(item, redactor) for item in value]
    return value
