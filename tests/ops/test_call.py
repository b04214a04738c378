"""Eager calls: the same kind of array out, bad operands get one sentence."""

import dataclasses

import numpy as np
import pytest
import torch

import samebits as sb
from samebits.kernels import gemm
from samebits.kernels.plan import Plan

WITHIN = "a number within [-1.7976931348623157e+308, 1.7976931348623157e+308]"


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_kind_follows_the_first_operand():
    x = normal(3, 4)
    assert type(sb.exp(x)) is np.ndarray
    assert type(sb.exp(torch.from_numpy(x))) is torch.Tensor
    assert type(sb.exp(sb.Tensor.from_any(x))) is sb.Tensor
    assert type(sb.matmul(torch.from_numpy(x), x.T)) is torch.Tensor
    assert type(sb.sum(torch.from_numpy(x), 1)) is torch.Tensor


def test_kind_of_jax_arrays():
    jax = pytest.importorskip("jax")
    x = normal(3, 4)
    y = sb.softmax(jax.numpy.asarray(x))
    assert isinstance(y, jax.Array)
    assert np.asarray(y).tobytes() == sb.softmax(x).tobytes()


def test_out_is_written_and_returned():
    x, out = normal(3, 4), np.empty((3, 4), np.float32)
    assert sb.exp(x, out=out) is out
    assert out.tobytes() == sb.exp(x).tobytes()
    strided = np.zeros((3, 8), np.float32)
    assert sb.softmax(x, out=strided[:, ::2]).tobytes() == sb.softmax(x).tobytes()
    assert not strided[:, 1::2].any()
    c = normal(3, 3)
    expected = gemm.reference(x, x.T, c=c)
    assert sb.matmul(x, x.T, c=c, out=c) is c
    assert c.tobytes() == expected.tobytes()


def test_out_may_interleave_with_an_operand_or_be_it():
    x = normal(5, 8)
    expected = sb.exp(x[:, ::2])
    sb.exp(x[:, ::2], out=x[:, 1::2])
    assert x[:, 1::2].tobytes() == expected.tobytes()
    y = normal(64, 64)
    expected = sb.softmax(y)
    assert sb.softmax(y, out=y).tobytes() == expected.tobytes()
    z = normal(3)
    expected = sb.add(sb.matmul(x[0], x[:3].T), z)
    assert sb.matmul(x[0], x[:3].T, c=z, out=z).tobytes() == expected.tobytes()


def test_numbers_take_the_dtype_and_leave_the_kind():
    t = torch.ones(2, 3)
    for _ in range(2):
        assert type(sb.subtract(1.0, t)) is torch.Tensor
        assert sb.multiply(np.arange(4, dtype=np.int8), 3).tolist() == [0, 3, 6, 9]
        assert sb.multiply(normal(3), 1e300).tobytes() == (normal(3) * np.float32(np.inf)).tobytes()
        assert sb.add(1, 2).tolist() == 3.0
    assert (
        sb.matmul(normal(2, 2), normal(2, 2), alpha=1e300).tobytes()
        == sb.multiply(sb.matmul(normal(2, 2), normal(2, 2)), float("inf")).tobytes()
    )


def closed():
    x = sb.Tensor.zeros((3,))
    x.buffer.close()
    return x


