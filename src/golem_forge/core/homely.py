"""Host paths the way their owner writes them."""

from __future__ import annotations

import os
from pathlib import Path

from golem_forge.core.visible import visible


def homely(path: Path | str) -> str:
    """`~/src/app`: a host path as the person at this machine writes it, on one line and safe to print."""
    text, home = os.fspath(path), os.path.expanduser("~")
    if home != "/" and (text == home or text.startswith(home + "/")):
        text = "~" + text[len(home) :]
    return visible(text).replace("\n", " ").replace("\t", " ")
