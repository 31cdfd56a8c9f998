"""Posting: the messages to one server as HTTP requests. Imported when the first server over HTTP is used.

Address, headers and limits are the same for every message, so they are parsed and merged once and not for each, which
was a good part of what Forge added to a call over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from golem_forge.mcp import sdk


class Posting:
    def __init__(self, url: str, headers: sdk.httpx2.Headers, timeout: sdk.httpx2.Timeout) -> None:
        """`headers`: what every request has, unless it says otherwise itself."""
        self._url = sdk.httpx2.URL(url)
        usual = {name.lower(): value for name, value in headers.raw}
        self._headers = {b"host": self._url.netloc, **usual}
        self._timeout = timeout.as_dict()

    def request(self, message: Any, headers: Mapping[str, str]) -> sdk.httpx2.Request:
        """What httpx makes of the same, but for the case of the headers' names."""
        body = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        said = {name.lower().encode("ascii"): value.encode("ascii") for name, value in headers.items()}
        return sdk.httpx2.Request(
            "POST",
            self._url,
            headers={**self._headers, **said, b"content-length": b"%d" % len(body)},
            stream=sdk.httpx2.ByteStream(body),
            extensions={"timeout": dict(self._timeout)},
        )
