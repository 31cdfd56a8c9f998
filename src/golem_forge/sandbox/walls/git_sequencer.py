"""What a stopped rebase, cherry-pick, revert or `am` may hold so that going on with it runs nothing.

`objection` judges one file of such a directory. Threat: `git rebase --continue` obeys these files. Lines of a list of
steps can be commands, the name of a merge strategy is the name of a program (with a slash in it, a path), options for
`git apply` name files that are written. So names are on a list, and what is in them is one of a few words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from golem_forge.sandbox.walls.git_config import read_config

FOLDERS: Final = ("rebase-merge", "rebase-apply", "sequencer")

_Check = Callable[[bytes], bool]
_LARGEST: Final = 1 << 20
_STRATEGIES: Final = frozenset({b"", b"ort", b"recursive", b"resolve", b"octopus", b"ours", b"subtree"})
_EXEC: Final = re.compile(rb"^[ \t]*(?:exec|x)[ \t]", re.MULTILINE)
_WORDS: Final = re.compile(rb"[\w \t\n=,.'\"-]*")
_KEY: Final = re.compile(rb"(?:-S[\w@.+-]*)?\s*")
_APPLY: Final = re.compile(
    rb"(?:\s*'?(?:-p\d+|-C\d+|--whitespace=[a-z-]+|--3way|--reject|--keep-cr|--ignore-(?:whitespace|space-change))'?)*\s*"
)
_REWRITTEN: Final = re.compile(rb"(?:refs/rewritten/[\w./-]+\n?)*")
_OPTIONS: Final = frozenset(
    f"options.{name}"
    for name in (
        *("no-commit", "edit", "allow-empty", "allow-empty-message", "drop-redundant-commits", "signoff"),
        *("keep-redundant-commits", "record-origin", "allow-ff", "mainline", "allow-rerere-auto", "gpg-sign"),
        *("default-msg-cleanup", "no-edit"),
    )
)


def _steps(content: bytes) -> bool:
    return _EXEC.search(content) is None


def _matches(pattern: re.Pattern[bytes]) -> _Check:
    return lambda content: pattern.fullmatch(content) is not None


def _options(content: bytes) -> bool:
    try:
        settings = read_config(content.decode("utf-8", "surrogateescape"))
    except ValueError:
        return False
    for one in settings:
        value = (one.value or "").encode("utf-8", "surrogateescape")
        if one.name == "options.strategy":
            good = value in _STRATEGIES
        elif one.name == "options.strategy-option":
            good = _WORDS.fullmatch(value) is not None
        else:
            good = one.name in _OPTIONS and _WORDS.fullmatch(value) is not None
        if not good:
            return False
    return True


_JUDGED: Final[dict[str, _Check]] = {
    "git-rebase-todo": _steps,
    "git-rebase-todo.backup": _steps,
    "todo": _steps,
    "strategy": lambda content: content.strip() in _STRATEGIES,
    "strategy_opts": _matches(_WORDS),
    "gpg_sign_opt": _matches(_KEY),
    "apply-opt": _matches(_APPLY),
    "opts": _options,
    "refs-to-delete": _matches(_REWRITTEN),
}
_DATA: Final = re.compile(
    r"\d+|done|head|head-name|onto|orig-head|orig_head|msgnum|end|message(?:-\w+)?|author-script|patch(?:-merge-base)?"
    r"|stopped-sha|amend|rewritten(?:-list|-pending)?|current-fixups|interactive|quiet|verbose|signoff|autostash"
    r"|(?:no-)?reschedule-failed-exec|(?:drop|keep)_redundant_commits|allow_rerere_autoupdate|squash-onto|update-refs"
    r"|ignore_date|cdate_is_adate|next|last|info|msg(?:-clean)?|final-commit|original-commit|abort-safety|keep|messageid"
    r"|scissors|quoted-cr|sign|threeway|utf8|no_inbody_headers|keepcr|dirtyindex|rebasing|applying|edit|cur|prev"
    r"|no-merge-rebase|current|onto_name|reapply_cherry_picks"
)
"""Numbers, ids, messages and flags: git reads them, and starts nothing because of them."""


def objection(name: str, content: bytes | None) -> str:
    """Why a file of such a directory must not be where git finds it, in a few words; empty: it may. `content` None:
    nobody can read it."""
    if content is None or len(content) > _LARGEST:
        return f"{name} cannot be read"
    judged = _JUDGED.get(name)
    if judged is not None:
        if judged(content):
            return ""
        return "its list of steps holds `exec` lines" if judged is _steps else f"{name} names a program or a file"
    return "" if _DATA.fullmatch(name) else f"git knows no {name[:60]} there"
