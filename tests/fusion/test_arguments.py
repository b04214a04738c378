"""What a run is given that does not fit: one sentence each, the same the first time and later; and what is taken."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest
import torch

import samebits as sb
from samebits.fusion import DataType, FusionDefinition

F32 = np.float32
X = np.linspace(-3, 5, 24, dtype=F32).reshape(4, 6)


def defined(define):
    with FusionDefinition() as fd:
        define(fd)
    return fd


def scaled(fd):
    fd.add_output(fd.ops.mul(fd.define_tensor([-1], True), fd.define_scalar()))


def summed(fd):
    fd.add_output(fd.ops.add(fd.define_tensor([-1, 6], True), fd.define_tensor([-1, 6], True)))


def beside(fd):
    fd.add_output(fd.ops.add(fd.define_tensor([-1, -1], True), fd.define_tensor([4, 6], True)))


def shaped(fd):
    fd.add_output(fd.ops.add(fd.ops.reshape(fd.define_tensor([-1], True), fd.define_vector(2)), 1.0))


def turned(fd):
    fd.add_output(fd.ops.permute(fd.define_tensor([4, 4], True), [1, 0]))


def viewed(fd):
    fd.add_output(fd.ops.reshape(fd.define_tensor([-1], True), [2, 2]))


def squeezed(fd):
    fd.add_output(fd.ops.squeeze(fd.define_tensor([-1, -1], True), [0]))


def picked(fd):
    x, places = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True, DataType.Int)
    fd.add_output(fd.ops.index_select(x, places, 0))


def largest(fd):
    fd.add_output(fd.ops.topk(fd.define_tensor([-1], True), fd.define_scalar(DataType.Int))[0])


def highest(fd):
    fd.add_output(fd.ops.max(fd.define_tensor([-1, -1], True), [0]))


def made(fd):
    fd.add_output(fd.ops.full(fd.define_vector(2), 1.0, DataType.Float))


def counted(fd):
    fd.add_output(fd.ops.add(fd.define_tensor([-1], True, DataType.Int32), fd.define_scalar(DataType.Int32)))


def replaced(fd):
    x = fd.define_tensor([-1], True)
    fd.add_output(fd.ops.neg(x), alias_input=x)


def joined(fd):
    x, y = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
    fd.add_output(fd.ops.cat([x, y]), alias_input=x)


def prototype(make):
    """A tensor of a kind of which torch warns that it may change."""
    with warnings.catch_warnings(action="ignore"):
        return make()


def away():
    """A tensor that is on a GPU as far as it says."""
    layout = sb.Layout.dense((4,), width_bits=32)
    return sb.Tensor(sb.Buffer(4096, 16, None, sb.Device("cuda")), layout, sb.dtype("float32"))


def closed():
    x = sb.Tensor.from_any(X[0]).copy()
    x.buffer.close()
    return x


class OnDevice:
    """What a library of a GPU gives: no shape, and memory that is not the host's."""

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **kwargs):
        raise BufferError("on a GPU")


def fixed(array):
    array = array.copy()
    array.flags.writeable = False
    return array


