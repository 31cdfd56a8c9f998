"""What a command's output says about a connection that it did not get."""

from __future__ import annotations

from tests.tables import table

from golem_forge.core.text import FixedText
from golem_forge.toolsets.exec.result import NETWORK_IS_OFF, SSH_STAYS_OUTSIDE, offline_hint
from golem_forge.toolsets.git import REACHING_REMOTES


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