@pytest.mark.parametrize(
    ("made", "kind", "text"),
    [
        (
            lambda x: sb.matmul(x, x),
            sb.ShapeError,
            "matmul: b row count is 3, must be a's column count 4; pass b of shape [..., 4, N]",
        ),
        (
            lambda x: sb.matmul(x.astype(np.int64), x.T),
            sb.DTypeError,
            "matmul: a dtype is int64, must be a float or an integer of at most 8 bits; convert it first",
        ),
        (
            lambda x: sb.linear(x, np.ones((5, 4), np.int8), weight_scale=[0.5] * 5),
            sb.DTypeError,
            (
                "linear: weight_scale dtype is float64, as NumPy reads a list, must be float32 or float16 or bfloat16 "
                "or float8_e3m4 or float8_e4m3 or float8_e4m3b11fnuz or float8_e4m3fn or float8_e4m3fnuz or "
                "float8_e5m2 or float8_e5m2fnuz or float8_e8m0fnu; pass an array, which says its dtype"
            ),
        ),
        (
            lambda x: sb.add(x, [1.0, 2.0, 3.0, 4.0]),
            sb.DTypeError,
            "add: y dtype is float64, as NumPy reads a list, must be float32; pass an array, which says its dtype",
        ),
        (
            lambda x: sb.matmul(sb.pack(x), x),
            sb.ExchangeError,
            "matmul: a is a packed matrix [3, 4], must be an array; pass the array that was packed",
        ),
        (
            lambda x: sb.matmul(x, x.T, activation="mish"),
            sb.OptionError,
            (
                "matmul: activation is 'mish', must be one of erf, exp, gelu, gelu_tanh, relu, sigmoid, silu, tanh; "
                "apply it after"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, bias=np.zeros(5, np.float32)),
            sb.ShapeError,
            "matmul: bias shape is (5,), must be one that broadcasts to (3, 3); reshape it",
        ),
        (
            lambda x: sb.matmul(x, x.T, out=x[:, :3]),
            sb.LayoutError,
            "matmul: out memory is that of an operand, must be its own; leave out= away",
        ),
        (
            lambda x: sb.matmul(x, x.T, plan=sb.plan_matmul(x[:2], x.T)),
            sb.PlanError,
            (
                "matmul: plan is matmul a[2,4] b[4,3], chunk 128, must be the one for matmul a[3,4] b[4,3], chunk 128; "
                "make it with plan_matmul for these operands"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, plan=sb.plan_matmul(x.copy("F"), x.T)),
            sb.PlanError,
            (
                "matmul: plan is for other strides, options or tiles, must be the one for "
                "matmul a[3,4] b[4,3], chunk 128; make it with plan_matmul for these operands"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, plan=sb.plan_matmul(x, x.T, activation="relu")),
            sb.PlanError,
            (
                "matmul: plan is for other strides, options or tiles, must be the one for "
                "matmul a[3,4] b[4,3], chunk 128; make it with plan_matmul for these operands"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, plan="fast"),
            sb.OptionError,
            "matmul: plan is 'fast', must be a Plan; make it with plan_matmul",
        ),
        (
            lambda x: sb.matmul(x, x.T, spec=256),
            sb.OptionError,
            "matmul: spec is 256, must be a Spec; leave it out for sb1",
        ),
        (
            lambda x: sb.matmul(x, x.T, alpha="2"),
            sb.OptionError,
            "matmul: alpha is '2', must be a number; pass a float",
        ),
        (
            lambda x: sb.matmul(x, x.T, alpha=-(10**400)),
            sb.OptionError,
            f"matmul: alpha is beyond float64, must be {WITHIN}; pass float('inf') for more",
        ),
        (
            lambda x: sb.matmul(x, x.T, out_dtype=10**5000),
            sb.DTypeError,
            (
                "matmul: out_dtype is a number of too many digits to show, must be an element format; "
                "pass one of its names, such as 'float32'"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, threads=10**5000),
            sb.OptionError,
            (
                "matmul: threads is a number of too many digits to show, must be an integer from 1 to 255; "
                "leave it out for every core"
            ),
        ),
        (
            lambda x: sb.matmul(x, x.T, activation=np.zeros(2)),
            sb.OptionError,
            (
                "matmul: activation is array([0., 0.]), must be one of erf, exp, gelu, gelu_tanh, relu, sigmoid, silu, "
                "tanh; apply it after"
            ),
        ),
        (
            lambda x: sb.cast(x, "float7"),
            sb.DTypeError,
            (
                "cast: dtype is 'float7', must be an element format; "
                "pass one of its names, such as 'float64', 'float32', 'float16'"
            ),
        ),
        (
            lambda x: sb.layer_norm(x, eps=None),
            sb.OptionError,
            "layer_norm: eps is None, must be a number; pass a float",
        ),
        (
            lambda x: sb.matmul(np.stack([x, x]), np.stack([x.T] * 3)),
            sb.ShapeError,
            "matmul: b batch shape is (3,), must be one that broadcasts with a's (2,); reshape one of them",
        ),
        (
            lambda x: sb.matmul(x, np.float32(3)),
            sb.ShapeError,
            "matmul: b rank is 0, must be at least 1; use multiply for a scalar",
        ),
        (
            lambda x: sb.exp(x[:, :3], out=x[:, 1:]),
            sb.LayoutError,
            "exp: out memory is that of an operand, must be its own, or exactly an operand's; leave out= away",
        ),
        (
            lambda x: sb.softmax(x[:, :3], out=x[:, :3].T),
            sb.LayoutError,
            "softmax: out memory is that of an operand, must be its own, or exactly an operand's; leave out= away",
        ),
        (
            lambda x: sb.exp(x, out=np.lib.stride_tricks.as_strided(x.copy(), (3, 4), (4, 4))),
            sb.LayoutError,
            (
                "exp: out layout is (3, 4) with strides_bits (32, 32), must be one with a place for each element; "
                "pass another array"
            ),
        ),
        (
            lambda x: sb.exp(x[0], out=[np.float32(0)] * 4),
            sb.ExchangeError,
            "exp: out type is list, must be an array; make one with numpy.empty",
        ),
        (
            lambda x: sb.exp(x[0, 0], out=np.float32(0)),
            sb.ExchangeError,
            "exp: out type is float32, must be an array; make one with numpy.empty",
        ),
        (
            lambda x: sb.multiply(x.astype(np.int32), 0.5),
            sb.DTypeError,
            "multiply: y is 0.5, must be an integer, as the array is int32; cast the array first",
        ),
        (
            lambda x: sb.add(300, x.astype(np.uint8)),
            sb.DTypeError,
            "add: x is 300, must be within [0, 255], as the array is uint8; cast the array first",
        ),
        (
            lambda x: sb.add(x, 10**400),
            sb.DTypeError,
            f"add: y is beyond float64, must be {WITHIN}; pass an array",
        ),
        (
            lambda x: sb.add(x, x.astype(np.float64)),
            sb.DTypeError,
            "add: y dtype is float64, must be float32; convert it first",
        ),
        (
            lambda x: sb.exp(range(3)),
            sb.DTypeError,
            "exp: x dtype is int64, must be any float with a zero; convert it first",
        ),
        (
            lambda x: sb.exp(closed()),
            sb.ClosedError,
            "exp: x buffer is closed, must be open; close it after its last use",
        ),
        (
            lambda x: sb.exp(x, out=np.empty((4, 3), np.float32)),
            sb.ShapeError,
            "exp: out shape is (4, 3), must be (3, 4); pass an array of that shape",
        ),
        (
            lambda x: sb.exp(x, threads=0),
            sb.OptionError,
            "exp: threads is 0, must be an integer from 1 to 255; leave it out for every core",
        ),
        (
            lambda x: sb.add(x, x[:, :3]),
            sb.ShapeError,
            "add: y shape is (3, 3), must be one that broadcasts with (3, 4); reshape it",
        ),
        (
            lambda x: sb.sum(x, (0, -2)),
            sb.LayoutError,
            "sum: axis is (0, -2), must be each axis once; leave out the repeated one",
        ),
        (
            lambda x: sb.max(x[:, :0], 1),
            sb.ShapeError,
            "max: x row length is 0, must be at least 1; an empty row has no max",
        ),
        (
            lambda x: sb.layer_norm(x, x[0, :3]),
            sb.ShapeError,
            "layer_norm: weight shape is (3,), must be (4,); match x's last axis",
        ),
        (lambda x: sb.pack(x[0]), sb.ShapeError, "pack: b rank is 1, must be at least 2; reshape a vector to [K, 1]"),
    ],
)
def test_error_texts(made, kind, text):
    with pytest.raises(kind) as caught:
        made(normal(3, 4))
    assert str(caught.value) == text


