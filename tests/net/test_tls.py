"""The certificates of HTTPS clients are read once, and again once they are others; where no TLS is spoken, never."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import httpx2
import pytest

from golem_forge.core.errors import ConfigError
from golem_forge.net import tls
from golem_forge.net.tls import client_tls


def reading(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context of a handshake that begins now."""
    return context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost").context


def test_one_context_for_all_clients_until_the_certificates_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    usual = client_tls()
    read = reading(usual)
    assert client_tls() is usual and reading(client_tls()) is read
    for context in (usual, read):
        assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname

    bundle = tmp_path / "own.pem"
    certificates = ssl.DER_cert_to_PEM_cert(read.get_ca_certs(binary_form=True)[0])
    bundle.write_text(certificates)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    own = client_tls()
    assert own is not usual and client_tls() is own and reading(own).cert_store_stats()["x509"] == 1
    assert client_tls(trust_env=False) is not own

    bundle.write_text(certificates + ssl.DER_cert_to_PEM_cert(read.get_ca_certs(binary_form=True)[1]))
    os.utime(bundle, ns=(1, 1))
    assert reading(client_tls()).cert_store_stats()["x509"] == 2

    monkeypatch.delenv("SSL_CERT_FILE")
    assert client_tls() is usual


def test_certificates_are_not_read_before_a_handshake_and_protocols_are_those_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    made: list[ssl.SSLContext] = []
    make = httpx2.create_ssl_context

    def create(**options: bool) -> ssl.SSLContext:
        made.append(make(**options))
        return made[-1]

    monkeypatch.setattr(httpx2, "create_ssl_context", create)
    tls._context.cache_clear()
    context = client_tls()
    assert httpx2.AsyncClient(verify=context) and not made
    context.set_alpn_protocols(["http/1.1"])
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    assert b"http/1.1" in hello.read() and reading(context) is made[0] and len(made) == 1

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nothing.pem"))
    with pytest.raises(ConfigError, match=r"SSL_CERT_FILE=.*nothing\.pem: .* cannot be read: .* unset it"):
        client_tls()  # said where the client is made
