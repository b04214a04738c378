"""Arrays of other libraries as buffer, layout and dtype (`incoming`), and those as arrays of theirs (`outgoing`)."""
