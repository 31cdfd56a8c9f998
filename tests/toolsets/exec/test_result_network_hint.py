"""What a command's output says about a connection that it did not get."""

from __future__ import annotations

import pytest

from golem_forge.core.text import FixedText
from golem_forge.toolsets.exec.result import offline_hint


@pytest.mark.parametrize(
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
    way = f"Commands do not reach services of this computer; name one in 'network': localhost:{port}."
    assert offline_hint("make test", FixedText(f"some output\n{text}\n".encode())) == ((way,) if port else ())
