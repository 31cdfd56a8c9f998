"""`forge run`'s words: which worker, which input, how; and what contradicts itself. workers.md §14, case 48."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from golem_forge.cli.command import CommandUsageError
from golem_forge.cli.run import RunArgs, parse_run_args


class Stream(io.TextIOWrapper):
    def __init__(self, data: bytes = b"", *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="ascii")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program with workers `main`, `analyzer` and `team`, the current directory; a terminal on both sides."""
    root = tmp_path / "program"
    (root / "workers" / "team").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "forge.yaml").write_text("entry: main.worker\n")
    for name in ("main.worker", "workers/analyzer.worker", "workers/team/team.worker"):
        (root / name).write_text(f"---\nname: {Path(name).stem}\n---\nHi\n")
    monkeypatch.chdir(root)
    at_terminal(monkeypatch)
    return root


def at_terminal(monkeypatch: pytest.MonkeyPatch, stdin: bool = True, stdout: bool = True, data: bytes = b"") -> None:
    monkeypatch.setattr(sys, "stdin", Stream(data, terminal=stdin))
    monkeypatch.setattr(sys, "stdout", Stream(terminal=stdout))


def target(*words: str) -> tuple[Path, str | None, str | None]:
    asked = parse_run_args(list(words))
    return asked.directory, asked.worker, asked.input


def test_nothing_is_this_directory_and_a_conversation(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch)
    assert parse_run_args([]) == RunArgs(directory=program)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["docs"], ("docs", None, None)),
        (["docs", "what", "is here?"], ("docs", None, "what is here?")),
        (["."], (".", None, None)),
        (["analyzer", "look"], (".", "analyzer", "look")),
        (["team"], (".", "team", None)),
        (["workers/analyzer.worker", "look"], ("workers", "workers/analyzer.worker", "look")),
        (["main.worker"], (".", "main.worker", None)),
        (["hello"], (".", None, "hello")),
        (["hello", "analyzer"], (".", None, "hello analyzer")),
        (["hello there"], (".", None, "hello there")),
        (["what is in a/b?"], (".", None, "what is in a/b?")),
        (["-i", "docs"], (".", None, "docs")),
        (["analyzer", "-i", "x"], (".", "analyzer", "x")),
        (["-p", "docs", "docs"], ("docs", None, "docs")),
        (["--resume", "last", "docs", "need", "work"], (".", None, "docs need work")),
        (["--", "-x"], (".", None, "-x")),
        (["-i", ""], (".", None, "")),
    ],
)
def test_where_a_worker_ends_and_the_input_begins(
    program: Path, words: list[str], expected: tuple[str, str | None, str | None]
) -> None:
    directory, worker, said = target(*words)
    place, meant, text = expected
    assert (directory.resolve(), said) == ((program / place).resolve(), text)
    is_file = meant is not None and meant.endswith(".worker")
    assert worker == (str(program / meant) if is_file and meant else meant)


def test_every_flag_arrives_and_one_that_is_not_given_says_nothing(program: Path) -> None:
    words = "-m a:b -a strict -A x.pdf -A y -t debug --json --set approval.mode=strict --max-cost 2.5 --set model=x:y"
    asked = parse_run_args([*words.split(), "-i", "go"])
    assert asked == RunArgs(
        directory=program,
        input="go",
        attach=[Path("x.pdf"), Path("y")],
        model="a:b",
        approval="strict",
        trace="debug",
        headless=True,
        json=True,
        overrides=["approval.mode=strict", "model=x:y", "budget.max_cost_usd=2.5"],
    )
    silent = parse_run_args(["-i", "go"])
    assert (silent.model, silent.approval, silent.trace, silent.overrides) == (None, None, None, [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--input", "x", "--file", "y"], "the input was given twice: by --input and by --file"),
        (["-i", "x", "more"], "the input was given twice: by --input and by words"),
        (["-f", "y", "more"], "the input was given twice: by --file and by words"),
        (["-f", "nowhere.txt"], "nowhere.txt cannot be read as input: No such file or directory"),
        (["-f", "docs"], "docs cannot be read as input: Is a directory"),
        (["analyser"], "no worker is called 'analyser' (did you mean 'analyzer'?); -i gives it as input"),
        (["nope.worker", "x"], "no such worker file or directory: nope.worker"),
        (["a/b"], "no such worker file or directory: a/b"),
        (
            ["-a", "yolo"],
            "--approval must be one of interactive, strict, contained, plan, approve_all, auto_deny, not 'yolo'",
        ),
        (["--max-cost", "free"], "--max-cost takes an amount of USD above 0, not 'free'"),
        (["--max-cost", "0"], "--max-cost takes an amount of USD above 0, not '0'"),
        (["--max-cost", "nan"], "--max-cost takes an amount of USD above 0, not 'nan'"),
        (["--resume", "last", "-p", "docs"], "leave --program out"),
        (["--resume", "last", "--dry-run"], "leave --dry-run out"),
        (["-i", "caf\udce9"], "the input is not UTF-8"),
        (["--resume", "", "go on"], "--resume: the value is empty"),
        (["--program", "", "hi"], "--program: the value is empty"),
        (["--worker", "", "hi"], "--worker: the value is empty"),
        (["--model", "", "hi"], "--model: the value is empty"),
    ],
)
def test_w48_what_contradicts_itself_is_said(words: list[str], says: str) -> None:
    with pytest.raises(CommandUsageError) as refused:
        parse_run_args(words)
    assert says in str(refused.value)


