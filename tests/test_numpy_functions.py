"""NumPy's functions on Tensors: what moves, compares or stores gives NumPy's answer, what computes is refused."""

from __future__ import annotations

import inspect
import io
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import samebits as sb
from samebits import numpy_functions

F32 = np.float32
ARRAY = np.arange(12, dtype=F32).reshape(3, 4)


def tensor() -> sb.Tensor:
    return sb.Tensor.from_any(ARRAY.copy())


def written(store: Callable[..., Any], x: Any) -> bytes:
    file = io.BytesIO()
    store(file, x)
    return file.getvalue()


def changed(write: Callable[[Any], Any], x: Any) -> Any:
    """x after something was written into it."""
    write(x)
    return np.asarray(x)


# What moves, compares or stores, by NumPy's name; each is called with a Tensor and with its array.
TAKEN: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: np.reshape(x, (4, 3)), "ravel": np.ravel, "transpose": np.transpose,
    "permute_dims": lambda x: np.permute_dims(x, (1, 0)), "matrix_transpose": np.matrix_transpose,
    "swapaxes": lambda x: np.swapaxes(x, 0, 1), "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "rollaxis": lambda x: np.rollaxis(x, 1), "expand_dims": lambda x: np.expand_dims(x, 0),
    "squeeze": lambda x: np.squeeze(x[:1]), "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, x[0]), "atleast_1d": np.atleast_1d,
    "atleast_2d": np.atleast_2d, "atleast_3d": np.atleast_3d, "flip": np.flip, "fliplr": np.fliplr,
    "flipud": np.flipud, "rot90": np.rot90, "roll": lambda x: np.roll(x, 1), "tile": lambda x: np.tile(x, 2),
    "repeat": lambda x: np.repeat(x, 2), "resize": lambda x: np.resize(x, (2, 2)),
    "concatenate": lambda x: np.concatenate([x, x]), "concat": lambda x: np.concat((x, x)),
    "stack": lambda x: np.stack([x, x]), "vstack": lambda x: np.vstack([x, x]),
    "row_stack": lambda x: np.vstack([x, x]),
    "hstack": lambda x: np.hstack([x, x]), "dstack": lambda x: np.dstack([x, x]),
    "column_stack": lambda x: np.column_stack([x, x]), "block": lambda x: np.block([[x, x], [x, x]]),
    "append": lambda x: np.append(x, x), "insert": lambda x: np.insert(x, 0, 1), "delete": lambda x: np.delete(x, 0),
    "split": lambda x: np.split(x, 3), "array_split": lambda x: np.array_split(x, 2),
    "hsplit": lambda x: np.hsplit(x, 2), "vsplit": lambda x: np.vsplit(x, 3), "dsplit": lambda x: np.dsplit(x[None], 2),
    "unstack": lambda x: np.unstack(x) if hasattr(np, "unstack") else 0, "take": lambda x: np.take(x, [0], 0),
    "take_along_axis": lambda x: np.take_along_axis(x, np.zeros((3, 1), int), 1),
    "compress": lambda x: np.compress([True, False], x), "extract": lambda x: np.extract(ARRAY > 3, x),
    "diag": np.diag, "diagonal": np.diagonal, "diagflat": np.diagflat, "tril": np.tril, "triu": np.triu,
    "where": lambda x: np.where(ARRAY > 3, x, 0), "select": lambda x: np.select([ARRAY > 3], [x]),
    "choose": lambda x: np.choose([0, 0, 0, 0], x), "copy": np.copy, "empty_like": lambda x: np.empty_like(x).shape,
    "zeros_like": np.zeros_like, "ones_like": np.ones_like, "full_like": lambda x: np.full_like(x, 2),
    "copyto": lambda x: changed(lambda x: np.copyto(x, 5), x), "put": lambda x: changed(lambda x: np.put(x, 1, 9), x),
    "place": lambda x: changed(lambda x: np.place(x, ARRAY > 3, [1]), x),
    "putmask": lambda x: changed(lambda x: np.putmask(x, ARRAY > 3, [1]), x),
    "put_along_axis": lambda x: changed(lambda x: np.put_along_axis(x, np.zeros((3, 1), int), 7, 1), x),
    "fill_diagonal": lambda x: changed(lambda x: np.fill_diagonal(x, 7), x),
    "shape": np.shape, "ndim": np.ndim, "size": np.size, "iscomplexobj": np.iscomplexobj, "isrealobj": np.isrealobj,
    "may_share_memory": lambda x: np.may_share_memory(x, x), "shares_memory": lambda x: np.shares_memory(x, x),
    "array_equal": lambda x: (np.array_equal(x, ARRAY), np.array_equal(x, ARRAY + 1)),
    "array_equiv": lambda x: np.array_equiv(x, ARRAY), "allclose": lambda x: np.allclose(ARRAY, x),
    "array2string": np.array2string, "array_repr": np.array_repr, "array_str": np.array_str,
    "save": lambda x: written(np.save, x), "savez": lambda x: len(written(np.savez, x)),
    "savez_compressed": lambda x: len(written(np.savez_compressed, x)), "savetxt": lambda x: written(np.savetxt, x),
}  # fmt: skip


def as_list(x: Any) -> Any:
    """A value with the dtypes and elements of the arrays in it, to compare with `==`."""
    if isinstance(x, list | tuple):
        return [as_list(item) for item in x]
    return (x.dtype.name, x.shape, x.tobytes()) if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("name", sorted(numpy_functions.TAKEN))
