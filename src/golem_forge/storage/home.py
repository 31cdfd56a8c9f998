"""FORGE_HOME: where a person's own config, rules, grants and trust live. No zone and no child process reaches it.

`FORGE_HOME` in the environment names it, else it is `~/.forge`. Directories are made when first needed, for their
owner alone (0700).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from golem_forge.core.lazy_dataclass import dataclass

HOME_ADVICE: Final = "correct that, or set FORGE_HOME to another directory"
"""The end of every text about a home that cannot be used."""


@dataclass(frozen=True, slots=True)
class ForgeHome:
    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def rules(self) -> Path:
        return self.path / "rules.yaml"

    @property
    def remembered(self) -> Path:
        return self.path / "remembered.yaml"

    @property
    def trust_dir(self) -> Path:
        return self.path / "trust"

    def ensure(self, *parts: str) -> Path:
        """The directory below the home, made 0700 with everything above it that is missing."""
        directory = self.path
        _make_private_dir(directory, parents=True)
        for part in parts:
            directory = directory / part
            _make_private_dir(directory, parents=False)
        return directory

    def shown(self, path: Path) -> str:
        """A file of the home as its owner knows it; texts of Forge carry no other host path."""
        relative = path.relative_to(self.path)
        try:
            return f"~/{(self.path / relative).relative_to(Path.home())}"
        except (ValueError, RuntimeError):
            return f"$FORGE_HOME/{relative}"


def _make_private_dir(directory: Path, *, parents: bool) -> None:
    try:
        directory.mkdir(mode=0o700, parents=parents, exist_ok=True)
    except FileExistsError:  # for whoever asks, that is not "it is there already"
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(directory)) from None


def forge_home(environ: Mapping[str, str] = os.environ) -> ForgeHome:
    named = environ.get("FORGE_HOME", "")
    return ForgeHome(Path(os.path.abspath(os.path.expanduser(named or "~/.forge"))))
