"""remembered.yaml: the "always" answers. Only Forge writes it; a person reads it, or revokes by id.

A change takes the lock, reads what is there, and puts a whole new file in place, so that two processes that save at
once keep both rules and no reader sees half a file. A file that cannot be read is never overwritten (ConfigError).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.config.yaml_file import read_bytes
from golem_forge.policy.rules.load import make_rule, parse_rules
from golem_forge.policy.rules.model import Origin, Rule

_HEADER: Final = """\
# "Always" answers, kept by Forge. See them with `forge rules list`, take one back with `forge rules revoke ID`.
version: 1
rules:"""
_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def remember(home: ForgeHome, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Adds rules that are not there yet; gives them as kept. Raises ConfigError for a rule that may not be saved."""
    name = home.shown(home.remembered)
    kept = tuple(make_rule(rule.to_yaml(), Origin.REMEMBERED, file=name) for rule in rules)

    def added(present: tuple[Rule, ...]) -> tuple[Rule, ...]:
        return tuple({rule.id: rule for rule in (*kept, *present)}.values())

    _change(home, added)
    return kept


def revoke(home: ForgeHome, ids: Iterable[str]) -> tuple[str, ...]:
    """The ids that were there and are gone now."""
    unwanted = frozenset(ids)
    before = _change(home, lambda present: tuple(rule for rule in present if rule.id not in unwanted))
    return tuple(rule.id for rule in before if rule.id in unwanted)


def revoke_all(home: ForgeHome) -> int:
    return len(_change(home, lambda present: ()))


def _change(home: ForgeHome, change: Callable[[tuple[Rule, ...]], tuple[Rule, ...]]) -> tuple[Rule, ...]:
    """Gives the rules as they were before."""
    home.ensure()
    with _locked(home):
        present = _read(home)
        changed = change(present)
        if [rule.id for rule in changed] != [rule.id for rule in present]:
            _write(home, changed)
        return present


def _read(home: ForgeHome) -> tuple[Rule, ...]:
    if not os.path.lexists(home.remembered):
        return ()
    name = home.shown(home.remembered)
    return parse_rules(read_bytes(home.remembered, name), name, Origin.REMEMBERED).rules


def _write(home: ForgeHome, rules: tuple[Rule, ...]) -> None:
    lines = [f"  - {_as_yaml(rule)}" for rule in rules]
    text = "\n".join([_HEADER, *lines]) + "\n" if lines else f"{_HEADER} []\n"
    temporary = home.path / f".remembered-{os.urandom(8).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, home.remembered)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _as_yaml(rule: Rule) -> str:
    """JSON is YAML, but for a few characters that YAML wants escaped."""
    return _NOT_IN_YAML.sub(
        lambda match: f"\\u{ord(match.group()):04x}", json.dumps(rule.to_yaml(), ensure_ascii=False)
    )


@contextmanager
def _locked(home: ForgeHome) -> Iterator[None]:
    """The lock is a file of its own: the file it guards is replaced by each change."""
    handle = os.open(home.path / "remembered.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
