"""A URL that a server wants a person to open: https, or http to loopback, and spelled so that nobody misreads its host.

Threat: `https://bank.example@evil.test`, backslashes that browsers read as slashes, letters that look like others,
invisible characters. Such a URL is refused and nothing is shown.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from golem_forge.config.mcp.address import url_problem
from golem_forge.mcp.client.asking.request_errors import INVALID_PARAMS, Refused

_LONGEST: Final = 4096


class Page(NamedTuple):
    url: str
    host: str
    """With its port where it names one."""


def checked_url(url: str) -> Page:
    if len(url) > _LONGEST or url_problem(url):
        raise Refused(INVALID_PARAMS, "url: must be https, or http to loopback, in plain characters and without a user")
    return Page(url, urlsplit(url).netloc.lower())
