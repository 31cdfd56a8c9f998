"""What is said of a command that ended: its output within bounds, and the hosts that it missed."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from tests.tables import table

from golem_forge.core.text import FixedText, TextSource
from golem_forge.toolsets.exec.result import (
    NETWORK_IS_OFF,
    SSH_STAYS_OUTSIDE,
    JoinedText,
    TextSlice,
    bound_output,
    offline_hint,
)
from golem_forge.toolsets.git import REACHING_REMOTES


class Kept(list[bytes]):
    def __call__(self, pieces: Iterable[bytes]) -> str:
        self.append(b"".join(pieces))
        return "out_0123456789ab"


def test_what_fits_is_not_kept() -> None:
    kept = Kept()
    shown = bound_output(FixedText("é".encode() * 10), 20, kept)
    assert (shown.text, shown.handle, kept) == ("é" * 10, "", [])


def test_lines_are_cut_whole_and_the_rest_is_counted() -> None:
    kept = Kept()
    text = b"".join(b"line %03d\n" % n for n in range(100))
    shown = bound_output(FixedText(text), 60, kept)
    assert shown.text == (
        "line 000\nline 001\nline 002\n"
        "[… 94 lines, 846 bytes left out; whole output: read_output handle=out_0123456789ab]\n"
        "line 097\nline 098\nline 099\n"
    )
    assert kept == [text]


@table("limit", [4, 5, 6, 7, 40, 1000])
def test_no_character_is_divided_and_the_limit_is_in_bytes(limit: int) -> None:
    shown = bound_output(FixedText(("é" * 40_000).encode()), limit, Kept())
    head, joint, tail = shown.text.split("\n")
    assert set(head) == set(tail) == {"é"}
    assert len(head.encode()) <= limit // 2 and len(tail.encode()) <= limit // 2
    left_out = int(re.search(r"(\d+) bytes left out", joint)[1])  # type: ignore[index]
    assert left_out + len((head + tail).encode()) == 80_000


def test_parts_and_joins_read_like_one_text() -> None:
    whole = JoinedText([FixedText(b"abc"), TextSlice(FixedText(b"xxdefxx"), 2, 5), FixedText(b""), FixedText(b"gh")])
    assert (whole.size, whole.read(), whole.read(2, 7), whole.read(8)) == (8, b"abcdefgh", b"cdefg", b"")
    assert b"".join(whole.pieces(1, 4)) == b"bcd"


@pytest.mark.parametrize("text", [FixedText(b"x" * 100), JoinedText([FixedText(b"x" * 60), FixedText(b"x" * 40)])])
def test_without_a_store_there_is_no_handle_to_name(text: TextSource) -> None:
    shown = bound_output(text, 10, lambda _: "")
    assert shown.text == "xxxxx\n[… 1 lines, 90 bytes left out]\nxxxxx"
    assert shown.cut and not shown.handle


@table(
    ("text", "port"),
    [
        ('connection to server at "localhost" (127.0.0.1), port 5432 failed: Connection refused', "5432"),
        ("curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server", "8080"),
        ("Error: connect ECONNREFUSED 127.0.0.1:6379", "6379"),
        ("connect ECONNREFUSED ::1:6379", "6379"),
        ("Could not connect to Redis at 127.0.0.1:6379: Connection refused", "6379"),
        ("ConnectionRefusedError: ('127.0.0.1', 5432) [Errno 111] Connection refused", "5432"),
        ("Connection refused", ""),
        ("all 127.0.0.1:5432 tests passed but one", ""),
        ("connect to db.example port 5432: Connection refused", ""),
    ],
)
def test_a_refused_connection_names_the_way_to_a_service(text: str, port: str) -> None:
    ways = offline_hint("make test", FixedText(f"some output\n{text}\n".encode()))
    assert bool(ways) == bool(port)
    assert all(f"listens at port {port}:" in way and f"localhost:{port} in 'network'" in way for way in ways)


_NAME = "The network is off inside; to install packages, name {} in 'network' of exec_command."
_GIT = "fatal: unable to access 'https://git.example/a/b/': Could not resolve host: git.example"


@table(
    ("command", "text", "way"),
    [
        ("cd x && git push", _GIT, REACHING_REMOTES),
        ("pip install git+https://git.example/a/b", _GIT, _NAME.format('"group:python", "git.example"')),
        (
            "go install a.example/b@latest",
            "dial tcp: address a.example: no suitable address found",
            _NAME.format('"group:go"'),
        ),
        ("cargo build", "failed to resolve address for git.example: Name or service not known", NETWORK_IS_OFF),
        (
            "go install a.example/b@latest",
            'Get "https://proxy.golang.org/a": dial tcp: address proxy.golang.org: no suitable address found',
            _NAME.format('"group:go"'),
        ),
        (
            "ssh me@h.example ls",
            "ssh: Could not resolve hostname h.example: Name or service not known",
            SSH_STAYS_OUTSIDE,
        ),
        (
            "make release",
            "ssh: Could not resolve hostname h: Unknown\nfatal: Could not read from remote repository.",
            REACHING_REMOTES,
        ),
    ],
)
def test_a_command_that_needs_the_network_is_told_what_to_name(command: str, text: str, way: str) -> None:
    assert offline_hint(command, FixedText(f"some output\n{text}\n".encode())) == (way,)
