"""Files that are replaced atomically: a reader finds the old file or the whole new one, never a part of it."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

TEMPORARY = ".ggmflow-"  # prefix of files that are not complete yet; a killed process leaves one behind


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Write a file beside the target, wait for the disk, then rename it to the target.

    Parameters
    ----------
    path : path-like
        The target. Its directory must exist. Of a symbolic link, the file that it points to is replaced.

    Yields
    ------
    str
        A temporary path with the same suffix. The file that the block writes there replaces `path` when the block ends
        without an exception; otherwise it is removed, and `path` stays as it was.
    """
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise FileNotFoundError(errno.ENOENT, "there is no such directory", directory)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "a file cannot replace a directory", os.fspath(path))
    # Without tempfile, whose files only their owner can read.
    name = f"{TEMPORARY}{secrets.token_hex(8)}.tmp{os.path.splitext(target)[1]}"
    temporary = os.path.join(directory, name)
    try:
        open(temporary, "xb").close()  # raises before the block runs if the directory is not writable
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:  # also when interrupted
        if os.path.exists(temporary):
            os.remove(temporary)
        # The error of a full disk names no file, others name the temporary one: the user knows only `path`.
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, temporary):
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Replace the content of a file by a text in UTF-8, as a whole or not at all."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        file.write(text)
