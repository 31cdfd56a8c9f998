"""Where rules are read from: the person's files, and a trusted project's. Each knows whether it changed on disk.

`load` reads for the first time and raises ConfigError. `refresh` reads again if the file is another one now; it says
whether the rules changed and raises RulesUnusable while the file cannot be used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from golem_forge.config.program import PROJECT_RULES
from golem_forge.config.stamps import Stamp, stamp_behind
from golem_forge.config.yaml_file import read_bytes
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.verdict import Status
from golem_forge.policy.rules.model import Origin, Rule, RuleFile

_PLACE: Final = re.compile(r"(?P<file>.*?):(?P<line>\d+): (?P<problem>.*)", re.DOTALL)
_EMPTY: Final = RuleFile(())


class RulesUnusable(ForgeError):
    """A rules file broke while the session runs: calls with effects are refused until it is repaired."""

    def __init__(self, error: ConfigError) -> None:
        first = error.problems[0]
        super().__init__(first, status=Status.POLICY_DENIED, code="RULES_UNUSABLE")
        place = _PLACE.match(first)
        self.file = place["file"] if place else first.partition(":")[0]
        self.line = int(place["line"]) if place else 0
        self.problem = place["problem"] if place else first.partition(": ")[2]


class FileSource:
    """rules.yaml or remembered.yaml in FORGE_HOME. A missing file has no rules."""

    def __init__(self, path: Path, name: str, origin: Origin) -> None:
        self._path = path
        self._name = name
        self._origin = origin
        self._seen: Stamp | None = None
        self._sure = False
        self._error: ConfigError | None = None
        self.content = _EMPTY
        self.data = b""
        """The bytes that were parsed."""

    def load(self) -> None:
        self._read(stamp_behind(self._path))  # a person may keep their rules elsewhere, and link to them
        if self._error:
            raise self._error

    def refresh(self) -> bool:
        now = stamp_behind(self._path)
        changed = not self._sure or now != self._seen
        if changed:
            before = self.content
            self._read(now)
            changed = self.content != before
        if self._error:
            raise RulesUnusable(self._error)
        return changed

    def _read(self, seen: Stamp | None) -> None:
        """The stamp is taken before reading: a file that changes meanwhile is read once more, never too seldom."""
        self._seen, self._sure = seen, seen is None or seen.settled
        self._error = None
        try:
            missing = seen is None and not os.path.lexists(self._path)
            self.data = b"" if missing else read_bytes(self._path, self._name)
            self.content = _EMPTY if missing else _parsed(self.data, self._name, self._origin)
        except ConfigError as error:
            self._error = error
            self._sure = False  # a file whose permissions are repaired keeps its times


class ProjectSource:
    """`.forge/rules.yaml` of a project; counts only while the project is trusted with exactly these bytes."""

    def __init__(
        self, root: Path, trusted: Callable[[], bool], trusted_with: Callable[[Mapping[str, bytes]], bool] | None
    ) -> None:
        self._file = FileSource(root / PROJECT_RULES, PROJECT_RULES, Origin.PROJECT)
        self._path = root / PROJECT_RULES
        self._trusted = trusted
        self._trusted_with = trusted_with
        self._counts = False
        self._vouched: bytes | None = None
        """The bytes that were found to be the trusted ones."""
        self.notice = ""

    @property
    def content(self) -> RuleFile:
        return self._file.content if self._counts else _EMPTY

    def load(self) -> None:
        self._counts = False
        if self._may_count():
            self._file.load()
            self._counts = self._still_trusted()

    def refresh(self) -> bool:
        before = self.content
        self._counts = False
        if self._may_count():
            self._file.refresh()
            self._counts = self._still_trusted()
        return self.content != before

    def ignored_rules(self) -> tuple[Rule, ...]:
        """What the file would say if it counted, for listings; nothing if it cannot be read."""
        if self._counts or not self._path.is_file():
            return ()
        try:
            return _parsed(read_bytes(self._path, PROJECT_RULES), PROJECT_RULES, Origin.PROJECT).rules
        except ConfigError:
            return ()

    def _may_count(self) -> bool:
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
        """Asked again after reading, about the very bytes that were parsed: others may stand there already."""
        if not self._may_count():
            return False
        if self._trusted_with is None or self._vouched == self._file.data:
            return True
        if not self._trusted_with({PROJECT_RULES: self._file.data}):
            return False
        self._vouched = self._file.data
        return True


def _parsed(data: bytes, name: str, origin: Origin) -> RuleFile:
    from golem_forge.policy.rules.load import parse_rules  # most people start without any rules file

    return parse_rules(data, name, origin)
