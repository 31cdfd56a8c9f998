"""What must hold for any text at all."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from golem_forge.policy.shell.arguments import names
from golem_forge.policy.shell.dangers import find_dangers
from golem_forge.policy.shell.lenient import find_commands
from golem_forge.policy.shell.patterns import is_banned_prefix, matches_lenient, prefix_choices
from golem_forge.policy.shell.prover import prove
from golem_forge.policy.shell.strict import CommandWorld, Opaque, Parsed, canonical_text, parse_strict, quote

FRAGMENTS = sorted(
    names(
        "ls cat grep find . -name .env x a/b ../c rm -rf -f / sudo bash sh -c -lc env xargs echo printf sed -n 1,5p"
        " head -5 sort rg -g -e | || && ; & ( ) { } $( ` ' \" \\ $ $HOME ${x ${ $(( )) <( >( < > >> << <<E E <<<"
        " 2>&1 >/dev/null 2>/dev/null /dev/sda /etc/shadow proc/1/environ # ~ * ? [ ] = A=1 PATH=x if then fi for"
        " do done case in esac function f() curl base64 -d cd src .ssh id_rsa .e* @.env --include=.env"
        " --color=auto date +%s %n uniq git push --force : , -- - ! time tr which seq"
    )
)
fragments_and_gaps = [word + gap for word in [*FRAGMENTS, "\n", "\t", "\\\n", "\0", "é"] for gap in ("", " ", " ", " ")]
text_of_fragments = st.lists(st.sampled_from(fragments_and_gaps), max_size=14).map("".join)
plain_words = st.lists(
    st.sampled_from([word for word in FRAGMENTS if not set(word) & set("'\"")]).map(lambda word: f"'{word}'"),
    max_size=6,
)
PROGRAMS = "ls cat head tail wc cut tr grep rg find sed sort uniq stat du echo printf date diff basename which cd"
table_programs = st.sampled_from(sorted(names(PROGRAMS)))
readable = st.lists(
    st.tuples(table_programs, plain_words).map(lambda pair: " ".join([pair[0], *pair[1]])), min_size=1, max_size=3
).map(" && ".join)
any_text = st.one_of(st.text(max_size=80), text_of_fragments, readable)
FEW = settings().max_examples
"""25, or 400 in `make test-long`."""
few = settings(max_examples=FEW, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(any_text)
@example("A¹=")
def test_no_text_breaks_an_analyser(world: CommandWorld, secret: Callable[[str], bool], text: str) -> None:
    parsed, found, once = parse_strict(text), find_commands(text), canonical_text(text)
    assert isinstance(parsed, Parsed | Opaque)
    assert all(command.words or command.assignments or command.redirects for command in found.commands)
    assert canonical_text(once) == once
    matches_lenient(("git", "push"), found)
    find_dangers(text, is_secret=secret)
    if isinstance(parsed, Parsed):
        prove(parsed, world, "/workspace")
        words = [segment.words for segment in parsed.segments]
        assert not any(is_banned_prefix(choice) for each in words for choice in prefix_choices(each))
        assert {command.words for command in found.commands} >= set(words), "it sees every command the parser sees"
        if len(once.encode()) <= 16384:
            assert parse_strict(once) == parsed


@settings(max_examples=2 * FEW, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(any_text)
def test_nothing_dangerous_is_proven(world: CommandWorld, secret: Callable[[str], bool], text: str) -> None:
    parsed = parse_strict(text)
    if isinstance(parsed, Parsed) and prove(parsed, world, "/workspace").proven:
        assert find_dangers(text, is_secret=secret) == ()


@few
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40))
def test_quoting_round_trip(word: str) -> None:
    parsed = parse_strict("echo " + quote(word))
    assert isinstance(parsed, Parsed)
    assert parsed.segments[0].words == ("echo", word)
    assert find_commands("echo " + quote(word)).commands[0].words == ("echo", word)


SHELL_CHARACTERS = "ab1=-+,.:/@%!_ '\"$`\\&|;<>(){}[]*?~^#é"


@few
@given(st.text(SHELL_CHARACTERS, max_size=14))
def test_real_shells_read_the_same_words(dump: Path, text: str) -> None:
    """Every segment starts with a program that prints its own words: shell and parser must agree on them."""
    parsed = parse_strict(f"dump {text}")
    if isinstance(parsed, Opaque) or any(segment.words[0] != "dump" for segment in parsed.segments):
        return
    expected = [list(segment.words[1:]) for segment in parsed.segments[-1:]]
    for shell in ("bash", "sh"):
        run = subprocess.run(
            [shutil.which(shell) or shell, "-c", f"dump {text}"],
            env={"PATH": str(dump), "LC_ALL": "C.UTF-8"},
            capture_output=True,
            check=True,
        )
        assert [words.split("\x1f")[1:] for words in run.stdout.decode().splitlines()] in (expected, [])


@pytest.fixture(scope="session")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "dump"
    program.write_text("#!/bin/sh\nfor word; do printf '\\037%s' \"$word\"; done\necho\n")
    program.chmod(0o755)
    return folder
