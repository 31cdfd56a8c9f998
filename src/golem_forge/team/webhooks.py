"""Webhooks: a runner tells other programs that a session asks, finished or failed.

    question asked, session ended ── same transaction ──> a row of `deliveries` ── any runner ──> POST

`Outbox` keeps the rows. A runner takes one by a lease of a minute and sends it; an answer 2xx ends it, anything else is
tried again with growing pauses, for an hour, under the same id. A runner that was killed before it noted the answer
leaves the row to the next taker: so whoever receives must know ids that came twice. `WebhookSender` sends, with a task
for each hook, so that a slow one delays no other.

What is sent: ids, the kind of the fact, the worker, the title of the session, the name of the tool that asks, its risk.
Never arguments, diffs or output. The row knows a hook by a hash of its address: neither address nor secret are in the
store.
Threats: an address that leads into the local network, also by a name that changes (one lookup, and the connection goes
to what was checked); a redirect (none is followed); an answer that never ends (its head is bounded, its body not read).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from golem_forge.config.store_block import NotifyHook
from golem_forge.core.errors import ConfigError, ToolFailed, error_name
from golem_forge.core.lazy_dataclass import dataclass, field
from golem_forge.core.text import one_line, shorten
from golem_forge.sandbox.network.addresses import PrivateAddress, lookup, refuse_private
from golem_forge.team.database import Database, StoreConnection, complaints
from golem_forge.team.rows import StoredSession, program_id
from golem_forge.toolsets.web.http_client import WebAddress, http_post, read_url

LEASE_S: Final = 60.0
SEND_S: Final = 15.0
RETRY_FOR_S: Final = 3600.0
LONGEST_PAUSE_S: Final = 300.0
KEPT_S: Final = 7 * 86400.0
LOOK_S: Final = 5.0
REST_S: Final = 0.25
"""Minimum pause between two polls that found no work, however many notifications come."""
_AT_ONCE: Final = 4
_MAX_TITLE: Final = 200
PRIVATE: Final = "its host has a private address, so nothing is sent there; `allow_private: true` would allow that"
ALLOW_PRIVATE: Final = "write `allow_private: true` at this webhook if it is meant, else correct its address"
_GIVEN_UP: Final = "given up"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    id: str
    """A hash of its address."""
    address: WebAddress = field(repr=False)
    key: bytes = field(repr=False)
    on: frozenset[str]
    allow_private: bool
    projects: frozenset[str] = frozenset()
    """Names of those that it is told of; empty: all."""
    program: str = ""
    """The one project that it is told of, by its id: its forge.yaml has the hook. Empty: an account's config.yaml."""
    origin: str
    """Where it is written; shown to people instead of the address, which may hold a secret."""


def read_webhooks(hooks: Sequence[NotifyHook]) -> tuple[Webhook, ...]:
    """Reads the webhooks with the values of their variables. Raises ConfigError."""
    found: dict[str, Webhook] = {}
    for hook in hooks:
        url = hook.url()
        try:
            address = read_url(url)
        except ValueError as error:
            raise ConfigError(f"{hook.origin}: the address of the webhook cannot be used: {error}") from None
        id = sha256(address.url.encode()).hexdigest()[:16]
        if id in found:
            raise ConfigError(f"{hook.origin}: names the same webhook as {found[id].origin}; write it once")
        found[id] = Webhook(
            id=id,
            address=address,
            key=hook.key(),
            on=frozenset(hook.on),
            allow_private=hook.allow_private,
            projects=frozenset(each.casefold() for each in hook.projects),
            program=program_id(hook.folder) if hook.folder is not None else "",
            origin=hook.origin,
        )
    return tuple(found.values())


async def is_refused(hook: Webhook) -> bool:
    """Whether its host has a private address now, which is not allowed. One that nobody finds may be found later."""
    if hook.allow_private:
        return False
    try:
        async with asyncio.timeout(SEND_S):
            refuse_private(await lookup(hook.address.host, hook.address.port))
    except PrivateAddress:
        return True
    except Exception:  # also a name that no resolver takes
        return False
    return False


