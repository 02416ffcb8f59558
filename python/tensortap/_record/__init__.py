"""Recording and reading: what needs no framework."""