def test_read_only_out_is_refused():
    out = np.empty(3, np.float32)
    out.flags.writeable = False
    with pytest.raises(sb.ExchangeError, match="exp: out memory is read-only, must be writable; pass another array"):
        sb.exp(np.zeros(3, np.float32), out=out)
    with pytest.raises(sb.ExchangeError):
        sb.matmul(normal(3, 2), normal(2, 3), out=np.broadcast_to(np.float32(0), (3, 3)))


def test_an_operand_that_is_also_c_is_not_overwritten():
    a, other = (sb.Tensor.from_any(normal(4, 4, seed=seed)) for seed in (0, 1))
    for left, right in ((a, other), (other, a)):
        with pytest.raises(sb.LayoutError, match="must be its own, or exactly c's"):
            sb.matmul(left, right, c=a, out=a)


def test_a_plan_takes_no_memory_for_its_result():
    huge, one = 1 << 20, np.ones((1, 8), np.float32)
    a, b = np.broadcast_to(one, (huge, 8)), np.broadcast_to(one.T, (8, huge))
    assert str(sb.plan_matmul(a, b)).startswith("matmul a[1048576,8] b[8,1048576], chunk 128\n")
    batched = np.broadcast_to(one.T, (1 << 30, 8, huge))
    for call in (sb.plan_matmul, sb.matmul):
        with pytest.raises(sb.LayoutError) as error:
            call(a, batched)
        assert str(error.value) == (
            f"{call.__name__}: out shape is (1073741824, 1048576, 1048576), must be one of fewer than 2**63 elements; "
            "multiply parts of the operands"
        )


