"""The strict parser: what it reads, what is opaque, and the one spelling of a command."""

from __future__ import annotations

from tests.tables import table

from golem_forge.policy.shell.strict import Opaque, Parsed, Segment, canonical_text, parse_strict, quote


def words(text: str) -> list[tuple[str, ...]]:
    parsed = parse_strict(text)
    assert isinstance(parsed, Parsed), parsed
    return [segment.words for segment in parsed.segments]


@table(
    ("text", "expected"),
    [
        ("ls -1", [("ls", "-1")]),
        ("  ls   -a  b ", [("ls", "-a", "b")]),
        ("cat a | wc -l", [("cat", "a"), ("wc", "-l")]),
        ("ls && pwd; echo 'hi there'", [("ls",), ("pwd",), ("echo", "hi there")]),
        ("a||b", [("a",), ("b",)]),
        ("echo '$HOME `x` \\n'", [("echo", "$HOME `x` \\n")]),
        ("echo \"a b\"'c'd", [("echo", "a bcd")]),
        ('rg foo -g"*.py"', [("rg", "foo", "-g*.py")]),
        ("echo ''", [("echo", "")]),
        ("echo a=b hi! %x +y @z é", [("echo", "a=b", "hi!", "%x", "+y", "@z", "é")]),
        ("echo '#x' \"~\" '{a,b}' '='", [("echo", "#x", "~", "{a,b}", "=")]),
        ("echo if then done", [("echo", "if", "then", "done")]),
        ("ls 2>/dev/null", [("ls",)]),
        ("ls >/dev/null 2>&1", [("ls",)]),
        ("ls 1>/dev/null </dev/null|cat", [("ls",), ("cat",)]),
        (">/dev/null ls;pwd", [("ls",), ("pwd",)]),
    ],
)
def test_reads(text: str, expected: list[tuple[str, ...]]) -> None:
    assert words(text) == expected


def test_operators_are_kept() -> None:
    parsed = parse_strict("a && b || c ; d | e")
    assert isinstance(parsed, Parsed)
    assert [segment.joined_by for segment in parsed.segments] == ["", "&&", "||", ";", "|"]


@table(
    "text",
    [
        # syntax errors and empty segments
        "", "   ", "ls &&", "ls | | wc", "; ls", "ls;", "ls ;; pwd", "| ls", "echo 'a", 'echo "a', ">/dev/null",
        # redirections other than the listed ones
        "ls > out", "ls >out", "ls >> out", "ls > /dev/null", "ls >/dev/nullx", "ls >/dev/null/x", "ls 2>x",
        "ls 3>/dev/null", "ls>/dev/null", "cat <in", "ls &>/dev/null", "ls >&2", "ls 1>&2", "ls >/dev/null>x",
        "ls 2>&1x", "ls 2>&12", "cat <<E", "cat <<< x", "ls '>'x>y", "cat <>x", "ls >|x",
        # background, groups, subshells
        "echo hi & echo bye", "ls &", "(ls)", "ls (", "{ ls", "{ ls; }", "f() ls", "ls |& cat",
        # expansions
        "echo $HOME", 'echo "$HOME"', "echo `ls`", 'echo "`ls`"', "echo $(ls)", "echo $'a'", 'echo $"a"',
        "echo \\a", 'echo "\\$HOME"', 'echo "a\\"b"', "cat <(ls)", "ls\\\npwd",
        # patterns and other expansions of bare words
        "ls *", "ls a?", "ls [ab]", "ls a]", "echo {a,b}", "echo a}", "echo ~", "echo HEAD~1", "echo a^", "ls a#b",
        "ls =ls", "ls # x", "find . -del*",
        # newline and control characters
        "ls\npwd", "echo 'a\nb'", "ls\tx", "ls\r", "echo \x00", "echo '\x1b'", "echo \x7f", "echo \x85",
        "echo \ud800",
        # command position
        "FOO=1 ls", "FOO+=1 ls", "FOO=", "A='x' ls", "'ls'", '"ls" a', "l's'", "! ls", "if x", "then x", "fi",
        "while x", "for x", "case x", "do x", "done", "function f", "time ls", "select x", "coproc x", "until x",
        "else", "elif", "esac", "ls; time x", "repeat 3 ls", "foreach x", "ls && ! pwd",
        # limits
        "echo " + "a" * 16384, " && ".join(["ls"] * 51),
    ],
)  # fmt: skip
def test_opaque(text: str) -> None:
    parsed = parse_strict(text)
    assert isinstance(parsed, Opaque), parsed
    assert parsed.reason
    assert canonical_text(text) == text


