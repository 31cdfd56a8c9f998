"""Editing a person's YAML by lines: an entry put into a block mapping, or taken out, every other byte as it was.

Takes the text and the path of a mapping. Gives the new text, or None where the place is not written in a way that lines
can be put into (`{…}`, an alias, nothing at all); `rewritten` then writes the whole document anew, comments kept, its
blanks not. The caller reads the result before it counts: a text that means something else is thrown away.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any, Final

from golem_forge.core.errors import ConfigError

_WIDTH: Final = 10_000
"""Columns at which the writer would fold a person's long line."""
_STEP: Final = 2


def with_entry(text: str, path: tuple[str, ...], name: str, block: Mapping[str, Any]) -> str | None:
    """The entry below all others of the mapping at `path`; with what is missing of the path, at the end."""
    root = _composed(text)
    if root is None or path[0] not in _keys(root):
        nested: Mapping[str, Any] = {name: block}
        for key in reversed(path):
            nested = {key: nested}
        if root is not None and (root.flow_style or root.start_mark.column):
            return None
        gap = "\n" if text.strip() else ""
        return _ending(text) + _styled(text, gap + rendered(nested))
    node = _below(root, path)
    if node is None or node.flow_style or not node.value:
        return None
    column = node.value[0][0].start_mark.column
    lines = rendered({name: block}).splitlines(keepends=True)
    return _spliced(text, _last_line(node) + 1, 0, [" " * column + line for line in lines])


def without_entry(text: str, path: tuple[str, ...], name: str) -> str | None:
    node = _below(_composed(text), path)
    if node is None or node.flow_style or len(node.value) < 2:
        return None
    for key, value in node.value:
        if key.value == name:
            return _spliced(text, key.start_mark.line, _last_line(value) - key.start_mark.line + 1, [])
    return None


def rewritten(text: str, change: Callable[[Any], None]) -> str:
    """The document after `change`, written anew. Raises ConfigError for one that cannot be."""
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import YAMLError

    yaml = _writer()
    yaml.preserve_quotes = True
    out = io.StringIO()
    try:
        document = yaml.load(text.replace("\r\n", "\n"))
        document = CommentedMap() if document is None else document
        change(document)
        yaml.dump(document, out)
    except YAMLError:
        raise ConfigError("cannot be edited as it is written; change it by hand") from None
    return _styled(text, out.getvalue())


def rendered(value: Mapping[str, Any]) -> str:
    """Mappings in lines, lists within one line."""
    out = io.StringIO()
    _writer().dump(writable(value), out)
    return out.getvalue()


def _writer() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.width = _WIDTH
    yaml.indent(mapping=_STEP)
    return yaml


def writable(value: Any) -> Any:
    """The value for the writer: lists within one line, and texts that it would not write so that they can be read back
    (U+0085 is folded away, `?0` in a list becomes a key) in double quotes."""
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        return {key: writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = CommentedSeq(writable(item) for item in value)
        items.fa.set_flow_style()
        return items
    if isinstance(value, str) and (not value.isprintable() or value.startswith(("?", ":"))):
        return DoubleQuotedScalarString(value)
    return value


def _composed(text: str) -> Any:
    """The node of the document; None for an empty one."""
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).compose(text)


def _keys(node: Any) -> tuple[str, ...]:
    return tuple(key.value for key, _ in node.value)


def _below(node: Any, path: tuple[str, ...]) -> Any:
    from ruamel.yaml.nodes import MappingNode

    for part in path:
        if not isinstance(node, MappingNode):
            return None
        node = next((value for key, value in node.value if key.value == part), None)
    return node if isinstance(node, MappingNode) else None


def _last_line(node: Any) -> int:
    """The line on which the value ends; a block mapping's own mark is past the comments after it."""
    if isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    line: int = node.end_mark.line
    return line - 1 if node.end_mark.column == 0 and line > node.start_mark.line else line


def _spliced(text: str, line: int, removed: int, lines: list[str]) -> str:
    there = _ending(text).splitlines(keepends=True)
    there[line : line + removed] = [_styled(text, each) for each in lines]
    return "".join(there)


def _ending(text: str) -> str:
    return text if not text or text.endswith("\n") else text + _styled(text, "\n")


def _styled(text: str, new: str) -> str:
    return new.replace("\n", "\r\n") if "\r\n" in text else new
