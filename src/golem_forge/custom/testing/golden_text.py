"""Puts texts into a `tool.yaml` as `expect.stdout` of its cases, and touches no other byte of the file.

`with_stdout` takes the file's text and case index → what it printed; gives the new text. A value that is there is
replaced where it stands; one that is missing is added to its case. Whether the result means what it should is for the
caller to check: whoever reads it back needs to trust nothing here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_INDENT: Final = 2
_HEADER: Final = re.compile(r"([|>][-+0-9]*)(.*)", re.DOTALL)
"""Of a block: how it is to be read, and a comment."""


class _Splice(NamedTuple):
    start: int
    end: int
    text: str


def with_stdout(text: str, printed: Mapping[int, str]) -> str:
    """Raises LookupError where a case is not found."""
    cases = _value(_composed(text), "tests")
    if cases is None:
        raise LookupError("tests")
    splices = [_splice(text, cases.value[index], said, _is_flow(cases)) for index, said in printed.items()]
    for one in sorted(splices, reverse=True):
        text = text[: one.start] + one.text + text[one.end :]
    return text


def expects_anything(text: str) -> tuple[bool, ...]:
    """For each case, whether its `expect` says anything at all."""
    cases = _value(_composed(text), "tests")
    if cases is None or cases.id != "sequence":
        return ()
    expected = [_value(case, "expect") if case.id == "mapping" else None for case in cases.value]
    return tuple(one is not None and one.id == "mapping" and bool(one.value) for one in expected)


def _composed(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).compose(text)


def _splice(text: str, case: Any, said: str, in_flow: bool) -> _Splice:
    in_flow = in_flow or _is_flow(case)
    pair = _pair(case, "expect")
    if pair is None:
        return _added_expect(text, case, said)
    key, expect = pair
    if expect.id != "mapping" or not expect.value:
        flow = f"{{stdout: {quoted(said)}}}"
        if expect.start_mark.index == expect.end_mark.index:  # nothing stands there, and its place is the next key's
            after = text.index(":", key.end_mark.index) + 1
            return _Splice(after, after, f" {flow}")
        return _Splice(expect.start_mark.index, expect.end_mark.index, flow)
    found = _pair(expect, "stdout")
    if found is None:
        raise LookupError("stdout")
    return _replaced(text, *found, said, in_flow or _is_flow(expect))


def _replaced(text: str, key: Any, value: Any, said: str, in_flow: bool) -> _Splice:
    start, end = value.start_mark.index, value.end_mark.index
    if start == end:
        after = text.index(":", key.end_mark.index) + 1
        return _Splice(after, after, f" {quoted(said)}")
    rest_of_line = text[end:].split("\n", 1)[0]
    block = None if in_flow or "\r" in text else _block(said, key.start_mark.column + _INDENT)
    if value.style in ("|", ">"):
        header, _, content = text[start:end].partition("\n")
        found = _HEADER.fullmatch(header)
        if found is None:
            raise LookupError("header")
        indicators, comment = found[1], found[2].rstrip()
        blank = "" if "+" in indicators else _blank_end(content)
        if block is None:
            return _Splice(start, end, f"{quoted(said)}{comment}\n{blank}")
        return _Splice(start, end, f"{block[0]}{comment}\n{block[1]}{blank}")
    if block is None or rest_of_line.strip() or said.count("\n") < 2:
        return _Splice(start, end, quoted(said))
    line_end = end + len(rest_of_line) + 1
    return _Splice(start, min(line_end, len(text)), f"{block[0]}\n{block[1]}")


def _added_expect(text: str, case: Any, said: str) -> _Splice:
    if _is_flow(case):
        at = case.end_mark.index - 1
        comma = ", " if case.value and not text[:at].rstrip().endswith(",") else ""
        return _Splice(at, at, f"{comma}expect: {{stdout: {quoted(said)}}}")
    column = case.value[0][0].start_mark.column
    at = _end_of(text, case)
    if at and text[at - 1] != "\n":
        newline = text.find("\n", at)
        at = len(text) if newline < 0 else newline + 1
    before = "" if text[:at].endswith("\n") else "\n"
    space, deeper = " " * column, column + _INDENT
    block = None if "\r" in text or said.count("\n") < 2 else _block(said, deeper + _INDENT)
    shown = quoted(said) + "\n" if block is None else f"{block[0]}\n{block[1]}"
    return _Splice(at, at, f"{before}{space}expect:\n{' ' * deeper}stdout: {shown}")


def _end_of(text: str, node: Any) -> int:
    """Where the last thing that is written in a node ends; the node's own mark may be far behind comments."""
    while node.id != "scalar" and not _is_flow(node) and node.value:
        key, node = node.value[-1] if node.id == "mapping" else (None, node.value[-1])
        if node.start_mark.index == node.end_mark.index and key is not None:
            return text.index(":", key.end_mark.index) + 1
    return int(node.end_mark.index)


def quoted(text: str) -> str:
    """A double-quoted YAML scalar on one line."""
    return "".join(
        char if char.isprintable() else f"\\U{ord(char):08x}" for char in json.dumps(text, ensure_ascii=False)
    )


def _block(text: str, column: int) -> tuple[str, str] | None:
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


def _blank_end(content: str) -> str:
    found = re.search(r"(?:^|(?<=\n))(?:[ \t]*\n)*\Z", content)
    return found[0] if found else ""


def _is_flow(node: Any) -> bool:
    return bool(getattr(node, "flow_style", False))


def _pair(mapping: Any, name: str) -> tuple[Any, Any] | None:
    return next(((key, value) for key, value in mapping.value if key.value == name), None)


def _value(mapping: Any, name: str) -> Any:
    pair = _pair(mapping, name)
    return None if pair is None else pair[1]
