"""Which URLs are fetched at all (T48, T49), judged before anybody is asked."""

from __future__ import annotations

import pytest
from tests.tables import table

from golem_forge.core.decisions import Status
from golem_forge.core.errors import ForgeError
from golem_forge.tools.context import HostPermission, Plan, ToolContext
from golem_forge.tools.validation import Err
from golem_forge.toolsets.web import WebToolset, create_webfetch_tool
from golem_forge.toolsets.web.http_client import read_url

INVALID = [
    "file:///etc/passwd",
    "data:text/plain,x",
    "ftp://example.com/",
    "javascript:alert(1)",
    "example.com",
    "//example.com/",
    "http://",
    "http:///x",
    "http://:80/",
    "http://u:p@example.com/",
    "http://u@example.com/",
    "http://example.com\\@evil.test/",
    "http://example.com/a b",
    "http://example.com/\r\nHost: evil",
    " http://example.com/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:x/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://127.1/",
    "http://0177.0.0.1/",
    "http://127.0.0.01/",
    "http://127.0.0.1./",
    "http://127.0.0.256/",
    "http://1.2.3.4.5/",
    "http://１２７.0.0.1/",
    "http://127.0.0.１/",
    "http://127。0。0。1/",
    "http://[127.0.0.1]/",
    "http://[::1%25lo]/",
    "http://[fe80::1%lo]/",
    "http://[::1/",
    "http://[::1]x/",
    "http://exa mple.com/",
    "http://exa%6dple.com/",
    "http://" + "a" * 4090 + ".test/",
]


def plan(url: str, ctx: ToolContext | None = None) -> Plan:
    planner = create_webfetch_tool().planner
    assert planner is not None
    made = planner({"url": url}, ctx or ToolContext())
    assert isinstance(made, Plan)
    return made


@table("url", INVALID)
def test_t48_what_is_no_plain_web_address_is_invalid(url: str) -> None:
    answer = create_webfetch_tool().validate_input({"url": url})
    assert isinstance(answer, Err)
    assert answer.message.startswith("webfetch: url: ")
    assert "u:p" not in answer.message


@table(
    ("args", "words"),
    [
        ({"url": "http://a.test/", "start_index": -1}, "webfetch: start_index: "),
        ({"url": "http://a.test/", "max_length": 0}, "webfetch: max_length: "),
        ({"url": "http://a.test/", "max_length": 100_001}, "webfetch: max_length: "),
        ({"url": "http://a.test/", "method": "POST"}, "webfetch: unknown argument 'method'"),
        ({}, "webfetch: url: field required"),
    ],
)
def test_ranges_and_names(args: dict[str, object], words: str) -> None:
    answer = create_webfetch_tool().validate_input(args)
    assert isinstance(answer, Err) and answer.message.startswith(words)


@table(
    ("url", "target", "shown"),
    [
        ("http://Example.COM", "example.com:80", "http://example.com/"),
        ("HTTPS://example.com./a?b=c#d", "example.com:443", "https://example.com/a?b=c"),
        ("https://bücher.example/ü?q=é&x=%20", "xn--bcher-kva.example:443", None),
        ("http://93.184.216.34:80/", "93.184.216.34:80", "http://93.184.216.34/"),
        ("https://[2606:4700:4700::1111]/x", "[2606:4700:4700::1111]:443", "https://[2606:4700:4700::1111]/x"),
        ("http://a.test:443/", "a.test:443", "http://a.test:443/"),
        ("http://a.test?x", "a.test:80", "http://a.test/?x"),
    ],
)
def test_one_spelling_for_judging_showing_and_asking(url: str, target: str, shown: str | None) -> None:
    address = read_url(url)
    encoded = "https://xn--bcher-kva.example/%C3%BC?q=%C3%A9&x=%20"
    assert (address.target, address.url) == (target, shown or encoded)
    made = plan(url)
    assert made.effects is not None and made.read_only
    assert [effect.describe() for effect in made.effects] == [f"net {target}"]


@table(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest",
        "https://0.0.0.0/",
        "http://100.64.0.1/",
        "http://255.255.255.255/",
        "http://[::ffff:10.0.0.1]/",
        "http://[::ffff:a00:1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[ff02::1]/",
    ],
)
def test_t49_private_literals_are_refused_in_planning(url: str) -> None:
    with pytest.raises(ForgeError) as caught:
        plan(url)
    assert caught.value.status is Status.POLICY_DENIED
    assert "private: true" in caught.value.message
    host = read_url(url).host
    assert plan(url, ToolContext(host_rule=lambda name, port: HostPermission(private=name == host))).effects


def test_t48_another_port_needs_a_rule_that_lists_it() -> None:
    with pytest.raises(ForgeError) as caught:
        plan("http://a.test:8080/")
    assert caught.value.status is Status.POLICY_DENIED and "8080" in caught.value.message
    listed = ToolContext(host_rule=lambda host, port: HostPermission(listed=(host, port) == ("a.test", 8080)))
    assert plan("http://a.test:8080/", listed).effects
    with pytest.raises(ForgeError, match="8080"):
        plan("http://b.test:8080/", listed)


def test_the_toolset() -> None:
    toolset = WebToolset()
    assert (toolset.name, toolset.config) == ("web", None)
    assert [tool.name for tool in toolset.get_tools()] == ["webfetch"]
    assert create_webfetch_tool(None, True).needs_approval is True