T0 = "Expected input 0, T0_g_float[iS0{i0}], to be"
REFUSED = [
    # their number
    (scaled, [X[0]], "execute: inputs count is 1, must be 2; pass one for each that is defined"),
    (scaled, [X[0], 1.0, 2.0], "execute: inputs count is 3, must be 2; pass one for each that is defined"),
    (scaled, None,
     "execute: inputs is NoneType, must be a list with a value for each input; write [x] for one tensor"),
    (scaled, X[0],
     "execute: inputs is ndarray, must be a list with a value for each input; write [x] for one tensor"),
    (shaped, [X.ravel(), [4, 3, 2]], "execute: inputs count is 4, must be 3; pass one for each that is defined"),
    # tensors and numbers
    (scaled, [2.0, 2.0],
     f"execute: input 0 is scalar 2.0, must be a tensor; pass a tensor: {T0} an at::Tensor but got scalar 2.0"),
    (scaled, [None, 2.0],
     f"execute: input 0 is NoneType, must be a tensor; pass a tensor: {T0} an at::Tensor but got NoneType"),
    (scaled, ["x", 2.0],
     f"execute: input 0 is str, must be a tensor; pass a tensor: {T0} an at::Tensor but got str"),
    (scaled, [X[0], X[0]],
     ("execute: input 1 is float tensor of rank 1, must be a number; pass one:"
      " Expected input 1, d2, to be a scalar but got float tensor of rank 1")),
    (scaled, [X[0], "x"],
     "execute: input 1 is str, must be a number; pass one: Expected input 1, d2, to be a scalar but got str"),
    (scaled, [X[0], 2 + 1j],
     ("execute: input 1 is (2,1), must be a real number; pass its real part:"
      " Scalar value (2,1) is not compatible with the expected data type: double.")),
    (counted, [X[0].astype(np.int32), 2**31],
     ("execute: scalar is 2147483648, must be a number that DataType.Int32 holds; choose another format")),
    # formats
    (scaled, [X[0].astype(np.float16), 2.0],
     ("execute: input 0 is of dtype __half, must be of dtype float; convert it first:"
      f" {T0} bound to a tensor of dtype float, but got a tensor of dtype __half")),
    (scaled, [X[0].astype(ml_dtypes.int4), 2.0],
     ("execute: input 0 is of dtype int4_t, must be of dtype float; convert it first:"
      f" {T0} bound to a tensor of dtype float, but got a tensor of dtype int4_t")),
    (scaled, [X[0].astype(">f4"), 2.0],
     ("execute: input 0 dtype is >f4, must be an element format, in this machine's byte order;"
      " convert it first")),
    (scaled, [X[0].astype(complex), 2.0],
     ("execute: input 0 dtype is complex128, must be an element format, in this machine's byte order;"
      " convert it first")),
    # ranks and extents
    (scaled, [X, 2.0],
     ("execute: input 0 is of rank 2, must be of rank 1; reshape it first:"
      f" {T0} bound to a tensor of rank 1, but got a tensor of rank 2")),
    (summed, [X, X[:, :5]],
     "execute: input 1 extent 1 is 5, must be 6 as defined; pass tensors of extents that fit"),
    (summed, [X, X[:3]],
     "execute: input 1 extent 0 is 3, must be 4 as extent 0 of input 0; pass tensors of extents that fit"),
    (beside, [X[:3], X],
     "execute: input 0 extent 0 is 3, must be 4 as what it is computed with; pass tensors of extents that fit"),
    (turned, [X[:2, :2]], "execute: input 0 extent 0 is 2, must be 4 as defined; pass tensors of extents that fit"),
    (viewed, [X[0]],
     "reshape: result elements is 4, must be the 6 of arg; give another shape, or an input that has it"),
    (squeezed, [X],
     "squeeze: result elements is 6, must be the 24 of arg; give another shape, or an input that has it"),
    (shaped, [X[0], [-2, -3]],
     "reshape: its result is float32[-2, -3], must be without negative extents; check the shapes"),
    (shaped, [X[0], [4, 2]],
     "execute: operand of node 'T1' shape is [6], must be one that fits [4, 2]; give inputs of other sizes"),
    (largest, [X[0], 9], "topk: count is 9, must be within [0, 6]; ask for fewer"),
    (largest, [X[0], -5], "topk: count is -5, must be within [0, 6]; ask for fewer"),
    (made, [[-1, 2]], "full: its result is float32[-1, 2], must be without negative extents; check the shapes"),
    (picked, [X, np.array([4])],
     "execute: an index of node 'T2' is 4, must be in [-4, 4); give indices that exist"),
    (highest, [X[:0]],
     ("execute: node 'T1': rows: x0 length along axes [-2] is 0, must be at least 1;"
      " give each row an element, as row_max of nothing has no value")),
    # devices
    (scaled, [away(), 2.0], "execute: input 0 device is cuda:0, must be the host; copy it to the host"),
    (viewed, [away()], "execute: input 0 device is cuda:0, must be the host; copy it to the host"),
    (replaced, [away()], "execute: input 0 device is cuda:0, must be the host; copy it to the host"),
    (scaled, [closed(), 2.0], "execute: input 0 buffer is closed, must be open; close it after its last use"),
    (scaled, [torch.zeros(3, device="meta"), 2.0],
     ("execute: input 0 is not shared by its library (Cannot pack tensors on meta), must be memory that can be"
      " shared; make it on a device: it has a shape, and no elements")),
    (scaled, [torch.zeros(3).to_sparse(), 2.0],
     ("execute: input 0 is not shared by its library (Can't export tensors with layout other than torch.strided),"
      " must be memory that can be shared; call its to_dense() first")),
    (scaled, [prototype(lambda: torch.zeros(1, 3).to_sparse_csr()), 2.0],
     ("execute: input 0 is not shared by its library (Can't export tensors with layout other than torch.strided),"
      " must be memory that can be shared; call its to_dense() first")),
    (scaled, [prototype(lambda: torch.nested.nested_tensor([torch.zeros(3)])), 2.0],
     ("execute: input 0 is not shared by its library (Internal error: NestedTensorImpl doesn't support sizes. Please"
      " file an issue.), must be memory that can be shared; pass the tensors of its unbind() apart")),
    (scaled, [OnDevice(), 2.0],
     ("execute: input 0 is not shared by its library (on a GPU), must be memory that can be shared;"
      " do what it says")),
    # inputs that are written
    (replaced, [torch.zeros(3, requires_grad=True)],
     ("execute: input 0 is a tensor that requires gradients, must be one that does not, as it is written;"
      " pass its detach()")),
    (replaced, [fixed(X[0])],
     "execute: input 0 memory is read-only, must be writable, as an output is written into it; pass a copy"),
    (replaced, [torch.zeros(1).expand(3)],
     ("execute: input 0 layout is (3,) with strides_bits (0,), must be one with a place for each element;"
      " pass another array")),
    (joined, [X[0], X[1]],
     ("execute: input 0 shape is (6,), must be (12,) as the output that is written into it;"
      " pass a tensor of that shape")),
]  # fmt: skip
FITTING = {
    scaled: [X[0], 2.0],
    summed: [X, X],
    beside: [X, X],
    shaped: [X[0], [2, 3]],
    turned: [np.zeros((4, 4), F32)],
    viewed: [X[0, :4]],
    squeezed: [X[:1]],
    picked: [X, np.array([3])],
    largest: [X[0], 2],
    highest: [X],
    made: [[2, 2]],
    counted: [X[0].astype(np.int32), 2],
    replaced: [X[0].copy()],
    joined: [np.zeros(3, F32), np.zeros(0, F32)],
}


