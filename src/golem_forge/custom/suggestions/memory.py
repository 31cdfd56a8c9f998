"""What a person does not want to hear of again: FORGE_HOME/state/suggestions.json (0600), key → when.

A file that is lost or unreadable dismisses nothing: the worst is one more suggestion. Refuses (ForgeError) only where
a dismissal could not be kept.
"""

from __future__ import annotations

import json
import os
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.errors import ForgeError
from golem_forge.events.clock import iso_now

_FOLDER: Final = "state"
_NAME: Final = "suggestions.json"
_LARGEST: Final = 1 << 20
_MOST: Final = 1_000


def dismissed(home: ForgeHome) -> dict[str, str]:
    try:
        fd = os.open(home.path / _FOLDER / _NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            told = json.loads(file.read(_LARGEST))
        return {str(key): str(at) for key, at in told["dismissed"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def dismiss(home: ForgeHome, key: str) -> None:
    known = {other: at for other, at in dismissed(home).items() if other != key}
    _keep(home, dict([*known.items(), (key, iso_now())][-_MOST:]))


def undismiss(home: ForgeHome, key: str) -> bool:
    """False if it was not dismissed."""
    known = dismissed(home)
    if known.pop(key, None) is None:
        return False
    _keep(home, known)
    return True


def _keep(home: ForgeHome, known: dict[str, str]) -> None:
    try:
        folder = home.ensure(_FOLDER)
        new = folder / f".{_NAME}-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(fd, "w") as file:
                json.dump({"dismissed": known}, file, indent=2)
            os.replace(new, folder / _NAME)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ForgeError(
            f"The dismissal could not be kept in $FORGE_HOME/{_FOLDER}/{_NAME}: {error.strerror}. "
            "Put that right and try again."
        ) from None
