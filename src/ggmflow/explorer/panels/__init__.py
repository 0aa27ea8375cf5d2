"""Panels of the explorer, one per module.

Each panel is a Bokeh figure or table with its data sources and a method that fills them from a view. Names of
variables are untrusted. They appear only as text glyphs and plain tooltips, which Bokeh interprets neither as HTML nor
as TeX, and as escaped cells of the table.
"""
