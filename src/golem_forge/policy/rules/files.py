"""The files that hold rules: the person's rules.yaml, a trusted project's, and remembered.yaml, which Forge writes.

A source knows whether its file changed on disk. `load` reads for the first time and raises ConfigError. `refresh` reads
again if the file changed, says whether the rules changed, and raises RulesUnusable while the file cannot be used.

remembered.yaml keeps the "always" answers; a person reads it, or revokes by id. A change takes the lock, reads what is
there and replaces the whole file, so that two processes that save at once keep both rules and no reader sees half a
file. A file that cannot be read is never overwritten (ConfigError).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from sys import intern
from typing import Any, Final, Protocol

from golem_forge._version import __version__
from golem_forge.config.program import PROJECT_RULES
from golem_forge.config.run_block import ApprovalMode
from golem_forge.config.validation import Setting
from golem_forge.config.yaml_file import YamlFile, parse_yaml, read_bytes
from golem_forge.core.decisions import Status, Verdict
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.regex import regex
from golem_forge.policy.rules.load import checked_rules, make_rule, parse_rules
from golem_forge.policy.rules.model import Rule, RuleFile, RuleKind, RuleOrigin
from golem_forge.storage.home import (
    JSON_FILE_ERRORS,
    FileStamp,
    ForgeHome,
    locked,
    open_private,
    replacing,
    target_stamp,
    write_private,
)

_PLACE: Final = regex(r"(?P<file>.*?):(?P<line>\d+): (?P<problem>.*)", re.DOTALL)
_EMPTY: Final = RuleFile(())
_LARGE: Final = 16 << 10
"""Bytes of YAML; a smaller file is read as fast as it is recalled."""
_LARGEST_KEPT: Final = 8 << 20
_KEPT_FILES: Final = 4
_RULES: Final = "rules"
_MAX_INTERNED: Final = 24


class RulesUnusable(ForgeError):
    """A rules file broke while the session runs: calls with effects are refused until it is repaired."""

    stated_name = "RulesUnusable"

    def __init__(self, error: ConfigError) -> None:
        first = error.problems[0]
        super().__init__(first, status=Status.POLICY_DENIED, code="RULES_UNUSABLE")
        place = _PLACE.match(first)
        self.file = place["file"] if place else first.partition(":")[0]
        self.line = int(place["line"]) if place else 0
        self.problem = place["problem"] if place else first.partition(": ")[2]


class FileSource:
    """rules.yaml or remembered.yaml in FORGE_HOME. A missing file has no rules."""

    def __init__(self, path: Path, name: str, origin: RuleOrigin, values: ValueCache) -> None:
        self._path = path
        self._name = name
        self._origin = origin
        self._values = values
        self._stamp: FileStamp | None = None
        self._sure = False
        self._error: ConfigError | None = None
        self.content = _EMPTY
        self.data = b""
        """The bytes that were parsed."""
        self._is_checked = False
        """Whether `content` is what they say."""

    def load(self) -> None:
        self._read(target_stamp(self._path))  # a person may keep their rules elsewhere, and link to them
        if self._error:
            raise self._error

    def refresh(self) -> bool:
        now = target_stamp(self._path)
        changed = not self._sure or now != self._stamp
        if changed:
            before = self.content
            self._read(now)
            changed = self.content != before
        if self._error:
            raise RulesUnusable(self._error)
        return changed

    def _read(self, stamp: FileStamp | None) -> None:
        """The stamp is taken before reading: a file that changes meanwhile is read once more, never too seldom."""
        self._stamp, self._sure = stamp, stamp is None or stamp.settled
        self._error = None
        try:
            if stamp is None and not os.path.lexists(self._path):
                self.content, self.data, self._is_checked = _EMPTY, b"", False
                return
            data = read_bytes(self._path, self._name)
            if self._is_checked and data == self.data:  # written just now, and not changed since
                return
            self.data, self._is_checked = data, False
            self.content = checked_rules(self._values.read(data, self._name), self._origin)
            self._is_checked = True
        except ConfigError as error:
            self._error = error
            self._sure = False  # a file whose permissions are repaired keeps its times


class SharedRules(Protocol):
    """Rules that several machines share, kept up to date by somebody else."""

    @property
    def content(self) -> RuleFile:
        """Returns the rules that were read last. Raises RulesUnusable."""

    def remember(self, rules: Iterable[Rule], author: str) -> None:
        """Stores rules permanently in the name of the person who answered. Does not block."""


class SharedSource:
    """The shared rules in one book. They are the account's own: whoever keeps them may do so."""

    def __init__(self, shared: SharedRules) -> None:
        self.shared = shared
        self.content = shared.content

    def load(self) -> None:
        self.content = self.shared.content

    def refresh(self) -> bool:
        before, self.content = self.content, self.shared.content
        return self.content is not before


