"""`forge`: finds the verb and hands the rest over. Starts like a small program: only the verb that runs is imported.

Exit codes: 0 done, 1 it failed, 2 usage or configuration, 3 denied, 4 no such thing, 124 timed out, 130 interrupted;
`forge run` has its own (`ui.session_ui`).
"""

import gc
import os
import sys

from golem_forge.sandbox.host import enter_process

TYPE_CHECKING = False
if TYPE_CHECKING:  # nothing else is imported before `enter_process`: it might be the project's
    from collections.abc import Callable

VERBS = {
    "run": "start a worker in this directory: a conversation, or one answer; `forge` alone does the same",
    "web": "open a page in your browser: start and resume sessions, answer questions, read earlier ones",
    "models": "choose a model: list providers and keys, set, test, setup",
    "init": "write a first program here: forge.yaml, main.worker, tools.py",
    "sessions": "earlier sessions: list, show, export, delete; `forge run --resume` goes on with one",
    "changes": "show what a session changed: by turn and call, the files, the diffs",
    "undo": "take back what a session changed, after one question",
    "call": "run one tool: forge call NAME --arg value",
    "tools": "list, show and search tools; make, test, trust and share user tools",
    "mcp": "add and approve the MCP servers of this program; `serve` its tools to any MCP client",
    "acp": "be the agent of an editor (Agent Client Protocol); `install` sets the editor up",
    "sandbox": "run a command inside this directory's walls; explain what they allow",
    "rules": "check, explain, list and revoke approval rules",
    "hooks": "list the hooks of this directory; test what one would say to a call",
    "review": "replay: compare what a reviewer would have answered with what you answered",
    "log": "show which calls were made, who decided and what happened; verify the journal",
    "trust": "trust this program's files as they are now",
    "runner": "run sessions that were started with `forge run --background`",
    "ps": "list the sessions that run or wait in the background",
    "attach": "show a background session at this terminal: its text, its questions, your messages",
    "batch": "run one background session for each line of a file; a table of the results",
    "schedule": "start background sessions by the clock: add, list, remove",
    "diff": "show what a background session changed in its git workspace",
    "apply": "bring what a background session changed into this checkout, after one question",
    "inbox": "show and answer the open questions of all background sessions",
    "send": "send a background session a message",
    "stop": "end a background session",
    "store": "the database of background sessions: init, status, upgrade, prune",
    "people": "the people of a team: add, list and remove them; their tokens",
    "projects": "the programs of a team: who has which role in each; groups of people",
    "secrets": "secrets of a project, sealed for the runners: set, list, remove, key",
    "audit": "who was let in, refused, asked and answered, and who changed people and rules: export, verify",
    "doctor": "check what works here, and say how to repair the rest",
}
TEAM_VERBS = (
    "runner",
    "ps",
    "attach",
    "batch",
    "schedule",
    "diff",
    "apply",
    "inbox",
    "send",
    "stop",
    "store",
    "people",
    "projects",
    "secrets",
    "audit",
)
"""The verbs of `cli.team`."""
VERBS_ELSEWHERE = {"review": "hooks", "undo": "changes"}
"""Verb → the module that has it as `run_<verb>`. Every other verb is `run` in a module of its name."""
_OTHER_VERBS = {"exec": "sandbox exec", "explain": "rules explain"}
"""Words that people try as a verb → the right command."""

LOADED_OBJECTS = 100_000
"""The first collection comes after so many new objects instead of 700: what loading modules makes stays, and looking
through it again and again is a tenth of a start. From then on collections come as usual."""


def main(argv: list[str] | None = None) -> int:
    """`argv`: for a caller in whose process it runs; without, this process is the command's own."""
    if argv is not None:
        return _run_in_process(argv)
    enter_process()
    _collect_late()
    try:
        return _run_command(sys.argv[1:])
    finally:
        gc.freeze()  # nothing is looked through once more while the interpreter ends: another tenth


def _run_in_process(words: list[str]) -> int:
    """The caller's SIGINT is as it was afterwards, whatever the command did with it."""
    import signal

    before = signal.getsignal(signal.SIGINT)
    try:
        return _run_command(words)
    finally:
        if before not in (None, signal.SIG_IGN) and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, before)


