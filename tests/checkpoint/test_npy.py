"""Headers of .npy files, held against NumPy: each reads what the other writes, and nothing is unpickled."""

from __future__ import annotations

import io
import pathlib
import random
import warnings

import ml_dtypes
import numpy as np
import pytest
from sentences import check_sentence

import samebits as sb
from samebits import checkpoint, dtypes
from samebits.errors import DTypeError, ModelError

ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
    np.array(2.5),
    np.zeros((0, 3), bool),
    np.array([True, False]),
    np.arange(24, dtype=np.uint64).reshape(2, 3, 4).transpose(2, 0, 1),
    np.linspace(-1, 1, 6).astype(ml_dtypes.bfloat16).reshape(2, 3).view([("bfloat16", "<u2")]),
    np.arange(6, dtype=np.uint8).reshape(2, 3).view([("int4", "u1")]),
]


def bytes_of(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def with_header(text: str, data: bytes = bytes(48)) -> bytes:
    """A file of version 1.0."""
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode("latin1") + data


@pytest.mark.parametrize("array", ARRAYS, ids=lambda x: f"{x.dtype} {x.shape}")
@pytest.mark.parametrize("version", [None, (2, 0), (3, 0)])
def test_what_numpy_writes_is_read(tmp_path: pathlib.Path, array: np.ndarray, version: tuple[int, int] | None) -> None:
    path = tmp_path / "x.npy"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the version, which older ones of NumPy do not read
        path.write_bytes(bytes_of(array, version))
    found = checkpoint.load(path)["x"]
    name = array.dtype.names[0] if array.dtype.names else array.dtype.name
    assert (found.dtype.name, found.shape) == (name, array.shape)
    codes = array[name] if array.dtype.names else array
    assert found.tobytes() == np.ascontiguousarray(codes).tobytes()
    with checkpoint.open(path) as opened:
        part = opened.read("x", min(1, array.size), array.size)
        assert part.equal_bits(sb.copy(found).reshape((-1,))[1:])


@pytest.mark.parametrize("row", dtypes.ROWS, ids=repr)
def test_every_format_is_kept_and_numpy_reads_its_bits(tmp_path: pathlib.Path, row: dtypes.DType) -> None:
    for shape in ((2, 8), (2, 3), (), (0, 8)):
        size = int(np.prod(shape))
        codes = np.arange(size, dtype=f"u{row.element_bytes}") % 2
        for storage in ("packed", "padded"):
            tensor = sb.Tensor.from_bytes(codes.tobytes(), row, shape, storage="padded").copy()
            tensor = sb.copy(tensor, storage=storage)
            checkpoint.save(tmp_path / "x.npy", {"any": tensor})
            found = checkpoint.load(tmp_path / "x.npy")["x"]
            assert found.dtype is row
            assert found.equal_bits(tensor)
            array = np.load(tmp_path / "x.npy")
            if array.dtype.names is None:
                assert array.dtype == row.numpy
                continue
            (name,) = array.dtype.names
            bits = array[name]
            if name == row.name:
                assert np.array_equal(bits, codes.reshape(shape))
                if row.numpy is not None:
                    assert np.array_equal(
                        bits.view(row.numpy).view(bits.dtype), tensor.numpy(copy=True).view(bits.dtype)
                    )
            else:
                group = 8 // np.gcd(8, row.width_bits)
                assert name == f"{row.name}_x{group}"
                assert bits.tobytes() == tensor.buffer.array().tobytes()
                assert array.shape == (*shape[:-1], shape[-1] // group)


SENTENCES = [
    (b"\x93NUMPY", "start is b'\\x93NUMPY', must be"),
    (b"\x93NUMPY\1\0\4", "size is 9 bytes, must be a header"),
    (b"\x93NUMPY\4\0" + bytes(40), "start is b'\\x93NUMPY\\x04\\x00', must be"),
    (b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(40), "header length is 4294967295, must be at most 10000"),
    (with_header(""), "header is '' where a value begins, must be a dict"),
    (with_header("{"), "header is '' where a value begins, must be a dict"),
    (with_header("(" * 9999), "header is nested too deeply, must be a dict"),
    (with_header("-" * 9999), "header is '--------------------' at 0, must be"),
    (with_header("__import__('os')"), "header is \"__import__('os')\" at 0"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'x': 1}"), "must be a dict of descr,"),
    (with_header("{'descr': '<f4', 'fortran_order': False}"), "must be a dict of descr, fortran_order and shape"),
    (with_header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False}"), "header is the key 'descr', must be"),
    (with_header("{'descr': '<f4', 'fortran_order': 0, 'shape': (3, 4)}"), "fortran_order is 0, must be True or False"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, -4)}"), "header is ' -4)}' at"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': 12}"), "shape is 12, must be a tuple of integers"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (12)}"), "shape is 12, must be a tuple"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}"), "shape is (True,), must be a tuple"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}"), "header is 4 where a comma is due"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (13,)}"), "size is 114 bytes, must be 118, as its"),
    (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (11,)}"), "size is 114 bytes, must be 110, as its"),
    (
        with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
        "fewer than 2**63 bits",
    ),
    (with_header("{'descr': [('int4_x2', '|u1')], 'fortran_order': False, 'shape': ()}"), "a last axis of groups of 2"),
    (
        with_header("{'descr': [('int4_x2', '|u1')], 'fortran_order': True, 'shape': (4,)}"),
        "a last axis of groups of 2",
    ),
]


