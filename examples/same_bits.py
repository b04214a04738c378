"""A row's answer does not depend on the rows beside it, on threads or on the instruction set; NumPy's may."""

import numpy as np

import samebits as sb

r = np.random.default_rng(1)
tokens = r.standard_normal((17, 384), np.float32)
weight, bias = r.standard_normal((384, 96), np.float32), r.standard_normal(96, np.float32)


def layer(x: np.ndarray, threads: int) -> sb.Tensor:
    """A linear layer with gelu, then softmax."""
    hidden = sb.matmul(x, weight, bias=bias, activation="gelu", threads=threads)
    return sb.Tensor.from_any(sb.softmax(hidden, threads=threads))


def main() -> None:
    """Print the digest of the last token's answer in every setting."""
    for isa in sb.isas():
        if not isa.available or not isa.compiled:
            continue
        with sb.use_isa(isa):
            for threads in (1, 2):
                alone, together = layer(tokens[-1:], threads), layer(tokens, threads)[-1:]
                print(
                    f"{isa.name:8} {threads} threads: {alone.digest()[:16]} alone, {together.digest()[:16]} in a batch"
                )
    whole, alone_by_numpy = tokens @ weight, tokens[-1:] @ weight
    print("NumPy, in a batch and alone:", "equal" if np.array_equal(whole[-1:], alone_by_numpy) else "not equal")


if __name__ == "__main__":
    main()
