"""Git's config, ignore files and attributes as git reads them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.tables import table

from golem_forge.sandbox.git.formats import ConfigSyntaxError, GitIgnore, is_plain_address, read_config, unlisted_keys

NASTY = [
    "[a]\nb = c\n",
    "[a]b=c",
    "[a] b",
    "[a]\n\tb\n\tc =\n",
    "\ufeff[a]\nb = c",
    "[a]\r\nb = c\r\n",
    "[a]\r\nb = c \\\r\n d\r\n",
    "[a]\nb = c \r d\n",
    "[a]\nb\r = c\n",
    "[a]\nb = \\\n   c\n",
    "[a]\nb = x \\\n   c ; said\n",
    "[a]\nb = x ; said \\\nc = d\n",
    "[a]\nb = x # said\n[core]\nfsmonitor = evil\n",
    "# [a]\n;b\n[a] ; [core]\nb = 1\n",
    '[a]\nb = "x # y" z\n',
    '[a]\nb = " x "\n',
    '[a]\nb = x ""  \n',
    '[a]\nb = "x\n',
    '[a]\nb = "x\\\ny"\n',
    '[a]\nb = x\\ty\\nz\\"q\\\\\\b\n',
    "[a]\nb = x\\qy\n",
    "[a]\nb = x\\",
    "[a]\nb = x\\\n",
    "[a]\nb = \\\n",
    '[a]\nb = "x" "y" z\n',
    '[A "B"]\nC = d\n',
    "[A.B]\nC = d\n",
    '[a.b "C"]\nd = e\n',
    '[a "b\\"c\\\\d\\n"]\ne = f\n',
    '[a "b]"]\ne = f\n',
    '[a "b\n"]\ne = f\n',
    '[a  \t "b"]\ne = f\n',
    '[a "b" ]\ne = f\n',
    '[ a "b"]\ne = f\n',
    '[ "b"]\ne = f\n',
    "[]\ne = f\n",
    "[a]\n[b]c=d [e] f=g\n",
    "[a]\n1b = c\n",
    "[a]\nb_c = d\n",
    "[a]\nb-c = d\n",
    "[a]\nb # said\n",
    "[a]\nb c\n",
    "e = f\n",
    "[a\nb = c\n",
    "[a]\n\fb = c\n",
    "[a]\n\vb = c\n",
    "[a]\nb = c\fd\n",
    "[a]\nb = \xe9\u20ac\n",
    "[a]\nb = \udcff\n",
    "\udcef[a]\nb = c\n",
    "[a]\n= c\n",
    "[ä]\nb = c\n",
    "[a]\nb =c;d\n",
    "[a]\nb == c\n",
    "",
    "\n\n",
    "\\\n[a]\nb=c\n",
    "[a]b=c\n]\n",
    "[include]\npath = x\n[InClude]\nPATH = y\n",
    "[core]\n\tfs\\\nmonitor = x\n",
    "[a]\nb = c\r",
    "[a]\rb = c\n",
]


def as_git_sees_it(place: Path, text: str) -> list[tuple[str, str | None]] | None:
    """Names and values; None where git refuses the file."""
    file = place / "config"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    said = subprocess.run(
        ["git", "config", "--file", str(file), "--no-includes", "--list", "-z"],
        capture_output=True,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(place)},
    )
    if said.returncode != 0:
        return None
    found: list[tuple[str, str | None]] = []
    for each in said.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        name, given_one, value = each.partition("\n")
        found.append((name, value if given_one else None))
    return found


def _spaces(value: str | None) -> str | None:
    """Newer versions of git keep a tab between two words, older ones make it a space."""
    return None if value is None else value.replace("\t", " ").replace("\r", " ")


def must_agree(place: Path, text: str) -> None:
    seen = as_git_sees_it(place, text)
    try:
        ours = [(one.name, one.value) for one in read_config(text)]
    except ConfigSyntaxError:
        # What we refuse is never trusted. But only a setting outside every section may be refused by us alone.
        assert seen is None or any("." not in name for name, _ in seen), f"git sees {seen!r}"
        return
    assert seen is not None, f"git refuses it, we see {ours!r}"
    assert [(name, _spaces(value)) for name, value in ours] == [(name, _spaces(value)) for name, value in seen]


@table("text", NASTY)
def test_the_reader_sees_what_git_sees(tmp_path: Path, text: str) -> None:
    must_agree(tmp_path, text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(
            [
                *("[", "]", '"', "\\", "\n", "\r", "\r\n", " ", "\t", "=", "#", ";", ".", "-", "a", "B", "n", "1"),
                *("[a]", '[a "b"]', "c = d", "\nc = ", "\ufeff", "\f", "\udcff", "é"),
            ]
        ),
        max_size=14,
    )
)
@example(["[a]", "\nc = ", "\\", "\n", " ", "c = d"])
def test_and_in_whatever_can_be_written(tmp_path: Path, pieces: list[str]) -> None:
    must_agree(tmp_path, "".join(pieces))


def test_a_nul_is_refused() -> None:
    with pytest.raises(ConfigSyntaxError):
        read_config("[a]\nb = c\0d\n")


def unlisted(text: str) -> list[str]:
    return unlisted_keys(read_config(text))


@table(
    "text",
    [
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
        '[remote "origin"]\n\turl = https://example.test/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
        '[remote "origin"]\n\turl = git@example.test:a/b.git\n\tpushurl = ../a\n\ttagopt = --no-tags\n',
        '[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n\trebase = true\n\tdescription = "a\\nb"\n',
        "[user]\n\tname = Ada\n\temail = a@b.test\n",
        '[submodule "x"]\n\turl = /srv/x\n\tactive = true\n\tupdate = rebase\n',
        "[extensions]\n\tobjectformat = sha256\n\tpartialclone = origin\n\trefstorage = reftable\n",
        "[commit]\n\tgpgSign = false\n[core]\n\thooksPath = /dev/null\n[advice]\n\tdetachedHead = false\n",
        "[credential]\n\thelper =\n",
        "[init]\n\tdefaultBranch = main\n[pull]\n\trebase = merges\n[core]\n\tfsmonitor = false\n\tautocrlf = input\n",
    ],
)
def test_settings_that_start_nothing(text: str) -> None:
    assert unlisted(text) == []


@table(
    ("text", "key"),
    [
        ("[core]\nfsmonitor = ./x", "core.fsmonitor"),
        ("[core]\nfsmonitor", "core.fsmonitor"),
        ("[CORE]\nFSMonitor = true", "core.fsmonitor"),
        ("[core]hooksPath=x", "core.hookspath"),
        ("[core]\neditor = x", "core.editor"),
        ("[core]\nsshCommand = x", "core.sshcommand"),
        ("[core]\nworktree = /", "core.worktree"),
        ("[core]\nattributesFile = x", "core.attributesfile"),
        ("[core]\nexcludesFile = x", "core.excludesfile"),
        ("[core]\nalternateRefsCommand = x", "core.alternaterefscommand"),
        ("[alias]\nst = !x", "alias.st"),
        ("[commit]\ngpgSign = true", "commit.gpgsign"),
        ("[commit]\ngpgSign", "commit.gpgsign"),
        ('[filter "f"]\nclean = x', "filter.f.clean"),
        ('[diff "d"]\ntextconv = x', "diff.d.textconv"),
        ('[diff "algorithm"]\ncommand = x', "diff.algorithm.command"),
        ("[diff]\nexternal = x", "diff.external"),
        ('[merge "m"]\ndriver = x', "merge.m.driver"),
        ("[include]\npath = x", "include.path"),
        ('[includeIf "gitdir:/"]\npath = x', "includeif.gitdir:/.path"),
        ("[credential]\nhelper = x", "credential.helper"),
        ("[gpg]\nprogram = x", "gpg.program"),
        ("[sequence]\neditor = x", "sequence.editor"),
        ("[pager]\nlog = x", "pager.log"),
        ("[uploadpack]\npackObjectsHook = x", "uploadpack.packobjectshook"),
        ("[protocol]\nallow = always", "protocol.allow"),
        ('[url "x"]\ninsteadOf = y', "url.x.insteadof"),
        ("[http]\nproxy = x", "http.proxy"),
        ('[hook "x"]\ncommand = x', "hook.x.command"),
        ("[extensions]\nworktreeConfig = true", "extensions.worktreeconfig"),
        ('[submodule "s"]\nupdate = !x', "submodule.s.update"),
        ('[remote "r"]\nurl = ext::sh -c x', "remote.r.url"),
        ('[remote "r"]\nurl = anything://x', "remote.r.url"),
        ('[remote "r"]\nurl = -x', "remote.r.url"),
        ('[remote "r"]\nurl', "remote.r.url"),
        ('[remote "r"]\nuploadpack = x', "remote.r.uploadpack"),
        ('[remote "r"]\nreceivepack = x', "remote.r.receivepack"),
        ('[remote "r"]\nproxy = x', "remote.r.proxy"),
        ('[remote "r"]\nvcs = x', "remote.r.vcs"),
        ("[remote.r]\nvcs = x", "remote.r.vcs"),
        ('[branch "b"]\nremote = ext::x', "branch.b.remote"),
        ('[branch "b"]\nmergeOptions = -s x', "branch.b.mergeoptions"),
        ('[core "x"]\nbare = true', "core.x.bare"),
        ("[unheard]\nof = 1", "unheard.of"),
    ],
)
def test_everything_else_stands_out(text: str, key: str) -> None:
    assert unlisted(text) == [key]


def test_what_a_caller_accepts() -> None:
    found = unlisted_keys(
        read_config("[core]\nworktree = ../x\neditor = y\n"), accepted=lambda one: one.name == "core.worktree"
    )
    assert found == ["core.editor"]


@table("address", ["ssh://-oProxyCommand=x/y", "a@-x:y", "::x", "fd::3", "host:-x", "hg::http://x"])
def test_addresses_that_start_a_program(address: str) -> None:
    assert not is_plain_address(address)


PATHS = (
    *(
        "a",
        "b",
        "ab",
        "a.py",
        "b.py",
        "a/b",
        "a/b/c",
        "a/b.py",
        "x/a",
        "x/a.py",
        "x/y/a.py",
        "x/ab/b",
        "axx/b",
        "a/x/b",
    ),
    *("{a,b}", "a b", "a ", "#a", "!a", "[a]", "a]", "a-b", "A", "1", "_", "é", "a\\b", "*", "?", "a\tb", "a\rb"),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("ignores")
    subprocess.run(["git", "init", "-q", "."], cwd=made, check=True)
    return made


def by_git(repository: Path, *rules: bytes) -> list[set[str]]:
    """For each `.gitignore`, in a directory of its own, the paths beside it that git leaves out themselves: what is
    above them is not asked about."""
    for number, lines in enumerate(rules):
        (repository / str(number)).mkdir(exist_ok=True)
        (repository / str(number) / ".gitignore").write_bytes(lines)
    asked = [f"{number}/{path}" for number in range(len(rules)) for path in PATHS]
    told = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"],
        cwd=repository,
        input="\0".join(asked).encode(),
        capture_output=True,
        check=False,
    )
    fields = told.stdout.split(b"\0")[:-1]
    rows = [fields[start : start + 4] for start in range(0, len(fields), 4)]
    assert len(rows) == len(asked), told.stderr
    found: list[set[str]] = [set() for _ in rules]
    for _, _, pattern, path in rows:
        number, _, name = path.decode().partition("/")
        if pattern and not pattern.startswith(b"!"):
            found[int(number)].add(name)
    return found


def by_us(rules: bytes) -> set[str]:
    """As git does it: an entry of a directory that is left out is left out with it."""
    ignores = GitIgnore(rules, 0)
    found = set()
    for path in PATHS:
        parts = tuple(path.split("/"))
        above = any(ignores.ignores(parts[:depth], True) for depth in range(1, len(parts)))
        if above or ignores.ignores(parts, False):
            found.add(path)
    return found


LINES = [
    *(
        "a",
        "/a",
        "a/",
        "*.py",
        "!a.py",
        "a/b",
        "/a/b",
        "**/b",
        "a/**",
        "a/**/b",
        "**",
        "**/",
        "*",
        "a**/b",
        "x/a**",
        "***/b",
    ),
    *("{a,b}", "\\{a,b}", "[[:alpha:]]", "[[:digit:]]", "[[:nope:]]", "[[:alpha]", "[!a]", "[^a]", "[a-c].py", "[]-]b"),
    *(
        "a\\ ",
        "a ",
        "a  ",
        "\\#a",
        "\\!a",
        "#a",
        "a\\",
        "a[",
        "[a",
        "a[/]b",
        "a[^/]b",
        "x/[^a]*",
        "?",
        "??",
        "a?b",
        "\\*",
    ),
    *(
        "a\t",
        "a\r",
        "a//b",
        "/",
        "!",
        "//a",
        "a\\/b",
        "**\\/b",
        "x/*",
        "x/*/a.py",
        "[a-",
        "[--a]",
        "[c-a]",
        "[\\]a]",
        "é",
        "[é]",
    ),
    *(
        "**/a/**",
        "**/**/b",
        "a/***",
        "x/**/**/a.py",
        "*b*",
        "a*b*",
        "[[:upper:][:digit:]_]",
        "[a\\-c]",
        "\ufeffa",
        "a\0b",
    ),
]


def test_each_line_means_what_git_says(repository: Path) -> None:
    rules = [each.encode() for line in LINES for each in (line, f"{line}\n", f"{line}\r\n", f"*\n!{line}\n")]
    said = zip(rules, by_git(repository, *rules), strict=True)
    assert [lines for lines, left_out in said if by_us(lines) != left_out] == []


PIECES = st.sampled_from(
    ["a", "b", "*", "**", "?", "/", "[", "]", "!", "^", "-", "\\", "[:alpha:]", ".py", " ", "{", "}"]
)
RULES = st.lists(st.lists(PIECES, min_size=1, max_size=6).map("".join), min_size=1, max_size=3).map("\n".join)


@settings(derandomize=True)
@given(rules=RULES)
def test_any_lines_mean_what_git_says(rules: str, repository: Path) -> None:
    assert [by_us(rules.encode())] == by_git(repository, rules.encode()), rules


def test_no_pattern_takes_longer_than_its_length() -> None:
    """With backtracking one of these lines would take longer than this machine lasts."""
    rules = ("/".join(["**/" + "*a" * 60] * 8) + "b\n").encode()
    assert not GitIgnore(rules, 0).ignores(("a" * 250,) * 15, False)


def test_lines_are_compared_only_while_there_is_time() -> None:
    lines = GitIgnore(b"[!a]x\n" * 2000, 0)
    assert not lines.ignores(("a",), False)
    assert lines.ignores(("a",), False, lambda: True), "what was not compared counts as left out"
    above: GitIgnore | None = None
    for _ in range(100):
        above = GitIgnore(b"[!a]x\n" * 10, 0, above)
    assert above is not None and above.ignores(("a",), False, lambda: True), "the lines of all files count together"


def test_a_line_longer_than_anybody_s_is_not_compared() -> None:
    long = b"/".join([b"**"] * 20_000) + b"/nothing"
    assert GitIgnore(long, 0).ignores(("a",), False)
    assert GitIgnore(b"a\n!" + long, 0).ignores(("a",), False)
