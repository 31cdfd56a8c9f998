"""A server that looks at pages with a real Chromium: `python browser.py CHROMIUM`. Its tool `screenshot {file}` gives
the page as a PNG. Built on echo.py."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
from typing import Any

import echo

echo.TOOLS[:] = [
    {
        "name": "screenshot",
        "description": "A picture of a page.",
        "inputSchema": echo.shape(file={"type": "string"}),
        "annotations": {"readOnlyHint": True},
    }
]
# Its own sandbox needs namespaces, which the walls around this server do not give.
HOW = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--single-process", "--no-zygote")


def call(name: str, args: dict[str, Any], ident: Any, token: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "page.png")
        words = (*HOW, "--window-size=320,200", f"--screenshot={picture}", f"file://{args['file']}")
        said = subprocess.run([sys.argv[1], *words], capture_output=True, text=True, timeout=60, check=False)
        if not os.path.exists(picture):
            return echo.text(said.stderr[-2000:], isError=True)
        with open(picture, "rb") as file:
            data = base64.b64encode(file.read()).decode()
    block = {"type": "image", "data": data, "mimeType": "image/png"}
    return {"content": [{"type": "text", "text": "The page as it looks now."}, block]}


if __name__ == "__main__":
    echo.call = call
    echo.main()
