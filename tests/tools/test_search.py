"""Search over the catalog (mcp.md §10, cases 31 and 33)."""

from __future__ import annotations

import functools
import random
import sys
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field
from tests.tables import table

from golem_forge.core.calls import Caller
from golem_forge.tools.catalog import Catalog
from golem_forge.tools.factory import tool
from golem_forge.tools.inputs import SchemaInput
from golem_forge.tools.tool import Remote, Tool

VERBS = ["create", "delete", "list", "update", "search", "archive"]
NOUNS = {
    "event": "an event in a calendar",
    "invoice": "an invoice for a customer",
    "repository": "a source code repository",
    "message": "a message in a channel",
    "contact": "a contact in the address book",
    "ticket": "a support ticket",
}


def make(name: str, description: str = "", source: str = "custom", properties: Any = None, **options: Any) -> Tool:
    schema = {"type": "object", "properties": properties or {}}
    return Tool(name, description, input_schema=schema, execute=lambda args: "", source=source, **options)


def catalog_of_36() -> Catalog:
    tools = [make(f"{verb}_{noun}", f"{verb.capitalize()} {text}.") for verb in VERBS for noun, text in NOUNS.items()]
    random.Random(3).shuffle(tools)
    return Catalog(tools)


def found(catalog: Catalog, query: str, limit: int = 5, **options: Any) -> list[str]:
    return [one.name for one in catalog.search(query, limit, **options)]


@table(
    ("query", "first"),
    [
        ("create calendar event", "create_event"),
        ("delete_invoice", "delete_invoice"),
        ("DELETE-INVOICE", "delete_invoice"),
        ("archive support tickets", "archive_ticket"),
        ("list repositories", "list_repository"),
        ("searchContact", "search_contact"),
        ("update message", "update_message"),
    ],
)
def test_31_the_tool_that_was_meant_comes_first(query: str, first: str) -> None:
    assert found(catalog_of_36(), query)[0] == first


def test_31_an_exact_name_is_always_first_whatever_the_others_say() -> None:
    loud = [make(f"t{n}", "note note note note") for n in range(50)]
    catalog = Catalog([*loud, make("note", "x"), make("note_note_note", "note note")])
    assert found(catalog, "note")[0] == "note"
    assert found(catalog, "NOTE")[0] == "note"


def test_a_servers_tool_is_found_by_its_name_there() -> None:
    catalog = Catalog([make("other__list_issues_all", source="mcp"), make("hub__list_issues", source="mcp")])
    assert found(catalog, "list_issues")[0] == "hub__list_issues"
    assert found(catalog, "List-Issues")[0] == "hub__list_issues"
    assert found(catalog, "hub__list_issues") == ["hub__list_issues", "other__list_issues_all"]


def test_a_name_that_only_begins_with_the_query_comes_last() -> None:
    catalog = Catalog([make("other", "a git push"), make("git_push", "x"), make("gitter", "y")])
    assert found(catalog, "git") == ["git_push", "other", "gitter"]
    assert found(catalog, "gitt") == ["gitter"]


def test_repeating_a_word_makes_no_tool_more_important_than_one_named_so() -> None:
    catalog = Catalog([make("loud", "deploy " * 400), make("deploy_app", "Brings a version to the servers.")])
    assert found(catalog, "deploy") == ["deploy_app", "loud"]


def test_a_raw_name_is_exact_however_the_tool_is_called() -> None:
    odd = make("srv__x_y_0a1b2c3d", "Odd.", source="mcp", remote=Remote("srv", "X.y"))
    catalog = Catalog([make("srv__x_y_z", "x y x y", source="mcp"), odd, make("x", "x y"), make("y", "x y")])
    for spelled in ("X.y", "x.Y", "srv__X.y", "srv__x_y_0a1b2c3d"):
        assert found(catalog, spelled)[0] == odd.name, spelled


def test_of_two_that_are_spelled_alike_the_very_one_comes_first() -> None:
    catalog = Catalog([make("a-b", "b"), make("a_b", "a b a b"), make("s__a_b", source="mcp")])
    assert found(catalog, "a-b")[0] == "a-b"
    assert found(catalog, "A_B")[0] == "a_b"


def test_a_name_within_a_sentence_is_found() -> None:
    others = [make(f"s__create_issue_{word}", "Create an issue.", source="mcp") for word in ("type", "label", "link")]
    catalog = Catalog([*others, make("hub__create_issue", "Files one.", source="mcp")])
    assert found(catalog, "use hub__create_issue to create an issue")[0] == "hub__create_issue"


def test_words_that_say_nothing_count_only_by_themselves() -> None:
    catalog = Catalog([make("alpha", "Which of the things"), make("beta", "Sends invoices")])
    assert found(catalog, "which of the invoices") == ["beta"]
    assert found(catalog, "which") == ["alpha"]