class ProjectSource:
    """`.forge/rules.yaml` of a project; counts only while the project is trusted with exactly these bytes."""

    def __init__(
        self,
        root: Path,
        trusted: Callable[[], bool],
        trusted_with: Callable[[Mapping[str, bytes]], bool] | None,
        values: ValueCache,
    ) -> None:
        self._file = FileSource(root / PROJECT_RULES, PROJECT_RULES, RuleOrigin.PROJECT, values)
        self._values = values
        self._path = root / PROJECT_RULES
        self._trusted = trusted
        self._trusted_with = trusted_with
        self._in_use = False
        self._trusted_bytes: bytes | None = None
        """The bytes that were found to be the trusted ones."""
        self.notice = ""

    @property
    def content(self) -> RuleFile:
        return self._file.content if self._in_use else _EMPTY

    def load(self) -> None:
        self._use_if_trusted(self._file.load)

    def refresh(self) -> bool:
        before = self.content
        self._use_if_trusted(self._file.refresh)
        return self.content != before

    def _use_if_trusted(self, read: Callable[[], object]) -> None:
        self._in_use = False
        if self._may_be_used():
            read()
            self._in_use = self._still_trusted()

    def ignored_rules(self) -> tuple[Rule, ...]:
        """Returns the rules of an untrusted project file, for listings; empty if it cannot be read."""
        if self._in_use or not self._path.is_file():
            return ()
        try:
            values = self._values.read(read_bytes(self._path, PROJECT_RULES), PROJECT_RULES)
            return checked_rules(values, RuleOrigin.PROJECT).rules
        except ConfigError:
            return ()

    def _may_be_used(self) -> bool:
        self.notice = ""
        if not os.path.lexists(self._path):
            return False
        if self._path.is_symlink() or self._path.parent.is_symlink():
            self.notice = f"{PROJECT_RULES} is ignored: it is reached through a link."
            return False
        if not self._trusted():
            self.notice = f"{PROJECT_RULES} is ignored: the project is not trusted. Read it, then run `forge trust`."
            return False
        return True

    def _still_trusted(self) -> bool:
        """Checked again after reading, about the very bytes that were parsed: the file may have changed since."""
        data = self._file.data
        if not self._may_be_used():
            return False
        if self._trusted_with is not None and self._trusted_bytes != data:
            if not self._trusted_with({PROJECT_RULES: data}):
                return False
            self._trusted_bytes = data
        return True


class ValueCache:
    """The values of large rules files, by the digest of their bytes: FORGE_HOME/cache/rules-…, 0600, safe to delete.

    To read 5,000 rules as YAML takes two seconds; to read their values back, a fiftieth of that. Values are all that is
    kept: every rule and every example is checked at every start, as if the YAML had just been read.

    Threat: a forged file would put other rules in force than the person reads. Whoever can write it can write
    rules.yaml, which lies beside it; a link, or a file that others own or may write, is not used. It is JSON and no
    pickle: reading it runs nothing.
    """

    def __init__(self, home: ForgeHome) -> None:
        self._home = home

    def read(self, data: bytes, name: str) -> YamlFile:
        """Parses YAML as `parse_yaml` does, from a cache if the file is large."""
        if len(data) < _LARGE:
            return parse_yaml(data, name)
        digest = sha256(f"{__version__}\n".encode())
        digest.update(data)
        path = self._home.path / "cache" / f"rules-{digest.hexdigest()}"
        if (found := _read_cached(path, name)) is not None:
            return found
        file = parse_yaml(data, name)
        with contextlib.suppress(OSError, ValueError):  # without it the next start is slower, and that is all
            self._store(path, file)
        return _read_cached(path, name) or file  # what comes back takes half the memory

    def _store(self, path: Path, file: YamlFile) -> None:
        folder = self._home.ensure("cache")
        items = file.value.get(_RULES)
        rules = items if isinstance(items, list) else []
        lines: dict[int, list[list[str | int]]] = {}
        """Number of the rule (-1: of none) → places in it with the line of each, where it is not the one around it."""
        for place, line in file.lines.items():
            if not place or file.line(place[:-1]) != line:
                number = place[1] if place[:1] == (_RULES,) and place[1:2] and rules else -1
                lines.setdefault(int(number), []).append([*(place if number == -1 else place[2:]), line])
        head = {"value": {**file.value, _RULES: []} if rules else file.value, "lines": lines.get(-1, [])}
        with replacing(path, durable=False) as out:
            out.write(f"{json.dumps({**head, 'count': len(rules)})}\n".encode())
            out.writelines(f"{json.dumps([rule, lines.get(at, [])])}\n".encode() for at, rule in enumerate(rules))
        stored = sorted(folder.glob("rules-*"), key=lambda each: each.lstat().st_mtime_ns)
        for old in stored[:-_KEPT_FILES]:
            old.unlink(missing_ok=True)


