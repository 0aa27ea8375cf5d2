"""Formats of an export, read without JAX."""

# Format → name of the file in a run directory.
EXPORTS = {"graphml": "graph.graphml", "csv": "summary.csv", "json": "summary.json", "netcdf": "posterior.nc"}
