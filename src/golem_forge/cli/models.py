"""`forge models`: lists providers, keys and local servers; sets, tests and sets up the person's default model.

`setup_model` asks the questions on a terminal, for `forge models setup` and for the first `forge`. It writes nothing
before the last answer and a test request that worked. The key is never shown and is in no history. Exit codes: 0 done,
1 it failed, 2 usage or configuration, 4 no such provider or key, 5 the model is not available.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from golem_forge.agent.files.roster import load_roster
from golem_forge.agent.model import setup
from golem_forge.agent.model.interface import ModelError
from golem_forge.agent.model.selection import (
    PROVIDERS,
    ModelKeys,
    missing_key,
    needs_address,
    split_model,
    split_models,
    usable_key,
)
from golem_forge.agent.model.setup import find_local_servers
from golem_forge.agent.session_plan import read_program
from golem_forge.agent.trust import trust_store
from golem_forge.cli.command import NOT_FOUND, USAGE, fail, print_json, read_args
from golem_forge.cli.dry_run import chosen_model
from golem_forge.cli.run import RunArgs
from golem_forge.config.program import Program
from golem_forge.core.errors import ConfigError, ForgeError
from golem_forge.core.lazy_dataclass import replace
from golem_forge.core.signals import run_to_exit_code
from golem_forge.core.text import columns, display_path, escape_control_chars, nearest_remark
from golem_forge.storage.home import ForgeHome, forge_home
from golem_forge.ui.session_ui import MODEL_UNAVAILABLE

HELP: Final = """usage: forge models [--json]
       forge models setup              choose a provider or a local server, paste a key, choose a model
       forge models set MODEL [--address URL]
                                       make PROVIDER:NAME your default; A,B: B answers when A fails
       forge models test [MODEL]       send one small request and say whether it was answered
       forge models forget PROVIDER    remove the stored key of a provider

Without a verb it lists the providers and where each one's key is, the model servers that run on this machine, and the
model that answers here, with the place where it was chosen. Your default is the line `model:` in config.yaml in
FORGE_HOME; a program, a worker, FORGE_MODEL and --model come before it. Forge keeps keys in the system keyring (extra
`keyring`), else in a file that only you can read. A key in an environment variable comes first. Forge sends a stored
key only to the address for which you stored it.

