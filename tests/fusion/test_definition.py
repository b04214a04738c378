"""Definitions: what each call says, its text, and what is refused, in full."""

from __future__ import annotations

import copy
import pathlib
import pickle
import re

import numpy as np
import pytest
import torch

import samebits as sb
from samebits.fusion import (
    DataType,
    FusionDefinition,
    compute_tensor_descriptor,
    elementwise,
    factories,
    grouped,
    grouped_scales,
    indexing,
    ops,
    picking,
    products,
    quantizing,
    random,
    reductions,
    scaled,
    shaping,
    ternary,
    version,
)
from samebits.fusion.pytorch_utils import python_scalar_to_nvfuser_dtype, torch_dtype_to_nvfuser_dtype

# The modules that `fd.ops` takes its operations from.
MODULES = (
    factories,
    grouped,
    grouped_scales,
    indexing,
    picking,
    products,
    quantizing,
    random,
    reductions,
    scaled,
    shaping,
    ternary,
)


def described(*args, **kwargs):
    """Shape, contiguity, format and stride order of an input, as its text says them."""
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor(*args, **kwargs))
    return repr(fd).splitlines()[1].strip().removeprefix("tv0 = fd.define_tensor")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ({"shape": [-1, 4], "contiguity": [True, True]},
         "(shape=[-1, 4], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)"),
        ({"shape": [-1, 1], "contiguity": True, "dtype": DataType.Half},
         "(shape=[-1, 1], contiguity=[True, None], dtype=DataType.Half, is_cpu=False)"),
        ({"shape": [2, 3], "contiguity": False, "stride_order": [0, 1]},
         "(shape=[2, 3], contiguity=[False, False], dtype=DataType.Float, is_cpu=False, stride_order=[0, 1])"),
        ({"shape": [2, 3], "contiguity": True, "stride_order": [-1, -2]},
         "(shape=[2, 3], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)"),
        ({"sizes": [4, 1, 6], "strides": [6, 6, 1]},
         "(shape=[-1, 1, -1], contiguity=[True, None, True], dtype=DataType.Float, is_cpu=False)"),
        ({"sizes": [4, 6], "strides": [1, 4], "static_sizes": True, "dtype": DataType.Int},
         "(shape=[4, 6], contiguity=[True, True], dtype=DataType.Int, is_cpu=False, stride_order=[0, 1])"),
        ({"shape": [], "contiguity": [], "is_cpu": True},
         "(shape=[], contiguity=[], dtype=DataType.Float, is_cpu=True)"),
        ({"shape": [3, 8], "contiguity": True, "dtype": DataType.Float4_e2m1fn_x2},
         "(shape=[3, 16], contiguity=[True, True], dtype=DataType.Float4_e2m1fn, is_cpu=False)"),
        ({"shape": [3, 8], "contiguity": True, "dtype": DataType.Float4_e2m1fn_x2, "stride_order": [-2, -1]},
         "(shape=[6, 8], contiguity=[True, True], dtype=DataType.Float4_e2m1fn, is_cpu=False, stride_order=[0, 1])"),
        ({"shape": [3, -1], "contiguity": True, "dtype": DataType.Float4_e2m1fn_x2},
         "(shape=[3, -1], contiguity=[True, True], dtype=DataType.Float4_e2m1fn, is_cpu=False)"),
        ({"shape": [3, 1], "contiguity": True, "dtype": DataType.Float4_e2m1fn_x2},
         "(shape=[3, 2], contiguity=[True, True], dtype=DataType.Float4_e2m1fn, is_cpu=False)"),
        ({"sizes": [3, 1], "strides": [1, 1], "dtype": DataType.Float4_e2m1fn_x2},
         "(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float4_e2m1fn, is_cpu=False)"),
        ({"shape": [3, -1], "contiguity": True, "dtype": DataType.Int4},
         "(shape=[3, -1], contiguity=[True, True], dtype=DataType.Int4, is_cpu=False)"),
    ],
)  # fmt: skip
def test_input_as_it_is_printed(call, text):
    assert described(**call) == text


def test_sizes_and_strides_may_stand_first():
    assert described([2, 3], [3, 1]) == described(sizes=[2, 3], strides=[3, 1])
    assert described([2, 3], [True, True]) == described(shape=[2, 3], contiguity=True)


