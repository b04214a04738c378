"""The operation `contract` with the options of `matmul`: a node, an eager call and the reference give the same bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import rows

import samebits as sb
from samebits import dtypes, tuning
from samebits.codegen import isa as isas
from samebits.codegen.isa import Isa
from samebits.errors import DTypeError, OptionError, ShapeError
from samebits.kernels import composites
from samebits.operations import dim, matmul, registry
from samebits.operations.matmul import MatrixProduct
from samebits.operations.operation import PlanTarget
from samebits.operations.product import Options
from samebits.operations.sharing import Block
from samebits.operations.strided import dense_strides
from samebits.program.builder import ProgramBuilder
from samebits.runtime import cpu
from samebits.runtime.specialised import record

Array = np.ndarray[Any, np.dtype[Any]]
F32, BF16 = np.float32, ml_dtypes.bfloat16
M, K, N = 5, 40, 9


def drawn(kind: Any, *shape: int, seed: int = 0) -> Array:
    rng, row = np.random.default_rng([seed, *shape]), dtypes.of(kind)
    if row.is_integer:
        return rng.integers(int(row.min), int(row.max) + 1, shape).astype(kind)
    return rng.standard_normal(shape).astype(kind)


def scales(*shape: int) -> Array:
    return np.exp(drawn(F32, *shape, seed=9)).astype(F32)


BYTES = {"a": drawn(np.int8, M, K), "b": drawn(np.uint8, K, N)}
LINES = {"a_scale": scales(M), "b_scale": scales(N)}
# Operands by name, what the node is asked for, and the same for `matmul`.
CASES: dict[str, tuple[dict[str, Array], Options, dict[str, Any]]] = {
    "integers": (BYTES, Options(), {}),
    "integers of another dtype": (BYTES, Options(out_dtype=dtypes.float32), {"out_dtype": "float32"}),
    "zero points": (
        BYTES | {"b_zero_point": drawn(np.uint8, N), "a_zero_point": drawn(np.int8)}, Options(), {}
    ),
    "scales before zero points": (
        BYTES | LINES | {"b_zero_point": drawn(np.uint8), "a_zero_point": drawn(np.int8, M)}, Options(), {}
    ),
    "an int32 bias": (BYTES | {"bias": drawn(np.int16, N).astype(np.int32)}, Options(), {}),
    "requantised": (
        BYTES | {"bias": drawn(np.int16, N).astype(np.int32), "out_zero_point": drawn(np.uint8),
                 "out_scale": np.array(9e4, F32)} | LINES,
        Options(out_dtype=dtypes.uint8), {"out_dtype": "uint8"},
    ),
    "quantised": (
        {"a": drawn(F32, M, K), "b": drawn(np.int8, K, N), "a_scale": np.array(0.02, F32)},
        Options(a_dtype=dtypes.uint8), {"a_dtype": "uint8"},
    ),
    "bfloat16": ({"a": drawn(BF16, 2, M, K), "b": drawn(BF16, K, N)}, Options(), {}),
    "float16 with a bias": (
        {"a": drawn(np.float16, M, K), "b": drawn(np.float16, K, N), "bias": drawn(F32, N)}, Options(), {}
    ),
    "float64": ({"a": drawn(np.float64, M, K), "b": drawn(F32, K, N)}, Options(), {}),
    "float8": (
        {"a": drawn(ml_dtypes.float8_e4m3fn, M, K), "b": drawn(ml_dtypes.float8_e5m2, K, N)}, Options(), {}
    ),
    "weights in blocks": (
        {"a": drawn(BF16, M, K), "b": drawn(np.int8, K, N), "b_scale": scales(3, N),
         "b_zero_point": drawn(np.int8, 3, N)},
        Options(b_group=Block(16)), {"b_group": 16},
    ),
    "blocks on both sides": (
        {"a": drawn(np.int8, M, K), "b": drawn(np.int8, K, N), "a_scale": scales(M, 3), "b_scale": scales(3, N),
         "a_global_scale": scales(M), "b_global_scale": np.array(0.3, F32)},
        Options(a_group=Block(16), b_group=Block(16)), {"a_group": 16, "b_group": 16},
    ),
    "blocks of several lines": (
        {"a": drawn(ml_dtypes.float4_e2m1fn, M, K), "b": drawn(ml_dtypes.float8_e4m3fn, K, N),
         "a_scale": scales(M, 3), "b_scale": scales(3, -(-N // 8))},
        Options(a_group=16, b_group=(16, 8)), {"a_group": 16, "b_group": (16, 8)},
    ),
    "all that is added": (
        {"a": drawn(F32, M, K), "b": drawn(F32, K, N), "c": drawn(F32, M, N), "bias": drawn(F32, M, 1),
         "alpha": np.array(0.3, F32), "beta": np.array(-2.5, F32)} | LINES,
        Options(activation="gelu"), {"activation": "gelu"},
    ),
}  # fmt: skip


def ran(arrays: dict[str, Array], options: Options, isa: Isa) -> tuple[Array, Any]:
    """The node's result, and the dtype that was inferred."""
    p = ProgramBuilder("one")
    values = {name: p.input(name, dtypes.of(x.dtype), x.shape) for name, x in arrays.items()}
    made = p.contract(values.pop("a"), values.pop("b"), options, **values)
    dtype = p.facts[made].dtype
    return cpu.prepare(p.build({"y": made}), threads=2, isa=isa).run(arrays)["y"], dtype


