"""The words of `forge mcp add` as one server's block of forge.yaml. Refuses (WordsError) what cannot be meant.

Values are checked where the file is read; here only what a file cannot say: both transports at once, an option of the
other transport, a `KEY=VALUE` without its `=`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_STDIO: Final = ("env", "pass_env", "zone", "cwd", "network", "no_network")
_HTTP: Final = ("header", "auth", "bearer_env")


class WordsError(Exception):
    pass


def add_options(reader: ArgumentParser) -> None:
    for repeated in ("--env", "--pass-env", "--zone", "--network", "--header", "--allow", "--deny"):
        reader.add_argument(repeated, action="append", default=[])
    reader.add_argument("--no-network", action="store_true")
    reader.add_argument("--cwd")
    reader.add_argument("--auth", choices=("none", "oauth"))
    reader.add_argument("--bearer-env")
    reader.add_argument("--trust", choices=("untrusted", "trusted"))
    reader.add_argument("--protocol", choices=("auto", "legacy"))
    reader.add_argument("--required", action="store_true")


def block_of(asked: Namespace, url: str | None, command: Sequence[str]) -> dict[str, Any]:
    """Keys in the order people read them."""
    if url is not None and command:
        raise WordsError("a server has either a URL or a COMMAND, not both")
    if url is None and not command:
        raise WordsError("name a URL, or write the command after `--`: forge mcp add NAME -- COMMAND ARGS…")
    if url is not None and "://" not in url:
        raise WordsError(f"'{url}' is no URL; a command goes after `--`: forge mcp add NAME -- {url} …")
    kind, others = ("a server with a URL", _STDIO) if url is not None else ("a server that is started", _HTTP)
    for name in others:
        if getattr(asked, name):
            raise WordsError(f"--{name.replace('_', '-')} has no effect for {kind}")
    block = _http(asked, url) if url is not None else _stdio(asked, command)
    if asked.trust:
        block["trust"] = asked.trust
    if asked.required:
        block["required"] = True
    if asked.allow or asked.deny:
        block["tools"] = {key: getattr(asked, key) for key in ("allow", "deny") if getattr(asked, key)}
    if asked.protocol:
        block["protocol"] = asked.protocol
    return block


def _stdio(asked: Namespace, command: Sequence[str]) -> dict[str, Any]:
    if asked.network and asked.no_network:
        raise WordsError("--network and --no-network exclude each other")
    block: dict[str, Any] = {"command": command[0]}
    if command[1:]:
        block["args"] = list(command[1:])
    if asked.env:
        block["env"] = _pairs("--env", asked.env, "=")
    if asked.pass_env:
        block["pass_env"] = asked.pass_env
    if asked.cwd:
        block["cwd"] = asked.cwd
    if asked.zone:
        block["zones"] = dict(map(_zone, asked.zone))
    if asked.network or asked.no_network:
        block["network"] = asked.network or False
    return block


def _http(asked: Namespace, url: str) -> dict[str, Any]:
    if asked.auth and asked.bearer_env:
        raise WordsError("--auth and --bearer-env exclude each other")
    block: dict[str, Any] = {"url": url}
    if asked.header:
        block["headers"] = _pairs("--header", asked.header, "=:")
    if asked.bearer_env:
        block["auth"] = {"bearer_env": asked.bearer_env}
    elif asked.auth:
        block["auth"] = asked.auth
    return block


def _pairs(option: str, words: Iterable[str], signs: str) -> dict[str, str]:
    """`KEY=VALUE`; headers also the way they are on the wire, `KEY: VALUE`."""
    pairs: dict[str, str] = {}
    for word in words:
        place = min((found for sign in signs if (found := word.find(sign)) > 0), default=-1)
        if place < 0:
            raise WordsError(f"{option} wants NAME=VALUE")  # the word may be a secret: it is not repeated
        name, value = word[:place].strip(), word[place + 1 :]
        if name in pairs:
            raise WordsError(f"{option} {name} is there twice")
        pairs[name] = value.strip() if word[place] == ":" else value
    return pairs


def _zone(word: str) -> tuple[str, str]:
    name, colon, mode = word.partition(":")
    if colon and mode not in ("ro", "rw"):
        raise WordsError(f"--zone {word}: write NAME, NAME:ro or NAME:rw")
    return name, mode or "ro"
