"""Formats of an export; importing this module does not load JAX."""

# Format → name of the file in a run directory.
EXPORTS = {"graphml": "graph.graphml", "csv": "summary.csv", "json": "summary.json", "netcdf": "posterior.nc"}
