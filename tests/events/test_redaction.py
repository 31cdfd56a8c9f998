"""Redaction: secrets by value in every spelling, credentials by name, host paths, and values split across chunks."""

from __future__ import annotations

import base64
import itertools
import json
from hashlib import sha256
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from golem_forge.events.redaction import Redactor, StreamRedactor

SECRET = 'pa"ss wörd/ü+1\\x'


def redactor(**secrets: str) -> Redactor:
    made = Redactor()
    for name, value in secrets.items():
        assert made.add_secret(name, value) is None
    return made


@pytest.mark.parametrize(
    "spelled",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower().replace("w%c3%b6rd", "w%c3%b6rd"),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_every_spelling_of_a_secret_is_found(spelled: str) -> None:
    shown = redactor(KEY=SECRET).text(f"before {spelled} after")
    assert shown == "before [secret KEY] after"


@given(before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_a_secret_inside_longer_base64_is_found(before: bytes, after: bytes) -> None:
    secret = "correct-horse-battery"
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    assert "[secret KEY]" in redactor(KEY=secret).text(f"Basic {encoded}")


@pytest.mark.parametrize(
    "spelled",
    [
        "p&amp;ss&lt;w&gt;rd&quot;1&#x27;/x",
        "p&amp;ss&lt;w&gt;rd&quot;1&#39;/x",
        "p&amp;ss&lt;w&gt;rd&#34;1&#39;/x",
        "p&amp;ss&lt;w&gt;rd\"1'/x",
        "p\\u0026ss\\u003cw\\u003erd\\\"1'/x",
        "p\\u0026ss\\u003Cw\\u003Erd\\u00221\\u0027\\/x",
    ],
)
def test_the_spellings_of_pages_and_of_json_for_pages_are_found(spelled: str) -> None:
    """A server that answers with what it was sent writes it so in a page; Go and PHP write JSON so."""
    shown = redactor(KEY="p&ss<w>rd\"1'/x").text(f"before {spelled} after")
    assert shown == "before [secret KEY] after"


def test_the_longest_secret_wins() -> None:
    made = redactor(SHORT="abcd1234", LONG="abcd1234-and-more")
    assert made.text("x abcd1234-and-more y abcd1234") == "x [secret LONG] y [secret SHORT]"


def test_short_and_endless_secrets_are_refused_with_a_reason() -> None:
    made = Redactor()
    assert "PIN: shorter than 4 characters" in str(made.add_secret("PIN", "123"))
    assert "shorter" in str(made.add_secret("BLANK", "      "))
    assert "longer than" in str(made.add_secret("BIG", "x" * 100_000))
    assert made.text("123") == "123"


def test_more_secrets_than_can_be_hidden_are_told_and_the_first_ones_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("golem_forge.events.redaction.MAX_SECRETS", 2)
    made = redactor(ONE="first-value", TWO="second-value")
    assert made.add_secret("ONE", "first-value") is None  # known already: it takes no further place
    assert made.add_secret("THREE", "third-value") == "THREE: more than 2 secrets"
    assert "THREE" in caplog.text and "third-value" not in caplog.text
    assert made.text("first-value second-value") == "[secret ONE] [secret TWO]"


def test_a_secret_that_is_learned_while_a_text_is_looked_through_is_found_the_next_time() -> None:
    made = redactor(FIRST="hunter2hunter2")

    class Meanwhile(str):
        def __contains__(self, part: object) -> bool:
            made.add_secret("SECOND", "swordfish-swordfish")
            return False

    text = "it is swordfish-swordfish"
    made.text(Meanwhile(text))
    assert made.text(text) == "it is [secret SECOND]"


def test_a_secret_from_a_file_is_found_without_its_last_newline() -> None:
    assert redactor(KEY="hunter2hunter2\n").text("it is hunter2hunter2.") == "it is [secret KEY]."


def test_values_keys_and_nested_places() -> None:
    made = redactor(KEY="hunter2hunter2")
    value = {"a": [{"b": ("x hunter2hunter2", 1)}], "hunter2hunter2": {"c": None}, "n": 5}
    assert made.value(value) == {"a": [{"b": ("x [secret KEY]", 1)}], "[secret KEY]": {"c": None}, "n": 5}
    assert value["a"] == [{"b": ("x hunter2hunter2", 1)}], "the original is not touched"


@pytest.mark.parametrize("with_secrets", [False, True])
@pytest.mark.parametrize(
    "value",
    [{}, {"path": "/w/a", "n": 1, "deep": {"list": [1, 2.5, None, True, "x"]}}, [1, "two"], "text", 7, None, ("a",)],
    ids=repr,
)
def test_a_value_with_nothing_to_hide_is_the_same_object(value: Any, with_secrets: bool) -> None:
    made = redactor(KEY="hunter2hunter2") if with_secrets else Redactor()
    assert made.value(value) is value
    assert made.value(value) is value


def mark(text: str) -> str:
    return f"[redacted {len(text)} chars sha256:{sha256(text.encode()).hexdigest()[:8]}]"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "apikey",
        "apiKey",
        "API_KEY",
        "APIKey",
        "x-api-key",
        "token",
        "accessToken",
        "access_token",
        "auth_token",
        "refresh_token",
        "secret",
        "client_secret",
        "clientSecret",
        "password",
        "passwd",
        "Password",
        "userPassword",
        "db_password",
        "authorization",
        "Authorization",
        "private_key",
        "privateKey",
        "credential",
        "credentials",
        "cookie",
        "Cookie",
        "set-cookie",
        "passphrase",
        "secret_key",
        "AWS_SECRET_ACCESS_KEY",
        "token_value",
        "passwordHash",
    ],
)
def test_arguments_named_like_a_credential(name: str) -> None:
    assert Redactor().value({name: "swordfish"}) == {name: mark("swordfish")}
    assert Redactor().value({"deep": [{name: "ü"}]}) == {"deep": [{name: mark("ü")}]}