Exit: 0 done, 1 it failed, 2 usage or configuration, 4 no such provider or key, 5 the model is not available."""

_SHOWN_NAMES: Final = 15
_LEAVE: Final = "Esc leaves without a change"
_ANOTHER: Final = setup.ModelChoice(provider="openai-compatible", model="another address")
_T = TypeVar("_T")


def run(words: list[str]) -> int:
    verbs = {"setup": _setup, "set": _set, "test": _test, "forget": _forget}
    verb, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else ("list", words)
    if {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    if verb == "list":
        return _list(rest)
    if verb not in verbs:
        hint = nearest_remark(verb, verbs)
        return fail("models", f"unknown verb '{verb}'{hint}. `forge models --help` lists them.", USAGE)
    return verbs[verb](rest)


def _list(words: list[str]) -> int:
    asked = read_args("models", HELP, words, "--json")
    home = forge_home()
    program = _program(home)
    states = setup.provider_states(program.run.models, os.environ, ModelKeys(home))
    local = find_local_servers()
    chosen = _model_here(program)
    if asked.json:
        print_json(
            {
                "model": chosen,
                "providers": [_provider_json(each) for each in states],
                "local": [
                    {"server": each.title, "provider": each.provider, "address": each.base_url, "models": each.models}
                    for each in local
                ],
            }
        )
        return 0
    rows = [("PROVIDER", "KEY", "")]
    rows += [(each.name, _key_words(each), each.note) for each in states]
    print(columns(rows))
    further = [name for name in PROVIDERS if name not in {"scripted", *(each.name for each in states)}]
    print(f"By name, too: {', '.join(further)}.")
    if local:
        print("\nOn this machine:")
        print(columns([(each.title, each.base_url, _some(each.models)) for each in local], indent="  "))
    if chosen["name"]:
        print(f"\nModel here: {escape_control_chars(chosen['name'])} (from {escape_control_chars(chosen['from'])})")
        if chosen["problem"]:
            print(f"It cannot answer: {escape_control_chars(chosen['problem'])}.")
    else:
        print("\nNo model yet: `forge models setup` chooses one, `forge models set PROVIDER:NAME` names one.")
    return 0


def _provider_json(state: setup.ProviderState) -> dict[str, Any]:
    return {
        "name": state.name,
        "key": state.key,
        "variable": state.variable or None,
        "address": state.address or None,
        "default": f"{state.name}:{state.default_model}" if state.default_model else None,
    }


def _key_words(state: setup.ProviderState) -> str:
    if state.key == "environment":
        return f"environment ({state.variable})"
    return f"none ({state.variable} is not set)" if state.key == "none" else state.key


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "no model is loaded"


def _program(home: ForgeHome) -> Program:
    return read_program(Path.cwd(), home, trust_store(home))


def _model_here(program: Program) -> dict[str, Any]:
    """Returns the model that `forge` would use in this directory, its origin, and what is missing for it."""
    try:
        found = chosen_model(RunArgs(directory=Path.cwd()), program, load_roster(program).root)
    except ConfigError as error:
        return {"name": "", "from": "", "problem": error.problems[0]}
    if found["from"] == "forge.yaml":
        found["from"] = program.run.origins.get("model", "forge.yaml")
    return {"name": found["name"], "from": found["from"], "problem": found["problem"]}


def _set(words: list[str]) -> int:
    asked = read_args("models set", HELP, words, "MODEL", "--address URL")
    names = split_models(asked.model)
    home = forge_home()
    settings = setup.person_settings(home)
    homeless = [name for name in names if needs_address(name, settings)]
    if asked.address and len(names) > 1:
        return fail("models", "--address is of one model: name one", USAGE)
    if asked.address or homeless:
        return _set_with_address(home, asked.address or "", homeless[0] if homeless else asked.model, asked.model)
    setup.save_default(home, asked.model)
    print(f"{asked.model} is your default now ({display_path(home.config)}).")
    for each in split_models(asked.model):
        if problem := missing_key(each, settings, os.environ, ModelKeys(home)):
            print(f"It cannot answer yet: {problem}.")
    return 0


def _set_with_address(home: ForgeHome, typed: str, model: str, chosen: str) -> int:
    """`model`: the one whose server is meant; `chosen`: all that were named."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not typed and not terminal:
        return fail(
            "models", f"{model} needs an address: forge models set {model} --address http://HOST:PORT/v1", USAGE
        )
    provider, name = split_model(model)

    async def ask() -> int:
        try:
            address = typed or await _ask_text(f"Address of {provider}, like http://localhost:8080/v1 ({_LEAVE}): ")
            choice = setup.ModelChoice(provider=provider, model=name, base_url=setup.possible_addresses(address)[0])
            if provider == "openai-compatible":
                found, names = await setup.find_at(home, address, "", os.environ)
                choice = replace(choice, base_url=found.base_url)
                if names and name not in names:
                    print(f"The server there does not list {escape_control_chars(name)}; it has {_some(names)}.")
        except _Left:
            print("Nothing was changed.")
            return 130
        except ModelError as error:
            if error.code == "MODEL_LIBRARY_MISSING":
                return fail("models", error.message, MODEL_UNAVAILABLE)
            print(f"No server lists its models there yet: {escape_control_chars(error.message)}.")
        await asyncio.to_thread(setup.save_choice, home, choice)
        setup.save_default(home, chosen)
        print(f"{chosen} is your default now, at {choice.base_url} ({display_path(home.config)}).")
        return 0

    return run_to_exit_code(ask())


def _test(words: list[str]) -> int:
    asked = read_args("models test", HELP, words, "MODEL?")
    home = forge_home()
    program = _program(home)
    chosen = _model_here(program)
    named = asked.model or chosen["name"]
    if not named:
        return fail("models", f"{chosen['problem']}", MODEL_UNAVAILABLE)
    code = 0
    for model in split_models(named):
        tried = setup.try_model(
            model,
            settings=program.run.models,
            environ=os.environ,
            stored=ModelKeys(home),
            script_root=program.root,
        )
        try:
            run_to_exit_code(_finish(tried))
        except ModelError as error:
            code = fail("models", error.message, MODEL_UNAVAILABLE)
        else:
            print(f"{escape_control_chars(model)} answers.")
    return code


