"""Runs of fusions: against NumPy and torch, on arrays of every library, from the cache, and what is refused."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import weakref

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import samebits as sb
from samebits.fusion import DataType, FusionDefinition, LRUCache, LruFusionCache, PythonProfiler
from samebits.fusion import cache as cache_module
from samebits.native import compile as compiling

F32 = np.float32


def normalised(fd: FusionDefinition) -> None:
    """A layer norm without weights, in the operations that fusions have."""
    x = fd.define_tensor([-1, -1], [True, True])
    var, mean = fd.ops.var_mean(x, [1], 0, True)
    fd.add_output(fd.ops.mul(fd.ops.sub(x, mean), fd.ops.rsqrt(fd.ops.add(var, 1e-5))))


def defined(define, cls=FusionDefinition):
    with cls() as fd:
        define(fd)
    return fd


X = np.linspace(-3, 5, 24, dtype=F32).reshape(4, 6)


def test_layer_norm_is_torchs_within_rounding_and_the_references_bits():
    fd = defined(normalised)
    (y,) = fd.validate([torch.from_numpy(X)])
    expected = torch.nn.functional.layer_norm(torch.from_numpy(X), (6,), eps=1e-5)
    torch.testing.assert_close(y, expected, rtol=2**-20, atol=2**-20)


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, jnp.asarray, sb.Tensor.from_any])
def test_kind_of_array_comes_back_with_the_same_bits(make):
    fd = defined(normalised)
    for _ in range(3):  # the long way, then the short one where there is one
        (y,) = fd.execute([make(X)])
        assert type(y) is type(make(X))
        expected = fd.fec.reference([X])[0]
        assert sb.Tensor.from_any(y).numpy(copy=True).tobytes() == expected.tobytes()


def test_strides_of_inputs_do_not_matter():
    fd = defined(normalised)
    (expected,) = fd.execute([X])
    wide = np.zeros((8, 12), F32)
    wide[::2, ::2] = X
    for given in (X.copy(order="F"), wide[::2, ::2], X[::-1, ::-1][::-1, ::-1]):
        for _ in range(2):
            assert fd.execute([given])[0].tobytes() == expected.tobytes()
            assert fd.execute([torch.from_numpy(np.asfortranarray(given))])[0].numpy().tobytes() == expected.tobytes()


def test_subclass_says_its_definition():
    class Doubled(FusionDefinition):
        def definition(self):
            x = self.define_tensor([-1], True)
            self.add_output(self.ops.add(x, x))

    assert Doubled().execute([np.ones(3, F32)])[0].tolist() == [2, 2, 2]


def test_scalars_are_operands_and_decide_sizes():
    def define(fd):
        length = fd.define_scalar(DataType.Int)
        factor = fd.define_scalar()
        x = fd.define_tensor([-1], True)
        rows = fd.define_vector(2)
        fd.add_output(fd.ops.mul(x, factor))
        fd.add_output(fd.ops.iota(length, 1, 2, DataType.Int32))
        fd.add_output(fd.ops.reshape(x, rows))

    fd = defined(define)
    x = np.arange(6, dtype=F32)
    for length, factor, rows in [(3, 0.1, [2, 3]), (3, 0.3, [2, 3]), (5, 7.0, (6, 1))]:
        for array in (x, torch.from_numpy(x)):
            for _ in range(2):
                y, places, shaped = fd.execute([length, factor, array, rows])
                assert np.asarray(y).tobytes() == (x * F32(factor)).tobytes()
                assert places.tolist() == list(range(1, 2 * length, 2))
                assert tuple(shaped.shape) == tuple(rows)
                assert np.asarray(shaped).ravel().tobytes() == x.tobytes()


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_numbers_may_come_before_arrays(make):
    def define(fd):
        factor = fd.define_scalar()
        fd.add_output(fd.ops.mul(fd.define_tensor([-1], True), factor))

    fd = defined(define)
    for factor in (2.0, 3.0, 5.0):
        assert fd.execute([factor, make(np.ones(2, F32))])[0].tolist() == [factor, factor]


def test_size_that_symbols_do_not_follow():
    def define(fd):
        x = fd.define_tensor([-1, -1], True)
        rows = fd.ops.bitwise_and(fd.ops.size(x, 0), 6)
        fd.add_output(fd.ops.slice(x, [0, 0], [rows, fd.ops.size(x, 1)]))

    fd = defined(define)
    for rows in (5, 6, 9):
        x = np.arange(rows * 2, dtype=F32).reshape(rows, 2)
        assert fd.execute([x])[0].tolist() == x[: rows & 6].tolist()


def test_same_definition_is_one_entry_and_new_extents_compile_nothing(monkeypatch):
    cache = LRUCache(max_fusions=2)
    first, again = defined(normalised), defined(normalised)
    assert cache.cache_compile(first.fusion) is cache.cache_compile(again.fusion)
    assert cache.num_fusions() == 1
    first.fec = cache.cache_compile(first.fusion)
    assert not first.fec.is_compiled([X])
    first.execute([X])
    assert first.fec.is_compiled([X])
    first.execute([np.ones((40, 60), F32)])

    # Every kernel that a process has not yet is asked for here, whether it is compiled then or found on the disk.
    asked = []
    objects = compiling.objects
    monkeypatch.setattr(compiling, "objects", lambda units: asked.extend(units) or objects(units))
    for rows, columns in [(7, 64), (41, 61), (128, 100), (1, 3), (0, 9)]:
        first.execute([np.ones((rows, columns), F32)])
    assert asked == []
    defined(lambda fd: fd.add_output(fd.ops.cos(fd.ops.exp2(fd.define_tensor([-1], True))))).execute([X.ravel()])
    assert asked


def test_fusions_that_differ_in_numbers_have_the_same_kernels(monkeypatch):
    """Of maps and of rows, in Float and Double; integers and truths are in the kernels."""

    def of(first, second, third):
        def define(fd):
            x = fd.define_tensor([-1, -1], True)
            y = fd.ops.where(fd.ops.gt(x, first), x, fd.ops.mul(x, second))
            fd.add_output(fd.ops.cast(fd.ops.add(fd.ops.cast(y, DataType.Double), third), DataType.Float))
            fd.add_output(fd.ops.mul(fd.ops.sum(fd.ops.add(x, second), dims=[1], keepdim=True), third))

        return defined(define)

    of(0.25, 1.5, 3.0).execute([X])
    asked = []
    objects = compiling.objects
    monkeypatch.setattr(compiling, "objects", lambda units: asked.extend(units) or objects(units))
    for numbers in [(0.5, -0.0, 1e300), (float("inf"), float("nan"), 2.0**-149), (0.25, 1.5, 0.0)]:
        fd = of(*numbers)
        fd.execute([X])
        fd.validate([X])
    assert asked == []


def test_packed_tensors_that_lie_densely_take_the_short_way(monkeypatch):
    """As they lie they are read at their address; others, and a view that begins further on, are as right."""
    values = np.random.default_rng(2).choice(FOUR.ravel(), (6, 8)).astype(np.float32)
    packed = sb.to_packed(values.astype(ml_dtypes.float4_e2m1fn)).torch()
    fd = defined(lambda fd: fd.add_output(fd.ops.sum(fd.ops.cast(fd.from_any(packed), DataType.Float), dims=[1])))
    for given, due in [(packed, values), (packed[2:], values[2:]), (packed[::2], values[::2]), (packed, values)]:
        for _ in range(2):
            (found,) = fd.execute([given])
            assert found.tolist() == due.sum(axis=1).tolist()
    monkeypatch.setattr(type(fd.fec), "_run", None)
    fd.execute([packed])
    fd.execute([packed[2:]])


def test_caches_are_bounded_and_say_what_they_did():
    @LruFusionCache(max_fusions=3)
    def make(value):
        return defined(lambda fd: fd.add_output(fd.ops.add(fd.define_tensor([-1], True), value)))

    assert make.stats() == "Max Fusions Allowed: 3\nThe fusion cache is empty.\n"
    for value in (1.0, 2.0, 1.0, 3.0, 4.0):
        assert make(value).execute([np.zeros(2, F32)])[0].tolist() == [value, value]
    assert make.num_fusions() == 3
    assert make.stats() == (
        "Max Fusions Allowed: 3\nTotal Fusions in Cache: 3\nTotal Unique Fusions Compiled: 4\n"
        "Cache Hits by LRU ordering:\n\t0 -> 0 hits\n\t1 -> 0 hits\n\t2 -> 1 hits\n"
        "Cache Lookups: 5\nCache Hits: 1\nHit Rate: 20%\n"
    )
    with pytest.raises(sb.errors.OptionError) as error:
        LRUCache(0)
    assert str(error.value) == "LRUCache: max_fusions is 0, must be an integer of 1 or more; leave it out for 16384"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from 3.12 on, where other threads live
def test_a_child_that_is_forked_while_a_fusion_is_looked_up_runs_fusions(monkeypatch):
    begun, may_end, made = threading.Event(), threading.Event(), cache_module.FusionExecutorCache

    def slowly(fusion):
        begun.set()
        may_end.wait(60)
        return made(fusion)

    cache, fd = LRUCache(4), defined(normalised)
    monkeypatch.setattr(cache_module, "FusionExecutorCache", slowly)
    thread = threading.Thread(target=cache.cache_compile, args=(fd.fusion,))
    thread.start()
    assert begun.wait(60)
    threading.Timer(0.1, may_end.set).start()
    child = os.fork()
    if not child:
        signal.alarm(300)  # which ends a child that waits for ever
        fec, stats = cache.cache_compile(defined(normalised).fusion), cache.stats()
        os._exit(0 if fec.execute([X])[0].tobytes() == fec.reference([X])[0].tobytes() and " 1 hits" in stats else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert cache.num_fusions() == 1


def test_definitions_are_freed():
    made = []
    cache = LRUCache(4)
    for number in range(64):
        fd = defined(lambda fd, n=number: fd.add_output(fd.ops.full([n + 1], 0.0, DataType.Float)))
        made.append(weakref.ref(cache.cache_compile(fd.fusion).fusion()))
    del fd
    gc.collect()
    assert sum(each() is not None for each in made) == 4


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, sb.Tensor.from_any])
def test_outputs_that_are_views_of_inputs_are_validated_with_the_others(make):
    def define(fd):
        x = fd.define_tensor([-1, -1], True)
        y = fd.define_tensor([-1], True)
        for made in (fd.ops.permute(x, [1, 0]), fd.ops.add(x, 1.0), fd.ops.broadcast(y, [False, True]), y):
            fd.add_output(made)

    found = defined(define).validate([make(X), make(X[0].copy())])
    expected = X.T, X + 1, X[0][:, None], X[0]
    assert [np.asarray(each).tolist() for each in found] == [each.tolist() for each in expected]


def test_scattered_values_are_at_least_as_many_as_their_places():
    def define(fd):
        x, src = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.scatter(x, fd.define_tensor([-1, -1], True, DataType.Int), src, 1))

    fd, places = defined(define), np.array([[1, 0], [0, 2]])
    given = np.full((3, 4), 9, F32)
    assert fd.execute([X[:2], given, places])[0][0].tolist() == [9, 9, *X[0, 2:]]
    with pytest.raises(sb.FusionError) as error:
        fd.execute([X[:2], given[:2, :1], places])
    assert str(error.value) == "scatter: src shape is (2, 1), must be at least that of index, (2, 2); pad it"


@pytest.mark.parametrize("kind", ["tensors", "scalars", "sizes"])
def test_a_definition_may_be_longer_than_pythons_stack(kind):
    count = 2000

    def define(fd):
        x = fd.define_tensor([-1], True)
        made = {"tensors": x, "scalars": fd.define_scalar(None, DataType.Double), "sizes": fd.ops.size(x, 0)}[kind]
        for _ in range(count):
            made = fd.ops.add(made, 1 if kind == "sizes" else 1.0)
        fd.add_output(fd.ops.full([made], 1.0, DataType.Float) if kind == "sizes" else fd.ops.add(x, made))

    (y,) = defined(define).validate([np.zeros(3, F32), 0.5])
    expected = {"tensors": [count] * 3, "scalars": [count + 0.5] * 3, "sizes": [1] * (count + 3)}
    assert y.tolist() == expected[kind]


def test_an_output_may_be_written_into_its_input_twice_and_into_two():
    def define(fd):
        x, y = (fd.define_tensor([-1], True) for _ in range(2))
        made = fd.ops.add(x, y)
        for alias in (x, y, x):
            fd.add_output(made, alias_input=alias)

    x, y = np.array([1, 2], F32), np.array([3, 4], F32)
    assert defined(define).execute([x, y]) == []
    assert x.tolist() == y.tolist() == [4, 6]


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_alias_is_written_into_the_input(make):
    def define(fd):
        x = fd.define_tensor([-1, -1], [False, True])
        y = fd.ops.add(x, 1.0)
        fd.add_output(y, alias_input=x)
        fd.add_output(fd.ops.mul(y, 2.0))
        fd.add_output(y)

    fd = defined(define)
    wide = np.zeros((3, 6), F32)
    given = make(wide)[:, :4]
    for turn in (1, 2):
        doubled, same = fd.execute([given])
        assert same is given
        assert np.asarray(given).tolist() == [[turn] * 4] * 3
        assert np.asarray(doubled).tolist() == [[2 * turn] * 4] * 3
    assert wide[:, 4:].tolist() == [[0, 0]] * 3


def test_views_of_inputs_share_their_memory():
    def define(fd):
        x = fd.define_tensor([-1, 4], True)
        fd.add_output(x)
        fd.add_output(fd.ops.reshape(fd.ops.permute(x, [1, 0]), [2, 2, fd.ops.size(x, 0)]))
        fd.add_output(fd.ops.broadcast(x, [False, True, False]))

    fd = defined(define)
    x = np.arange(12, dtype=F32).reshape(3, 4)
    for make in (np.asarray, torch.from_numpy, sb.Tensor.from_any):
        same, turned, wider = fd.execute([given := make(x)])
        assert same is given
        assert np.asarray(turned).tolist() == x.T.reshape(2, 2, 3).tolist()
        assert tuple(wider.shape) == (3, 1, 4)
        assert np.shares_memory(np.asarray(wider), x)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_output_lies_in_the_order_that_is_asked_for(order):
    def define(fd):
        x = fd.define_tensor([-1, -1, -1], True)
        fd.add_output(fd.ops.stride_order(fd.ops.add(x, 3.0), order))

    fd, x = defined(define), np.arange(24, dtype=F32).reshape(2, 3, 4)
    (y,) = fd.execute([torch.from_numpy(x)])
    assert y.tolist() == (x + 3).tolist()
    assert sorted(range(3), key=lambda axis: -order[axis]) == sorted(range(3), key=lambda axis: -y.stride()[axis])
    (z,) = fd.execute([x])
    assert [step // 4 for step in z.strides] == list(y.stride())


# -- packed elements ---------------------------------------------------------------------------------------------------
FOUR = np.resize(np.array([0, 0.5, -1, 1.5, 2, -3, 4, 6, -0.5, 1], F32), (4, 8))


@pytest.mark.parametrize("shape", [[4, 4], [-1, 4], [4, -1], [-1, -1]])
def test_pairs_of_torch_are_elements_open_or_not(shape):
    def define(fd):
        x = fd.define_tensor(shape, True, DataType.Float4_e2m1fn_x2)
        fd.add_output(fd.ops.mul(fd.ops.cast(x, DataType.Float), 2.0))
        fd.add_output(fd.ops.cast(fd.ops.neg(fd.ops.cast(x, DataType.Float)), DataType.Float4_e2m1fn))

    packed = sb.to_packed(FOUR.astype(ml_dtypes.float4_e2m1fn)).torch()
    assert packed.dtype is torch.float4_e2m1fn_x2
    fd = defined(define)
    wide, narrow = fd.execute([packed])
    assert wide.tolist() == (2 * FOUR).tolist()
    assert narrow.dtype is torch.float4_e2m1fn_x2
    assert sb.Tensor.from_any(narrow).numpy(copy=True).astype(F32).tolist() == (-FOUR).tolist()


@pytest.mark.parametrize(
    ("name", "row"),
    [("Float4_e2m1fn", "float4_e2m1fn"), ("Float6_e2m3fn", "float6_e2m3fn"), ("Float6_e3m2fn", "float6_e3m2fn"),
     ("Int4", "int4"), ("Int2", "int2"), ("UInt4", "uint4")],
)  # fmt: skip
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_narrow_formats_packed_in_any_order_are_the_unpacked_ones(name, row, order):
    dtype = getattr(DataType, name)
    values = np.resize(np.arange(4 if "2" in row[-2:] else 7), (6, 8)).astype(sb.dtype(row).numpy)
    if row == "int2":
        values = np.resize(np.array([-2, -1, 0, 1]), (6, 8)).astype(sb.dtype(row).numpy)
    packed = sb.to_packed(np.ascontiguousarray(values.transpose(order))).permute(order)

    def define(fd):
        x = fd.define_tensor([-1, -1], True, dtype, stride_order=[1 - place for place in order])
        y = fd.define_tensor([1, -1], [None, True], DataType.Float)
        fd.add_output(fd.ops.sum(fd.ops.mul(fd.ops.cast(x, DataType.Float), y), [1]))

    fd, y = defined(define), np.linspace(1, 2, 8, dtype=F32)[None]
    (expected,) = fd.execute([values, y])
    (found,) = fd.execute([packed, y])
    terms = values.astype(F32) * y
    terms = terms[:, :4] + terms[:, 4:]  # the tree of numerics.md section 6
    terms = terms[:, :2] + terms[:, 2:]
    assert expected.tobytes() == (terms[:, 0] + terms[:, 1]).tobytes()
    assert sb.Tensor.from_any(found).tobytes() == expected.tobytes()


# -- random graphs -----------------------------------------------------------------------------------------------------
UNARY = {"relu": torch.relu, "neg": torch.neg, "abs": torch.abs, "floor": torch.floor, "trunc": torch.trunc}
BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "minimum": torch.minimum, "maximum": torch.maximum}
DTYPES = [(DataType.Float, torch.float32), (DataType.Half, torch.float16), (DataType.BFloat16, torch.bfloat16)]


def test_random_graphs_are_torchs_operations_one_by_one():
    """Operations that round once, or not at all: the bits are torch's, in Float, with the casts that rules ask for."""
    for seed in range(40):
        rng = random.Random(seed)
        shapes = [(3, 5), (1, 5), (3, 1), (5,)]
        kinds = [rng.choice(DTYPES) for _ in shapes]
        arrays = [(torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 4).to(kind[1])
                  for shape, kind in zip(shapes, kinds, strict=True)]  # fmt: skip
        with FusionDefinition() as fd:
            tensors = [fd.from_pytorch(x) for x in arrays]
            found = list(zip(tensors, arrays, strict=True))
            for _ in range(6):
                if rng.random() < 0.3:
                    op = rng.choice(list(UNARY))
                    x, a = rng.choice(found)
                    a = a.float() if op == "neg" else a
                    found.append((getattr(fd.ops, op)(x), UNARY[op](a)))
                else:
                    op = rng.choice(list(BINARY))
                    (x, a), (y, b) = rng.choice(found), rng.choice(found)
                    found.append((getattr(fd.ops, op)(x, y), BINARY[op](a.float(), b.float())))
            for x, _ in found[4:]:
                fd.add_output(x)
        for y, (_, expected) in zip(fd.validate(arrays), found[4:], strict=True):
            assert y.dtype is expected.dtype
            assert torch.equal(y, expected), (seed, repr(fd))