def _read_cached(path: Path, name: str) -> YamlFile | None:
    """Reads a cached file. Returns None if it is missing or was not written by `ValueCache`."""
    try:
        with open_private(path, _LARGEST_KEPT, owned=True) as file:
            head = json.loads(file.readline())
            value, lines = head["value"], {tuple(place): int(line) for *place, line in head["lines"]}
            decoder, number = json.JSONDecoder(object_pairs_hook=_interned_mapping), -1
            for number, text in enumerate(file):
                rule, places = decoder.decode(text.decode("ascii"))
                value[_RULES].append(rule)
                lines.update({(_RULES, number, *place): int(line) for *place, line in places})
            whole = number + 1 == head["count"]
    except JSON_FILE_ERRORS:
        return None
    return YamlFile(name, value, lines) if whole and isinstance(value, dict) else None


def _interned_mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of a rule, its words held once for all rules: thousands of them say the same few."""
    return {intern(key): _interned(value) for key, value in pairs}


def _interned(value: Any) -> Any:
    if isinstance(value, list):
        return [_interned(each) for each in value]
    return intern(value) if isinstance(value, str) and len(value) <= _MAX_INTERNED else value


_HEADER: Final = """\
# "Always" answers, kept by Forge. See them with `forge rules list`, take one back with `forge rules revoke ID`.
version: 1
rules:"""
_NOT_IN_YAML: Final = regex("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def remember(home: ForgeHome, rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Adds rules that are not there yet; gives them as kept. Raises ConfigError for a rule that may not be saved."""
    name = home.shown(home.remembered)
    kept = tuple(make_rule(rule.to_yaml(), RuleOrigin.REMEMBERED, file=name) for rule in rules)
    _update_remembered(home, lambda present: tuple({rule.id: rule for rule in (*kept, *present)}.values()))
    return kept


def remember_mode(home: ForgeHome, root: Path, mode: ApprovalMode) -> Rule:
    """Stores the approval mode in which sessions of this directory start; replaces an earlier one. Raises as
    `remember`.
    """
    place = os.path.realpath(root)
    verdict = Verdict.ASK if mode is ApprovalMode.INTERACTIVE else Verdict.PRE_APPROVED
    written = {"mode": mode.value, "verdict": verdict.value, "scope": {"project": place}}
    kept = make_rule(written, RuleOrigin.REMEMBERED, file=home.shown(home.remembered))

    def others(present: tuple[Rule, ...]) -> tuple[Rule, ...]:
        return tuple(each for each in present if each.kind is not RuleKind.MODE or each.scope.project != place)

    _update_remembered(home, lambda present: (kept, *others(present)))
    return kept


def remembered_mode(home: ForgeHome, root: Path) -> Setting[ApprovalMode] | None:
    """Returns the stored approval mode of this directory, with its file and rule. Returns None if there is none or the
    file is unreadable; the session's rules report that.
    """
    name, place = home.shown(home.remembered), os.path.realpath(root)
    if not os.path.lexists(home.remembered):
        return None
    try:
        rules = parse_rules(read_bytes(home.remembered, name), name, RuleOrigin.REMEMBERED).rules
    except ConfigError:
        return None
    found = next((each for each in rules if each.kind is RuleKind.MODE and each.scope.project == place), None)
    return Setting(ApprovalMode(found.mode), f"{name}: {found.id}") if found is not None else None


def revoke(home: ForgeHome, ids: Iterable[str]) -> tuple[str, ...]:
    """Removes remembered rules by id. Returns the ids that were found."""
    unwanted = frozenset(ids)
    before = _update_remembered(home, lambda present: tuple(rule for rule in present if rule.id not in unwanted))
    return tuple(rule.id for rule in before if rule.id in unwanted)


def revoke_all(home: ForgeHome) -> int:
    return len(_update_remembered(home, lambda present: ()))


def _update_remembered(home: ForgeHome, change: Callable[[tuple[Rule, ...]], tuple[Rule, ...]]) -> tuple[Rule, ...]:
    """Gives the rules as they were before. Raises LockTimeout, ConfigError, OSError."""
    home.ensure()
    name = home.shown(home.remembered)
    with locked(home.path / "remembered.lock", name):
        present: tuple[Rule, ...] = ()
        if os.path.lexists(home.remembered):
            present = parse_rules(read_bytes(home.remembered, name), name, RuleOrigin.REMEMBERED).rules
        changed = change(present)
        if [rule.id for rule in changed] != [rule.id for rule in present]:
            lines = [f"  - {_as_yaml(rule)}" for rule in changed]
            text = "\n".join([_HEADER, *lines]) if lines else f"{_HEADER} []"
            write_private(home.remembered, f"{text}\n".encode())
        return present


def _as_yaml(rule: Rule) -> str:
    """JSON is YAML, but for a few characters that YAML wants escaped."""
    return _NOT_IN_YAML.sub(
        lambda match: f"\\u{ord(match.group()):04x}", json.dumps(rule.to_yaml(), ensure_ascii=False)
    )
