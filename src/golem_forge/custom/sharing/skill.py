"""An Agent Skill read from its SKILL.md: front matter, body, and the draft of a tool that it becomes.

Takes the bytes of a SKILL.md; gives a Skill. Refuses (SharingError) front matter that cannot be read, and a choice of
entrypoint nobody made. `allowed-tools` and everything else in it grants nothing: a draft declares no network, no zones
to write and no calls. Threat: a stranger's words become a tool's description, so hidden characters are made visible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from golem_forge.core.errors import ConfigError
from golem_forge.core.visible import visible, visible_prose
from golem_forge.custom.manifest import MANIFEST, Manifest
from golem_forge.custom.manifest.text import manifest_text
from golem_forge.custom.registry.folder import FolderFiles
from golem_forge.custom.sharing.refusal import SharingError, quoted

SKILL: Final = "SKILL.md"
SCRIPTS: Final = "scripts"
FORGE_DIGEST: Final = "forge-digest"
_MAX_BYTES: Final = 1 << 20
_MAX_DESCRIPTION: Final = 1024
_MAX_USAGE_BYTES: Final = 8192
_FENCE: Final = re.compile(r"^---[ \t]*$", re.M)
_VERSION: Final = "1.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    name: str
    description: str
    """One line, at most 1024 characters."""
    body: str
    """At most 8 KiB."""
    version: str
    digest: str
    """Of the tool it was exported from, as it says; empty if it was not."""
    warnings: tuple[str, ...]

    def differs_from(self, digest: str) -> tuple[str, ...]:
        if self.digest in ("", digest):
            return ()
        return (f"{SKILL} was written for other files than these ({FORGE_DIGEST} does not match)",)

    def draft(self, scripts: FolderFiles, *, name: str, entrypoint: str) -> FolderFiles:
        """The files of the tool: everything in scripts/, and a manifest that asks for nothing."""
        manifest = Manifest(
            name=name or _tool_name(self.name),
            description=self.description,
            version=self.version,
            entrypoint=_chosen(scripts, entrypoint),
            usage=self.body,
        )
        return FolderFiles(dict(scripts.files) | {MANIFEST: manifest_text(manifest).encode()}, scripts.executable)


def read_skill(data: bytes) -> Skill:
    if len(data) > _MAX_BYTES:
        raise SharingError(f"{SKILL} is larger than {_MAX_BYTES >> 20} MiB.")
    matter, body = _parted(data)
    warnings: list[str] = []
    if "allowed-tools" in matter:
        warnings.append(f"allowed-tools in {SKILL} grants nothing; what the tool may reach is in {MANIFEST}")
    metadata = matter.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    line = visible(" ".join(_text(matter, "description").split()))
    description = line[:_MAX_DESCRIPTION].rstrip()
    usage = _cut(visible_prose(body.strip()), _MAX_USAGE_BYTES)
    if description != line:
        warnings.append(f"the description was cut to {_MAX_DESCRIPTION} characters")
    if usage != visible_prose(body.strip()):
        warnings.append(f"the usage was cut to {_MAX_USAGE_BYTES >> 10} KiB")
    return Skill(
        name=_text(matter, "name"),
        description=description,
        body=usage,
        version=_version(metadata.get("version")),
        digest=str(metadata.get(FORGE_DIGEST, "")),
        warnings=tuple(warnings),
    )


def _parted(data: bytes) -> tuple[dict[str, Any], str]:
    """Front matter and body."""
    from golem_forge.config.yaml_file import parse_yaml

    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SharingError(f"{SKILL} is not UTF-8.") from None
    opening = _FENCE.match(text)
    closing = _FENCE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        raise SharingError(f"{SKILL} has no front matter between two lines `---`.")
    try:
        # The line break keeps the line numbers of the file.
        matter = parse_yaml("\n" + text[opening.end() + 1 : closing.start()], SKILL).value
    except ConfigError as error:
        raise SharingError(visible(str(error))) from None
    return matter, text[closing.end() :]


def _text(matter: dict[str, Any], key: str) -> str:
    value = matter.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise SharingError(f"{SKILL}: {key}: is missing or not text.")
    return str(value).strip()


def _version(given: object) -> str:
    text = str(given).strip() if isinstance(given, str | int | float) and not isinstance(given, bool) else ""
    return text if text and len(text) <= 64 and text.isascii() and text.isprintable() else _VERSION


def _tool_name(skill: str) -> str:
    """The skill's name as a tool's: what a tool's name cannot hold becomes a hyphen."""
    import unicodedata

    letters = "".join(each for each in unicodedata.normalize("NFKD", skill) if not unicodedata.combining(each))
    hyphened = re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9_-]", "-", letters))
    name = re.sub(r"_{2,}", "_", hyphened).strip("-_")[:64]
    if not re.search(r"[A-Za-z0-9]", name):
        raise SharingError(f"{SKILL}: name: no tool can be named after {quoted(skill)}; give a name with --as NAME.")
    return name if name[0].isalpha() else f"skill-{name}"[:64]


def _chosen(scripts: FolderFiles, entrypoint: str) -> str:
    direct = sorted(name for name in scripts.files if "/" not in name)
    if entrypoint:
        wanted = entrypoint.removeprefix(f"{SCRIPTS}/")
        if wanted not in direct:
            raise SharingError(f"There is no file {quoted(wanted)} in {SCRIPTS}/; there are: {_listed(direct)}.")
        return wanted
    if not direct:
        raise SharingError(f"The skill has no file in {SCRIPTS}/ that a tool could run.")
    if len(direct) > 1:
        raise SharingError(f"The skill has several scripts; choose one with --entrypoint FILE: {_listed(direct)}")
    return direct[0]


def _listed(names: list[str]) -> str:
    return ", ".join(quoted(name).strip("'") for name in names[:20]) + (", …" if len(names) > 20 else "")


def _cut(text: str, limit: int) -> str:
    return text.encode()[:limit].decode(errors="ignore")
