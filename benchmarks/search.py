"""Search over a catalog of 10,000 tools, as many as a few hundred servers bring along.

The queries are the ones people and models type: a name, the start of one, two or three words, a sentence. The first
search builds the index; it is shown by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import median, quantiles
from time import perf_counter

from benchmarks.harness import Pace, frozen_heap
from benchmarks.rows import Row, row
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.tool import Tool

COUNT = 10_000
QUERIES = 400


def _words(text: str) -> list[str]:
    return text.split()


SERVICES = _words(
    "github gitlab jira linear slack discord notion drive gmail outlook calendar stripe paypal shopify salesforce "
    "hubspot zendesk intercom datadog sentry grafana postgres mysql redis s3 lambda cloudflare vercel docker kubernetes"
)
VERBS = _words(
    "list get create update delete search archive restore move copy rename merge assign label close reopen export "
    "import sync validate approve reject schedule cancel pause resume start stop deploy inspect"
)
NOUNS = _words(
    "issue ticket repository branch commit message channel thread page file folder email event invoice payment refund "
    "customer order product contact deal alert dashboard metric log table row key bucket function zone domain "
    "container image cluster pod secret user team role"
)


async def rows(pace: Pace) -> list[Row]:
    count = pace.amount(COUNT)
    chance = random.Random(7)
    catalog = Catalog(many_tools(count, chance))
    queries = list(some_queries(catalog.names(), chance))
    first = _milliseconds(catalog, "restart the database")
    with frozen_heap():
        times = [_milliseconds(catalog, query) for query in queries]
    return [
        row(f"search {count:,} tools, p50 (ms)", median(times)),
        row(f"search {count:,} tools, p95 (ms)", quantiles(times, n=20)[-1]),
        row(f"first search over {count:,} tools (ms)", first),
    ]


def many_tools(count: int, chance: random.Random) -> Iterator[Tool]:
    spelled = [(service, verb, noun) for service in SERVICES for verb in VERBS for noun in NOUNS]
    for service, verb, noun in chance.sample(spelled, count):
        yield Tool(
            f"{service}__{verb}_{noun}",
            f"{verb.capitalize()} a {noun} in {service}. The {noun} is named by its id; "
            f"what was done is returned together with the {chance.choice(NOUNS)} it belongs to.",
            input_schema={
                "type": "object",
                "properties": {
                    f"{noun}_id": {"type": "string", "description": f"The id of the {noun}"},
                    "limit": {"type": "integer", "description": f"How many {chance.choice(NOUNS)}s at most"},
                },
            },
            execute=lambda args: args,
            source="mcp",
        )


def some_queries(names: tuple[str, ...], chance: random.Random) -> Iterator[str]:
    for number in range(QUERIES):
        verb, noun, service = chance.choice(VERBS), chance.choice(NOUNS), chance.choice(SERVICES)
        name = chance.choice(names)
        yield (
            name,
            name[: chance.randint(4, 12)],
            f"{verb} {noun}",
            f"{service} {noun} {verb}",
            f"how do I {verb} the {noun} of a {chance.choice(NOUNS)} in {service}",
        )[number % 5]


def _milliseconds(catalog: Catalog, query: str) -> float:
    start = perf_counter()
    catalog.search(query)
    return (perf_counter() - start) * 1e3