OKAPI = {"type": "object", "properties": {"okapi": {"type": "string"}}}


def test_parameters_count_from_every_way_of_declaring_them() -> None:
    class Model(BaseModel):
        zeppelin: Annotated[str, Field(description="An airship")]

    @tool
    def by_signature(quokka: Annotated[str, "A small marsupial"]) -> str:
        """Does things."""
        return ""

    @tool
    def by_docstring(x: int) -> str:
        """Does things.

        Args:
            x: the wombat to count
        """
        return ""

    catalog = Catalog(
        [
            by_signature,
            by_docstring,
            Tool("by_model", "Things.", input_schema=Model, execute=lambda args: ""),
            Tool("by_lazy_model", "Things.", input_schema=lambda: Model, execute=lambda args: ""),
            Tool("by_lazy_schema", "Things.", input_schema=lambda: SchemaInput(OKAPI), execute=lambda args: ""),
            make("by_schema", "Things.", properties={"axolotl": {"type": "string", "description": "An amphibian"}}),
        ]
    )
    assert found(catalog, "quokka") == found(catalog, "marsupials") == ["by_signature"]
    assert found(catalog, "wombat") == ["by_docstring"]
    assert found(catalog, "zeppelin") == found(catalog, "airship") == ["by_model", "by_lazy_model"]
    assert found(catalog, "okapi") == ["by_lazy_schema"]
    assert found(catalog, "axolotl") == found(catalog, "amphibian") == ["by_schema"]


def test_searching_builds_no_schema() -> None:
    @tool
    def lazy(number: int) -> str:
        """A lazy tool."""
        return ""

    assert found(Catalog([lazy]), "lazy number") == ["lazy"]
    assert "input" not in lazy.__dict__


def test_only_what_the_caller_may_call() -> None:
    catalog = Catalog([make("deploy_app", mode="manual"), make("deploy_status", mode="llm")])
    assert found(catalog, "deploy", caller=Caller.LLM) == ["deploy_status"]
    assert found(catalog, "deploy_app", caller=Caller.LLM) == ["deploy_status"]
    assert found(catalog, "deploy", caller=Caller.HUMAN) == ["deploy_app"]
    assert catalog.find("deploy", 1).total == 2
    assert catalog.find("deploy", 1, Caller.MCP).total == 1


def test_the_index_follows_the_catalog() -> None:
    catalog = Catalog([make("first", "about whales")])
    assert found(catalog, "whale") == ["first"]
    catalog.add(make("second", "whales too"))
    catalog.add(make("first", "about birds"), replace=True)
    assert found(catalog, "whale") == ["second"]
    catalog.remove("second")
    assert found(catalog, "whale") == []
    assert found(catalog, "bird") == ["first"]


@table("query", ["", "   ", "___", "!?", "\x00", "\ud800", "é" * 5000, "nothing like this"])
def test_a_query_without_a_match_gives_nothing(query: str) -> None:
    catalog = catalog_of_36()
    assert catalog.find(query).total == 0
    assert catalog.search(query) == []


def test_a_limit_cuts_and_ties_are_ordered_by_name() -> None:
    catalog = Catalog([make(name, "same words") for name in ["d", "b", "a", "c"]])
    assert found(catalog, "words", 3) == ["a", "b", "c"]
    assert found(catalog, "words", 0) == []
    assert catalog.find("words", 2).total == 4


def test_the_best_are_exact_whatever_the_limit() -> None:
    source = random.Random(7)
    vocabulary = [f"word{n}" for n in range(30)]
    tools = [make(f"tool{n}", " ".join(source.choices(vocabulary, k=12))) for n in range(400)]
    catalog = Catalog(tools)
    for _ in range(20):
        query = " ".join(source.choices(vocabulary, k=3))
        whole = found(catalog, query, limit=sys.maxsize)
        assert found(catalog, query, limit=7) == whole[:7]
        assert len(whole) == catalog.find(query).total


# Five thousand tools with names like one another, and people who mistype


def each(text: str) -> list[str]:
    return text.split()


ACTS = each("create delete list update search archive fetch send cancel copy move validate count merge export")
THINGS = each(
    "invoice customer repository message contact ticket calendar payment shipment warehouse employee contract campaign "
    "document folder branch release pipeline incident dashboard subscription voucher product review supplier"
)
WAYS = each("draft history template summary permission attachment comment schedule owner backup label limit region")
MISTAKES = ("wrong", "missing", "doubled", "swapped")


@functools.cache
def five_thousand() -> list[Tool]:
    combined = [(act, thing, way) for act in ACTS for thing in THINGS for way in (*WAYS, "")]
    names = ["_".join(filter(None, parts)) for parts in combined][:5000]
    assert len(set(names)) == 5000
    tools = []
    for name in names:
        said = f"{name.replace('_', ' ').capitalize()} in the back office of a shop."
        tools.append(make(f"backoffice__{name}", said, source="mcp", remote=Remote("backoffice", name)))
    return tools


