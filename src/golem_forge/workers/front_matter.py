"""A worker file in its two parts: the YAML between two lines that are only `---`, and the instructions after it.

Takes bytes, gives a `FrontMatter`, refuses (ConfigError) what is not UTF-8 or has no such lines. The split is by whole
lines, so `---` inside a value or in the instructions is text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from golem_forge.config.yaml_file import YamlFile, parse_yaml
from golem_forge.core.errors import ConfigError

_FENCE: Final = b"---"
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FrontMatter:
    yaml: bytes
    """As it stands in the file, without the lines around it."""
    instructions: str
    """Trimmed; lines end with a line feed."""

    def parsed(self, shown: str) -> YamlFile:
        """The values, with the lines they have in the whole file. Raises ConfigError."""
        return parse_yaml(b"\n" + self.yaml, shown)  # an empty line stands for the opening `---`


def split_front_matter(data: bytes, shown: str) -> FrontMatter:
    data = data.removeprefix(_BOM)
    lines = data.split(b"\n")
    if not _is_fence(lines[0]):
        raise ConfigError(f"{shown}:1: the first line must be `---`; the front matter follows it")
    end = next((number for number, line in enumerate(lines[1:], 1) if _is_fence(line)), None)
    if end is None:
        raise ConfigError(f"{shown}:1: the front matter has no end; close it with a line that is only `---`")
    rest = b"\n".join(lines[end + 1 :])
    try:
        instructions = rest.decode()
    except UnicodeDecodeError as error:
        line = end + 2 + rest.count(b"\n", 0, error.start)
        raise ConfigError(f"{shown}:{line}: is not UTF-8") from None
    yaml = b"\n".join(lines[1:end]) + b"\n"
    return FrontMatter(yaml, instructions.replace("\r\n", "\n").strip())


def front_matter_bytes(data: bytes) -> bytes:
    """What trust covers of a worker file: everything but its instructions; all of it where it has no two parts."""
    try:
        return split_front_matter(data, "").yaml
    except ConfigError:
        return data


def _is_fence(line: bytes) -> bool:
    return line.rstrip(b" \t\r") == _FENCE
