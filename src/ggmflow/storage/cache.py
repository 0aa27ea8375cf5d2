"""A cache of compiled programs on disk, so that the second fit of a shape starts without compiling.

The cache is `~/.cache/ggmflow/xla`, or the directory in the environment variable GGMFLOW_CACHE ("off": no cache). JAX
uses it only while a block runs, and not at all if the user has configured a cache of JAX. A directory that other users
may write to is not used, with a warning: compiled programs are code that will be executed.
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
    "jax_compilation_cache_max_size": 512 * 2**20,  # bytes; the least recently used are removed first
}


def cache_directory() -> Path | None:
    """Directory of the cache, or None if there is none."""
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
    """The cache directory, created if necessary; None if there is none, or if others may have written to it."""
    directory = cache_directory()
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        unsafe = _others_may_write(directory)
    except OSError:  # without a writable home directory programs are compiled again
        return None
    if unsafe:
        _warn(
            f"{directory} is not used as a cache: others may write to it, or own it. Remove it, or name another "
            "directory in the environment variable GGMFLOW_CACHE"
        )
    return None if unsafe else directory


def _others_may_write(directory: Path) -> bool:
    if sys.platform == "win32":  # its permissions are not those of POSIX
        return False
    found = directory.stat()
    if found.st_mode & stat.S_IWOTH or found.st_uid not in (0, os.geteuid()):
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(found.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether a group has only this user as member, as Debian and Fedora create one for each user.

    The group must have the name of the user: users whose primary group it is are not listed as its members.
    """
    import grp  # not on Windows
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:  # the user or the group is unknown
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


@cache  # once per process: many calls check the directory
def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=1)


@contextmanager
def compilation_cache_enabled() -> Iterator[None]:
    """Let JAX use the cache inside the block, and restore its settings afterwards."""
    if getattr(jax.config, _DIRECTORY) is not None or (directory := safe_directory()) is None:
        yield
        return
    _remove_incomplete(directory)
    before = {name: getattr(jax.config, name) for name in _OPTIONS}
    try:
        for name, value in {**_OPTIONS, _DIRECTORY: str(directory)}.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()  # JAX reads the setting only once
        yield
    finally:
        for name, value in {**before, _DIRECTORY: None}.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


@cache  # once per process
def _remove_incomplete(directory: Path) -> None:
    """Remove files that are incomplete because their process was killed, or the disk was full, while JAX wrote.

    JAX would warn about such a file at every use, and not replace it. It writes a file with the date of use last, so a
    program without one is incomplete, unless a process that holds the lock is writing it now.
    """
    lock = filelock.FileLock(directory / ".lockfile")
    with suppress(filelock.Timeout, OSError), lock.acquire(blocking=False):
        # A directory without any date was filled by programs that use JAX with other settings.
        for program in directory.glob("*-cache") if any(directory.glob("*-atime")) else ():
            if not program.with_name(f"{program.name.removesuffix('-cache')}-atime").exists():
                program.unlink(missing_ok=True)
