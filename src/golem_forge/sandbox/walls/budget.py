"""How many mounts a zone's protected paths may cost: each of them one, and one for every directory on the way to it
or to a masked path.

Takes what must be read-only and what is masked, gives a Guard; None when nothing short of a read-only zone would do.
Mounts cost time, and the more there are the more each costs: past `MOST_MOUNTS` whole directories are read-only
instead, those with the deepest paths first. What is masked inside stays masked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from golem_forge.sandbox.protected import GIT_FILE, in_dependencies
from golem_forge.sandbox.walls.plan import Restriction, Why
from golem_forge.sandbox.walls.scan import Parts

MOST_MOUNTS: Final = 40
MOST_MASKS: Final = 1_000
MOST_NOTICES: Final = 5
_HEADS_OF_PAIRS: Final = frozenset({".kube", ".docker"})
"""Of secret names that count in these directories only."""
MOST_WHOLE: Final = 200
"""So many directories read-only as a whole; past that the zone is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    closed: tuple[Restriction, ...]
    pinned: tuple[Parts, ...]
    """Directories on the way to what is closed, in order."""
    notices: tuple[str, ...] = ()


def within_budget(zone: str, closed: Mapping[Parts, Restriction], masked: Collection[Parts] = ()) -> Guard | None:
    """`zone` is its address, for the notices. Nothing of `closed` is or lies below a masked path. The scan looks into
    every directory, and what it does not look into is masked: a masked path is found again wherever it was moved."""
    single = {parts: one for parts, one in closed.items() if not is_below(parts, closed)}
    hidden = {parts for parts in masked if not is_below(parts, closed)}  # nothing can be renamed where all is read-only
    hidden = {parts for parts in hidden if not may_move(parts)}
    whole: dict[Parts, Restriction] = {}
    pinned = _ancestors((*single, *hidden))
    while len(single) + len(pinned) > MOST_MOUNTS:
        nested = [parts for parts in (*single, *hidden) if len(parts) > 1]
        if not nested:
            break
        top = _top(max(nested, key=lambda parts: (len(parts), parts)))
        whole[top] = Restriction(parts=top, why=Why.PROTECTED, directory=True)
        single = {parts: one for parts, one in single.items() if parts[: len(top)] != top}
        hidden = {parts for parts in hidden if parts[: len(top)] != top}
        pinned = _ancestors((*single, *hidden, *whole))
    if len(whole) + len(single) > MOST_WHOLE:
        return None
    whole = {top: one for top, one in whole.items() if not is_below(top, whole)}
    return Guard(
        closed=(*single.values(), *whole.values()),
        pinned=tuple(sorted(parts for parts in pinned if parts not in whole and not is_below(parts, whole))),
        notices=tuple(
            f"{zone}/{'/'.join(top)} is read-only for commands: it holds too many protected or secret paths to guard"
            " each."
            for top in sorted(whole)
        ),
    )


def few_masks(zone: str, masks: Mapping[Parts, Restriction]) -> tuple[dict[Parts, Restriction], tuple[str, ...]]:
    """No more than walls can be built with in time, and notices: past that directories are masked as a whole, those
    first that have the most in them. Threat: a command makes a hundred thousand secret names for the next start."""
    kept, whole = dict(masks), set[Parts]()
    while len(kept) > MOST_MASKS:
        crowds = Counter(parts[:-1] for parts in kept if parts)
        left, tops = len(kept), set[Parts]()
        for top, crowd in crowds.most_common():
            tops.add(top)
            left -= crowd - 1
            if left <= MOST_MASKS:
                break
        kept = {parts: one for parts, one in kept.items() if parts[:-1] not in tops and not is_below(parts, tops)}
        kept |= {top: Restriction(parts=top, why=Why.SEALED, masked=True, directory=True) for top in tops}
        if () in tops:
            kept = {(): kept[()]}
        whole |= tops
    text = "is hidden from commands: it holds too many secret or unsearched paths to hide each."
    return kept, tuple(f"{'/'.join((zone, *top))} {text}" for top in sorted(whole & kept.keys())[:MOST_NOTICES])


def may_move(parts: Parts) -> bool:
    """Whether directories above a masked path may be renamed, mount and all: installers must be able to exchange a
    package with a key of its tests in it, and a name that counts by itself counts in every place."""
    return in_dependencies(parts) and parts[-2].casefold() not in _HEADS_OF_PAIRS


def is_below(parts: Parts, others: Collection[Parts]) -> bool:
    """Whether a directory above is among the others; the path itself does not count."""
    return any(parts[:length] in others for length in range(1, len(parts)))


def _top(parts: Parts) -> Parts:
    """The directory just below the zone's root; where a repository has many submodules, only what is theirs."""
    return parts[: 2 if parts[0].casefold() == GIT_FILE and len(parts) > 2 else 1]


def _ancestors(paths: Iterable[Parts]) -> set[Parts]:
    return {parts[:length] for parts in paths for length in range(1, len(parts))}
