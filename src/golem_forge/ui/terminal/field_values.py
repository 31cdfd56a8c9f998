"""One field of a form: the text a person gave for it as a value, its value as text, and what the field allows.

`value_from` raises FieldError with words for under the field. The whole form is validated by the full schema later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.core.visible import visible

NOT_GIVEN: Final = object()
"""The field was left empty."""
_YES: Final = frozenset({"y", "yes", "true", "on"})
_NO: Final = frozenset({"n", "no", "false", "off"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_MOST_PATTERN_TEXT: Final = 2000


class FieldError(ValueError):
    """The text is no value of the field."""


def value_from(field: Mapping[str, Any], text: str) -> Any:
    kind = field["type"]
    if kind in ("text", "secret"):
        return _text(field, text)
    stripped = text.strip()
    if not stripped:
        if field["required"]:
            raise FieldError("a value is needed")
        return NOT_GIVEN
    if kind == "number":
        return _number(field, stripped)
    if kind == "boolean":
        if stripped.lower() in _YES | _NO:
            return stripped.lower() in _YES
        raise FieldError("answer yes or no")
    if kind == "select":
        return _option(field["options"], stripped)
    if kind == "multiselect":
        return _several(field, stripped)
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise FieldError(f"not JSON: {error}") from None


def _text(field: Mapping[str, Any], text: str) -> Any:
    if not text:
        if field["required"]:
            raise FieldError("a value is needed")
        return NOT_GIVEN
    pattern = field.get("pattern")
    if isinstance(pattern, str) and len(text) <= _MOST_PATTERN_TEXT and not _fits(pattern, text):
        raise FieldError(f"must match {visible(pattern)}")
    return text


def _fits(pattern: str, text: str) -> bool:
    """Only simple patterns are tried here.

    Threat: a pattern from outside may take for ever on the screen's own thread; the full schema is checked off it.
    """
    if len(pattern) > 100 or re.search(r"[*+}?][)]?[*+{]|\(\?|\\[1-9]|\)[*+{]", pattern):
        return True
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True


def _number(field: Mapping[str, Any], text: str) -> int | float:
    if not _NUMBER.fullmatch(text):
        raise FieldError("a number is needed")
    value: int | float = int(text) if _INTEGER.fullmatch(text) else float(text)
    if value - value != 0:
        raise FieldError("a finite number is needed")
    if "min" in field and value < field["min"]:
        raise FieldError(f"must be at least {field['min']}")
    if "max" in field and value > field["max"]:
        raise FieldError(f"must be at most {field['max']}")
    return value


def _option(options: Sequence[Mapping[str, Any]], text: str) -> Any:
    for option in options:
        if text in (option["label"], _shown(option["value"])):
            return option["value"]
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(options):
        return options[int(text) - 1]["value"]
    raise FieldError(f"must be one of {_labels(options)}")


def _several(field: Mapping[str, Any], text: str) -> list[Any]:
    chosen = [_option(field["options"], part.strip()) for part in text.split(",") if part.strip()]
    if len(chosen) < field.get("min", 0):
        raise FieldError(f"choose at least {field['min']}")
    if "max" in field and len(chosen) > field["max"]:
        raise FieldError(f"choose at most {field['max']}")
    return chosen


def shown_value(field: Mapping[str, Any], value: Any) -> str:
    """The text that stands for a value in the line; `value_from` reads it back."""
    kind = field["type"]
    if kind == "boolean":
        return ("yes" if value else "no") if isinstance(value, bool) else ""
    if kind == "select":
        return next((str(option["label"]) for option in field["options"] if option["value"] == value), "")
    if kind == "multiselect":
        return ", ".join(shown_value({**field, "type": "select"}, each) for each in value) if value else ""
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, default=str)
    return _shown(value)


def hint_of(field: Mapping[str, Any]) -> str:
    kind = field["type"]
    parts = []
    if kind == "boolean":
        parts.append("yes or no")
    elif kind == "select":
        parts.append(f"one of {_labels(field['options'])}")
    elif kind == "multiselect":
        parts.append(f"any of {_labels(field['options'])}, with commas between")
    elif kind == "number":
        parts.append(_range(field))
    elif kind == "json":
        parts.append("JSON")
    elif kind == "secret":
        parts.append("not shown, not kept")
    if field.get("format") and field["format"] != "multiline":
        parts.append(str(field["format"]))
    if not field["required"]:
        parts.append("may be empty")
    return "; ".join(parts)


def _range(field: Mapping[str, Any]) -> str:
    low, high = field.get("min"), field.get("max")
    if low is not None and high is not None:
        return f"a number from {low} to {high}"
    if low is not None:
        return f"a number from {low}"
    return f"a number up to {high}" if high is not None else "a number"


def _labels(options: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(visible(str(option["label"])) for option in options[:50]) + (" …" if len(options) > 50 else "")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
