"""Kernel rooms: each holds a frozen description, its independent NumPy `reference`, kernel text and `plan`.

`expression` and `plan` are shared by them; see docs/decisions/0001.
"""
