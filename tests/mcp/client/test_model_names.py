"""mcp.md §7: the names models use. Cases 22, 23 and 24, and what must hold of any set of names."""

from __future__ import annotations

import hashlib
import re
import string
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.config.mcp_spec import server_name
from golem_forge.mcp.client import model
from golem_forge.mcp.client.model import tool_names

LETTERS = string.ascii_letters + string.digits
REST = st.text(f"{LETTERS}_-", max_size=31).map(lambda text: text.replace("__", "_-"))
SERVER = st.builds(str.__add__, st.sampled_from(LETTERS), REST)
TOOL = st.one_of(
    st.sampled_from(["x.y", "x_y", "X_Y", "", "_", "_b", "b", "x y", "é"]),
    st.text(max_size=12),
    st.text(alphabet="ab_-.", min_size=40, max_size=90),
)
IDENTITIES = st.lists(st.tuples(SERVER | st.sampled_from(["a", "a_", "A", "my-srv", "my_srv"]), TOOL), max_size=12)


def hashed(server: str, tool: str, head: str) -> str:
    return f"{head[:55]}_{hashlib.sha256(f'{server}{chr(0)}{tool}'.encode()).hexdigest()[:8]}"


def test_a_plain_name_is_server_and_tool() -> None:
    assert tool_names([("git", "git_status"), ("git", "log-1")]) == {
        ("git", "git_status"): "git__git_status",
        ("git", "log-1"): "git__log-1",
    }


def test_22_servers_that_look_alike_have_names_of_their_own_in_every_order() -> None:
    identities = [("my-srv", "x.y"), ("my_srv", "x.y"), ("my_srv", "plain")]
    expected = {
        ("my-srv", "x.y"): hashed("my-srv", "x.y", "my-srv__x_y"),
        ("my_srv", "x.y"): hashed("my_srv", "x.y", "my_srv__x_y"),
        ("my_srv", "plain"): "my_srv__plain",
    }
    for order in permutations(identities):
        assert tool_names(order) == expected


def test_23_a_long_name_has_64_bytes_and_two_with_the_same_start_stay_distinct() -> None:
    one, other = "n" * 200, "n" * 100 + "m" * 100
    names = tool_names([("s", one), ("s", other)])
    assert names["s", one] == hashed("s", one, f"s__{one}")
    assert len(names["s", one].encode()) == len(names["s", other].encode()) == 64
    assert names["s", one] != names["s", other]


def test_64_bytes_are_not_too_many() -> None:
    tool = "t" * 61
    assert tool_names([("s", tool)])["s", tool] == f"s__{tool}"
    assert tool_names([("s", f"{tool}t")])["s", f"{tool}t"] == hashed("s", f"{tool}t", f"s__{tool}t")


@table(("server", "tool"), [("update", "plan"), ("exec_command", "x"), ("read_file", "")])
def test_24_a_name_never_passes_for_a_native_one(server: str, tool: str) -> None:
    assert "__" in tool_names([(server, tool)])[server, tool]


def test_an_empty_tool_name_becomes_an_underscore() -> None:
    assert tool_names([("s", "")])["s", ""] == hashed("s", "", "s___")


def test_names_that_differ_in_case_alone_are_both_hashed() -> None:
    names = tool_names([("s", "Read"), ("s", "read"), ("s", "write")])
    assert names == {
        ("s", "Read"): hashed("s", "Read", "s__Read"),
        ("s", "read"): hashed("s", "read", "s__read"),
        ("s", "write"): "s__write",
    }


def test_a_plain_name_that_another_one_would_become_is_hashed_too() -> None:
    names = tool_names([("s", "x.y"), ("s", "x_y")])
    assert names == {("s", "x.y"): hashed("s", "x.y", "s__x_y"), ("s", "x_y"): hashed("s", "x_y", "s__x_y")}


def test_the_border_between_server_and_tool_cannot_be_moved() -> None:
    names = tool_names([("a", "_b"), ("a_", "b")])
    assert names == {("a", "_b"): hashed("a", "_b", "a___b"), ("a_", "b"): hashed("a_", "b", "a___b")}


def test_a_tool_that_imitates_anothers_hashed_name_has_to_move_itself() -> None:
    real = tool_names([("s", "x.y")])["s", "x.y"]
    imitation = real.removeprefix("s__")
    names = tool_names([("s", "x.y"), ("s", imitation)])
    assert names["s", "x.y"] == real
    assert names["s", imitation] == hashed("s", imitation, f"s__{imitation}")


def test_two_short_hashes_that_meet_get_longer_ones() -> None:
    """Threat: 8 digits can be searched through; a server can have two tools whose names would be one."""
    seen: dict[str, str] = {}
    for number in range(1_000_000):
        tool = f"{'n' * 60}{number}"
        short = hashlib.sha256(f"s\0{tool}".encode()).hexdigest()[:8]
        if short in seen:
            break
        seen[short] = tool
    else:
        pytest.fail("no two hashes met: the search is too short")
    names = tool_names([("s", tool), ("s", seen[short]), ("s", "other")])
    assert len({name.lower() for name in names.values()}) == 3
    assert all(name.startswith("s__") and len(name) == 64 for raw, name in names.items() if raw[1] != "other")
    assert names["s", "other"] == "s__other"
    assert tool_names([("s", seen[short])])["s", seen[short]].endswith(f"_{short}")


@given(IDENTITIES, st.randoms(use_true_random=False))
@example([("a", "_b"), ("a_", "b"), ("A", "_b")], None)
def test_what_holds_of_every_set(identities: list[tuple[str, str]], random: object) -> None:
    names = tool_names(identities)
    assert names.keys() == set(identities)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) and "__" in name for name in names.values())
    assert len({name.lower() for name in names.values()}) == len(names)
    shuffled = list(identities)
    if random is not None:
        random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert tool_names([*reversed(shuffled), *shuffled]) == names


@given(IDENTITIES, st.lists(TOOL, max_size=5))
def test_an_unrelated_server_changes_no_name(identities: list[tuple[str, str]], tools: list[str]) -> None:
    before = tool_names(identities)
    unrelated = "unrelated-0123456789"
    if any(server.lower().startswith(unrelated) for server, _ in identities):
        return
    after = tool_names([*((unrelated, tool) for tool in tools), *identities])
    assert {identity: after[identity] for identity in before} == before


@given(st.text(max_size=60))
def test_any_name_of_a_foreign_file_becomes_one_of_a_server(raw: str) -> None:
    name = server_name(raw)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name)
    assert "__" not in name
    assert server_name(name) == name


def test_thousands_of_names_cost_one_hash_each(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    hash_of = model._hash
    monkeypatch.setattr(model, "_hash", lambda text: (done.append(text), hash_of(text))[1])
    identities = [("s", f"tool_{number}") for number in range(5000)] + [("s", f"Tool.{n}") for n in range(5000)]
    assert len(tool_names(identities)) == 10_000
    assert len(done) <= 10_000
