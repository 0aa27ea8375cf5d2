"""Files, caches and memory."""
