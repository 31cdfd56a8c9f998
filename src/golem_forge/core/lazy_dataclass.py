"""`dataclass(slots=True)` that costs little to define.

A dataclass of the library writes and compiles its methods when its module is imported, about a millisecond each. This
program defines hundreds and uses a few dozen in one run. Here the slots are made at once and each method when it is
first looked up, so importing a module costs what its functions cost (`make bench BENCH_ARGS="--only startup"`).

The rest is as in `dataclasses`, and its functions work on these classes too: `fields`, `replace`, `asdict`,
`is_dataclass`; `field`, `__post_init__`, pattern matching, the text of `repr`. Not here: `InitVar`, `order`, classes
without slots (`WithCache` has slots and cached properties); use the library's for those. The library is imported only
by whoever asks for fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, Literal, Never, TypeVar, cast, dataclass_transform, overload

if TYPE_CHECKING:
    import dataclasses

T = TypeVar("T")


class _Missing:
    def __repr__(self) -> str:
        return "<factory>"


MISSING: Final[Any] = _Missing()


class Field:
    __slots__ = ("compare", "default", "default_factory", "init", "kw_only", "name", "repr", "type")

    def __init__(self, default: Any, default_factory: Any, init: bool, repr: bool, compare: bool) -> None:
        self.name: str = ""
        self.type: Any = None
        self.kw_only: bool = False
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare = init, repr, compare


def field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
) -> Any:
    """Describes a field beyond its type. `default_factory` is called for each new object."""
    return Field(default, default_factory, init, repr, compare)


@overload
def dataclass(
    *, slots: Literal[True], frozen: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[type[T]], type[T]]: ...
@overload
def dataclass(cls: type[T], /) -> Never: ...


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    cls: Any = None, /, *, slots: bool = False, frozen: bool = False, kw_only: bool = False, eq: bool = True
) -> Any:
    """Works as `dataclasses.dataclass`; `slots=True` must be written, as a reader expects it of a class with slots."""
    if not slots:
        raise TypeError("this dataclass has slots: write slots=True, or take dataclasses.dataclass")
    return lambda cls: _make(cls, frozen, kw_only, eq)


def replace(original: T, /, **changes: Any) -> T:
    """An object like this one, but for `changes`. Fields that are no parameters of `__init__` are made anew."""
    every: Mapping[str, Field] | None = getattr(type(original), "__lazy_fields__", None)
    if every is None:
        from dataclasses import replace as replace_in_dataclass

        return cast(T, replace_in_dataclass(cast(Any, original), **changes))
    for name, each in every.items():
        if each.init and name not in changes:
            changes[name] = getattr(original, name)
    return type(original)(**changes)


class WithCache:
    """Base of a record with `cached_property`: beside its slots it has a `__dict__`, which no method looks at."""


def _make(cls: type[Any], frozen: bool, kw_only: bool, eq: bool) -> type[Any]:
    """The class with slots for its fields, and methods that are made when they are first looked up."""
    space = dict(cls.__dict__)
    every: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1:]):
        every.update(getattr(base, "__lazy_fields__", ()))
    own = []
    for name, annotation in space.get("__annotations__", {}).items():
        if "ClassVar" in (annotation if isinstance(annotation, str) else str(annotation)):
            continue
        default = space.pop(name, MISSING)
        made = default if isinstance(default, Field) else Field(default, MISSING, True, True, True)
        made.name, made.type, made.kw_only = name, annotation, kw_only
        if name not in every or not any(name in getattr(base, "__slots__", ()) for base in cls.__mro__[1:]):
            own.append(name)
        every[name] = made
    space["__slots__"] = tuple(own)
    space["__lazy_fields__"] = every
    space["__match_args__"] = tuple(name for name, each in every.items() if each.init and not each.kw_only)
    space.pop("__dict__", None)
    space.pop("__weakref__", None)
    lazy = [name for name in ("__init__", "__repr__", *(["__eq__"] if eq else [])) if name not in space]
    hashed = "__hash__" in space and space["__hash__"] is not None
    if eq and not hashed:
        space["__hash__"] = None
        if frozen:
            lazy.append("__hash__")
    if frozen:
        space |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete, "__setstate__": _set_state}
        space["__getstate__"] = _get_state
    makers = {name: _Lazy(name, frozen) for name in lazy}
    space |= makers
    space["__dataclass_fields__"] = _DATACLASS_FIELDS
    metaclass: Any = type(cls)
    made_class: type[Any] = metaclass(cls.__name__, cls.__bases__, space)
    made_class.__qualname__ = cls.__qualname__
    for maker in makers.values():
        maker.owner = made_class
    return made_class


class _Lazy:
    """A method that is made when it is first looked up, and then stands in its class as an ordinary function."""

    __slots__ = ("frozen", "name", "owner")

    def __init__(self, name: str, frozen: bool) -> None:
        self.name, self.frozen = name, frozen
        self.owner: type[Any] = object

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        function = _MAKERS[self.name](self.owner, self.frozen)
        function.__qualname__ = f"{self.owner.__qualname__}.{self.name}"
        function.__module__ = self.owner.__module__
        type.__setattr__(self.owner, self.name, function)
        return function.__get__(instance, owner)


def _make_init(cls: type[Any], frozen: bool) -> Any:
    """Each value goes to its slot; a frozen object is written through the slot itself, past `__setattr__`."""
    every: dict[str, Field] = cls.__lazy_fields__
    names: dict[str, Any] = {"MISSING": MISSING}
    positional: list[str] = []
    keywords: list[str] = []
    lines: list[str] = []
    for name, each in every.items():
        made = each.default_factory is not MISSING
        if made:
            names[f"make_{name}"] = each.default_factory
        if each.init:
            parameter = name
            if made:
                parameter = f"{name}=MISSING"
            elif each.default is not MISSING:
                names[f"default_{name}"] = each.default
                parameter = f"{name}=default_{name}"
            (keywords if each.kw_only else positional).append(parameter)
            value = f"make_{name}() if {name} is MISSING else {name}" if made else name
        elif made:
            value = f"make_{name}()"
        elif each.default is not MISSING:
            names[f"default_{name}"] = each.default
            value = f"default_{name}"
        else:
            continue
        if frozen:
            names[f"set_{name}"] = getattr(cls, name).__set__
            lines.append(f"    set_{name}(self, {value})")
        else:
            lines.append(f"    self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    exec(f"def __init__({parameters}):\n" + ("\n".join(lines) or "    pass"), names)  # noqa: S102 - of names only
    made_init = names["__init__"]
    made_init.__annotations__ = {name: each.type for name, each in every.items() if each.init} | {"return": "None"}
    return made_init


def _make_repr(cls: type[Any], frozen: bool) -> Any:
    shown = [name for name, each in cls.__lazy_fields__.items() if each.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    return __repr__


def _compared(cls: type[Any]) -> Callable[[Any], Any]:
    """Gives the values that two objects are compared by, as one value."""
    names = [name for name, each in cls.__lazy_fields__.items() if each.compare]
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda each: (get(each),)


def _make_eq(cls: type[Any], frozen: bool) -> Any:
    values = _compared(cls)

    def __eq__(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _make_hash(cls: type[Any], frozen: bool) -> Any:
    values = _compared(cls)

    def __hash__(self: object) -> int:
        return hash(values(self))

    return __hash__


_MAKERS: Final = {"__init__": _make_init, "__repr__": _make_repr, "__eq__": _make_eq, "__hash__": _make_hash}


class _DataclassFields:
    """Builds `__dataclass_fields__` when first asked for, so that the functions of `dataclasses` work."""

    def __get__(self, instance: object, owner: type[Any]) -> dict[str, dataclasses.Field[Any]]:
        import dataclasses

        made = {}
        for name, each in owner.__lazy_fields__.items():
            options = {"init": each.init, "repr": each.repr, "compare": each.compare, "kw_only": each.kw_only}
            if each.default is not MISSING:
                options["default"] = each.default
            if each.default_factory is not MISSING:
                options["default_factory"] = each.default_factory
            made[name] = dataclasses.field(**options)
            made[name].name, made[name].type = name, each.type
            made[name]._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
        type.__setattr__(owner, "__dataclass_fields__", made)
        return made


_DATACLASS_FIELDS: Final = _DataclassFields()


def _refuse_set(self: object, name: str, value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__lazy_fields__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__lazy_fields__, state, strict=True):
        object.__setattr__(self, name, value)