def mistyped(name: str, mistake: str, source: random.Random) -> str:
    at = source.choice([n for n in range(1, len(name) - 1) if name[n].isalpha() and name[n + 1].isalpha()])
    if mistake == "wrong":
        return name[:at] + source.choice("abcdefghijklmnopqrstuvwxyz".replace(name[at], "")) + name[at + 1 :]
    if mistake == "missing":
        return name[:at] + name[at + 1 :]
    if mistake == "doubled":
        return name[:at] + name[at] + name[at:]
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


def test_names_with_one_letter_wrong_are_found_among_five_thousand() -> None:
    """Whole, in words, and as their server calls them."""
    tools = five_thousand()
    catalog, source = Catalog(tools), random.Random(16)
    drawn = [one.name for one in source.sample(tools, 5)]
    spellings = [str, lambda name: name.replace("_", " "), lambda name: name.rpartition("__")[2]]
    for mistake in MISTAKES:
        for spelled in spellings:
            hits = sum(name in found(catalog, mistyped(spelled(name), mistake, source)) for name in drawn)
            assert hits / len(drawn) >= 0.9, (mistake, hits)
    assert all(found(catalog, name)[0] == name for name in drawn)


def test_a_mistyped_word_of_a_description_is_found() -> None:
    catalog = catalog_of_36()
    queries = {f"{verb} {text}": f"{verb}_{noun}" for verb in VERBS for noun, text in NOUNS.items()}
    source = random.Random(4)
    for mistake in MISTAKES:
        hits = sum(found(catalog, mistyped(query, mistake, source), 1) == [name] for query, name in queries.items())
        assert hits / len(queries) >= 0.9, (mistake, hits)


@pytest.fixture(scope="module")
def back_office() -> Catalog:
    """One tool for each thing that is looked for, among five hundred others."""
    named = each(
        "delete_invoice create_ticket search_customer get_image list_folder update_user send_email run_pipeline "
        "stop_pipeline copy_file move_file save_report validate_contract count_order pay_card book_table"
    )
    noise = [one for one in five_thousand() if not one.name.endswith(tuple(named))][::10]
    return Catalog([*noise, *(make(one, f"{one.replace('_', ' ').capitalize()}.") for one in named)])


@table(
    ("query", "name"),
    [
        ("remove an invoice", "delete_invoice"),
        ("erase invoice", "delete_invoice"),
        ("drop_invoice", "delete_invoice"),
        ("get rid of an invoice", "delete_invoice"),
        ("make a ticket", "create_ticket"),
        ("new ticket", "create_ticket"),
        ("add a bug", "create_ticket"),
        ("find customers", "search_customer"),
        ("look up a customer", "search_customer"),
        ("query the clients", "search_customer"),
        ("show a picture", "get_image"),
        ("read photo", "get_image"),
        ("enumerate directories", "list_folder"),
        ("change a member", "update_user"),
        ("edit account", "update_user"),
        ("modify the person", "update_user"),
        ("publish a mail", "send_email"),
        ("post message", "send_email"),
        ("execute the pipeline", "run_pipeline"),
        ("launch pipeline", "run_pipeline"),
        ("kill the pipeline", "stop_pipeline"),
        ("cancel pipeline", "stop_pipeline"),
        ("duplicate document", "copy_file"),
        ("clone a file", "copy_file"),
        ("rename document", "move_file"),
        ("store a report", "save_report"),
        ("write report", "save_report"),
        ("verify a contract", "validate_contract"),
        ("test contract", "validate_contract"),
        ("how many orders", "count_order"),
        ("number of orders", "count_order"),
        ("charge a card", "pay_card"),
        ("reserve a table", "book_table"),
        ("remvoe an invoice", "delete_invoice"),
    ],
)
def test_an_ordinary_synonym_finds_the_tool(back_office: Catalog, query: str, name: str) -> None:
    assert name in found(back_office, query)


def test_the_word_itself_comes_before_its_synonyms() -> None:
    catalog = Catalog([make(f"{verb}_invoice", "An invoice.") for verb in ("delete", "erase", "remove", "void")])
    assert found(catalog, "remove the invoice")[0] == "remove_invoice"
    assert set(found(catalog, "remove the invoice")[:3]) == {"delete_invoice", "erase_invoice", "remove_invoice"}
    assert found(catalog, "remove_invoice")[0] == "remove_invoice"


def test_a_word_that_tools_have_is_not_taken_for_another() -> None:
    catalog = Catalog([make("mount", "A disk."), make("count_items", "Count."), make("set_user", "A user.")])
    assert found(catalog, "count") == ["count_items"]
