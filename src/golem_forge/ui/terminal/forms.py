"""A form, field by field: takes the fields of `derive_fields` and values to start from, gives the arguments.

`Form` holds one open question at a time. `submit` takes a text, which is the answer or brings the same question again
with an error; `back` returns to the field before. The walk is a generator that is replayed from the answers given, so
nested lists, groups and variants can all be walked backwards. Nothing here draws.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.tools.forms import form_arguments
from golem_forge.ui.terminal.field_values import NOT_GIVEN, FieldError, hint_of, shown_value, value_from

_NO_VALUE: Final = object()
_COMPOUND: Final = ("group", "list", "variants")
_MOST_ITEMS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    label: str
    """With the way to it: `Address › Street`, `Tags 2`."""
    description: str
    hint: str
    """Allowed values, range, and whether it may be left empty."""
    start: str
    """What stands in the line to begin with."""
    error: str = ""
    secret: bool = False
    multiline: bool = False
    options: tuple[str, ...] = ()


Walk = Generator[Question, str, Any]


class Form:
    def __init__(self, fields: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> None:
        self._fields = fields
        self._values = values
        self._answers: list[str] = []
        self.question: Question | None = None
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
        """False: this is the first field."""
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
        if not isinstance(self.question, _Again):
            self._answers.append(text)

    def _step(self, text: str | None) -> None:
        try:
            self.question = next(self._walk) if text is None else self._walk.send(text)
        except StopIteration as end:
            self.question = None
            self.arguments = form_arguments(self._fields, end.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again(Question):
    """The same question after an answer that did not fit."""


def _ask_all(fields: Sequence[Mapping[str, Any]], values: Mapping[str, Any], way: str) -> Walk:
    found: dict[str, Any] = {}
    for field in fields:
        value = yield from _ask(field, values.get(field["name"], _NO_VALUE), way)
        if value is not NOT_GIVEN:
            found[field["name"]] = value
    return found


def _ask(field: Mapping[str, Any], value: Any, way: str) -> Walk:
    label = f"{way} › {field['label']}" if way else str(field["label"])
    kind = field["type"]
    if kind == "fixed":
        return field["default"]
    if kind == "group":
        return (yield from _group(field, value, label))
    if kind == "list":
        return (yield from _list(field, value, label))
    if kind == "variants":
        return (yield from _variants(field, value, label))
    return (yield from _scalar(field, value, label))


def _scalar(field: Mapping[str, Any], value: Any, label: str, *, hint: str = "", ends: bool = False) -> Walk:
    """`ends`: an empty line is no value of a list but its end."""
    secret = field["type"] == "secret"
    if value is _NO_VALUE:
        value = field.get("default", _NO_VALUE)
    start = "" if secret or value is _NO_VALUE or value is None else shown_value(field, value)
    asked: dict[str, Any] = {
        "label": label,
        "description": str(field.get("description") or ""),
        "hint": hint or hint_of(field),
        "secret": secret,
        "multiline": field.get("format") == "multiline" or field["type"] == "json",
        "options": tuple(str(option["label"]) for option in field.get("options") or ()),
    }
    question: Question = Question(**asked, start=start, error=str(field.get("error") or ""))
    while True:
        text = yield question
        if ends and not text.strip():
            return NOT_GIVEN
        try:
            return value_from(field, text)
        except FieldError as error:
            question = _Again(**asked, start=text, error=str(error))


def _yes_no(label: str, hint: str, preset: bool, description: str = "") -> Walk:
    field = {"name": "", "label": label, "type": "boolean", "required": True, "description": description}
    return (yield from _scalar(field, preset, label, hint=hint))


def _group(field: Mapping[str, Any], value: Any, label: str) -> Walk:
    given = value if isinstance(value, Mapping) else field.get("default")
    if not field["required"]:
        wanted = yield from _yes_no(
            label, "fill it in? yes or no", isinstance(value, Mapping), str(field.get("description") or "")
        )
        if not wanted:
            return NOT_GIVEN
    return (yield from _ask_all(field["fields"], given if isinstance(given, Mapping) else {}, label))


def _list(field: Mapping[str, Any], value: Any, label: str) -> Walk:
    given = value if isinstance(value, list) else field.get("default")
    known = list(given) if isinstance(given, list) else []
    item, least, most = field["item"], field.get("min", 0), field.get("max", _MOST_ITEMS)
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
        added = yield from _item(item, preset, place, must)
        if added is NOT_GIVEN:
            break
        items.append(added)
    if not items and not field["required"]:
        return NOT_GIVEN
    return items


def _item(item: Mapping[str, Any], preset: Any, place: str, must: bool) -> Walk:
    if must:
        return (yield from _scalar({**item, "required": True}, preset, place))
    hint = "; ".join(part for part in (hint_of({**item, "required": True}), "empty ends the list") if part)
    return (yield from _scalar(item, preset, place, hint=hint, ends=True))


def _variants(field: Mapping[str, Any], value: Any, label: str) -> Walk:
    variants = field["variants"]
    options = [{"value": number, "label": variant["label"]} for number, variant in enumerate(variants)]
    choice: dict[str, Any] = {
        "name": field["name"],
        "label": label,
        "type": "select",
        "required": field["required"],
        "description": field.get("description", ""),
        "options": options,
    }
    preset = _NO_VALUE if value is _NO_VALUE else _fitting(variants, value)
    chosen = yield from _scalar(choice, preset, label)
    if chosen is NOT_GIVEN or chosen is None:
        return NOT_GIVEN
    return (yield from _ask({**variants[chosen], "label": label, "required": True}, value, ""))


def _fitting(variants: Sequence[Mapping[str, Any]], value: Any) -> Any:
    """The variant a present value most likely is."""
    wanted = {
        str: ("text", "select", "secret"),
        bool: ("boolean",),
        int: ("number",),
        float: ("number",),
        list: ("list", "multiselect", "json"),
        dict: ("group", "json"),
    }.get(type(value), ())
    return next((number for number, variant in enumerate(variants) if variant["type"] in wanted), _NO_VALUE)