def test_scalar_is_rounded_once_to_what_is_computed_in():
    def define(fd):
        x, s = fd.define_tensor([-1], True), fd.define_scalar()
        fd.add_output(fd.ops.add(x, s))
        fd.add_output(fd.ops.add(x, 0.1))

    x = np.array([1.0, 2**24], F32)
    for y in defined(define).execute([x, 0.1]):
        assert y.tobytes() == (x + F32(0.1)).tobytes()


# -- what is refused ---------------------------------------------------------------------------------------------------
def test_part_of_an_open_axis_is_repeated_only_where_it_is_one_element():
    def define(fd):
        x = fd.define_tensor([-1], True)
        fd.add_output(fd.ops.expand(fd.ops.slice(x, [0], [2]), [3]))

    fd = defined(define)
    assert fd.execute([X[0, :1]])[0].tolist() == [-3, -3, -3]
    with pytest.raises(sb.errors.FusionError, match=r"shape is \[2\], must be one that fits \[3\]"):
        fd.execute([X[0]])


def test_fusion_that_is_not_defined_or_gives_nothing():
    with pytest.raises(sb.errors.UndefinedFusionError) as error:
        FusionDefinition().execute([X])
    assert str(error.value) == (
        "execute: fusion is undefined, must be defined;"
        " Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion."
    )
    fd = defined(lambda fd: None)
    with pytest.raises(NotImplementedError) as empty:
        fd.execute([X])
    remedy = "call add_output within the definition"
    sentence = f"execute: fusion is empty (Fusion is empty!), must be one with outputs; {remedy}"
    assert str(empty.value) == sentence
    assert fd.validate_definition() == (False, sentence)


