"""`forge mcp install [CLIENT]`: the config that makes another product start `forge mcp serve` for this program.

Prints it; `--write` merges it into that product's file. The entry names this very `forge` and the program's directory,
because products start servers elsewhere and with another PATH. `PRODUCTS` says where each product keeps its servers and
how it writes one down.

Merging keeps everything else in the file and replaces it atomically; links are followed. It raises CannotMerge for a
file that is not valid, has comments, has something else than a table under the key, or has another server of that name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.command import declare, fail, parser, print_error
from golem_forge.config.mcp_spec import NAME_RULE, is_server_name
from golem_forge.config.program import program_root
from golem_forge.core.lazy_dataclass import dataclass
from golem_forge.core.regex import regex
from golem_forge.core.text import columns, display_path, nearest_remark
from golem_forge.sandbox.host import find_program
from golem_forge.storage.home import replacing

HELP: Final = """usage: forge mcp install [CLIENT] [--write] [--name NAME] [--worker FILE] [-p DIR]

Prints the configuration with which another product starts `forge mcp serve` for the program in this directory or above
it, and the file for that configuration. Without CLIENT it lists the products that Forge knows.

  --write            merge it into that file; everything else in it stays
  --name NAME        under this name (default golem-forge)
  --worker FILE      serve the tools of this worker: a file, or the name of a worker of the program
  -p, --program DIR  the program in that directory instead of this one

In any other product that takes a command, write: forge mcp serve -p DIR.
Exit: 0 done, 1 the file cannot be merged with, 2 usage, 4 no such product."""

DEFAULT_NAME: Final = "golem-forge"


def run_install(words: list[str]) -> int:
    declared = ("CLIENT?", "--write", "--name NAME", "--worker FILE", "-p,--program DIR")
    reader = declare(parser("mcp install", HELP), *declared)
    reader.set_defaults(name=DEFAULT_NAME, program=".")
    asked = reader.parse_args(words)
    if not is_server_name(asked.name):
        reader.error(f"--name '{asked.name}' cannot name a server ({NAME_RULE})")
    if not os.path.isdir(asked.program):
        reader.error(f"-p {asked.program} is not a directory")
    root = program_root(Path(asked.program))
    if asked.client is None:
        if asked.write:
            reader.error("--write needs a CLIENT")
        print_products(PRODUCTS, root)
        return 0
    if (product := PRODUCTS.get(asked.client)) is None:
        return no_product("mcp install", asked.client, PRODUCTS)
    entry = product.entry(_serve_command(root, asked.worker))
    return (write_entry if asked.write else print_entry)("mcp install", product, product.file(root), asked.name, entry)


def print_products(products: Mapping[str, Product], root: Path) -> None:
    rows = ((name, product.title, display_path(product.file(root))) for name, product in products.items())
    print(columns([("CLIENT", "PRODUCT", "FILE"), *rows]))


def no_product(verb: str, client: str, products: Mapping[str, Product]) -> int:
    hint = nearest_remark(client, products)
    return fail(verb, f"no product '{client}' is known{hint}. `forge {verb}` lists them.", 4)


def print_entry(verb: str, product: Product, file: Path, name: str, entry: Mapping[str, Any]) -> int:
    print(f"{product.title} reads this from {display_path(file)}; --write merges it in:", file=sys.stderr)
    sys.stdout.write(snippet(product.format, product.key, name, entry))
    return 0


def write_entry(verb: str, product: Product, file: Path, name: str, entry: Mapping[str, Any]) -> int:
    try:
        changed = merge(file, product.format, product.key, name, entry)
    except CannotMerge as refused:
        print_error(verb, f"Forge did not change {display_path(file)}: {refused}. The entry:")
        sys.stdout.write(snippet(product.format, product.key, name, entry))
        return 1
    print(f"{'wrote' if changed else 'there already:'} {name} {'into' if changed else 'in'} {display_path(file)}")
    if changed and product.then:
        print(product.then)
    return 0


def _serve_command(root: Path, worker: str | None) -> ServeCommand:
    args = ["mcp", "serve", "-p", str(root)]
    if worker is not None:
        args += ["--worker", os.path.abspath(worker) if os.path.isfile(worker) else worker]
    return forge_command(args)


def forge_command(args: Sequence[str]) -> ServeCommand:
    """Returns the command by which another product starts this very `forge`, with this home."""
    named = os.environ.get("FORGE_HOME", "")
    env = {"FORGE_HOME": os.path.abspath(os.path.expanduser(named))} if named else {}
    beside = Path(sys.executable).with_name("forge")
    forge = str(beside) if os.access(beside, os.X_OK) else find_program("forge") or "forge"
    return ServeCommand(command=forge, args=args, env=env)


class Format(StrEnum):
    JSON = "json"
    TOML = "toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeCommand:
    """The command that starts the server."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    title: str
    file: Callable[[Path], Path]
    """Returns its config file, given the program's root."""
    key: str = "mcpServers"
    """The key that holds the servers."""
    entry: Callable[[ServeCommand], dict[str, Any]]
    format: Format = Format.JSON
    then: str = ""
    """What the person has to do afterwards."""


