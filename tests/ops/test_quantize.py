"""quantize and dequantize as they are called: any array in, the reference's bits out, a sentence for what is wrong."""

from __future__ import annotations

from typing import Any

import block_rows
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import samebits as sb
from samebits import dtypes, elements, philox
from samebits.errors import ClosedError, DTypeError, LayoutError, OptionError, PlanError, ShapeError
from samebits.kernels.functions import exact
from samebits.kernels.quantize import blocks, dialects, formats, plan, reference, values_plan
from samebits.ops import block_run

Array = npt.NDArray[Any]
F32 = np.float32
CASES = block_rows.tried((row, dialect) for row in formats.ROWS for dialect in sb.dialects(row))


def numbers(*shape: int, kind: Any = F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32).astype(kind)


def codes(part: sb.Tensor) -> Array:
    return elements.read(part.buffer.array(), part.layout)


def check(q: sb.Quantized, due: reference.Parts) -> None:
    np.testing.assert_array_equal(codes(q.elements), due.elements)
    np.testing.assert_array_equal(codes(q.scales), due.scales.view(f"u{due.scales.itemsize}"))
    for name in ("global_scale", "zero_points"):
        part, array = getattr(q, name), getattr(due, name)
        assert (part is None) == (array is None)
        if part is not None:
            np.testing.assert_array_equal(codes(part), array.view(f"u{array.itemsize}"))


@pytest.mark.parametrize(("row", "dialect"), CASES, ids=str)
def test_quantize_is_the_reference(row: sb.BlockFormat, dialect: sb.Dialect) -> None:
    for name in dialect.takes[:2]:
        x = numbers(128, 256, kind=dtypes.of(name).numpy)
        q, due = sb.quantize(x, row, dialect=dialect), reference.quantize(x, row, dialect)
        check(q, due)
        assert (q.format, q.dialect, q.shape, q.axis) == (row, dialect, x.shape, -1)
        np.testing.assert_array_equal(q.dequantize().numpy(), reference.dequantize(due, row, dialect.divides))


@pytest.mark.parametrize("row", block_rows.ROWS, ids=str)
def test_the_other_axis_and_more_axes_and_one_axis(row: sb.BlockFormat) -> None:
    x = numbers(3, 128, 128)
    for axis in (-1, -2):
        q = sb.quantize(x, row, axis=axis)
        check(q, reference.quantize(x, row, dialects.default(row), axis))
        assert q.axis == axis
        assert q.elements.layout.strides_bits[axis] == row.element.width_bits
    assert sb.quantize(x, row, axis=1).equal_bits(sb.quantize(x, row, axis=-2))
    line = sb.quantize(x[0, 0], row)
    check(line, reference.quantize(x[0, 0], row, dialects.default(row)))


@pytest.mark.parametrize("name", ["numpy", "torch", "tensor", "strided", "list of rows"])
def test_any_array_gives_the_same_parts(name: str) -> None:
    x = numbers(32, 64)
    due = sb.quantize(x, "nvfp4")
    wide = np.zeros((64, 128), F32)
    wide[::2, ::-2] = x
    torch = pytest.importorskip("torch")
    given = {
        "numpy": x,
        "torch": torch.from_numpy(x),
        "tensor": sb.Tensor.from_any(x),
        "strided": wide[::2, ::-2],
        "list of rows": x.astype(np.float64).astype(F32),
    }[name]
    assert sb.quantize(given, "nvfp4").equal_bits(due)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_values_are_converted_once(kind: str) -> None:
    for name in ("nvfp4", "fp8-row", "uint4-group32-float-zero"):
        q = sb.quantize(numbers(32, 64) * 1e-5, name)
        wide = q.dequantize().numpy()
        found = q.dequantize(kind)
        assert found.dtype is dtypes.of(kind)
        np.testing.assert_array_equal(found.numpy(), wide.astype(dtypes.of(kind).numpy))
        out = np.zeros((32, 64), found.numpy().dtype)
        assert sb.dequantize(q, kind, out=out) is out
        np.testing.assert_array_equal(out, found.numpy())


