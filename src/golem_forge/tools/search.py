"""Search over tools: an exact name first, then BM25; names that only begin with the query come last.

The words of a tool are its name, whole and split at `_ - .` and case changes (weight 3), its description, and the names
and descriptions of its parameters. A tool of a server has two names, the one callers use and the server's own. All are
read without building a schema, so ten thousand tools can be indexed without one pydantic model. The index is brought up
to date by difference; ties are ordered by name. Threat: a server that repeats a word to be found before others; in
prose a word counts twice at most.
"""

from __future__ import annotations

import inspect
import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from math import log
from typing import Any, Final, NamedTuple

from golem_forge.tools.docstrings import describe
from golem_forge.tools.tool import Tool

_WORD: Final = re.compile(r"[^\W_]+")
_CASE_CHANGE: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_QUOTED: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_NAME_WEIGHT: Final = 3.0
_MOST_IN_PROSE: Final = 2.0
"""Less than in a name."""
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.75
_MAX_TEXT: Final = 4000
_MAX_QUERY_WORDS: Final = 32
_SAY_NOTHING: Final = frozenset(
    _WORD.findall(
        "a an and are as be by can did do does for from has have how i in is it its me my of or our please that the "
        "their them these this to want was we what which with you your"
    )
)


class Found(NamedTuple):
    tools: list[Tool]
    total: int
    """How many tools match at all."""


def words(text: str) -> list[str]:
    """Lower-case words with plural endings taken off, so that `events` finds `event`."""
    return [_singular(word) for word in _WORD.findall(text[:_MAX_TEXT].lower())]


def name_words(name: str) -> list[str]:
    """The same for a name or a query, where a change of case begins a word too."""
    return words(_CASE_CHANGE.sub(" ", name[:_MAX_TEXT]))


def query_words(query: str) -> list[str]:
    """The words of a query, and what in it may be a name; each once, in order. Words that say nothing count only where
    there are no others: in a small catalog they are rare, and would be taken for what is meant."""
    spelled = (folded(each) for each in query.split()[:_MAX_QUERY_WORDS])
    asked = list(dict.fromkeys([*name_words(query)[:_MAX_QUERY_WORDS], *spelled]))
    return [word for word in asked if word not in _SAY_NOTHING] or asked


def folded(name: str) -> str:
    """One spelling for a name: case, `-` and `.` do not matter."""
    return name.lower().replace("-", "_").replace(".", "_")


class _Column(NamedTuple):
    scores: dict[str, float]
    order: list[str]
    """The names from the highest score down."""


_NOTHING: Final = _Column({}, [])


class SearchIndex:
    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._weights: dict[str, dict[str, float]] = {}
        self._lengths: dict[str, float] = {}
        self._postings: dict[str, dict[str, float]] = {}
        self._columns: dict[str, _Column] = {}
        self._by_folded: list[tuple[str, str]] = []

    def update(self, tools: Mapping[str, Tool]) -> None:
        """Makes the index hold exactly these tools; costs what changed."""
        gone = [name for name, tool in self._tools.items() if tools.get(name) is not tool]
        new = [(name, tool) for name, tool in tools.items() if self._tools.get(name) is not tool]
        if not gone and not new:
            return
        for name in gone:
            self._forget(name)
        for name, tool in new:
            if name not in self._tools:
                self._learn(name, tool)
        self._columns.clear()
        self._by_folded = sorted({(folded(key), name) for name, tool in self._tools.items() for key in _names(tool)})

    def find(self, query: str, limit: int, allowed: Mapping[str, Tool]) -> Found:
        """The best of the tools in `allowed`."""
        columns = [column for word in query_words(query) if (column := self._column(word)).scores]
        exact, begun = self._named_by(query)
        matching = begun.union(exact, *(column.scores for column in columns))
        if len(allowed) != len(self._tools):
            matching &= allowed.keys()
        first = sorted((rank, -_sum(name, columns), name) for name, rank in exact.items() if name in matching)
        best = [name for _, _, name in first[: max(limit, 0)]]
        if len(best) < limit:
            best += _top(columns, limit - len(best), matching.difference(exact))
        if len(best) < limit:
            best += sorted(begun.intersection(matching).difference(best))[: limit - len(best)]
        return Found([self._tools[name] for name in best], len(matching))

    def _named_by(self, query: str) -> tuple[dict[str, int], set[str]]:
        """Tools whose name the query is, with how exactly (0: the very name), and those whose name begins with it."""
        wanted = folded("_".join(query.split()))
        exact: dict[str, int] = {}
        begun: set[str] = set()
        if not wanted:
            return exact, begun
        said = query.strip().lower()
        for position in range(bisect_left(self._by_folded, (wanted, "")), len(self._by_folded)):
            key, name = self._by_folded[position]
            if not key.startswith(wanted):
                break
            if key == wanted:
                exact[name] = _exactness(said, self._tools[name])
            else:
                begun.add(name)
        return exact, begun

    def _column(self, word: str) -> _Column:
        """What one word adds to each name, worked out once until the index changes."""
        known = self._columns.get(word)
        if known is None:
            postings = self._postings.get(word)
            if not postings:
                return _NOTHING  # not kept: a query may hold any words there are
            count = len(self._tools)
            rarity = log(1 + (count - len(postings) + 0.5) / (len(postings) + 0.5))
            mean = sum(self._lengths.values()) / count if count else 1.0
            scores = {
                name: rarity * weight * (_SATURATION + 1) / (weight + _saturation(self._lengths[name], mean))
                for name, weight in postings.items()
            }
            known = self._columns[word] = _Column(scores, sorted(scores, key=lambda name: (-scores[name], name)))
        return known

    def _learn(self, name: str, tool: Tool) -> None:
        weights = dict.fromkeys(chain(*(_words_of_name(each) for each in _names(tool))), _NAME_WEIGHT)
        prose = words("\n".join((tool.description, *_parameter_texts(tool))))
        length = sum(weights.values()) + len(prose)
        for word, count in Counter(prose).items():
            weights[word] = weights.get(word, 0.0) + min(float(count), _MOST_IN_PROSE)
        for word, weight in weights.items():
            self._postings.setdefault(word, {})[name] = weight
        self._tools[name] = tool
        self._weights[name] = weights
        self._lengths[name] = length

    def _forget(self, name: str) -> None:
        for word in self._weights.pop(name):
            del self._postings[word][name]
        del self._tools[name], self._lengths[name]


