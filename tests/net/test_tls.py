"""The certificates of HTTPS clients are read once, and again once they are others."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from golem_forge.net.tls import client_tls


def test_one_context_for_all_clients_until_the_certificates_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    usual = client_tls()
    assert client_tls() is usual and usual.verify_mode is ssl.CERT_REQUIRED and usual.check_hostname

    bundle = tmp_path / "own.pem"
    certificates = ssl.DER_cert_to_PEM_cert(usual.get_ca_certs(binary_form=True)[0])
    bundle.write_text(certificates)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    own = client_tls()
    assert own is not usual and client_tls() is own and own.cert_store_stats()["x509"] == 1
    assert client_tls(trust_env=False) is not own

    bundle.write_text(certificates + ssl.DER_cert_to_PEM_cert(usual.get_ca_certs(binary_form=True)[1]))
    os.utime(bundle, ns=(1, 1))
    assert client_tls().cert_store_stats()["x509"] == 2

    monkeypatch.delenv("SSL_CERT_FILE")
    assert client_tls() is usual