def test_global_scales_are_of_all_or_of_a_row_or_given() -> None:
    x = numbers(4, 64) * np.array([[1], [10], [100], [1e-3]], F32)
    whole = sb.quantize(x, "nvfp4")
    assert whole.global_scale is not None
    assert whole.global_scale.shape == ()
    assert sb.report(x, whole).per_tensor
    rows = sb.quantize(x, "nvfp4", global_scale="row")
    assert rows.global_scale is not None
    assert rows.global_scale.shape == (4, 1)
    assert not sb.report(x, rows).per_tensor
    for n in range(4):
        assert rows[n : n + 1].dequantize().equal_bits(sb.quantize(x[n : n + 1], "nvfp4").dequantize())
    given = sb.quantize(x, "nvfp4", global_scale=rows.global_scale)
    assert given.equal_bits(rows)
    assert sb.quantize(x, "nvfp4", global_scale=whole.global_scale.item()).equal_bits(whole)
    te = sb.quantize(x, "nvfp4", dialect="nvfp4/te-2", global_scale=np.float32(6.72))
    assert te.divides
    # The widest step of float4 is from 4 to 6: what is between errs by at most 1 of the 6 that the largest is, and a
    # scale, rounded to 4 bits, by 2**-4 of itself.
    assert abs(te.dequantize().numpy()[2] - x[2]).max() <= abs(x[2]).max() * (1 / 6 + 2.0**-4)


def test_out_takes_the_parts() -> None:
    x, y = numbers(4, 64), numbers(4, 64, seed=1)
    q, due = sb.quantize(x, "uint4-group32-zero"), sb.quantize(y, "uint4-group32-zero")
    assert sb.quantize(y, "uint4-group32-zero", out=q) is q
    assert q.equal_bits(due)
    q, due = sb.quantize(x, "nvfp4"), sb.quantize(y, "nvfp4")
    assert sb.quantize(y, "nvfp4", out=q) is q
    assert q.equal_bits(due)


def stochastic(y: Array, name: str, words: Array) -> Array:
    """The values that scaled numbers are rounded to: of the neighbours in a table of all values."""
    row = dtypes.of(name)
    values = elements.decode(np.arange(1 << row.width_bits, dtype=np.uint8), row).astype(np.float64)
    sizes = np.unique(values[np.isfinite(values) & (values >= 0)])
    size = np.minimum(np.abs(y).astype(np.float64), sizes[-1])
    low = np.searchsorted(sizes, size, side="right") - 1
    high = np.minimum(low + 1, len(sizes) - 1)
    step = np.where(high > low, sizes[high] - sizes[low], 1)
    away = np.floor((size - sizes[low]) / step * 2.0**32) > words
    return np.copysign(sizes[np.where(away, high, low)], y)


@pytest.mark.parametrize("name", ["nvfp4", "mxfp8-e4m3", "fp8-row", "int8-group32", "mxint8"])
@pytest.mark.parametrize("axis", [-1, -2])
def test_stochastic_rounding_takes_the_words_of_cast(name: str, axis: int) -> None:
    x, seed = numbers(64, 128), 2**40 + 5
    q, near = sb.quantize(x, name, axis=axis, rounding="stochastic", seed=seed), sb.quantize(x, name, axis=axis)
    assert q.scales.equal_bits(near.scales)
    row = q.format
    cut = blocks.Blocking(row, x.shape, axis)
    scale = exact.widened(q.scales.numpy()) * F32(row.unit)
    if q.global_scale is not None:
        scale = scale * q.global_scale.numpy()
    y = cut.joined(cut.split(x) / cut.spread(scale))
    words = philox.words(seed, np.arange(x.size)).reshape(x.shape)
    np.testing.assert_array_equal(q.elements.values(), stochastic(y, row.element.name, words))
    assert not q.elements.equal_bits(near.elements)
    assert sb.quantize(x, name, axis=axis, rounding="stochastic", seed=seed, threads=1).equal_bits(q)


def test_stochastic_rounding_is_right_on_average() -> None:
    x = np.full((64, 1024), 0.3, F32)
    x[:, ::16] = 6.0
    y = sb.quantize(x, "nvfp4", global_scale=1.0, rounding="stochastic", seed=7).dequantize().numpy()
    assert set(np.unique(y)) == {F32(0), F32(0.5), F32(6)}
    assert abs(y[x < 1].mean() - 0.3) < 0.005


def four_over_six(x: Array, g: F32, largest: float) -> tuple[Array, Array, Array]:
    """Scale, code points and error of one block whose largest magnitude becomes that, number by number."""
    scale = max(F32(abs(x).max() / g) / F32(largest), F32(2.0**-9)).astype(ml_dtypes.float8_e4m3fn)
    made = (x / (F32(scale) * g)).astype(ml_dtypes.float4_e2m1fn)
    sums = [F32(F32(a - b) * F32(a - b)) for a, b in zip(x, made.astype(F32) * F32(scale) * g, strict=True)]
    while len(sums) > 1:
        sums = [F32(a + b) for a, b in zip(sums[::2], sums[1::2], strict=True)]
    return scale, made.view(np.uint8), sums[0]


