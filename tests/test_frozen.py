"""Values that never change say so in a sentence of ours, whatever attribute it is."""

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pytest

import samebits as sb
from samebits import frozen, layout, memory
from samebits.kernels.gemm import PackedMatrix
from samebits.verification.report import Verification

X = np.ones((2, 2), np.float32)
Q = sb.quantize(np.ones((2, 16), np.float32), "nvfp4")
T = sb.Tensor.zeros((2, 3))
VALUES: list[Any] = [
    T, T.layout, T.dtype, T.device, T.export("numpy"), sb.Spec(), sb.isas()[0], sb.plan_matmul(X, X), sb.pack(X),
    layout.TiledLayout((4,), ((2, 2),), ((8, 16),), 0, 8), layout.Swizzle(1, 4, 3), memory.HOST.statistics,
    layout.TmaViolation("a", "b", "c", "d", "e"), Verification((), (), None, (), (), 1),
    Q, Q.format, Q.dialect, sb.report(np.ones((2, 16), np.float32), Q),
]  # fmt: skip


def test_every_public_value_that_never_changes_is_here() -> None:
    public = [getattr(sb, name) for name in sb.__all__]
    public += [getattr(room, name) for room in (layout, memory) for name in room.__all__]
    frozen = {x for x in public if dataclasses.is_dataclass(x) and isinstance(x, type) and hasattr(x, "__slots__")}
    assert frozen == {type(x) for x in VALUES}


@pytest.mark.parametrize("value", VALUES, ids=lambda x: type(x).__name__)
def test_no_attribute_can_be_set_or_deleted(value: Any) -> None:
    kind = type(value).__name__
    names = [field.name for field in dataclasses.fields(value)]
    for name in (*names, "nonesuch", "__class__", "shape"):
        for done, change in (
            ("set", lambda name=name: setattr(value, name, 1)),
            ("deleted", lambda name=name: delattr(value, name)),
        ):
            with pytest.raises(sb.FrozenError) as caught:
                change()
            assert isinstance(caught.value, AttributeError)
            due = f"{kind}: attribute {name!r} is {done}, must be left as it is; make another {kind}"
            assert str(caught.value) == due


def test_copies_and_pickles_are_made_all_the_same() -> None:
    for value in VALUES:
        assert type(copy.copy(value)) is type(value)
        if not isinstance(value, sb.Plan):  # whose kernels are text of functions
            assert type(pickle.loads(pickle.dumps(value))) is type(value)
    assert isinstance(pickle.loads(pickle.dumps(sb.pack(X))), PackedMatrix)


_T = TypeVar("_T")
_MAKERS: list[Any] = [dataclasses.dataclass, frozen.dataclass]


def _pair() -> list[Any]:
    """One class, as the standard decorator makes it and as ours does."""
    found = []
    for made in _MAKERS:

        @made(frozen=True, slots=True)
        class Pair(Generic[_T]):
            """Two values."""

            first: _T
            second: "tuple[int, ...]" = ()
            count: ClassVar[int] = 3

        found.append(Pair)
    return found


def test_a_class_is_what_the_standard_decorator_makes() -> None:
    standard, ours = _pair()
    assert inspect.signature(ours) == inspect.signature(standard)
    assert [(x.name, x.default) for x in dataclasses.fields(ours)] == [
        (x.name, x.default) for x in dataclasses.fields(standard)
    ]
    assert ours.__slots__ == standard.__slots__ == ("first", "second")
    assert ours.__match_args__ == standard.__match_args__
    assert ours.__init__.__annotations__ == standard.__init__.__annotations__
    assert ours.__init__.__qualname__ == standard.__init__.__qualname__
    for name in ("__eq__", "__hash__"):
        assert frozen.own_method(ours, name).__globals__ is globals()
        assert frozen.own_method(ours, name) is getattr(ours, name)
    assert not hasattr(ours(1), "__dict__")
    assert repr(ours(1, (2,))) == repr(standard(1, (2,)))
    assert hash(ours(1, (2,))) == hash(standard(1, (2,)))
    assert dataclasses.asdict(ours(1)) == dataclasses.asdict(standard(1))
    for replace in (dataclasses.replace, frozen.replace):
        assert replace(ours(1), second=(5,)) == ours(1, (5,)) == ours(second=(5,), first=1)
        assert replace(standard(1), first=None) == standard(None)
        with pytest.raises(TypeError, match="nonesuch"):
            replace(ours(1), nonesuch=1)


def test_values_are_equal_where_all_fields_are_and_the_class_is_the_same() -> None:
    standard, ours = _pair()
    assert ours(1, (2,)) == ours(1, (2,))
    assert ours(1, (2,)) != ours(1, (3,))
    assert ours(1) != standard(1)
    assert ours(1).__eq__((1, ())) is NotImplemented
    nan = float("nan")
    assert ours(nan) == ours(nan)  # as tuples are


