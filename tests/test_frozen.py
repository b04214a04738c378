"""Values that never change say so in a sentence of ours, whatever attribute it is."""

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import samebits as sb
from samebits import layout, memory
from samebits.kernels.gemm import PackedMatrix
from samebits.verification.report import Verification

X = np.ones((2, 2), np.float32)
T = sb.Tensor.zeros((2, 3))
VALUES: list[Any] = [
    T, T.layout, T.dtype, T.device, T.export("numpy"), sb.Spec(), sb.isas()[0], sb.plan_matmul(X, X), sb.pack(X),
    layout.TiledLayout((4,), ((2, 2),), ((8, 16),), 0, 8), layout.Swizzle(1, 4, 3), memory.HOST.statistics,
    layout.TmaViolation("a", "b", "c", "d", "e"), Verification((), (), None, (), (), 1),
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