@rows.in_turn("isa, name", tuple(CASES), 0, always=[isas.best()], among=rows.AVAILABLE)
def test_a_node_is_the_eager_call_and_the_reference(isa: Isa, name: str) -> None:
    arrays, options, given = CASES[name]
    got, dtype = ran(arrays, options, isa)
    with sb.use_isa(isa):
        due = sb.matmul(**{key: x.item() if key in ("alpha", "beta") else x for key, x in arrays.items()}, **given)
    assert dtypes.of(got.dtype) is dtypes.of(due.dtype) is dtype
    assert got.tobytes() == due.tobytes()
    (meant,) = registry.ROWS["contract"].reference(
        MatrixProduct(names=tuple(arrays), options=options), list(arrays.values())
    )
    assert meant.dtype == due.dtype
    assert np.broadcast_to(meant, due.shape).tobytes() == due.tobytes()


def test_sizes_are_bound_again() -> None:
    rows = dim.symbol("rows")
    for name in ("scales before zero points", "weights in blocks", "quantised"):
        arrays, options, given = CASES[name]
        p = ProgramBuilder("rows")
        shapes: dict[str, Any] = {key: x.shape for key, x in arrays.items()} | {"a": (rows, K)}
        shapes |= {key: (rows,) for key in ("a_scale", "a_zero_point") if arrays.get(key, np.empty(0)).shape == (M,)}
        values = {key: p.input(key, dtypes.of(x.dtype), shapes[key]) for key, x in arrays.items()}
        made = p.contract(values.pop("a"), values.pop("b"), options, **values)
        session = cpu.prepare(p.build({"y": made}), threads=1)
        for m in (1, 3, 64, 3, 200, 2):
            taken = {
                key: np.resize(x, (m, *x.shape[1:])) if shapes[key][:1] == (rows,) else x for key, x in arrays.items()
            }
            assert session.run(taken)["y"].tobytes() == sb.matmul(**taken, **given).tobytes(), (name, m)