def test_four_over_six_takes_the_scale_of_the_lesser_error() -> None:
    x = numbers(16, 64)
    q = sb.quantize(x, "nvfp4", dialect="nvfp4/four-over-six-1")
    assert q.global_scale is not None
    g = q.global_scale.numpy()[()]
    assert g == 2.0 ** np.ceil(np.log2(abs(x).max() / 1792))
    chosen = set()
    for line, codes_of_line, scales in zip(x, codes(q.elements), q.scales.numpy(), strict=True):
        for k in range(4):
            part = slice(16 * k, 16 * k + 16)
            six, four = four_over_six(line[part], g, 6.0), four_over_six(line[part], g, 4.0)
            scale, made, _ = four if four[2] < six[2] else six
            chosen.add(four[2] < six[2])
            np.testing.assert_array_equal(codes_of_line[part], made)
            assert scales[k] == scale
    assert chosen == {False, True}
    plain = sb.quantize(x, "nvfp4")
    assert sb.report(x, q).sqnr_db > sb.report(x, plain).sqnr_db + 0.5


def test_mxint8_is_what_microxcaling_makes() -> None:
    x = np.concatenate([numbers(32, 128), numbers(32, 128) * F32(1e-39), np.zeros((1, 128), F32)])
    split = x.reshape(-1, 32).astype(np.float64)
    exponent = np.frexp(abs(split).max(-1, keepdims=True))[1] - 1.0
    step = np.exp2(np.maximum(np.where(split.any(-1, keepdims=True), exponent, -127), -127) - 6)
    due = np.clip(np.rint(split / step), -127, 127)  # mx_ops.py, _quantize_elemwise_core with round="even"
    q = sb.quantize(x, "mxint8")
    np.testing.assert_array_equal(q.elements.values().reshape(-1, 32), due)
    np.testing.assert_array_equal(q.dequantize().numpy().reshape(-1, 32), (due * step).astype(F32))
    for value in (np.nan, np.inf):
        x[3, 40] = value
        y = sb.quantize(x, "mxint8").dequantize().numpy()
        assert np.isnan(y[3, 32:64]).all()
        assert np.isfinite(y).sum() == y.size - 32


def test_nothing_has_no_scales() -> None:
    q = sb.quantize(np.zeros((0, 64), F32), "nvfp4")
    assert q.scales.shape == (0, 4)
    assert q.dequantize().shape == (0, 64)
    for row in sb.block_formats():
        shape = (0, max(row.block[0] or 1, 2), max(row.block[1] or 1, 2))
        for way in sb.dialects(row):
            assert sb.quantize(np.zeros(shape, F32), row, dialect=way).dequantize().shape == shape
    assert sb.quantize(np.zeros((3, 0), F32), "nvfp4").scales.shape == (3, 0)
    assert sb.quantize(np.zeros((3, 0), F32), "fp8-row").scales.shape == (3, 0)


def closed() -> sb.Tensor:
    x = sb.Tensor.zeros((4, 64))
    x.buffer.close()
    return x


