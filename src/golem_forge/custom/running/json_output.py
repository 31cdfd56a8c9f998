"""The standard output of a tool with `output: json`: one JSON value, held against its schema.

Takes a manifest and what was printed; gives the value. Refuses with ToolFailed that names the position in the text, or
the path in the value. Threat: output is a stranger's. What is read is bounded in size, depth and number of values, and
`NaN`, numbers without end and broken Unicode are no JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from golem_forge.core.errors import ToolFailed
from golem_forge.custom.manifest import Manifest

if TYPE_CHECKING:
    from golem_forge.sandbox.processes.capture import Capture

MOST_READ: Final = 8 << 20
MOST_HANDED_ON: Final = 256 * 1024
"""Bytes of a value that is handed on beside its text; a larger one was checked and is in the output."""


def parsed(manifest: Manifest, out: Capture) -> Any:
    """The value; None where it is too large to be handed on."""
    tool = f"tool '{manifest.name}'"
    value = _value(tool, out)
    if manifest.output_schema is not None:
        _must_match(tool, value, manifest)
    return value if out.size <= MOST_HANDED_ON else None


def _value(tool: str, out: Capture) -> Any:
    from golem_forge.tools.json_values import NotJson, as_json

    if out.size > MOST_READ:
        raise _invalid(f"{tool} printed {out.size} bytes; of `output: json` at most {MOST_READ >> 20} MiB are read")
    try:
        return as_json(json.loads(out.read().decode(), parse_constant=_no_constant))
    except UnicodeDecodeError as error:
        raise _invalid(f"{tool} did not print JSON: no UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"{tool} did not print JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except (NotJson, RecursionError):
        raise _invalid(f"{tool} did not print JSON: too deep, too many values, or broken Unicode in a text") from None
    except ValueError as error:
        raise _invalid(f"{tool} did not print JSON: {str(error)[:100]}") from None


def _must_match(tool: str, value: Any, manifest: Manifest) -> None:
    from golem_forge.tools.jsonschema import SchemaCheck, json_path

    assert manifest.output_schema is not None
    for path, problem in SchemaCheck(dict(manifest.output_schema)).problems(value, limit=1):
        raise _invalid(f"{tool} printed JSON that does not match its output_schema at {json_path(path)}: {problem}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _invalid(text: str) -> ToolFailed:
    return ToolFailed(text, code="OUTPUT_INVALID")
