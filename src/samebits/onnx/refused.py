"""ONNX operators that have no row, and why: what a refusal says, and `docs/operators.md`.

Start at `REASONS`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["REASONS", "reason"]

_BY_REASON: Mapping[str, str] = {
    "the tangent, hyperbolic and inverse functions are not there yet": (
        "Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh"
    ),
    "recurrent layers need functions that are not there yet": "CausalConvWithState",
    "random numbers are not there yet": (
        "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial"
    ),
    "graphs within graphs are not run yet": "If Loop Scan SequenceMap",
    "values are tensors; sequences and optional ones are not there yet": (
        "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence "
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement"
    ),
    "strings and images are no element formats": (
        "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer ImageDecoder"
    ),
    "the shape of its result depends on data": "NonZero Unique Compress NonMaxSuppression",
    "attention has an order of its own (numerics.md section 8) and no kernel yet": "Attention LinearAttention",
    "places that indices name cannot be written yet": "TensorScatter",
    "interpolation has no order of its own in numerics.md yet": (
        "GridSample RoiAlign MaxRoiPool AffineGrid DeformConv"
    ),
    "it adds up what overlaps in an order that no kernel has yet": "Col2Im MaxUnpool",
    "Fourier transforms are not there yet": "DFT STFT",
    "nobody has written its row yet": (
        "CenterCropPad Det LRN MeanVarianceNormalization SwiGLU HannWindow HammingWindow BlackmanWindow MelWeightMatrix"
    ),
}

REASONS: Mapping[str, str] = {op: text for text, ops in _BY_REASON.items() for op in ops.split()}


def reason(op: str, domain: str) -> str:
    """Why an operator has no row."""
    if domain:
        return f"no row for this operator of domain {domain!r}"
    return f"no row for this operator: {REASONS[op]}" if op in REASONS else "no row for this operator"
