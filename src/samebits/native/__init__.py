"""Machine code and running it: compile, the object cache, the thread pool, and tables of steps.

Start at `table.Table`: it takes plans and runs them in one native call. Only this room imports llvmlite (and
`codegen.isa`, which asks it what the host has).
"""