@pytest.mark.parametrize(
    "name",
    [
        "max_tokens",
        "tokens",
        "secretary",
        "tokenizer",
        "passwordless",
        "keyboard",
        "monkey",
        "author",
        "authority",
        "path",
        "compass",
    ],
)
def test_names_that_only_look_alike_are_left(name: str) -> None:
    value = {name: "plain"}
    assert Redactor().value(value) is value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": 1234}, {"password": mark("1234")}),
        ({"token_count": 5}, {"token_count": 5}),
        ({"password": None, "token": True, "secret": ""}, {"password": None, "token": True, "secret": ""}),
        ({"credentials": {"user": "u"}}, {"credentials": mark('{"user":"u"}')}),
        ({"cookie": ["a", "b"]}, {"cookie": mark('["a","b"]')}),
    ],
    ids=repr,
)
def test_credentials_that_are_not_text(value: dict[str, Any], shown: dict[str, Any]) -> None:
    assert Redactor().value(value) == shown


def test_redacting_twice_changes_nothing_more() -> None:
    made = redactor(KEY="hunter2hunter2")
    once = made.value({"api_key": "hunter2hunter2", "password": "other", "x": "hunter2hunter2"})
    assert once == {"api_key": "[secret KEY]", "password": mark("other"), "x": "[secret KEY]"}
    assert made.value(once) is once


def test_a_value_that_contains_itself_ends() -> None:
    loop: dict[str, Any] = {"password": "swordfish"}
    loop["left"] = loop["right"] = loop
    assert "swordfish" not in repr(redactor(KEY="hunter2hunter2").value(loop))
    deep: Any = "hunter2hunter2"
    for _ in range(5000):
        deep = [deep]
    assert "hunter2" not in json.dumps(redactor(KEY="hunter2hunter2").value(deep))


def test_odd_types() -> None:
    made = redactor(KEY="hunter2hunter2")
    assert made.value(b"x hunter2hunter2") == "x [secret KEY]"
    assert made.value({"s": {"hunter2hunter2"}}) == {"s": ["[secret KEY]"]}
    plain = {"b": b"\xff\x00", 3: "x"}
    assert made.value(plain) == plain
    assert made.value({("t", 1): "hunter2hunter2"}) == {("t", 1): "[secret KEY]"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/app/x.py", "/workspace/x.py"),
        ("in /srv/app.", "in /workspace."),
        ("-I/srv/app/include", "-I/workspace/include"),
        ("file:///srv/app/a", "file:///workspace/a"),
        ("'/srv/app': denied", "'/workspace': denied"),
        ("/srv/app2 /srv/app-old /srv/app.txt /srv/apple", "/srv/app2 /srv/app-old /srv/app.txt /srv/apple"),
        ("/srv/app/data/x", "/data/x"),
        ("%2Fsrv%2Fapp%2Fx", "/workspace%2Fx"),
        ("/srv/app", "/workspace"),
    ],
)
def test_host_paths_become_virtual_ones(text: str, shown: str) -> None:
    made = Redactor()
    assert made.add_path("/srv/app/", "/workspace") is None
    assert made.add_path("/srv/app/data", "/data") is None
    assert made.text(text) == shown


@pytest.mark.parametrize("host", ["/", "", "relative/path"])
def test_a_path_that_is_no_place_is_refused(host: str) -> None:
    assert Redactor().add_path(host, "/workspace") is not None


def test_long_text() -> None:
    made = redactor(KEY="hunter2hunter2")
    made.add_path("/srv/app", "/workspace")
    clean = "nothing to see here\n" * 5000
    assert made.text(clean) is clean
    assert made.text(clean + "hunter2hunter2 /srv/app/x" + clean) == clean + "[secret KEY] /workspace/x" + clean