def _saturation(length: float, mean: float) -> float:
    return _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length / mean)


def _sum(name: str, columns: list[_Column]) -> float:
    total = 0.0
    for column in columns:
        total += column.scores.get(name, 0.0)
    return total


def _top(columns: list[_Column], count: int, allowed: set[str]) -> list[str]:
    """The names with the highest sums; equal sums by name.

    All columns are read from their best name down, side by side, until what is left in them cannot add up to a place
    among the best: frequent words have thousands of names, and nearly all of them need not be looked at.
    """
    seen: set[str] = set()
    best: list[tuple[float, str]] = []
    for depth in range(max((len(column.order) for column in columns), default=0)):
        reachable = 0.0
        for column in columns:
            if depth < len(column.order):
                name = column.order[depth]
                reachable += column.scores[name]
                if name not in seen:
                    seen.add(name)
                    if name in allowed:
                        insort(best, (-_sum(name, columns), name))
        del best[count:]
        if len(best) == count and -best[-1][0] > reachable:
            break
    return [name for _, name in best]


@lru_cache(maxsize=8192)
def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _names(tool: Tool) -> tuple[str, ...]:
    """The one it is called by and, for a tool of a server, its own there, bare and with the server's."""
    if tool.remote is not None:
        return tool.name, tool.remote.tool, f"{tool.remote.server}__{tool.remote.tool}"
    _, separator, own = tool.name.partition("__")
    return (tool.name, own) if separator and own else (tool.name,)


def _words_of_name(name: str) -> Iterable[str]:
    yield folded(name)
    yield from name_words(name)


def _exactness(said: str, tool: Tool) -> int:
    """0: the name callers use, ignoring case; 1: one that its server uses; 2: one of them in another spelling."""
    return 0 if said == tool.name.lower() else 1 if any(said == name.lower() for name in _names(tool)) else 2


def _parameter_texts(tool: Tool) -> Iterable[str]:
    """Names and descriptions of the parameters, from wherever the tool declares them, without building a schema."""
    declared = tool._input
    if inspect.isfunction(declared):
        declared = declared()
    if isinstance(declared, Mapping):
        properties = declared.get("properties")
        for name, schema in properties.items() if isinstance(properties, Mapping) else ():
            yield str(name)
            if isinstance(schema, Mapping) and isinstance(text := schema.get("description"), str):
                yield text
    elif declared is not None:
        for name, field in declared.model_fields.items():
            yield name
            yield field.description or ""
    elif tool.function is not None:
        yield from _signature_texts(tool)


def _signature_texts(tool: Tool) -> Iterable[str]:
    code = getattr(tool.function, "__code__", None)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    yield from (name for name in names if name not in ("ctx", "self"))
    doc = getattr(tool.function, "__doc__", None)
    if doc:
        yield from describe(doc)[1].values()
    for name, hint in (getattr(tool.function, "__annotations__", None) or {}).items():
        if name == "return":
            continue
        if isinstance(hint, str):
            yield from (one or other for one, other in _QUOTED.findall(hint) if "Annotated" in hint or "Field" in hint)
        else:
            yield from _described(getattr(hint, "__metadata__", ()))


def _described(metadata: Iterable[Any]) -> Iterable[str]:
    for item in metadata:
        text = item if isinstance(item, str) else getattr(item, "description", None)
        if isinstance(text, str):
            yield text