@pytest.mark.parametrize("words", [["--bogus"], ["-t", "loud"], ["--ui", "carrier-pigeon"], ["--mod", "a:b"]])
def test_unknown_flags_and_values_are_usage_errors(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_run_args(words)
    assert ended.value.code == 2
    assert "`forge run --help` says more" in capsys.readouterr().err


def test_a_file_is_the_input_whole(program: Path) -> None:
    (program / "task.txt").write_text("line 1\nline 2\n")
    (program / "binary").write_bytes(b"\xff\xfe\x00")
    assert parse_run_args(["-f", "task.txt"]).input == "line 1\nline 2\n"
    with pytest.raises(CommandUsageError, match="binary cannot be read as input: not UTF-8"):
        parse_run_args(["-f", "binary"])


def test_standard_input_is_read_only_where_nothing_else_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch, stdin=False, data="grüße\n".encode())
    assert parse_run_args(["hello"]).input == "hello"
    assert parse_run_args(["--dry-run"]).input is None
    assert parse_run_args([]).input == "grüße\n"
    at_terminal(monkeypatch, stdin=False, data=b"\xff")
    with pytest.raises(CommandUsageError, match="standard input is not UTF-8"):
        parse_run_args([])


@pytest.mark.parametrize(
    ("words", "stdin", "stdout", "headless"),
    [
        (["x"], True, True, False),
        (["x"], True, False, True),
        (["x"], False, True, True),
        (["x", "--headless"], True, True, True),
        (["x", "--json"], True, True, True),
        (["x", "--dry-run"], False, False, False),
        (["x", "--dry-run", "--headless"], True, True, True),
    ],
)
def test_headless_is_a_flag_or_a_side_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, words: list[str], stdin: bool, stdout: bool, headless: bool
) -> None:
    at_terminal(monkeypatch, stdin, stdout)
    assert parse_run_args(words).headless is headless


def test_a_directory_that_is_gone_is_said(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = program / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(CommandUsageError, match="no longer exists"):
        parse_run_args([])


def test_a_page_needs_no_terminal_and_reads_no_stdin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", None)
    asked = parse_run_args(["--ui", "web"])
    assert asked.ui == {"web"} and asked.on_page and not asked.headless and asked.input is None
    asked = parse_run_args(["--ui", "web", "--host", "0.0.0.0", "--allow-host", "forge.test", "hello"])
    assert (asked.host, asked.allow_host, asked.input) == ("0.0.0.0", ["forge.test"], "hello")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ui", "web", "--headless"], "--ui web opens a page; --headless, --json and --dry-run open none"),
        (["--ui", "web", "--json"], "--ui web opens a page"),
        (["--ui", "web", "--dry-run"], "--ui web opens a page"),
        (["--ui", "terminal,web"], "--ui terminal,web needs a terminal; --ui web does not"),
        (["--host", "0.0.0.0"], "--host and --allow-host are for a page: add --ui web"),
    ],
)
def test_what_contradicts_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CommandUsageError, match=re.escape(said)):
        parse_run_args(words)