@pytest.mark.parametrize(("define", "given", "sentence"), REFUSED, ids=[sentence[:70] for _, _, sentence in REFUSED])
def test_input_that_does_not_fit_is_refused_in_one_sentence_before_and_after_a_run(define, given, sentence):
    fd = defined(define)
    for _ in range(3):
        with pytest.raises(sb.errors.FusionError) as error:
            fd.execute(given)
        assert str(error.value) == sentence
        for _ in range(2):  # the long way, then the short one
            fd.execute(FITTING[define])


def released():
    """A tensor whose storage was given up."""
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    return x


def released_part():
    """A part of one."""
    x = torch.ones(7)
    part = x[4:]
    x.untyped_storage().resize_(0)
    return part


NULL = "data pointer is NULL, must be that of its elements; report it to the producer"
WRAPPED = (
    "is not shared by its library (Cannot access data pointer of Tensor that doesn't have storage),"
    " must be memory that can be shared; do what it says"
)
WITHOUT_MEMORY = {
    "released": (lambda run: run(released()), NULL),
    "a released part": (lambda run: run(released_part()), NULL.replace("NULL", "0x10")),
    "zeros": (lambda run: run(torch._efficientzerotensor(3)), NULL),
    "within a transform": (lambda run: torch.func.vmap(run)(torch.ones(2, 3)), WRAPPED),
}


