"""JSON Schemas as data: local references resolved, what a model is sent, paths into a value, and the cost of a schema.

`resolve_schema` follows local references and removes the null of a nullable schema; it serves the places where a person
types or fills in values (options, forms). Validation is `tools.validation`.

`model_schema` gives the form that is sent to models: the shape without bounds and references. `bare_schema` gives the
least that every server reads.

`field_path` and `json_path` write where in a value something is: `items[0].name` for people and forms,
`$.items[0].name` for a whole value.

`SchemaCost` estimates how much work a schema can cause, before any instance is checked against it. Threat: a few
kilobytes of `anyOf` that refer to each other twice per step mean billions of evaluations, and explaining a failure
costs far more than finding one. The author of the schema (a foreign server) may also write the instance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.regex import regex
from golem_forge.core.text import clip

_MAX_STEPS: Final = 32
_ALTERNATIVES: Final = ("anyOf", "oneOf")


class ResolvedSchema(NamedTuple):
    schema: dict[str, Any]
    """The schema without references at its top and without its null alternative."""
    nullable: bool
    references: tuple[str, ...]


def resolve_schema(schema: Any, root: dict[str, Any]) -> ResolvedSchema:
    """Anything that is not a schema object reads as `{}`: everything is allowed."""
    followed: list[str] = []
    current = schema if isinstance(schema, dict) else {}
    nullable = False
    for _ in range(_MAX_STEPS):
        if isinstance(reference := current.get("$ref"), str):
            followed.append(reference)
            target = _local_reference(reference, root)
            current = {**target, **{key: value for key, value in current.items() if key != "$ref"}}
            continue
        unwrapped = _unwrap_alternative(current)
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
    return ResolvedSchema(current, nullable, tuple(followed))


def with_defaults(value: Any, part: Any, root: dict[str, Any], level: int = 0) -> Any:
    """A copy of a JSON value in which each property that is left out has the default of its schema, at every level."""
    schema = resolve_schema(part, root).schema
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
        if name not in filled and "default" in (described := resolve_schema(one, root).schema):
            filled[name] = with_defaults(described["default"], one, root, level + 1)
    return filled


def alternatives(schema: dict[str, Any]) -> list[Any]:
    """The members of anyOf or oneOf, empty if there are none."""
    for keyword in _ALTERNATIVES:
        if isinstance(members := schema.get(keyword), list) and members:
            return members
    return []


def _unwrap_alternative(schema: dict[str, Any]) -> tuple[dict[str, Any], bool] | None:
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


def _local_reference(reference: str, root: dict[str, Any]) -> dict[str, Any]:
    place = _at_pointer(root, unquote(reference[1:])) if reference.startswith("#") else None
    return place if isinstance(place, dict) else {}


_SIZES: Final = {
    "minLength": ("at least", "character"),
    "maxLength": ("at most", "character"),
    "minItems": ("at least", "item"),
    "maxItems": ("at most", "item"),
    "minProperties": ("at least", "key"),
    "maxProperties": ("at most", "key"),
    "minContains": ("at least", "matching item"),
    "maxContains": ("at most", "matching item"),
}
_RANGES: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_LONGEST_RANGE: Final = 10**15
"""llama.cpp writes a range as digits, 16 at most."""
_TOLD_SIZE: Final = 100
"""The largest bound that a model is told in words: it writes longer values seldom, and is told then."""
_TOLD_PATTERN: Final = 80
_ANNOTATIONS: Final = frozenset(
    ("description", "title", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
)
_MAX_INLINED: Final = 2_000
"""Parts of a schema whose references are written out."""


def model_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The same shape without what a server may refuse to enforce while the model writes; the same object if nothing is
    left out. Every value that fits `schema` fits the result.

    A server that compiles schemas into a grammar (llama.cpp, LM Studio) repeats a rule for every character and item
    that is allowed, and answers 400 to the whole request when these are too many, or when it cannot read a pattern.
    Others know no references. So sizes, patterns and ranges beyond 15 digits are left out, short ones become a sentence
    of the description, and references are written out; where one leads back into itself, anything is allowed. What
    stays is cheap everywhere: types, choices, ordinary ranges, and a least size of one.
    """
    shaped: dict[str, Any] = _shape(_Inlined(schema).schema)
    for keyword in ("$schema", "$comment", "title"):
        shaped.pop(keyword, None)
    return schema if shaped == schema else shaped


def bare_schema(schema: Any) -> dict[str, Any]:
    """Returns a schema that every server accepts (types, properties, items, choices, descriptions), for a server that
    refused more.
    """
    bare: dict[str, Any] = _bare(_Inlined(schema).schema if isinstance(schema, dict) else {})
    return {**bare, "type": "object", "properties": bare.get("properties", {})}


