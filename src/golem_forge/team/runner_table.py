"""RunnerTable: the runners of a store, each with its slots and labels, seen every few seconds (`Store.renew`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from golem_forge.team.database import Database

RUNNER_GONE_S: Final = 30.0
"""A runner that was not seen for so long is not counted any more."""


class RunnerTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def register(
        self,
        runner: str,
        *,
        host: str,
        pid: int,
        slots: int,
        labels: Sequence[str],
        version: str,
        offers: Mapping[str, Any],
    ) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM runners WHERE seen < @now - 86400")
            connection.execute(
                "INSERT INTO runners (id, host, pid, slots, labels, version, offers, started, seen) VALUES (:id, "
                ":host, :pid, :slots, :labels, :version, :offers, @now, @now)",
                {
                    "id": runner,
                    "host": host,
                    "pid": pid,
                    "slots": slots,
                    "labels": json.dumps(list(labels)),
                    "version": version,
                    "offers": json.dumps(dict(offers)),
                },
            )

    def unregister(self, runner: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM runners WHERE id = :id", {"id": runner})

    def drain(self, runner: str, draining: bool = True) -> None:
        """Nobody shall count on this runner for new sessions; or again, with `draining` False."""
        with self._database.transaction() as connection:
            values = {"id": runner, "draining": int(draining)}
            connection.execute("UPDATE runners SET draining = :draining WHERE id = :id", values)

    def seen(self) -> list[dict[str, Any]]:
        """Those that were seen lately."""
        rows = self._database.read(
            f"SELECT id, host, pid, slots, labels, version, offers, draining, @now - seen FROM runners "
            f"WHERE seen > @now - {RUNNER_GONE_S} ORDER BY started"
        )
        names = ("id", "host", "pid", "slots", "labels", "version", "offers", "draining", "silent")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return [each | {"labels": json.loads(each["labels"]), "offers": json.loads(each["offers"])} for each in found]

    def busy_slots(self) -> dict[str, int]:
        """By runner: how many sessions it holds."""
        rows = self._database.read(
            "SELECT runner, count(*) FROM sessions WHERE state IN ('running', 'waiting') AND runner <> '' "
            "GROUP BY runner"
        )
        return {str(runner): int(number) for runner, number in rows}
