"""Conversions: how a number becomes an element of another format, as frozen values, and the named ones as rows.

A conversion says how a number is rounded, and what becomes of one that is too large, of an infinity and of NaN
(numerics.md section 9). `SB1` is what every function does where nothing is said. A preset is a conversion for each pair
of formats, and is named after the library, version and path whose bits it gives. Start at `Conversion`; `presets` are
in `PRESETS`.
"""

from __future__ import annotations

from typing import Literal, get_args

from samebits import dtypes
from samebits.dtypes import DType, float32
from samebits.frozen import dataclass, replace

__all__ = [
    "INFINITIES",
    "OVERFLOWS",
    "PRESETS",
    "ROUNDINGS",
    "SB1",
    "Conversion",
    "ConversionRule",
    "Infinity",
    "Overflow",
    "Preset",
    "Rounding",
    "SignedNan",
]

Rounding = Literal["nearest_even", "toward_zero", "nearest_away", "up", "down", "stochastic"]
Overflow = Literal["ieee", "saturate", "error"]
Infinity = Literal["overflow", "ieee", "saturate", "nan"]
SignedNan = Literal["never", "overflow", "always"]

ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)
OVERFLOWS: tuple[Overflow, ...] = get_args(Overflow)
INFINITIES: tuple[Infinity, ...] = get_args(Infinity)


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a number becomes an element of another format.

    Attributes:
        rounding: Which of the two values next to a number it becomes. None: `nearest_even` in a float format,
            `toward_zero` in an integer format.
        overflow: What a number becomes that is beyond the largest value once it is rounded as if exponents had no
            limit. `ieee`: an infinity of its sign, in a format without infinity NaN, in one with neither the largest
            value of its sign; where the rounding leads back to the format's values, the largest value. In an integer
            format floats saturate and integers wrap. `saturate`: the largest value of its sign. `error`: it is refused.
        nan: The code that NaN becomes. None: the canonical one, 0 in a format without NaN.
        inf: What an infinity becomes: as a number beyond the largest value (`overflow`), or as `ieee` or `saturate` say
            of one, or what NaN becomes (`nan`).
        nan_sign: When the sign bit of that code is turned because that of the number is set: for what is NaN for being
            too large (`overflow`), for NaN itself too (`always`), or `never`.
        nan_payload: Whether that code also has the leading bits of the fraction of the NaN that it comes from.
        via: A format that wider numbers are rounded to first, to nearest even; None rounds once.
        absolute: Whether a format without a sign takes the magnitude of a number, and its least value for zero.
        subnormal_up: Whether float8_e8m0fnu rounds every number between 2^-127 and 2^-126 up.
    """

    rounding: Rounding | None = None
    overflow: Overflow = "ieee"
    nan: int | None = None
    inf: Infinity = "overflow"
    nan_sign: SignedNan = "never"
    nan_payload: bool = False
    via: DType | None = None
    absolute: bool = False
    subnormal_up: bool = False

    def normal(self, dtype: DType) -> Conversion:
        """The one of all that are alike in a format."""
        if dtype.kind == "bool":
            return SB1
        return replace(self, rounding=None) if self.rounding == SB1.rounding_to(dtype) else self

    def rounding_to(self, dtype: DType) -> Rounding:
        """The rounding to a format."""
        return self.rounding or ("nearest_even" if dtype.is_float else "toward_zero")

    def nan_code(self, dtype: DType) -> int:
        """The code of NaN without a sign bit in a format."""
        return (dtype.canonical_nan or 0) if self.nan is None else self.nan

    def signed_nan(self, dtype: DType) -> SignedNan:
        """`nan_sign` in a format, whose only NaN may be the sign bit."""
        return self.nan_sign if dtype.is_float and dtype.signed and dtype.nan != "negative_zero" else "never"

    def infinity(self) -> Overflow:
        """What an infinity becomes as a number beyond the largest value; not asked where it becomes NaN."""
        return self.inf if self.inf in ("ieee", "saturate") else self.overflow

    @property
    def reads_nan(self) -> bool:
        """Whether the code of a NaN decides what it becomes."""
        return self.nan_sign == "always" or self.nan_payload

    @property
    def is_placed(self) -> bool:
        """Whether a result depends on where the element is, or is a refusal that names the place."""
        return self.rounding == "stochastic" or self.overflow == "error"


SB1 = Conversion()


@dataclass(frozen=True, slots=True)
class ConversionRule:
    """A conversion from some formats to some formats, by their names."""

    sources: frozenset[str]
    targets: frozenset[str]
    conversion: Conversion


@dataclass(frozen=True, slots=True)
class Preset:
    """Conversions under one name.

    Attributes:
        name: As `cast(preset=)` says it.
        equals: Whose bits they give, in words.
        rules: The first that has both formats counts.
        copies: Whether elements of the target's own format are copied, whatever NaN they are.
    """

    name: str
    equals: str
    rules: tuple[ConversionRule, ...]
    copies: bool = False

    def conversion(self, source: DType, target: DType) -> Conversion | None:
        """How the preset converts from one format to another; None where it has no rule for them."""
        for rule in self.rules:
            if source.name in rule.sources and target.name in rule.targets:
                return rule.conversion
        return None

    @property
    def targets(self) -> tuple[DType, ...]:
        """The formats that it converts to."""
        return tuple([row for row in dtypes.ROWS if any(row.name in rule.targets for rule in self.rules)])


def _names(*names: str) -> frozenset[str]:
    return frozenset(names)


_EVERY = frozenset(row.name for row in dtypes.ROWS)
_WIDE = _names("float64", "float32", "float16", "bfloat16")
_BYTES = frozenset(row.name for row in dtypes.ROWS if not row.is_float and row.width_bits >= 8)
_FNUZ = _names("float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz")
_SIGNED_NAN = _names("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3fn", "float8_e5m2")
_FLOAT6, _FLOAT4, _POWERS = _names("float6_e2m3fn", "float6_e3m2fn"), _names("float4_e2m1fn"), _names("float8_e8m0fnu")
_TORCH = _names("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_NIBBLES = _names("int4", "uint4")
_SATURATED = Conversion(overflow="saturate")
# Of float6, where NaN becomes the zero of the other sign.
_TURNED_ZERO = Conversion(nan=0x20, nan_sign="always", via=float32)


def _with_negative_nan(dtype: DType) -> Conversion:
    """By way of float32, every NaN having its sign bit set."""
    code = (dtype.canonical_nan or 0) | 1 << dtype.width_bits - 1
    return Conversion(nan=code, nan_sign="overflow", via=float32)


def _from_double(overflow: Overflow) -> Conversion:
    """To float8 from float64 by CUDA, which keeps of a NaN what fits."""
    return Conversion(overflow=overflow, nan_sign="always", nan_payload=True)


PRESETS: tuple[Preset, ...] = (
    Preset("sb1", "the default of every function here", (ConversionRule(_EVERY, _EVERY, SB1),)),
    Preset(
        "ml_dtypes",
        "ml_dtypes 0.5 to 0.6 and JAX, converting arrays",
        (
            # The only NaN of these sources has its sign bit set, which counts as a sign.
            *(
                ConversionRule(_FNUZ, _names(row.name), _with_negative_nan(row))
                for row in dtypes.ROWS
                if row.name in _SIGNED_NAN
            ),
            ConversionRule(_FNUZ, _FLOAT6 | _FLOAT4, Conversion(via=float32)),
            ConversionRule(_EVERY - _POWERS, _SIGNED_NAN, Conversion(nan_sign="always", via=float32)),
            ConversionRule(_EVERY - _POWERS, _FNUZ, Conversion(via=float32)),
            ConversionRule(_POWERS, _names("bfloat16"), SB1),
            ConversionRule(_WIDE | _BYTES, _POWERS, Conversion(via=float32, subnormal_up=True)),
            ConversionRule(_EVERY - _POWERS - _NIBBLES, _names("float6_e2m3fn"), _TURNED_ZERO),
            ConversionRule(_EVERY - _POWERS, _names("float6_e3m2fn"), _TURNED_ZERO),
            ConversionRule(_EVERY - _POWERS, _FLOAT4, Conversion(nan=0x8, nan_sign="always", via=float32)),
        ),
        copies=True,
    ),
    Preset(
        "torch-2.13",
        "torch 2.13 on x86-64 with AVX-512, converting contiguous tensors",
        (
            ConversionRule(_names("float64", "float32"), _names("bfloat16"), Conversion(nan=0xFFFF, via=float32)),
            ConversionRule(_TORCH | _BYTES | _names("float16"), _names("bfloat16"), Conversion(via=float32)),
            ConversionRule(
                _names("float64", "float32", "bfloat16"),
                _names("float16"),
                Conversion(nan_sign="always", nan_payload=True, via=float32),
            ),
            ConversionRule(_BYTES, _names("float16"), Conversion(via=float32)),
            ConversionRule(
                _TORCH | _BYTES | _WIDE,
                _names("float8_e4m3fn"),
                Conversion(overflow="saturate", nan_sign="always", via=float32),
            ),
            ConversionRule(
                _TORCH | _BYTES | _WIDE, _names("float8_e5m2"), Conversion(nan=0x7F, nan_sign="always", via=float32)
            ),
            ConversionRule(_TORCH | _BYTES | _WIDE, _FNUZ & _TORCH, Conversion(via=float32)),
            ConversionRule(_TORCH | _BYTES | _WIDE, _POWERS, Conversion(via=float32, absolute=True, subnormal_up=True)),
        ),
        copies=True,
    ),
    Preset(
        "cuda-satfinite",
        "the functions of CUDA 13.0's headers with __NV_SATFINITE, powers of two with cudaRoundPosInf",
        (
            ConversionRule(_names("float64"), _names("float8_e4m3fn", "float8_e5m2"), _from_double("saturate")),
            ConversionRule(_WIDE, _names("float8_e4m3fn"), _SATURATED),
            ConversionRule(_WIDE, _names("float8_e5m2"), Conversion(overflow="saturate", nan=0x7F)),
            ConversionRule(_WIDE, _POWERS, Conversion("up", "saturate", absolute=True)),
            ConversionRule(_WIDE, _FLOAT6, Conversion(overflow="saturate", nan=0x1F)),
            ConversionRule(_WIDE, _FLOAT4, Conversion(overflow="saturate", nan=0x7)),
        ),
    ),
    Preset(
        "cuda-nosat",
        "the functions of CUDA 13.0's headers with __NV_NOSAT, powers of two with cudaRoundPosInf",
        (
            ConversionRule(_names("float64"), _names("float8_e4m3fn", "float8_e5m2"), _from_double("ieee")),
            ConversionRule(_WIDE, _names("float8_e4m3fn"), Conversion(nan_sign="overflow")),
            ConversionRule(_WIDE, _names("float8_e5m2"), Conversion(nan=0x7F)),
            ConversionRule(_WIDE, _POWERS, Conversion("up", absolute=True)),
        ),
    ),
    Preset(
        "ocp",
        "OCP OFP8 1.0 in its saturating mode, and OCP MX 1.0",
        (ConversionRule(_EVERY, _names("float8_e4m3fn", "float8_e5m2") | _FLOAT6 | _FLOAT4, _SATURATED),),
    ),
)