# A left format, a constant right operand, and what the product has beside them; whether it is kept in panels.
KEPT: dict[str, tuple[str, Array, Options, dict[str, Array], bool | None]] = {
    "int8": ("int8", drawn(np.int8, K, N), Options(), {}, True),
    "uint8 with zero points and scales": (
        "uint8", drawn(np.int8, K, N), Options(),
        {"a_zero_point": drawn(np.uint8), "b_zero_point": drawn(np.int8, N), "a_scale": scales(), "b_scale": scales(N)},
        True,
    ),
    "requantised": (
        "uint8", drawn(np.uint8, K, N), Options(out_dtype=dtypes.uint8),
        {"a_scale": scales(), "b_scale": scales(N), "out_scale": np.array(900, F32), "out_zero_point": drawn(np.uint8)},
        True,
    ),
    "quantised": ("float32", drawn(np.int8, K, N), Options(a_dtype=dtypes.uint8), {"a_scale": scales()}, True),
    "bfloat16": ("bfloat16", drawn(BF16, K, N), Options(), {"bias": drawn(F32, N)}, True),
    "float16": ("float16", drawn(np.float16, K, N), Options(out_dtype=dtypes.float32), {}, True),
    "float64": ("float64", drawn(np.float64, K, N), Options(), {}, True),
    "float32 by bfloat16": ("bfloat16", drawn(F32, K, N), Options(), {}, True),
    "in segments": ("bfloat16", drawn(BF16, K, N), Options(spec=sb.Spec(chunk=5, segments=2)), {}, None),
    "weights": ("float32", drawn(np.int8, K, N), Options(), {"b_scale": scales(N)}, True),
    "weights in blocks": (
        "bfloat16", drawn(np.uint8, K, N), Options(b_group=Block(16)), {"b_scale": scales(3, N)}, True
    ),
    "weights with zero points": (
        "float32", drawn(np.int8, K, N), Options(), {"b_zero_point": drawn(np.int8, N)}, False
    ),
    "bytes in blocks": ("int8", drawn(np.int8, K, N), Options(b_group=Block(16)), {"b_scale": scales(3, N)}, False),
    "codes": ("float32", drawn(BF16, K, N), Options(), {}, True),
    "wider words": ("float32", drawn(ml_dtypes.float8_e4m3fn, K, N), Options(), {}, False),
}  # fmt: skip


@rows.in_turn("row, name", tuple(KEPT), 3, always=[isas.best()], among=rows.AVAILABLE)
def test_a_right_operand_that_is_known_is_packed_once(row: Isa, name: str) -> None:
    """For runs of any size, each with the bits of the eager call."""
    left, b, options, given, is_kept = KEPT[name]
    p, made = ProgramBuilder("kept"), dict[Any, Array]()
    values = {key: p.constant(x) for key, x in given.items()}
    y = p.contract(p.input("a", dtypes.of(left), (dim.symbol("rows"), K)), p.constant(b), options, **values)
    program = p.build({"y": y})
    blueprints = [record(program, row, 2, {"rows": m}, {"a": (K, 1)}, made) for m in (3, 64)]
    exact = options.b_group is None and b.dtype.kind in "iu" and (options.a_dtype or dtypes.of(left)).is_integer
    if is_kept is not None and not (exact and "dot2_int16" not in row.instructions):  # or a word an element, of 4 bytes
        assert len(made) == is_kept
    plans = [plan for found in blueprints for plan, _ in found.bind(found.tape.replay([3, K, 1]), {"rows": 3}).calls]
    assert all("packed" in plan.what for plan in plans) == bool(made)
    session, more = cpu.prepare(program, threads=2, isa=row), {"b_group": options.b_group, "spec": options.spec}
    more |= {"a_dtype": options.a_dtype, "out_dtype": options.out_dtype}
    for m in (1, 3, 64, 3, 200) if row.compiled else (1, 3, 64, 3):
        a = drawn(dtypes.of(left).numpy, m, K, seed=m)
        with sb.use_isa(row):
            due = sb.matmul(a, b, **given, **{key: value for key, value in more.items() if value is not None})
        assert session.run({"a": a})["y"].tobytes() == due.tobytes(), m


