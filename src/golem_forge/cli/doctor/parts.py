"""Libraries that must be there, and parts of the system that make more possible."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final, NamedTuple

from golem_forge.cli.doctor.findings import Finding, note, ok, problem
from golem_forge.cli.plain import homely
from golem_forge.sandbox.host import find_program

_LIBRARIES: Final = {"pydantic": "pydantic", "jsonschema_rs": "jsonschema-rs", "ruamel.yaml": "ruamel.yaml"}
"""Module → distribution."""


class Part(NamedTuple):
    name: str
    commands: tuple[str, ...]
    package: str
    serves: str


_PARTS: Final = (
    Part("bubblewrap", ("bwrap",), "bubblewrap", "full walls around child processes"),
    Part("go", ("go",), "golang-go", "user tools written in Go, in a later version"),
    Part("chromium", ("chromium", "chromium-browser"), "chromium", "tests of the web UI, in a later version"),
)


def look_at_libraries() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    versions = []
    for module, distribution in _LIBRARIES.items():
        try:
            if find_spec(module) is None:
                raise ModuleNotFoundError
            versions.append(f"{distribution} {version(distribution)}")
        except (ModuleNotFoundError, PackageNotFoundError):
            yield problem("libraries", f"{distribution} is missing", f"python -m pip install {distribution}")
    if len(versions) == len(_LIBRARIES):
        yield ok("libraries", ", ".join(versions))


def look_at_parts() -> Iterator[Finding]:
    for part in _PARTS:
        path = next((found for command in part.commands if (found := find_program(command))), None)
        if path:
            yield ok(part.name, homely(path))
        else:
            yield note(part.name, f"not installed; it serves {part.serves}", _how_to_get(part))


def _how_to_get(part: Part) -> str:
    if find_program("apt-get"):
        return f"sudo apt-get install -y {part.package}"
    return f"install it with your package manager; Debian calls it {part.package}"