def test_descriptor_of_strides_that_torch_makes():
    for shape in [(2, 3, 4), (2, 1, 4), (1,), ()]:
        for order in [range(len(shape)), range(len(shape))[::-1]]:
            x = torch.empty(shape).permute(tuple(order))
            contiguity, stride_order = compute_tensor_descriptor(list(x.shape), list(x.stride()))
            assert [flag for flag in contiguity if flag is not None] == [True] * sum(size > 1 for size in shape)
            assert sorted(stride_order) == list(range(len(shape)))
            wide = [axis for axis, size in enumerate(x.shape) if size > 1]
            by_place = sorted(wide, key=lambda axis: stride_order[axis])
            assert by_place == sorted(wide, key=lambda axis: x.stride()[axis])


def test_descriptor_keeps_axes_of_stride_0_in_their_places():
    assert compute_tensor_descriptor([2, 3, 4], [4, 0, 1]) == ([True, None, True], [2, 1, 0])
    assert compute_tensor_descriptor([5, 5], [0, 0]) == ([None, None], [1, 0])
    assert compute_tensor_descriptor([2, 3], [4, 1]) == ([False, True], [1, 0])


def define(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], [True, True])
    y = fd.define_tensor([1, -1], [None, True], dtype=DataType.Half)
    scale = fd.define_scalar(None, dtype=DataType.Double)
    z = fd.ops.add(fd.ops.mul(x, 0.1), fd.ops.mul(y, scale))
    wide = fd.ops.reshape(z, [fd.ops.size(z, 1), -1])
    fd.add_output(fd.ops.sum(wide, dims=[0], keepdim=True))
    fd.add_output(fd.ops.pad(z, [1, 2], float("-inf")))


TEXT = """\
def nvfuser_fusion(fd : FusionDefinition) -> None :
    tv0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float, is_cpu=False)
    tv1 = fd.define_tensor(shape=[1, -1], contiguity=[None, True], dtype=DataType.Half, is_cpu=False)
    c5 = fd.define_scalar(None, dtype=DataType.Double)
    tv2 = fd.ops.mul(tv0, 0.100000)
    tv3 = fd.ops.cast(tv1, dtype=DataType.Float)
    tv4 = fd.ops.mul(tv3, c5)
    tv5 = fd.ops.add(tv2, tv4)
"""


def test_text_defines_the_fusion_again():
    with FusionDefinition() as fd:
        define(fd)
    assert repr(fd).startswith(TEXT)
    space = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), space)
    with FusionDefinition() as again:
        space["nvfuser_fusion"](again)
    x, y = np.linspace(-2, 3, 12, dtype=np.float32).reshape(3, 4), np.ones((1, 4), np.float16)
    for a, b in zip(fd.execute([x, y, 0.7]), again.execute([x, y, 0.7]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert repr(again).count("\n") == repr(fd).count("\n")


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-300, -2.5, 3, True, float("inf"), float("-inf"), -0.0])
def test_number_is_written_with_all_its_digits(value):
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.full([2], value, DataType.Double))
    (line,) = [line for line in repr(fd).splitlines() if "fill_value" in line]
    written = line.partition("fill_value=")[2].partition(", dtype")[0]
    found = eval(written)
    assert np.float64(found).tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda fd: pickle.loads(pickle.dumps(fd))])
def test_copies_and_pickles_of_a_definition_that_ran_run_too(again):
    with FusionDefinition() as fd:
        define(fd)
    given = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((1, 3), np.float16), 0.25]
    made, found = fd.execute(given), again(fd)
    assert repr(found) == repr(fd)
    assert [x.tobytes() for x in found.execute(given)] == [x.tobytes() for x in made]


def test_print_math():
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[2, 4])
        y = fd.define_tensor(shape=[2, 4])
        fd.add_output(fd.ops.add(x, y))
    assert fd.fusion.print_math() == (
        "Inputs:\n  T0_g_float[iS0{2}, iS1{4}]\n  T1_g_float[iS2{2}, iS3{4}]\n"
        "Outputs:\n  T2_g_float[iS4{2}, iS5{4}]\n\n"
        "%kernel_math {\nT2_g_float[iS4{2}, iS5{4}]\n   = T0_g_float[iS0{2}, iS1{4}]\n"
        "   + T1_g_float[iS2{2}, iS3{4}];\n} // %kernel_math \n\n"
    )
    assert (str(x), str(x.domain()), str(x.axis(0)), str(x.axis(0).extent())) == (
        "T0_g_float[iS0{2}, iS1{4}]", "[iS0{2}, iS1{4}]", "iS0{2}", "2",
    )  # fmt: skip


