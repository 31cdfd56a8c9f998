"""Notes of running commands: since when commands run in a zone, and which Forge runs them.

One small file for each zone in FORGE_HOME/running, there while a command runs. Threat: a Forge that is killed looks at
nothing that its command left. The next Forge that starts a command in the zone finds the note, and judges all that
changed since. A home that cannot be written costs the note, never the walls.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Final

from golem_forge.sandbox.processes.tree import stat

_FOLDER: Final = "running"
_LARGEST: Final = 4096
_running: Counter[str] = Counter()
"""How many commands of this process run in each zone, by the note's path."""


def note_start(forge_home: Path, zone: str) -> int:
    """Call it before a command starts. Since when (nanoseconds since the epoch) nobody has looked at what commands left
    in this zone, because their Forge was killed; 0: there is no such moment."""
    path = _path(forge_home, zone)
    _running[path] += 1
    if _running[path] > 1:
        return 0
    since = _left_by_the_dead(path)
    facts = stat(os.getpid())
    said = {"since": since or time.time_ns(), "pid": os.getpid(), "started": facts.started if facts else 0}
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fresh = f"{path}.{os.getpid()}"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            json.dump(said, file)
        os.replace(fresh, path)
    return since


def note_end(forge_home: Path, zone: str) -> None:
    """Call it once what the command left has been looked at."""
    path = _path(forge_home, zone)
    _running[path] -= 1
    if _running[path] <= 0:
        del _running[path]
        with contextlib.suppress(OSError):
            os.unlink(path)


def _left_by_the_dead(path: str) -> int:
    try:
        with open(path, "rb") as file:
            said = json.loads(file.read(_LARGEST))
        since, pid, started = int(said["since"]), int(said["pid"]), int(said["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    facts = stat(pid)
    return 0 if facts is not None and facts.alive and facts.started == started else since


def _path(forge_home: Path, zone: str) -> str:
    return os.path.join(forge_home, _FOLDER, hashlib.sha256(os.fsencode(zone)).hexdigest()[:32])
