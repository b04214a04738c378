"""The eager cast: layouts, kinds, packed elements, and every wrong option in a sentence. Bits: test_rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from formats import midpoints

import samebits as sb
from samebits import dtypes
from samebits.conversions import PRESETS
from samebits.errors import DTypeError, ExchangeError, LayoutError, OptionError, SamebitsError
from samebits.tensor import Tensor

E4M3 = "float8_e4m3fn"


def drawn(seed: int, shape: tuple[int, ...], size: float, to: str) -> Any:
    """Random float32; every second one lies half way between two numbers of a format, on either side of zero."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(shape).astype(np.float32) * np.float32(size)
    ties = generator.permutation(midpoints(dtypes.of(to)))
    x.reshape(-1)[::2] = np.copysign(np.resize(ties, -(-x.size // 2)), x.reshape(-1)[::2])
    return x


X = drawn(0, (6, 10), 100, E4M3)


def codes(x: Any) -> list[Any]:
    """The codes of a result of any kind."""
    array = x.numpy(copy=True) if isinstance(x, Tensor) else np.asarray(x)
    return array.view(f"u{array.dtype.itemsize}").tolist()


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"rounding": "up"},
    {"rounding": "stochastic", "seed": 3},
    {"rounding": "stochastic", "seed": 3, "overflow": "error"},
    {"overflow": "saturate", "inf": "nan", "nan": 0},
    {"preset": "torch-2.13"},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_layouts_threads_and_out_change_no_bit(options: dict[str, Any]) -> None:
    due = codes(sb.cast(X, E4M3, **options))
    apart = np.repeat(X, 2, axis=1)[:, ::2]
    for x in (np.asfortranarray(X), apart, X[::-1].copy()[::-1]):
        for threads in (1, 3):
            assert codes(sb.cast(x, E4M3, threads=threads, **options)) == due
    out = np.empty(X.T.shape, dtypes.float8_e4m3fn.numpy).T
    assert sb.cast(X, E4M3, out=out, **options) is out
    assert codes(out) == due
    assert codes(Tensor.from_any(X).astype(E4M3, **options)) == due


@pytest.mark.parametrize("to", ["float4_e2m1fn", "float6_e3m2fn", "int4", "uint1"])
@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_packed_elements_go_straight_through(to: str, options: dict[str, Any]) -> None:
    for shape in ((6, 10), (3, 7), (1,), (0, 4), (5, 3000)):
        x = drawn(1, shape, 3, to)
        due = sb.cast(x, to, **options)
        packed = sb.cast(Tensor.from_any(x), to, **options)
        assert packed.layout.pitch_bits == dtypes.of(to).width_bits
        assert codes(packed) == codes(due)
        back = sb.cast(packed, "bfloat16", **options)
        assert codes(back) == codes(sb.cast(due, "bfloat16", **options))
        part = packed[..., 1:] if x.ndim == 2 else packed
        assert codes(sb.cast(part, "float32")) == codes(sb.cast(due[..., 1:] if x.ndim == 2 else due, "float32"))
    out = Tensor.zeros((3, 7), to, storage="packed")
    x = drawn(2, (3, 7), 1, to)
    sb.cast(Tensor.from_any(x), to, out=out, **options)
    assert codes(out) == codes(sb.cast(x, to, **options))


def test_torch_gets_packed_elements() -> None:
    torch = pytest.importorskip("torch")
    found = sb.cast(torch.from_numpy(X), "float4_e2m1fn", overflow="saturate")
    assert found.dtype is torch.float4_e2m1fn_x2
    assert codes(sb.to_padded(Tensor.from_any(found))) == codes(sb.cast(X, "float4_e2m1fn"))


def test_what_the_library_of_the_array_has_no_name_for_is_refused_in_the_words_of_the_call() -> None:
    torch = pytest.importorskip("torch")
    for _ in range(2):
        with pytest.raises(DTypeError) as caught:
            sb.cast(torch.ones(2, 4), "int4")
        said = "cast: result dtype is int4, must be one that torch takes by DLPack"
        assert str(caught.value) == f"{said}; pass Tensor.from_any of the array, for a Tensor"


def test_nothing_scalars_and_repetitions() -> None:
    assert sb.cast(np.empty((0, 3), np.float32), E4M3, rounding="stochastic", seed=1).shape == (0, 3)
    assert sb.cast(np.empty((3, 0)), E4M3, overflow="error").shape == (3, 0)
    one = np.array(1.03, np.float32)
    assert sb.cast(one, E4M3, rounding="up").astype(np.float32) == 1.125
    wide = np.broadcast_to(X[:1], X.shape)
    due = sb.cast(wide.copy(), E4M3, rounding="stochastic", seed=5)
    assert codes(sb.cast(wide, E4M3, rounding="stochastic", seed=5)) == codes(due)
    assert len({tuple(row) for row in codes(due)}) > 1  # each place draws its own word


def test_a_seed_is_part_of_the_call() -> None:
    calls = [codes(sb.cast(X, E4M3, rounding="stochastic", seed=seed)) for seed in (1, 2, 1, 2, (1 << 64) - 1)]
    assert calls[0] == calls[2]
    assert calls[1] == calls[3]
    assert calls[0] != calls[1]
    assert codes(sb.cast(X, E4M3, rounding="stochastic", seed=np.int64(1))) == calls[0]


def test_a_preset_copies_its_own_format() -> None:
    nan = np.array([0x7D, 0xFE, 0x7C], np.uint8).view(dtypes.float8_e5m2.numpy)
    assert codes(sb.cast(nan, "float8_e5m2", preset="ml_dtypes")) == [0x7D, 0xFE, 0x7C]
    assert codes(sb.cast(nan, "float8_e5m2")) == [0x7E, 0x7E, 0x7C]


def test_bool_takes_every_option() -> None:
    x = np.array([0.0, 0.3, np.nan, np.inf])
    for options in ({"rounding": "down"}, {"rounding": "stochastic", "seed": 1}, {"overflow": "error"}):
        assert sb.cast(x, "bool", **options).tolist() == [False, True, True, True]


ROUNDINGS = "['nearest_even', 'toward_zero', 'nearest_away', 'up', 'down', 'stochastic']"
WRONG: tuple[tuple[dict[str, Any], type[SamebitsError], str], ...] = (
    (
        {"rounding": "nearest"},
        OptionError,
        f"cast: rounding is 'nearest', must be one of {ROUNDINGS}; leave it out for the default",
    ),
    (
        {"overflow": 3},
        OptionError,
        "cast: overflow is 3, must be one of ['ieee', 'saturate', 'error']; leave it out for the default",
    ),
    (
        {"inf": "zero"},
        OptionError,
        "cast: inf is 'zero', must be one of ['overflow', 'ieee', 'saturate', 'nan']; leave it out for the default",
    ),
    (
        {"nan": 256},
        OptionError,
        (
            "cast: nan is 256, must be 'canonical', 'signed', or a code of float8_e4m3fn in [0, 2**8); leave it out for"
            " the canonical NaN"
        ),
    ),
    (
        {"nan": True},
        OptionError,
        (
            "cast: nan is True, must be 'canonical', 'signed', or a code of float8_e4m3fn in [0, 2**8); leave it out"
            " for the canonical NaN"
        ),
    ),
    (
        {"seed": 1},
        OptionError,
        "cast: seed is 1, must be left out where nothing is drawn; pass rounding='stochastic', or leave seed away",
    ),
    (
        {"rounding": "stochastic"},
        OptionError,
        "cast: seed is None, must be an integer in [0, 2**64), which stochastic rounding draws from; pass seed=0",
    ),
    (
        {"rounding": "stochastic", "seed": 1 << 64},
        OptionError,
        (
            "cast: seed is 18446744073709551616, must be an integer in [0, 2**64), which stochastic rounding draws"
            " from; pass seed=0"
        ),
    ),
    (
        {"preset": "torch"},
        OptionError,
        (
            f"cast: preset is 'torch', must be one of {[preset.name for preset in PRESETS]}; or say rounding=,"
            " overflow=, nan= and inf="
        ),
    ),
    (
        {"preset": "ocp", "rounding": "up"},
        OptionError,
        "cast: preset is given beside rounding, must be given alone; leave rounding away",
    ),
    (
        {"preset": "ocp", "seed": 1},
        OptionError,
        "cast: seed is 1, must be left out where nothing is drawn; pass rounding='stochastic', or leave seed away",
    ),
)


@pytest.mark.parametrize(("options", "kind", "sentence"), WRONG, ids=lambda x: str(x)[:40])
def test_wrong_options_are_refused(options: dict[str, Any], kind: type[SamebitsError], sentence: str) -> None:
    with pytest.raises(kind) as caught:
        sb.cast(X, E4M3, **options)
    assert str(caught.value) == sentence


def test_pairs_that_a_preset_does_not_convert() -> None:
    with pytest.raises(DTypeError) as caught:
        sb.cast(X, "int4", preset="cuda-nosat")
    assert str(caught.value) == (
        "cast: preset 'cuda-nosat' conversion is float32 to int4, must be a pair that it converts, to one of"
        " float8_e4m3fn, float8_e5m2, float8_e8m0fnu; leave preset= away"
    )


@pytest.mark.parametrize("options", OPTIONS[1:4], ids=str)
def test_outputs_that_cannot_take_the_result(options: dict[str, Any]) -> None:
    fixed = np.empty(X.shape, dtypes.float8_e4m3fn.numpy)
    fixed.flags.writeable = False
    with pytest.raises(ExchangeError, match="out memory is read-only"):
        sb.cast(X, E4M3, out=fixed, **options)
    memory = np.zeros(X.size * 4, np.uint8)
    x = memory.view(np.float32).reshape(X.shape)
    inside = memory[: X.size].view(dtypes.float8_e4m3fn.numpy).reshape(X.shape)
    with pytest.raises(LayoutError, match="out memory is that of an operand"):
        sb.cast(x, E4M3, out=inside, **options)


def test_in_place_where_elements_are_as_wide() -> None:
    for options in OPTIONS[:3]:
        memory = X.copy()
        due = sb.cast(X, "int32", **options)
        sb.cast(memory, "int32", out=memory.view(np.int32), **options)
        assert np.array_equal(memory.view(np.int32), due)


def test_the_first_element_that_does_not_fit_is_named() -> None:
    x = X.copy()
    x[4, 2], x[5, 0] = 1e9, np.inf
    sentence = (
        "cast: x element (4, 2) is nothing that float8_e4m3fn has a value for, must be a number within [-448.0, 448.0];"
        " pass overflow='saturate' or 'ieee', or say by nan= and inf= what those become"
    )
    for given in (x, np.asfortranarray(x)):
        with pytest.raises(DTypeError) as caught:
            sb.cast(given, E4M3, overflow="error")
        assert str(caught.value) == sentence
    with pytest.raises(DTypeError) as caught:
        sb.cast(np.array([1, 300]), "int8", overflow="error")
    assert str(caught.value).startswith(
        "cast: x element 1 is nothing that int8 has a value for, must be a number within"
    )
    assert sb.cast(np.array([np.inf]), E4M3, overflow="error", inf="saturate").astype(np.float32).tolist() == [448]