@pytest.mark.parametrize(("data", "sentence"), SENTENCES, ids=range(len(SENTENCES)))
def test_what_is_no_such_file_is_one_sentence(tmp_path: pathlib.Path, data: bytes, sentence: str) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(ModelError) as error:
        checkpoint.load(tmp_path / "x.npy")
    check_sentence(error.value)
    assert sentence in str(error.value)


WITHOUT_A_ROW = ["|O", ">f4", "<c8", "<U5", "|S3", "<M8[s]", "|V2", "<f3", "|b2", "<i16", "float32"]
WITHOUT_A_ROW_EITHER = [
    "[('bfloat16', '<u4')]", "[('bfloat16', '>u2')]", "[('x', '<u2')]", "[('int4_x4', '|u1')]", "[('int4_x2', '<u2')]",
    "[('float6_e2m3fn_x4', '|u1', (2,))]", "[('bfloat16', '<u2', (3,))]", "[('int4', '|u1'), ('int2', '|u1')]", "[]",
    "('bfloat16', '<u2')", "[('bfloat16_x1', '<u2')]",
]  # fmt: skip


@pytest.mark.parametrize("descr", [*map(repr, WITHOUT_A_ROW), *WITHOUT_A_ROW_EITHER])
def test_a_format_that_we_lack_is_listed_and_refused_when_it_is_asked_for(tmp_path: pathlib.Path, descr: str) -> None:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': (3,)}}"
    (tmp_path / "x.npy").write_bytes(with_header(text))
    with checkpoint.open(tmp_path / "x.npy") as found:
        assert found.tensors["x"].dtype is None
        assert found.tensors["x"].shape == (3,)
        for ask in (lambda: found["x"], lambda: found.read("x")):
            with pytest.raises(DTypeError, match=r"tensor 'x' format is .*, must be an element format"):
                ask()


def test_an_object_is_never_unpickled(tmp_path: pathlib.Path) -> None:
    np.save(tmp_path / "x.npy", np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(DTypeError, match=r"tensor 'x' format is \|O, must be an element format"):
        checkpoint.load(tmp_path / "x.npy")


def numpy_takes(data: bytes) -> np.ndarray | None:
    """The array that NumPy reads, without the axes that it has for one format alone."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.load(io.BytesIO(data), allow_pickle=False)
    except Exception:  # NumPy's reader raises what it meets first
        return None


def test_ten_thousand_mutations_are_refused_or_what_numpy_reads(tmp_path: pathlib.Path) -> None:
    path, r = tmp_path / "x.npy", random.Random(0)
    bases, taken = [bytes_of(array) for array in ARRAYS], 0
    for turn in range(10_000):
        data = bytearray(bases[turn % len(bases)])
        for _ in range(r.choice((1, 1, 2, 3))):
            at = r.randrange(min(len(data), 130))
            match r.randrange(4):
                case 0:
                    data[at] = r.randrange(256)
                case 1:
                    data[at] = r.choice(b"0123456789[](){},:'<|=> fiuTL")
                case 2:
                    del data[at : at + r.randrange(1, 5)]
                case _:
                    data[at:at] = data[at : at + r.randrange(1, 20)]
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        try:
            found = checkpoint.load(path)["x"]
        except (ModelError, DTypeError) as error:
            check_sentence(error)
            continue
        taken += 1
        theirs = numpy_takes(bytes(data))
        assert theirs is not None, bytes(data)
        codes = theirs[theirs.dtype.names[0]] if theirs.dtype.names else theirs
        if found.layout.storage == "packed" and found.dtype.width_bits >= 8:
            assert (found.shape, found.tobytes()) == (codes.shape, np.ascontiguousarray(codes).tobytes()), bytes(data)
    assert taken > 50
