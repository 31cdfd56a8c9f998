"""Forms: a schema as form fields, values filled in, and what a filled form submits.

`derive_fields` takes a JSON Schema, a pydantic model or a Tool and gives one dict per parameter, in declared order:
`{name, label, type, required, description, default?, options?, min?, max?, step?, pattern?, format?, fields?, item?,
variants?, secret?}`; TypeError for anything else, also for a schema that is not an object's. A field that may be null
has the default None and is not required: left empty it sends null. A schema too wide or too deep for a form ends in
`json` fields; `secret: true` stands at one in which a secret may be, which is hidden as a whole.

`form_arguments` gives the arguments a filled form submits: empty optional fields are left out, an empty field that may
be null sends null, fixed values are always sent. The full schema validates them afterwards; nothing is checked here.

`prefill_fields` fills in present values, without those of secret fields. `mask_secrets` puts a placeholder there, for
showing; `restore_secrets` puts back the secrets that a user left empty; `secret_texts` gives the secret values. Threat:
a card goes to every attached screen, and to the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from golem_forge.core.json import compact_json, safe_json
from golem_forge.tools.schema import ResolvedSchema, alternatives, resolve_schema

_MAX_RECURSION: Final = 5
_MAX_LEVELS: Final = 20
_MAX_FIELDS: Final = 1000
"""Threat: a few definitions that refer to each other twice per step describe more fields than a screen or a day has."""
_MULTILINE_CHARS: Final = 200
_FORMATS: Final = frozenset({"date", "date-time", "time", "email", "uri"})


def derive_fields(schema: Any) -> list[dict[str, Any]]:
    root = schema if isinstance(schema, dict) else _schema_of(schema)
    reading = resolve_schema(root, root)
    if not _is_object(reading.schema):
        if (kind := reading.schema.get("type")) is not None:
            raise TypeError(f"derive_fields: a form needs a schema of type object, not {kind!r}")
        return []
    return _FormBuilder(root).members(reading, {}, 0)


derive_fields_from_schema = derive_fields
"""The name that the design documents have for it."""


def _schema_of(given: Any) -> dict[str, Any]:
    build = getattr(given, "model_json_schema", None)
    schema = build(by_alias=True) if build is not None else getattr(given, "input_schema", given)
    if not isinstance(schema, Mapping):
        raise TypeError(
            f"derive_fields takes a JSON Schema, a pydantic model or a Tool, not {repr(given)[:60]}; "
            "tool(function) makes one of a function"
        )
    return dict(schema)


class _FormBuilder:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _MAX_FIELDS

    def members(self, reading: ResolvedSchema, seen: dict[str, int], level: int) -> list[dict[str, Any]]:
        properties = reading.schema.get("properties")
        required = reading.schema.get("required")
        needed = required if isinstance(required, list) else ()
        if not isinstance(properties, dict):
            return []
        seen = _count_references(seen, reading)
        return [self.field(str(name), part, name in needed, seen, level) for name, part in properties.items()]

    def field(self, name: str, part: Any, listed: bool, seen: dict[str, int], level: int) -> dict[str, Any]:
        self._left -= 1
        reading = resolve_schema(part, self._root)
        schema = reading.schema
        field: dict[str, Any] = {
            "name": name,
            # Its own title, not that of a schema it refers to: a parameter `billing` of type Address is Billing.
            "label": (_text(part.get("title")) if isinstance(part, dict) else "") or _label(name),
            "type": "json",
            "required": listed and "default" not in schema and not reading.nullable,
            "description": _text(schema.get("description")),
        }
        if reading.nullable or schema.get("default") is not None:
            field["default"] = schema.get("default")
        counted = _count_references(seen, reading)
        too_much = self._left < 0 or level > _MAX_LEVELS or max(counted.values(), default=0) > _MAX_RECURSION
        if not too_much:
            field.update(self._form_of(schema, name, counted, level))
        if field["type"] not in ("secret", "fixed", "select") and _is_secret(schema):
            field = {key: field[key] for key in ("name", "label", "required", "description")} | {"type": "json"}
        if field["type"] == "json" and _mentions_secret(schema, self._root):
            field["secret"] = True
        if _is_hidden(field):
            field.pop("default", None)
            if reading.nullable:
                field["default"] = None
        return field

    def _form_of(self, schema: dict[str, Any], name: str, seen: dict[str, int], level: int) -> dict[str, Any]:
        if "const" in schema:
            return {"type": "fixed", "default": schema["const"]}
        if (options := _options(schema, self._root)) is not None:
            return {"type": "select", "options": options}
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return self._variants([{**schema, "type": kind} for kind in kinds], name, seen, level)
        if choices := alternatives(schema):
            around = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf", *_DESCRIPTIVE_KEYS)}
            members = [{**around, **choice} if isinstance(choice, dict) else choice for choice in choices]
            return self._variants(members, name, seen, level)
        if kinds == "string":
            return _string(schema)
        if kinds in ("number", "integer"):
            return {"type": "number", **_range(schema, kinds)}
        if kinds == "boolean":
            return {"type": "boolean"}
        if kinds == "array":
            return self._array(schema, name, seen, level)
        if _is_object(schema) and schema.get("properties"):
            return {"type": "group", "fields": self.members(ResolvedSchema(schema, False, ()), seen, level + 1)}
        return {"type": "json"}

    def _array(self, schema: dict[str, Any], name: str, seen: dict[str, int], level: int) -> dict[str, Any]:
        limits = {
            key: schema[keyword]
            for key, keyword in (("min", "minItems"), ("max", "maxItems"))
            if isinstance(schema.get(keyword), int)
        }
        if "prefixItems" in schema or isinstance(schema.get("items"), list):
            return {"type": "json"}
        items = resolve_schema(schema.get("items"), self._root)
        options = _options(items.schema, self._root)
        if options is not None and not items.nullable:
            return {"type": "multiselect", "options": options, **limits}
        item = self.field(name, schema.get("items"), True, seen, level + 1)
        return {"type": "list", "item": item, **limits}

    def _variants(self, members: list[Any], name: str, seen: dict[str, int], level: int) -> dict[str, Any]:
        variants = []
        for number, member in enumerate(members, 1):
            variant = self.field(name, member, True, seen, level + 1)
            schema = resolve_schema(member, self._root).schema
            variant["label"] = (
                _text(schema.get("title")) or _text(schema.get("type")).capitalize() or f"Option {number}"
            )
            variants.append(variant)
        return {"type": "variants", "variants": variants}


_DESCRIPTIVE_KEYS: Final = ("title", "description", "default", "examples")


def _string(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("format")
    if kind == "password" or schema.get("writeOnly") is True:
        return {"type": "secret"}
    field: dict[str, Any] = {"type": "text"}
    if isinstance(pattern := schema.get("pattern"), str):
        field["pattern"] = pattern
    if isinstance(kind, str) and kind in _FORMATS:
        field["format"] = kind
    elif any(length > _MULTILINE_CHARS for length in _numbers(schema.get("maxLength"))) or "contentMediaType" in schema:
        field["format"] = "multiline"
    return field


def _range(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """min, max and step; an exclusive limit of an integer is the next integer."""
    step = 1 if kind == "integer" else 0
    found: dict[str, Any] = {}
    lowest = _numbers(schema.get("minimum")) + [limit + step for limit in _numbers(schema.get("exclusiveMinimum"))]
    highest = _numbers(schema.get("maximum")) + [limit - step for limit in _numbers(schema.get("exclusiveMaximum"))]
    if lowest:
        found["min"] = max(lowest)
    if highest:
        found["max"] = min(highest)
    for size in _numbers(schema.get("multipleOf")):
        found["step"] = size
    return found


def _options(schema: dict[str, Any], root: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Choices of an enum, or of alternatives that are all constants; None if it is neither."""
    if isinstance(values := schema.get("enum"), list) and values:
        return [{"value": value, "label": _option_label(value)} for value in values]
    options = []
    for member in alternatives(schema):
        choice = resolve_schema(member, root).schema
        if "const" not in choice:
            return None
        label = _text(choice.get("title")) or _option_label(choice["const"])
        options.append({"value": choice["const"], "label": label})
    return options or None


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "object" or (kind is None and isinstance(schema.get("properties"), dict))


