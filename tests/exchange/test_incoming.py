"""What comes in, by which of its protocols, and what is refused."""

import array
import mmap
import pathlib
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
from capsules import HandMade

import samebits as sb
from samebits import dtypes
from samebits.errors import DeviceError, DTypeError, ExchangeError, LayoutError, OptionError, SamebitsError
from samebits.exchange import incoming
from samebits.layout import Layout
from samebits.memory import CPU, Buffer, Device, address_of, allocate
from samebits.tensor import Tensor


class Offers:
    """An object with the attributes given, on its class, as protocols are looked up."""

    def __new__(cls, **attributes: Any) -> Any:
        return type("Offers", (), attributes)()


def cuda_face(**changes: Any) -> dict[str, Any]:
    """A CUDA array interface of version 3."""
    return {"version": 3, "shape": (2, 3), "typestr": "<f4", "data": (0x7000, False), "strides": None, **changes}


def test_what_loses_least_comes_first() -> None:
    x = np.arange(3).astype(ml_dtypes.float8_e5m2)
    capsule = HandMade()
    cuda = cuda_face()
    assert Tensor.from_any(x).dtype is dtypes.float8_e5m2
    both = Offers(__dlpack__=lambda _, **kw: capsule.__dlpack__(**kw), __cuda_array_interface__=cuda)
    assert Tensor.from_any(both).device == CPU
    assert Tensor.from_any(Offers(__cuda_array_interface__=cuda, __array__=lambda *_, **__: x)).device == Device("cuda")
    face = np.arange(4, dtype=np.int16).__array_interface__
    held = Offers(__array_interface__=face)
    assert Tensor.from_any(held).address == face["data"][0]


def test_a_producers_own_dtype_may_be_of_any_type() -> None:
    unhashable = type("float32", (), {"__eq__": lambda *_: True})()
    for dtype in ([], None, 7, unhashable):
        for get in (Tensor.from_any, Tensor.from_dlpack):
            capsule = HandMade()
            assert get(Offers(__dlpack__=lambda _, **kw: capsule.__dlpack__(**kw), dtype=dtype)).shape == (2, 3)  # noqa: B023


def test_the_buffer_protocol_is_shared_and_kept_alive() -> None:
    anonymous = mmap.mmap(-1, 64)
    sources: list[tuple[Any, str, bool]] = [
        (b"abcd", "uint8", True),
        (bytearray(b"abcd"), "uint8", False),
        (memoryview(b"abcd"), "uint8", True),
        (array.array("f", [1, 2]), "float32", False),
        (memoryview(array.array("h", range(6))).cast("b").cast("h", (2, 3)), "int16", False),
        (anonymous, "uint8", False),
    ]
    for source, name, read_only in sources:
        t = Tensor.from_any(source)
        assert (t.dtype.name, t.read_only) == (name, read_only)
        assert t.tobytes() == bytes(source)
        assert Tensor.from_any(source, copy=False).address == t.address == address_of(np.asarray(memoryview(source)))
    shared = bytearray(b"abcd")
    t = Tensor.from_any(shared)
    shared[0] = 7
    assert t.tobytes()[0] == 7
    with pytest.raises(BufferError):
        shared.extend(b"x")
    del t


def test_copy_says_whether_there_may_be_one() -> None:
    x = np.arange(4.0)
    assert Tensor.from_any(x, copy=True).address != address_of(x)
    assert Tensor.from_any(x, copy=False).address == address_of(x)
    assert Tensor.from_any(Tensor.from_any(x), copy=True).address != address_of(x)
    assert Tensor.from_any(torch.ones(3), copy=True).tolist() == [1, 1, 1]

    class Computes:
        def __array__(self, *_: object, **__: object) -> Any:
            return np.zeros(3)

    for value in ([1.0], 1.5, np.float32(1), Computes()):
        with pytest.raises(ExchangeError) as error:
            Tensor.from_any(value, copy=False)
        assert str(error.value) == (
            f"Tensor.from_any: x type is {type(value).__name__}, must be one whose memory can be shared; "
            "leave copy=False out"
        )
        assert Tensor.from_any(value, copy=True).size >= 1


