"""Measuring products on this machine: `samebits bench gemm` ranks kernels, `samebits tune` chooses among them.

`measure` times calls in turns; `trial` makes a product with one candidate kernel a call; `rank` and `tune` compare
candidates; `peers` are other libraries' products, `peak` what the registers alone would allow, `chart` a picture.
"""