def test_methods_that_a_class_has_are_kept() -> None:
    for made in _MAKERS:

        @made(frozen=True, slots=True)
        class Named:
            name: str
            length: int = 0

            def __post_init__(self) -> None:
                object.__setattr__(self, "length", len(self.name))

            def __hash__(self) -> int:
                return 7

            def __repr__(self) -> str:
                return self.name

        @made(frozen=True, slots=True)
        class Loose:
            x: int

            def __eq__(self, other: object) -> bool:
                return True

        assert (repr(Named("abc")), hash(Named("abc")), Named("abc").length) == ("abc", 7, 3)
        assert Named("abc") == Named("abc") != Named("abd")
        assert Loose(1) == 5
        assert hash(Loose(1)) == hash((1,))


def test_what_is_not_wanted_is_not_made() -> None:
    for made in _MAKERS:

        @made(frozen=True, slots=True, eq=False, repr=False, init=False)
        class Bare:
            x: int

        assert Bare() != Bare()
        assert Bare.__init__ is object.__init__
        assert Bare.__repr__ is object.__repr__
        assert Bare.__hash__ is object.__hash__


@frozen.dataclass(frozen=True, slots=True)
class Base:
    x: int
    y: int = 2


@frozen.dataclass(frozen=True, slots=True)
class Wider(Base):
    z: int = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Foreign(Base):
    z: int = 3


@pytest.mark.parametrize("wide", [Wider, Foreign])
def test_a_class_may_have_the_fields_of_a_base_that_never_changes(wide: Any) -> None:
    value = wide(1, z=5)
    assert [x.name for x in dataclasses.fields(wide)] == ["x", "y", "z"]
    assert (wide.__slots__, repr(value)) == (("z",), f"{wide.__name__}(x=1, y=2, z=5)")
    assert value == wide(1, 2, 5) != wide(1)
    assert Base(1) != wide(1)
    assert dataclasses.replace(value, x=4) == wide(4, 2, 5)
    assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(AttributeError):
        value.y = 3
    wider = Wider(1, z=5)
    assert frozen.replace(wider, y=7) == Wider(1, 7, 5)
    assert frozen.replace(wider, z=8) == Wider(1, 2, 8)


def test_a_class_says_of_itself_how_it_was_made() -> None:
    for given in ({}, {"init": False}, {"eq": False}, {"repr": False}):
        found = []
        for made in _MAKERS:

            @made(frozen=True, slots=True, **given)
            class Value:
                x: int

            found.append(repr(Value.__dataclass_params__))  # type: ignore[attr-defined]
        assert found[0] == found[1]


def test_a_traceback_shows_no_line_that_did_not_run() -> None:
    with pytest.raises(sb.OptionError) as caught:
        sb.Spec(segments=3)
    names = {str(entry.path) for entry in caught.traceback}
    assert frozen.__file__ not in names
    assert "<samebits.frozen>" in names


def test_fields_in_a_wrong_order_or_of_other_kinds() -> None:
    for made in _MAKERS:
        with pytest.raises(TypeError, match="default"):

            @made(frozen=True, slots=True)
            class Wrong:
                x: int = 1
                y: int

        @made(frozen=True, slots=True)
        class Kept:
            x: int
            held: list[int] = dataclasses.field(default_factory=list, compare=False)

        @made(slots=True)
        class Loose:
            x: int

        assert Kept(1, [1]) == Kept(1) != Kept(2)
        assert Kept(1).held == []
        with pytest.raises(AttributeError):
            Kept(1).x = 2  # type: ignore[misc]
        loose = Loose(1)
        loose.x = 2
        assert loose.x == 2


def test_an_argument_too_few_or_too_many_is_a_type_error_that_names_the_class() -> None:
    _, ours = _pair()
    for given in ((), (1, (), 2)):
        with pytest.raises(TypeError, match=r"Pair\.__init__\(\)"):
            ours(*given)
    with pytest.raises(TypeError, match="nonesuch"):
        ours(1, nonesuch=2)


def _small() -> Any:
    @frozen.dataclass(frozen=True, slots=True)
    class Small:
        first: int
        second: int = 2

    return Small


def test_what_is_raised_while_a_method_is_made_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = _small()
    left, right = kind(1), kind(1)

    def interrupted(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(frozen, "_comparing", interrupted)
        for asked in (lambda: left == right, lambda: hash(left)):
            with pytest.raises(KeyboardInterrupt):
                asked()
    assert left == right
    assert hash(left) == hash(right)


def test_a_method_that_another_thread_has_made_meanwhile_is_found() -> None:
    kind = _small()
    late = vars(kind)["__init__"]
    value = kind(1)
    assert vars(kind)["__init__"] is not late
    late.__get__(value, kind)(1)
    assert [frozen._equal(value, kind(1)), frozen._equal(value, kind(1))] == [True, True]
    assert frozen._hashed(value) == frozen._hashed(kind(1))
