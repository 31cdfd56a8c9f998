"""Link: puts a link that lets a person in before them, and on a desktop opens it.

Threat: whoever reads the link first is in. A browser is therefore handed a private file that leads there, never the
link itself: the words a program was started with are public on most machines.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from html import escape
from pathlib import Path
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.sandbox.host import helper_environ, isolated

_BROWSE: Final = "import sys, webbrowser; webbrowser.open(sys.argv[1])"


class Link:
    def __init__(self, home: ForgeHome, *, open_browser: bool = True) -> None:
        self._home = home
        self._open = open_browser and on_a_desktop()
        self._files: list[Path] = []

    def show(self, url: str) -> None:
        print(f"Forge in your browser: {url}", flush=True)
        if self._open:
            with contextlib.suppress(OSError):  # the link was printed; the home may be on a read-only disk
                leading = self._leading_file(url)
                threading.Thread(target=_open_in_browser, args=(leading.as_uri(),), daemon=True).start()

    def forget(self) -> None:
        """The links are of no use any more."""
        for file in self._files:
            file.unlink(missing_ok=True)
        self._files.clear()

    def _leading_file(self, url: str) -> Path:
        self._home.ensure("state")
        file = self._home.path / "state" / f"open-{secrets.token_hex(8)}.html"
        there = escape(url, quote=True)
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as page:
            page.write(
                f'<!doctype html><meta charset="utf-8"><title>Forge</title><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0;url={there}"><a href="{there}">Forge</a>\n'
            )
        self._files.append(file)
        return file


def on_a_desktop() -> bool:
    """Whether a browser would open before the person who typed this, and not on a screen far away."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def in_system_journal() -> bool:
    """Whether systemd keeps what is printed here. Threat: a link in a journal is there for whoever may read that."""
    try:
        about = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


def _open_in_browser(address: str) -> None:
    """Threat: a browser is looked up on PATH. In a process of its own, whose PATH leads nowhere into the project."""
    import subprocess

    with contextlib.suppress(OSError):  # the link was printed
        subprocess.run(
            isolated("-c", _BROWSE, address), stdin=subprocess.DEVNULL, env=helper_environ(), cwd="/", check=False
        )
