"""A worker's zones, FORGE_HOME and real walls, and tools that are written into them and run, for tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deadlines import PATIENCE

from golem_forge.config.sandbox_block import WallSettings
from golem_forge.core.calls import ToolCompletion
from golem_forge.events.redaction import Redactor
from golem_forge.orchestrator.bound_output import OutputStore
from golem_forge.sandbox.sandbox import Sandbox, open_sandbox
from golem_forge.sandbox.walls.model import HostDirectory, Level, ProbeReport, lifted_paths
from golem_forge.sandbox.walls.walls import Walls, WallsHost
from golem_forge.sandbox.zones import AccessMode, ZoneSpec
from golem_forge.storage.home import ForgeHome
from golem_forge.tools.context import ToolContext
from golem_forge.usertools.build.languages import ISOLATED_FLAGS, own_interpreter
from golem_forge.usertools.folder import TOOL_DIR, ProgramKind, ToolEntry, ToolProgram
from golem_forge.usertools.manifest import Parameter, ParameterType, ToolManifest
from golem_forge.usertools.run import ToolRun, process_input, run_tool
from golem_forge.usertools.run.access import plan_access, tool_access


def parameter(name: str, kind: str = "string", **keys: Any) -> Parameter:
    return Parameter(name=name, type=ParameterType(kind), description=name, **keys)


def manifest(**keys: Any) -> ToolManifest:
    keys = {"name": "probe", "description": "d", "version": "1.2", "entrypoint": "probe.sh"} | keys
    return ToolManifest(**keys)


@dataclass
class Ground:
    root: Path
    environ: dict[str, str] = field(default_factory=dict)
    settings: WallSettings | None = None
    level: Level = Level.FULL
    zones: Mapping[str, AccessMode] = field(default_factory=lambda: {"workspace": AccessMode.RW, "docs": AccessMode.RO})
    at_host_path: bool = True
    """Whether zones stand at their host path inside."""

    def __post_init__(self) -> None:
        for name in ("home", "person", *self.zones):
            (self.root / name).mkdir()
        specs = [
            ZoneSpec(name=name, path=self.root / name, mode=mode, at_host_path=self.at_host_path)
            for name, mode in self.zones.items()
        ]
        self.home = ForgeHome(self.root / "home")
        self.sandbox = open_sandbox(specs, forge_home=self.home.path, home=self.root / "person") if specs else Sandbox()
        self.outputs = OutputStore(self.root / "outputs", "session-1")
        self.redactor = Redactor()
        self.walls = Walls(
            self.sandbox,
            self.settings,
            forge_home=self.home.path,
            redactor=self.redactor,
            host=WallsHost(
                report=ProbeReport(level=self.level),
                environ={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                home=self.root / "person",
            ),
        )
        self.ctx = ToolContext(
            call_id="call-1",
            session_id="session-1",
            sandbox=self.sandbox,
            walls=self.walls,
            outputs=self.outputs,
            redactor=self.redactor,
            home=self.home.path,
        )

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def tool(self, files: Mapping[str, str], **keys: Any) -> tuple[ToolEntry, ToolProgram]:
        said = manifest(**keys)
        folder = self.root / "home" / "store" / said.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
        entry = ToolEntry(name=said.name, folder=folder, manifest=said, digest="sha256:0", files=())
        full = self.level is Level.FULL
        tool_dir = TOOL_DIR if full else os.path.realpath(folder)
        shown = (HostDirectory(os.path.realpath(folder), TOOL_DIR),)
        script = f"{tool_dir}/{said.entrypoint}"
        if said.entrypoint.endswith(".py"):
            python = own_interpreter(self.home.path)
            return entry, ToolProgram(
                kind=ProgramKind.PYTHON,
                argv=(python.path, *ISOLATED_FLAGS),
                script=script,
                tool_dir=tool_dir,
                shown=(*shown, *python.shown),
            )
        return entry, ToolProgram(kind=ProgramKind.SHELL, argv=("/bin/sh", script), tool_dir=tool_dir, shown=shown)

    async def run(self, source: str, values: Mapping[str, Any] | None = None, **keys: Any) -> ToolCompletion:
        timeout = keys.pop("timeout", PATIENCE)
        more = {name: keys.pop(name) for name in ("call_server", "background_runner", "files") if name in keys}
        entry_name = keys.get("entrypoint", "probe.sh")
        entry, program = self.tool({entry_name: source, **more.pop("files", {})}, **keys)
        reach = tool_access(entry.manifest, self.ctx)
        level = await reach.walls.level()
        touch = plan_access(entry, values or {}, reach, level)
        try:
            run = ToolRun(
                entry=entry,
                program=program,
                input=process_input(entry.manifest, values or {}, paths=touch.paths),
                access=reach,
                timeout=timeout,
                environ=self.environ,
                lifted=lifted_paths(touch.effects, self.ctx.path_rules()),
                **more,
            )
            return await run_tool(run, self.ctx)
        finally:
            touch.close()

    async def python(self, source: str, values: Mapping[str, Any] | None = None, **keys: Any) -> ToolCompletion:
        return await self.run(source, values, entrypoint="probe.py", **keys)

    async def close(self) -> None:
        await self.ctx.parts.close()
        self.sandbox.close()