def test_formats_of_torch_and_python_numbers():
    for row in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e8m0fnu, torch.uint8):
        name = torch_dtype_to_nvfuser_dtype(row)
        with FusionDefinition() as fd:
            assert fd.from_pytorch(torch.zeros(2).to(row)).dtype is name
    assert [python_scalar_to_nvfuser_dtype(x) for x in (True, 1, 1.5, 1j)] == [
        DataType.Bool, DataType.Int, DataType.Double, DataType.ComplexDouble,
    ]  # fmt: skip
    with pytest.raises(sb.errors.DTypeError) as error:
        torch_dtype_to_nvfuser_dtype("float31")
    assert str(error.value) == (
        "torch_dtype_to_nvfuser_dtype: dtype is 'float31', must be a dtype of torch that DataType names;"
        " convert the tensor first"
    )


F, H, D, I32, I64, B = (
    DataType.Float, DataType.Half, DataType.Double, DataType.Int32, DataType.Int, DataType.Bool,
)  # fmt: skip


@pytest.mark.parametrize(
    ("operands", "op", "result"),
    [
        ([(H, 1), (H, 1)], "add", F),
        ([(H, 1), (DataType.BFloat16, 1)], "add", F),
        ([(H, 1), (D, 1)], "add", D),
        ([(F, 1), (D, None)], "mul", F),
        ([(F, 1), (D, 0)], "mul", F),
        ([(F, 0), (D, 0)], "mul", D),
        ([(I64, 1), (D, None)], "mul", D),
        ([(I32, 1), (I64, None)], "mul", I32),
        ([(I32, 1), (I64, 1)], "mul", I64),
        ([(B, 1), (I32, 0)], "add", I32),
        ([(I64, 1), (I64, 1)], "div", I64),
        ([(I64, 1), (I64, 1)], "truediv", F),
        ([(F, 1), (I64, 1)], "lt", B),
        ([(I64, 1)], "exp", F),
        ([(H, 1)], "exp", F),
        ([(H, 1)], "relu", H),
        ([(H, 1)], "neg", F),
        ([(I64, 1)], "logical_not", B),
    ],
)
def test_format_that_is_computed_in(operands, op, result):
    with FusionDefinition() as fd:
        given = [fd.define_scalar(kind) if rank is None else fd.define_tensor([-1] * rank, True, kind)
                 for kind, rank in operands]  # fmt: skip
        assert getattr(fd.ops, op)(*given).dtype is result


