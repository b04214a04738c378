"""Where erf is expanded for `paired_error`, and by what: printed by tools/fit_functions.py.

Start at `Nodes`.
"""

from __future__ import annotations

from samebits.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Nodes:
    """The multiples of a step from 0 on, as many as one instruction looks up.

    Attributes:
        per_one: Steps of 1.
        columns: By node: erf; what rounding took off it; its slope; what that took off, by the slope; then the
            coefficients of powers of r from the third on, by the slope.
        margins: By node, twice the margin, by erf: then the first two columns are of erf less the margin. Empty where
            the margin follows from what is added.
    """

    per_one: int
    columns: tuple[tuple[float, ...], ...]
    margins: tuple[float, ...] = ()


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float.fromhex, text.split()))


OF_SIXTEEN_LANES = Nodes(
    per_one=8,
    columns=(
        _numbers("""
            0x0.0p+0 0x1.1f5e1ap-3 0x1.1af54ep-2 0x1.9dd0d2p-2
            0x1.0a7ef6p-1 0x1.3f196ep-1 0x1.6c1c98p-1 0x1.91724ap-1
            0x1.af767ap-1 0x1.c6dad2p-1 0x1.d8865ep-1 0x1.e5768cp-1
            0x1.eea556p-1 0x1.f4f694p-1 0x1.f92d08p-1 0x1.fbe61ep-1
            0x1.fd9ae2p-1 0x1.fea422p-1 0x1.ff4048p-1 0x1.ff9960p-1
            0x1.ffcaa8p-1 0x1.ffe514p-1 0x1.fff2d0p-1 0x1.fff9bap-1
            0x1.fffd1ap-1 0x1.fffeb4p-1 0x1.ffff70p-1 0x1.ffffc4p-1
            0x1.ffffe8p-1 0x1.fffff6p-1 0x1.fffffcp-1 0x1.fffffep-1
        """),
        _numbers("""
            0x0.0p+0 0x1.a1d526p-30 0x1.1548ccp-29 0x1.6dcfd6p-27
            -0x1.f43ff8p-28 -0x1.97e0e6p-28 -0x1.4c6af2p-26 -0x1.5caa34p-26
            0x1.cff150p-27 0x1.0512eap-26 -0x1.9da1c4p-27 0x1.d9c93ap-28
            -0x1.1db75ep-26 -0x1.2643aep-27 -0x1.00fb1ap-26 0x1.de8014p-26
            -0x1.7b1d3ap-26 -0x1.ca89a0p-27 -0x1.3facc4p-26 0x1.e7c66ap-26
            0x1.e98382p-26 0x1.77a838p-26 -0x1.3f0b02p-27 0x1.081a12p-27
            0x1.8816c2p-26 -0x1.45597ap-29 -0x1.828068p-27 -0x1.d25c26p-26
            -0x1.de6534p-26 0x1.8bbda8p-29 0x1.7878f2p-28 0x1.258db2p-26
        """),
        _numbers("""
            0x1.20dd76p+0 0x1.1c62fap+0 0x1.0f5d16p+0 0x1.f5f0cep-1
            0x1.c1efcap-1 0x1.86e96ap-1 0x1.492e42p-1 0x1.0cab62p-1
            0x1.a911f0p-2 0x1.45e99cp-2 0x1.e46530p-3 0x1.5ce596p-3
            0x1.e72372p-4 0x1.499d48p-4 0x1.b05530p-5 0x1.12ceb4p-5
            0x1.529b9ep-6 0x1.94624ep-7 0x1.d4143ap-8 0x1.06918cp-8
            0x1.1d8318p-9 0x1.2ce898p-10 0x1.3360ccp-11 0x1.305390p-12
            0x1.2408eap-13 0x1.0f9e1cp-14 0x1.e9b5e8p-16 0x1.abe09ep-17
            0x1.6a5972p-18 0x1.296a70p-19 0x1.d9371ep-21 0x1.6ce1aap-22
        """),
        _numbers("""
            -0x1.c0e026p-25 0x1.97334ep-28 0x1.e54884p-32 -0x1.4c8c60p-27
            0x1.4fe55ap-27 -0x1.f1e3a2p-26 0x1.50d58ap-25 -0x1.b96b96p-29
            0x1.6f9fb0p-26 -0x1.4225c6p-27 -0x1.5874ccp-27 -0x1.605ab6p-27
            0x1.bac59ap-27 -0x1.71b592p-26 0x1.a74000p-28 -0x1.ed9624p-26
            0x1.97f6d4p-26 0x1.210d7cp-26 0x1.4f026ap-26 -0x1.2fdb76p-25
            -0x1.a10400p-25 0x1.f79fe8p-26 0x1.9bae5ap-25 -0x1.b31e30p-30
            0x1.12b8c6p-28 -0x1.a750f6p-27 0x1.0f99eep-24 0x1.370ffep-24
            0x1.3fb166p-24 0x1.30131ap-23 0x1.0f76f0p-23 0x1.616df6p-23
        """),
        _numbers("""
            -0x1.555550p-2 -0x1.4aaa96p-2 -0x1.2aaa9cp-2 -0x1.eaaaa0p-3
            -0x1.555560p-3 -0x1.2aaaecp-4 0x1.555488p-5 0x1.6aaa6cp-3
            0x1.555536p-2 0x1.055548p-1 0x1.6aaaa4p-1 0x1.daaaaep-1
            0x1.2aaab4p+0 0x1.6d5566p+0 0x1.b55570p+0 0x1.015566p+1
            0x1.2aaabep+1 0x1.56aabcp+1 0x1.855560p+1 0x1.b6aaa6p+1
            0x1.eaaa8ep+1 0x1.10aa8ap+2 0x1.2d5518p+2 0x1.4b54f0p+2
            0x1.6aaa0ep+2 0x1.8b546ep+2 0x1.ad5410p+2 0x1.d0a8eap+2
            0x1.f552fap+2 0x1.0da91cp+3 0x1.215350p+3 0x1.35a814p+3
        """),
        _numbers("""
            -0x1.c64914p-18 0x1.faa9fcp-5 0x1.eaaa78p-4 0x1.5bffecp-3
            0x1.aaaa9ep-3 0x1.d95552p-3 0x1.e0000cp-3 0x1.b6aac4p-3
            0x1.55557cp-3 0x1.68005ap-4 -0x1.aaa950p-6 -0x1.6eaa8ep-3
            -0x1.800004p-2 -0x1.3c5564p-1 -0x1.d2aacap-1 -0x1.428018p+0
            -0x1.aaaacep+0 -0x1.116ac0p+1 -0x1.560014p+1 -0x1.a3955ep+1
            -0x1.faaa9ep+1 -0x1.2ddfe8p+2 -0x1.63aa74p+2 -0x1.9ef4eap+2
            -0x1.dfff4cp+2 -0x1.1384c6p+3 -0x1.3a29d4p+3 -0x1.640ec6p+3
            -0x1.915398p+3 -0x1.c21842p+3 -0x1.f67cb8p+3 -0x1.17507ap+4
        """),
        _numbers("""
            0x1.9aa656p-4 0x1.7f862ap-4 0x1.34e7d4p-4 0x1.7bb002p-5
            0x1.1270fcp-7 -0x1.251d3cp-5 -0x1.5265d8p-4 -0x1.05d668p-3
            -0x1.54d28cp-3 -0x1.8a2d6ap-3 -0x1.985180p-3 -0x1.700c9ap-3
            -0x1.008ea8p-3 -0x1.bb4356p-6 0x1.feebeap-4 0x1.5cdf40p-2
            0x1.43b1c8p-1 0x1.02f16ep+0 0x1.7dd5d4p+0 0x1.0b07dap+1
            0x1.67af16p+1 0x1.d6db12p+1 0x1.2d50a4p+2 0x1.7a9936p+2
            0x1.d46d48p+2 0x1.1e0056p+3 0x1.594a8ap+3 0x1.9cbd10p+3
            0x1.e906c8p+3 0x1.1f6ed4p+4 0x1.4f7f60p+4 0x1.851730p+4
        """),
        _numbers("""
            -0x1.0da192p-8 -0x1.4c8d6cp-6 -0x1.3893d4p-5 -0x1.a20d2cp-5
            -0x1.d1efb6p-5 -0x1.bb4638p-5 -0x1.56653ep-5 -0x1.448756p-6
            0x1.68bc4ep-7 0x1.8eb4b6p-5 0x1.70347ep-4 0x1.0a1a56p-3
            0x1.4c9edap-3 0x1.6eec68p-3 0x1.5c43b6p-3 0x1.f713aep-4
            0x1.7781dep-6 -0x1.2c63f4p-3 -0x1.9f5976p-2 -0x1.8d7ef8p-1
            -0x1.48caeap+0 -0x1.f54a44p+0 -0x1.6a348ap+1 -0x1.f79c38p+1
            -0x1.53eea6p+2 -0x1.c03ba8p+2 -0x1.21db8ep+3 -0x1.70d410p+3
            -0x1.cecf02p+3 -0x1.1edcd6p+4 -0x1.5fd43ap+4 -0x1.ab6c40p+4
        """),
    ),
    margins=_numbers("""
        0x1.400000p-31 0x1.600000p-31 0x1.e00000p-33 0x1.200000p-34
        0x1.600000p-35 0x1.200000p-36 0x1.200000p-37 0x1.200000p-36
        0x1.800000p-36 0x1.800000p-36 0x1.600000p-36 0x1.200000p-36
        0x1.400000p-36 0x1.a00000p-37 0x1.600000p-37 0x1.a00000p-37
        0x1.000000p-37 0x1.000000p-37 0x1.000000p-37 0x1.000000p-37
        0x1.000000p-37 0x1.000000p-37 0x1.000000p-37 0x1.000000p-37
        0x1.000000p-37 0x1.000000p-37 0x1.000000p-37 0x1.000000p-37
        0x1.000000p-37 0x1.000000p-37 0x1.000000p-37 0x1.000000p-37
    """),
)
OF_EIGHT_LANES = Nodes(
    per_one=2,
    columns=(
        _numbers("""
            0x0.0p+0 0x1.0a7ef6p-1 0x1.af767ap-1 0x1.eea556p-1
            0x1.fd9ae2p-1 0x1.ffcaa8p-1 0x1.fffd1ap-1 0x1.ffffe8p-1
        """),
        _numbers("""
            0x0.0p+0 -0x1.f35306p-28 0x1.d02bb2p-27 -0x1.1d8f6ap-26
            -0x1.7b0ab2p-26 0x1.e992d2p-26 0x1.88269cp-26 -0x1.de55e4p-26
        """),
        _numbers("""
            0x1.20dd76p+0 0x1.c1efcap-1 0x1.a911f0p-2 0x1.e72372p-4
            0x1.529b9ep-6 0x1.1d8318p-9 0x1.2408eap-13 0x1.6a5972p-18
        """),
        _numbers("""
            -0x1.be5ceap-25 0x1.4eaaf8p-27 0x1.6b1f24p-26 0x1.cbf0c2p-27
            0x1.b05734p-26 -0x1.aa23b6p-25 -0x1.a5b97ap-27 0x1.a19cd4p-22
        """),
        _numbers("""
            -0x1.555556p-2 -0x1.555556p-3 0x1.555556p-2 0x1.2aaaaap+0
            0x1.2aaaaap+1 0x1.eaaaaap+1 0x1.6aaaaap+2 0x1.f55556p+2
        """),
        _numbers("""
            0x1.e88ce6p-22 0x1.aaaa96p-3 0x1.555578p-3 -0x1.800002p-2
            -0x1.aaaabep+0 -0x1.faaa8ep+1 -0x1.dfffd2p+2 -0x1.91511ap+3
        """),
        _numbers("""
            0x1.9990d8p-4 0x1.1115b6p-7 -0x1.5555a8p-3 -0x1.fffe1cp-4
            0x1.4444e8p-1 0x1.677796p+1 0x1.d33322p+2 0x1.e6986cp+3
        """),
        _numbers("""
            0x1.49ff26p-14 -0x1.d2667ap-5 0x1.6b80d2p-7 0x1.4ccec8p-3
            0x1.6d5b10p-6 -0x1.48f206p+0 -0x1.533efep+2 -0x1.cd3e0cp+3
        """),
        _numbers("""
            -0x1.8cc272p-6 0x1.91fd30p-8 0x1.2b2d54p-5 -0x1.46ea66p-5
            -0x1.4f15c8p-3 0x1.fdcd18p-3 0x1.671256p+1 0x1.5b51ccp+3
        """),
        _numbers("""
            0x1.24d2eep-10 0x1.6ea804p-7 -0x1.6be22ap-7 -0x1.470dc4p-6
            0x1.3427ecp-4 0x1.fe69a8p-4 -0x1.e76768p-1 -0x1.91d9a0p+2
        """),
        _numbers("""
            0x1.b06cbep-9 -0x1.2ae4fep-9 -0x1.2e6b30p-8 0x1.d5e6cap-7
            -0x1.1d006ap-10 -0x1.d374bep-4 0x1.6bb39ep-4 0x1.129a9cp+1
        """),
    ),
)
