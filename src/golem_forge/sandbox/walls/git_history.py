"""Whether one commit is an ancestor of another, asked of the system's git.

The repository is the person's, its objects may be a command's. So git is asked nothing that runs hooks or filters, with
no settings but the repository's own, without replacements, and may not fetch what is missing.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

from golem_forge.sandbox.host import find_program

ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_OPTIONAL_LOCKS": "0",
}
_WITHIN_S: Final = 2.0


def is_ancestor(git_dir: str, old: str, new: str) -> bool:
    """False also where nobody can tell: a missing git, a missing commit."""
    git = find_program("git", kept_out=(os.path.dirname(git_dir.rstrip("/")),))
    if git is None:
        return False
    words = ("--git-dir", git_dir, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    try:
        ran = subprocess.run(
            [git, *words, "merge-base", "--is-ancestor", old, new],
            cwd="/",
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_WITHIN_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return ran.returncode == 0
