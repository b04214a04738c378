"""gelu and its gradient rounded to bfloat16, in sixteen lanes of float32: from bounds of what float32 gives.

x is multiplied by (1 + erf(x / sqrt(2))) / 2 and `dy` by the slope of gelu. Each adds up to 1 at x and -x, and at -|x|
is a polynomial here, one for each quarter of |x|; what numerics.md computes in steps of float32 lies within a margin of
it. Both bounds are multiplied, which keeps their order, and where the products round alike that is the result. Else the
steps are taken, for one lane in some two thousand of normal numbers; they are three times the instructions. That they
leave the bounds for none of the 2**32 inputs is run (`make exhaustive`). Start at `gelu`.
"""

from __future__ import annotations

from collections.abc import Callable

from samebits import dtypes
from samebits.codegen.vocabulary import Builder, Vector
from samebits.kernels.functions import rounded

Exact = Callable[[], Vector]
"""The steps of float32, and their result as bfloat16."""

# Adding it to 0 <= x < 2**20 rounds x to a multiple of 1/4 and leaves that, in quarters, in the low bits.
_ROUNDER = float.fromhex("0x1.8p+21")
# From here on both functions are 1, or less than the margin.
_MOST = 7.75
# By c, the nearest quarter: the coefficients of powers of |x| - c, the constants first (tools/fit_functions.py).
_SHARES = (
    (
        "0x1.000000p-1",
        "0x1.9aecbap-2",
        "0x1.3bf144p-2",
        "0x1.d02200p-3",
        "0x1.44ed0cp-3",
        "0x1.b0bdd2p-4",
        "0x1.11a46ep-4",
        "0x1.482a24p-5",
        "0x1.74bcf8p-6",
        "0x1.909250p-7",
        "0x1.96f4e6p-8",
        "0x1.869044p-9",
        "0x1.61de20p-10",
        "0x1.2e86fep-11",
        "0x1.e7dbcap-13",
        "0x1.72d956p-14",
        "0x1.09ad7ap-15",
        "0x1.66a5bcp-17",
        "0x1.c80728p-19",
        "0x1.11056ep-20",
        "0x1.33ca30p-22",
        "0x1.46a16cp-24",
        "0x1.463cfap-26",
        "0x1.32a35ep-28",
        "0x1.0f30f0p-30",
        "0x1.c34c28p-33",
        "0x1.61404cp-35",
        "0x1.04178ap-37",
        "0x1.683c36p-40",
        "0x1.d53e3ep-43",
        "0x1.1f68f4p-45",
        "0x1.4b13eap-48",
    ),
    (
        "-0x1.98843cp-2",
        "-0x1.8bf298p-2",
        "-0x1.6883bep-2",
        "-0x1.345d60p-2",
        "-0x1.ef8e7ap-3",
        "-0x1.7610eap-3",
        "-0x1.0940b6p-3",
        "-0x1.61649ap-4",
        "-0x1.ba4b8ep-5",
        "-0x1.0402f0p-5",
        "-0x1.1f2edap-6",
        "-0x1.29f9c2p-7",
        "-0x1.2270f2p-8",
        "-0x1.09f1c8p-9",
        "-0x1.c984bep-11",
        "-0x1.71b392p-12",
        "-0x1.18a396p-13",
        "-0x1.903f70p-15",
        "-0x1.0c1f6ap-16",
        "-0x1.5175a0p-18",
        "-0x1.8efd92p-20",
        "-0x1.bb27c8p-22",
        "-0x1.ce61f8p-24",
        "-0x1.c5358ep-26",
        "-0x1.a14c74p-28",
        "-0x1.68f2eep-30",
        "-0x1.2549cap-32",
        "-0x1.bfbca8p-35",
        "-0x1.410c4ep-37",
        "-0x1.b0825cp-40",
        "-0x1.11ad4ep-42",
        "-0x1.455afap-45",
    ),
    (
        "-0x1.1bdd72p-16",
        "0x1.8bf25cp-5",
        "0x1.688384p-4",
        "0x1.ce8bc4p-4",
        "0x1.ef8e28p-4",
        "0x1.d394dap-4",
        "0x1.8de0d8p-4",
        "0x1.3537eap-4",
        "0x1.ba4b86p-5",
        "0x1.24836cp-5",
        "0x1.66fafap-6",
        "0x1.99b84cp-7",
        "0x1.b3aaf2p-8",
        "0x1.b02b30p-9",
        "0x1.905732p-10",
        "0x1.5a9bfcp-11",
        "0x1.18a786p-12",
        "0x1.a94b38p-14",
        "0x1.2daa78p-15",
        "0x1.90c7a2p-17",
        "0x1.f2cf82p-19",
        "0x1.22df6ap-20",
        "0x1.3df510p-22",
        "0x1.45d460p-24",
        "0x1.39127ap-26",
        "0x1.1a18a8p-28",
        "0x1.dccd64p-31",
        "0x1.79f8ccp-33",
        "0x1.1915b2p-35",
        "0x1.883b72p-38",
        "0x1.00c6b4p-40",
        "0x1.3b79a6p-43",
    ),
    (
        "0x1.11c5a4p-4",
        "0x1.edda40p-5",
        "0x1.67edbep-5",
        "0x1.67cb98p-6",
        "0x1.079bfep-14",
        "-0x1.1704e4p-6",
        "-0x1.b89616p-6",
        "-0x1.e4cf96p-6",
        "-0x1.b9b7bap-6",
        "-0x1.5ffabap-6",
        "-0x1.f6e92ap-7",
        "-0x1.467ca4p-7",
        "-0x1.8464eap-8",
        "-0x1.a9a1e2p-9",
        "-0x1.af4feap-10",
        "-0x1.954394p-11",
        "-0x1.61cfe0p-12",
        "-0x1.1f7812p-13",
        "-0x1.b34904p-15",
        "-0x1.33669cp-16",
        "-0x1.955446p-18",
        "-0x1.f34ab2p-20",
        "-0x1.1f7438p-21",
        "-0x1.358bbep-23",
        "-0x1.37dfb6p-25",
        "-0x1.2618b0p-27",
        "-0x1.03a796p-29",
        "-0x1.ad6338p-32",
        "-0x1.4c94aap-34",
        "-0x1.e2b7e4p-37",
        "-0x1.484b7cp-39",
        "-0x1.a28be2p-42",
    ),
    (
        "-0x1.96dbaep-9",
        "-0x1.827750p-7",
        "-0x1.497daap-6",
        "-0x1.76d922p-6",
        "-0x1.49b9dep-6",
        "-0x1.bfbad4p-7",
        "-0x1.8eb768p-8",
        "0x1.8185fap-12",
        "0x1.252324p-8",
        "0x1.90efbap-8",
        "0x1.843c98p-8",
        "0x1.376768p-8",
        "0x1.b3f348p-9",
        "0x1.10d904p-9",
        "0x1.3585dcp-10",
        "0x1.40e488p-11",
        "0x1.31be06p-12",
        "0x1.0cc874p-13",
        "0x1.b551e6p-15",
        "0x1.49f4d4p-16",
        "0x1.ce95d2p-18",
        "0x1.2daefcp-19",
        "0x1.6e8378p-21",
        "0x1.9f219ep-23",
        "0x1.b6b678p-25",
        "0x1.b0e07ap-27",
        "0x1.8f0312p-29",
        "0x1.57c35ep-31",
        "0x1.14ee38p-33",
        "0x1.a15cecp-36",
        "0x1.2649b4p-38",
        "0x1.8472f0p-41",
    ),
)
_SLOPES = (
    (
        "0x1.000000p-1",
        "0x1.37f00cp-2",
        "0x1.0f5eb8p-3",
        "0x1.95f1dep-11",
        "-0x1.55429ap-4",
        "-0x1.f66bfep-4",
        "-0x1.050e92p-3",
        "-0x1.c65a80p-4",
        "-0x1.5d1c06p-4",
        "-0x1.e4e1e4p-5",
        "-0x1.341c2ap-5",
        "-0x1.68e62cp-6",
        "-0x1.876f5ap-7",
        "-0x1.8a5ae8p-8",
        "-0x1.71da90p-9",
        "-0x1.437006p-10",
        "-0x1.080eb6p-11",
        "-0x1.92e552p-13",
        "-0x1.1f6ea0p-14",
        "-0x1.7fbf1ep-16",
        "-0x1.df9f98p-18",
        "-0x1.18b3e0p-19",
        "-0x1.33d03ep-21",
        "-0x1.3c4fe8p-23",
        "-0x1.30ac84p-25",
        "-0x1.1320d2p-27",
        "-0x1.d1eeaap-30",
        "-0x1.7200dap-32",
        "-0x1.139886p-34",
        "-0x1.8120eep-37",
        "-0x1.f8eb2ep-40",
        "-0x1.368ca0p-42",
    ),
    (
        "-0x1.988454p-1",
        "-0x1.7f9324p-1",
        "-0x1.3b7356p-1",
        "-0x1.bb4638p-2",
        "-0x1.ef8e5ap-3",
        "-0x1.474ea2p-4",
        "0x1.094086p-5",
        "0x1.777a98p-4",
        "0x1.ba4b44p-4",
        "0x1.8e2466p-4",
        "0x1.3121f6p-4",
        "0x1.9e601ep-5",
        "0x1.fc47a2p-6",
        "0x1.1ca6aep-6",
        "0x1.251c14p-7",
        "0x1.16bc9cp-8",
        "0x1.eb28b8p-10",
        "0x1.91db48p-11",
        "0x1.31df80p-12",
        "0x1.b1c594p-14",
        "0x1.1ed83ep-15",
        "0x1.621d12p-17",
        "0x1.985a12p-19",
        "0x1.b82292p-21",
        "0x1.bba0aap-23",
        "0x1.a254fcp-25",
        "0x1.7131dep-27",
        "0x1.310b44p-29",
        "0x1.d80e88p-32",
        "0x1.5622b4p-34",
        "0x1.d0a75cp-37",
        "0x1.27ac5ep-39",
    ),
    (
        "-0x1.c917bep-22",
        "0x1.85c236p-3",
        "0x1.51fb08p-2",
        "0x1.8d7fe6p-2",
        "0x1.73aa8ep-2",
        "0x1.1ceed0p-2",
        "0x1.5c2530p-3",
        "0x1.21e564p-4",
        "0x1.7ef100p-21",
        "-0x1.36cae6p-5",
        "-0x1.93da50p-5",
        "-0x1.6ce890p-5",
        "-0x1.104b70p-5",
        "-0x1.62848cp-6",
        "-0x1.9cdba2p-7",
        "-0x1.b3fa74p-8",
        "-0x1.a4fdeap-9",
        "-0x1.75cddep-10",
        "-0x1.3263c0p-11",
        "-0x1.d0fc2cp-13",
        "-0x1.475bd2p-14",
        "-0x1.ac605ep-16",
        "-0x1.04d6acp-17",
        "-0x1.27eff6p-19",
        "-0x1.3917d2p-21",
        "-0x1.351dd0p-23",
        "-0x1.1cfc96p-25",
        "-0x1.eaf696p-28",
        "-0x1.8b500ep-30",
        "-0x1.29a6e2p-32",
        "-0x1.a35040p-35",
        "-0x1.1461aep-37",
    ),
    (
        "0x1.105b68p-2",
        "0x1.d6b3a8p-3",
        "0x1.15e582p-3",
        "0x1.37968cp-6",
        "-0x1.4a5dc4p-4",
        "-0x1.184dbap-3",
        "-0x1.27a510p-3",
        "-0x1.daa414p-4",
        "-0x1.26dd4ap-4",
        "-0x1.f7709ep-6",
        "-0x1.07486cp-9",
        "0x1.99e968p-7",
        "0x1.0a3e24p-6",
        "0x1.cd4e3ap-7",
        "0x1.459494p-7",
        "0x1.8de742p-8",
        "0x1.b0b078p-9",
        "0x1.a8eda0p-10",
        "0x1.7c54bcp-11",
        "0x1.382494p-12",
        "0x1.d7d37cp-14",
        "0x1.496d48p-15",
        "0x1.a9fb3ep-17",
        "0x1.ff0dc4p-19",
        "0x1.1cd930p-20",
        "0x1.276984p-22",
        "0x1.1d50b2p-24",
        "0x1.00d930p-26",
        "0x1.af5a0ep-29",
        "0x1.5210e4p-31",
        "0x1.eedc26p-34",
        "0x1.526454p-36",
    ),
    (
        "-0x1.4cd178p-13",
        "-0x1.1c793cp-4",
        "-0x1.ca3984p-4",
        "-0x1.d1f5dcp-4",
        "-0x1.49ac0ap-4",
        "-0x1.fc246cp-6",
        "0x1.b8effep-7",
        "0x1.434b44p-5",
        "0x1.6f54dap-5",
        "0x1.257e78p-5",
        "0x1.5df2f0p-6",
        "0x1.12b298p-7",
        "0x1.a0f2a4p-15",
        "-0x1.dd9440p-9",
        "-0x1.14e514p-8",
        "-0x1.b8a022p-9",
        "-0x1.1edb72p-9",
        "-0x1.436bd4p-10",
        "-0x1.442012p-11",
        "-0x1.24f70ep-12",
        "-0x1.e1ff48p-14",
        "-0x1.6b124ap-15",
        "-0x1.f70c82p-17",
        "-0x1.418c4cp-18",
        "-0x1.7c39b6p-20",
        "-0x1.a0b274p-22",
        "-0x1.a7e8c0p-24",
        "-0x1.90d574p-26",
        "-0x1.60ab2ep-28",
        "-0x1.20fcc8p-30",
        "-0x1.b97070p-33",
        "-0x1.3a77bep-35",
    ),
    (
        "-0x1.e3684cp-5",
        "-0x1.874adcp-5",
        "-0x1.2b3646p-6",
        "0x1.d9bb20p-7",
        "0x1.27f8f0p-5",
        "0x1.488c32p-5",
        "0x1.df088ep-6",
        "0x1.8db9fep-7",
        "-0x1.594d4cp-9",
        "-0x1.59bc86p-7",
        "-0x1.7e3ca8p-7",
        "-0x1.1cf2e4p-7",
        "-0x1.318828p-8",
        "-0x1.807e00p-10",
        "0x1.4493a2p-12",
        "0x1.e3e1dcp-11",
        "0x1.d1a0f4p-11",
        "0x1.48aad4p-11",
        "0x1.81f010p-12",
        "0x1.8aaed8p-13",
        "0x1.678d96p-14",
        "0x1.279ed4p-15",
        "0x1.ba69fep-17",
        "0x1.2f083ep-18",
        "0x1.7d9510p-20",
        "0x1.bb1016p-22",
        "0x1.db8978p-24",
        "0x1.d8b56cp-26",
        "0x1.b3e588p-28",
        "0x1.755b9cp-30",
        "0x1.295ef4p-32",
        "0x1.b8e67ap-35",
    ),
)
# The polynomials and the steps of float32 differ by up to this, which is two ulps of a number from 1/2 to 1. At x = -4
# gelu's function is 2**-15, at -5 it is 2**-22 and the margin half of it: from about there on the bounds round apart,
# the steps are taken as well, and such inputs take longer than without bounds.
_MARGIN = 2.0**-23


