"""Running programs: `reference` node by node in NumPy, `session` as one native call.

Start at `session.prepare`.
"""