X = numbers(4, 64)
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": numbers(4, 65)}, ShapeError,
     "quantize: x extent of axis 1 is 65, must be a multiple of 16, the block of nvfp4; pad it with zeros first"),
    ({"format": "nvfp4-16x16"}, ShapeError,
     "quantize: x extent of axis 0 is 4, must be a multiple of 16, the block of nvfp4-16x16; pad it with zeros first"),
    ({"x": X.astype(np.float64)}, DTypeError,
     "quantize: x dtype is float64, must be float32 or bfloat16 or float16 for nvfp4/exact-1; convert it first"),
    ({"x": X.astype(np.float16), "dialect": "nvfp4/torchao-0.18"}, DTypeError,
     "quantize: x dtype is float16, must be float32 or bfloat16 for nvfp4/torchao-0.18; convert it first"),
    ({"x": np.float32(3)}, LayoutError,
     "quantize: axis is -1, must be one of the last two of 0 axes, or of the only one; transpose the array first"),
    ({"x": numbers(2, 4, 64), "axis": 0}, LayoutError,
     "quantize: axis is 0, must be one of the last two of 3 axes, or of the only one; transpose the array first"),
    ({"x": closed()}, ClosedError, "quantize: x buffer is closed, must be open; close it after its last use"),
    ({"dialect": "mx/floor"}, OptionError,
     ("quantize: dialect is mx/floor, must be one that makes nvfp4: nvfp4/exact-1, nvfp4/torchao-0.18, nvfp4/te-2, "
     "nvfp4/nvfuser-0.2, nvfp4/flashinfer, nvfp4/modelopt-0.47, nvfp4/compressed-tensors-0.20, "
     "nvfp4/four-over-six-1; choose one of these")),
    ({"rounding": np.ones(2)}, OptionError,
     ("quantize: rounding is array([1., 1.]), must be nearest_even or stochastic; leave it out for the "
      "nearest")),
    ({"format": "mxfp4", "global_scale": 1.0}, OptionError,
     "quantize: global_scale is 1.0, must be left out: mxfp4 has none; leave it out"),
    ({"global_scale": 0.3}, OptionError,
     ("quantize: global_scale is 0.3, must be powers of two for nvfp4/exact-1; round it up to one, or name another "
     "dialect")),
    ({"rounding": "up"}, OptionError,
     "quantize: rounding is 'up', must be nearest_even or stochastic; leave it out for the nearest"),
    ({"seed": 3}, OptionError,
     "quantize: seed is 3, must be left out where nothing is drawn; pass rounding='stochastic', or leave seed away"),
    ({"rounding": "stochastic"}, OptionError,
     ("quantize: seed is None, must be an integer in [0, 2**64), which stochastic rounding draws from; pass seed=0")),
    ({"rounding": "stochastic", "seed": 1, "dialect": "nvfp4/four-over-six-1"}, OptionError,
     ("quantize: rounding is 'stochastic', must be nearest_even for nvfp4/four-over-six-1, which has a choice of "
     "scales by the error; name another dialect or format")),
    ({"rounding": "stochastic", "seed": 1, "format": "nf4"}, OptionError,
     ("quantize: rounding is 'stochastic', must be nearest_even for nf4/qlora, which has a code book; name another "
     "dialect or format")),
    ({"global_scale": np.float64(1)[None]}, DTypeError,
     "quantize: global_scale dtype is float64, must be float32; convert it first"),
    ({"global_scale": np.ones(4, F32)}, ShapeError,
     "quantize: global_scale shape is (4,), must be () or (4, 1); reshape it"),
    ({"global_scale": "tensor"}, OptionError,
     "quantize: global_scale is 'tensor', must be a number, an array or 'row'; pass one of these"),
    ({"out": 3}, OptionError, "quantize: out type is int, must be Quantized; pass what quantize gave"),
    ({"out": sb.quantize(X, "mxfp4")}, OptionError,
     ("quantize: out (format, dialect, axis) is (mxfp4, mx/floor, -1), must be (nvfp4, nvfp4/exact-1, -1); pass one "
     "made by such a call")),
    ({"out": sb.quantize(X[:3], "nvfp4")}, ShapeError,
     "quantize: out shape is (3, 64), must be (4, 64); pass one of x's shape"),
    ({"out": sb.quantize(X, "nvfp4", global_scale="row")}, ShapeError,
     "quantize: out shape of global_scale is (4, 1), must be () for such scales; leave out= away"),
]  # fmt: skip


def test_out_in_memory_of_x_or_that_may_not_be_written_is_refused() -> None:
    q = sb.quantize(X, "mxfp8-e4m3")
    x = sb.Tensor.from_any(numbers(4, 64))
    shared = x.view("float8_e4m3fn")[:, :64]
    inside = sb.Quantized(shared, q.scales, "mxfp8-e4m3", dialect="mx/floor")  # type: ignore[arg-type]
    with pytest.raises(LayoutError) as overlap:
        sb.quantize(x, "mxfp8-e4m3", out=inside)
    assert str(overlap.value) == "quantize: out memory is that of an operand, must be its own; leave out= away"
    codes = q.elements.numpy().copy()
    codes.flags.writeable = False
    fixed = sb.Quantized(codes, q.scales, "mxfp8-e4m3", dialect="mx/floor")  # type: ignore[arg-type]
    with pytest.raises(sb.ExchangeError) as locked:
        sb.quantize(x, "mxfp8-e4m3", out=fixed)
    assert str(locked.value) == "quantize: out memory is read-only, must be writable; pass another array"


