"""The one door to proton's C engine: everything that starts with `pn_` is in this package, and no pointer leaves it."""
