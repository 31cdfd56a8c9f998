"""Questions to the system's git about the person's repository, on the host.

The repository is the person's, its objects may be a command's. So git is asked nothing that runs hooks or filters, with
no settings but the repository's own, without replacements, and may not fetch what is missing.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

from golem_forge.sandbox.host import find_program

_ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_OPTIONAL_LOCKS": "0",
}
_SETTINGS: Final = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_WITHIN_S: Final = 2.0


def agrees(git_dir: str, *words: str) -> bool | None:
    """Whether git exits with 0. None: it could not be asked, or thought about it for too long."""
    git = find_program("git", kept_out=(os.path.dirname(git_dir.rstrip("/")),))
    if git is None:
        return None
    try:
        ran = subprocess.run(
            [git, "--git-dir", git_dir, *_SETTINGS, *words],
            cwd="/",
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.returncode == 0


def is_ancestor(git_dir: str, old: str, new: str) -> bool:
    """False also where nobody can tell: a missing git, a missing commit."""
    return agrees(git_dir, "merge-base", "--is-ancestor", old, new) is True
