"""The certificates that Forge's HTTPS clients believe: read once, not again for each client, and the machine's own ones
with the first handshake: never for an address without TLS.

Reading a bundle takes longer than all else that opening a client does (20 to 45 ms). The bundle that `SSL_CERT_FILE` or
`SSL_CERT_DIR` names counts, and one that was changed is read anew for the next client.
"""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any, Final, Self

import httpx2

from golem_forge.core.errors import ConfigError

_NAMES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def client_tls(*, trust_env: bool = True) -> ssl.SSLContext:
    """What `httpx2` makes for an asynchronous client by itself. `trust_env`: whether the environment may name other
    certificates. Raises ConfigError where those that it names cannot be read."""
    named = tuple(os.environ.get(name, "") if trust_env else "" for name in _NAMES)
    usual = ssl.get_default_verify_paths()
    places = (*named, usual.openssl_cafile, usual.openssl_capath)
    return _context(trust_env, named, tuple(_changed(place) for place in places))


@functools.lru_cache(maxsize=4)
def _context(trust_env: bool, named: tuple[str, ...], changed: tuple[int, ...]) -> ssl.SSLContext:
    made = _ClientContext(trust_env)
    if any(named):
        try:
            _ = made.context  # a bundle that cannot be read is an error here, not at the first request
        except OSError as error:
            said = ", ".join(f"{name}={value}" for name, value in zip(_NAMES, named, strict=True) if value)
            raise ConfigError(f"{said}: the certificates cannot be read: {error}. Correct it, or unset it") from None
    return made


def _changed(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return 0


class _ClientContext(ssl.SSLContext):
    """Hands every handshake to the context that `httpx2` makes, which is made for the first one. By itself it believes
    no certificate at all."""

    def __new__(cls, trust_env: bool) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, trust_env: bool) -> None:
        self._trust_env = trust_env
        self._protocols: list[str] = []

    @functools.cached_property
    def context(self) -> ssl.SSLContext:
        return httpx2.create_ssl_context(trust_env=self._trust_env)

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        self._protocols = list(alpn_protocols)

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        self.context.set_alpn_protocols(self._protocols)
        return self.context.wrap_bio(*args, **options)