def test_validate_says_which_output_differs():
    fd = defined(normalised)
    fd.validate([X], [fd.fec.reference([X])[0] if fd.fec else fd.execute([X])[0]])
    with pytest.raises(AssertionError, match="output 0 differs from its reference by more than"):
        fd.validate([X], [X])
    with pytest.raises(AssertionError, match="reference 0 has shape"):
        fd.validate([X], [X[0]])


def test_validate_takes_views_of_inputs_beside_what_is_computed_and_written():
    def define(fd):
        x, y = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True)
        fd.add_output(fd.ops.permute(x, [1, 0]))
        fd.add_output(fd.ops.stride_order(fd.ops.neg(x), [0, 1]))
        fd.add_output(fd.ops.add(y, 1.0), alias_input=y)

    fd, y = defined(define), np.zeros(3, F32)
    turned, negative = fd.validate([X, y])
    assert turned.tolist() == X.T.tolist()
    assert negative.tolist() == (-X).tolist()
    assert y.tolist() == [1, 1, 1]
    (shaped,) = defined(
        lambda fd: fd.add_output(fd.ops.reshape(fd.define_tensor([-1, -1], True), fd.define_vector(2)))
    ).validate([X, [3, 8]])
    assert shaped.tolist() == X.reshape(3, 8).tolist()
    (same,) = defined(lambda fd: fd.add_output(fd.define_tensor([-1, -1], True))).validate([X])
    assert same is X