def gelu(b: Builder, exact: Exact, x: Vector) -> Vector:
    """x * ((1 + erf(x / sqrt(2))) / 2) as bfloat16."""
    low, high = (b.mul(x, bound) for bound in share(b, x))
    return _rounded(b, exact, low, high, b.is_nan(high))


def gradient(b: Builder, exact: Exact, x: Vector, dy: Vector) -> Vector:
    """dy times the slope of gelu at x, as bfloat16."""
    low, high = (b.mul(dy, bound) for bound in slope(b, x))
    # The steps multiply an infinite x by 0.
    return _rounded(b, exact, low, high, b.is_nan(b.fma(x, b.like(x, 0.0), high)))


def share(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """Bounds of what gelu multiplies x by, which is not negative: where the lower one is, it has the wrong sign."""
    found = _function(b, x, _SHARES)
    return b.sub(found, b.like(x, _MARGIN)), b.add(found, b.like(x, _MARGIN))


def slope(b: Builder, x: Vector) -> tuple[Vector, Vector]:
    """Bounds of the slope of gelu at a finite x, the smaller magnitude first, which may have the wrong sign."""
    found = _function(b, x, _SLOPES)
    margin = rounded.signed(b, found, b.like(x, _MARGIN))
    return b.sub(found, margin), b.add(found, margin)


def _function(b: Builder, x: Vector, tables: tuple[tuple[str, ...], ...]) -> Vector:
    """A polynomial of -|x|, or 1 less that where x is not negative; NaN of a NaN."""
    most, size, rounder = b.like(x, _MOST), b.abs(x), b.like(x, _ROUNDER)
    size = b.select(b.less(most, size), most, size)
    shifted = b.add(size, rounder)
    place, r = b.bitcast(shifted, dtypes.int32), b.add(size, b.sub(rounder, shifted))
    place = b.bit_and(place, b.like(place, 31))
    *rest, found = (b.lookup([float.fromhex(c) for c in table], dtypes.float32, place) for table in tables)
    for term in reversed(rest):
        found = b.fma(found, r, term)
    return b.select(b.less(x, b.like(x, 0.0)), found, b.sub(b.like(x, 1.0), found))


def _rounded(b: Builder, exact: Exact, low: Vector, high: Vector, is_nan: Vector) -> Vector:
    """What lies between low and high, as bfloat16; where it may be NaN or the two do not tell, what the steps give.

    A number half-way between two rounds towards 0 in `low`, which has the smaller magnitude, and away from 0 in `high`:
    where their codes are equal, so is the one between them, however that is rounded.
    """
    least, most = (
        b.shift_right(b.add(b.bitcast(x, dtypes.uint32), b.constant(carried, dtypes.uint32, x.width)), 16)
        for x, carried in ((low, 0x7FFF), (high, 0x8000))
    )
    doubt, found = b.bit_or(is_nan, b.invert(b.equal(least, most))), [b.convert(most, dtypes.uint16)]
    for _ in b.when(b.any(doubt), found):
        found[0] = b.bitcast(exact(), dtypes.uint16)
    return b.bitcast(found[0], dtypes.bfloat16)
