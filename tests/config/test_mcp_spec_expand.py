"""`${NAME}`, `${NAME:-default}`, `${zone:x}`: mcp.md §1, case 3."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golem_forge.config.mcp_spec import (
    AuthKind,
    ServerAuth,
    ServerSpec,
    UnsetVariable,
    declared_secrets,
    expand_spec,
    expand_text,
)
from golem_forge.core.errors import ForgeError

CANARY = "canary-value-91"


def zone(name: str) -> str:
    return f"/{name}"


def spec(**keys: object) -> ServerSpec:
    return ServerSpec(name="s", scope="", origin="forge.yaml:1", **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", ""),
        ("plain $HOME $$ $ {A}", "plain $HOME $$ $ {A}"),
        ("${A}", "one"),
        ("<${A}${A}>", "<oneone>"),
        ("${NOPE:-}", ""),
        ("${NOPE:-a b:-c}", "a b:-c"),
        ("${A:-x}", "one"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", "x"),
        ("${zone:workspace}/src", "/workspace/src"),
        ("$${A}", "$one"),
        ("${NESTED}", "${A}"),
        ("${A}}", "one}"),
    ],
)
def test_what_stands_for_what(text: str, made: str) -> None:
    assert expand_text(text, {"A": "one", "EMPTY": "", "NESTED": "${A}"}, zone=zone) == made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x ${A", "a `${` has no closing `}`"),
        ("${", "a `${` has no closing `}`"),
        ("${}", "`${}` is not understood"),
        ("${env:A}", "`${env:A}` is not understood; there are ${NAME}, ${NAME:-default} and ${zone:name}"),
        ("${1A}", "is not understood"),
        ("${A-b}", "is not understood"),
        ("${A }", "is not understood"),
        ("${\x1b[2J}", "`${\\x1b[2J}` is not understood"),
    ],
)
def test_what_is_none_of_them_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ForgeError) as caught:
        expand_text(text, {"A": "one"}, zone=zone)
    assert said in str(caught.value)


def test_an_unset_variable_is_named() -> None:
    with pytest.raises(UnsetVariable, match=r"^environment variable NOPE is not set$") as caught:
        expand_text("a ${NOPE} b", {}, zone=zone)
    assert caught.value.name == "NOPE"


_PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda text: "${" not in text)


@given(
    st.lists(st.tuples(_PLAIN.filter(lambda text: not text.endswith("$")), st.text(max_size=20)), max_size=6), _PLAIN
)
def test_every_value_stands_where_it_was_named_and_is_not_read_again(parts: list[tuple[str, str]], end: str) -> None:
    environ = {f"V{index}": value for index, (_, value) in enumerate(parts)}
    text = "".join(f"{plain}${{V{index}}}" for index, (plain, _) in enumerate(parts)) + end
    assert expand_text(text, environ, zone=zone) == "".join(plain + value for plain, value in parts) + end


@given(st.text("${}:-AaZ_1 zone", max_size=30))
def test_no_text_does_anything_but_expand_or_say_why_not(text: str) -> None:
    understood = "${" not in re.sub(r"\$\{[A-Za-z_]\w*(:-[^}]*)?\}|\$\{zone:[^}]*\}", "\0", text)
    try:
        made = expand_text(text, _Everything(), zone=zone)
    except ForgeError:
        made = None
    assert (made is not None) == understood
    if "${" not in text:
        assert made == text


class _Everything(dict[str, str]):
    """Every variable is set, to what would be a reference if it were read again."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "${A"


def test_a_text_cannot_grow_without_end() -> None:
    with pytest.raises(ForgeError, match="becomes longer"):
        expand_text("${BIG}" * 100, {"BIG": "x" * 100_000}, zone=zone)


def test_a_whole_server() -> None:
    environ = {"TOKEN": CANARY, "PORT": "80", "USER": "root", "API_KEY": "k3y!", "UNUSED": "not in it"}
    made = expand_spec(
        spec(
            command="${TOKEN}",
            args=("--port", "${PORT}", "--in=${zone:workspace}"),
            env={"T": "x${TOKEN}x", "D": "${NOPE:-dflt}", "USER": "mine"},
            pass_env=("USER", "API_KEY", "NOT_SET"),
            zones={"workspace": "ro"},
        ),
        environ,
        zone,
    )
    assert made.args == ("--port", "80", "--in=/workspace")
    assert made.env == {"T": f"x{CANARY}x", "D": "dflt", "USER": "mine", "API_KEY": "k3y!"}
    assert set(made.secrets) == {CANARY, "k3y!"}  # `80` and `root` would be found everywhere
    assert CANARY not in repr(made) and "k3y!" not in repr(made)


def test_a_token_becomes_a_header_and_a_secret() -> None:
    made = expand_spec(
        spec(url="https://h.test/${TENANT}", headers={"X-Key": "${KEY}"}, auth=ServerAuth(AuthKind.BEARER, "TOKEN")),
        {"TENANT": "acme", "KEY": "key-of-acme", "TOKEN": CANARY},
        zone,
    )
    assert made.url == "https://h.test/acme"
    assert made.headers == {"X-Key": "key-of-acme", "Authorization": f"Bearer {CANARY}"}
    assert set(made.secrets) == {"acme", "key-of-acme", CANARY}
    with pytest.raises(UnsetVariable, match="TOKEN"):
        expand_spec(spec(url="https://h.test", auth=ServerAuth(AuthKind.BEARER, "TOKEN")), {}, zone)


def test_a_zone_that_the_server_was_not_given() -> None:
    for zones, said in (({}, "its zones: none"), ({"docs": "ro"}, "its zones: docs")):
        with pytest.raises(ForgeError) as caught:
            expand_spec(spec(command="x", args=("${zone:workspace}",), zones=zones), {}, zone)
        assert "was not given that zone" in str(caught.value) and said in str(caught.value)


@pytest.mark.parametrize(
    ("url", "value"),
    [
        ("https://${X}/mcp", f"{CANARY}@evil.test"),
        ("https://good.test${X}", f"@evil.test/{CANARY}"),
        ("${X}", f"http://evil.test/{CANARY}"),
        ("https://good.test/${X}", f"{CANARY}\nHost: evil"),
        ("https://good.test/${X}", f"{CANARY} b"),
        ("http://127.0.0.1${X}", f".evil.test/{CANARY}"),
        ("${X}://good.test", f"file{CANARY}"),
    ],
)
def test_a_value_cannot_move_the_address_and_is_not_told(url: str, value: str) -> None:
    with pytest.raises(ForgeError) as caught:
        expand_spec(spec(url=url), {"X": value}, zone)
    assert str(caught.value).startswith("url: ") and CANARY not in str(caught.value)


def test_a_value_cannot_add_a_header() -> None:
    with pytest.raises(ForgeError) as caught:
        expand_spec(spec(url="https://h.test", headers={"X": "${X}"}), {"X": f"{CANARY}\r\nHost: evil"}, zone)
    assert "headers.X" in str(caught.value) and CANARY not in str(caught.value)


def test_credentials_that_are_written_out_are_secrets_by_name() -> None:
    """Also as the default of a variable that is not set, in an option and in the address."""
    local = spec(
        command="server",
        args=(
            *("--api-key=opt-equals-1", "--password", "opt-word-234", "--header", "X-Auth-Token: opt-header-5"),
            *("--token-file", "/not/a/secret", "--name=ordinary-name", "--secret", "${NOPE:-opt-default-6}"),
        ),
        env={
            "ACCESS_TOKEN": "${NOPE:-env-default-7}",
            "P_TOKEN": "pre-${NOPE:-}env-mixed-8",
            "SET_TOKEN": "${SET:-never-in-use-9}",
            "API_KEY": "env-written-10",
            "PLAIN": "${NOPE:-plain-default}",
            "OWN_CREDENTIALS": "${zone:work}/credentials.json",
        },
        zones={"work": "ro"},
    )
    remote = spec(
        url="https://x.example/mcp?api_key=query%2Fvalue-11&page=ordinary-page&token=${NOPE:-query-default-12}",
        headers={"Authorization": "Bearer ${NOPE:-header-default-13}", "X-Api-Key": "header-written-14"},
    )
    environ = {"SET": "a-value-that-is-set"}
    expected = ("opt-equals-1", "opt-word-234", "opt-header-5", "opt-default-6", "env-default-7", "pre-env-mixed-8")
    expected += ("env-written-10", "a-value-that-is-set", "query%2Fvalue-11", "query/value-11", "query-default-12")
    expected += ("header-default-13", "header-written-14")
    for found in (declared_secrets, lambda each, values: expand_spec(each, values, zone).secrets):
        secrets = {*found(local, environ), *found(remote, environ)}
        assert secrets >= set(expected)
        assert not [one for one in secrets if re.search("never|not/a|ordinary|plain|credentials", one)]
