"""Element formats: one frozen row each, with its scalar meaning beside it.

Start at `DType.decode`, which gives the value of a code point from the row's facts alone; the tests hold it equal to
NumPy and ml_dtypes on every code of every format of 16 bits or fewer. Names are those of ml_dtypes. The float8, float6
and float4 rows follow OCP OFP8 v1.0, OCP MX v1.0 and the fnuz formats of arXiv:2206.02915; the DLPack numbers are those
of dlpack.h 1.3, the ONNX numbers those of TensorProto.DataType.

A row is a singleton: compare with `is`, hash by identity, and a pickle comes back as the same object. `of`, which is
`samebits.dtype`, turns whatever names a format into its row.
"""

import math
import struct
from collections.abc import Callable
from typing import Any, Literal

import ml_dtypes
import numpy as np

from samebits.errors import DTypeError, near, shown
from samebits.frozen import dataclass

ElementKind = Literal["float", "int", "uint", "bool"]
NanRule = Literal["ieee", "all_ones", "negative_zero", "none"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DType:
    """value(code) = (-1)^sign * 2^(exponent - bias) * 1.mantissa, or two's complement: one element format.

    Attributes:
        name: As in ml_dtypes.
        kind: `float`, `int` (signed), `uint` or `bool`.
        width_bits: Bits of one element in packed storage.
        dlpack: `(type code, bits)` of DLDataType with one lane.
        onnx: Number in `onnx.TensorProto.DataType`, None where ONNX has no such type.
        numpy: The NumPy dtype (ml_dtypes' for the formats NumPy lacks), None where there is none. NumPy stores a
            format of fewer than 8 bits one element a byte.
        signed: Whether there is a sign (a sign bit, for floats).
        exponent_bits: Width of the exponent field (floats).
        mantissa_bits: Width of the stored fraction (floats).
        bias: Exponent field of 1.0 (floats).
        nan: Which codes are NaN. `ieee`: exponent all ones and fraction nonzero. `all_ones`: every bit but the
            sign set. `negative_zero`: the code of -0. `none`.
        has_infinity: Whether exponent all ones with fraction zero is an infinity.
        has_negative_zero: Whether -0 is a value of its own.
        has_zero: False for a format of powers of two only (float8_e8m0fnu).
        canonical_nan: The code point every computed NaN gets (numerics.md section 1); None without NaN.
    """

    name: str
    kind: ElementKind
    width_bits: int
    dlpack: tuple[int, int]
    onnx: int | None
    numpy: np.dtype[Any] | None
    signed: bool = False
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    nan: NanRule = "none"
    has_infinity: bool = False
    has_negative_zero: bool = False
    has_zero: bool = True
    canonical_nan: int | None = None

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        """Whether both are one row. What is no row equals none; but of a name or another library's dtype, which would
        be a wrong answer where it means this very format.

        Raises:
            DTypeError: `other` is such a name; `samebits.dtype(other)` is the row to compare with.
        """
        if isinstance(other, DType):  # said here, or Python would ask the other row too
            return self is other
        if _meant(other) is self:
            expected, remedy = "an element format", f"compare with samebits.dtype({shown(other)})"
            raise DTypeError("DType ==", "other", "", shown(other), expected, remedy)
        return NotImplemented

    __hash__ = object.__hash__

    def __reduce__(self) -> "tuple[Callable[[str], DType], tuple[str]]":
        return of, (self.name,)

    @property
    def is_float(self) -> bool:
        """Whether elements are floating point."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether elements are integers; bool is not."""
        return self.kind in ("int", "uint")

    @property
    def size_bytes(self) -> int:
        """Bytes of one element.

        Raises:
            DTypeError: The format is narrower than a byte, so that one element has no size in bytes.
        """
        if self.width_bits % 8:
            raise DTypeError(
                "DType.size_bytes",
                self.name,
                "width",
                f"{self.width_bits} bits",
                "whole bytes",
                "use width_bits, or Layout.required_bytes for a tensor",
            )
        return self.width_bits >> 3

    @property
    def element_bytes(self) -> int:
        """Bytes of an element that has bytes of its own, as in NumPy's arrays: 1 for a format narrower than that."""
        return self.width_bits >> 3 or 1

    def decode(self, code: int) -> float:
        """value = (-1)^s * 2^(e - bias) * (1 + m / 2^mantissa_bits); exact for every code point.

        Args:
            code: The element's bits as an unsigned integer, `0 <= code < 2**width_bits`.

        Returns:
            The value: a float for floats (every format fits binary64), an int otherwise.
        """
        if not isinstance(code, int | np.integer) or not 0 <= code < 1 << self.width_bits:
            raise DTypeError(
                "DType.decode",
                "code",
                "",
                shown(code),
                f"an integer in [0, 2**{self.width_bits})",
                f"mask it to the {self.width_bits} bits of {self.name}",
            )
        if self.kind != "float":
            negative = self.signed and code >> (self.width_bits - 1)
            return code - (1 << self.width_bits) if negative else code
        if self.width_bits == 64:  # Python's own format, whose subnormals arithmetic would lose where they count as 0
            (number,) = struct.unpack("<d", code.to_bytes(8, "little"))
            return math.nan if math.isnan(number) else float(number)
        sign_bit = 1 << (self.width_bits - 1) if self.signed else 0
        magnitude = code & ~sign_bit
        negative = code & sign_bit
        exponent, fraction = divmod(magnitude, 1 << self.mantissa_bits)
        top_exponent = exponent == (1 << self.exponent_bits) - 1
        if self.nan == "ieee" and top_exponent and fraction:
            return math.nan
        if self.nan == "all_ones" and magnitude == (1 << (self.exponent_bits + self.mantissa_bits)) - 1:
            return math.nan
        if self.nan == "negative_zero" and code == sign_bit:
            return math.nan
        if self.has_infinity and top_exponent:
            value = math.inf
        elif exponent == 0 and self.has_zero:
            value = math.ldexp(fraction, 1 - self.bias - self.mantissa_bits)
        else:
            value = math.ldexp((1 << self.mantissa_bits) + fraction, exponent - self.bias - self.mantissa_bits)
        return -value if negative else value

    @property
    def max(self) -> float:
        """The largest finite value."""
        return 1 if self.kind == "bool" else self.decode(self.max_code)

    @property
    def max_code(self) -> int:
        """The code point of the largest finite value."""
        if self.kind == "bool":
            return 1
        if self.kind != "float":
            return (1 << (self.width_bits - self.signed)) - 1
        code = (1 << (self.exponent_bits + self.mantissa_bits)) - 1
        return code - {"ieee": 1 << self.mantissa_bits, "all_ones": 1}.get(self.nan, 0)

    @property
    def min(self) -> float:
        """The smallest finite value."""
        if self.kind == "float":
            return -self.max if self.signed else self.decode(0)
        return self.decode(1 << (self.width_bits - 1)) if self.signed else 0

    @property
    def min_normal(self) -> float:
        """2^(1 - bias): the smallest positive value of full precision (floats)."""
        return self.decode(1 << self.mantissa_bits if self.has_zero else 0)

    @property
    def min_subnormal(self) -> float:
        """2^(1 - bias - mantissa_bits): the smallest positive value (floats)."""
        return self.decode(1 if self.has_zero else 0)

    @property
    def epsilon(self) -> float:
        """2^-mantissa_bits: the distance from 1 to the next larger value (floats)."""
        return math.ldexp(1, -self.mantissa_bits)


def _numpy(name: str) -> np.dtype[Any] | None:
    """The dtype of that name, of NumPy or else of ml_dtypes, or None (ml_dtypes gained the narrow rows over time)."""
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        return None


def _float(
    name: str, em: tuple[int, int], bias: int, nan: NanRule, canonical: int | None, dlpack: int, onnx: int | None
) -> DType:
    """A signed float row of 1 + e + m bits; infinities come with IEEE NaNs, and fnuz formats have no -0."""
    exponent_bits, mantissa_bits = em
    width = 1 + exponent_bits + mantissa_bits
    return DType(
        name=name,
        kind="float",
        width_bits=width,
        dlpack=(dlpack, width),
        onnx=onnx,
        numpy=_numpy(name),
        signed=True,
        exponent_bits=exponent_bits,
        mantissa_bits=mantissa_bits,
        bias=bias,
        nan=nan,
        has_infinity=nan == "ieee",
        has_negative_zero=nan != "negative_zero",
        canonical_nan=canonical,
    )


def _int(name: str, width: int, onnx: int | None) -> DType:
    """An integer row; the name says whether it is signed."""
    signed = not name.startswith("u")
    return DType(name, "int" if signed else "uint", width, (0 if signed else 1, width), onnx, _numpy(name), signed)


float64 = _float("float64", (11, 52), 1023, "ieee", 0x7FF8000000000000, 2, 11)
float32 = _float("float32", (8, 23), 127, "ieee", 0x7FC00000, 2, 1)
float16 = _float("float16", (5, 10), 15, "ieee", 0x7E00, 2, 10)
bfloat16 = _float("bfloat16", (8, 7), 127, "ieee", 0x7FC0, 4, 16)
float8_e3m4 = _float("float8_e3m4", (3, 4), 3, "ieee", 0x78, 7, None)
float8_e4m3 = _float("float8_e4m3", (4, 3), 7, "ieee", 0x7C, 8, None)
float8_e4m3b11fnuz = _float("float8_e4m3b11fnuz", (4, 3), 11, "negative_zero", 0x80, 9, None)
float8_e4m3fn = _float("float8_e4m3fn", (4, 3), 7, "all_ones", 0x7F, 10, 17)
float8_e4m3fnuz = _float("float8_e4m3fnuz", (4, 3), 8, "negative_zero", 0x80, 11, 18)
float8_e5m2 = _float("float8_e5m2", (5, 2), 15, "ieee", 0x7E, 12, 19)
float8_e5m2fnuz = _float("float8_e5m2fnuz", (5, 2), 16, "negative_zero", 0x80, 13, 20)
float8_e8m0fnu = DType(
    name="float8_e8m0fnu",
    kind="float",
    width_bits=8,
    dlpack=(14, 8),
    onnx=24,
    numpy=_numpy("float8_e8m0fnu"),
    exponent_bits=8,
    bias=127,
    nan="all_ones",
    has_zero=False,
    canonical_nan=0xFF,
)
float6_e2m3fn = _float("float6_e2m3fn", (2, 3), 1, "none", None, 15, 27)
float6_e3m2fn = _float("float6_e3m2fn", (3, 2), 3, "none", None, 16, 28)
float4_e2m1fn = _float("float4_e2m1fn", (2, 1), 1, "none", None, 17, 23)
int64 = _int("int64", 64, 7)
int32 = _int("int32", 32, 6)
int16 = _int("int16", 16, 5)
int8 = _int("int8", 8, 3)
int4 = _int("int4", 4, 22)
int2 = _int("int2", 2, 26)
int1 = _int("int1", 1, None)
uint64 = _int("uint64", 64, 13)
uint32 = _int("uint32", 32, 12)
uint16 = _int("uint16", 16, 4)
uint8 = _int("uint8", 8, 2)
uint4 = _int("uint4", 4, 21)
uint2 = _int("uint2", 2, 25)
uint1 = _int("uint1", 1, None)
bool_ = DType("bool", "bool", 8, (6, 8), 9, _numpy("bool"))

ROWS: tuple[DType, ...] = tuple(row for row in list(globals().values()) if isinstance(row, DType))

_ABSTRACT = (np.generic, np.number, np.inexact, np.floating, np.integer, np.signedinteger, np.unsignedinteger)
_BY_NAME: dict[str, DType] = {row.name: row for row in ROWS}
_BY_NUMPY: dict[Any, DType] = {row.numpy: row for row in ROWS if row.numpy is not None}
_BY_DLPACK: dict[tuple[int, int], DType] = {row.dlpack: row for row in ROWS}


def of(x: object) -> DType:
    """The row that x names.

    Args:
        x: A `DType`, a name (`"bfloat16"`), a NumPy or ml_dtypes dtype or scalar type, a torch dtype, a JAX dtype.

    Raises:
        DTypeError: No row is meant; byte-swapped NumPy dtypes are none.
    """
    if isinstance(x, DType):
        return x
    found = _meant(x)
    if found is None:
        is_array = hasattr(x, "dtype") and not isinstance(x, type)
        known = near(x.lower().replace("fp", "float"), _BY_NAME) if isinstance(x, str) else []
        names = ", ".join(map(repr, known or ["float32"]))
        remedy = "pass its dtype" if is_array else f"pass one of its names, such as {names}"
        raise DTypeError("dtypes.of", "dtype", "", shown(x), "an element format", remedy)
    return found


def dtype(x: object) -> DType:
    """The row that x names: `samebits.dtype(tensor.dtype) is samebits.dtype("bfloat16")`, whatever made the tensor.

    Args:
        x: A `DType`, a name (`"bfloat16"`), a NumPy or ml_dtypes dtype or scalar type, a torch dtype, a JAX dtype.

    Raises:
        DTypeError: No row is meant; byte-swapped NumPy dtypes are none.
    """
    return named("dtype", "x", x)


def named(call: str, operand: str, x: object) -> DType:
    """The row that an argument of a call names, as `of`, whose error is in the words of that call."""
    if type(x) is DType:
        return x
    try:
        return of(x)
    except DTypeError as error:
        raise error.renamed(call, operand) from None


def _meant(x: object) -> DType | None:
    """The row that a name, or another library's dtype, stands for."""
    found: DType | None
    if isinstance(x, np.dtype):
        found = _BY_NUMPY.get(x)
    elif isinstance(x, str):
        found = _BY_NAME.get(x)
    elif isinstance(x, type) and issubclass(x, np.generic):
        # An abstract type such as numpy.floating stands for no format, though NumPy may choose one.
        found = _BY_NUMPY.get(np.dtype(x)) if x not in _ABSTRACT else None
    else:
        # torch names its dtypes torch.<name>; a JAX scalar type carries a NumPy dtype, as a value of one would.
        inner, spelled = getattr(x, "dtype", None), shown(x)
        if isinstance(inner, np.dtype) and isinstance(x, type):
            found = _BY_NUMPY.get(inner)
        else:
            found = _BY_NAME.get(spelled.removeprefix("torch.")) if spelled.startswith("torch.") else None
    return found


def of_dlpack(code: int, bits: int) -> DType | None:
    """The row whose DLDataType is `(code, bits)` with one lane, or None."""
    return _BY_DLPACK.get((code, bits))
