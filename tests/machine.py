"""What the machine of a test run has besides is not seen: its model servers, its environment, its agents' sockets.

A person who runs the tests may have a key in the environment, a model server on port 8080, an agent that signs for
them. Whoever needs one of these in a test puts it there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_KEPT = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "PWD", "CI"),
    *("FORGE_UPDATE_PINNED", "FORGE_PICTURES", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH"),
}
_KEPT_FAMILIES = ("LC_", "PYTEST_", "PYTHON", "COV", "PIP_", "UV_", "PLAYWRIGHT_")
"""Of the run itself, and of what installs packages."""


def forget_environment() -> None:
    """From now on, in this process and in those it starts."""
    for name in list(os.environ):
        if name not in _KEPT and not name.startswith(_KEPT_FAMILIES):
            del os.environ[name]


def forget_model_servers(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Nobody listens on the usual ports of model servers. `replace`: as `setattr`."""
    from golem_forge.agent.model import setup

    replace(setup, "LOCAL_PORTS", ())
