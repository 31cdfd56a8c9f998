"""From a command's text to facts and effects: what policy judges, before anything runs.

Gives one `exec` effect per parsed segment, in order, then one `read` effect per operand inside a zone. A text the
strict parser cannot read is one opaque `exec` effect without words. Dangers come from the lenient detector alone.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from golem_forge.core.effects import AtMost, Effect, Mark, Verb
from golem_forge.core.verdict import Verdict
from golem_forge.policy.facts import CommandFacts
from golem_forge.policy.shell import (
    CommandWorld,
    Operand,
    Parsed,
    Segment,
    SegmentProof,
    find_dangers,
    parse_strict,
    prove,
    segment_places,
)
from golem_forge.policy.shell.strict import render

IsSecret = Callable[[str], bool]
_MAX_HASHED: Final = 64 << 20


def command_facts(
    text: str, world: CommandWorld, cwd: str, is_secret: IsSecret, *, full_walls: bool = False
) -> tuple[CommandFacts, tuple[Effect, ...]]:
    """`cwd` is the virtual working directory; `is_secret` tells by its name whether a path is a secret one; without
    `full_walls` (they hold, and no host is asked for) what is only proven inside them (git) is not."""
    parsed = parse_strict(text)
    dangers = _danger_ids(text, is_secret)
    if not isinstance(parsed, Parsed):
        marks = (Mark.OPAQUE, Mark.DANGER) if dangers else (Mark.OPAQUE,)
        opaque = Effect(verb=Verb.EXEC, target=text, marks=marks, dangers=dangers)
        return CommandFacts(text=text, parsed=None, world=world, cwd=cwd), (opaque,)
    proof = prove(parsed, world, cwd)
    places = segment_places(parsed, world, cwd)
    shares = _shared_out(parsed, dangers, is_secret)
    reads_only = proof.proven and not dangers
    execs = [
        _exec_effect(
            segment,
            part,
            found,
            _real_program(segment, where, world),
            proven=part.proven and not found and (not part.needs_closed_zones or (reads_only and full_walls)),
            at_most=AtMost.WRITES if full_walls else None,
        )
        for segment, part, found, where in zip(parsed.segments, proof.segments, shares, places, strict=True)
    ]
    started = Parsed(
        tuple(
            replace(segment, words=part.started or segment.words)
            for segment, part in zip(parsed.segments, proof.segments, strict=True)
        )
    )
    facts = CommandFacts(text=text, parsed=parsed, world=world, cwd=cwd, reads_only=reads_only, started=started)
    return facts, (*execs, *(_read_effect(operand) for operand in proof.reads))


def _danger_ids(text: str, is_secret: IsSecret) -> tuple[str, ...]:
    return tuple(dict.fromkeys(danger.id for danger in find_dangers(text, is_secret=is_secret)))


def _shared_out(parsed: Parsed, dangers: tuple[str, ...], is_secret: IsSecret) -> Iterator[tuple[str, ...]]:
    """The dangers of each segment. One that only the whole has (`curl u | sh`) belongs to every segment of it."""
    if not dangers:
        yield from (() for _ in parsed.segments)
        return
    own = [
        _danger_ids(render(Parsed((Segment(segment.words),))), is_secret) if len(parsed.segments) > 1 else ()
        for segment in parsed.segments
    ]
    of_the_whole = tuple(danger for danger in dangers if not any(danger in found for found in own))
    for found in own:
        yield tuple(dict.fromkeys((*found, *of_the_whole)))


def _exec_effect(
    segment: Segment,
    proof: SegmentProof,
    dangers: tuple[str, ...],
    real: str,
    *,
    proven: bool,
    at_most: AtMost | None,
) -> Effect:
    marks: list[Mark] = []
    if dangers:
        marks.append(Mark.DANGER)
    if any(operand.kind == "outside" for operand in proof.operands):
        marks.append(Mark.OUTSIDE_ZONE)
    return Effect(
        verb=Verb.EXEC,
        target=render(Parsed((Segment(segment.words),))),
        real=real,
        words=segment.words,
        proven=proven,
        at_most=at_most,
        dangers=dangers,
        marks=tuple(marks),
    )


def _read_effect(operand: Operand) -> Effect:
    return Effect(
        verb=Verb.READ,
        target=operand.virtual,
        real=operand.real,
        outer=operand.outer,
        zone_verdict=Verdict.PRE_APPROVED,
        marks=(Mark.SECRET_PATH,) if operand.secret else (),
    )


def _real_program(segment: Segment, places: tuple[str, ...], world: CommandWorld) -> str:
    """What would be started, for the fingerprint; a program inside a zone with its content, for it may be rewritten."""
    word = segment.words[0]
    if "/" not in word or word.startswith("/"):
        program = world.program(word)
        if program is None:
            return ""
        return _with_content(program.path) if program.zone else program.path
    operands = [world.operand(word, place) for place in places]
    if len(operands) != 1 or operands[0].kind != "inside":
        return ""
    return _with_content(operands[0].real)


def _with_content(path: str) -> str:
    """Unreadable or huge: a random mark, so that the approval of this call is never the approval of another."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return path
    except OSError:
        return f"{path} {os.urandom(16).hex()}"
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_HASHED:
            return f"{path} {os.urandom(16).hex()}"
        return f"{path} sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
