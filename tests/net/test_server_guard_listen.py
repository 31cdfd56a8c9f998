"""Under which names a server may be spoken to, and where it may listen."""

from __future__ import annotations

import socket

import pytest
from tests.tables import table

from golem_forge.core.errors import ForgeError
from golem_forge.net.server_guard import AllowedHosts, bind_socket, is_host, is_loopback, url_host


def test_names_of_this_server() -> None:
    hosts = AllowedHosts(8765, ("forge.test", "other.test:99", "[fd00::1]"))
    good = [
        "127.0.0.1:8765",
        "LOCALHOST:8765",
        "[::1]:8765",
        "127.0.0.5:8765",
        "forge.test",
        "Forge.test:1",
        "other.test:99",
        "[fd00::1]:5",
    ]
    bad = [
        "127.0.0.1",
        "localhost:80",
        "localhost.evil:8765",
        "127.0.0.5.evil:8765",
        "128.0.0.1:8765",
        "other.test",
        "other.test:98",
        "forge.test.evil",
        "xforge.test",
        "forge.test:",
        "forge.test:²",
        "",
        "::1",
        ":8765",
    ]
    assert [name in hosts for name in good] == [True] * len(good)
    assert [name in hosts for name in bad] == [False] * len(bad)
    assert "localhost" in AllowedHosts(80)


def test_what_can_be_a_host() -> None:
    assert all(
        map(is_host, ["a", "forge.test", "forge.test:1", "127.0.0.1:80", "[::1]", "[::1]:80", "my_host", "a-b.c"])
    )
    bad = [
        "",
        "*",
        "*.test",
        "a b",
        "a/b",
        "http://a",
        "a:b",
        "a:",
        "::1",
        "[x]",
        "a@b",
        "-a",
        "a.",
        "a\r\nb",
        "a" * 256,
    ]
    assert not any(map(is_host, bad))


@table(
    ("name", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.test", False),
        ("", False),
    ],
)
def test_loopback(name: str, expected: bool) -> None:
    assert is_loopback(name) is expected


def test_in_a_url() -> None:
    assert [url_host(name) for name in ("::1", "[::1]", "127.0.0.1", "a.test")] == [
        "[::1]",
        "[::1]",
        "127.0.0.1",
        "a.test",
    ]


def test_a_socket_is_had_and_given_back() -> None:
    with bind_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        listener.listen()
        with (
            pytest.raises(ForgeError, match=rf"cannot listen at 127\.0\.0\.1:{port}: .*in use"),
            bind_socket("127.0.0.1", port),
        ):
            raise AssertionError("both have it")
    assert listener.fileno() == -1
    with socket.socket() as again:
        again.bind(("127.0.0.1", port))


def test_what_cannot_be_had() -> None:
    for host, port in [("127.0.0.1", 70000), ("no.such.name.test", 0), ("192.0.2.1", 0)]:
        with pytest.raises(ForgeError, match="cannot listen at"), bind_socket(host, port):
            raise AssertionError("it is bound")
