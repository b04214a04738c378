"""Eager functions: any array in, the same kind of array out; whatever computes on a Tensor is here.

A call becomes the same frozen description that a program's node becomes, so both have the same plan and the same bits.
`call` holds what every function does around its kernel; `product` describes the products of `matmul`, `gradients` and
`grouped`; `elementwise`, `rows` and `move` have the rest.
"""