def test_a_plan_for_other_operands_of_an_empty_product_is_refused():
    for m, k, n in ((0, 3, 4), (4, 3, 0), (0, 0, 0)):
        a, b = normal(m, k), normal(k, n)
        with pytest.raises(sb.PlanError) as error:
            sb.matmul(a, b, plan=sb.plan_matmul(normal(4, 8), normal(8, 6)))
        assert str(error.value) == (
            f"matmul: plan is matmul a[4,8] b[8,6], chunk 128, must be the one for matmul a[{m},{k}] b[{k},{n}], "
            "chunk 128; make it with plan_matmul for these operands"
        )
        for out in (None, np.empty((m, n), np.float32), np.empty((n, m), np.float32).T):
            assert sb.matmul(a, b, out=out, plan=sb.plan_matmul(a, b, out=out)).shape == (m, n)
            assert sb.matmul(a, b, out=out, plan=sb.plan_matmul(a, b)).shape == (m, n)


def tampered(plan):
    """Plans that nobody made: a change, the operand and fact that it is refused for, and what they are."""
    made_up = dataclasses.replace(plan.isa, registers=9)
    absent = next(row for row in sb.isas() if not row.available)
    no_count, no_row = "an integer from 1 to 255", "a row of samebits.isas() or its name"
    here = f"one of {[row.name for row in sb.isas() if row.available]}"
    other = "for other strides, options or tiles", f"the one for {plan.what}"
    step = plan.steps[0]
    return [
        ({"threads": 0}, "plan threads", "0", no_count),
        ({"threads": 256}, "plan threads", "256", no_count),
        ({"threads": 1.0}, "plan threads", "1.0", no_count),
        ({"threads": True}, "plan threads", "True", no_count),
        ({"isa": None}, "plan isa", "None", no_row),
        ({"isa": made_up}, "plan isa", f"a made-up row, {made_up.name!r}", no_row),
        ({"isa": absent}, f"plan row {absent.name!r} state", "unavailable on this machine", here),
        ({"steps": list(plan.steps)}, "plan", *other),
        ({"steps": ()}, "plan", *other),
        ({"scratch_bytes": 0}, "plan", *other),
        ({"workspace_bytes": 1 << 40}, "plan", *other),
        ({"steps": (dataclasses.replace(step, tasks=step.tasks + 1),)}, "plan", *other),
        ({"steps": (dataclasses.replace(step, arguments=step.arguments[::-1]),)}, "plan", *other),
        ({"operands": (*plan.operands, "d")}, "plan", *other),
        ({"what": "a product"}, "plan", "a product", other[1]),
    ]


