"""The cache of compiled programs: its directory, its use, and the settings of JAX."""

import stat
import sys
from pathlib import Path

import filelock
import jax
import jax.numpy as jnp
import pytest

from ggmflow.storage import cache
from ggmflow.storage.cache import cache_directory, compilation_cache_enabled


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """A new cache that keeps all programs, even if they compile fast."""
    path = tmp_path / "deep" / "cache"
    monkeypatch.setenv("GGMFLOW_CACHE", str(path))
    monkeypatch.setitem(cache._OPTIONS, "jax_persistent_cache_min_compile_time_secs", 0.0)
    return path


def settings():
    return {name: value for name, value in jax.config.values.items() if "cache" in name}


def compile_something(number):
    """Compile a program that no other test has compiled."""
    return jax.jit(lambda x: jnp.sin(x) * number + x)(jnp.arange(5.0))


def files(path):
    return sorted(entry.name for entry in path.iterdir() if entry.name.endswith("-cache"))


def test_programs_are_kept_inside_the_block_only(directory):
    before = settings()
    with compilation_cache_enabled():
        assert jax.config.jax_compilation_cache_dir == str(directory)
        compile_something(1.25)
    kept = files(directory)
    assert kept
    assert settings() == before
    compile_something(2.25)
    assert files(directory) == kept
    if sys.platform != "win32":
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_kept_program_is_not_compiled_again(directory):
    """JAX reports a hit when a program comes from the cache."""
    events = []

    def listen(event, **_):
        events.append(event)

    with compilation_cache_enabled():
        compile_something(3.25)
    kept = files(directory)
    jax.monitoring.register_event_listener(listen)
    try:
        with compilation_cache_enabled():
            compile_something(3.25)  # a new function, but the same program
    finally:
        jax.monitoring.unregister_event_listener(listen)
    assert "/jax/compilation_cache/cache_hits" in events
    assert files(directory) == kept


def test_settings_are_restored_after_an_error_and_when_nested(directory):
    before = settings()
    with pytest.raises(RuntimeError, match="inside"), compilation_cache_enabled(), compilation_cache_enabled():
        raise RuntimeError("inside")
    assert settings() == before
    with compilation_cache_enabled():
        with compilation_cache_enabled():
            pass
        compile_something(4.25)  # the inner block has not switched it off
    assert files(directory)


@pytest.mark.parametrize("value", ["off", "OFF"])
def test_the_cache_can_be_switched_off(directory, monkeypatch, value):
    monkeypatch.setenv("GGMFLOW_CACHE", value)
    assert cache_directory() is None
    before = settings()
    with compilation_cache_enabled():
        assert settings() == before
        compile_something(5.25)
    assert not directory.exists()


def test_a_cache_that_the_user_configured_is_not_replaced(directory, tmp_path):
    own = tmp_path / "own"
    jax.config.update("jax_compilation_cache_dir", str(own))
    try:
        before = settings()
        with compilation_cache_enabled():
            assert settings() == before
        assert settings() == before
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
    assert not directory.exists()


def test_without_a_writable_directory_there_is_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GGMFLOW_CACHE", str(tmp_path / "file" / "cache"))
    before = settings()
    with compilation_cache_enabled():
        assert settings() == before
        compile_something(6.25)


def test_the_directory_is_that_of_the_system(monkeypatch):
    home = Path.home()
    monkeypatch.delenv("GGMFLOW_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_directory() == home / ".cache" / "ggmflow" / "xla"
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_directory() == Path("/elsewhere/ggmflow/xla")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_directory() == home / "Library" / "Caches" / "ggmflow" / "xla"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_directory() == Path("/local/ggmflow/xla")
    monkeypatch.setenv("GGMFLOW_CACHE", "~/mine")
    assert cache_directory() == home / "mine"


def test_incomplete_programs_of_a_killed_process_are_removed(directory):
    """JAX would warn about them at every use, and never replace them."""
    with compilation_cache_enabled():
        compile_something(4.25)
    whole = files(directory)
    half = directory / "jit_f-0123-cache"
    half.write_bytes(b"half a program")
    with filelock.FileLock(directory / ".lockfile"):
        cache._remove_incomplete.cache_clear()
        with compilation_cache_enabled():
            assert half.exists()  # another process may be writing it
    cache._remove_incomplete.cache_clear()
    with compilation_cache_enabled():
        assert files(directory) == whole
