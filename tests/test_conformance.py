"""docs/conformance.json: every row gives the digests that the references wrote."""

import functools
import importlib.util
import itertools
import json
import math
import operator
import pathlib
import sys
from fractions import Fraction

import formats
import gmpy2
import nodes
import numpy as np
import pytest
import random_numbers
import rows
import torch

import samebits as sb
from samebits import dtypes, elements, philox
from samebits.codegen.isa import use_isa
from samebits.conversions import Conversion

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tools"))
import exhaustive

ROOT = pathlib.Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("conformance", ROOT / "tools" / "conformance.py")
assert _spec is not None
assert _spec.loader is not None
conformance = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(conformance)
WRITTEN = json.loads((ROOT / "docs" / "conformance.json").read_text())["cases"]


def run(case, threads):
    x = conformance.inputs(case)
    function = getattr(sb, case["operation"])
    if case["operation"] == "matmul":
        options = dict(case.get("options", {}))
        options |= {"a_zero_point": x[2], "b_zero_point": x[3]} if "zero_points" in case else {}
        taken = ("out_dtype", "a_group", "b_group", "a_zero_point", "a_format")
        options |= {name: case[name] for name in taken if name in case}
        options |= dict(zip((name.split()[0] for name in case.get("shared", [])), x[2:], strict=False))
        return function(*x[:2], spec=sb.Spec(**case["spec"]), threads=threads, **options)
    if "accumulates" in case:
        return function(*x[:2], out=x[2].copy(), threads=threads)
    if "offset" in case:
        options = {"seed": case["draws"], "offset": case["offset"], "threads": threads}
        if "numbers" not in case:
            return function(*x, **options)
        return function(*case["numbers"], case["shape"], dtype=case["dtype"], **options)
    if case["operation"] == "concat":
        return function(x, case["axis"], threads=threads)
    if case["operation"] in ("sum", "prod", "mean", "var", "max", "min", "take"):
        return function(*x, axis=case.get("axis", -1), threads=threads)
    if case["operation"] == "topk":
        return function(*x, 7, threads=threads)[0]
    if case["operation"] == "cast":
        draws = {"seed": case["draws"]} if "draws" in case else {}
        return function(*x, case["to"], **case.get("how", {}), **draws, threads=threads)
    if case["operation"] == "quantize":
        q = function(*x, case["format"], dialect=case["dialect"], threads=threads)
        names = ("elements", "scales", "zero_points", "global_scale")
        parts = [elements.read(q.parts[name].buffer.array(), q.parts[name].layout) for name in names if name in q.parts]
        return np.concatenate([np.atleast_1d(part).view(np.uint8).ravel() for part in parts])
    options = {"approximate": case["approximate"]} if "approximate" in case else {}
    return function(*x, **options, threads=threads)


def test_file_lists_the_cases_of_the_tool():
    assert [{k: v for k, v in case.items() if k != "digest"} for case in WRITTEN] == conformance.CASES


@pytest.mark.parametrize(
    "case",
    WRITTEN,
    ids=lambda c: "-".join(
        [c["operation"], *c.get("dtypes", [c.get("dtype", "float32")]), "x".join(map(str, c["shape"])), str(c["seed"])]
    ),
)
def test_references_give_the_written_digest(case):
    assert conformance.digest(np.asarray(conformance.answer(case))) == case["digest"]


def nearest(x: Fraction) -> Fraction:
    """x as float32, ties to even: integers of 24 bits times a power of two of at least 2^-149."""
    if x == 0:
        return x
    size, below = abs(x.numerator), x.denominator
    exponent = size.bit_length() - below.bit_length()
    exponent -= size << max(-exponent, 0) < below << max(exponent, 0)
    shift = max(exponent - 23, -149)
    count, left = divmod(size << max(-shift, 0), below << max(shift, 0))
    beyond = 2 * left - (below << max(shift, 0))
    count += beyond > 0 or (beyond == 0 and count % 2)
    count = -count if x < 0 else count
    return Fraction(count << shift) if shift >= 0 else Fraction(count, 1 << -shift)


def power_above(x: Fraction) -> Fraction:
    """The least power of two that is not below a positive number."""
    found = Fraction(2) ** (x.numerator.bit_length() - x.denominator.bit_length() - 1)
    while found < x:
        found *= 2
    return found


