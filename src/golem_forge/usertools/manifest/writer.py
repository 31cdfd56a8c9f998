"""Writes a `tool.yaml`, and edits one in place without touching any other byte.

`manifest_text` gives YAML that reads back equal, with only what differs from the defaults. `yaml_text` quotes text
that some reader could take for a number, a date or a boolean; text over several lines becomes a literal block; control
and hidden characters become escapes, so the file never hides anything from its reader.

`rename_manifest` changes the value of `name` (SharingError if the result would not read as the same tool under the new
name). `set_expected_stdout` sets `expect.stdout` of test cases; the caller checks the result by reading it back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from golem_forge.config.schema import changed_fields
from golem_forge.config.yaml_edit import compose, find_pair, find_value
from golem_forge.config.yaml_file import is_no_text
from golem_forge.core.regex import regex
from golem_forge.core.text import escape_control_chars
from golem_forge.usertools.diagnostics import SharingError, Unusable
from golem_forge.usertools.manifest import MANIFEST_FILE, Expectation, Parameter, ToolManifest
from golem_forge.usertools.manifest.schema import ManifestFault, parse_manifest


def manifest_text(manifest: ToolManifest, *, stated: Collection[str] = ()) -> str:
    """`stated`: keys that are written even where the default would do, for whoever goes on writing."""
    given = _non_default_fields(manifest, stated)
    if "env" in given:
        given["env"] = [{"name": each.name, "required": True} if each.required else each.name for each in manifest.env]
    return yaml_text(given)


def _non_default_fields(value: Any, stated: Collection[str] = ()) -> dict[str, Any]:
    """Fields in declared order, as plain values, without those that say what is so anyway."""
    if isinstance(value, Parameter) and value.has_default:
        stated = ("default",)
    elif isinstance(value, Expectation) and value.has_json:
        stated = ("json",)
    said = changed_fields(value, without=("has_default", "has_json"), stated=stated)
    return {name: _plain_value(name, found) for name, found in said.items()}


def _plain_value(name: str, value: Any) -> Any:
    if name == "timeout":
        return int(value) if value.is_integer() else value
    if name == "expect":
        return _non_default_fields(value)
    if name in ("parameters", "tests"):
        return [_non_default_fields(each) for each in value]
    return value.value if isinstance(value, StrEnum) else value


_WIDTH: Final = 100
_LONGEST_PLAIN_KEY: Final = 1000
"""A key before a `:` has at most 1024 characters in YAML; a longer one is marked with `?`."""

_PLAIN: Final = regex(r"[^\W\d]|[\w(/.][^\n]*[^\s:]")
_PLAIN_IN_LIST: Final = regex(r"[A-Za-z][A-Za-z0-9_.-]*")
_PLAIN_KEY: Final = regex(r"[$A-Za-z][A-Za-z0-9_.-]*")
_NUMBER_LIKE: Final = regex(r"[0-9.][0-9_:.,xXoObBeEtTzZ +-]*")
_DOTTED_VERSION: Final = regex(r"[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+)*")
_AMBIGUOUS_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})


def yaml_text(value: Mapping[str, Any]) -> str:
    return "".join(f"{line}\n" for line in _mapping_lines(value, 0))


def _mapping_lines(value: Mapping[str, Any], indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, item in value.items():
        name = key if _PLAIN_KEY.fullmatch(key) and not _is_ambiguous(key) else _quoted_scalar(key)
        head = f"{pad}{name}:"
        if len(name) > _LONGEST_PLAIN_KEY:
            yield f"{pad}? {name}"
            head = f"{pad}:"
        if isinstance(item, Mapping) and item:
            yield head
            yield from _mapping_lines(item, indent + 2)
        elif isinstance(item, (list, tuple)) and item and _needs_lines(item, len(head)):
            yield head
            yield from _list_lines(item, indent + 2)
        elif isinstance(item, str) and _fits_literal_block(item):
            yield f"{head} |" if item.endswith("\n") else f"{head} |-"
            yield from (f"{pad}  {line}" if line else "" for line in item.removesuffix("\n").split("\n"))
        else:
            yield f"{head} {_scalar_text(item) if isinstance(item, str) else _flow_text(item)}"


def _list_lines(value: list[Any] | tuple[Any, ...], indent: int) -> Iterator[str]:
    pad = " " * indent
    for item in value:
        if isinstance(item, Mapping) and item:
            lines = _mapping_lines(item, indent + 2)
            yield f"{pad}- {next(lines)[indent + 2 :]}"
            yield from lines
        else:
            yield f"{pad}- {_scalar_text(item) if isinstance(item, str) else _flow_text(item)}"


def _needs_lines(value: list[Any] | tuple[Any, ...], before: int) -> bool:
    return any(isinstance(item, Mapping) for item in value) or before + len(_flow_text(value)) > _WIDTH


def _fits_literal_block(text: str) -> bool:
    body = text.removesuffix("\n")
    lines = body.split("\n")
    return (
        len(lines) > 1
        and not text.endswith("\n\n")
        and not body.startswith((" ", "\n"))
        and all(line.isprintable() and (not line or not line.isspace()) for line in lines)
    )


def _scalar_text(text: str) -> str:
    """Returns a scalar that has a whole line to itself."""
    usable = _PLAIN.fullmatch(text) and text.isprintable() and ": " not in text and " #" not in text
    return text if usable and not _is_ambiguous(text) else _quoted_scalar(text)


def _is_ambiguous(text: str) -> bool:
    if is_no_text(text) or text.lower() in _AMBIGUOUS_WORDS:
        return True
    return bool(_NUMBER_LIKE.fullmatch(text)) and not _DOTTED_VERSION.fullmatch(text)


def _flow_text(value: Any) -> str:
    """Returns a value on one line, as in JSON."""
    if isinstance(value, str):
        return value if _PLAIN_IN_LIST.fullmatch(value) and not _is_ambiguous(value) else _quoted_scalar(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow_key_text(key)}: {_flow_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow_text, value)) + "]"
    return repr(value)


def _flow_key_text(key: str) -> str:
    name = _quoted_scalar(key)
    return f"? {name} " if len(name) > _LONGEST_PLAIN_KEY else name


def _quoted_scalar(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    escaped = escape_control_chars(escaped).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    return f'"{escaped}"'


def manifest_name(data: bytes) -> str:
    """The name a manifest gives itself, valid or not; empty if it has none."""
    try:
        found = parse_manifest(data).value.get("name")
    except ManifestFault:  # `read_manifest` says what is wrong
        return ""
    return str(found) if isinstance(found, str) else ""


def rename_manifest(data: bytes, name: str) -> bytes:
    """The present name may be one that no tool can have: that is what renaming is for."""
    try:
        before = parse_manifest(data)
        text = data.decode("utf-8")
        written = find_value(compose(text), "name") if before.value else None
        if written is None:
            raise SharingError(f"{MANIFEST_FILE}: has no `name`.")
        made = (text[: written.start_mark.index] + yaml_name(name) + text[written.end_mark.index :]).encode()
        after = parse_manifest(made)
    except ManifestFault as fault:
        raise Unusable(fault.code, f"{MANIFEST_FILE}: {fault}", line=fault.line) from None
    same = after.value == {**before.value, "name": name} and after.lines == before.lines
    if not same or not isinstance(before.value["name"], str):
        raise SharingError(f"{MANIFEST_FILE}: put `name` on a line of its own, so that it can be changed.")
    return made


def yaml_name(name: str) -> str:
    return f'"{name}"' if name.lower() in _AMBIGUOUS_WORDS else name


_INDENT: Final = 2
_BLOCK_HEADER: Final = regex(r"([|>][-+0-9]*)(.*)", re.DOTALL)
"""The header of a block scalar, and a comment."""


class _Splice(NamedTuple):
    start: int
    end: int
    text: str


def set_expected_stdout(text: str, printed: Mapping[int, str]) -> str:
    """Raises LookupError where a case is not found."""
    cases = find_value(compose(text), "tests")
    if cases is None:
        raise LookupError("tests")
    splices = [_stdout_splice(text, cases.value[index], said, _is_flow(cases)) for index, said in printed.items()]
    for one in sorted(splices, reverse=True):
        text = text[: one.start] + one.text + text[one.end :]
    return text


def have_expectations(text: str) -> tuple[bool, ...]:
    """Returns for each case whether its `expect` is not empty."""
    cases = find_value(compose(text), "tests")
    if cases is None or cases.id != "sequence":
        return ()
    expected = [find_value(case, "expect") if case.id == "mapping" else None for case in cases.value]
    return tuple(one is not None and one.id == "mapping" and bool(one.value) for one in expected)


def _stdout_splice(text: str, case: Any, said: str, in_flow: bool) -> _Splice:
    in_flow = in_flow or _is_flow(case)
    pair = find_pair(case, "expect")
    if pair is None:
        return _add_expect(text, case, said)
    key, expect = pair
    if expect.id != "mapping" or not expect.value:
        flow = f"{{stdout: {quote_yaml(said)}}}"
        if expect.start_mark.index == expect.end_mark.index:  # nothing stands there, and its place is the next key's
            after = text.index(":", key.end_mark.index) + 1
            return _Splice(after, after, f" {flow}")
        return _Splice(expect.start_mark.index, expect.end_mark.index, flow)
    found = find_pair(expect, "stdout")
    if found is None:
        raise LookupError("stdout")
    return _replace_value(text, *found, said, in_flow or _is_flow(expect))


def _replace_value(text: str, key: Any, value: Any, said: str, in_flow: bool) -> _Splice:
    start, end = value.start_mark.index, value.end_mark.index
    if start == end:
        after = text.index(":", key.end_mark.index) + 1
        return _Splice(after, after, f" {quote_yaml(said)}")
    rest_of_line = text[end:].split("\n", 1)[0]
    block = None if in_flow or "\r" in text else _literal_block(said, key.start_mark.column + _INDENT)
    if value.style in ("|", ">"):
        header, _, content = text[start:end].partition("\n")
        found = _BLOCK_HEADER.fullmatch(header)
        if found is None:
            raise LookupError("header")
        indicators, comment = found[1], found[2].rstrip()
        blank = "" if "+" in indicators else _trailing_blank_lines(content)
        if block is None:
            return _Splice(start, end, f"{quote_yaml(said)}{comment}\n{blank}")
        return _Splice(start, end, f"{block[0]}{comment}\n{block[1]}{blank}")
    if block is None or rest_of_line.strip() or said.count("\n") < 2:
        return _Splice(start, end, quote_yaml(said))
    line_end = end + len(rest_of_line) + 1
    return _Splice(start, min(line_end, len(text)), f"{block[0]}\n{block[1]}")


def _add_expect(text: str, case: Any, said: str) -> _Splice:
    if _is_flow(case):
        at = case.end_mark.index - 1
        comma = ", " if case.value and not text[:at].rstrip().endswith(",") else ""
        return _Splice(at, at, f"{comma}expect: {{stdout: {quote_yaml(said)}}}")
    column = case.value[0][0].start_mark.column
    at = _node_end(text, case)
    if at and text[at - 1] != "\n":
        newline = text.find("\n", at)
        at = len(text) if newline < 0 else newline + 1
    before = "" if text[:at].endswith("\n") else "\n"
    space, deeper = " " * column, column + _INDENT
    block = None if "\r" in text or said.count("\n") < 2 else _literal_block(said, deeper + _INDENT)
    shown = quote_yaml(said) + "\n" if block is None else f"{block[0]}\n{block[1]}"
    return _Splice(at, at, f"{before}{space}expect:\n{' ' * deeper}stdout: {shown}")


def _node_end(text: str, node: Any) -> int:
    """Returns where the last written part of a node ends; the node's own mark may be far behind comments."""
    while node.id != "scalar" and not _is_flow(node) and node.value:
        key, node = node.value[-1] if node.id == "mapping" else (None, node.value[-1])
        if node.start_mark.index == node.end_mark.index and key is not None:
            return text.index(":", key.end_mark.index) + 1
    return int(node.end_mark.index)


def quote_yaml(text: str) -> str:
    """Returns a double-quoted YAML scalar on one line."""
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}" for char in json.dumps(text, ensure_ascii=False)
    )


def _literal_block(text: str, column: int) -> tuple[str, str] | None:
    """A literal block: its header and its lines. None for a text that it cannot hold without tricks."""
    body = text.removesuffix("\n")
    lines = body.split("\n")
    plain = all(char.isprintable() or char in "\n\t" for char in text)
    if not plain or body[:1] in ("", " ", "\t", "\n") or body.endswith("\n"):
        return None
    if any(line != "" and (not line.strip() or line[0] == "\t") for line in lines):
        return None
    shown = "".join(f"{' ' * column}{line}\n" if line else "\n" for line in lines)
    return "|" if text.endswith("\n") else "|-", shown


def _trailing_blank_lines(content: str) -> str:
    found = re.search(r"(?:^|(?<=\n))(?:[ \t]*\n)*\Z", content)
    return found[0] if found else ""


def _is_flow(node: Any) -> bool:
    return bool(getattr(node, "flow_style", False))