def _bare(part: Any) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {}
    unwrapped = _unwrap_alternative(part)
    part = part if unwrapped is None else unwrapped[0]
    kind = part.get("type")
    kinds = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind]
    bare: dict[str, Any] = {"type": kinds[0]} if len(kinds) == 1 and isinstance(kinds[0], str) else {}
    if isinstance(said := part.get("description"), str):
        bare["description"] = said
    choices = part.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(each, str) for each in choices):
        bare |= {"type": "string", "enum": choices}
    properties = part.get("properties")
    if bare.get("type") == "object" or isinstance(properties, dict):
        known = {name: _bare(child) for name, child in properties.items()} if isinstance(properties, dict) else {}
        bare |= {"type": "object", "properties": known}
        required = part.get("required")
        if isinstance(required, list) and (named := [name for name in required if name in known]):
            bare["required"] = named
    elif bare.get("type") == "array":
        bare["items"] = _bare(part.get("items"))
    return bare


_USUAL: Final = {"type", "properties", "required", "items", "enum", "description", "default", "title"} | {
    "minimum",
    "maximum",
    "minLength",
    "minItems",
    "additionalProperties",
}


def has_unusual_keywords(schema: Any) -> bool:
    """Whether a server that knows only plain schemas might refuse it."""
    pending = [schema]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if not part.keys() <= _USUAL or not isinstance(part.get("type", ""), str):
                return True
            properties = part.get("properties")
            pending.extend(properties.values() if isinstance(properties, dict) else ())
            pending.append(part.get("items"))
    return False


class _Inlined:
    """A schema with its local references written out, and without definitions. The schema itself where it is too large
    for that, or names its parts otherwise than by pointer."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._count = 0
        self.schema = schema
        if _uses_references(schema):
            try:
                self.schema = self._write(schema, ())
            except _TooLarge:
                return
            for holder in _HOLDERS:
                self.schema.pop(holder, None)

    def _write(self, part: Any, followed: tuple[str, ...]) -> Any:
        self._count += 1
        if self._count > _MAX_INLINED or len(followed) > _MAX_STEPS:
            raise _TooLarge
        if not isinstance(part, dict):
            return part
        if any(keyword in part for keyword in ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")):
            raise _TooLarge
        if part is not self._root and ("$id" in part or ("id" in part and isinstance(part["id"], str))):
            raise _TooLarge
        reference = part.get("$ref")
        if isinstance(reference, str):
            return self._follow(part, reference, followed)
        written: dict[str, Any] = {}
        for keyword, value in part.items():
            if keyword in ("not", "if") and _uses_references(value):
                continue  # a part that allows more, negated, would allow less
            if keyword in _SHAPE_MAPS and isinstance(value, dict):
                if keyword not in _HOLDERS:
                    written[keyword] = {name: self._write(child, followed) for name, child in value.items()}
            elif keyword in _SHAPE_LISTS and isinstance(value, list):
                written[keyword] = [self._write(child, followed) for child in value]
            else:
                written[keyword] = self._write(value, followed) if keyword in _SHAPE_PARTS else value
        if "if" in part and "if" not in written:
            written.pop("then", None)
            written.pop("else", None)
        return written

    def _follow(self, part: dict[str, Any], reference: str, followed: tuple[str, ...]) -> Any:
        beside = {keyword: value for keyword, value in part.items() if keyword != "$ref"}
        target = _local_reference(reference, self._root)
        if reference in followed:
            kind = target.get("type")
            said: dict[str, Any] = {"type": kind} if isinstance(kind, str) else {}
            return said | {keyword: value for keyword, value in beside.items() if keyword == "description"}
        written = self._write(target, (*followed, reference))
        if not isinstance(written, dict) or not beside:
            return written
        if beside.keys() <= _ANNOTATIONS:
            return written | beside
        return {"allOf": [written, self._write(beside, followed)]}


class _TooLarge(Exception):
    """The references of a schema cannot be written out."""


def _uses_references(part: Any) -> bool:
    pending = [part]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            if any(keyword in current for keyword in (*_REFERENCES, *_HOLDERS)):
                return True
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)
    return False


def _shape(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    shaped: dict[str, Any] = {}
    bounds = []
    for keyword, value in part.items():
        if _is_bound(keyword, value):
            bounds.append(_bound_in_words(keyword, value))
        elif keyword == "properties" and isinstance(value, dict):
            shaped[keyword] = {name: _without_title(name, _shape(child)) for name, child in value.items()}
        elif keyword in _SHAPE_MAPS and isinstance(value, dict):
            shaped[keyword] = {name: _shape(child) for name, child in value.items()}
        elif keyword in _SHAPE_LISTS and isinstance(value, list):
            shaped[keyword] = [_shape(child) for child in value]
        else:
            shaped[keyword] = _shape(value) if keyword in _SHAPE_PARTS else value
    # A condition that allows more says something else, where it is negated.
    if shaped.get("not") != part.get("not"):
        del shaped["not"]
    if shaped.get("if") != part.get("if"):
        shaped = {keyword: value for keyword, value in shaped.items() if keyword not in ("if", "then", "else")}
    if words := ", ".join(filter(None, bounds)):
        said = shaped.get("description")
        before = said.rstrip() if isinstance(said, str) else ""
        before += "" if before.endswith((".", "!", "?")) or not before else "."
        shaped["description"] = f"{before} {words[0].upper()}{words[1:]}.".lstrip()
    return shaped


def _without_title(name: str, part: Any) -> Any:
    """pydantic gives every field a title that says its name again."""
    title = part.get("title") if isinstance(part, dict) else None
    if not isinstance(title, str) or title.replace(" ", "").lower() != name.replace("_", "").lower():
        return part
    return {keyword: value for keyword, value in part.items() if keyword != "title"}


def _is_bound(keyword: str, value: Any) -> bool:
    if keyword == "pattern":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if keyword in _RANGES:
        return not -_LONGEST_RANGE <= value <= _LONGEST_RANGE
    return keyword in _SIZES and (keyword.startswith("max") or value > 1)


def _bound_in_words(keyword: str, value: Any) -> str:
    """Describes a limit for the model; empty if the model does not need to know it."""
    if keyword == "pattern":
        return f"matches `{value}`" if len(value) <= _TOLD_PATTERN else ""
    if keyword in _RANGES or value > _TOLD_SIZE:
        return ""
    limit, noun = _SIZES[keyword]
    return f"{limit} {int(value)} {noun}{'' if value == 1 else 's'}"


_BARE_IN_PATH: Final = regex(r"[A-Za-z_$][A-Za-z0-9_$]*")
_BARE_FIELD: Final = regex(r"[^\s.\[\]\"'\x00-\x1f\x7f]+")
_MAX_PARTS: Final = 40
_MAX_KEY: Final = 100


def field_path(parts: Iterable[str | int]) -> str:
    """Empty for the value itself. A field name such as `dry-run` stays as it is."""
    text = _join_parts(parts, _BARE_FIELD)
    return text[1:] if text.startswith(".") else text


def json_path(parts: Iterable[str | int]) -> str:
    """`$` for the value itself; keys that are not identifiers are quoted: `$["a b"][0]`."""
    return "$" + _join_parts(parts, _BARE_IN_PATH)


def instance_path(value: Any, location: Sequence[str | int], is_missing: bool) -> list[str | int]:
    """pydantic's location without the names of union members and models it puts between real keys."""
    path: list[str | int] = []
    inner = value
    for part in location:
        try:
            inner = inner[part] if hasattr(inner, "__getitem__") else getattr(inner, str(part))
            path.append(part)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue
    return [*path, location[-1]] if is_missing and location else path


