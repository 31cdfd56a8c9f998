"""Certificates of the person's own authorities (a company's proxy, a mirror), for children that speak TLS.

`show_certificates` takes the variables that name them (`SSL_CERT_FILE` and the like) and gives the same variables as
they read inside full walls, with the directory to show there. Threat: such a file often holds a private key too, and
its directory anything: so a copy is shown, in FORGE_HOME, of certificates alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from golem_forge.config.home import ForgeHome
from golem_forge.core.errors import ForgeError
from golem_forge.sandbox.store import ContentStore
from golem_forge.sandbox.walls.job import HostDirectory

FILES: Final = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
)
DIRECTORY: Final = "SSL_CERT_DIR"
NAMES: Final = (*FILES, DIRECTORY)
_PLACE: Final = "/forge/certificates"
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_MOST_BYTES: Final = 8 << 20
_MOST_FILES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    env: dict[str, str] = field(default_factory=dict)
    shown: tuple[HostDirectory, ...] = ()


def show_certificates(variables: Mapping[str, str], home: ForgeHome) -> Certificates:
    """Variables of other names are left out. Raises ForgeError for one that names no certificate that can be read."""
    bundles = {name: _read(name, variables[name]) for name in NAMES if variables.get(name)}
    if not bundles:
        return Certificates()
    if (more := bundles.pop(DIRECTORY, None)) is not None:  # one file serves every program; hashed names do not
        bundles["SSL_CERT_FILE"] = bundles.get("SSL_CERT_FILE", b"") + more
    files = {name: f"{sha256(bundle).hexdigest()[:16]}.pem" for name, bundle in bundles.items()}
    kept = ContentStore(home).put({files[name]: bundle for name, bundle in bundles.items()})
    return Certificates(
        env={name: f"{_PLACE}/{file}" for name, file in files.items()},
        shown=(HostDirectory(os.path.realpath(kept.path), _PLACE),),
    )


def _read(name: str, value: str) -> bytes:
    """Every certificate once, in order."""
    found: dict[bytes, None] = {}
    try:
        for file in _files(name, os.path.expanduser(value)):
            with open(file, "rb") as opened:
                found.update(dict.fromkeys(_CERTIFICATE.findall(opened.read(_MOST_BYTES))))
    except OSError:
        found.clear()
    if not found:
        raise ForgeError(f"{name} names no certificate that can be read. Set it to a PEM file, or unset it.")
    return b"\n".join(found) + b"\n"


def _files(name: str, value: str) -> Iterator[str]:
    if name != DIRECTORY:
        yield value
        return
    for directory in filter(None, value.split(":")):
        for entry in sorted(os.listdir(directory))[:_MOST_FILES]:
            path = os.path.join(directory, entry)
            if os.path.isfile(path) and os.access(path, os.R_OK):
                yield path
