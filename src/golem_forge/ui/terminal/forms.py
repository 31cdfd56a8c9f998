"""A form filled in field by field: takes the fields of `derive_fields` and start values, gives the arguments.

`FormDialog` holds one open question at a time. `submit` takes a text, which is accepted or brings the same question
again with an error; `back` returns to the field before. The walk is a generator replayed from the answers, so nested
lists, groups and variants can be walked backwards. Draws nothing. `parse_value` turns a text into a field's value and
raises FieldError; the whole form is validated against the full schema later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.json import strict_json, unique_members
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.tools.forms import form_arguments

_NO_VALUE: Final = object()
_COMPOUND: Final = ("group", "list", "variants")
_MAX_ITEMS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FormQuestion:
    label: str
    """The label with its path: `Address › Street`, `Tags 2`."""
    description: str
    hint: str
    """Allowed values, range, and whether it may be left empty."""
    start: str
    """The initial text of the line."""
    error: str = ""
    secret: bool = False
    multiline: bool = False
    options: tuple[str, ...] = ()


FormWalk = Generator[FormQuestion, str, Any]
FieldWalk = Callable[[Mapping[str, Any], Any, str], FormWalk]


class FormDialog:
    def __init__(self, fields: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> None:
        self._fields = fields
        self._values = values
        self._answers: list[str] = []
        self.question: FormQuestion | None = None
        self.arguments: dict[str, Any] = {}
        """Complete once `question` is None."""
        self.start = ""
        """What stands in the line now: what was answered before, after going back."""
        self._begin()

    def submit(self, text: str) -> None:
        secret = self.question is not None and self.question.secret
        before = len(self._answers)
        self._send(text)
        accepted = len(self._answers) > before
        self.start = "" if self.question is None else self.question.start if accepted else "" if secret else text

    def back(self) -> bool:
        """Goes back one field. Returns False at the first field."""
        if not self._answers:
            return False
        last = self._answers.pop()
        kept, self._answers = self._answers, []
        self._begin()
        for answer in kept:
            self._send(answer)
        if self.question is not None:
            self.start = "" if self.question.secret else last
        return True

    def _begin(self) -> None:
        self._walk = _ask_all(self._fields, self._values, "")
        self._step(None)
        self.start = self.question.start if self.question else ""

    def _send(self, text: str) -> None:
        self._step(text)
        if not isinstance(self.question, _RepeatedQuestion):
            self._answers.append(text)

    def _step(self, text: str | None) -> None:
        try:
            self.question = next(self._walk) if text is None else self._walk.send(text)
        except StopIteration as end:
            self.question = None
            self.arguments = form_arguments(self._fields, end.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RepeatedQuestion(FormQuestion):
    """Raised to repeat a question after an invalid answer."""


def _ask_all(fields: Sequence[Mapping[str, Any]], values: Mapping[str, Any], way: str) -> FormWalk:
    found: dict[str, Any] = {}
    for field in fields:
        value = yield from _ask(field, values.get(field["name"], _NO_VALUE), way)
        if value is not NOT_GIVEN:
            found[field["name"]] = value
    return found


def _ask(field: Mapping[str, Any], value: Any, way: str) -> FormWalk:
    if field["type"] == "fixed":
        return field["default"]
    label = f"{way} › {field['label']}" if way else str(field["label"])
    compound: Mapping[str, FieldWalk] = {"group": _group, "list": _list, "variants": _variants}
    return (yield from compound.get(field["type"], _scalar)(field, value, label))


def _scalar(field: Mapping[str, Any], value: Any, label: str, *, hint: str = "", ends: bool = False) -> FormWalk:
    """`ends`: an empty line is no value of a list but its end."""
    secret = field["type"] == "secret" or field.get("secret") is True
    if secret and isinstance(value, str):
        field, hint = {**field, "required": False}, "leave it empty to keep the value"
    if value is _NO_VALUE:
        value = field.get("default", _NO_VALUE)
    start = "" if secret or value is _NO_VALUE or value is None else format_value(field, value)
    asked: dict[str, Any] = {
        "label": label,
        "description": str(field.get("description") or ""),
        "hint": hint or field_hint(field),
        "secret": secret,
        "multiline": field.get("format") == "multiline" or field["type"] == "json",
        "options": tuple(str(option["label"]) for option in field.get("options") or ()),
    }
    question: FormQuestion = FormQuestion(**asked, start=start, error=str(field.get("error") or ""))
    while True:
        text = yield question
        if ends and not text.strip():
            return NOT_GIVEN
        try:
            return _cleared(field, value) if not text else parse_value(field, text)
        except FieldError as error:
            question = _RepeatedQuestion(**asked, start=text, error=str(error))


def _cleared(field: Mapping[str, Any], before: Any) -> Any:
    """The value of an empty line: an empty text or choice where there was one before, and nothing elsewhere."""
    if field["type"] == "text" and isinstance(before, str):
        return ""
    if field["type"] == "multiselect" and not field.get("min") and (field["required"] or isinstance(before, list)):
        return []
    return parse_value(field, "")


def _yes_no(label: str, hint: str, preset: bool, description: Any = "") -> FormWalk:
    field = {"name": "", "label": label, "type": "boolean", "required": True, "description": description}
    return (yield from _scalar(field, preset, label, hint=hint))


def _group(field: Mapping[str, Any], value: Any, label: str) -> FormWalk:
    given = value if isinstance(value, Mapping) else field.get("default")
    if not field["required"]:
        about = field.get("description")
        if not (yield from _yes_no(label, "fill it in? yes or no", isinstance(value, Mapping), about)):
            return NOT_GIVEN
    return (yield from _ask_all(field["fields"], given if isinstance(given, Mapping) else {}, label))


def _list(field: Mapping[str, Any], value: Any, label: str) -> FormWalk:
    given = value if isinstance(value, list) else field.get("default")
    known = list(given) if isinstance(given, list) else []
    item, least, most = field["item"], field.get("min", 0), field.get("max", _MAX_ITEMS)
    items: list[Any] = []
    while len(items) < most:
        number = len(items) + 1
        place = f"{label} {number}"
        preset = known[number - 1] if number <= len(known) else _NO_VALUE
        must = len(items) < least and bool(field["required"] or items)
        if item["type"] in _COMPOUND:
            if not must and not (yield from _yes_no(place, "add this item? yes or no", preset is not _NO_VALUE)):
                break
            items.append((yield from _ask({**item, "label": place, "required": True}, preset, "")))
            continue
        needed = {**item, "required": True}
        if preset is None or preset == "":  # an empty line is this item, not the end
            added = yield from _scalar(item, preset, place)
            items.append(None if added is NOT_GIVEN else added)
            continue
        if must:
            added = yield from _scalar(needed, preset, place)
        else:
            hint = "; ".join(part for part in (field_hint(needed), "empty ends the list") if part)
            added = yield from _scalar(item, preset, place, hint=hint, ends=True)
        if added is NOT_GIVEN:
            break
        items.append(added)
    return items if items or field["required"] or (isinstance(given, list) and not least) else NOT_GIVEN


def _variants(field: Mapping[str, Any], value: Any, label: str) -> FormWalk:
    variants = field["variants"]
    options = [{"value": number, "label": variant["label"]} for number, variant in enumerate(variants, 1)]
    choice: dict[str, Any] = {
        "name": field["name"],
        "label": label,
        "type": "select",
        "required": field["required"],
        "description": field.get("description", ""),
        "options": options,
    }
    fitting = (number for number, variant in enumerate(variants, 1) if _fits(variant, value))
    chosen = yield from _scalar(choice, next(fitting, _NO_VALUE), label)
    if chosen is NOT_GIVEN or chosen is None:
        return NOT_GIVEN
    return (yield from _ask({**variants[chosen - 1], "label": label, "required": True}, value, ""))


def _fits(variant: Mapping[str, Any], value: Any) -> bool:
    """Whether a present value is most likely of this variant: by its type, and by what the variant fixes."""
    match variant["type"]:
        case "fixed":
            return _same(variant["default"], value)
        case "select":
            return any(_same(option["value"], value) for option in variant["options"])
        case "group":
            return isinstance(value, Mapping) and all(_agrees(field, value) for field in variant["fields"])
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "json":
            return isinstance(value, (list, dict))
        case kind:
            return isinstance(value, _VALUE_TYPES.get(kind, ()))


_VALUE_TYPES: Final[Mapping[str, type]] = {
    "text": str,
    "secret": str,
    "boolean": bool,
    "list": list,
    "multiselect": list,
}


def _agrees(field: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    if field["name"] not in value:
        return not field["required"]
    return field["type"] != "fixed" or _same(value[field["name"]], field["default"])


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


NOT_GIVEN: Final = object()
"""Stands for a field that was left empty."""
_YES: Final = frozenset({"y", "yes", "true", "on"})
_NO: Final = frozenset({"n", "no", "false", "off"})
_INTEGER: Final = regex(r"[+-]?[0-9]{1,1000}")
_NUMBER: Final = regex(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_MAX_PATTERN_TEXT: Final = 2000


class FieldError(ValueError):
    """Raised if the text is no valid value of the field."""


def parse_value(field: Mapping[str, Any], text: str) -> Any:
    kind = field["type"]
    stripped = text if kind in ("text", "secret") else text.strip()
    if not stripped:
        if field["required"]:
            raise FieldError("a value is needed")
        return NOT_GIVEN
    if kind in ("text", "secret"):
        pattern = field.get("pattern")
        if isinstance(pattern, str) and len(text) <= _MAX_PATTERN_TEXT and not _matches_pattern(pattern, text):
            raise FieldError(f"must match {escape_control_chars(pattern)}")
        return text
    if kind == "number":
        return _number(field, stripped)
    if kind == "boolean":
        if stripped.lower() in _YES | _NO:
            return stripped.lower() in _YES
        raise FieldError("answer yes or no")
    if kind == "select":
        return _option(field["options"], stripped)
    if kind == "multiselect":
        return _multiselect(field, stripped)
    try:
        json.loads(stripped, object_pairs_hook=unique_members)
        return strict_json(stripped)
    except (ValueError, RecursionError) as error:
        raise FieldError(f"not JSON: {error}") from None


def _matches_pattern(pattern: str, text: str) -> bool:
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
    at = _option_index(options, text)
    if at is None:
        raise FieldError(f"must be one of {_labels(options)}")
    return options[at]["value"]


def _option_index(options: Sequence[Mapping[str, Any]], text: str) -> int | None:
    """An option is named by its label, its value or its number."""
    for names in ([str(one["label"]).strip() for one in options], [_as_text(one["value"]) for one in options]):
        if text in names:
            return names.index(text)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    return number - 1 if 1 <= number <= len(options) else None


def _option_text(options: Sequence[Mapping[str, Any]], at: int) -> str:
    """Its label, or its number where the label is empty, another option's too, or would be read as several."""
    label = str(options[at]["label"]).strip()
    return label if label and "," not in label and _option_index(options, label) == at else str(at + 1)


