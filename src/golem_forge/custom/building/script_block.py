"""The block of inline metadata at the head of a Python script (PEP 723): what it depends on, and on which Python.

Takes source bytes, gives a ScriptBlock or None. Refuses (Unusable) a block that is not TOML, that is there twice, that
is longer than 64 KiB, or that asks for another Python than the one there is. Nothing is executed, and lines are looked
at once: whoever wrote the source may have meant to keep us busy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from golem_forge.core.visible import visible
from golem_forge.custom.diagnostic import Code, Unusable

_BEGIN: Final = "# /// script"
_END: Final = "# ///"
_LONGEST: Final = 64 << 10
_CLAUSE: Final = re.compile(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*v?(\d+(?:\.\d+)*)(\.\*)?\S*\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptBlock:
    text: str
    """The TOML, as it was written."""
    dependencies: tuple[str, ...]
    requires_python: str = ""
    uv: dict[str, Any] = field(default_factory=dict)
    """What the script says to uv (`tool.uv`)."""


def script_block(source: bytes, file: str) -> ScriptBlock | None:
    blocks = list(_blocks(source))
    if not blocks:
        return None
    if len(blocks) > 1:
        raise _invalid(file, "there are two `# /// script` blocks; keep one")
    text = blocks[0]
    if len(text) > _LONGEST:
        raise _invalid(file, f"its `# /// script` block is longer than {_LONGEST >> 10} KiB")
    import tomllib

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise _invalid(file, f"its `# /// script` block is not TOML: {error}") from None
    dependencies, requires = table.get("dependencies", []), table.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(each, str) for each in dependencies):
        raise _invalid(file, "`dependencies` in its `# /// script` block must be a list of texts")
    if not isinstance(requires, str):
        raise _invalid(file, "`requires-python` in its `# /// script` block must be a text")
    said = table.get("tool")
    uv = said.get("uv") if isinstance(said, dict) else None
    return ScriptBlock(
        text=text,
        dependencies=tuple(dependencies),
        requires_python=requires,
        uv=uv if isinstance(uv, dict) else {},
    )


def check_python(block: ScriptBlock, version: tuple[int, int, int], file: str) -> None:
    """Raises Unusable if this Python is not one of those that the script asks for."""
    if not satisfies(version, block.requires_python):
        have = ".".join(map(str, version))
        raise Unusable(
            Code.DEPENDENCIES_UNAVAILABLE,
            f"{visible(file)}: requires-python is '{visible(block.requires_python)}', and tools run on Python {have}. "
            "Change it, or run Forge with another Python.",
        )


def satisfies(version: tuple[int, int, int], specifier: str) -> bool:
    """Whether a final release fits a version specifier. What cannot be read does not."""
    return all(_fits(version, clause) for clause in specifier.split(",") if clause.strip())


def _fits(version: tuple[int, int, int], clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if match is None:
        return False
    operator, wanted, wildcard = match[1], tuple(map(int, match[2].split(".")[:4])), match[3]
    width = max(len(version), len(wanted))
    have, want = (*version, 0)[:width], (*wanted, 0, 0, 0)[:width]
    matches = have[: len(wanted)] == wanted if wildcard or operator == "~=" else have == want
    if operator == "~=":
        return len(wanted) > 1 and have >= want and have[: len(wanted) - 1] == wanted[:-1]
    return {
        "==": matches,
        "===": matches,
        "!=": not matches,
        "<": have < want,
        ">": have > want,
        "<=": have <= want,
        ">=": have >= want,
    }[operator]


def _blocks(source: bytes) -> Iterator[str]:
    """Each block's lines without their comment signs. One that is not closed is no block."""
    if _BEGIN.encode() not in source:
        return
    lines = (line.removesuffix("\r") for line in source.decode("utf-8", "replace").split("\n"))
    for line in lines:
        if line != _BEGIN:
            continue
        inside: list[str] = []
        end = None
        for following in lines:
            if following != "#" and not following.startswith("# "):
                break
            if following == _END:
                end = len(inside)
            inside.append(following[2:])
        if end is not None:
            yield "\n".join((*inside[:end], ""))


def _invalid(file: str, why: str) -> Unusable:
    return Unusable(Code.BUILD_FAILED, f"{visible(file)}: {visible(why)}")
