"""Glob semantics as a table, and host names in one spelling (A23)."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.policy.request import escape_glob
from golem_forge.policy.rules.model import (
    host_and_port,
    host_matches,
    host_pattern,
    name_glob,
    normal_host,
    path_glob,
    path_matches_glob,
)


@table(
    ("pattern", "matching", "other"),
    [
        ("/w/a", ["/w/a"], ["/w/ab", "/w/a/b", "/W/a", "/w/a\n"]),
        ("/w/*", ["/w/a", "/w/.env", "/w/*"], ["/w", "/w/a/b"]),
        ("/w/**", ["/w/a", "/w/a/b", "/w/.x/y\nz"], ["/w", "/wx/a", "/v/w/a"]),
        ("/w/**/t.py", ["/w/t.py", "/w/a/t.py", "/w/a/b/t.py"], ["/w/at.py", "/w/t.pyc", "/wt.py"]),
        ("/w/**/**/**/**/**/x", ["/w/x", "/w" + "/a" * 40 + "/x"], ["/w" + "/a" * 2000, "/wx"]),
        ("/w/a**b", ["/w/ab", "/w/a/x/b"], ["/w/a/x/c"]),
        ("/w/*.md", ["/w/a.md", "/w/.md"], ["/w/a/b.md", "/w/a.mdx"]),
        ("/w/a?c", ["/w/abc", "/w/a.c"], ["/w/ac", "/w/a/c"]),
        ("/w/[ab]", ["/w/a", "/w/b"], ["/w/c", "/w/ab"]),
        ("/w/[!a]x", ["/w/bx"], ["/w/ax", "/w//x"]),
        ("/w/[a-c]", ["/w/b"], ["/w/d", "/w/-"]),
        ("/w/a[", ["/w/a["], ["/w/a"]),
        ("/w/a.b(c)+", ["/w/a.b(c)+"], ["/w/aXb(c)+"]),
        ("main/*", ["main/a"], ["main", "main/a/b"]),
        ("main/**", ["main/a", "main/a/b"], ["main"]),
    ],
)
def test_path_globs(pattern: str, matching: list[str], other: list[str]) -> None:
    assert [path for path in matching if not path_glob(pattern).fullmatch(path)] == []
    assert [path for path in other if path_glob(pattern).fullmatch(path)] == []
    assert [path_matches_glob(pattern, path) for path in (*matching, *other)] == [True] * len(matching) + [False] * len(
        other
    )


def test_in_names_a_star_stands_for_anything() -> None:
    assert name_glob("*").fullmatch("a/b.c-d")
    assert name_glob("list_*").fullmatch("list_issues")
    assert not name_glob("list_*").fullmatch("xlist_issues")


@table("text", ["/w/a*b", "/w/[x]", "/w/a?[", "/w/plain", "/w/**"])
def test_quoted_text_matches_only_itself(text: str) -> None:
    assert path_glob(escape_glob(text)).fullmatch(text)
    assert not path_glob(escape_glob(text)).fullmatch(text.replace("*", "x").replace("?", "y") + "z")


@table(
    ("written", "normal"),
    [
        ("API.Example.com.", "api.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("a_b.example", "a_b.example"),
    ],
)
def test_a23_hosts_have_one_spelling(written: str, normal: str) -> None:
    assert normal_host(written) == normal == host_pattern(written)


@table(
    "written",
    [
        *("https://x", "x/y", "*", "*.com", "*.", "a*.b.c", "*.*.c", "x:443", "", ".", "a..b", "-a.b", "a b", "x@y"),
        *("0x7f.1", "127.1", "*.1.2.3", "a" * 64 + ".b"),
    ],
)
def test_a23_what_is_no_host_is_refused(written: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
        host_pattern(written)


def test_a_star_is_every_subdomain_and_not_the_domain() -> None:
    assert host_matches("*.a.b", "x.a.b") and host_matches("*.a.b", "x.y.a.b")
    assert not host_matches("*.a.b", "a.b") and not host_matches("*.a.b", "xa.b")
    assert host_matches("a.b", "a.b") and not host_matches("a.b", "x.a.b")


def test_targets_of_net_effects() -> None:
    assert host_and_port("API.example.com:443") == ("api.example.com", 443)
    assert host_and_port("[::1]:80") == ("::1", 80)
    assert host_and_port("mcp://github") is None
    assert host_and_port("example.com") is None
