"""mcp.md §1: what a person reads before a server is started, and the diff when its config changed (case 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.tables import table

from golem_forge.config.mcp_spec import AuthKind, ServerAuth, ServerSpec
from golem_forge.mcp.client.approval_text import MAX_CARD_BYTES, approved_description, server_card, server_diff

CANARY = "sk-canary-77d0"
STDIO = ServerSpec(
    name="git",
    scope="/p",
    origin="forge.yaml:7",
    command="uvx",
    args=("mcp-server-git", "--repository", "${zone:workspace}", "two words"),
    env={"TOKEN": CANARY, "LEVEL": "${LOG_LEVEL}"},
    pass_env=("GIT_DIR",),
    zones={"workspace": "rw", "docs": "ro"},
)
HTTP = ServerSpec(
    name="docs",
    scope="/p",
    origin=".mcp.json",
    url="https://docs.example/mcp",
    headers={"X-Key": CANARY, "X-Team": "${TEAM}"},
    auth=ServerAuth(AuthKind.BEARER, "DOCS_TOKEN"),
)


def test_the_card_of_a_process() -> None:
    assert server_card(STDIO).splitlines() == [
        "MCP server: git",
        "from: forge.yaml:7",
        "runs: uvx mcp-server-git --repository '${zone:workspace}' 'two words'",
        "variable: LEVEL = ${LOG_LEVEL}",
        "variable: TOKEN = (a value, not shown)",
        "variable: GIT_DIR, copied from the environment Forge was started in",
        "starts in: its first zone, or its own home",
        "zone: /docs (read-only)",
        "zone: /workspace (rw: written)",
        "network: the whole network of this machine; its services on loopback and its abstract sockets cannot be "
        "hidden from it",
    ]


def test_the_card_of_an_address() -> None:
    assert server_card(HTTP).splitlines() == [
        "MCP server: docs",
        "from: .mcp.json",
        "url: https://docs.example/mcp",
        "header: X-Key = (a value, not shown)",
        "header: X-Team = ${TEAM}",
        "auth: bearer token from $DOCS_TOKEN",
    ]


@table(
    ("change", "line"),
    [
        ({"network": False}, "network: none"),
        ({"network": ("a.test", "b.test:8443")}, "network: a.test\nnetwork: b.test:8443"),
        ({"network": ()}, "network: none"),
        ({"zones": {}}, "zones: none"),
        ({"env": {}, "pass_env": ()}, "variables: none"),
        ({"cwd": "/workspace/sub"}, "starts in: /workspace/sub"),
    ],
)
def test_what_it_gets_and_what_it_does_not(change: dict[str, Any], line: str) -> None:
    assert f"\n{line}" in server_card(replace(STDIO, **change))


@table(("auth", "words"), [(ServerAuth(), "none"), (ServerAuth(AuthKind.OAUTH), "oauth")])
def test_ways_to_log_in(auth: ServerAuth, words: str) -> None:
    assert server_card(replace(HTTP, auth=auth)).endswith(f"auth: {words}")


@table("spec", [STDIO, HTTP])
def test_values_are_shown_and_kept_nowhere(spec: ServerSpec) -> None:
    other = replace(spec, env={"TOKEN": f"{CANARY}-2"}, headers={"X-Key": f"{CANARY}-2"})
    kept = approved_description(spec.described)
    assert CANARY not in server_card(spec) + server_diff(kept, other) + server_diff(spec.described, other) + str(kept)
    assert approved_description(kept) == kept


def test_a_value_with_a_default_may_hold_a_secret() -> None:
    assert CANARY not in server_card(replace(STDIO, env={"TOKEN": f"${{TOKEN:-{CANARY}}}"}))


def test_4_one_argument_that_changed() -> None:
    changed = replace(STDIO, args=("mcp-server-git", "--unsafe", "--repository", "${zone:workspace}", "two words"))
    assert server_diff(approved_description(STDIO.described), changed).splitlines() == [
        "--- approved",
        "+++ now",
        "+argument: --unsafe",
    ]


@table(
    ("change", "lines"),
    [
        ({"command": "npx"}, ["-command: uvx", "+command: npx"]),
        ({"network": False}, ["+network: none"]),
        ({"zones": {"workspace": "rw", "docs": "rw"}}, ["-zone: /docs (read-only)", "+zone: /docs (rw: written)"]),
        ({"pass_env": ()}, ["-variable: GIT_DIR, copied from the environment Forge was started in"]),
        (
            {"env": {**STDIO.env, "TOKEN": "other"}},
            ["-variable: TOKEN = (a value, not shown)", "+variable: TOKEN = (another value, not shown)"],
        ),
        ({"env": {**STDIO.env, "TOKEN": "${TOKEN}"}}, ["+variable: TOKEN = ${TOKEN}"]),
        ({"url": "https://x.test/", "command": ""}, ["-command: uvx", "+url: https://x.test/", "+auth: none"]),
    ],
)
def test_whatever_changed_is_in_the_diff(change: dict[str, Any], lines: list[str]) -> None:
    changed = replace(STDIO, **change)
    assert changed.digest != STDIO.digest
    diff = server_diff(approved_description(STDIO.described), changed).splitlines()
    assert set(lines) <= set(diff)


def test_a_value_cannot_be_swapped_for_its_own_digest() -> None:
    kept = approved_description(STDIO.described)
    for imitation in (str(kept["env"]["TOKEN"]["sha256"]), str(kept["env"]["TOKEN"])):
        assert "another value" in server_diff(kept, replace(STDIO, env={**STDIO.env, "TOKEN": imitation}))


def test_no_diff_without_a_change_or_an_approval() -> None:
    assert server_diff(None, STDIO) == ""
    assert server_diff(approved_description(STDIO.described), STDIO) == ""
    assert server_diff(approved_description(STDIO.described), replace(STDIO, idle_timeout=1)) == ""


def test_a_record_of_any_shape_can_be_compared() -> None:
    strange: dict[str, Any] = {"command": 7, "args": "x", "env": [], "zones": None, "network": {}, "pass_env": {}}
    assert "+command: uvx" in server_diff(strange, STDIO)
    assert "+command: uvx" in server_diff({"url": None, "headers": 3, "auth": {}}, STDIO)


def test_nothing_steers_the_terminal_or_makes_lines_of_its_own() -> None:
    evil = "x\x1b[2J\u202e\U000e0041\nnetwork: none\n"
    spec = replace(
        STDIO, command=evil, args=(evil,), env={evil: evil}, pass_env=(evil,), cwd=evil, zones={evil: "ro"}, origin=evil
    )
    for text in (
        server_card(spec),
        server_diff(approved_description(STDIO.described), spec),
        server_card(replace(HTTP, url=evil)),
    ):
        assert text.replace("\n", "").isprintable()
        assert "network: none" not in text.splitlines()


def test_a_card_without_end_is_cut() -> None:
    many = replace(STDIO, args=tuple(f"argument-{number}" for number in range(6000)))
    assert len(server_card(many)) < MAX_CARD_BYTES + 100
    assert "more characters are not shown" in server_card(many)
    long = replace(STDIO, args=tuple(f"argument-{number}" for number in range(1000)))
    diff = server_diff(approved_description(long.described), replace(long, args=("other", *long.args)))
    assert "+argument: other" in diff
    assert "another value" not in diff
    other = replace(many, args=many.args[1:])
    assert len(server_diff(approved_description(many.described), other)) < MAX_CARD_BYTES + 100


def test_variables_that_go_along_in_a_value_are_named() -> None:
    """`FLAGS: "-v ${AWS_SECRET_ACCESS_KEY:-}"` in a stranger's file hands a key over in what looks like a constant."""
    value = f"{CANARY} ${{AWS_SECRET_ACCESS_KEY:-}} ${{OTHER}}"
    said = (
        "(a value, not shown; made with these of the environment Forge was started in: $AWS_SECRET_ACCESS_KEY, $OTHER)"
    )
    assert f"\nvariable: FLAGS = {said}\n" in server_card(replace(STDIO, env={"FLAGS": value}))
    assert f"\nheader: X-Trace = {said}\n" in server_card(replace(HTTP, headers={"X-Trace": value}))
    before = approved_description(replace(STDIO, env={"FLAGS": "plain"}).described)
    assert f"+variable: FLAGS = {said}" in server_diff(before, replace(STDIO, env={"FLAGS": value}))
    assert CANARY not in str(approved_description(replace(STDIO, env={"FLAGS": value}).described))