@functools.cache
def magnitudes(dtype) -> list[Fraction]:
    """The values of a format from 0 up."""
    return [Fraction(float(dtype.decode(code))) for code in range(dtype.max_code + 1)]


def value_nearest(x: Fraction, dtype) -> Fraction:
    """The value of a float format, or the integer, that is nearest to x, ties to even, the largest beyond it."""
    if dtype.is_integer:
        return Fraction(min(max(round(x), -int(dtype.max)), int(dtype.max)))
    values = magnitudes(dtype)
    found = min(range(len(values)), key=lambda code: (abs(values[code] - abs(x)), code % 2))
    return -values[found] if x < 0 else values[found]


def quantised_by_the_page(a, name):
    """Section 9, by the first dialect of a format, each row by itself: numbers, scales, elements of a block, and each
    row's global scale; in fractions."""
    rows_, scales, wholes, size = [], [], [], {"nvfp4": 16, "mxfp8-e4m3": 32, "int8-group64": 64}[name]
    element = {"nvfp4": dtypes.float4_e2m1fn, "mxfp8-e4m3": dtypes.float8_e4m3fn, "int8-group64": dtypes.int8}[name]
    for line in a:
        line = [Fraction(float(x)) for x in line]
        blocks = [line[p : p + size] for p in range(0, len(line), size)]
        tops, whole = [max(map(abs, block)) for block in blocks], Fraction(1)
        if name == "nvfp4":
            whole = power_above(nearest(max(tops) / 2688))
            made = [value_nearest(nearest(nearest(top / whole) / 6), dtypes.float8_e4m3fn) for top in tops]
        elif name == "mxfp8-e4m3":
            made = [power_above(top) / (1 if power_above(top) == top else 2) / 2**8 for top in tops]
        else:
            made = []
            for top in tops:  # rounded up to 15 bits of significand
                step = power_above(nearest(top / 127)) / 2**15
                made.append(math.ceil(nearest(top / 127) / step) * step)
        factors = [scale * whole for scale in made]
        pairs = zip(blocks, factors, strict=True)
        rows_.append([value_nearest(nearest(x / factor), element) for block, factor in pairs for x in block])
        scales.append(made)
        wholes.append(whole)
    return np.array(rows_, object), np.array(scales, object), size, wholes if name == "nvfp4" else None


