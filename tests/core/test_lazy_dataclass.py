"""The dataclass whose methods are made at their first use does what the library's does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import pytest

from golem_forge.core import lazy_dataclass

KINDS = {
    "library": (dataclasses.dataclass, dataclasses.field, dataclasses.replace),
    "lazy": (lazy_dataclass.dataclass, lazy_dataclass.field, lazy_dataclass.replace),
}


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: int = 2


class Shapes:
    """The same classes, made by one of the two."""

    def __init__(self, kind: str) -> None:
        dataclass, field, self.replace = KINDS[kind]

        @dataclass(frozen=True, slots=True, kw_only=True)
        class Frozen:
            number: int
            text: str = "x"
            items: list[int] = field(default_factory=list)
            quiet: str = field(default="q", repr=False, compare=False)
            SHARED: ClassVar[int] = 7

            def twice(self) -> int:
                return self.number * 2

        @dataclass(frozen=True, slots=True, kw_only=True)
        class Child(Frozen):
            text: str = "other"
            more: tuple[int, ...] = ()

        @dataclass(slots=True)
        class Open:
            first: int
            second: int = 2
            third: int = field(init=False, default=3)

            def __post_init__(self) -> None:
                self.third = self.first + self.second

        @dataclass(slots=True, eq=False)
        class ByIdentity:
            value: int

        @dataclass(frozen=True, slots=True)
        class OwnText:
            value: int

            def __repr__(self) -> str:
                return f"<{self.value}>"

            def __hash__(self) -> int:
                return 5

        self.frozen, self.child, self.open, self.by_identity, self.own_text = Frozen, Child, Open, ByIdentity, OwnText


@pytest.fixture(params=list(KINDS))
def shapes(request: pytest.FixtureRequest) -> Any:
    return Shapes(request.param)


def test_values_defaults_and_text(shapes: Any) -> None:
    one = shapes.frozen(number=1)
    assert (one.number, one.text, one.items, one.quiet, one.SHARED, one.twice()) == (1, "x", [], "q", 7, 2)
    assert repr(one).endswith("Frozen(number=1, text='x', items=[])")
    assert repr(shapes.child(number=1)).endswith("Child(number=1, text='other', items=[], more=())")
    assert repr(shapes.own_text(3)) == "<3>" and hash(shapes.own_text(3)) == 5
    assert shapes.frozen(number=1).items is not shapes.frozen(number=2).items


def test_the_signature_and_wrong_arguments(shapes: Any) -> None:
    parameters = inspect.signature(shapes.frozen).parameters
    assert list(parameters) == ["number", "text", "items", "quiet"]
    assert {each.kind for each in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert str(inspect.signature(shapes.open)).startswith("(first: 'int', second: 'int' = 2)")
    assert str(parameters["items"].default) == "<factory>"
    for wrong in ({}, {"number": 1, "nothing": 2}):
        with pytest.raises(TypeError, match=r"Frozen\.__init__\(\)"):
            shapes.frozen(**wrong)


def test_equality_and_hash(shapes: Any) -> None:
    assert shapes.frozen(number=1) == shapes.frozen(number=1, quiet="z") != shapes.frozen(number=2)
    assert shapes.frozen(number=1) != shapes.child(number=1)
    same = [hash(shapes.child(number=1, items=())) for _ in range(2)]
    assert same[0] == same[1]
    assert shapes.by_identity(1) != shapes.by_identity(1) and isinstance(hash(shapes.by_identity(1)), int)
    with pytest.raises(TypeError, match="unhashable"):
        hash(shapes.open(1))


def test_frozen_stays_frozen_and_slots_take_nothing_else(shapes: Any) -> None:
    one = shapes.frozen(number=1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="number"):
        one.number = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="text"):
        del one.text
    opened = shapes.open(1)
    opened.second = 9
    assert (opened.second, opened.third) == (9, 3)
    with pytest.raises(AttributeError):
        opened.nothing = 1
    assert not hasattr(opened, "__dict__")


def test_the_functions_of_the_library_work_on_it(shapes: Any) -> None:
    one = shapes.child(number=1, items=[2])
    assert dataclasses.is_dataclass(shapes.child)
    assert [each.name for each in dataclasses.fields(one)] == ["number", "text", "items", "quiet", "more"]
    assert dataclasses.asdict(one) == {"number": 1, "text": "other", "items": [2], "quiet": "q", "more": ()}
    for replace in (dataclasses.replace, shapes.replace):
        assert replace(one, number=5) == shapes.child(number=5, items=[2])
        assert replace(shapes.open(1), first=2).third == 4
    for copied in (copy.copy(one), copy.deepcopy(one)):
        assert copied == one and type(copied) is type(one)


def test_replace_takes_a_dataclass_of_the_library_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Theirs:
        value: int

    assert lazy_dataclass.replace(Theirs(1), value=2) == Theirs(2)


def test_patterns_match_by_position(shapes: Any) -> None:
    match shapes.open(1, 5):
        case shapes.open(first, second):
            assert (first, second) == (1, 5)
        case _:
            raise AssertionError("no match")
    assert shapes.frozen.__match_args__ == ()


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pair(1))) == Pair(1)


def test_slots_must_be_written_out() -> None:
    with pytest.raises(TypeError, match="slots=True"):
        lazy_dataclass.dataclass(frozen=True)(type("Plain", (), {}))  # type: ignore[call-overload]


def test_defining_one_compiles_nothing() -> None:
    """The methods come at their first use, and the library with the first question about fields."""
    code = (
        "import sys, builtins\n"
        "from golem_forge.core.lazy_dataclass import dataclass\n"
        "ran = []; whole = builtins.exec\n"
        "builtins.exec = lambda *given: (ran.append(1), whole(*given))\n"
        "class Plain:\n    value: int\n"
        "made = dataclass(slots=True)(Plain)\n"
        "print(len(ran), 'dataclasses' in sys.modules)\n"
        "made(1); made(2)\n"
        "print(len(ran), 'dataclasses' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=_source_only())
    assert done.stdout.split() == ["0", "False", "1", "False"], done.stderr


def _source_only() -> dict[str, str]:
    import golem_forge

    return {"PYTHONPATH": str(golem_forge.__path__[0]).removesuffix("/golem_forge")}
