"""`forge runner` on a store whose clock stands still until it is moved: `python moved_clock.py [words]`.

The clock of the database is what its statements call `@now`. Here that is the row of a table, so that a test moves the
clock for all runners at once, and no slow machine does. The sweep comes ten times a second.
"""

from __future__ import annotations

import sys
import time

from golem_forge.cli.main import main
from golem_forge.team import database, runner, webhooks
from golem_forge.team.store import Store


class MovedClock:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.moment = time.time()
        with store.database.transaction() as connection:
            connection.execute("CREATE TABLE moved_clock (moment DOUBLE PRECISION NOT NULL)")
            connection.execute("INSERT INTO moved_clock (moment) VALUES (:moment)", {"moment": self.moment})

    def set(self, moment: float) -> None:
        self.moment = moment
        with self._store.database.transaction() as connection:
            connection.execute("UPDATE moved_clock SET moment = :moment", {"moment": moment})


if __name__ == "__main__":
    for words in (database._SQLITE_WORDS, database._POSTGRES_WORDS):
        words["@now"] = "(SELECT moment FROM moved_clock)"  # type: ignore[index]
    runner.SWEEP_S = webhooks.LOOK_S = 0.1  # type: ignore[misc]
    sys.exit(main(["runner", *sys.argv[1:]]))
