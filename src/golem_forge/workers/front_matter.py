"""A worker file in its two parts: the YAML between two lines that are only `---`, and the instructions after it.

Takes bytes, gives a `FrontMatter`, refuses (ConfigError) what is not UTF-8 or has no such lines. The split is by whole
lines, so `---` inside a value or in the instructions is text.

A worker in a `*.yaml` or `*.yml` file may be one YAML document instead, with its text at the key `instructions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from golem_forge.config.yaml_file import YamlFile, parse_yaml
from golem_forge.core.errors import ConfigError

YAML_SUFFIXES: Final = (".yaml", ".yml")
INSTRUCTIONS: Final = "instructions"
_NAMED: Final = re.compile(rb"^name[ \t]*:", re.MULTILINE)
_INSTRUCTED: Final = re.compile(rb"^instructions[ \t]*:", re.MULTILINE)
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


def parsed_worker(data: bytes, shown: str) -> tuple[YamlFile, str]:
    """The values and the instructions of a worker file of either kind. Raises ConfigError."""
    if not is_document(data, shown):
        parts = split_front_matter(data, shown)
        return parts.parsed(shown), parts.instructions
    file = parse_yaml(data, shown)
    text = file.value.get(INSTRUCTIONS, "")
    if not isinstance(text, str):
        raise ConfigError(f"{file.at((INSTRUCTIONS,))}: {INSTRUCTIONS}: expected a text")
    value = {key: said for key, said in file.value.items() if key != INSTRUCTIONS}
    return replace(file, value=value), text.replace("\r\n", "\n").strip()


def is_document(data: bytes, name: str) -> bool:
    """Whether it is one YAML document, and not front matter with text after it."""
    lines = data.removeprefix(_BOM).split(b"\n")
    return name.endswith(YAML_SUFFIXES) and not (_is_fence(lines[0]) and any(map(_is_fence, lines[1:])))


def looks_like_worker(data: bytes, name: str) -> bool:
    """Whether a YAML file says that it is a worker, by its text alone; what it means is read when it is named."""
    return bool(_NAMED.search(data) and (_INSTRUCTED.search(data) or not is_document(data, name)))


def front_matter_bytes(data: bytes) -> bytes:
    """What trust covers of a worker file: everything but its instructions; all of it where it has no two parts."""
    try:
        return split_front_matter(data, "").yaml
    except ConfigError:
        return data


def _is_fence(line: bytes) -> bool:
    return line.rstrip(b" \t\r") == _FENCE
