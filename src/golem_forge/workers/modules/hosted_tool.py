"""A tool whose code is in a module host, as a Tool of Forge: its schema is checked here, its function is called there.

Its source is `custom` and its definition is the digest of all the code it was loaded from, whatever the module says.
"""

from __future__ import annotations

from typing import Any

from golem_forge.core.errors import BlockedError, ForgeError, error_name
from golem_forge.sandbox.errors import SandboxError
from golem_forge.tools.context import ToolContext
from golem_forge.tools.inputs import Defaults, SchemaInput
from golem_forge.tools.tool import SourceKind, Tool
from golem_forge.workers.modules.describing import PREDICATE, Described
from golem_forge.workers.modules.pool import HostPool


def hosted_tool(described: Described, pool: HostPool, digest: str) -> Tool:
    export = described.export

    async def execute(args: dict[str, Any], ctx: ToolContext) -> Any:
        async with pool.use() as host:
            return await host.call(export, args, ctx)

    async def predicate(args: dict[str, Any], ctx: ToolContext, /) -> bool | str:
        try:
            async with pool.use() as host:
                return await host.predicate(export, args, ctx)
        except (BlockedError, SandboxError):  # no host could be started: Forge's own words, not the module's
            raise
        except ForgeError as error:  # policy names a failed check by its exception's type: the module's own
            kind = error.message.partition(":")[0] if not error.code else error_name(error)
            raise type(kind[:80], (Exception,), {})(error.message) from None

    defaults = Defaults.BY_RUNNER if described.fills_defaults else Defaults.LEFT_OUT
    return Tool(
        described.name,
        described.description,
        input_schema=lambda: SchemaInput(described.input_schema, defaults=defaults),
        output_schema=described.output_schema,
        execute=execute,
        takes_mapping=True,
        needs_approval=predicate if described.approval == PREDICATE else described.approval,
        mode=described.mode,
        label=described.label,
        category=described.category,
        annotations=described.annotations,
        timeout=described.timeout,
        idle_timeout=described.idle_timeout,
        read_only=described.read_only,
        always_load=described.always_load,
        effects=described.effects,
        source=SourceKind.CUSTOM,
        argument_aliases=described.aliases or None,
        max_argument_bytes=described.max_argument_bytes,
        code_digest=f"{digest}:{export}",
    )