def _count_references(seen: dict[str, int], reading: ResolvedSchema) -> dict[str, int]:
    """Returns how often each reference was followed up to here."""
    if not reading.references:
        return seen
    return {**seen, **{reference: seen.get(reference, 0) + 1 for reference in reading.references}}


def _label(name: str) -> str:
    words = name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:] if words else name


def _option_label(value: Any) -> str:
    return value if isinstance(value, str) else compact_json(safe_json(value)[0])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _numbers(value: Any) -> list[int | float]:
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


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
        may_be_null = bool(field.get("nullable")) or ("default" in field and field["default"] is None)
        return None if may_be_null else _LEFT_OUT
    if kind == "list" and isinstance(value, (list, tuple)):
        items = ((item, _submitted(field["item"], item)) for item in value)
        return [item if submitted is _LEFT_OUT else submitted for item, submitted in items]
    return value


def _is_empty(field: Mapping[str, Any], value: Any) -> bool:
    """An empty text is a value where text is required, and no value everywhere else."""
    if value is _LEFT_OUT or value is None:
        return True
    return value == "" and not (field["required"] and field["type"] in ("text", "secret", "json", "variants", "select"))


MASK: Final = "[secret, not shown]"
FormField = Mapping[str, Any]


def prefill_fields(fields: Sequence[FormField], values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_filled_field(field, values[field["name"]]) if field["name"] in values else dict(field) for field in fields]


