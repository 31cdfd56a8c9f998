"""What a person is shown of a server's question, and what of their answer is sent: nothing that the schema forbids."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from tests.tables import table

from golem_forge.config.mcp_spec import ServerSpec
from golem_forge.events.redaction import Redactor
from golem_forge.mcp import sdk
from golem_forge.mcp.client.active_calls import ActiveCall, ServerRequests
from golem_forge.mcp.client.model import ElicitationForm, FormAnswer, Hooks
from golem_forge.tools.context import ToolContext

SPEC = ServerSpec(name="asker", scope="", origin="forge.yaml:1", command="x")
CONTEXT: Any = SimpleNamespace(request_id="the question")


class Person:
    """Gives the answers in turn, and remembers the forms."""

    def __init__(self, *answers: FormAnswer) -> None:
        self.answers = list(answers)
        self.forms: list[ElicitationForm] = []

    async def ask(self, form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        self.forms.append(form)
        return self.answers.pop(0) if self.answers else FormAnswer()


def accept(**values: Any) -> FormAnswer:
    return FormAnswer(action="accept", values=values)


async def asked(person: Person, params: Any, redactor: Redactor | None = None) -> sdk.ElicitResult | sdk.ErrorData:
    requests = ServerRequests(SPEC, Hooks(ask_form=person.ask), lambda: [ActiveCall(ToolContext(), "tool")], redactor)
    return await requests.elicitation(CONTEXT, params)


async def form(person: Person, properties: Any, required: Iterable[str] = (), message: str = "Please") -> Any:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return await asked(person, sdk.ElicitRequestFormParams(message=message, requested_schema=schema))


async def page(person: Person, url: str, message: str = "Please") -> Any:
    return await asked(person, sdk.ElicitRequestURLParams(message=message, url=url, elicitation_id="1"))


EVERY_KIND = {
    "name": {"type": "string", "title": "Your name", "minLength": 1},
    "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
    "count": {"type": "integer", "minimum": 1, "maximum": 9},
    "sure": {"type": "boolean"},
    "many": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
}


async def test_fields_of_every_kind_become_a_form_and_values() -> None:
    person = Person(accept(name="Ada", colour="g", count=3, sure=False, many=["a"]))
    said = await form(person, EVERY_KIND, ["name"])
    assert said.action == "accept"
    assert said.content == {"name": "Ada", "colour": "g", "count": 3, "sure": False, "many": ["a"]}
    fields = {field["name"]: field for field in person.forms[0].fields}
    assert [field["type"] for field in fields.values()] == ["text", "select", "number", "boolean", "multiselect"]
    assert fields["name"]["label"] == "Your name" and fields["name"]["required"]
    assert fields["colour"]["options"] == [{"value": "r", "label": "Red"}, {"value": "g", "label": "Green"}]


async def test_the_question_is_called_what_the_server_calls_it() -> None:
    person = Person(accept(name="Ada"))
    await form(person, {"name": {"type": "string"}})
    assert person.forms[0].key == "the question"


async def test_what_was_left_empty_takes_the_proposed_value() -> None:
    properties = {
        "name": {"type": "string", "default": "John"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "sure": {"type": "boolean", "default": False},
        "other": {"type": "string"},
    }
    said = await form(Person(accept(age=41)), properties, ["name"])
    assert said.content == {"name": "John", "age": 41, "score": 95.5, "sure": False}


async def test_a_wrong_value_is_asked_for_again_with_the_reason_and_never_sent() -> None:
    person = Person(accept(name="Ada", count=10), accept(name="Ada", count=9))
    said = await form(person, EVERY_KIND)
    assert said.content == {"name": "Ada", "count": 9}
    again = {field["name"]: field for field in person.forms[1].fields}
    assert "9" in again["count"]["error"] and again["name"]["default"] == "Ada"
    assert "error" not in again["name"]


async def test_who_never_sends_what_is_allowed_cancels() -> None:
    person = Person(*[accept(count=10)] * 50)
    said = await form(person, EVERY_KIND)
    assert (said.action, said.content) == ("cancel", None)
    assert len(person.forms) == 10


async def test_values_of_fields_that_were_not_asked_for_are_not_sent() -> None:
    said = await form(Person(accept(name="Ada", secret="canary")), EVERY_KIND)
    assert said.content == {"name": "Ada"}


@table("action", ["decline", "cancel", "", "ACCEPT"])
async def test_everything_but_accept_sends_no_values(action: str) -> None:
    said = await form(Person(FormAnswer(action=action, values={"name": "canary"})), EVERY_KIND)
    assert said.action == ("decline" if action == "decline" else "cancel") and said.content is None


HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")


async def test_hidden_and_steering_characters_are_made_visible() -> None:
    person = Person()
    texts = {"type": "string", "title": "a\x1b[2Jb", "description": f"c{HIDDEN}"}
    await form(person, {"x": texts, "y": {"oneOf": [{"const": "1", "title": "\u202eone"}]}}, message=f"Hi{HIDDEN}\x07")
    shown = repr(person.forms[0])
    assert all(character not in shown for character in (HIDDEN[0], "\x1b", "\u202e", "\x07"))
    assert person.forms[0].fields[0]["label"] == "a\\x1b[2Jb"


async def test_a_long_message_is_cut_and_says_so() -> None:
    person = Person()
    await form(person, {"x": {"type": "string"}}, message="é" * 100_000)
    message = person.forms[0].message
    assert len(message.encode()) < 4200 and message.endswith("bytes more]")


@table(
    "schema",
    [
        {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(51)}},
        {"type": "object", "properties": {"x": {"type": "string", "description": "d" * 70_000}}},
        {"type": "object", "properties": {"x": {"type": "object", "properties": {"y": {"type": "string"}}}}},
        {"type": "object", "properties": {"x": {"$ref": "https://evil.test/schema.json"}}},
        {"type": "object", "properties": {"x": {"type": 5}}},
        {"type": "object", "properties": {"na\u202eme": {"type": "string"}}},
        {"type": "object", "properties": {"x": {"type": "string", "default": f"yes{HIDDEN}"}}},
        {"type": "object", "properties": {"x": {"enum": ["a", f"b{HIDDEN}"]}}},
        {"type": "object", "properties": {"x": {"enum": [["a"], ["b"]]}}},
        {"type": "string"},
        {},
    ],
)
async def test_what_is_no_form_is_refused_and_nobody_is_asked(schema: dict[str, Any]) -> None:
    person = Person(accept())
    said = await asked(person, sdk.ElicitRequestFormParams(message="x", requested_schema=schema))
    assert isinstance(said, sdk.ErrorData) and said.code == -32602 and said.message.startswith("requestedSchema: ")
    assert person.forms == []


async def test_fifty_fields_are_a_form() -> None:
    person = Person()
    await form(person, {f"f{number}": {"type": "string"} for number in range(50)})
    assert len(person.forms[0].fields) == 50


@table("action", ["accept", "decline", "cancel"])
async def test_a_page_is_shown_with_its_host_and_only_agreed_to(action: str) -> None:
    person = Person(FormAnswer(action=action, values={"x": "y"}))
    said = await page(person, "https://login.example:8443/start?a=b")
    assert (said.action, said.content) == (action, None)
    shown = person.forms[0]
    assert shown.url == "https://login.example:8443/start?a=b" and "login.example:8443" in shown.message
    assert shown.fields == ()


@table("url", ["http://127.0.0.1:8000/x", "http://localhost/x", "http://[::1]:9/x"])
async def test_loopback_needs_no_tls(url: str) -> None:
    assert (await page(Person(FormAnswer(action="accept")), url)).action == "accept"


@table(
    "url",
    [
        "http://example.com/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://good.example@evil.test/",
        "https://good.example\\@evil.test/",
        "https://exаmple.com/",
        "https://x.test/\u202egnp",
        "https://x.test/\x1b[2J",
        "https://",
        "https://x.test/" + "a" * 5000,
    ],
)
async def test_a_url_that_could_be_misread_is_refused_and_never_shown(url: str) -> None:
    person = Person(FormAnswer(action="accept"))
    said = await page(person, url)
    assert isinstance(said, sdk.ErrorData) and person.forms == []


async def test_a_question_that_breaks_on_our_side_tells_the_server_nothing() -> None:
    async def broken(form: ElicitationForm, ctx: ToolContext) -> FormAnswer:
        raise RuntimeError("canary /home/person")

    flight = ActiveCall(ToolContext(), "tool")
    params = sdk.ElicitRequestFormParams(
        message="x", requested_schema={"type": "object", "properties": {"x": {"type": "string"}}}
    )
    said = await ServerRequests(SPEC, Hooks(ask_form=broken), lambda: [flight]).elicitation(CONTEXT, params)
    assert isinstance(said, sdk.ErrorData) and said.message == "elicitation could not be answered"


TEXT = {"type": "string"}


@table(
    ("name", "field", "typed", "learned"),
    [
        ("pass", TEXT | {"format": "password"}, "open sesame", True),
        ("code", TEXT | {"writeOnly": True}, "open sesame", True),
        ("accessToken", TEXT, "open sesame", True),
        ("k", TEXT | {"title": "API key"}, "open sesame", True),
        ("passcode", {"type": "integer"}, 90817263, True),
        ("tokens", {"type": "array", "items": TEXT | {"title": "Token"}, "title": "Secret"}, ["open sesame"], True),
        ("password", TEXT, "short", False),
        ("city", TEXT, "open sesame", False),
        ("password", TEXT | {"default": "sesame"}, "sesame", False),
        ("password", TEXT | {"enum": ["sesame", "other!"]}, "sesame", False),
    ],
)
async def test_what_a_person_types_as_a_secret_is_learned_and_what_the_server_proposes_is_not(
    name: str, field: dict[str, Any], typed: Any, learned: bool
) -> None:
    redactor, person = Redactor(), Person(accept(**{name: typed}))
    schema = {"type": "object", "properties": {name: field}}
    said: Any = await asked(person, sdk.ElicitRequestFormParams(message="?", requested_schema=schema), redactor)
    assert said.content == {name: typed}, "the server has it"
    shown = typed[0] if isinstance(typed, list) else str(typed)
    assert redactor.text(f"it is {shown}") == ("it is [secret asker]" if learned else f"it is {shown}")


async def test_a_form_that_was_not_sent_teaches_nothing() -> None:
    redactor, person = Redactor(), Person(FormAnswer(action="decline", values={"password": "open sesame"}))
    schema = {"type": "object", "properties": {"password": TEXT}}
    await asked(person, sdk.ElicitRequestFormParams(message="?", requested_schema=schema), redactor)
    assert not redactor.secrets