def plain_entry(start: ServeCommand) -> dict[str, Any]:
    env = {"env": dict(start.env)} if start.env else {}
    return {"command": start.command, "args": list(start.args), **env}


def _typed_entry(start: ServeCommand) -> dict[str, Any]:
    return {"type": "stdio", **plain_entry(start)}


def _opencode_entry(start: ServeCommand) -> dict[str, Any]:
    env = {"environment": dict(start.env)} if start.env else {}
    return {"type": "local", "command": [start.command, *start.args], "enabled": True, **env}


def in_home(*parts: str) -> Callable[[Path], Path]:
    return lambda root: Path.home().joinpath(*parts)


def _in_project(*parts: str) -> Callable[[Path], Path]:
    return lambda root: root.joinpath(*parts)


def in_settings(mac: str, other: str, *parts: str) -> Callable[[Path], Path]:
    """Returns a path in the system's settings folder: `~/Library/Application Support` or $XDG_CONFIG_HOME."""

    def place(root: Path) -> Path:
        if sys.platform == "darwin":
            return Path.home().joinpath("Library", "Application Support", mac, *parts)
        return _config_home().joinpath(other, *parts)

    return place


def _config_home() -> Path:
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(named) if os.path.isabs(named) else Path.home() / ".config"


def _in_variable(variable: str, fallback: str, *parts: str) -> Callable[[Path], Path]:
    return lambda root: Path(os.environ.get(variable) or Path.home() / fallback).joinpath(*parts)


PRODUCTS: Final[Mapping[str, Product]] = {
    "claude-code": Product(
        title="Claude Code, in this project",
        file=_in_project(".mcp.json"),
        entry=_typed_entry,
        then="Claude Code asks once whether it may use the servers of the project's .mcp.json.",
    ),
    "claude-desktop": Product(
        title="Claude Desktop",
        file=in_settings("Claude", "Claude", "claude_desktop_config.json"),
        entry=plain_entry,
        then="Restart Claude Desktop.",
    ),
    "codex": Product(
        title="Codex",
        file=_in_variable("CODEX_HOME", ".codex", "config.toml"),
        key="mcp_servers",
        entry=plain_entry,
        format=Format.TOML,
    ),
    "copilot-cli": Product(
        title="GitHub Copilot CLI",
        file=_in_variable("COPILOT_HOME", ".copilot", "mcp-config.json"),
        entry=lambda start: {"type": "local", **plain_entry(start), "tools": ["*"]},
    ),
    "cursor": Product(title="Cursor", file=in_home(".cursor", "mcp.json"), entry=plain_entry),
    "gemini-cli": Product(title="Gemini CLI", file=in_home(".gemini", "settings.json"), entry=plain_entry),
    "lm-studio": Product(title="LM Studio", file=in_home(".lmstudio", "mcp.json"), entry=plain_entry),
    "opencode": Product(
        title="opencode",
        file=lambda root: _config_home() / "opencode" / "opencode.json",
        key="mcp",
        entry=_opencode_entry,
    ),
    "vscode": Product(
        title="VS Code, in this project",
        file=_in_project(".vscode", "mcp.json"),
        key="servers",
        entry=_typed_entry,
        then="VS Code shows `Start` above the entry, and asks once whether the server is to be trusted.",
    ),
    "windsurf": Product(title="Windsurf", file=in_home(".codeium", "windsurf", "mcp_config.json"), entry=plain_entry),
    "zed": Product(
        title="Zed",
        file=lambda root: (
            Path.home() / ".config" / "zed" / "settings.json"
            if sys.platform == "darwin"
            else in_settings("Zed", "zed", "settings.json")(root)
        ),
        key="context_servers",
        entry=lambda start: {"source": "custom", "enabled": True, **plain_entry(start)},
    ),
}


