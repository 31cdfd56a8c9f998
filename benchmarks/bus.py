"""100,000 events on the bus, with a listener that reads each one, as a UI does."""

from __future__ import annotations

from benchmarks.harness import Block, Pace, race_blocks
from benchmarks.rows import Row, row
from golem_forge.events.bus import EventBus
from golem_forge.events.serialization import Event

COUNT = 100_000


async def rows(pace: Pace) -> list[Row]:
    count = pace.amount(COUNT)

    def emit(_material: object) -> None:
        bus, seen = EventBus("bench"), Listener()
        bus.on("status", seen.hear)
        for _ in range(count):
            bus.emit("status", {"type": "info", "message": "compiling"})
        assert seen.count == count

    seconds = await race_blocks({"emit": Block(run=emit)}, rounds=pace.rounds)
    return [row(f"{count:,} bus events (ms)", seconds["emit"] * 1e3)]


class Listener:
    def __init__(self) -> None:
        self.count = 0

    def hear(self, event: Event) -> None:
        assert event.data.message
        self.count += 1