def webhook_problems(hooks: Sequence[NotifyHook]) -> list[str]:
    """Why a runner that is started here would not tell some of them. Sends nothing."""
    problems: list[str] = []
    usable: list[Webhook] = []
    for hook in hooks:
        try:
            usable += read_webhooks([hook])
        except ConfigError as error:
            problems += error.problems

    async def look() -> list[bool]:
        return await asyncio.gather(*map(is_refused, usable))

    if usable:
        refused = zip(usable, asyncio.run(look()), strict=True)
        problems += [f"webhook {hook.origin}: {PRIVATE}" for hook, is_private in refused if is_private]
    return problems


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFact:
    """An event of a session that webhooks report."""

    kind: str
    """`question`, `finished` or `failed`."""
    session: StoredSession
    question: str = ""
    worker: str = ""
    """The worker that asks; empty means the session's."""
    tool: str = ""
    risk: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    id: str
    body: str
    tries: int
    """Number of tries, this one included."""


class Outbox:
    def __init__(self, database: Database, hooks: Sequence[Webhook], page: str = "") -> None:
        """`page`: the address of the team's page, for links."""
        self.database = database
        self.hooks = hooks
        self._page = page.rstrip("/")

    def tell(self, connection: StoreConnection, fact: SessionFact) -> None:
        """Queues deliveries in the transaction that stores the fact."""
        hooks = [hook for hook in self.hooks if fact.kind in hook.on]
        # Threat: whoever writes the forge.yaml of one project would hear of the sessions of others.
        hooks = [hook for hook in hooks if hook.program in ("", fact.session.program)]
        if any(hook.projects for hook in hooks):
            row = connection.execute(
                "SELECT name FROM projects WHERE id = :id", {"id": fact.session.program}
            ).fetchone()
            name = str(row[0]).casefold() if row else ""
            hooks = [hook for hook in hooks if not hook.projects or name in hook.projects]
        if not hooks:
            return
        [now] = connection.execute("SELECT @now").fetchone()
        session = fact.session
        title = one_line(f"{fact.tool}: {session.title}" if fact.tool else session.title)
        said = {
            "kind": fact.kind,
            "session": session.id,
            "worker": one_line(fact.worker or session.worker),
            "title": shorten(title, _MAX_TITLE),
            "risk": fact.risk,
            "link": f"{self._page}/#/s/{session.id}/chat" if self._page else "",
            "at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        for hook in hooks:
            id = sha256(f"{fact.kind} {session.id} {fact.question} {hook.id}".encode()).hexdigest()[:32]
            connection.execute(
                "INSERT INTO deliveries (id, hook, body, created, next_try) VALUES (:id, :hook, :body, :now, :now) "
                "ON CONFLICT DO NOTHING",
                {"id": id, "hook": hook.id, "body": json.dumps({"id": id, **said}), "now": now},
            )

    def take(self, hook: Webhook) -> list[WebhookDelivery]:
        """Takes the due deliveries of this hook; nobody else takes them within the next minute."""
        due = "hook = :hook AND state = 'waiting' AND next_try <= @now"
        if self.database.read_one(f"SELECT 1 FROM deliveries WHERE {due} LIMIT 1", {"hook": hook.id}) is None:
            return []
        with self.database.transaction() as connection:
            rows = connection.execute(
                "UPDATE deliveries SET next_try = @now + :lease, tries = tries + 1, "
                "first_try = CASE WHEN first_try = 0 THEN @now ELSE first_try END WHERE id IN "
                f"(SELECT id FROM deliveries WHERE {due} ORDER BY next_try LIMIT {_AT_ONCE} @skip) "
                "RETURNING id, body, tries",
                {"hook": hook.id, "lease": LEASE_S},
            ).fetchall()
        return [WebhookDelivery(id=id, body=body, tries=int(tries)) for id, body, tries in rows]

    def sent(self, delivery: WebhookDelivery) -> None:
        with self.database.transaction() as connection:
            connection.execute("UPDATE deliveries SET state = 'sent' WHERE id = :id", {"id": delivery.id})

    def failed(self, delivery: WebhookDelivery) -> bool:
        """Schedules another try. Returns False if the delivery was given up."""
        with self.database.transaction() as connection:
            row = connection.execute(
                "UPDATE deliveries SET next_try = @now + :pause, state = CASE WHEN @now - first_try >= :limit "
                "THEN :given_up ELSE state END WHERE id = :id AND tries = :tries RETURNING state",
                {
                    "pause": min(2.0 ** min(delivery.tries, 16), LONGEST_PAUSE_S),
                    "limit": RETRY_FOR_S,
                    "given_up": _GIVEN_UP,
                    "id": delivery.id,
                    "tries": delivery.tries,
                },
            ).fetchone()
        return row is None or row[0] != _GIVEN_UP

    def prune(self) -> None:
        """Removes old deliveries, also those of hooks that no runner has any more."""
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM deliveries WHERE created < @now - :age", {"age": KEPT_S})


class WebhookSender:
    """Sends what the outbox has, until it is closed. Lives on the runner's loop; the database is asked in threads."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._rung = {hook.id: asyncio.Event() for hook in outbox.hooks}
        self._told: dict[str, str] = {}
        """By hook: the last problem that was told."""
        self._closing = False
        self._tasks = [asyncio.get_running_loop().create_task(self._serve(hook)) for hook in outbox.hooks]

    def ring(self) -> None:
        for event in self._rung.values():
            event.set()

    async def close(self) -> None:
        """Stops sending; running requests may end."""
        self._closing = True
        self.ring()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=LOOK_S)
            for task in late:
                task.cancel()

    async def _serve(self, hook: Webhook) -> None:
        rung, pruned = self._rung[hook.id], -KEPT_S
        if await is_refused(hook):  # told when the runner starts, and not by the first event that nobody hears of
            self._told[hook.id] = PRIVATE
            _log.warning("webhook %s: %s", hook.origin, PRIVATE)
        while not self._closing:
            rung.clear()
            taken: list[WebhookDelivery] = []
            try:
                if time.monotonic() - pruned > RETRY_FOR_S:
                    pruned = time.monotonic()
                    await asyncio.to_thread(self._outbox.prune)
                taken = await asyncio.to_thread(self._outbox.take, hook)
                await asyncio.gather(*(self._deliver(hook, each) for each in taken))
            except Exception as error:  # the next look finds what was taken, once its lease is over
                complaints.tell("the store cannot be asked", error)
            if not taken and not self._closing:
                await asyncio.sleep(REST_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await rung.wait()

    async def _deliver(self, hook: Webhook, delivery: WebhookDelivery) -> None:
        problem = await self._post(hook, delivery)
        if not problem:
            await asyncio.to_thread(self._outbox.sent, delivery)
            self._told.pop(hook.id, None)
        elif not await asyncio.to_thread(self._outbox.failed, delivery):
            _log.warning("webhook %s: %s was given up after an hour: %s", hook.origin, delivery.id, problem)
        elif self._told.get(hook.id) != problem:
            self._told[hook.id] = problem
            _log.warning("webhook %s: %s; it is tried again for an hour", hook.origin, problem)

    async def _post(self, hook: Webhook, delivery: WebhookDelivery) -> str:
        """Sends a delivery. Returns why it was not accepted; empty if it was."""
        body, timestamp = delivery.body.encode(), str(int(time.time()))
        signature = hmac.new(hook.key, f"{timestamp}.".encode() + body, sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "X-Forge-Timestamp": timestamp,
            "X-Forge-Signature": f"sha256={signature}",
        }
        try:
            async with asyncio.timeout(SEND_S):
                addresses = await lookup(hook.address.host, hook.address.port)
                if not hook.allow_private:
                    refuse_private(addresses)
                async with http_post(hook.address, addresses, body, headers) as answer:
                    status = answer.status
        except PrivateAddress:
            return PRIVATE
        except ToolFailed as error:  # its text names the host
            return f"it cannot be reached ({error.code or 'HTTP'})"
        except TimeoutError:
            return f"no answer came within {SEND_S:g} seconds"
        except Exception as error:  # also a name that no resolver takes
            return f"it cannot be reached ({error_name(error)})"
        return "" if 200 <= status < 300 else f"it answered with status {status}"
