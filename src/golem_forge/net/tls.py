"""The certificates that Forge's HTTPS clients believe: read once, not again for each client.

Reading a bundle takes longer than all else that opening a client does (20 to 45 ms), also for an address without TLS.
The bundle that `SSL_CERT_FILE` or `SSL_CERT_DIR` names counts, and one that was changed is read anew.
"""

from __future__ import annotations

import functools
import os
import ssl

import httpx2


def client_tls(*, trust_env: bool = True) -> ssl.SSLContext:
    """What `httpx2` makes for a client by itself. `trust_env`: whether the environment may name other certificates."""
    named = (os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")) if trust_env else ("", "")
    usual = ssl.get_default_verify_paths()
    places = (*named, usual.openssl_cafile, usual.openssl_capath)
    return _read(trust_env, named, tuple(_changed(place) for place in places))


@functools.lru_cache(maxsize=4)
def _read(trust_env: bool, named: tuple[str, str], changed: tuple[int, ...]) -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=trust_env)


def _changed(place: str) -> int:
    try:
        return os.stat(place).st_mtime_ns
    except OSError:
        return 0