async def _finish(tried: Coroutine[Any, Any, None]) -> int:
    await tried
    return 0


def _forget(words: list[str]) -> int:
    asked = read_args("models forget", HELP, words, "PROVIDER")
    if asked.provider not in PROVIDERS:
        hint = nearest_remark(asked.provider, PROVIDERS)
        return fail("models", f"no provider is called '{asked.provider}'{hint}", NOT_FOUND)
    if not ModelKeys(forge_home()).forget(asked.provider):
        return fail("models", f"no key of {asked.provider} is stored", NOT_FOUND)
    print(f"The stored key of {asked.provider} is removed.")
    return 0


def _setup(words: list[str]) -> int:
    read_args("models setup", HELP, words)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        instead = "set the key's variable and run `forge models set MODEL`"
        text = f"setup asks questions, so it needs a terminal. Without one, {instead}"
        return fail("models", text, USAGE)

    async def ask() -> int:
        return 0 if await setup_model(forge_home(), first_run=False) else 130

    return run_to_exit_code(ask())


class _Left(Exception):
    """Raised when the person leaves the setup."""


async def setup_model(home: ForgeHome, *, first_run: bool) -> str:
    """Asks, tests and saves. Returns the model that is the person's default now; empty: they left, nothing was saved.
    `first_run`: the person did not ask for setup, so one of the answers is `later`, and then it is not asked again."""
    if first_run and not setup.wants_setup(home):
        return ""
    try:
        setup.person_settings(home)
        return await _ask_all(home, first_run)
    except _Left:
        print("Nothing was changed.")
    except (ForgeError, OSError) as error:
        text = error.message if isinstance(error, ForgeError) else str(error.strerror)
        print(f"Nothing was changed: {escape_control_chars(text)}")
    return ""


async def _ask_all(home: ForgeHome, first_run: bool) -> str:
    states = {
        each.name: each for each in setup.provider_states(setup.person_settings(home), os.environ, ModelKeys(home))
    }
    local = await asyncio.to_thread(find_local_servers)
    answers: list[setup.ModelChoice | None] = [setup.ModelChoice(provider=name) for name in setup.TITLES]
    rows = [(setup.TITLES[name], _key_words(states[name]).partition(" (")[0]) for name in setup.TITLES]
    rows = [(title, "" if key == "none" else f"key: {key}") for title, key in rows]
    for server in local:
        answers.append(setup.ModelChoice(provider=server.provider, base_url=server.base_url))
        rows.append((f"{server.title} on this machine", _some(server.models)))
    answers.append(_ANOTHER)
    rows.append(("another address", "any server that speaks OpenAI's format"))
    if first_run:
        answers.append(None)
        rows.append(("no model for now: use only tools", ""))
    print("Forge has no model yet. Where should one come from?" if first_run else "Where should your model come from?")
    print(columns([(f"{at:>2}", *row) for at, row in enumerate(rows, 1)], indent="  "))
    choice = answers[await _ask_number(f"Number [1] ({_LEAVE}): ", len(answers))]
    if choice is None:
        setup.remember_later(home)
        return ""
    if choice is _ANOTHER:
        choice = await _with_address(home)
    while True:
        choice = await _with_key(choice, states[choice.provider])
        tried = await _with_model(home, choice)
        if tried is None:  # the key was refused
            states[choice.provider] = replace(states[choice.provider], key="none")
            choice = setup.ModelChoice(provider=choice.provider, base_url=choice.base_url)
            continue
        place = await asyncio.to_thread(setup.save_choice, home, tried)
        break
    where = {"keyring": "The key is in your system keyring.", "file": "The key is in a file that only you can read."}
    print(
        f"{tried.name} answers, and is your default now ({display_path(home.config)}). {where.get(place, '')}".rstrip()
    )
    return tried.name


