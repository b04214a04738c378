"""How kernels are written: Isa rows, the vocabulary, and the two builders that run kernel text.

Start at `vocabulary.Builder`; `llvm` writes LLVM IR from a text, `interpreter` computes it with NumPy.
"""
