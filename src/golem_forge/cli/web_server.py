"""The server of `forge web`: listens, shows the login link, and ends all its sessions when it is told to end.

`LoginLink` prints a link and opens it on a desktop. Enter prints another link, so that a late or second browser does
not need a restart; only a terminal in the foreground is read, because the system stops background jobs that read.

Threat: whoever reads the link first is in. A browser is given a private file that leads to the link, never the link
itself: the arguments of a process are public on most machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from html import escape
from pathlib import Path

from golem_forge.cli.command import print_error
from golem_forge.core.signals import stop_on_termination
from golem_forge.core.text import display_path
from golem_forge.sandbox.host import helper_environ, isolated
from golem_forge.storage.home import HOME_ADVICE, ForgeHome, create_private, forge_home
from golem_forge.ui.web.app import WebServer
from golem_forge.ui.web.listen import ListenAddress
from golem_forge.ui.web.security import LoginStore
from golem_forge.ui.web.session_registry import SessionLauncher


async def serve(directory: Path, reach: ListenAddress, *, notify: bool, open_browser: bool) -> int:
    home = forge_home()
    own = SessionLauncher(home, directory, notify=notify)
    server = WebServer(own, reach, LoginStore())
    await server.start()
    ended = asyncio.Event()
    link = LoginLink(home, open_browser=open_browser)
    with stop_on_termination(ended.set):
        try:
            if server.link_problem:
                where = display_path(home.path)
                why = f"{server.link_problem} ({where}); {HOME_ADVICE}"
                print_error("web", f"`forge web link` cannot reach this server: {why}.")
            if not server.link_problem and in_system_journal():
                print(f"Forge in your browser: {server.address} (`forge web link` prints a link)", flush=True)
            else:
                link.show(server.url)
            if on_enter(lambda: link.show(server.url)):
                print("Enter prints another link; Ctrl-C ends the server and every session it runs.", file=sys.stderr)
            await ended.wait()
        finally:
            link.forget()
            await own.close()
            await server.stop()
    return 0


class LoginLink:
    def __init__(self, home: ForgeHome, *, open_browser: bool = True) -> None:
        self._home = home
        self._open = open_browser and has_desktop()
        self._files: list[Path] = []

    def show(self, url: str) -> None:
        print(f"Forge in your browser: {url}", flush=True)
        if self._open:
            with contextlib.suppress(OSError):  # the link was printed; the home may be on a read-only disk
                leading = self._leading_file(url)
                threading.Thread(target=_open_in_browser, args=(leading.as_uri(),), daemon=True).start()

    def forget(self) -> None:
        """Deletes the files that lead to the links."""
        for file in self._files:
            file.unlink(missing_ok=True)
        self._files.clear()

    def _leading_file(self, url: str) -> Path:
        self._home.ensure("state")
        file = self._home.path / "state" / f"open-{secrets.token_hex(8)}.html"
        there = escape(url, quote=True)
        page = (
            f'<!doctype html><meta charset="utf-8"><title>Forge</title><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0;url={there}"><a href="{there}">Forge</a>\n'
        )
        with create_private(file) as opened:
            opened.write(page.encode())
        self._files.append(file)
        return file


def has_desktop() -> bool:
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
    argv = isolated("-c", "import sys, webbrowser; webbrowser.open(sys.argv[1])", address)
    with contextlib.suppress(OSError):  # the link was printed
        subprocess.run(argv, stdin=subprocess.DEVNULL, env=helper_environ(), cwd="/", check=False)


def on_enter(show: Callable[[], None]) -> bool:
    """Calls `show` for each line typed, as long as the loop runs. False: there is no terminal to read from."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()

    def typed() -> None:
        line = b""
        if _in_foreground(terminal):
            with contextlib.suppress(OSError):
                line = os.read(terminal, 4096)
        if line:
            show()
        else:  # Ctrl-D, a closed window, or another program's keys: it would be called again and again
            loop.remove_reader(terminal)

    loop.add_reader(terminal, typed)
    return True


def _in_foreground(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not the terminal of this session: nobody is stopped for reading it
        return True
