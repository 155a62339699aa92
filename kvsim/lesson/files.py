"""Writing files so that nothing is ever half-written."""

from __future__ import annotations

import os
from pathlib import Path

from kvsim.errors import ConfigError


def check_folder(path: Path) -> None:
    """Refuse a path whose folder is not there, or that is a folder itself.

    Raises
    ------
    ConfigError
        Naming the folder.
    """
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {str(path.parent)!r}")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; the name of a file is expected")


def write_text(path: Path, text: str) -> None:
    """Write a text file under a temporary name in the same folder and rename it.

    Raises
    ------
    ConfigError
        The folder is not there, or cannot be written to.
    """
    check_folder(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
