"""Search over tools: an exact name first, then a name with one letter wrong, then BM25; names that only begin with the
query come last.

The words of a tool are its name, whole and split at `_ - .` and case changes (weight 3), its description, and the names
and descriptions of its parameters. A tool of a server has two names, the one callers use and the server's own. All are
read without building a schema, so ten thousand tools can be indexed without one pydantic model. The index is brought up
to date by difference; ties are ordered by name. Threat: a server that repeats a word to be found before others; in
prose a word counts twice at most.

A word of a query also finds its synonyms (`remove` finds `delete`), for less than itself; a word that no tool has finds
those that are one letter away (wrong, missing, too many, or two swapped).
"""

from __future__ import annotations

import inspect
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from heapq import nsmallest
from itertools import chain
from math import log
from typing import Final, NamedTuple

from golem_forge.core.regex import regex
from golem_forge.tools.inputs import PlainInput, SchemaInput, describe
from golem_forge.tools.tool import Tool

_WORD: Final = regex(r"[^\W_]+")
_CASE_CHANGE: Final = regex(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_QUOTED: Final = regex(r"\"([^\"]*)\"|'([^']*)'")
_NAME_WEIGHT: Final = 3.0
_MAX_PROSE_COUNT: Final = 2.0
"""Maximum weight of a word in prose, however often it occurs; less than one occurrence in a name (`_NAME_WEIGHT`)."""
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.75
_MAX_TEXT: Final = 4000
_MAX_QUERY_WORDS: Final = 32
_SYNONYM_WEIGHT: Final = 0.6
"""Weight of a synonym, or of a word one letter away, relative to the word itself."""
_SHORTEST_MISSPELT: Final = 4
"""Minimum length of a word that is matched with a misspelling; shorter ones are too close to many others."""
_LONGEST_MISSPELT: Final = 80
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789_"
_STOP_WORDS: Final = frozenset(
    _WORD.findall(
        "a an and are as be by can did do does for from has have how i in is it its me my of or our please that the "
        "their them these this to want was we what which with you your"
    )
)
_SYNONYM_LINES: Final = """
add append create establish generate insert make new open register
delete destroy drop erase purge remove trash unlink wipe
discover find locate lookup query search seek
display download fetch get load obtain pull read retrieve show view
catalog enumerate index list overview
adjust alter change configure edit modify patch set update
broadcast dispatch forward notify post publish push send submit
begin call execute invoke launch run start trigger
abort cancel close end halt kill stop terminate
clone copy duplicate replicate
move relocate rename transfer
keep persist record save store upload write
assert check confirm test validate verify
count number quantity sum total tally
archive backup snapshot
restore recover revert rollback undo
join combine concatenate merge
split separate
attach connect link
detach disconnect disable deactivate
activate enable
approve accept allow grant permit
deny decline refuse reject
compare diff difference
convert export transform translate
import ingest
calculate compute evaluate estimate
plan schedule
book reserve reservation booking
cost price rate
bill charge pay payment
buy order purchase
refund reimburse
invite share
watch follow monitor observe subscribe track
lock protect secure
login signin authenticate
logout signout
deploy release ship
assign allocate
label mark tag
explain describe summarize summary
answer comment reply respond response
directory folder
document file
email mail message
image photo picture screenshot
film movie video
bug issue ticket defect
account member person profile user
client customer
company organisation organization
colleague employee staff
group team
appointment event meeting
chat channel conversation
job task todo
repo repository
webpage page site website
link url address
password secret credential
key token
database db
row entry record
branch fork
commit revision version
error failure fault exception
log journal history
song track audio music
shop store
basket cart
item product article good
parcel package shipment
flight plane
car vehicle
hotel accommodation room
town city
nation country
forecast weather
phone telephone
money fund cash balance
invoice bill
contract agreement
alarm alert notification reminder
report statistic analytics
config configuration option preference setting
machine server host
schedule calendar agenda
note memo
"""
"""Synonyms, one group a line; a word may stand in several groups."""
_PHRASES: Final = {
    "look up": "find",
    "look for": "find",
    "how many": "count",
    "number of": "count",
    "get rid of": "delete",
    "throw away": "delete",
    "set up": "create",
    "sign in": "login",
    "log in": "login",
    "sign out": "logout",
    "log out": "logout",
    "shut down": "stop",
    "pay for": "pay",
    "web page": "page",
}


class SearchResult(NamedTuple):
    tools: list[Tool]
    total: int


def text_words(text: str) -> list[str]:
    """Lower-case words with plural endings taken off, so that `events` finds `event`."""
    return [_singular(word) for word in _WORD.findall(text[:_MAX_TEXT].lower())]


def name_words(name: str) -> list[str]:
    """Splits a name or a query into words like `text_words`; a change of case begins a word too."""
    return text_words(_CASE_CHANGE.sub(" ", name[:_MAX_TEXT]))


def query_words(query: str) -> list[str]:
    """The words of a query, and what in it may be a name; each once, in order. Words that say nothing count only where
    there are no others: in a small catalog they are rare, and would be taken for what is meant."""
    spelled = (fold_name(each) for each in query.split()[:_MAX_QUERY_WORDS])
    plain = f" {' '.join(_WORD.findall(query[:_MAX_TEXT].lower()))} "
    meant = (word for phrase, word in _PHRASES.items() if f" {phrase} " in plain)
    asked = list(dict.fromkeys([*name_words(query)[:_MAX_QUERY_WORDS], *spelled, *meant]))
    return [word for word in asked if word not in _STOP_WORDS] or asked


def fold_name(name: str) -> str:
    """One spelling for a name: case, `-` and `.` do not matter."""
    return name.lower().replace("-", "_").replace(".", "_")


def letters_only(name: str) -> str:
    """Returns only the letters and digits of a name, so that names compare without their separators."""
    return "".join(_WORD.findall(name.lower()))


def one_letter_away(word: str) -> Iterable[str]:
    """Every spelling with a letter less, another, one more, or two swapped; of a very long word none."""
    if len(word) > _LONGEST_MISSPELT:
        return
    for at in range(len(word) + 1):
        before, after = word[:at], word[at:]
        if after:
            yield before + after[1:]
        if len(after) > 1:
            yield before + after[1] + after[0] + after[2:]
        for letter in _LETTERS:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]


