"""Git repositories for the demo, by the real git: the shop as one commit, and a shop with a summer of history.

Nothing of the person's own git takes part: no configuration, no hooks, no signing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple


class Commit(NamedTuple):
    day: str
    author: str
    subject: str


SUMMER = (
    Commit("2025-07-08", "Ada", "A cart that adds up"),
    Commit("2025-07-15", "Ada", "Round prices to cents"),
    Commit("2025-07-22", "Grace", "Parcels in three sizes"),
    Commit("2025-08-05", "Grace", "Vouchers"),
    Commit("2025-08-19", "Ada", "Vouchers expire"),
    Commit("2025-09-09", "Grace", "Gift wrap"),
    Commit("2025-09-10", "Ada", "Stamps"),
    Commit("2025-09-16", "Grace", "Ribbons"),
    Commit("2025-09-22", "Ada", "Returns"),
    Commit("2025-09-24", "Grace", "Gift cards"),
)


def is_git_there() -> bool:
    return shutil.which("git") is not None


def keep_as_it_is(folder: Path) -> None:
    """One commit of what is there, so that its own history can tell later what was changed."""
    _git(folder, "init", "--quiet")
    _commit(folder, Commit("2025-06-30", "demo", "The shop as it was"))


def make_history(folder: Path) -> None:
    folder.mkdir()
    _git(folder, "init", "--quiet")
    for commit in SUMMER:
        with (folder / "CHANGES").open("a") as changes:
            changes.write(f"{commit.subject}\n")
        _commit(folder, commit)


def _commit(folder: Path, commit: Commit) -> None:
    date, email = f"{commit.day}T12:00:00Z", f"{commit.author.lower()}@example.test"
    of = {"NAME": commit.author, "EMAIL": email, "DATE": date}
    _git(folder, "add", ".")
    by = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in of.items()}
    _git(folder, "commit", "--quiet", "--message", commit.subject, **by)


def _git(folder: Path, *words: str, **environ: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    none = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *words], cwd=folder, env=own | none | environ, check=True)