@table(
    "text",
    ["echo x > /dev/udp/127.0.0.1/53", "cat </dev/tcp/h/80", "exec 3<>/dev/tcp/h/80", "ls >& '/dev/tcp/h/80'"],
)
def test_a_connection_of_the_shell_is_called_one(text: str) -> None:
    parsed = parse_strict(text)
    assert isinstance(parsed, Opaque)
    assert parsed.reason == "a network connection by the shell"


def test_limits_are_inclusive() -> None:
    assert len(words(" && ".join(["ls"] * 50))) == 50
    assert words("echo " + "a" * (16384 - 5))
    assert isinstance(parse_strict("echo " + "é" * 8190), Opaque)  # bytes count, not characters


@table(
    "text",
    ["bash -lc 'ls -a'", "bash -c 'ls -a'", "sh -c 'ls -a'", "zsh -lc \"ls -a\"", "/bin/bash -c 'ls -a'",
     "/usr/bin/sh -c 'ls -a' 2>/dev/null", "bash -lc \"sh -c 'ls -a'\""],
)  # fmt: skip
def test_unwraps_exactly_three_words(text: str) -> None:
    assert words(text) == [("ls", "-a")]


@table(
    ("text", "first"),
    [
        ("bash -lc git status", "bash"),
        ("./bash -c ls", "./bash"),
        ("/workspace/bash -c ls", "/workspace/bash"),
        ("bash -ec ls", "bash"),
        ("bash -c ls x", "bash"),
        ("dash -c ls", "dash"),
        ("bash -c 'cd x' && ls", "bash"),
    ],
)
def test_does_not_unwrap(text: str, first: str) -> None:
    assert words(text)[0][0] == first


def test_unwrapped_opaque_text_is_opaque() -> None:
    parsed = parse_strict("bash -lc 'ls > x'")
    assert isinstance(parsed, Opaque)
    assert "bash -lc" in parsed.reason


def test_segments_remember_their_shell() -> None:
    parsed = parse_strict("bash -lc 'ls && pwd'")
    assert isinstance(parsed, Parsed)
    assert [segment.shells for segment in parsed.segments] == [("bash",), ("bash",)]
    assert parsed.segments[0] == Segment(("ls",))  # but it makes them no different


@table("text", ["cargo   test", 'bash -lc "cargo test"', 'cargo te"st"'])
def test_a34_one_spelling(text: str) -> None:
    assert canonical_text(text) == "cargo test"


@table(
    ("text", "expected"),
    [
        ("cat a >/dev/null|sh", "cat a >/dev/null | sh"),
        ("2>&1 cargo 'test'", "cargo test 2>&1"),
        ("bash -c 'a 2>/dev/null  </dev/null'", "a 2>/dev/null </dev/null"),
    ],
)
def test_redirections_are_part_of_the_spelling(text: str, expected: str) -> None:
    assert canonical_text(text) == canonical_text(expected) == expected


def test_canonical_text_keeps_operators_and_quotes() -> None:
    assert canonical_text("a  'b c'&&d;e|f ''||g \"it's\"") == "a 'b c' && d ; e | f '' || g 'it'\"'\"'s'"


@table("word", ["", "a b", "it's", '"', "=x", "$x", "~", "a=b", "-n", "*", "é", "a#b", "!"])
def test_quote_round_trip(word: str) -> None:
    assert words("echo " + quote(word)) == [("echo", word)]