def test_a_cuda_array_interface_is_facts_alone() -> None:
    t = Tensor.from_any(Offers(__cuda_array_interface__=cuda_face(strides=(4, 8), data=(0x7000, True))))
    assert (t.dtype, t.shape, t.strides, t.address) == (dtypes.float32, (2, 3), (1, 2), 0x7000)
    assert (str(t.device), t.read_only) == ("cuda:0", True)
    assert repr(t) == "Tensor(float32, shape=(2, 3), cuda:0)"
    for use in (t.numpy, t.tobytes, t.copy):
        with pytest.raises(DeviceError, match=r"buffer device is cuda:0, must be readable by the host"):
            use()
    assert Tensor.from_any(Offers(__cuda_array_interface__=cuda_face(stream=1))).address == 0x7000
    with pytest.raises(DeviceError) as error:
        Tensor.from_any(Offers(__cuda_array_interface__=cuda_face(stream=5)))
    assert str(error.value) == (
        "Tensor.from_any: the stream of x is out of reach, must be reachable by the CUDA driver; "
        "install cuda-bindings on a machine with an NVIDIA driver"
    )
    backwards = Tensor.from_any(Offers(__cuda_array_interface__=cuda_face(strides=(-12, 4), data=(0x700C, False))))
    assert (backwards.address, backwards.buffer.address, backwards.buffer.size_bytes) == (0x700C, 0x7000, 24)
    assert Tensor.from_any(Offers(__cuda_array_interface__=cuda_face(shape=(0,), data=(0, False)))).size == 0


FACE = "Tensor.from_any: x CUDA array interface"
BAD_FACES: dict[str, tuple[type[SamebitsError], dict[str, Any]]] = {
    f"{FACE} version is 2, must be at least 3; export it with DLPack": (ExchangeError, {"version": 2}),
    "Tensor.from_any: x mask is an array, must be None; fill the masked elements first": (
        ExchangeError,
        {"mask": np.zeros(3)},
    ),
    "Tensor.from_any: x dtype is dtype('V1'), must be an element format; pass one of its names, such as 'float32'": (
        DTypeError,
        {"typestr": "|V1"},
    ),
    "Tensor.from_any: x address and strides is 0x7001 and (12, 4), must be multiples of 4; copy it first": (
        ExchangeError,
        {"data": (0x7001, False)},
    ),
    "Tensor.from_any: x address and strides is 0x7000 and (3, 1), must be multiples of 4; copy it first": (
        ExchangeError,
        {"strides": (3, 1)},
    ),
    "Layout.dense: shape is (-1,), must be extents of at least 0; count elements": (LayoutError, {"shape": (-1,)}),
    (
        "Buffer.from_handle: pointer is 24 bytes from 0x0, must be within the address space; pass the address of memory"
    ): (OptionError, {"data": (0, False)}),
}


@pytest.mark.parametrize("text", BAD_FACES)
def test_a_cuda_array_interface_that_cannot_be_is_refused(text: str) -> None:
    kind, changes = BAD_FACES[text]
    with pytest.raises(kind) as error:
        Tensor.from_any(Offers(__cuda_array_interface__=cuda_face(**changes)))
    assert str(error.value) == text


@pytest.mark.parametrize(
    "change",
    [
        {"shape": 3},
        {"typestr": "nonsense"},
        {"typestr": None},
        {"strides": 5},
        {"data": ("x", 0)},
        {"data": 7},
        {"data": None},
    ],
)
def test_a_malformed_cuda_array_interface_is_one_error(change: dict[str, Any]) -> None:
    with pytest.raises(ExchangeError, match="must be that of its page; report it to the producer"):
        Tensor.from_any(Offers(__cuda_array_interface__=cuda_face(**change)))


# Bytes with a meaning.