async def _with_address(home: ForgeHome) -> setup.ModelChoice:
    """A server that answers where the person says, with the key that they say it needs."""
    key = ""
    typed = ""
    while True:
        typed = typed or await _ask_text(f"Address, like http://localhost:8080/v1 ({_LEAVE}): ")
        try:
            choice, _ = await _unless_left(setup.find_at(home, typed, key, os.environ))
            return choice
        except ModelError as error:
            print(escape_control_chars(error.message))
            if error.code == "MODEL_LIBRARY_MISSING":
                raise _Left from None
            if error.code != "MODEL_KEY_REFUSED":
                typed = ""
                continue
        except ConfigError as error:
            print(escape_control_chars(error.problems[0]))
            typed = ""
            continue
        key = await _ask_key(f"Key of this server; it is not shown ({_LEAVE}): ")


async def _with_key(choice: setup.ModelChoice, state: setup.ProviderState) -> setup.ModelChoice:
    if state.key != "none" or choice.key:
        return choice
    address = choice.base_url or state.address
    page = setup.KEY_PAGES.get(choice.provider)
    print(
        f"\nA key of {setup.provider_title(choice.provider)} comes from {page}. It goes only to {address}."
        if page
        else ""
    )
    return replace(choice, key=await _ask_key(f"Paste the key; it is not shown ({_LEAVE}): "))


async def _ask_key(question: str) -> str:
    while True:
        try:
            return usable_key(await _ask_text(question, secret=True))
        except ForgeError as error:
            print(error.message)


async def _with_model(home: ForgeHome, choice: setup.ModelChoice) -> setup.ModelChoice | None:
    """A choice that answered a request; None: the key was refused."""
    try:
        names = await _unless_left(setup.list_models(home, choice, os.environ))
    except ModelError as error:
        print(escape_control_chars(error.message))
        if error.code == "MODEL_LIBRARY_MISSING":
            raise _Left from None
        if error.http_status == 401:
            return None
        names = []
    if names:
        print(f"\nModels of {setup.provider_title(choice.provider)}:")
        print(columns([(f"{at:>2}", name) for at, name in enumerate(names[:_SHOWN_NAMES], 1)], indent="  "))
        if len(names) > _SHOWN_NAMES:
            print(f"  … and {len(names) - _SHOWN_NAMES} more: type a name, Tab completes it")
    while True:
        asked = "Number or name" if names else "Name of the model"
        name = await _ask_text(f"{asked}{' [1]' if names else ''} ({_LEAVE}): ", names=names)
        if names and not name:
            name = names[0]
        elif name.isdecimal() and 0 < int(name) <= min(len(names), _SHOWN_NAMES):
            name = names[int(name) - 1]
        try:
            split_model(f"{choice.provider}:{name}")
        except ConfigError:
            continue
        tried = setup.ModelChoice(provider=choice.provider, model=name, base_url=choice.base_url, key=choice.key)
        print(f"Testing {escape_control_chars(tried.name)} with one small request …")
        try:
            await _unless_left(setup.try_choice(home, tried, os.environ))
        except ModelError as error:
            print(escape_control_chars(error.message))
            if error.http_status == 401:
                return None
            continue
        return tried


async def _ask_number(question: str, most: int) -> int:
    """The place in the list, from 0 on; Enter alone is the first."""
    while True:
        text = (await _ask_text(question)).strip() or "1"
        if text.isdecimal() and 0 < int(text) <= most:
            return int(text) - 1
        print(f"Type a number from 1 to {most}.")


async def _ask_text(question: str, *, secret: bool = False, names: Sequence[str] = ()) -> str:
    """One line. Raises _Left for Esc, Ctrl+C and the end of input."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import DummyHistory
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("escape", eager=False)(lambda event: event.app.exit(exception=_Left()))
    session: PromptSession[str] = PromptSession(
        history=DummyHistory(),
        key_bindings=keys,
        is_password=secret,
        completer=WordCompleter(list(names), sentence=True) if names else None,
        complete_while_typing=bool(names),
    )
    session.app.ttimeoutlen = 0.1
    session.app.timeoutlen = 0.3
    try:
        return (await session.prompt_async(question)).strip()
    except (KeyboardInterrupt, EOFError):
        raise _Left from None


async def _unless_left(request: Coroutine[Any, Any, _T]) -> _T:
    """The request, which Ctrl+C stops. Raises _Left then."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(request)
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        raise _Left from None
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