Scores = dict[str, float]
"""Name → the score that one word of a query adds."""
_MISSPELT_RANK: Final = 3
"""Rank of a name that is one letter away from the query; it comes after every exact match (`_exactness`)."""


class SearchIndex:
    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._weights: dict[str, dict[str, float]] = {}
        self._lengths: dict[str, float] = {}
        self._postings: dict[str, dict[str, float]] = {}
        self._known_scores: dict[str, Scores] = {}
        self._by_folded: list[tuple[str, str]] = []
        self._by_letters: dict[str, set[str]] = {}

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
        self._known_scores.clear()
        self._by_folded = sorted({(fold_name(key), name) for name, tool in self._tools.items() for key in _names(tool)})
        self._by_letters = {}
        for name, tool in self._tools.items():
            for key in _names(tool):
                self._by_letters.setdefault(letters_only(key), set()).add(name)

    def find(self, query: str, limit: int, allowed: Mapping[str, Tool]) -> SearchResult:
        exact, begun = self._named_by(query)
        asked = query_words(query)
        columns = [self._column(word) for word in asked]
        if not begun:  # else the query is the beginning of a name, and not misspelt
            columns = [column or self._near(word) for word, column in zip(asked, columns, strict=True)]
        if not exact:
            exact = dict.fromkeys(self._nearly_named(query, asked), _MISSPELT_RANK)
        matching = begun.union(exact, *columns)
        if len(allowed) != len(self._tools):
            matching &= allowed.keys()
        first = sorted((rank, -_total_score(name, columns), name) for name, rank in exact.items() if name in matching)
        best = [name for _, _, name in first[: max(limit, 0)]]
        if len(best) < limit:
            others = set().union(*columns).intersection(matching).difference(exact)
            ranked = nsmallest(limit - len(best), ((-_total_score(name, columns), name) for name in others))
            best += [name for _, name in ranked]
        if len(best) < limit:
            best += sorted(begun.intersection(matching).difference(best))[: limit - len(best)]
        return SearchResult([self._tools[name] for name in best], len(matching))

    def _named_by(self, query: str) -> tuple[dict[str, int], set[str]]:
        """Tools whose name the query is, with how exactly (0: the very name), and those whose name begins with it."""
        wanted = fold_name("_".join(query.split()))
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

    def _nearly_named(self, query: str, asked: list[str]) -> set[str]:
        """Tools whose name is the query but for one letter. A single word that some tool has is spelt well."""
        letters = letters_only(query[:_MAX_TEXT])
        if len(letters) < _SHORTEST_MISSPELT or (len(asked) == 1 and asked[0] in self._postings):
            return set()
        near = (self._by_letters.get(each) for each in (letters, *one_letter_away(letters)))
        return set(chain.from_iterable(names for names in near if names))

    def _column(self, word: str) -> Scores:
        """Returns the scores of a word and its synonyms, cached until the index changes."""
        known = self._known_scores.get(word)
        if known is None:
            synonyms = _synonyms().get(word, ())
            known = self._scores((word,), 1.0)
            if any(each in self._postings for each in synonyms):
                known = self._scores((word, *synonyms), _SYNONYM_WEIGHT) | known
            if known:  # else not kept: a query may hold any words there are
                self._known_scores[word] = known
        return known

    def _near(self, word: str) -> Scores:
        """Returns the scores for an unknown word, from the known words that it may misspell."""
        if len(word) < _SHORTEST_MISSPELT:
            return {}
        known, synonyms = self._postings, _synonyms()
        meant = {each for each in one_letter_away(word) if len(each) > 2 and (known.get(each) or each in synonyms)}
        others = chain.from_iterable(synonyms.get(each, ()) for each in meant)
        return self._scores(tuple(meant.union(others)), _SYNONYM_WEIGHT) if meant else {}

    def _scores(self, words: tuple[str, ...], share: float) -> Scores:
        """BM25 of words that count as one: what is rare is a tool that has any of them."""
        weights: dict[str, float] = {}
        for word in words:
            for name, weight in self._postings.get(word, {}).items():
                weights[name] = max(weight, weights.get(name, 0.0))
        count = len(self._tools)
        rarity = share * log(1 + (count - len(weights) + 0.5) / (len(weights) + 0.5))
        mean = sum(self._lengths.values()) / count if count else 1.0

        def saturation(name: str) -> float:
            return _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * self._lengths[name] / mean)

        return {
            name: rarity * weight * (_SATURATION + 1) / (weight + saturation(name)) for name, weight in weights.items()
        }

    def _learn(self, name: str, tool: Tool) -> None:
        words = chain(*((fold_name(each), *name_words(each)) for each in _names(tool)))
        weights = dict.fromkeys(words, _NAME_WEIGHT)
        prose = text_words("\n".join((tool.description, *_parameter_texts(tool))))
        length = sum(weights.values()) + len(prose)
        for word, count in Counter(prose).items():
            weights[word] = weights.get(word, 0.0) + min(float(count), _MAX_PROSE_COUNT)
        for word, weight in weights.items():
            self._postings.setdefault(word, {})[name] = weight
        self._tools[name] = tool
        self._weights[name] = weights
        self._lengths[name] = length

    def _forget(self, name: str) -> None:
        for word in self._weights.pop(name):
            del self._postings[word][name]
        del self._tools[name], self._lengths[name]