def test_a_plan_with_other_fields_than_it_was_made_with_is_refused():
    a, b = normal(5, 7), normal(7, 9)
    plan = sb.plan_matmul(a, b)
    for change, subject, actual, expected in tampered(plan):
        with pytest.raises(sb.PlanError) as error:
            sb.matmul(a, b, plan=dataclasses.replace(plan, **change))
        assert str(error.value) == (
            f"matmul: {subject} is {actual}, must be {expected}; make it with plan_matmul for these operands"
        )
    assert np.array_equal(sb.matmul(a, b, plan=dataclasses.replace(plan)), sb.matmul(a, b))


class Agreeing(Plan):
    """A plan that says of itself that it is any other."""

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


def test_a_plan_that_only_says_that_it_is_the_right_one_is_not_run():
    a, b = normal(5, 7), normal(7, 9)
    right = sb.plan_matmul(a, b)
    fields = {field.name: getattr(right, field.name) for field in dataclasses.fields(right)}
    wrong = Agreeing(**(fields | {"steps": (), "workspace_bytes": 1 << 60}))
    assert np.array_equal(sb.matmul(a, b, plan=wrong), sb.matmul(a, b))


def test_only_an_operand_itself_may_be_the_result_too():
    """Element on element: at the same address, of the same width, shape and strides."""
    memory = np.arange(64, dtype=np.int16)
    low = memory.view(np.int8)[::2]  # begins where memory does, and steps as it does
    square = memory.reshape(8, 8)
    refused = {
        "width": (lambda: sb.cast(low, "int16", out=memory)),
        "address": (lambda: sb.cast(memory[1:], "int16", out=memory[:-1])),
        "strides": (lambda: sb.cast(square.T, "int16", out=square)),
        "shape": (lambda: sb.cast(np.broadcast_to(square[:1], (8, 8)), "int16", out=square)),
        "direction": (lambda: sb.cast(memory[::-1], "int16", out=memory)),
    }
    for fact, call in refused.items():
        before = memory.copy()
        for _ in range(3):
            with pytest.raises(sb.LayoutError) as error:
                call()
            assert str(error.value) == (
                "cast: out memory is that of an operand, must be its own, or exactly an operand's; leave out= away"
            ), fact
        assert np.array_equal(memory, before)
    floats = normal(64)
    for own in (floats, floats.reshape(8, 8).T, floats[::-1], floats[::3]):
        due = np.abs(own)
        assert sb.abs(own, out=own) is own
        assert np.array_equal(own, due)
    left, right, tensor = floats.reshape(8, 8), normal(8, 8, seed=1), sb.Tensor.from_any(floats)
    for call in (lambda: sb.add(left[:, :1], right, out=left), lambda: sb.abs(tensor[1:9], out=tensor[:8])):
        with pytest.raises(sb.LayoutError, match="out memory is that of an operand"):
            call()
    narrow = sb.Tensor.from_any(np.arange(16, dtype=np.uint8) * 7).view("uint4")
    with pytest.raises(sb.LayoutError, match="out memory is that of an operand"):
        sb.copy(narrow[1:9], out=narrow[:8])  # which begin in one byte
    halves = narrow.values().reshape(-1, 2)[:, 1]
    sb.copy(narrow[1::2], out=narrow[::2])  # which share bytes, and no bit
    assert np.array_equal(narrow.values().reshape(-1, 2), np.stack([halves, halves], 1))