SENTENCES = [
    (lambda fd: fd.define_tensor([-2], [True]),
     ("define_tensor: extent 0 is -2, must be symbolic (-1), zero (0), broadcast (1) or static (more than 1);"
     " give another extent")),
    (lambda fd: fd.define_tensor([2, 3], [True]),
     "define_tensor: contiguity count is 1, must be 2, one for each extent; give all of them"),
    (lambda fd: fd.define_tensor([2, 3], True, stride_order=[0, 0]),
     "define_tensor: stride_order is [0, 0], must be different entries; name each place once"),
    (lambda fd: fd.define_tensor([2, 3], True, stride_order=[0, 2]),
     "define_tensor: stride_order entry is 2, must be in [-2, 2); count from the fastest axis"),
    (lambda fd: fd.define_tensor([2], True, is_cpu=True),
     "define_tensor: shape with is_cpu=True is [2], must be without axes; leave is_cpu out"),
    (lambda fd: fd.define_tensor([2], True, dtype=DataType.ComplexFloat),
     ("define_tensor: dtype is DataType.ComplexFloat, must be a real format of single elements;"
     " pass real and imaginary parts apart")),
    (lambda fd: fd.define_tensor(sizes=[2, 3], strides=[2, 2], dtype=DataType.Float4_e2m1fn_x2),
     "define_tensor: strides of packed elements is [2, 2], must be an axis of stride 1; copy the tensor first"),
    (lambda fd: fd.define_tensor(sizes=[2], strides=[-1]),
     "compute_tensor_descriptor: stride 0 is -1, must be 0 or more; copy the tensor first"),
    (lambda fd: fd.define_scalar(1j),
     ("define_scalar: operand dtype is DataType.ComplexDouble, must be a real format of single elements;"
     " pass real and imaginary parts apart")),
    (lambda fd: fd.ops.add(fd.define_tensor([2], True), fd.define_tensor([3], True)),
     ("add: operands' extents of axis -1 is 2 and 3, must be equal, or one of them a broadcast axis;"
     " broadcast one of the operands")),
    (lambda fd: fd.ops.add(fd.define_tensor([2], True), "x"),
     "add: operand is str, must be a value of the fusion or a number; define it by define_tensor or define_scalar"),
    (lambda fd: fd.ops.add(fd.define_tensor([2], True)),
     "add: operands count is 1, must be 2; pass one for each operand"),
    (lambda fd: fd.ops.bitwise_and(fd.define_tensor([2], True), 1),
     "bitwise_and: operand dtype is DataType.Float, must be integers or truths; cast it first"),
    (lambda fd: fd.ops.where(fd.define_tensor([2], True), 1.0, 2.0),
     "where: condition dtype is DataType.Float, must be DataType.Bool; compare it with something"),
    (lambda fd: fd.ops.sum(fd.define_tensor([2], True), 1),
     "sum: dim is 1, must be in [-1, 1); name an axis that the tensor has"),
    (lambda fd: fd.ops.sum(fd.define_tensor([2], True), []),
     "sum: dims is empty, must be at least one axis; leave dims out for all of them"),
    (lambda fd: fd.ops.max(fd.define_tensor([2], True), 0, False, DataType.Float),
     "max: dtype is DataType.Float, must be DataType.Null; cast the result"),
    (lambda fd: fd.ops.var_mean(fd.define_tensor([2], True, dtype=H), [0]),
     "var_mean: arg dtype is DataType.Half, must be DataType.Float or DataType.Double; cast it first"),
    (lambda fd: fd.ops.reshape(fd.define_tensor([2, 3], True), [4]),
     "reshape: new_shape elements is 4, must be the 6 of arg; give another shape"),
    (lambda fd: fd.ops.reshape(fd.define_tensor([2, 3], True), [-1, -1]),
     "reshape: new_shape count of -1 is 2, must be at most 1; give the others a size"),
    (lambda fd: fd.ops.squeeze(fd.define_tensor([2, 3], True), [0]),
     "squeeze: axis 0 extent is 2, must be 1; leave it out of dims"),
    (lambda fd: fd.ops.permute(fd.define_tensor([2, 3], True), [0]),
     "permute: dims count is 1, must be 2, one for each axis; give all of them"),
    (lambda fd: fd.ops.permute(fd.define_tensor([2, 3], True), [0, 0]),
     "permute: dims is [0, 0], must be different axes; name each once"),
    (lambda fd: fd.ops.broadcast(fd.define_tensor([2, 3], True), [True]),
     "broadcast: false entries of is_broadcast_dim count is 0, must be 2, one for each axis; give all of them"),
    (lambda fd: fd.ops.expand(fd.define_tensor([2, 3], True), [2, 4]),
     "expand: size is 4, must be 3, the extent of axis iS1{3}; give that one, or -1"),
    (lambda fd: fd.ops.slice(fd.define_tensor([4], True), [-1], [2]),
     ("slice: start_indices is -1, must be 0 or more; count from the front:"
     " Slice operation start_indices must be greater than or equal to 0.")),
    (lambda fd: fd.ops.slice(fd.define_tensor([4], True), [0], [2], [2]),
     ("slice: strides is 2, must be 1; leave strides out:"
     " nvFuser Limitation: All slice operation strides must be of const size 1.")),
    (lambda fd: fd.ops.pad(fd.define_tensor([4], True), [1]),
     "pad: pad_widths count is 1, must be an even number, at most 2; give two for each axis"),
    (lambda fd: fd.ops.pad(fd.define_tensor([4], True), [1, 1], True),
     "pad: value dtype is DataType.Bool, must be of the kind of DataType.Float; cast it first"),
    (lambda fd: fd.ops.cat([]), "cat: tensors count is 0, must be at least 1; give one"),
    (lambda fd: fd.ops.cat([fd.define_tensor([2], True), fd.define_tensor([2], True, H)]),
     "cat: tensors dtype is DataType.Half, must be DataType.Float as the first; cast it first"),
    (lambda fd: [fd.add_output(of(x), x) for x in [fd.define_tensor([2], True)] for of in (fd.ops.neg, fd.ops.abs)],
     ("add_output: alias_input is an input that another output is written into, must be one for each output;"
      " leave alias_input out here")),
    (lambda fd: fd.ops.matmul(fd.define_tensor([2, 3], True), fd.define_tensor([4, 2], True)),
     ("matmul: operands' extents of axis -1 is 3 and 4, must be equal, or one of them a broadcast axis;"
     " broadcast one of the operands")),
    (lambda fd: fd.ops.linear(fd.define_tensor([2, 3], True), fd.define_tensor([3], True)),
     "linear: arg2 rank is 1, must be 2; reshape it to [N, K]"),
    (lambda fd: fd.ops.index_select(fd.define_tensor([4], True), fd.define_tensor([2], True), 0),
     "index_select: index dtype is DataType.Float, must be an integer format; cast it first"),
    (lambda fd: fd.ops.iota(3, 0, 0), "iota: step is 0, must be finite, and no step of 0; give another number"),
    (lambda fd: fd.ops.tan(fd.define_tensor([4], True)),
     ("fd.ops: tan is not there, must be an operation of docs/fusion.md; leave it out:"
     " no sequence of roundings is written for it in numerics.md")),
    (lambda fd: fd.add_output(1.0),
     "add_output: tv is float, must be a tensor of the fusion; use full to make one"),
    (lambda fd: fd.add_output(None),
     "add_output: tv is NoneType, must be a tensor of the fusion; use full to make one"),
    (lambda fd: fd.add_output(fd.define_scalar()),
     "add_output: tv is a scalar, must be a tensor of the fusion; use full to make one"),
    (lambda fd: fd.add_output(x := fd.define_tensor([2], True), fd.ops.neg(x)),
     "add_output: alias_input is another tensor, must be an input of the fusion; leave alias_input out"),
    (lambda fd: fd.add_output(fd.ops.add(x := fd.define_tensor([2], True, H), 1.0), x),
     ("add_output: alias_input dtype is DataType.Half, must be DataType.Float as the output that is written into it;"
      " cast or reshape the output")),
    (lambda fd: fd.add_output(fd.ops.sum(x := fd.define_tensor([2, 3], True), [0]), x),
     ("add_output: alias_input rank is 2, must be 1 as the output that is written into it;"
      " cast or reshape the output")),
    (lambda fd: fd.define_tensor(5, True),
     "define_tensor: extents is int, must be a list of integers; write one"),
    (lambda fd: fd.define_tensor([2.0], [True]),
     "define_tensor: extent 0 is 2.0, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.define_tensor([2**63], [True]),
     "define_tensor: extent 0 is 9223372036854775808, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.define_tensor(sizes=[-3], strides=[1]),
     "define_tensor: size 0 is -3, must be 0 or more; write an open one in shape"),
    (lambda fd: fd.define_tensor([2], [1.5]),
     ("define_tensor: contiguity 0 is 1.5, must be True, False, or None of a broadcast axis;"
      " write one for each axis, the slowest first")),
    (lambda fd: fd.define_tensor([2], 5),
     ("define_tensor: contiguity is int, must be a list of True, False, or None of a broadcast axis;"
      " write one for each axis, the slowest first")),
    (lambda fd: fd.define_tensor([4, 1], [True, True]),
     "define_tensor: contiguity 1 is True, must be None, as axis 1 has extent 1; write None for broadcast axes"),
    (lambda fd: fd.define_tensor([2], True, torch.float32),
     "define_tensor: dtype is dtype, must be a DataType; write one of its names, such as DataType.Float"),
    (lambda fd: fd.define_tensor([2], True, device="cpu"),
     ("define_tensor: argument device is unknown, must be one of shape, contiguity, dtype, is_cpu, stride_order,"
      " sizes, strides, static_sizes; leave it out")),
    (lambda fd: fd.define_tensor([2], True, shape=[2]),
     "define_tensor: shape is given twice, must be given once; leave one of them out"),
    (lambda fd: fd.define_tensor([2], True, F, False, [], 1),
     "define_tensor: arguments count is 6, must be at most 5 in order; give the others by name"),
    (lambda fd: fd.define_tensor([2], True, F, "cpu"),
     "define_tensor: is_cpu is 'cpu', must be True or False; pass one of them"),
    # values that are not defined
    (lambda fd: fd.ops.add(None, 1.0),
     ("add: operand is NoneType, must be a value of the fusion or a number;"
      " define it by define_tensor or define_scalar")),
    (lambda fd: fd.ops.neg(np.ones(2, np.float32)),
     ("neg: operand is ndarray, must be a value of the fusion or a number;"
      " define it by define_tensor or define_scalar")),
    (lambda fd: fd.ops.matmul(fd.define_tensor([2, 2], True), None),
     "matmul: arg2 is NoneType, must be a tensor of the fusion; define it by define_tensor"),
    # and what is no definition of one
    (lambda fd: fd.define_vector(-1), "define_vector: size is -1, must be 0 or more; give a count"),
    (lambda fd: fd.define_scalar("x"),
     ("define_scalar: operand is str, must be a value of the fusion or a number;"
      " define it by define_tensor or define_scalar")),
    (lambda fd: fd.from_any("x"),
     "from_any: array type is str, must be an array, numbers, or lists of them; convert it first"),
    (lambda fd: fd.ops.permute(fd.define_tensor([2, 3], True), 1), "permute: dims is int, must be a list; write one"),
    (lambda fd: fd.ops.permute(fd.define_tensor([2, 3], True), [0.0, 1.0]),
     "permute: dim is 0.0, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.ops.cumsum(fd.define_tensor([2, 3], True), 0.5),
     "cumsum: dim is 0.5, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.ops.cumsum(fd.define_tensor([], []), 0),
     "cumsum: dim is 0, must be in [0, 0); name an axis that the tensor has"),
    (lambda fd: fd.ops.sum(1.0, 0), "sum: arg is float, must be a tensor of the fusion; define it by define_tensor"),
    (lambda fd: fd.ops.sum(fd.define_tensor([2], True), True),
     "sum: dim is True, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.ops.var_mean(fd.define_tensor([2], True), [0], -1),
     "var_mean: correction is -1, must be 0 or more; give 0 or 1"),
    (lambda fd: fd.ops.var_mean(fd.define_tensor([2], True), [0], 0.5),
     "var_mean: correction is 0.5, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.ops.cat(fd.define_tensor([2], True)), "cat: tensors is TensorView, must be a list; write one"),
    (lambda fd: fd.ops.triu(fd.define_tensor([2, 2], True), 0.5),
     "triu: diagonal is 0.5, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.ops.reshape(fd.define_tensor([2], True), [2.0]),
     "reshape: size 0 is 2.0, must be an integer of 64 bits; pass a number such as 1"),
    (lambda fd: fd.ops.take_along_axis(fd.define_tensor([2, 3], True), fd.define_tensor([4, 2], True, I64), 0),
     ("take_along_axis: operands' extents of axis -1 is 3 and 2, must be equal, or one of them a broadcast axis;"
      " broadcast one of the operands")),
    (lambda fd: fd.ops.argsort(fd.define_tensor([], []), 1),
     "argsort: dim is 1, must be 0 or -1 of no axes; pass one of them"),
    (lambda fd: fd.ops.slice(fd.define_tensor([2], True), 0, 1),
     "slice: sizes is int, must be a list of integers and scalars; write one, such as [2, -1]"),
    (lambda fd: fd.ops.broadcast_in_dim(fd.define_tensor([2], True), [2, 3], [2]),
     "broadcast_in_dim: broadcast_dims is [2], must be different places of a rank of 2; name others"),
    (lambda fd: fd.ops.threshold(fd.define_tensor([2], True), None, 1.0),
     "threshold: limit is None, must be a scalar; pass a number, or call clamp for one bound"),
    (lambda fd: fd.ops.threshold(fd.define_tensor([2], True), 1.0, None),
     "threshold: other is None, must be a scalar; pass a number, or call clamp for one bound"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "sentence"), SENTENCES, ids=[sentence[:40] for _, sentence in SENTENCES])
def test_definition_is_refused_in_one_sentence(call, sentence):
    with FusionDefinition() as fd, pytest.raises(sb.errors.SamebitsError) as error:
        call(fd)
    assert str(error.value) == sentence


def test_values_of_another_fusion_and_calls_after_the_end_are_refused():
    with FusionDefinition() as other:
        x = other.define_tensor([2], True)
    with FusionDefinition() as fd:
        y = fd.define_tensor([2], True)
        with pytest.raises(sb.errors.FusionError) as error:
            fd.ops.add(y, x)
    remedy = "define it in this one, by define_tensor or define_scalar"
    assert str(error.value) == f"add: operand is a value of another fusion, must be one of this fusion; {remedy}"
    for call in (lambda: fd.ops.neg(y), lambda: fd.ops.permute(y, [0]), lambda: fd.ops.size(fd.ops.abs(y), 0)):
        with pytest.raises(sb.errors.FusionError, match=r"^(neg|permute|abs): call is after the end of the definition"):
            call()
    with pytest.raises(sb.errors.FusionError) as error:
        fd.ops.neg(y)
    assert str(error.value) == (
        "neg: call is after the end of the definition, must be inside of it;"
        " call it within `with FusionDefinition() as fd:`"
    )
    with pytest.raises(sb.errors.FusionError) as error:
        fd.add_output(y)
    assert str(error.value) == (
        "add_output: call is outside of the definition, must be inside of its definition;"
        " call it within `with FusionDefinition() as fd:`"
    )
    with pytest.raises(sb.errors.FusionError) as error:
        fd.define_tensor([2], True)
    assert str(error.value) == (
        "define_tensor: call is outside of the definition, must be inside of its definition;"
        " call it within `with FusionDefinition() as fd:`"
    )
    with pytest.raises(sb.errors.FusionError) as error:
        ops.full([2], 1.0, DataType.Float)
    assert str(error.value) == (
        "full: call is outside of a definition, must be inside of a definition;"
        " call it within `with FusionDefinition() as fd:`"
    )


def test_what_an_exception_ends_is_no_definition():
    fd, made = FusionDefinition(), []

    def defined():
        with fd:
            made.append(fd.define_tensor([-1], True))
            fd.add_output(fd.ops.neg(made[0]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        defined()
    with pytest.raises(sb.errors.UndefinedFusionError, match=r"^execute: fusion is undefined"):
        fd.execute([np.ones(2, np.float32)])
    with pytest.raises(sb.errors.FusionError, match=r"^neg: call is after the end of the definition"):
        fd.ops.neg(made[0])
    with fd:
        fd.add_output(fd.ops.neg(fd.define_tensor([-1], True)))
    assert fd.execute([np.ones(2, np.float32)])[0].tolist() == [-1, -1]


def test_a_subclass_whose_definition_fails_is_defined_anew_by_the_next_run():
    class Twice(FusionDefinition):
        fails = True

        def definition(self):
            self.add_output(self.ops.neg(self.define_tensor([-1], True)))
            if self.fails:
                raise ZeroDivisionError

    fd = Twice()
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            fd.execute([np.ones(2, np.float32)])
    fd.fails = False
    assert fd.execute([np.ones(2, np.float32)])[0].tolist() == [-1, -1]


def test_the_page_lists_every_operation_as_it_is():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "fusion.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_ ]+)` \| (there|refused|not yet)", page, re.M)
    said = {name: state for names, state in rows for name in names.split()}
    assert len(said) == sum(len(names.split()) for names, _ in rows)
    public = {
        name
        for name, value in vars(ops).items()
        if getattr(value, "__module__", "").startswith("samebits.fusion.") and name in said
    }
    assert {name for name, state in said.items() if state == "there"} == public
    assert {name for name, state in said.items() if state == "refused"} == set(ops.REFUSED)
    listed = {name for row in (elementwise.ROWS, *(module.__all__ for module in MODULES)) for name in row}
    assert listed - {"LOWERED"} <= set(said)


def test_unknown_operation():
    with pytest.raises(AttributeError) as error:
        FusionDefinition().ops.nonesuch  # noqa: B018
    assert str(error.value) == "module 'samebits.fusion.ops' has no attribute 'nonesuch'"
    assert (error.value.name, error.value.obj.__name__) == ("nonesuch", "samebits.fusion.ops")


def test_version_is_that_of_the_package():
    assert version() == sb.__version__
