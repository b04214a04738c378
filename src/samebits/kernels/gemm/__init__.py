"""Matrix products: `contraction` (what), `reference` (meaning), `microkernel` to `macrokernel` (how), `plan` (which)."""