@rows.in_turn("row, name", tuple(KEPT), 1, always=[isas.best()], among=[x for x in rows.AVAILABLE if x.compiled])
def test_kernels_and_numpy_pack_alike(row: Isa, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large is packed by kernels where the program runs, and by NumPy where it is only planned."""
    monkeypatch.setattr(matmul, "_LARGE", 1)
    left, b, options, given, _ = KEPT[name]
    p = ProgramBuilder("kept")
    values = {key: p.constant(x) for key, x in given.items()}
    y = p.contract(p.input("a", dtypes.of(left), (5, K)), p.constant(b), options, **values)
    program, both = p.build({"y": y}), list[dict[Any, Array]]()
    for runs in (True, False):
        both.append({})
        record(program, row, 2, {}, {"a": (K, 1)}, both[-1], runs=runs)
    assert both[0].keys() == both[1].keys()
    for key, words in both[0].items():
        assert words.dtype == both[1][key].dtype
        assert words.tobytes() == both[1][key].tobytes()


def test_sizes_of_products_of_scaled_blocks_are_bound_again() -> None:
    b, p, n = drawn(ml_dtypes.float4_e2m1fn, 64, N), ProgramBuilder("rows"), dim.symbol("rows")
    of_b, options = scales(4, N), Options(a_group=Block(16), b_group=Block(16))
    facts = {"a": (dtypes.float4_e2m1fn, (n, 64)), "a_scale": (dtypes.float32, (n, 4))}
    a, of_a = (p.input(name, *fact) for name, fact in facts.items())
    y = p.contract(a, p.constant(b), options, a_scale=of_a, b_scale=p.constant(of_b))
    session = cpu.prepare(p.build({"y": y}), threads=2)
    for m in (1, 3, 64, 200, 3, 65, 1):
        given = {"a": drawn(ml_dtypes.float4_e2m1fn, m, 64), "a_scale": scales(m, 4)}
        due = sb.matmul(given["a"], b, a_scale=given["a_scale"], b_scale=of_b, a_group=16, b_group=16)
        assert session.run(given)["y"].tobytes() == due.tobytes(), m


def test_a_map_joins_a_product_of_integers_with_scales() -> None:
    arrays = BYTES | LINES
    p = ProgramBuilder("fused")
    values = {name: p.input(name, dtypes.of(x.dtype), x.shape) for name, x in arrays.items()}
    made = p.contract(values.pop("a"), values.pop("b"), **values)
    (shown,) = p.map(composites.relu(), made)
    session = cpu.prepare(p.build({"y": shown}), threads=1)
    due = np.maximum(sb.matmul(**arrays), F32(0))
    assert session.run(arrays)["y"].tobytes() == due.tobytes()


def test_what_cannot_be_a_node_is_refused_when_it_is_built() -> None:
    p = ProgramBuilder("none")
    x, y, z = p.input("x", dtypes.int8, (M, K)), p.input("y", dtypes.int8, (K, N)), p.input("z", dtypes.float32, (K, N))
    with pytest.raises(DTypeError, match="b dtype is float32, must be one that multiplies with int8"):
        p.contract(x, z)
    with pytest.raises(OptionError, match="a_zero_point is given for float32 and float32"):
        p.contract(p.transpose(z, (1, 0)), z, a_zero_point=x)
    with pytest.raises(OptionError, match="beta is given without c"):
        p.contract(x, y, beta=p.input("beta", dtypes.float32, ()))
    for extent in (M, dim.symbol("rows")):
        scaled = p.input(f"scaled {extent}", dtypes.int8, (extent, K)), y
        with pytest.raises(ShapeError, match=r"alpha shape is \(1,\), must be one that broadcasts to \(\)"):
            p.contract(*scaled, alpha=p.input(f"alpha {extent}", dtypes.float32, (1,)))
    with pytest.raises(ShapeError, match="equal in K"):
        p.contract(x, x)
    with pytest.raises(ShapeError, match=r"a_scale shape is \(4,\), must be \[\], \[5\] or \[5, 1\]"):
        p.contract(x, y, a_scale=p.input("scale", dtypes.float32, (4,)))
    point = p.input("point", dtypes.uint8, ())
    narrow = p.input("narrow", dtypes.int4, (K, N))
    with pytest.raises(DTypeError, match="b_zero_point dtype is uint8, must be int4 or int8"):
        p.contract(p.transpose(z, (1, 0)), narrow, b_zero_point=point)


def test_a_plain_product_is_what_its_description_says() -> None:
    """Asked without an option, and with one that changes nothing."""
    row, machine = isas.current(), tuning.machine(isas.current())
    for batch in ((), (2,)):
        views = tuple(
            (dtypes.float32, (*batch, *shape), dense_strides((*batch, *shape))) for shape in ((3, 40), (40, 5), (3, 5))
        )
        target = PlanTarget(row, 1, machine)
        planner = registry.ROWS["contract"].plan
        assert planner is not None
        plain = planner(MatrixProduct(), views, target)
        described = planner(MatrixProduct(options=Options(out_dtype=dtypes.float32)), views, target)
        assert plain == described
