"""Does a model's answer depend on anything but its input? What is tried, and what came of it.

`verify` tries a model; `report` is what it returns; `variants` lists the configurations, of which `sizes` finds the
batches and extents; `sessions` runs them, in this process or in that of `process`; `rows` cuts and joins batches;
`compare` measures the distance from another runtime. Start at `verify.verify`.
"""
