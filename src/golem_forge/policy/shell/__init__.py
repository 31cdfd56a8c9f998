"""Shell commands: two analysers that never swap roles.

The strict side (`parse_strict`, `prove`, `matches_strict`) only proves harmlessness and calls what it cannot read
opaque; the lenient side (`find_commands`, `find_dangers`, `matches_lenient`) only finds danger and reads anything.
Everything is loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .danger_model import Danger
    from .dangers import BUILTIN_IDS, DANGER_IDS, dangers_of, find_dangers
    from .lenient import Found, FoundCommand, find_commands
    from .patterns import (
        Pattern,
        Token,
        matches_exact,
        matches_lenient,
        matches_lenient_exact,
        matches_prefix,
        matches_strict,
    )
    from .prefixes import is_banned_prefix, is_offered_prefix, is_saved_prefix, prefix_choices, runs_what_it_is_given
    from .prover import Proof, SegmentProof, prove, segment_places
    from .scope import Redirect
    from .strict import Opaque, Parsed, Segment, canonical_text, parse_strict, quote
    from .world import CommandWorld, Operand, OperandKind, Program

_HOMES = {
    "danger_model": ("Danger",),
    "dangers": ("BUILTIN_IDS", "DANGER_IDS", "dangers_of", "find_dangers"),
    "lenient": ("Found", "FoundCommand", "find_commands"),
    "patterns": (
        "Pattern",
        "Token",
        "matches_exact",
        "matches_lenient",
        "matches_lenient_exact",
        "matches_prefix",
        "matches_strict",
    ),
    "prefixes": ("is_banned_prefix", "is_offered_prefix", "is_saved_prefix", "prefix_choices", "runs_what_it_is_given"),
    "prover": ("Proof", "SegmentProof", "prove", "segment_places"),
    "scope": ("Redirect",),
    "strict": ("Opaque", "Parsed", "Segment", "canonical_text", "parse_strict", "quote"),
    "world": ("CommandWorld", "Operand", "OperandKind", "Program"),
}
_HOME_OF = {name: module for module, exported in _HOMES.items() for name in exported}

__all__ = [
    "BUILTIN_IDS",
    "DANGER_IDS",
    "CommandWorld",
    "Danger",
    "Found",
    "FoundCommand",
    "Opaque",
    "Operand",
    "OperandKind",
    "Parsed",
    "Pattern",
    "Program",
    "Proof",
    "Redirect",
    "Segment",
    "SegmentProof",
    "Token",
    "canonical_text",
    "dangers_of",
    "find_commands",
    "find_dangers",
    "is_banned_prefix",
    "is_offered_prefix",
    "is_saved_prefix",
    "matches_exact",
    "matches_lenient",
    "matches_lenient_exact",
    "matches_prefix",
    "matches_strict",
    "parse_strict",
    "prefix_choices",
    "prove",
    "quote",
    "runs_what_it_is_given",
    "segment_places",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value