def test_what_a_server_may_reach_is_not_pushed_off_its_card() -> None:
    padded = server_card(replace(STDIO, args=("x" * 200_000,)))
    assert padded.splitlines()[-3:-1] == ["zone: /docs (read-only)", "zone: /workspace (rw: written)"]
    assert "variable: GIT_DIR, copied from the environment" in padded


@table(
    ("change", "place"),
    [
        ({"args": ("-u", "${zone:workspace}/tools/server.py")}, "/workspace/tools/server.py"),
        ({"args": ("dist/index.js",)}, "dist/index.js"),
        ({"command": "/workspace/run"}, "/workspace/run"),
        ({"command": "./run"}, "./run"),
    ],
)
def test_a_program_that_workers_may_write_is_pointed_out(change: dict[str, Any], place: str) -> None:
    line = f"careful: it runs {place}: whoever may write there decides what runs with all of this"
    assert f"\n{line}\n" in server_card(replace(STDIO, **change))
    assert f"+{line}" in server_diff(approved_description(STDIO.described), replace(STDIO, **change))


@table(
    "change",
    [{}, {"args": ("${zone:workspace}/data.db",)}, {"args": ("/opt/server.py",)}, {"zones": {}, "args": ("index.js",)}],
)
def test_what_is_no_program_in_a_zone_is_not(change: dict[str, Any]) -> None:
    assert "careful" not in server_card(replace(STDIO, **change))