def _multiselect(field: Mapping[str, Any], text: str) -> list[Any]:
    chosen = [_option(field["options"], part.strip()) for part in text.split(",") if part.strip()]
    if len(chosen) < field.get("min", 0):
        raise FieldError(f"choose at least {field['min']}")
    if "max" in field and len(chosen) > field["max"]:
        raise FieldError(f"choose at most {field['max']}")
    return chosen


def format_value(field: Mapping[str, Any], value: Any) -> str:
    """The text that stands for a value in the line; `parse_value` reads it back."""
    kind = field["type"]
    if kind == "boolean":
        return ("yes" if value else "no") if isinstance(value, bool) else ""
    if kind == "select":
        options = field["options"]
        return next((_option_text(options, at) for at, one in enumerate(options) if _same(one["value"], value)), "")
    if kind == "multiselect":
        return ", ".join(format_value({**field, "type": "select"}, each) for each in value) if value else ""
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, default=str)
    return _as_text(value)


def field_hint(field: Mapping[str, Any]) -> str:
    kind, low, high = field["type"], field.get("min"), field.get("max")
    parts = []
    if kind == "boolean":
        parts.append("yes or no")
    elif kind == "select":
        parts.append(f"one of {_labels(field['options'])}")
    elif kind == "multiselect":
        parts.append(f"any of {_labels(field['options'])}, with commas between")
    elif kind == "number":
        start, to = "" if low is None else f" from {low}", "to" if low is not None else "up to"
        parts.append(f"a number{start}" + ("" if high is None else f" {to} {high}"))
    elif kind == "json":
        parts.append("JSON")
    elif kind == "secret":
        parts.append("not shown, not kept")
    if field.get("format") and field["format"] != "multiline":
        parts.append(str(field["format"]))
    if not field["required"]:
        parts.append("may be empty")
    return "; ".join(parts)


def _labels(options: Sequence[Mapping[str, Any]]) -> str:
    names = ((str(option["label"]), _option_text(options, at)) for at, option in enumerate(options[:50]))
    shown = (label if text == label.strip() else f"{text} ({label})" for label, text in names)
    labels = escape_control_chars(", ".join(shown))
    return f"{labels} …" if len(options) > 50 else labels


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
