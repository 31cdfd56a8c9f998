"""Reading a JSON Schema by hand: local references followed, the null of a nullable schema set aside.

Used where a person types or fills in values (options, forms). Validation proper is SchemaCheck's business.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

_MAX_STEPS: Final = 32
_ALTERNATIVES: Final = ("anyOf", "oneOf")


class Reading(NamedTuple):
    schema: dict[str, Any]
    """Without references at its top and without its null alternative."""
    nullable: bool
    references: tuple[str, ...]
    """The references that were followed to get here."""


def read_schema(schema: Any, root: dict[str, Any]) -> Reading:
    """Anything that is not a schema object reads as `{}`: everything is allowed."""
    followed: list[str] = []
    current = schema if isinstance(schema, dict) else {}
    nullable = False
    for _ in range(_MAX_STEPS):
        if isinstance(reference := current.get("$ref"), str):
            followed.append(reference)
            target = _local(reference, root)
            current = {**target, **{key: value for key, value in current.items() if key != "$ref"}}
            continue
        unwrapped = _unwrapped(current)
        if unwrapped is None:
            break
        current, was_nullable = unwrapped
        nullable = nullable or was_nullable
    if isinstance(kinds := current.get("type"), list) and "null" in kinds:
        rest = [kind for kind in kinds if kind != "null"]
        current = {**current, "type": rest[0] if len(rest) == 1 else rest}
        nullable = True
    if isinstance(options := current.get("enum"), list) and None in options and len(options) > 1:
        current = {**current, "enum": [option for option in options if option is not None]}
        nullable = True
    return Reading(current, nullable, tuple(followed))


def with_defaults(value: Any, part: Any, root: dict[str, Any], level: int = 0) -> Any:
    """A copy of a JSON value in which each property that is left out has the default of its schema, at every level."""
    schema = read_schema(part, root).schema
    if level > _MAX_STEPS:
        return value
    if isinstance(value, list):
        return [with_defaults(item, schema.get("items"), root, level + 1) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties")
    known: dict[str, Any] = properties if isinstance(properties, dict) else {}
    filled = {key: with_defaults(item, known.get(key), root, level + 1) for key, item in value.items()}
    for name, one in known.items():
        if name not in filled and "default" in (described := read_schema(one, root).schema):
            filled[name] = with_defaults(described["default"], one, root, level + 1)
    return filled


def alternatives(schema: dict[str, Any]) -> list[Any]:
    """The members of anyOf or oneOf, empty if there are none."""
    for keyword in _ALTERNATIVES:
        if isinstance(members := schema.get(keyword), list) and members:
            return members
    return []


def _unwrapped(schema: dict[str, Any]) -> tuple[dict[str, Any], bool] | None:
    """One layer of anyOf/oneOf with null, or of a combination with a single member, taken off."""
    for keyword in (*_ALTERNATIVES, "allOf"):
        members = schema.get(keyword)
        if not isinstance(members, list) or not members:
            continue
        rest = [member for member in members if not _is_null(member)] if keyword != "allOf" else members
        if len(rest) == len(members) and len(members) > 1:
            continue
        around = {key: value for key, value in schema.items() if key != keyword}
        if len(rest) == 1 and isinstance(rest[0], dict):
            return {**rest[0], **around}, len(members) > 1
        if rest and len(rest) < len(members):
            return {**around, keyword: rest}, True
    return None


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("const", 0) is None)


def _local(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    from urllib.parse import unquote

    if not reference.startswith("#"):
        return {}
    place: Any = root
    for word in unquote(reference[1:]).split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list) and word.isdigit() and int(word) < len(place):
            place = place[int(word)]
        else:
            place = place.get(word) if isinstance(place, dict) else None
    return place if isinstance(place, dict) else {}
