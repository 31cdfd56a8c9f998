"""How much work a JSON Schema can cause, estimated before any instance is checked against it.

Threat: a few kilobytes of `anyOf` that refer to each other twice per step mean billions of evaluations, and explaining
a failure costs far more than finding one. Whoever wrote the schema (a foreign server) may also write the instance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

CAP: Final = 10**9
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SAME_PLACE: Final = ("not", "if", "then", "else")
_SAME_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems", "contains")
_HOLDERS: Final = ("$defs", "definitions")


class Paths(NamedTuple):
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
        self.width = min(found.ways, CAP)
        self.growth = max(found.returns, 1)

    def of(self, values: int, levels: int) -> int:
        cost = self.width * values
        for _ in range(levels if self.growth > 1 else 0):
            cost *= self.growth
            if cost > CAP:
                return CAP
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
            *((None, _list(part.get(name))) for name in _SAME_PLACE_LISTS),
            *((None, [part.get(name)]) for name in _SAME_PLACE),
            *((None, _values(part.get(name))) for name in _SAME_PLACE_MAPS),
            (node.members, _values(part.get("properties"))),
            *((node.members, [value]) for value in _values(part.get("patternProperties"))),
            *((node.members, [part.get(name)]) for name in _MEMBERS),
            *((node.items, _list(part.get(name)) or [part.get(name)]) for name in _ITEMS),
            (node.items, _list(part.get("prefixItems"))),
        ]
        for into, candidates in groups:
            children = [child for child in candidates if isinstance(child, dict)]
            if into is None:
                node.same.extend(map(id, children))
            elif children:
                into.append([id(child) for child in children])
            yield from children
        for name in _HOLDERS:
            yield from (child for child in _values(part.get(name)) if isinstance(child, dict))

    def _connect(self) -> None:
        for source, target in self._references:
            place, fragment = urldefrag(target)
            found = self._anchors.get(target) or id(_at_pointer(self._places.get(place), unquote(fragment)))
            if found in self._nodes:
                self._nodes[source].same.append(found)

    def _count(self, root: int) -> Paths:
        """Children first, without recursion: a chain of references may be longer than Python's stack."""
        done: dict[int, tuple[Paths, Paths]] = {}
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
        return _larger(*done[root])

    def _sum(self, node: _Node, done: dict[int, tuple[Paths, Paths]]) -> tuple[Paths, Paths]:
        """(paths if the value is an object, paths if it is an array). A child still open leads back: a return."""
        sums = []
        for kind, groups in enumerate((node.members, node.items)):
            ways, returns = 1, 0
            for child in node.same:
                paths = done[child][kind] if child in done else _BACK
                ways, returns = ways + paths.ways, returns + paths.returns
            for group in groups:
                largest = _larger(*(_larger(*done[child]) if child in done else _BACK for child in group))
                ways, returns = ways + largest.ways, returns + largest.returns
            sums.append(Paths(min(ways, CAP), min(returns, CAP)))
        return sums[0], sums[1]


_BACK: Final = Paths(1, 1)


def _larger(*paths: Paths) -> Paths:
    return Paths(max(one.ways for one in paths), max(one.returns for one in paths))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(value: Any) -> list[Any]:
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