@pytest.mark.parametrize(("given", "kind", "sentence"), WRONG)
def test_what_is_wrong_is_one_sentence(given: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        sb.quantize(**{"x": X, "format": "nvfp4", **given})
    assert str(caught.value) == sentence


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_global_scale_from_outside_is_finite_and_above_0(value: float) -> None:
    remedy = "leave it out to have it found"
    for given, shown in ((value, repr(value)), (np.array(value, F32), None)):
        with pytest.raises(OptionError) as caught:
            sb.quantize(X, "nvfp4", dialect="nvfp4/torchao-0.18", global_scale=given)
        text = str(caught.value)
        assert text.startswith("quantize: global_scale is " + (f"{shown}, " if shown else ""))
        assert text.endswith(f"must be finite and above 0 in float32; {remedy}")


@pytest.mark.parametrize("value", [1e-60, 1e60, 2**200])
def test_a_global_scale_that_float32_has_as_0_or_as_infinite_is_refused(value: float) -> None:
    with pytest.raises(OptionError) as caught:
        sb.quantize(X, "nvfp4", dialect="nvfp4/torchao-0.18", global_scale=value)
    expected = "must be finite and above 0 in float32; leave it out to have it found"
    assert str(caught.value) == f"quantize: global_scale is {value!r}, {expected}"
    with pytest.raises(OptionError, match="quantize: global_scale is beyond float64, must be a number within"):
        sb.quantize(X, "nvfp4", dialect="nvfp4/torchao-0.18", global_scale=2**2000)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fp4", ", perhaps 'nvfp4', 'nvfp4-16x16', 'mxfp4'"),
        ("MXFP8", ", perhaps 'mxfp8-e4m3', 'mxfp8-e5m2'"),
        ("int4_group128", ", perhaps 'int4-group128', 'int8-group128', 'int4-group32'"),
        ("?", ""),
    ],
)
def test_a_format_that_is_none_is_refused_with_those_of_nearly_its_name(name: str, meant: str) -> None:
    with pytest.raises(OptionError) as caught:
        sb.quantize(X, name)
    known = f"one of the {len(sb.block_formats())} that `samebits formats` lists"
    assert str(caught.value) == f"quantize: format is {name!r}, must be {known}; name one of these{meant}"


def test_values_of_other_dtypes_are_refused() -> None:
    q = sb.quantize(X, "nvfp4")
    with pytest.raises(DTypeError) as caught:
        sb.dequantize(q, "float64")
    due = "dequantize: dtype is float64, must be float32, bfloat16 or float16; cast the values then"
    assert str(caught.value) == due
    with pytest.raises(OptionError) as other:
        sb.dequantize(X)  # type: ignore[arg-type]
    assert str(other.value) == "dequantize: q type is ndarray, must be Quantized; pass what quantize gave"
    with pytest.raises(ShapeError) as shape:
        sb.dequantize(q, out=np.zeros((4, 63), F32))
    assert str(shape.value) == "dequantize: out shape is (4, 63), must be (4, 64); pass an array of that shape"


def test_bfloat16_of_ml_dtypes_and_of_torch_are_one() -> None:
    torch = pytest.importorskip("torch")
    x = numbers(4, 64, kind=ml_dtypes.bfloat16)
    given = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    assert sb.quantize(given, "mxfp8-e4m3").equal_bits(sb.quantize(x, "mxfp8-e4m3"))


def test_values_in_memory_of_a_part_and_parts_that_are_closed_are_refused() -> None:
    memory = np.zeros((4, 64), F32)
    codes = memory.view(np.uint8).reshape(-1)[:128]
    q = sb.quantize(X, "nvfp4")
    inside = sb.Quantized(
        sb.Tensor.from_buffer(codes, "float4_e2m1fn", (4, 64)), q.scales, "nvfp4", global_scale=q.global_scale
    )
    with pytest.raises(LayoutError) as overlap:
        sb.dequantize(inside, out=memory)
    assert str(overlap.value) == "dequantize: out memory is that of an operand, must be its own; leave out= away"
    q.scales.buffer.close()
    with pytest.raises(ClosedError) as closed:
        sb.dequantize(q)
    assert str(closed.value) == "dequantize: q.scales buffer is closed, must be open; close it after its last use"


def test_a_planners_defect_is_no_missing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PlanError("plan", "x", "", "wrong", "right", "report it")

    x, q = np.ones((3, 160), np.float32), sb.quantize(np.ones((3, 160), np.float32), "mxfp4")
    monkeypatch.setattr(plan, "plan", refuse)
    monkeypatch.setattr(values_plan, "plan", refuse)
    block_run._quantising.cache_clear()
    block_run._dequantising.cache_clear()
    for call in (lambda: sb.quantize(x, "mxfp4"), lambda: sb.dequantize(q)):
        with pytest.raises(PlanError, match="x is wrong, must be right; report it"):
            call()