def _collect_late() -> None:
    usual = gc.get_threshold()

    def as_usual(phase: str, facts: object) -> None:
        gc.callbacks.remove(as_usual)
        gc.set_threshold(*usual)

    gc.callbacks.append(as_usual)
    gc.set_threshold(LOADED_OBJECTS)


def _run_command(words: list[str]) -> int:
    from importlib import import_module

    _open_streams()
    verb, rest = (words[0], words[1:]) if words else ("run", [])
    if verb in ("-h", "--help", "help"):
        return _guarded(lambda _: _print_text(usage()), rest)
    if verb in ("-V", "--version"):
        from golem_forge._version import __version__

        return _guarded(lambda _: _print_text(f"forge {__version__}"), rest)
    if verb.startswith("-"):
        verb, rest = "run", words
    if verb not in VERBS:
        return unknown_verb(verb)
    if verb in TEAM_VERBS:
        team = import_module("golem_forge.cli.team").run
        return _guarded(lambda given: team(verb, given), rest)
    if verb in VERBS_ELSEWHERE:
        return _guarded(getattr(import_module(f"golem_forge.cli.{VERBS_ELSEWHERE[verb]}"), f"run_{verb}"), rest)
    return _guarded(import_module(f"golem_forge.cli.{verb}").run, rest)


def _print_text(text: str) -> int:
    print(text)
    return 0


def usage() -> str:
    width = max(map(len, VERBS))
    lines = "\n".join(f"  {verb:<{width}}  {does}" for verb, does in VERBS.items())
    return f"usage: forge [VERB …]\n\n{lines}\n\nforge VERB --help says more; forge --version prints the version."


def unknown_verb(verb: str) -> int:
    from golem_forge.core.text import closest_match, escape_control_chars

    close = _OTHER_VERBS.get(verb) or closest_match(verb, VERBS)
    hint = f" (did you mean '{close}'?)" if close else ""
    print(
        f"forge: unknown verb '{escape_control_chars(verb)}'{hint}. `forge --help` lists them; "
        "`forge run …` is how to talk to a worker.",
        file=sys.stderr,
    )
    return 2


def _open_streams() -> None:
    """Opens standard streams that were closed (`>&-`) as /dev/null. Threat: the next file that is opened would be that
    stream, and whatever a child prints would be written into it.
    """
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    _take_any_character()


def _take_any_character() -> None:
    """Makes the streams accept any character. What a stream cannot hold (`PYTHONIOENCODING=ascii`, half a character) is
    written as an escape, and bytes that are no text are read as such; ASCII input is read as UTF-8.
    """
    from codecs import lookup
    from io import TextIOWrapper

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors != "backslashreplace":
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, TextIOWrapper):
        encoding = "utf-8" if lookup(sys.stdin.encoding).name == "ascii" else sys.stdin.encoding
        try:
            sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape")
        except OSError:  # a caller in whose process this is has read from it
            return


def _guarded(run: "Callable[[list[str]], int]", words: list[str]) -> int:
    from golem_forge.core.errors import ConfigError, ForgeError, missing_library
    from golem_forge.core.text import escape_control_chars  # what is wrong may quote a file of nobody's trust

    try:
        code = run(words)
        sys.stdout.flush()  # what cannot be written is found out here, and not while exiting
        return code
    except ConfigError as error:
        for problem in error.problems:
            print(f"forge: {escape_control_chars(problem)}", file=sys.stderr)
        return 2
    except ForgeError as error:
        print(f"forge: {escape_control_chars(error.message)}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if not (advice := missing_library(error)):
            raise
        print(f"forge: {advice}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; nothing more to say, and no second error while exiting
        return 0
    except OSError as error:  # a disk that is full or read-only, a file where a folder must be: nothing Forge can mend
        from golem_forge.cli.command import describe_os_error

        _drop_unwritten()
        print(f"forge: {escape_control_chars(describe_os_error(error))}", file=sys.stderr)
        return 1


def _drop_unwritten() -> None:
    try:
        sys.stdout.flush()
    except OSError:  # it would be tried again, and told again, while exiting
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
