"""The official JSON Schema test suite, taken once from the source archive of a pinned release of `jsonschema`.

The archive is found through the package index pip is configured for, checked by its SHA-256 and unpacked as data: its
build is never run. It lands in build/json-schema-suite/, which is not part of the repository.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin

from tests.deadlines import PATIENCE

VERSION = "4.25.1"
SHA256 = "e4a9655ce0da0c0b67a085847e00a3a51449e1157f4f75e9fb5aa545e122eb85"
ARCHIVE = f"jsonschema-{VERSION}.tar.gz"
PLACE = Path(__file__).parents[2] / "build" / "json-schema-suite" / VERSION
REMOTE = "http://localhost:1234/"
_TIMEOUT = 30


class Unavailable(Exception):
    """The suite is not here and could not be fetched."""


class Case(NamedTuple):
    file: str
    group: str
    test: str
    schema: Any
    data: Any
    valid: bool

    @property
    def id(self) -> str:
        return f"{self.file} | {self.group} | {self.test}"


def required_cases(draft: str = "draft2020-12", file: str = "*") -> Iterator[Case]:
    """Every test of the draft outside `optional/`, or of one of its files."""
    for path in sorted((suite() / "tests" / draft).glob(f"{file}.json")):
        for group in json.loads(path.read_bytes()):
            for test in group["tests"]:
                yield Case(
                    path.stem, group["description"], test["description"], group["schema"], test["data"], test["valid"]
                )


def remote_schema(uri: str) -> Any:
    """What the suite's own little server would answer; nothing leaves this machine."""
    path = suite() / "remotes" / uri.removeprefix(REMOTE)
    if not uri.startswith(REMOTE) or not path.is_file():
        raise ValueError(f"not part of the suite: {uri}")
    return json.loads(path.read_bytes())


def suite() -> Path:
    """The folder that holds `tests` and `remotes`; fetches it when it is not there yet."""
    if not PLACE.is_dir():
        _unpack(_archive())
    return PLACE


def _archive() -> bytes:
    try:
        index = urljoin(_index() + "/", "jsonschema/")
        listing = _get(index).decode("utf-8", "replace")
        link = re.search(rf'href="([^"#]*{re.escape(ARCHIVE)})[#"]', listing)
        if link is None:
            raise Unavailable(f"the package index does not list {ARCHIVE}")
        content = _get(urljoin(index, link[1]))
    except (OSError, ValueError) as error:
        raise Unavailable(f"{ARCHIVE} could not be fetched: {error}") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise Unavailable(f"{ARCHIVE} does not have the expected SHA-256")
    return content


def _index() -> str:
    """The index pip would ask, without asking it for anything."""
    if configured := os.environ.get("PIP_INDEX_URL"):
        return configured.rstrip("/")
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if asked.returncode == 0 and asked.stdout.strip():
        return asked.stdout.strip().rstrip("/")
    try:
        from pip._internal.models.index import PyPI
    except ImportError as error:
        raise Unavailable("pip is not installed here, so there is no package index to ask") from error
    return str(PyPI.simple_url).rstrip("/")


def _get(url: str) -> bytes:
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE"))
    with urllib.request.urlopen(url, timeout=_TIMEOUT, context=context) as answer:
        return bytes(answer.read())


def _unpack(content: bytes) -> None:
    """Beside its place first, then renamed: two test processes may do this at once."""
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE.parent) as folder, tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if member.isfile() and parts[1:3] in (("json", "tests"), ("json", "remotes")) and ".." not in parts:
                target = Path(folder, "suite").joinpath(*parts[2:])
                target.parent.mkdir(parents=True, exist_ok=True)
                file = archive.extractfile(member)
                assert file is not None
                target.write_bytes(file.read())
        try:
            Path(folder, "suite").rename(PLACE)
        except OSError:
            if not PLACE.is_dir():
                raise
