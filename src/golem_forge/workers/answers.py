"""Typed answers and inputs: does a worker's final text fit its `output_schema`, an input its `input_schema`?

`check_answer` gives None or an AnswerProblem with the JSON path; nothing here raises for what a model or a person
wrote. A schema that cannot be used raises ToolDefinitionError; the worker file's reader has refused it before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.tools.json_values import compact
from golem_forge.tools.jsonschema import SchemaCheck, json_path

_FENCE: Final = re.compile(
    r"\s*(`{3,}|~{3,})[ \t]*(?:json)?[ \t]*\r?\n(.*)\n[ \t]*\1[`~]*\s*", re.DOTALL | re.IGNORECASE
)
_MAX_SHOWN: Final = 8_000


@dataclass(frozen=True, slots=True)
class AnswerProblem:
    path: str
    """`$.items[0]`."""
    message: str
    schema: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def check_answer(text: str, schema: Mapping[str, Any]) -> AnswerProblem | None:
    """None: the text is JSON (a code fence around it is looked through) that fits the schema."""
    try:
        value = json.loads(answer_json(text), parse_constant=_refuse)
    except RecursionError:
        return AnswerProblem("$", "is not JSON that can be read: nested too deep", schema)
    except ValueError as error:
        return AnswerProblem("$", f"is not JSON: {error}", schema)
    return _first_problem(value, schema)


def answer_json(text: str) -> str:
    """The JSON of an answer, without the code fence models like to put around it."""
    match = _FENCE.fullmatch(text)
    return match[2] if match else text.strip()


def repair_request(problem: AnswerProblem) -> str:
    """What the model is told, once."""
    wanted = compact(dict(problem.schema))
    schema = f"\nThe schema: {wanted}" if len(wanted) <= _MAX_SHOWN else ""
    return (
        f"Your answer does not match the required output schema at {problem}. "
        f"Answer again with the complete, corrected JSON value and nothing else.{schema}"
    )


def answer_instructions(schema: Mapping[str, Any]) -> str:
    """For the system prompt of a worker with `output_schema`."""
    return f"Your final answer must be one JSON value that fits this schema, and nothing else: {compact(dict(schema))}"


def input_problem(text: str, schema: Mapping[str, Any]) -> str:
    """Why an input text does not fit `input_schema`; empty if it does. It is text where a string fits, else JSON."""
    if _first_problem(text, schema) is None:
        return ""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return "input does not match input_schema: nested too deep"
    except ValueError as error:
        return f"input does not match input_schema: it must be JSON ({error})"
    problem = _first_problem(value, schema)
    return f"input does not match input_schema at {problem}" if problem else ""


def _first_problem(value: Any, schema: Mapping[str, Any]) -> AnswerProblem | None:
    for path, message in SchemaCheck(dict(schema)).problems(value, 1):
        return AnswerProblem(json_path(path), message, schema)
    return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