def feed(made: Redactor, chunks: list[str]) -> str:
    stream = StreamRedactor(made)
    return "".join([stream.feed(chunk) for chunk in chunks]) + stream.finish()


def stream_redactor() -> Redactor:
    made = redactor(A="abcabd", B="abcabdabc", C="bdabcx", KEY="hunter2hunter2")
    made.add_path("/srv/app", "/w")
    return made


@given(st.text(alphabet="abcdx/srvp. 2hunte", max_size=60), st.lists(st.integers(0, 60), max_size=8))
@example("xabcabdabcabx", [3])
@example("abcabdabcx", list(range(10)))
@example("/srv/app.x /srv/app. /srv/app", list(range(30)))
def test_chunks_give_what_the_whole_would(text: str, places: list[int]) -> None:
    made = stream_redactor()
    cuts = sorted({0, len(text), *(place for place in places if place <= len(text))})
    chunks = [text[start:end] for start, end in itertools.pairwise(cuts)]
    assert feed(made, chunks) == made.text(text)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_a_secret_split_across_chunks_is_found(size: int) -> None:
    text = "one hunter2hunter2 two hunter2hunter hunter2hunter2hunter2hunter2 /srv/app/x end"
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert feed(stream_redactor(), chunks) == ("one [secret KEY] two hunter2hunter [secret KEY][secret KEY] /w/x end")


@pytest.mark.parametrize("by_lines", [False, True])
@given(
    st.lists(st.text(alphabet="hunter2 :\n%6/srvap", max_size=20) | st.just("x" * 300), max_size=8),
    st.sampled_from(["hunter2hunter2", "h:n r2h", "%68%75%6E%74"]),
)
@example(["x hunter2"], "hunter2hunter2")
@example(["x" * 300, "x" * 300 + "hunter2", "hunter"], "hunter2hunter2")
def test_what_is_held_back_says_nothing_of_a_secret(by_lines: bool, chunks: list[str], secret: str) -> None:
    """Every text without the whole secret comes piece by piece as if another one of its length were kept."""
    guessed, other = redactor(KEY=secret), redactor(KEY="q" * len(secret))
    for made in (guessed, other):
        made.add_path("/srv/app" if made is guessed else "/qqq/qqq", "/w")
    assume(guessed.text("".join(chunks)) == "".join(chunks))
    streams = [StreamRedactor(made, by_lines=by_lines) for made in (guessed, other)]
    shown = [[*map(stream.feed, chunks), stream.finish()] for stream in streams]
    assert shown[0] == shown[1]
    assert "".join(shown[0]) == "".join(chunks)


@pytest.mark.parametrize(
    ("chunks", "shown"),
    [
        (["Password: "], ["Password: "]),
        ([">>> ", "1", "\n"], [">>> ", "", "1\n"]),
        (["Go on? [y/N]", "\nlogin:", " $"], ["Go on? [y/N]", "\nlogin:", " $"]),
        (["\x1b[1mName\x1b[0m"], ["\x1b[1mName\x1b[0m"]),
        (["\r10 %", "\r20 %", "\r30 %\n"], ["\r10 ", "%\r20 ", "%\r30 %\n"]),
        (["to hunter2hunter2\n", "hunter2hun", "ter2 "], ["to [secret KEY]\n", "", "[secret KEY] "]),
        (["my correct ", "horse staple, yes "], ["my correct ", "[secret WORDS], yes "]),
        (["my correct hor", "se staple ", "horse staple "], ["my correct ", "[secret WORDS] ", "horse staple "]),
        (["my correct horse staple"], ["my "]),
    ],
)
def test_questions_and_whole_words_are_shown_at_once(chunks: list[str], shown: list[str]) -> None:
    stream = StreamRedactor(redactor(KEY="hunter2hunter2", WORDS="correct horse staple"))
    assert [stream.feed(chunk) for chunk in chunks] == shown


@pytest.mark.parametrize("chunk", ["x" * 100_000, "hunter2" * 5000, "/srv/app" * 5000, "x"])
def test_what_a_stream_holds_is_bounded(chunk: str) -> None:
    made = stream_redactor()
    stream = StreamRedactor(made)
    shown = "".join(stream.feed(chunk) for _ in range(2000 if chunk == "x" else 3))
    assert len(stream.finish()) <= 2 * made.reach + len("[secret KEY]")
    assert "hunter2hunter2" not in shown