def test_what_moves_compares_or_stores_gives_what_the_array_gives(name: str) -> None:
    assert as_list(TAKEN[name](tensor())) == as_list(TAKEN[name](ARRAY.copy()))


COMPUTES: dict[str, Callable[[Any], Any]] = {
    "numpy.matmul": lambda x: np.matmul(x, x), "numpy.matmul ": lambda x: ARRAY @ x.T,
    "numpy.add": lambda x: np.add(1, x), "numpy.add ": lambda x: ARRAY + x, "numpy.add  ": lambda x: F32(1) + x,
    "numpy.subtract": lambda x: np.subtract(x, ARRAY),
    "numpy.add.reduce": np.add.reduce, "numpy.add.at": lambda x: np.add.at(ARRAY.copy(), 0, x), "numpy.sum": np.sum,
    "numpy.mean": np.mean, "numpy.dot": lambda x: np.dot(ARRAY, x.T), "numpy.einsum": lambda x: np.einsum("ij->i", x),
    "numpy.linalg.norm": np.linalg.norm, "numpy.exp": np.exp, "numpy.isnan": np.isnan, "numpy.sort": np.sort,
    "numpy.equal": lambda x: operator.eq(ARRAY, x), "numpy.not_equal": lambda x: operator.ne(ARRAY, x),
    "numpy.less": lambda x: operator.lt(ARRAY, x),
    "numpy.isclose": lambda x: np.isclose(x, x), "numpy.argmax": np.argmax, "numpy.cumsum": np.cumsum,
    "numpy.round": np.round, "numpy.clip": lambda x: np.clip(x, 0, 1), "numpy.pad": lambda x: np.pad(x, 1),
    "numpy.var": np.var, "numpy.fft.fft": np.fft.fft, "numpy.tensordot": lambda x: np.tensordot(x, x),
    "numpy.any": np.any, "numpy.unique": np.unique, "numpy.nan_to_num": np.nan_to_num,
    "numpy.outer": lambda x: np.outer(x, x),
    "numpy.linalg.matmul": lambda x: np.linalg.matmul(x, x),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTES)
def test_what_computes_is_refused_with_what_to_call(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        COMPUTES[name](tensor())
    said, name = str(caught.value), name.strip()
    ours = numpy_functions.COMPUTED.get(name.removeprefix("numpy."))
    remedy = "pass numpy.asarray(tensor), for NumPy's bits"
    remedy = f"call samebits.{ours}, or {remedy}" if ours else remedy
    assert said == f"{name}: an argument is a Tensor, must be an array of NumPy's; {remedy}"


def found(home: Any, name: str) -> Any:
    """home.name, where name may have dots; None where an older NumPy lacks it."""
    for part in name.split("."):
        home = getattr(home, part, None)
    return home


def test_what_is_called_instead_computes_the_same_where_nothing_is_rounded() -> None:
    x, zero = np.full((2, 2), F32(4)), np.zeros((2, 2), F32)
    for name, ours in numpy_functions.COMPUTED.items():
        theirs, mine = found(np, name), found(sb, ours)
        assert callable(mine), name
        if theirs is None:
            continue
        if ours == "Tensor.equal_values":
            assert mine(sb.Tensor.from_any(x), sb.Tensor.from_any(x)) is True
            continue
        given = zero if ours == "exp" else x
        is_binary = ours in ("add", "divide", "matmul", "maximum", "minimum", "multiply", "subtract")
        more = [given] if is_binary else ["int32"] if ours == "cast" else []
        due = theirs(given, *more, **({"axis": None} if name.endswith(".reduce") else {}))
        got = np.asarray(mine(sb.Tensor.from_any(given), *more))
        assert (got.dtype, got.tobytes()) == (due.dtype, due.tobytes()), name


def test_elements_packed_within_bytes_are_copied_out_of_them_but_never_written_so() -> None:
    x = sb.to_packed(np.arange(-4, 4).astype(sb.dtypes.int4.numpy))
    assert np.concatenate([x, x]).tolist() == [*range(-4, 4)] * 2
    assert np.array_equal(x, x.copy())
    with pytest.raises(sb.LayoutError, match="packed"):
        np.copyto(x, 1)


def test_helpers_of_tests_compare() -> None:
    x = tensor()
    for check in (np.testing.assert_array_equal, np.testing.assert_allclose, np.testing.assert_array_almost_equal):
        check(x, ARRAY)
        check(ARRAY, x)
        check(x, tensor())
        with pytest.raises(AssertionError):
            check(x, ARRAY + 1)
    np.testing.assert_equal(x, ARRAY)
    with pytest.raises(AssertionError):
        np.testing.assert_equal(ARRAY + 1, x)


def test_every_function_that_numpy_asks_about_is_taken_or_refused() -> None:
    """None computes: whatever NumPy lets a class answer for is taken by name or ends in a TypeError of ours."""
    asked = {
        name: function for name, function in vars(np).items()
        if callable(function) and hasattr(function, "_implementation") and not inspect.isclass(function)
    }  # fmt: skip
    assert len(asked) > 150
    for name, function in asked.items():
        if name in numpy_functions.TAKEN:
            continue
        with pytest.raises(TypeError) as caught:
            numpy_functions.called(sb.Tensor, function, (tensor(),), {})
        assert "an argument is a Tensor, must be an array of NumPy's" in str(caught.value)