@cache
def _synonyms() -> dict[str, frozenset[str]]:
    """Each word of the table → the other words of its lines."""
    together: dict[str, set[str]] = {}
    for line in _SYNONYM_LINES.strip().splitlines():
        group = {_singular(word) for word in line.split()}
        for word in group:
            together.setdefault(word, set()).update(group)
    return {word: frozenset(group - {word}) for word, group in together.items()}


def _total_score(name: str, columns: list[Scores]) -> float:
    total = 0.0
    for column in columns:
        total += column.get(name, 0.0)
    return total


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


def _exactness(said: str, tool: Tool) -> int:
    """0: the name callers use, ignoring case; 1: one that its server uses; 2: one of them in another spelling."""
    return 0 if said == tool.name.lower() else 1 if any(said == name.lower() for name in _names(tool)) else 2


def _parameter_texts(tool: Tool) -> Iterable[str]:
    """Names and descriptions of the parameters, from wherever the tool declares them, without building a schema."""
    declared = tool._input
    if inspect.isfunction(declared):
        declared = tool.input_schema if "input" in tool.__dict__ else declared()
    if isinstance(declared, SchemaInput | PlainInput):
        declared = declared.schema()
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
            for item in getattr(hint, "__metadata__", ()):
                text = item if isinstance(item, str) else getattr(item, "description", None)
                if isinstance(text, str):
                    yield text