def _join_parts(parts: Iterable[str | int], bare: re.Pattern[str]) -> str:
    pieces = []
    for number, part in enumerate(parts):
        if number == _MAX_PARTS:
            pieces.append("…")
            break
        if isinstance(part, int):
            pieces.append(f"[{part}]")
        elif bare.fullmatch(part) and len(part) <= _MAX_KEY:
            pieces.append(f".{part}")
        else:
            pieces.append(f"[{json.dumps(clip(part, _MAX_KEY))}]")
    return "".join(pieces)


MAX_COST: Final = 10**9
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE: Final = ("not", "if", "then", "else")
_SAME_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_HOLDERS: Final = ("$defs", "definitions")
_SHAPE_MAPS: Final = frozenset((*_HOLDERS, *_SAME_PLACE_MAPS, "properties", "patternProperties"))
_SHAPE_LISTS: Final = frozenset((*_SAME_PLACE_LISTS, "prefixItems", "items"))
_SHAPE_PARTS: Final = frozenset((*_SAME_PLACE, *_MEMBERS, *_ITEMS))


class PathCount(NamedTuple):
    """Ways through a schema for one place of an instance, and how many of them lead back into the schema itself."""

    ways: int
    returns: int


@dataclass(slots=True)
class _Node:
    same: list[int] = field(default_factory=list)
    """Subschemas applied to the same value."""
    members: list[list[int]] = field(default_factory=list)
    """Groups of subschemas for members of an object; of each group at most one applies to one member."""
    items: list[list[int]] = field(default_factory=list)


