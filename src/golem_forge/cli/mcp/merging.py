"""One entry merged into another product's config file: everything else in it stays, and it is replaced in one step.

`with_entry` takes the file's text and gives the new one. Refuses (CannotMerge) what it does not understand wholly: a
file that is not valid, that has comments, whose key is something else than a table, or that has another server of that
name. A link is followed: many keep such files elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from golem_forge.cli.mcp.products import Format

MAX_BYTES: Final = 4 << 20
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


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
    before = _read(place)
    text = with_entry(format, before or "", key, name, entry)
    if text == before:
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}-{os.urandom(8).hex()}.tmp")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as out:
            out.write(text.encode())
            out.flush()
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(handle, stat.S_IMODE(os.lstat(place).st_mode))
            os.fsync(handle)
        if _read(place) != before:
            raise CannotMerge("it was changed meanwhile; try again")
        os.replace(fresh, place)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return True


def _read(path: Path) -> str | None:
    """None: there is no file yet."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise CannotMerge("it is no file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CannotMerge("it is larger than such a file can be")
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
    if _is_there(servers, name, entry):
        return text
    servers[name] = dict(entry)
    return json.dumps(whole, indent=_indent(text), ensure_ascii=False) + "\n"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key is there twice")
    return table


def _indent(text: str) -> int | str:
    """As the file has it: a difference in somebody's repository should be the entry alone."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else 2


def _is_there(servers: Mapping[str, Any], name: str, entry: Mapping[str, Any]) -> bool:
    present = servers.get(name)
    if present is None:
        return False
    if isinstance(present, dict) and all(present.get(key) == value for key, value in entry.items()):
        return True  # whatever else the person wrote into it is theirs
    raise CannotMerge(f"it has another server '{name}'; take another name with --name, or remove that one first")


def _with_toml(text: str, key: str, name: str, entry: Mapping[str, Any]) -> str:
    """By a table at the end, so that not one byte before it changes."""
    import tomllib

    try:
        before = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotMerge(f"it is not valid TOML ({error})") from None
    servers = before.get(key, {})
    if not isinstance(servers, dict):
        raise CannotMerge(f"it has no table `{key}` where one belongs; add the entry by hand")
    if _is_there(servers, name, entry):
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
    return json.dumps(value, ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )  # a JSON string is one of TOML, but for this
