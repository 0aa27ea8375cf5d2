"""Compiled programs kept between processes, so that the second fit of a shape starts at once.

They lie in the user's cache directory, `~/.cache/ggmflow/xla`, or where the environment variable GGMFLOW_CACHE says
("off": nowhere). JAX is told of it only while a block runs; a cache the user has configured is left alone, and a
directory that others may write to is not used, with a warning: compiled programs are code, and would be run.
"""

import os
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import filelock
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


def safe_directory() -> Path | None:
    """The cache directory, made if need be; None if there is none, or if others may have put something in it."""
    directory = cache_directory()
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        unsafe = _others_may_write(directory)
    except OSError:  # a read-only home costs time, nothing else
        return None
    if unsafe:  # and so is what may already be in it
        _warn(
            f"{directory} is not used as a cache: others may write to it, or it is theirs. Remove it, or name another "
            "directory in the environment variable GGMFLOW_CACHE"
        )
    return None if unsafe else directory


def _others_may_write(directory: Path) -> bool:
    if sys.platform == "win32":  # where permissions are told otherwise
        return False
    found = directory.stat()
    if found.st_mode & stat.S_IWOTH or found.st_uid not in (0, os.geteuid()):
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether a group is the user's alone, as Debian and Fedora give everyone one of the same name.

    The name must agree: those who have a group as their primary one are not listed as its members.
    """
    import grp  # not on Windows
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:  # nobody knows
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


@cache  # once for a process: many calls look at the directory
def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=1)


@contextmanager
def compilation_cache_enabled() -> Iterator[None]:
    """Let JAX keep what it compiles inside the block; afterwards its settings are as before."""
    if getattr(jax.config, _DIRECTORY) is not None or (directory := safe_directory()) is None:
        yield
        return
    _remove_incomplete(directory)
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


@cache  # once for a process
def _remove_incomplete(directory: Path) -> None:
    """Remove what a process left that was killed, or found the disk full, while JAX wrote.

    JAX would complain of half a program each time it is asked for, and not replace it. A file with the date of use is
    written last: what has none is not complete, unless someone is writing it now, who has the lock.
    """
    lock = filelock.FileLock(directory / ".lockfile")
    with suppress(filelock.Timeout, OSError), lock.acquire(blocking=False):
        # Where no date was ever kept, other programs of JAX have filled the directory.
        for program in directory.glob("*-cache") if any(directory.glob("*-atime")) else ():
            if not program.with_name(f"{program.name.removesuffix('-cache')}-atime").exists():
                program.unlink(missing_ok=True)