def test_profiler_lists_kernels():
    fd = defined(normalised)
    with PythonProfiler() as prof:
        fd.execute([X])
    assert prof.profile is not None
    assert prof.profile.segments == len(fd.fec.kernels([X])) >= 1
    assert "rows" in prof.profile.kernel_profiles[0].name


def test_script_runs_the_fusion_again():
    fd = defined(normalised)
    x = torch.from_numpy(X)
    with pytest.raises(AssertionError, match="cannot provide a repro"):
        fd.last_repro_script()
    fd.execute([x], save_repro_inputs=True)
    script = fd.last_repro_script()
    assert script == fd.repro_script_for([x])
    exec(script, {})
    assert "inputs" not in fd.repro_script_for()


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy])
def test_large_results_take_memory_of_their_own_that_was_used_before(make):
    fd = defined(lambda fd: fd.add_output(fd.ops.mul(fd.define_tensor([-1, -1], True), 2.0)))
    x = make(np.arange(1 << 18, dtype=F32).reshape(512, 512))
    kept = [fd.execute([x])[0] for _ in range(3)]
    kept[1][0, 0] = -1  # it may be written, and is nobody else's
    assert [float(y[0, 0]) for y in kept] == [0, -1, 0]
    assert all(type(y) is type(x) and float(y[-1, -1]) == 2 * ((1 << 18) - 1) for y in kept)
    addresses = {np.asarray(y).ctypes.data for y in kept}
    assert len(addresses) == 3
    del kept
    assert np.asarray(fd.execute([x])[0]).ctypes.data in addresses
