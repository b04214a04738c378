"""What can be computed: one row an operation, under eager calls, programs and every front end.

Start at `operation.Operation`; `registry.ROWS` lists the rows. Matrix products with all their options are described by
`product.describe`, from facts of their operands.
"""
