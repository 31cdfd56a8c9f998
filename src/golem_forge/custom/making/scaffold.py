"""Making a tool: from what was asked for to the files of its folder, and the folder into its place at once.

`creation_problem` says why a name cannot be used, `scaffold` gives name → bytes, `put_in_place` writes them. Refuses
(InputInvalid, in the words of `create_custom_tool`) what would not be a valid manifest: the same rules as for a file.

Threats: argument text that becomes code (a source is written as given, or is a constant); a folder that is seen half
written, or a crash that leaves one (everything is written beside it under a hidden name first); two creators of one
name (one of them wins, and nothing of the other is left).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from golem_forge.config.home import ForgeHome
from golem_forge.custom.diagnostic import Code, Unusable
from golem_forge.custom.folder_writing import write_folder
from golem_forge.custom.making import templates
from golem_forge.custom.manifest import MANIFEST, BooleanFlags, Manifest
from golem_forge.custom.names import is_reserved, name_problem
from golem_forge.tools.validation import InputInvalid

CREATING: Final = "create_custom_tool"
UNFINISHED: Final = ".new-"
"""How a folder begins that is being written; no tool can be called so."""
DEFAULT_VERSION: Final = "1.0.0"

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Language(StrEnum):
    PYTHON = "python"
    SHELL = "shell"
    GO = "go"


_ENDINGS: Final = {Language.PYTHON: ".py", Language.SHELL: ".sh", Language.GO: ".go"}
_TEMPLATES: Final = {Language.PYTHON: templates.PYTHON, Language.SHELL: templates.SHELL, Language.GO: templates.GO}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTool:
    """What is asked for. Parameters and tests are plain values, checked when the files are made."""

    name: str
    description: str
    language: Language = Language.PYTHON
    usage: str = ""
    parameters: Sequence[Any] = ()
    source: str = ""
    """Empty: the language's template."""
    tests: Sequence[Any] = ()
    version: str = DEFAULT_VERSION

    @staticmethod
    def read(args: Mapping[str, Any]) -> NewTool:
        """From the arguments of `create_custom_tool`; raises InputInvalid."""
        given = dict(args)
        try:
            given["language"] = Language(given.get("language", Language.PYTHON))
        except ValueError:
            raise _refused("language", f"must be one of {', '.join(Language)}") from None
        return NewTool(**given)

    @property
    def source_file(self) -> str:
        return self.name + _ENDINGS[self.language]


def creation_problem(name: str, description: str, taken: Collection[str], existing: Collection[str]) -> str:
    """Why nothing is created, or nothing. `taken`: tools of the catalog; `existing`: folders of user tools."""
    for key, value in (("name", name), ("description", description)):
        if not value or not value.strip():
            return f"{key}: missing required parameter"
    if problem := name_problem(name):
        return problem
    if is_reserved(name):
        return f"tool name '{name}' is reserved"
    if name in taken:
        return f"'{name}' is the name of an existing tool; choose another name"
    for folder in existing:
        if folder.lower() == name.lower():
            return f"tool '{name}' already exists at /user_tools/{folder}"
    return ""


def scaffold(order: NewTool) -> dict[str, bytes]:
    """The manifest, then the source."""
    from golem_forge.custom.manifest.text import manifest_text
    from golem_forge.custom.manifest.yaml_nodes import MAX_BYTES

    if problem := creation_problem(order.name, order.description, (), ()):
        raise InputInvalid(f"{CREATING}: {problem}")
    text = manifest_text(_manifest(order), stated=("parameters", "boolean_flags")).encode()
    if len(text) > MAX_BYTES:
        raise InputInvalid(
            f"{CREATING}: {MANIFEST} would be larger than {MAX_BYTES // 1024} KiB; shorten what is in it"
        )
    try:
        source = (order.source or _TEMPLATES[order.language]).encode()
    except UnicodeEncodeError:
        raise _refused("source", "contains half a surrogate pair, which is no character") from None
    return {MANIFEST: text, order.source_file: source}


def is_template(source: bytes) -> bool:
    """Whether nobody has written anything yet."""
    return any(source == text.encode() for text in _TEMPLATES.values())


def _manifest(order: NewTool) -> Manifest:
    from golem_forge.custom.manifest.nodes import Fault, Fields, dotted, node_of
    from golem_forge.custom.manifest.reading import manifest_of

    given: dict[str, Any] = {
        "name": order.name,
        "description": order.description,
        "version": order.version,
        "entrypoint": order.source_file,
        "usage": order.usage,
        "boolean_flags": BooleanFlags.EQUALS.value if order.language is Language.GO else BooleanFlags.SWITCH.value,
        "parameters": list(order.parameters),
        "tests": list(order.tests),
    }
    try:
        top = node_of(given)
        assert isinstance(top, Fields)
        return manifest_of(top, order.name)
    except Fault as fault:
        where = dotted(fault.place)
        raise InputInvalid(f"{CREATING}: {fault}", fields=((where, fault.problem),)) from None


def _refused(field: str, problem: str) -> InputInvalid:
    return InputInvalid(f"{CREATING}: {field}: {problem}", fields=((field, problem),))


def put_in_place(home: ForgeHome, name: str, files: Mapping[str, bytes], executable: Collection[str] = ()) -> None:
    """All files of a new tool or none. Raises Unusable for a name that cannot be, FileExistsError for one that is."""
    if problem := name_problem(name):
        raise Unusable(Code.NAME_INVALID, problem)
    for file in files:
        if "\0" in file or any(part in ("", ".", "..") for part in file.split("/")):
            raise Unusable(Code.UNREADABLE, f"{file[:80]!r} is no name of a file in a tool's folder")
    tools = os.open(home.ensure("tools"), _DIRECTORY)
    try:
        if any(folder.lower() == name.lower() for folder in os.listdir(tools)):
            raise FileExistsError(name)
        _place(tools, name, files, executable)
    finally:
        os.close(tools)


def _place(tools: int, name: str, files: Mapping[str, bytes], executable: Collection[str]) -> None:
    import shutil

    made = UNFINISHED + os.urandom(8).hex()
    claimed = False
    try:
        write_folder(tools, made, files, executable)
        os.mkdir(name, 0o700, dir_fd=tools)  # of two creators one gets past this line
        claimed = True
        os.rename(made, name, src_dir_fd=tools, dst_dir_fd=tools)  # onto the empty folder, or it fails
        os.fsync(tools)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True, dir_fd=tools)
        if claimed:
            with contextlib.suppress(OSError):  # whatever somebody put there meanwhile is theirs
                os.rmdir(name, dir_fd=tools)
        raise
