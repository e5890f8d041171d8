"""Finds and loads libgdn2.so, and turns its statuses into exceptions."""

import ctypes
import functools
import os
from pathlib import Path

_EXCEPTIONS = {3: TypeError, 5: MemoryError}  # GDN2_ERR_DTYPE, GDN2_ERR_MEMORY; everything else is a ValueError


def path() -> Path:
    """Where the library lies: the environment variable GDN2_LIBRARY if it is set and not empty, else beside this file."""
    chosen = os.environ.get("GDN2_LIBRARY")
    return Path(chosen) if chosen else Path(__file__).with_name("libgdn2.so")


@functools.cache
def load() -> ctypes.CDLL:
    """The library, loaded once. ctypes releases the GIL during its calls.

    Raises:
        ImportError: it is not there or cannot be loaded.
    """
    file = path()
    try:
        library = ctypes.CDLL(os.fspath(file))
    except OSError as error:
        raise ImportError(f"gdn2 cannot load its library {file}: {error}") from error
    library.gdn2_last_error.restype = ctypes.c_char_p
    library.gdn2_version.restype = ctypes.c_char_p
    library.gdn2_isa_name.restype = ctypes.c_char_p
    return library


def check(status: int) -> None:
    """Raises the exception of a status that is not GDN2_OK, with the library's sentence."""
    if status:
        raise _EXCEPTIONS.get(status, ValueError)(load().gdn2_last_error().decode())