def test_base64_in_lines_that_come_one_by_one_is_found() -> None:
    secret = "correct-horse-battery-staple-" * 2
    lines = base64.encodebytes(secret.encode()).decode().splitlines(keepends=True)
    assert len(lines[-1]) < 16
    assert feed(redactor(KEY=secret), ["<\n", *lines, ">"]).replace("[secret KEY]", "").split() == ["<", ">"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/data/srv/app/y", "/data/srv/app/y"),
        ("cat /mnt/disk-1.old/srv/app", "cat /mnt/disk-1.old/srv/app"),
        ("%2Fdata%2Fsrv%2Fapp", "%2Fdata%2Fsrv%2Fapp"),
        ("file:///data/srv/app", "file:///data/srv/app"),
        ("/srv/app/srv/app", "/workspace/srv/app"),
        ("file://localhost/srv/app/a", "file://localhost/workspace/a"),
        ("-L/srv/app/lib:/srv/app/lib64", "-L/workspace/lib:/workspace/lib64"),
        ("a=/srv/app,b=/srv/app", "a=/workspace,b=/workspace"),
        ("x" * 500 + "/srv/app", "x" * 500 + "/workspace"),
        ("/proc/self/root/srv/app/y", "/proc/self/root/workspace/y"),
        ("cat: /proc/4711/root/srv/app: x", "cat: /proc/4711/root/workspace: x"),
        ("/proc/self/task/12/root/srv/app", "/proc/self/task/12/root/workspace"),
        ("-I/proc/thread-self/root/proc/self/root/srv/app", "-I/proc/thread-self/root/proc/self/root/workspace"),
        ("/./srv/app /../srv/app /usr/../srv/app", "/./workspace /../workspace /usr/../workspace"),
        ("/proc/self/root/data/../srv/app", "/proc/self/root/data/../workspace"),
        ("%2Fproc%2Fself%2Froot%2Fsrv%2Fapp", "%2Fproc%2Fself%2Froot/workspace"),
        (r"\/proc\/self\/root\/srv\/app", r"\/proc\/self\/root/workspace"),
        ("/proc/self/root/data/srv/app", "/proc/self/root/data/srv/app"),
        ("/data/proc/self/root/srv/app", "/data/proc/self/root/srv/app"),
        ("/data/./srv/app /data/x/../srv/app", "/data/./srv/app /data/x/../srv/app"),
        ("/proc/self/cwd/srv/app /proc/self/fd/root/srv/app", "/proc/self/cwd/srv/app /proc/self/fd/root/srv/app"),
    ],
)
def test_a_host_path_at_the_end_of_another_path_is_another_place(text: str, shown: str) -> None:
    made = Redactor()
    made.add_path("/srv/app", "/workspace")
    assert made.text(text) == shown
    for size in (1, 2, 5):
        assert feed(made, [text[start : start + size] for start in range(0, len(text), size)]) == shown


def pem(lines: int = 6) -> str:
    body = [base64.b64encode(sha256(bytes([n])).digest() * 2).decode()[:64] for n in range(lines)]
    return "\n".join(["-----BEGIN PRIVATE KEY-----", *body, "dGhlIGVuZA==", "-----END PRIVATE KEY-----", ""])


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n"])
def test_a_secret_of_many_lines_is_found_line_by_line(newline: str) -> None:
    key = pem()
    made = redactor(PEM=key.replace("\n", newline))
    numbered = "\n".join(f"L{n}: {line}" for n, line in enumerate(key.splitlines(), start=1))
    shown = made.text(numbered)
    assert not any(line in shown for line in key.splitlines() if len(line) == 64)
    assert shown.count("[secret PEM]") == 6
    escaped = json.dumps(key.splitlines()).replace("/", "\\/")
    assert made.text(escaped).count("[secret PEM]") == 6
    assert made.text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----", "it is no secret"
    assert redactor(PEM=key).text(f"<{key.strip()}>") == "<[secret PEM]>"


@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("ending", ["", "\n"])
def test_base64_of_a_secret_in_lines_is_found(width: int, ending: str) -> None:
    secret = "correct horse battery staple " * 8
    made = redactor(KEY=secret)
    encoded = base64.b64encode((secret.strip() + ending).encode()).decode()
    lines = [encoded[place : place + width] for place in range(0, len(encoded), width)]
    for newline in ("\n", "\r\n", "\\n"):
        shown = made.text(f"<{newline.join(lines)}>")
        assert shown.replace(newline, "").replace("[secret KEY]", "") == "<>"
    shown = made.text("\n".join(f"L{n}: {line}" for n, line in enumerate(lines)))
    assert not any(line in shown for line in lines if len(line) >= 16)


def test_secrets_out_leaves_the_paths() -> None:
    made = redactor(KEY="hunter2hunter2")
    made.add_path("/srv/app", "/workspace")
    for padding in ("", "x " * 400):
        text = f"{padding}hunter2hunter2 /srv/app/x"
        assert made.redact_secrets(text) == f"{padding}[secret KEY] /srv/app/x"
    assert made.redact_secrets("/srv/app/x") == "/srv/app/x"
