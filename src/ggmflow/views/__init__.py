"""Numbers behind plots, report and explorer."""
