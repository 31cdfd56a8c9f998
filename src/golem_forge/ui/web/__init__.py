"""The browser UI: a second subscriber of a session's bus, served on loopback from the session's own process.

`need_web` raises the ForgeError that names the packages missing from the extra `web`; nothing else is loaded here.
The page's files are in `page/`, found through importlib.resources by this package's name.
"""

from __future__ import annotations

from typing import Final

from golem_forge.core.errors import ForgeError, install_command

_PACKAGES: Final = {
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "websockets": "websockets",
    "nh3": "nh3",
    "markdown_it": "markdown-it-py",
    "pygments": "pygments",
}
"""Module → package."""


def need_web() -> None:
    """Checks that the packages are installed, before their first import. Raises a ForgeError that says
    how to get them.
    """
    from importlib.util import find_spec

    absent = [package for module, package in _PACKAGES.items() if find_spec(module) is None]
    if absent:
        what = "the package" if len(absent) == 1 else "the packages"
        text = f"The browser needs {what} {', '.join(absent)}: {install_command('web')}"
        raise ForgeError(text, code="WEB_MISSING")