def mask_secrets(fields: Sequence[FormField], values: Mapping[str, Any], mask: str = MASK) -> dict[str, Any]:
    """Returns the values with `mask` in place of each secret, at any depth."""
    by_name = {field["name"]: field for field in fields}
    return {
        name: _mask_value(by_name[name], value, mask) if name in by_name else value for name, value in values.items()
    }


def restore_secrets(
    fields: Sequence[FormField], edited: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, Any]:
    """A secret that was left empty, or sent back as its placeholder, stays what it was."""
    kept = dict(edited)
    for field in fields:
        name = field["name"]
        if name in before and (value := _restored_value(field, edited.get(name), before[name])) is not None:
            kept[name] = value
    return kept


def secret_texts(fields: Sequence[FormField], values: Mapping[str, Any]) -> Iterator[str]:
    for field in fields:
        yield from _secret_texts(field, values.get(field["name"]))


def secret_fields(schema: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Returns the fields that are secret or contain a secret; a quick test handles schemas without any."""
    return tuple(filter(holds_secret, derive_fields(schema))) if _mentions_secret(schema, {}) else ()


def _is_secret(schema: Mapping[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


def _mentions_secret(schema: Any, root: dict[str, Any]) -> bool:
    """Whether a secret stands anywhere in the schema, or in a part of the root that it refers to."""
    parts, followed = [schema], set()
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            if _is_secret(part):
                return True
            parts += part.values()
            if isinstance(reference := part.get("$ref"), str) and reference not in followed:
                followed.add(reference)
                parts.append(resolve_schema({"$ref": reference}, root).schema)
        elif isinstance(part, list):
            parts += part
    return False


def holds_secret(field: FormField) -> bool:
    inner = (*field.get("fields", ()), *field.get("variants", ()), *([field["item"]] if "item" in field else ()))
    return _is_hidden(field) or any(holds_secret(each) for each in inner)


def _is_hidden(field: FormField) -> bool:
    return field["type"] == "secret" or field.get("secret") is True


def _filled_field(field: FormField, value: Any) -> dict[str, Any]:
    filled = dict(field)
    kind = field["type"]
    if kind in ("fixed", "secret"):
        return filled
    if _is_hidden(field):
        return {**filled, "required": False}  # left empty it stays what it is
    if kind == "group" and isinstance(value, Mapping):
        filled["fields"] = prefill_fields(field["fields"], value)
    elif not holds_secret(field):
        if "default" in field and field["default"] is None:
            filled["nullable"] = True  # left empty it still sends null, although its default is a value now
        filled["default"] = value
    return filled


def _mask_value(field: FormField, value: Any, mask: str) -> Any:
    if not holds_secret(field) or value is None:
        return value
    if field["type"] == "group" and isinstance(value, Mapping):
        return mask_secrets(field["fields"], value, mask)
    if field["type"] == "list" and isinstance(value, list):
        return [_mask_value(field["item"], item, mask) for item in value]
    return mask  # a secret, or a choice of which one branch would be one


def _secret_texts(field: FormField, value: Any) -> Iterator[str]:
    if not holds_secret(field):
        return
    if field["type"] == "group" and isinstance(value, Mapping):
        yield from secret_texts(field["fields"], value)
    elif field["type"] == "variants":
        for variant in field["variants"]:
            yield from _secret_texts(variant, value)
    elif field["type"] == "json" and isinstance(value, Mapping):
        for part in value.values():
            yield from _secret_texts(field, part)
    elif isinstance(value, list):
        for item in value:
            yield from _secret_texts(field.get("item", field), item)
    elif isinstance(value, str):
        yield value


def _restored_value(field: FormField, edited: Any, before: Any) -> Any:
    """Returns the value with its hidden secrets put back; None if there is nothing to put back."""
    if not holds_secret(field):
        return None
    if field["type"] == "group" and isinstance(edited, Mapping) and isinstance(before, Mapping):
        return restore_secrets(field["fields"], edited, before)
    if field["type"] == "list" and isinstance(edited, list) and isinstance(before, list) and len(edited) == len(before):
        pairs = [(_restored_value(field["item"], *pair), pair[0]) for pair in zip(edited, before, strict=True)]
        return [item if kept is None else kept for kept, item in pairs]
    if field["type"] == "group" or field["type"] == "list":
        return before if edited is None and field["type"] == "group" else None
    return before if edited in (None, "", MASK) else None
