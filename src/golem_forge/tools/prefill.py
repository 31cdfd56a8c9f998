"""A form with the values that are there already: `prefilled` fills it in, without what a secret field holds.

`masked` gives the values with a placeholder for each of those, for showing; `with_secrets_kept` puts back the secrets
that a person left empty; `secret_texts` gives what the secret ones hold. Threat: a card goes to every screen that is
attached, and to the journal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

MASK: Final = "[secret, not shown]"
Field = Mapping[str, Any]


def prefilled(fields: Sequence[Field], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_filled(field, values[field["name"]]) if field["name"] in values else dict(field) for field in fields]


def masked(fields: Sequence[Field], values: Mapping[str, Any]) -> dict[str, Any]:
    by_name = {field["name"]: field for field in fields}
    return {name: _masked(by_name[name], value) if name in by_name else value for name, value in values.items()}


def with_secrets_kept(fields: Sequence[Field], edited: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A secret that was left empty, or sent back as its placeholder, stays what it was."""
    kept = dict(edited)
    for field in fields:
        name = field["name"]
        if name in before and (value := _kept(field, edited.get(name), before[name])) is not None:
            kept[name] = value
    return kept


def secret_texts(fields: Sequence[Field], values: Mapping[str, Any]) -> Iterator[str]:
    for field in fields:
        yield from _secret_texts(field, values.get(field["name"]))


def secret_fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Those of its fields that are secret or have such a part; none for most tools, which costs them a look."""
    if not _mentions_secret(schema):
        return ()
    from golem_forge.tools.fields import derive_fields

    return tuple(field for field in derive_fields(schema) if holds_secret(field))


def _mentions_secret(schema: Any) -> bool:
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            if part.get("writeOnly") is True or part.get("format") == "password":
                return True
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return False


def holds_secret(field: Field) -> bool:
    inner = (*field.get("fields", ()), *field.get("variants", ()), *([field["item"]] if "item" in field else ()))
    return field["type"] == "secret" or any(holds_secret(each) for each in inner)


def _filled(field: Field, value: Any) -> dict[str, Any]:
    filled = dict(field)
    kind = field["type"]
    if kind in ("fixed", "secret"):
        return filled
    if kind == "group" and isinstance(value, Mapping):
        filled["fields"] = prefilled(field["fields"], value)
    elif not holds_secret(field):
        if "default" in field and field["default"] is None:
            filled["nullable"] = True  # left empty it still sends null, although its default is a value now
        filled["default"] = value
    return filled


def _masked(field: Field, value: Any) -> Any:
    if not holds_secret(field) or value is None:
        return value
    if field["type"] == "group" and isinstance(value, Mapping):
        return masked(field["fields"], value)
    if field["type"] == "list" and isinstance(value, list):
        return [_masked(field["item"], item) for item in value]
    return MASK  # a secret, or a choice of which one branch would be one


def _secret_texts(field: Field, value: Any) -> Iterator[str]:
    if not holds_secret(field):
        return
    if field["type"] == "group" and isinstance(value, Mapping):
        yield from secret_texts(field["fields"], value)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_texts(field.get("item", field), item)
    elif isinstance(value, str):
        yield value


def _kept(field: Field, edited: Any, before: Any) -> Any:
    """None: nothing is put back."""
    if not holds_secret(field):
        return None
    if field["type"] == "group" and isinstance(edited, Mapping) and isinstance(before, Mapping):
        return with_secrets_kept(field["fields"], edited, before)
    if field["type"] == "list" and isinstance(edited, list) and isinstance(before, list) and len(edited) == len(before):
        pairs = [(_kept(field["item"], *pair), pair[0]) for pair in zip(edited, before, strict=True)]
        return [item if kept is None else kept for kept, item in pairs]
    if field["type"] == "group" or field["type"] == "list":
        return before if edited is None and field["type"] == "group" else None
    return before if edited in (None, "", MASK) else None
