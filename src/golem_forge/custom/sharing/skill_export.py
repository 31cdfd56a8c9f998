"""A tool as an Agent Skill: SKILL.md for whoever reads skills, and the whole folder below `scripts/`.

Takes a manifest and its files; gives the skill's folder name and its files. Its `scripts/` is the tool folder itself,
so importing the skill gives the tool back with an equal digest. The front matter keeps to the published rules: name of
lower-case letters, digits and single hyphens, at most 64; description at most 1024; metadata of text.
"""

from __future__ import annotations

import json
import re
from typing import Final

from golem_forge.custom.manifest import ArgumentStyle, BooleanFlags, Manifest, Parameter, ParameterType
from golem_forge.custom.registry.folder import FolderFiles
from golem_forge.custom.sharing.renaming import plain_or_quoted
from golem_forge.custom.sharing.skill import FORGE_DIGEST, SCRIPTS, SKILL

_NOT_IN_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_INTERPRETERS: Final = {".py": "python3", ".sh": "sh", ".go": "go run"}
_PASSING: Final = {
    ArgumentStyle.FLAGS: "Arguments are flags: `--name=value`, once per item of an array.",
    ArgumentStyle.STDIN_JSON: "Arguments are one JSON object on standard input.",
    ArgumentStyle.ENV: "Arguments are environment variables: `FORGE_ARG_<NAME>`, upper case, `-` as `_`.",
}


def skill_name(tool: str) -> str:
    return re.sub(r"-{2,}", "-", tool.lower().replace("_", "-")).strip("-")


def skill_files(manifest: Manifest, files: FolderFiles) -> FolderFiles:
    inside = {f"{SCRIPTS}/{name}": content for name, content in files.files.items()}
    marked = frozenset(f"{SCRIPTS}/{name}" for name in files.executable)
    return FolderFiles({SKILL: skill_text(manifest, files.digest).encode(), **inside}, marked)


def skill_text(manifest: Manifest, digest: str) -> str:
    matter = [
        "---",
        f"name: {plain_or_quoted(skill_name(manifest.name))}",
        f"description: {_quoted(manifest.description)}",
        "metadata:",
        f"  forge-name: {_quoted(manifest.name)}",
        f"  forge-version: {_quoted(manifest.version)}",
        f"  {FORGE_DIGEST}: {_quoted(digest)}",
        "---",
    ]
    parts = [f"# {manifest.label or manifest.name}", manifest.description, manifest.usage.strip()]
    if manifest.parameters:
        lines = "\n".join(_parameter(each) for each in manifest.parameters)
        parts += ["## Parameters", lines]
    parts += ["## Running", _running(manifest)]
    return "\n".join(matter) + "\n\n" + "\n\n".join(part for part in parts if part) + "\n"


def _parameter(parameter: Parameter) -> str:
    kind = parameter.type.value
    if parameter.type is ParameterType.ARRAY:
        kind = f"array of {parameter.items.value}"
    need = "required" if parameter.required else "optional"
    text = f"- `{parameter.name}` ({kind}, {need}): {' '.join(parameter.description.split())}"
    if (parameter.enum or parameter.has_default) and text[-1] not in ".!?:":
        text += "."
    if parameter.enum:
        text += f" One of: {', '.join(_code(value) for value in parameter.enum)}."
    if parameter.has_default:
        text += f" Default: {_code(parameter.default)}."
    return text


def _running(manifest: Manifest) -> str:
    ending = "." + manifest.entrypoint.rpartition(".")[2]
    start = f"{_INTERPRETERS.get(ending, '')} {SCRIPTS}/{manifest.entrypoint}".strip()
    return (
        "With Golem Forge: `forge tools import` of this folder, "
        f"then `forge call {manifest.name}`; it runs inside walls.\n"
        f"Without: `{start}`, with `FORGE_WORKSPACE` set to the folder to work in. {_PASSING[manifest.arguments]}"
        + "".join(_boolean(manifest, each) for each in manifest.parameters)
    )


def _boolean(manifest: Manifest, parameter: Parameter) -> str:
    """How to pass one whose flag takes no value; a skill's reader would otherwise try `--name=true`."""
    style = parameter.flag or manifest.boolean_flags
    if manifest.arguments is not ArgumentStyle.FLAGS or parameter.type is not ParameterType.BOOLEAN:
        return ""
    if style is BooleanFlags.EQUALS:
        return ""
    no = "nothing" if style is BooleanFlags.SWITCH else f"`--no-{parameter.name}`"
    return f" `--{parameter.name}` is true, {no} false."


def _code(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _quoted(text: str) -> str:
    """Double-quoted YAML. `---` is escaped: some readers of skills cut the front matter at the first one they see."""
    escaped = json.dumps(text, ensure_ascii=False).replace("---", "--\\x2d")
    return _NOT_IN_YAML.sub(lambda match: f"\\u{ord(match.group()):04x}", escaped)