class SchemaCost:
    """`width`: evaluations per value of an instance; `growth`: by what that is multiplied with every level down."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.has_alternatives = False
        self._nodes: dict[int, _Node] = {}
        self._references: list[tuple[int, str]] = []
        self._places: dict[str, Any] = {}
        self._anchors: dict[str, int] = {}
        self._collect(schema)
        self._connect()
        found = self._count(id(schema))
        self.width = min(found.ways, MAX_COST)
        self.growth = max(found.returns, 1)

    def of(self, values: int, levels: int) -> int:
        cost = self.width * values
        for _ in range(levels if self.growth > 1 else 0):
            cost *= self.growth
            if cost > MAX_COST:
                return MAX_COST
        return cost

    def _collect(self, schema: dict[str, Any]) -> None:
        self._places[""] = schema
        pending: list[tuple[Any, str]] = [(schema, "")]
        while pending:
            part, base = pending.pop()
            if not isinstance(part, dict) or id(part) in self._nodes:
                continue
            if isinstance(own := part.get("$id", part.get("id")), str):
                base = urldefrag(urljoin(base, own))[0]
                self._places[base] = part
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(name := part.get(keyword), str):
                    self._anchors[f"{base}#{name}"] = id(part)
            node = self._nodes[id(part)] = _Node()
            for keyword in _REFERENCES:
                if isinstance(target := part.get(keyword), str):
                    self._references.append((id(part), urljoin(base, target) if target[:1] != "#" else base + target))
            pending.extend((child, base) for child in self._children(part, node))

    def _children(self, part: dict[str, Any], node: _Node) -> Iterator[dict[str, Any]]:
        self.has_alternatives = self.has_alternatives or "anyOf" in part or "oneOf" in part
        groups: list[tuple[list[list[int]] | None, list[Any]]] = [
            *((None, _as_list(part.get(name))) for name in _SAME_PLACE_LISTS),
            *((None, [part.get(name)]) for name in _SAME_PLACE),
            *((None, _as_values(part.get(name))) for name in _SAME_PLACE_MAPS),
            (node.members, _as_values(part.get("properties"))),
            *((node.members, [value]) for value in _as_values(part.get("patternProperties"))),
            *((node.members, [part.get(name)]) for name in _MEMBERS),
            *((node.items, _as_list(part.get(name)) or [part.get(name)]) for name in _ITEMS),
            (node.items, _as_list(part.get("prefixItems"))),
        ]
        for into, candidates in groups:
            children = [child for child in candidates if isinstance(child, dict)]
            if into is None:
                node.same.extend(map(id, children))
            elif children:
                into.append([id(child) for child in children])
            yield from children
        for name in _HOLDERS:
            yield from (child for child in _as_values(part.get(name)) if isinstance(child, dict))

    def _connect(self) -> None:
        for source, target in self._references:
            place, fragment = urldefrag(target)
            found = self._anchors.get(target) or id(_at_pointer(self._places.get(place), unquote(fragment)))
            if found in self._nodes:
                self._nodes[source].same.append(found)

    def _count(self, root: int) -> PathCount:
        """Children first, without recursion: a chain of references may be longer than Python's stack."""
        done: dict[int, tuple[PathCount, PathCount]] = {}
        open_nodes: set[int] = set()
        stack = [root]
        while stack:
            current = stack[-1]
            if current in done:
                stack.pop()
            elif current in open_nodes:
                done[current] = self._sum(self._nodes[current], done)
                open_nodes.discard(current)
                stack.pop()
            else:
                open_nodes.add(current)
                node = self._nodes[current]
                children = (*node.same, *(child for group in (*node.members, *node.items) for child in group))
                stack.extend(child for child in children if child not in done and child not in open_nodes)
        return _largest(*done[root])

    def _sum(self, node: _Node, done: dict[int, tuple[PathCount, PathCount]]) -> tuple[PathCount, PathCount]:
        """(paths if the value is an object, paths if it is an array). A child still open leads back: a return."""
        sums = []
        for kind, groups in enumerate((node.members, node.items)):
            ways, returns = 1, 0
            for child in node.same:
                paths = done[child][kind] if child in done else _BACK_REFERENCE
                ways, returns = ways + paths.ways, returns + paths.returns
            for group in groups:
                largest = _largest(*(_largest(*done[child]) if child in done else _BACK_REFERENCE for child in group))
                ways, returns = ways + largest.ways, returns + largest.returns
            sums.append(PathCount(min(ways, MAX_COST), min(returns, MAX_COST)))
        return sums[0], sums[1]


_BACK_REFERENCE: Final = PathCount(1, 1)


def _largest(*paths: PathCount) -> PathCount:
    return PathCount(max(one.ways for one in paths), max(one.returns for one in paths))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def _at_pointer(place: Any, pointer: str) -> Any:
    for word in pointer.split("/")[1:] if pointer else ():
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict):
            place = place.get(word)
        elif isinstance(place, list) and word.isdigit() and int(word) < len(place):
            place = place[int(word)]
        else:
            return None
    return place
