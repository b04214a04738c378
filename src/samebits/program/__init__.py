"""The typed graph: values with facts, nodes that apply primitives, and the transforms between programs.

Start at `graph.Program`; `builder.ProgramBuilder` makes one, `primitive.ROWS` says what a node may do.
"""
