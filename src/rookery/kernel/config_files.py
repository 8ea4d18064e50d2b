"""Reading configuration files: regular files only, bounded in size, and without blocking."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 4 * 1024 * 1024


def read_config_file(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """
    Return the content of a configuration file.

    Only regular files are read, because a FIFO, a socket or a device could block the reader or never end. Symbolic links are followed.

    Raises:
        OSError: The file is missing, cannot be read, is not a regular file, or is larger than *max_bytes*.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return content
