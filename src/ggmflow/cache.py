"""Compiled programs kept between processes, so that the second fit of a shape starts at once.

They lie in the user's cache directory, `~/.cache/ggmflow/xla`, or where the environment variable GGMFLOW_CACHE says
("off": nowhere). JAX is told of it only while a block runs; a cache the user has configured is left alone.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

_DIRECTORY = "jax_compilation_cache_dir"
_OPTIONS = {
    "jax_persistent_cache_min_compile_time_secs": 0.5,
    "jax_compilation_cache_max_size": 512 * 2**20,  # bytes; the least recently used go first
}


def cache_directory() -> Path | None:
    """Where compiled programs are kept, or None if they are not."""
    chosen = os.environ.get("GGMFLOW_CACHE", "")
    if chosen.lower() == "off":
        return None
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ggmflow" / "xla"


@contextmanager
def compilation_cache_enabled() -> Iterator[None]:
    """Let JAX keep what it compiles inside the block; afterwards its settings are as before."""
    directory = cache_directory()
    if directory is None or getattr(jax.config, _DIRECTORY) is not None:
        yield
        return
    try:
        # Compiled programs are code: nobody else may write here.
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:  # a read-only home costs time, nothing else
        yield
        return
    before = {name: getattr(jax.config, name) for name in _OPTIONS}
    try:
        for name, value in {**_OPTIONS, _DIRECTORY: str(directory)}.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()  # JAX looks at the directory once
        yield
    finally:
        for name, value in {**before, _DIRECTORY: None}.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