MAX_BYTES: Final = 4 << 20
_BARE: Final = regex(r"[A-Za-z0-9_-]+")


class CannotMerge(Exception):
    pass


def snippet(format: Format, key: str, name: str, entry: Mapping[str, Any]) -> str:
    """The entry as it would stand in an empty file."""
    if format is Format.TOML:
        return _toml_table(key, name, entry)
    return json.dumps({key: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


def with_entry(format: Format, text: str, key: str, name: str, entry: Mapping[str, Any]) -> str:
    """The text itself where the entry is in it already."""
    if format is Format.TOML:
        return _with_toml(text, key, name, entry)
    return _with_json(text, key, name, entry)


def merge(path: Path, format: Format, key: str, name: str, entry: Mapping[str, Any]) -> bool:
    """Whether anything had to be changed. Raises CannotMerge, OSError."""
    place = Path(os.path.realpath(path))
    before = _read_config(place)
    text = with_entry(format, before or "", key, name, entry)
    if text == before:
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place) as out:
        out.write(text.encode())
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(out.fileno(), stat.S_IMODE(os.lstat(place).st_mode))
        out.flush()
        os.fsync(out.fileno())  # it takes longest: done before the last look at what is there
        if _read_config(place) != before:
            raise CannotMerge("it was changed meanwhile; try again")
    return True


def _read_config(path: Path) -> str | None:
    """Reads the config; None if there is no file yet."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise CannotMerge("it is not a regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CannotMerge("it is too large")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CannotMerge("it is not UTF-8 text") from None


def _with_json(text: str, key: str, name: str, entry: Mapping[str, Any]) -> str:
    try:
        whole: Any = json.loads(text, object_pairs_hook=_unique) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else f" ({error})"
        raise CannotMerge(f"it is not plain JSON{where}; comments would be lost, so add the entry by hand") from None
    if not isinstance(whole, dict) or not isinstance(whole.get(key, {}), dict):
        raise CannotMerge(f"it has no table `{key}` where one belongs; add the entry by hand")
    servers = whole.setdefault(key, {})
    if _has_entry(servers, name, entry):
        return text
    servers[name] = dict(entry)
    indent = re.search(r"\n([ \t]+)\S", text)  # as the file has it: only the entry differs then
    return json.dumps(whole, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key appears twice")
    return table


def _has_entry(servers: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> bool:
    present = servers.get(name)
    if present is None:
        return False
    if isinstance(present, dict) and all(present.get(key) == value for key, value in entry.items()):
        return True  # whatever else the person wrote into it is theirs
    raise CannotMerge(f"it has another server '{name}'; take another name with --name, or remove that one first")


def _with_toml(text: str, key: str, name: str, entry: Mapping[str, Any]) -> str:
    """Adds a table at the end, so that no byte before it changes."""
    try:
        before = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotMerge(f"it is not valid TOML ({error})") from None
    servers = before.get(key, {})
    if not isinstance(servers, dict):
        raise CannotMerge(f"it has no table `{key}` where one belongs; add the entry by hand")
    if _has_entry(servers, name, entry):
        return text
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    after = f"{text}{gap}{_toml_table(key, name, entry)}"
    expected = {**before, key: {**servers, name: dict(entry)}}
    try:
        if tomllib.loads(after) == expected:
            return after
    except tomllib.TOMLDecodeError:
        pass
    raise CannotMerge(f"`{key}` is written in a way that cannot be added to; add the entry by hand")


def _toml_table(key: str, name: str, entry: Mapping[str, Any]) -> str:
    lines = [f"[{key}.{_toml_key(name)}]"]
    lines += [f"{word} = {_toml(value)}" for word, value in entry.items()]
    return "\n".join(lines) + "\n"


def _toml_key(word: str) -> str:
    return word if _BARE.fullmatch(word) else _toml(word)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(word)} = {_toml(each)}" for word, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # A JSON string is one of TOML, but for this character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