@pytest.mark.parametrize(("call", "due"), WITHOUT_MEMORY.values(), ids=list(WITHOUT_MEMORY))
def test_tensors_without_memory_are_refused_where_others_like_them_ran(call, due):
    fd = defined(scaled)
    for _ in range(2):
        fd.execute([torch.ones(3), 2.0])
    with pytest.raises(sb.errors.FusionError) as error:
        call(lambda x: fd.execute([x, 2.0])[0])
    assert str(error.value) == f"execute: input 0 {due}"


def test_nothing_is_written_where_one_of_the_inputs_that_are_does_not_fit():
    def define(fd):
        x, y = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
        fd.add_output(fd.ops.add(x, 1.0), alias_input=x)
        fd.add_output(fd.ops.cat([x, x]), alias_input=y)

    fd, x = defined(define), np.zeros(3, F32)
    with pytest.raises(sb.errors.FusionError) as error:
        fd.execute([x, np.zeros(4, F32)])
    assert str(error.value) == (
        "execute: input 1 shape is (4,), must be (6,) as the output that is written into it;"
        " pass a tensor of that shape"
    )
    assert x.tolist() == [0, 0, 0]


def test_inputs_that_require_gradients_are_taken_and_nothing_is_differentiated():
    fd, x = defined(scaled), torch.from_numpy(X[0]).requires_grad_()
    for _ in range(2):
        (y,) = fd.execute([x, 2.0])
        assert not y.requires_grad
        assert y.tolist() == (2 * X[0]).tolist()


def test_forward_and_backward_of_a_function_of_torch_can_be_a_fusion_each():
    squared = defined(lambda fd: fd.add_output((lambda x: fd.ops.mul(x, x))(fd.define_tensor([-1], True))))
    gradient = defined(
        lambda fd: fd.add_output(
            fd.ops.mul(fd.ops.mul(fd.define_tensor([-1], True), 2.0), fd.define_tensor([-1], True)),
        )
    )

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            assert x.requires_grad
            return squared.execute([x])[0]

        @staticmethod
        def backward(ctx, upstream):
            return gradient.execute([*ctx.saved_tensors, upstream])[0]

    x = torch.from_numpy(X[0].copy()).requires_grad_()
    Square.apply(x).backward(torch.full((6,), 3.0))
    assert x.grad.tolist() == (2 * X[0] * 3).tolist()


@pytest.mark.parametrize("contiguity", [True, False, [True, True], [False, True]])
def test_contiguity_that_is_not_an_arrays_own_changes_no_bit(contiguity):
    fd = defined(lambda fd: fd.add_output(fd.ops.mul(fd.define_tensor([-1, -1], contiguity), 3.0)))
    wide = np.zeros((8, 12), F32)
    wide[::2, ::2] = X
    for given in (X, wide[::2, ::2], np.asfortranarray(X), X[::-1]):
        for _ in range(2):
            assert fd.execute([given])[0].tobytes() == (given * F32(3)).tobytes()


def test_indices_that_do_not_exist_are_refused_by_the_reference_too():
    with pytest.raises(sb.errors.FusionError) as error:
        defined(picked).validate([X, np.array([4])])
    assert str(error.value) == "validate: an index is 4, must be in [-4, 4); use an existing one"


def test_definition_that_has_not_ended_does_not_run_and_one_that_is_defined_again_runs_anew():
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.neg(fd.define_tensor([-1], True)))
        with pytest.raises(sb.errors.UndefinedFusionError) as error:
            fd.execute([X[0]])
    assert str(error.value) == (
        "execute: definition is not finished, must be finished; leave `with FusionDefinition() as fd:` before"
    )
    assert fd.execute([X[0]])[0].tolist() == (-X[0]).tolist()
    with fd:
        fd.add_output(fd.ops.abs(fd.define_tensor([-1], True)))
    assert fd.execute([X[0]])[0].tolist() == abs(X[0]).tolist()
