"""A Decision as the journal keeps it: fields at their defaults are left out, `full_decision` puts them back.

`decidedBy` is the place of the deciding source in `sources`. The keys (fingerprint, args_key) are written for every
call that somebody or something had to answer for: they say what was approved. A call that was simply preApproved is
kept without them; hashing every quick call would cost more than recording it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from golem_forge.core.decision import AnsweredBy, Decision, Source
from golem_forge.core.verdict import Verdict
from golem_forge.events.jsontext import encode
from golem_forge.events.quoting import NAMES

_EMPTY_SOURCE: dict[str, Any] = Source(source="", verdict=Verdict.ASK).to_json()
_EMPTY_DECISION: dict[str, Any] = Decision(verdict=Verdict.ASK).to_json()


def decision_text(decision: Decision, redact: Callable[[Any], Any] | None) -> str:
    quick = decision.verdict is Verdict.PRE_APPROVED and decision.answered_by is AnsweredBy.NOBODY
    if not quick or decision.message or decision.risk_reasons:
        return _complete_text(decision, redact)
    if decision.decided_by is not None and decision.decided_by not in decision.sources:
        return _complete_text(decision, redact)
    said = _sources_text(decision.sources, decision.decided_by, redact)
    return f'{{"verdict":"preApproved","risk":"{decision.risk._value_}",{said}}}'


_written: dict[int, tuple[tuple[Source, ...], Source | None, object, str]] = {}
"""By identity: what always stands for a tool is the same object call after call, and is written out once."""
_MOST_WRITTEN = 512


def _sources_text(sources: tuple[Source, ...], decider: Source | None, redact: Callable[[Any], Any] | None) -> str:
    known = _written.get(id(sources))
    if known is not None and known[0] is sources and known[1] is decider and known[2] is redact:
        return known[3]
    place = "" if decider is None else f',"decidedBy":{sources.index(decider)}'
    text = f'"sources":[{",".join([_source_text(source, redact) for source in sources])}]{place}'
    if len(_written) >= _MOST_WRITTEN:
        _written.clear()
    _written[id(sources)] = (sources, decider, redact, text)
    return text


def _source_text(source: Source, redact: Callable[[Any], Any] | None) -> str:
    text = f'{{"source":{NAMES[source.source]},"verdict":"{source.verdict._value_}"'
    if source.id:
        text += f',"id":{NAMES[source.id]}'
    if source.reason:
        text += f',"reason":{quoted(source.reason if redact is None else redact(source.reason))}'
    if source.file:
        text += f',"file":{quoted(source.file if redact is None else redact(source.file))},"line":{source.line}'
    return text + "}"


def _complete_text(decision: Decision, redact: Callable[[Any], Any] | None) -> str:
    complete = {key: value for key, value in decision.to_json().items() if value}
    return encode(complete if redact is None else redact(complete)).decode()


def full_decision(kept: Mapping[str, Any]) -> dict[str, Any]:
    """The complete JSON of a Decision, as `Decision.to_json` gives it."""
    full = {**_EMPTY_DECISION, **kept}
    full["sources"] = [{**_EMPTY_SOURCE, **source} for source in full["sources"]]
    decider = full["decidedBy"]
    if isinstance(decider, int):
        full["decidedBy"] = full["sources"][decider]
    elif decider is not None:
        full["decidedBy"] = {**_EMPTY_SOURCE, **decider}
    return full
