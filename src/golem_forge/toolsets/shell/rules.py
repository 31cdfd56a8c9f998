"""The rules of a `shell` block: which commands run, ask or are refused.

`blocked` rules are tried first and matched leniently (any command found in the text, by basename, options skipped);
then the first rule in order whose words are the command's leading words decides. What no rule and no default speaks of
is refused. Neither refusal prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from golem_forge.core.errors import ForgeError
from golem_forge.core.verdict import Status, Verdict

if TYPE_CHECKING:
    from golem_forge.policy.shell import CommandWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellRule:
    pattern: str
    """As written; shown in refusals."""
    words: tuple[str, ...]
    approval: Verdict = Verdict.ASK
    ask_if_args: tuple[str, ...] = ()
    """Words that raise a match to `ask`."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the block says of one command, and by which words of it."""

    verdict: Verdict
    by: str


def judge_words(
    words: tuple[str, ...],
    text: str,
    rules: Sequence[ShellRule],
    default: Verdict | None,
    world: CommandWorld,
    cwd: str,
) -> Said:
    """`text` is the command as a shell would write it. Raises `policy_denied` for what is blocked or not spoken of."""
    from golem_forge.policy.shell import Segment, find_commands, matches_lenient, matches_prefix, matches_strict

    found = find_commands(text)
    segment = Segment(words)
    for rule in rules:
        # Both readings: a program named by its path is blocked whatever the path, and so is one only found by parsing.
        if rule.approval is Verdict.BLOCKED and (
            matches_lenient(rule.words, found) or matches_strict(rule.words, segment, world, (cwd,))
        ):
            raise _denied(f"Command blocked by rule '{rule.pattern.strip()}'.")
    for rule in rules:
        if rule.approval is not Verdict.BLOCKED and matches_strict(rule.words, segment, world, (cwd,)):
            raised = rule.approval is Verdict.PRE_APPROVED and (
                any(_occurs(each, words) for each in rule.ask_if_args)
                or not matches_prefix(rule.words, segment, world, (cwd,))
            )
            return Said(Verdict.ASK if raised else rule.approval, f"shell rule '{rule.pattern.strip()}'")
    if default is None:
        raise _denied(f"Command not allowed: no rule matches '{words[0]}' and there is no default.")
    if default is Verdict.BLOCKED:
        raise _denied("Command blocked by rule 'default'.")
    return Said(default, "the default of the shell rules")


def _occurs(wanted: str, words: tuple[str, ...]) -> bool:
    """The word itself, `word=…`, a long flag cut short, or, for `-x`, the letter in a cluster of flags."""
    from golem_forge.policy.shell.options import is_long

    letter = wanted[1:] if len(wanted) == 2 and wanted[0] == "-" and wanted[1] != "-" else ""
    return any(
        word == wanted
        or word.startswith(f"{wanted}=")
        or is_long(word, wanted)
        or bool(letter and word.startswith("-") and not word.startswith("--") and letter in word[1:])
        for word in words[1:]
    )


def _denied(text: str) -> ForgeError:
    return ForgeError(text, status=Status.POLICY_DENIED, code="BLOCKED")