def test_bytes_become_elements_of_every_format_in_place() -> None:
    data = bytearray(range(48))
    for row in dtypes.ROWS:
        t = Tensor.from_buffer(data, row, (2, 8 * 8 // row.width_bits if row.width_bits < 8 else 3))
        assert (t.dtype, t.read_only, t.address) == (row, False, address_of(np.frombuffer(data, np.uint8)))
        assert t.layout == Layout.dense(t.shape, width_bits=row.width_bits)
    fp4 = Tensor.from_buffer(b"\x21\x43\x65", "float4_e2m1fn", (5,), offset=1)
    assert fp4.tolist() == [1.0, 1.5, 2.0, 3.0, 4.0]
    assert fp4.read_only
    assert Tensor.from_buffer(b"\x21\x43\x65", "int4", (3,), (2,)).tolist() == [1, 3, 5]
    assert Tensor.from_buffer(b"\x01\x02\x0f", "int4", (3,), storage="padded").tolist() == [1, 2, -1]
    assert Tensor.from_buffer(b"\x01\x02\x03", "uint8", (3,), (-1,), 2).tolist() == [3, 2, 1]


def test_any_dense_memory_is_bytes() -> None:
    owned = allocate(8, zero=True)
    assert Tensor.from_buffer(owned, "int16", (4,)).buffer is owned
    x = torch.tensor([1.0, 2.0])
    t = Tensor.from_buffer(x, "uint8", (8,))
    assert (t.address, t.tobytes()) == (x.data_ptr(), x.numpy().tobytes())
    shell = torch.tensor([0x21], dtype=torch.uint8).view(torch.int4)
    assert Tensor.from_buffer(shell.view(torch.uint8), "int4", (2,)).tolist() == [1, 2]
    part = np.arange(8, dtype=np.uint8)[2:6]
    assert Tensor.from_buffer(part, "uint8", (4,)).tolist() == [2, 3, 4, 5]


def test_bytes_of_a_part_are_of_that_part_alone() -> None:
    """No format reads what lies before or behind the part that was given."""
    for make in (np.asarray, torch.from_numpy, Tensor.from_any):
        f = make(np.arange(8, dtype=np.float32))
        for start, stop in ((0, 2), (3, 5), (6, 8)):
            part = f[start:stop]
            assert Tensor.from_buffer(part, "float32", (2,)).tolist() == [start, start + 1]
            for count, offset in ((3, 0), (2, 4), (1, 8), (3, 4)):
                with pytest.raises(LayoutError, match="must be within the buffer's 8 bytes"):
                    Tensor.from_buffer(part, "float32", (count,), offset=offset)
            with pytest.raises(LayoutError, match="must be within the buffer's 8 bytes"):
                Tensor.from_buffer(part, "float32", (2,), (-1,))
            with pytest.raises(LayoutError, match="must be within the buffer's 8 bytes"):
                Tensor.from_buffer(part, "uint8", (9,))
    narrow = Tensor.from_buffer(b"\x21\x43\x65\x87", "uint4", (8,))
    assert Tensor.from_buffer(narrow[2:6], "uint8", (2,)).tolist() == [0x43, 0x65]
    with pytest.raises(LayoutError):
        Tensor.from_buffer(narrow[2:6], "uint8", (3,))
    for part, told in ((narrow[1:5], "from bit 4"), (narrow[::2], "(8,)"), (narrow[::-1], "(-4,) from bit 4")):
        with pytest.raises(ExchangeError) as error:
            Tensor.from_buffer(part, "uint8", (1,))
        assert str(error.value).startswith("Tensor.from_buffer: data is of shape (")
        assert str(error.value).endswith(f"{told}, must be dense; copy it first")


OUTSIDE: dict[str, Any] = {
    "Tensor: layout span is bits [0, 20), must be within the buffer's 2 bytes; allocate layout.required_bytes": (
        lambda: Tensor.from_buffer(b"ab", "int4", (5,))
    ),
    "Tensor: layout span is bits [-8, 16), must be within the buffer's 2 bytes; allocate layout.required_bytes": (
        lambda: Tensor.from_buffer(b"ab", "uint8", (3,), (-1,), 1)
    ),
    "Tensor: layout span is bits [8, 24), must be within the buffer's 2 bytes; allocate layout.required_bytes": (
        lambda: Tensor.from_buffer(b"ab", "uint8", (2,), None, 1)
    ),
    "Tensor: layout span is bits [0, 65), must be within the buffer's 8 bytes; allocate layout.required_bytes": (
        lambda: Tensor.from_buffer(bytes(8), "uint1", (65,))
    ),
    "Tensor.from_buffer: data is of shape (2,) with strides_bits (16,), must be dense; copy it first": (
        lambda: Tensor.from_buffer(np.zeros(4, np.uint8)[::2], "uint8", (2,))
    ),
    "Tensor.from_bytes: data size is 2 bytes, must be 3 bytes for int4 of shape (5,), packed; "
    "use from_buffer for a part of it": lambda: Tensor.from_bytes(b"ab", "int4", (5,)),
    "Tensor.from_buffer: shape is (-1,), must be extents of at least 0; count elements": (
        lambda: Tensor.from_buffer(b"ab", "int4", (-1,))
    ),
}


@pytest.mark.parametrize("text", OUTSIDE)
def test_no_element_lies_outside_its_bytes(text: str) -> None:
    with pytest.raises(SamebitsError) as error:
        OUTSIDE[text]()
    assert str(error.value) == text


def test_bytes_that_are_no_multiple_of_an_element_apart_are_refused() -> None:
    owned = allocate(16)
    odd = Buffer(owned.address + 1, 8, owned.owner)
    with pytest.raises(LayoutError, match="must be a multiple of 4; copy it first"):
        Tensor.from_buffer(odd, "float32", (2,))


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_bytes_go_and_come(row: Any) -> None:
    source = Tensor.zeros((3, 5), row)
    source.buffer.array()[:] = np.arange(source.buffer.size_bytes) % 2
    t = Tensor.from_bytes(source.tobytes(), row, (3, 5), storage="padded")
    assert t.digest() == source.digest()
    packed = Tensor.from_bytes(source.buffer.array(), row, (3, 5))
    assert (packed.layout, packed.digest(), packed.read_only) == (source.layout, source.digest(), False)
    assert packed.address != source.address
    assert packed.address % 64 == 0


# NumPy 2.5 and later.


def test_numpy_is_told_the_standards_codes_where_it_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[tuple[int, int], Any] = {}
    taken = (10, 8)

    def register(key: tuple[int, int], dtype: Any) -> None:
        if key == taken:
            raise ValueError("registered by another")
        told[key] = dtype

    monkeypatch.setattr(np.dtypes, "register_dlpack_dtype", register, raising=False)
    incoming._register_with_numpy()
    assert told[4, 16] == ml_dtypes.bfloat16
    assert told[14, 8] == ml_dtypes.float8_e8m0fnu
    assert told[17, 8] == ml_dtypes.float4_e2m1fn
    assert not any(code in (0, 1) for code, _ in told)
    monkeypatch.delattr(np.dtypes, "register_dlpack_dtype", raising=False)
    incoming._register_with_numpy()


@pytest.mark.skipif(not hasattr(np.dtypes, "register_dlpack_dtype"), reason="NumPy before 2.5")
def test_numpy_exchanges_ml_dtypes_by_itself() -> None:
    for name in ("bfloat16", "float8_e4m3fn", "float8_e8m0fnu"):
        t = Tensor.zeros((2, 3), name)
        x = np.from_dlpack(t)
        assert (x.dtype, address_of(x)) == (t.dtype.numpy, t.address)
        assert Tensor.from_dlpack(x).dtype is t.dtype
    narrow = np.zeros(3, ml_dtypes.float4_e2m1fn)
    t = Tensor.from_dlpack(narrow)
    assert (t.dtype, t.layout.storage, t.address) == (dtypes.float4_e2m1fn, "padded", address_of(narrow))


class ArrowTypeError(TypeError):
    """As pyarrow's, which is no part of this machine."""


def test_a_librarys_refusal_is_ours_with_its_words_and_its_error() -> None:
    def refusing(*_: Any, **__: Any) -> Any:
        raise ArrowTypeError("Can only use DLPack on arrays with no nulls.\nMore of it.")

    nulls = Offers(__dlpack__=refusing, __dlpack_device__=lambda _: (1, 0))
    for get, call in ((Tensor.from_any, "Tensor.from_any"), (Tensor.from_dlpack, "Tensor.from_dlpack")):
        with pytest.raises(ExchangeError) as error:
            get(nulls)
        assert str(error.value) == (
            f"{call}: x is not shared by its library (Can only use DLPack on arrays with no nulls.), "
            "must be memory that can be shared; do what it says"
        )
        assert isinstance(error.value.__cause__, ArrowTypeError)


def test_a_key_of_jax_is_refused_with_its_words() -> None:
    with pytest.raises(ExchangeError, match=r"jax\.random\.key_data\(arr\)"):
        Tensor.from_any(jax.random.key(0))
    assert Tensor.from_any(jax.random.key_data(jax.random.key(0))).dtype is dtypes.uint32


def test_an_element_of_a_list_that_makes_no_array_is_refused_in_words_of_ours() -> None:
    with pytest.raises(ExchangeError, match=r"x is not shared by its library .* must be memory that can be shared"):
        Tensor.from_any([torch.ones(2, requires_grad=True)])


def test_what_is_no_refusal_of_a_library_stays_what_it_is() -> None:
    for kind in (KeyError, AttributeError, ZeroDivisionError, MemoryError):

        def broken(*_: Any, kind: type[Exception] = kind, **__: Any) -> Any:
            raise kind("a defect")

        with pytest.raises(kind, match="a defect"):
            Tensor.from_any(Offers(__dlpack__=broken, __dlpack_device__=lambda _: (1, 0)))
        with pytest.raises(kind, match="a defect"):
            Tensor.from_any(Offers(__array__=broken))


def test_parameters_without_a_shape_are_refused_by_name(tmp_path: pathlib.Path) -> None:
    """Those of lazy modules that have not run; torch answers every question about them with an error of its own."""
    said = (
        "memory is still to be made, as its module has not run, must be what the values are; run the module once first"
    )
    for x in (torch.nn.parameter.UninitializedParameter(), torch.nn.parameter.UninitializedBuffer()):
        for name, call in {
            "Tensor.from_any: x": Tensor.from_any,
            "Tensor.from_dlpack: x": Tensor.from_dlpack,
            "exp: out": lambda x: sb.exp(np.ones(3, np.float32), out=x),
            "checkpoint.save: tensor 'w'": lambda x: sb.checkpoint.save(tmp_path / "w.npz", {"w": x}),
        }.items():
            with pytest.raises(ExchangeError) as caught:
                call(x)
            assert str(caught.value) == f"{name} {said}"
