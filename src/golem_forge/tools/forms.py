"""What a filled form submits: field values → arguments, by the rules of the fields.

Empty optional fields are left out, an empty field that may be null sends null, fixed values are always sent. The
arguments are validated with the full schema afterwards; nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_LEFT_OUT: Final = object()


def form_arguments(fields: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values`: by field name; a name that is missing is a field left empty. Names without a field are dropped."""
    submitted = {field["name"]: _submitted(field, values.get(field["name"], _LEFT_OUT)) for field in fields}
    return {name: value for name, value in submitted.items() if value is not _LEFT_OUT}


def errors_by_field(problems: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Problems by the path they are at (`tags[0].name`) → what is said at each field; the empty name: at none."""
    found: dict[str, list[str]] = {}
    for path, words in problems:
        name = path.partition(".")[0].partition("[")[0]
        found.setdefault(name, []).append(words if path == name else f"{path}: {words}")
    return {name: "; ".join(words) for name, words in found.items()}


def _submitted(field: Mapping[str, Any], value: Any) -> Any:
    kind = field["type"]
    if kind == "fixed":
        return field["default"]
    if kind == "group" and (isinstance(value, Mapping) or (field["required"] and value is _LEFT_OUT)):
        return form_arguments(field["fields"], value if isinstance(value, Mapping) else {})
    if _is_empty(field, value):
        return None if _may_be_null(field) else _LEFT_OUT
    if kind == "list" and isinstance(value, (list, tuple)):
        items = ((item, _submitted(field["item"], item)) for item in value)
        return [item if submitted is _LEFT_OUT else submitted for item, submitted in items]
    return value


def _is_empty(field: Mapping[str, Any], value: Any) -> bool:
    """An empty text is a value where text is required, and no value everywhere else."""
    if value is _LEFT_OUT or value is None:
        return True
    return value == "" and not (field["required"] and field["type"] in ("text", "secret", "json", "variants", "select"))


def _may_be_null(field: Mapping[str, Any]) -> bool:
    return bool(field.get("nullable")) or ("default" in field and field["default"] is None)
