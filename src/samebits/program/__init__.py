"""The typed graph: values with facts, nodes that apply operations, and the transforms between programs.

Start at `graph.Program`; `builder.ProgramBuilder` makes one, `operations.registry.ROWS` says what a node may do.
"""