def by_the_page(case):
    """numerics.md sections 2 and 4 in fractions, for numbers whose sums are ordinary: nothing of the package."""
    a, b, *shared = conformance.inputs(case)
    given = dict(zip(case.get("shared", []), shared, strict=True))
    (m, k, n), group = case["shape"], case.get("b_group", 1)
    group, lines = group if isinstance(group, list) else (group, 1)
    of_a, a_group, whole = given.get("a_scale of blocks"), case.get("a_group", k), None
    if "a_format" in case:
        a, of_a, a_group, whole = quantised_by_the_page(a, case["a_format"])
    chunk, segments = case["spec"].get("chunk", 128), case["spec"].get("segments", 1)
    part = -(-k // (segments * chunk)) * chunk
    scales, zeros = given.get("b_scale"), given.get("b_zero_point")
    out = np.empty((m, n), np.float32)
    lines_of_a, columns_of_b = (
        [[v if isinstance(v, Fraction) else Fraction(float(v)) for v in line] for line in x] for x in (a, b.T)
    )
    for i, j in itertools.product(range(m), range(n)):
        left, right = lines_of_a[i], columns_of_b[j]
        if zeros is not None:
            right = [v - int(zeros[p // group, j]) for p, v in enumerate(right)]
        sums = []
        for s in range(segments):
            total = Fraction(0)
            for low in range(s * part, min((s + 1) * part, k), chunk):
                high = min(low + chunk, (s + 1) * part, k)
                acc = d = Fraction(0)
                if case["spec"].get("order") == "pairs32":
                    for first in range(low, high, 32):
                        chains = [Fraction(0), Fraction(0)]
                        for p in range(first, min(first + 32, high)):
                            chains[(p - first) % 2] = nearest(left[p] * right[p] + chains[(p - first) % 2])
                        d = nearest(d + nearest(chains[0] + chains[1]))
                    total = nearest(total + d)
                    continue
                for p in range(low, high):
                    d = nearest(left[p] * right[p] + d)
                    ends = (p + 1) % group == 0 or (of_a is not None and (p + 1) % a_group == 0) or p + 1 == high
                    if scales is not None and ends:
                        factor = Fraction(float(scales[p // group, j // lines]))
                        if of_a is not None:
                            factor = nearest(factor * Fraction(float(of_a[i, p // a_group])))
                        acc, d = nearest(d * factor + acc), Fraction(0)
                total = nearest(total + (d if scales is None else acc))
            sums.append(total)
        while len(sums) > 1:
            sums = [nearest(x + y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
        if "a_scale" in given:
            sums[0] = nearest(sums[0] * Fraction(float(given["a_scale"][i])))
        if "b_scale by column" in given:
            sums[0] = nearest(sums[0] * Fraction(float(given["b_scale by column"][j])))
        own = {"a_global_scale by row": (i,), "b_global_scale by column": (j,)}
        factors = [Fraction(float(x[own.get(name, ())])) for name, x in given.items() if "global_scale" in name]
        factors += [] if whole is None else [whole[i]]
        if factors:
            sums[0] = nearest(sums[0] * nearest(math.prod(factors)))
        out[i, j] = float(sums[0])
    return out


PRODUCTS = [
    case
    for case in WRITTEN
    if case["operation"] == "matmul"
    and case.get("out_dtype", "float32") == "float32"
    and "options" not in case
    and ("int8" not in case.get("dtypes", [])[:1] or "a_group" in case)
    and "float64" not in case.get("dtypes", [])
    and np.prod(case["shape"], dtype=np.int64) < 60000
]  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: str(c["seed"]))
def test_fractions_give_the_digests_of_products(case):
    assert conformance.digest(by_the_page(case)) == case["digest"]


def test_a_chain_beyond_2_24_units_is_no_exact_sum_rounded_once():
    """The case can tell the two apart: every chunk here is one block, and float64 holds its sum of units of 2^-8."""
    (case,) = (case for case in WRITTEN if case.get("positive"))
    a, b, scale = conformance.inputs(case)
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for i, low in enumerate(range(0, len(b), case["b_group"])):
        block = slice(low, low + case["b_group"])
        exact = a[:, block].astype(np.float64) @ b[block].astype(np.float64)
        assert (exact * 2.0**8 % 1 == 0).all()
        assert i or exact.min() * 2.0**8 > 1 << 24
        total = total + exact.astype(np.float32) * scale[i]
    assert (total != conformance.answer(case)).any()


def is_product(case):
    """Whether a case is a product whose formats are given."""
    return case["operation"] in ("matmul", "grad_weight") and "dtypes" in case


def engines(case, isa):
    """Whether a row has another engine for the case's operands than the rows of its width before it."""
    return is_product(case) and isa in rows.rows_of_engines(*map(dtypes.of, case["dtypes"]))


WIDEST = max(rows.COMPILED_ROWS, key=lambda row: (row.lanes, len(row.instructions)))


def in_turn(isa):
    """Every case on one row, the next of its operation on the next; products on the row of the widest registers, on
    one of the others, and on the rows that have other engines for them."""
    others, turns = [row for row in rows.COMPILED_ROWS if row is not WIDEST], dict[str, int]()
    for number, case in enumerate(WRITTEN):
        name = case["operation"]
        turn = turns[name] = turns[name] + 1 if name in turns else number
        among = others if is_product(case) else rows.COMPILED_ROWS
        mine = (is_product(case) and isa is WIDEST) or (isa in among and among[turn % len(among)] is isa)
        if mine or (isa not in rows.COMPILED_ROWS and engines(case, isa)):
            yield case


def wrong(cases, isa, threads):
    """Those of the cases whose answers have other digests."""
    with use_isa(isa):
        return [case for case in cases if conformance.digest(run(case, threads)) != case["digest"]]


@pytest.mark.parametrize("isa", rows.PRODUCT_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("threads", [1, 3])
def test_compiled_rows_give_the_written_digests(isa, threads):
    assert wrong(in_turn(isa), isa, threads) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("isa", rows.COMPILED_ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("threads", [1, 3])
def test_each_compiled_row_gives_every_written_digest(isa, threads):
    assert wrong(WRITTEN, isa, threads) == []


def test_every_case_is_compiled_for_a_row_and_every_product_for_two():
    made = [id(case) for isa in rows.COMPILED_ROWS for case in in_turn(isa)]
    twice = [case for case in WRITTEN if is_product(case) and len(rows.COMPILED_ROWS) > 1]
    assert sorted(made) == sorted(map(id, [*WRITTEN, *twice]))


def test_interpreter_gives_the_written_digests():
    small = [case for case in WRITTEN if np.prod(case["shape"], dtype=np.int64) <= 5000]
    assert len(small) > len(WRITTEN) // 2
    assert wrong(small, "numpy", 1) == []


# -- outsiders: what NumPy, exact integers, fractions and MPFR say of each operation ----------------------------------
def float32(x: Fraction | float) -> float:
    """The nearest float32 of an ordinary number."""
    return float(nearest(Fraction(x)))


def in_order(values, add):
    """numerics.md section 6: blocks of 2048, 64 lanes, then the tree, until one is left."""
    while len(values) > 1:
        results = []
        for low in range(0, len(values), 2048):
            lanes = []
            for lane in range(min(64, len(values) - low)):
                first, *rest = values[low + lane : low + 2048 : 64]
                lanes.append(functools.reduce(add, rest, first))
            half = 32
            while half:
                lanes = [
                    add(x, lanes[i + half]) if i < half and i + half < len(lanes) else x for i, x in enumerate(lanes)
                ][: max(half, 1)]
                half //= 2
            results.append(lanes[0])
        values = results
    return values[0]


def added(x: float, y: float) -> float:
    return float32(Fraction(x) + Fraction(y))


def softmax(row):
    """Exponentials by MPFR, sums and quotients of fractions."""
    top = max(row)
    with gmpy2.context(precision=24):
        e = [float(gmpy2.exp(gmpy2.mpfr(float32(Fraction(x) - Fraction(top))))) for x in row]
    total = in_order(e, added)
    return [float32(Fraction(x) / Fraction(total)) for x in e]


def log_softmax(row):
    """Exponentials and a logarithm by MPFR, sums and differences of fractions."""
    low = [float32(Fraction(x) - Fraction(max(row))) for x in row]
    with gmpy2.context(precision=24):
        total = in_order([float(gmpy2.exp(gmpy2.mpfr(x))) for x in low], added)
        logarithm = float(gmpy2.log(gmpy2.mpfr(total)))
    return [float32(Fraction(x) - Fraction(logarithm)) for x in low]


def layer_norm(row, weight, bias):
    """numerics.md section 8 in fractions; a root by MPFR."""
    n = len(row)
    mean = float32(Fraction(in_order(row, added)) / n)
    d = [float32(Fraction(x) - Fraction(mean)) for x in row]
    variance = float32(Fraction(in_order([float32(Fraction(x) ** 2) for x in d], added)) / n)
    with gmpy2.context(precision=24):
        root = gmpy2.sqrt(gmpy2.mpfr(float32(Fraction(variance) + Fraction(float(np.float32(1e-5))))))
    scale = float32(1 / Fraction(float(root)))
    y = [float32(Fraction(x) * Fraction(scale)) for x in d]
    return [float32(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in zip(y, weight, bias, strict=True)]


def rms_norm(row, weight):
    """numerics.md section 8 in fractions; a root by MPFR."""
    mean = float32(Fraction(in_order([float32(Fraction(x) ** 2) for x in row], added)) / len(row))
    with gmpy2.context(precision=24):
        root = gmpy2.sqrt(gmpy2.mpfr(float32(Fraction(mean) + Fraction(float(np.float32(1e-5))))))
    scale = float32(1 / Fraction(float(root)))
    y = [float32(Fraction(x) * Fraction(scale)) for x in row]
    return [float32(Fraction(a) * Fraction(b)) for a, b in zip(y, weight, strict=True)]


def gelu_tanh(x):
    """numerics.md section 7, each step of NumPy rounded once; the tanh by MPFR."""
    x = x.astype(np.float32)
    c, r = (np.uint32(code).view(np.float32) for code in (0x3D372713, 0x3F4C422A))
    t = by_mpfr("tanh", (r * (x + c * ((x * x) * x))).astype(np.float64)).astype(np.float32)
    return ((np.float32(0.5) * x) * (np.float32(1) + t)).astype(np.float64)


OF_SCALED_ROWS = {"softmax": softmax, "log_softmax": log_softmax, "layer_norm": layer_norm, "rms_norm": rms_norm}


def fma(x, y, z):
    exact = (Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)) for a, b, c in zip(x, y, z, strict=True))
    return np.array([float32(value) for value in exact])


def divided(x, y):
    """Toward zero; 0 beside 0."""
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


# Of integers, as Python has them: each result wraps to the width.
OF_INTEGERS = {
    "quotient": divided, "remainder": lambda x, y: x % y if y else 0,
    "fmod": lambda x, y: x - divided(x, y) * y if y else 0, "bitwise_and": operator.and_, "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor, "bitwise_invert": operator.invert,
    "bitwise_left_shift": lambda x, y: x << y, "bitwise_right_shift": lambda x, y: x >> y,
}  # fmt: skip
# Of truths, and of floats as float64 holds them: exact, or rounded once more at the end.
OF_NUMPY = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "minimum": np.minimum, "subtract": np.subtract, "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "sign": np.sign, "abs": np.abs, "negative": np.negative, "isnan": np.isnan,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "reciprocal": lambda x: (np.float32(1) / x.astype(np.float32)).astype(np.float64),
}  # fmt: skip
# Of MPFR, rounded once to float32.
OF_MPFR = ("log", "log2", "log10", "log1p", "exp2", "expm1", "tanh", "sigmoid", "sin", "cos", "pow")
# What reduces a row to one number.
OF_ROWS = {
    "sum": lambda row: in_order(row, added), "mean": lambda row: in_order(row, operator.add) / len(row), "max": max,
    "min": min,
}  # fmt: skip


def coded(x, dtype):
    """float64 numbers as elements of a format."""
    return x.astype(dtype.numpy) if dtype.width_bits >= 32 else formats.nearest(x, dtype).view(dtype.numpy)


def wrapped(values, dtype):
    """Integers modulo two to the power of the width."""
    return np.array([v % (1 << dtype.width_bits) for v in values], f"u{dtype.size_bytes}").view(dtype.numpy)


def by_mpfr(name, *arrays):
    """A function of float32 numbers, rounded once."""
    columns = zip(*(x.ravel().tolist() for x in arrays), strict=True)
    return np.array([exhaustive.mpfr(name, *v) for v in columns], np.float32).reshape(arrays[0].shape)


def converted_by(x, target, case):
    """A cast by the conversion of a case: codes found among a format's values, integers by Python's."""
    how = Conversion(**case["how"])
    words = philox.words(case["draws"], np.arange(x.size).reshape(x.shape)) if "draws" in case else None
    if target.is_float:
        return formats.by(x.astype(np.float64), target, how, words).view(target.numpy)
    whole = [math.floor(v) if how.rounding == "down" else int(v) for v in x.ravel().tolist()]
    held = [min(max(v, int(target.min)), int(target.max)) for v in whole]
    return np.array(held).astype(target.numpy).reshape(x.shape)


def by_others(case):
    """A case of seed 130 on, without the package's arithmetic."""
    name, x = case["operation"], conformance.inputs(case)
    shape, kind = x[-1].shape, dtypes.of(x[-1].dtype)
    if "offset" in case:
        what = {"rand_like": "uniform", "randn_like": "normal"}.get(name, name)
        given = case.get("numbers", (0.0, 1.0))
        return random_numbers.numbers(what, kind, shape, *given, case["draws"], case["offset"])
    if name in ("concat", "take", "where"):
        more = (case["axis"],) if "axis" in case else ()
        return {"concat": lambda *y: np.concatenate(y[:-1], y[-1]), "take": np.take, "where": np.where}[name](*x, *more)
    if name == "cast" and "how" in case:
        return converted_by(x[0], dtypes.of(case["to"]), case)
    if name == "cast":
        return converted(x[0], dtypes.of(case["to"]))
    if name in OF_INTEGERS:
        columns = [y.ravel().tolist() for y in x]
        return wrapped(itertools.starmap(OF_INTEGERS[name], zip(*columns, strict=True)), kind).reshape(shape)
    if kind.is_float:
        wide = [y.astype(np.float64) for y in x]
        if name in OF_SCALED_ROWS:
            rest = [y.tolist() for y in wide[1:]]
            found = [OF_SCALED_ROWS[name](row, *rest) for row in wide[0].tolist()]
            return coded(np.array(found), kind)
        if name in OF_ROWS:
            return coded(np.array([OF_ROWS[name](row) for row in wide[0].tolist()]), kind)
        if name == "gelu" and "approximate" in case:
            return coded(gelu_tanh(wide[0]), kind)
        if name in OF_MPFR:
            return coded(by_mpfr(name, *wide), kind)
        if name == "silu":
            return coded((wide[0].astype(np.float32) * by_mpfr("sigmoid", wide[0])), kind)
        made = fma(*(y.ravel() for y in wide)).reshape(shape) if name == "fma" else OF_NUMPY[name](*wide)
        return made if made.dtype == bool else coded(made, kind)
    if name in OF_ROWS:
        total = {"sum": dtypes.uint64 if kind is dtypes.uint64 else dtypes.int64}.get(name, kind)
        return wrapped([{"sum": sum}.get(name, OF_ROWS[name])(row) for row in x[0].tolist()], total)
    return OF_NUMPY[name](*x)


def converted(x, to):
    """By Python's integers, and what is nearest among a format's values."""
    values = x.ravel().tolist()
    if to.kind == "bool":
        return np.array([value != 0 for value in values])
    if to.is_float:
        # Float64 is nearest to an integer of 64 bits, as Python has it; narrower formats take it from there, exactly.
        exact = all(int(value) == value and abs(value) < 2**53 for value in values) or x.dtype.kind not in "iu"
        if to.width_bits == 16 and not exact:
            return np.array([int(bfloat16_of(value)) for value in values], np.uint16).view(to.numpy)
        return coded(np.array([float(value) for value in values]), to)
    whole = [int(value) for value in x.astype(np.float64).ravel().tolist()]
    return np.array([min(max(value, int(to.min)), int(to.max)) for value in whole], to.numpy)


def bfloat16_of(value: int) -> int:
    """The code of the bfloat16 that is nearest to an integer, ties to even."""
    if value == 0:
        return 0
    exponent = abs(value).bit_length() - 8
    fraction = round(Fraction(abs(value)) / Fraction(2) ** exponent)  # of 8 bits, or 256
    return (value < 0) << 15 | (((exponent + 134) << 7) + fraction - 128)


def ruled(step, row):
    """A row by section 6: lanes, then the tree, of blocks of 2048."""
    while True:
        found = []
        for start in range(0, len(row), 2048):
            block = row[start : start + 2048]
            lanes = [functools.reduce(step, block[lane::64]) for lane in range(min(64, len(block)))]
            for apart in (32, 16, 8, 4, 2, 1):
                lanes = [functools.reduce(step, lanes[lane::apart][:2]) for lane in range(min(apart, len(lanes)))]
            found.append(lanes[0])
        if len(found) == 1:
            return found[0]
        row = found


def variance(row):
    """Of a row of float32, two passes."""
    mean = ruled(operator.add, row) / np.float32(len(row))
    return ruled(operator.add, [(x - mean) * (x - mean) for x in row]) / np.float32(len(row))


LISTED = {
    "addcmul": lambda x, y, z, value: x + (value * y) * z,
    "clip": lambda x, low, high: np.clip(x, low, high),
    "frac": lambda x: x - np.trunc(x),
    "lerp": lambda a, b, w: np.where(np.abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w)),
    "rsqrt": lambda x: np.where(x < 0, np.float32(np.nan), 1 / np.sqrt(x)),
    "square": lambda x: x * x,
    "threshold": lambda x, limit, value: np.where(x <= limit, value, x),
    "trunc": np.trunc,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "signbit": np.signbit,
    "var": lambda x: np.array([variance(list(row)) for row in x]),
    "cumsum": lambda x: np.array([list(itertools.accumulate(row)) for row in x]),
    "cumprod": lambda x: np.array([list(itertools.accumulate(row, operator.mul)) for row in x]),
    "cummax": lambda x: np.array([list(itertools.accumulate(row, max)) for row in x]),
    "cummin": lambda x: np.array([list(itertools.accumulate(row, min)) for row in x]),
    "sort": lambda x: np.sort(x, 1),
    "topk": lambda x: -np.sort(-x, 1)[:, :7],
}
EACH = {
    "gcd": math.gcd,
    "floor_divide": lambda x, y: x // y if y else 0,
    "fmod": math.fmod,
    "remainder": operator.mod,
}


def raised(x, y, modulus):
    """x to the y, wrapped; beside a negative y what is left of 1 / x**-y toward zero, and 0 of 0."""
    return pow(x, y, modulus) if y >= 0 else {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


def by_lists(case, x, kind):
    """Functions of the later cases by NumPy's elements one after the other, Python's numbers and torch; else None."""
    name = case["operation"]
    narrow = kind.is_float and kind is not dtypes.float64
    wide = [y.astype(np.float32) if narrow and y.dtype == x[0].dtype else y for y in x]
    if name == "argsort":
        return np.array([sorted(range(len(row)), key=row.tolist().__getitem__) for row in wide[0]])
    if name in ("take_along_axis", "scatter"):
        found = np.array(x[0])
        for i, j in np.ndindex(*x[1].shape):
            target, source = ((i, j), (i, x[1][i, j]))
            if name == "scatter":
                found[source] = x[2][target]
            else:
                found[target] = x[0][source]
        return found
    if name == "nextafter":
        given = [torch.from_numpy(y.view(f"i{kind.size_bytes}")).view(getattr(torch, kind.name)) for y in x]
        return torch.nextafter(*given).view(getattr(torch, f"int{kind.width_bits}")).numpy().view(x[0].dtype)
    if name == "pow" and kind.is_integer:
        pairs = zip(*(y.ravel().tolist() for y in x), strict=True)
        return wrapped([raised(*pair, 1 << kind.width_bits) for pair in pairs], kind).reshape(x[0].shape)
    if name in EACH and (kind.is_float or name in ("gcd", "floor_divide")):
        pairs = zip(*(y.astype(np.float64 if kind.is_float else object).ravel().tolist() for y in wide), strict=True)
        values = [EACH[name](*pair) for pair in pairs]
        return np.array(values, np.float64 if kind.is_float else None).reshape(x[0].shape).astype(x[0].dtype)
    if name == "prod":
        rows = [ruled(operator.mul, list(row if kind.is_float else row.astype(np.int64))) for row in wide[0]]
        return np.array(rows)
    if name not in LISTED:
        return None
    if name == "cumsum" and kind.is_integer:
        wide = [y.astype(np.int64) for y in wide]
    made = LISTED[name](*wide)
    return made if made.dtype == bool or not narrow else made.astype(x[0].dtype)


# Dialects have outsiders of their own: the packages that they copy (tests/kernels/quantize/test_dialects.py).
NEW = [case for case in WRITTEN if case["seed"] >= 130 and case["operation"] not in ("quantize", "matmul")]


@pytest.mark.parametrize("case", NEW, ids=lambda c: f"{c['operation']} {c['seed']}")
def test_others_give_the_digests_of_elements_rows_and_moves(case):
    with np.errstate(all="ignore"):  # 1 / 0 is infinite, a product may be
        x = conformance.inputs(case)
        found = by_lists(case, x, dtypes.of(x[0].dtype))
        found = np.ascontiguousarray(by_others(case) if found is None else found)
    assert conformance.digest(found) == case["digest"]


def test_every_public_function_of_elements_rows_and_moves_has_a_case():
    of_products = {
        "matmul",
        "linear",
        "grad_input",
        "grad_weight",
        "grad_bias",
        "grouped_matmul",
        "pack",
        "plan_matmul",
    }
    only_moved = {"copy", "contiguous", "fill", "to_packed", "to_padded"}
    assert nodes.NODES.keys() - of_products - only_moved <= {case["operation"] for case in WRITTEN}
