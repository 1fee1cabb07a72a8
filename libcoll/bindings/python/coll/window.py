"""Memory that other ranks write to."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._coll import ffi, lib
from .errors import fail

if TYPE_CHECKING:
    from .comm import Comm


class Window:
    """Memory of each rank that the others write to with Comm.put(): coll_window_create(). Comm.window() makes it."""

    __slots__ = ("_comm", "_memory", "_window", "__weakref__")

    def __init__(self, comm: Comm, memory: Any, address, nbytes: int):
        self._comm, self._memory, self._window = comm, (memory, address), ffi.new("coll_window **")
        status = lib.coll_window_create(comm._comm, address, nbytes, self._window)
        if status:
            fail(status, comm._comm)
        comm._requests.add(self)  # keeps the memory as long as others may write to it

    def destroy(self) -> None:
        """Ends it, collectively: then no rank can write to the memory any more."""
        status = lib.coll_window_destroy(self._window)
        if not self._window[0]:
            self._comm._requests.discard(self)
        if status:
            fail(status, self._comm._comm)
