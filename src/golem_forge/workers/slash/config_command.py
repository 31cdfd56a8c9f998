"""`/config`: every value in force, and where it was written."""

from __future__ import annotations

from golem_forge.workers.config_in_force import config_in_force, is_stranger
from golem_forge.workers.slash.host import Invocation
from golem_forge.workers.slash.table import columns


async def config(call: Invocation) -> str:
    host = call.host
    text = columns([("KEY", "VALUE", "FROM"), *config_in_force(host)])
    trusted = "\nThis program is not trusted; what it may not say does not count." if is_stranger(host) else ""
    return text + trusted + "".join(f"\n  not used: {each}" for each in host.program.unused)
