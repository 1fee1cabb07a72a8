"""Requests: operations that were started, or that can be started again and again."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from ._coll import ffi, lib
from .errors import fail

if TYPE_CHECKING:
    from .comm import Comm

IN_PROGRESS = lib.COLL_IN_PROGRESS


class Message(NamedTuple):
    """A received message."""
    source: int  #: rank that sent it
    tag: int
    count: int  #: elements
    type: int


def message_of(record) -> Message:
    """What a coll_message says."""
    return Message(record.source, record.tag, record.count, record.type)


class Request:
    """An operation that was started. Its buffers are kept until it is complete; until then the program must not write to
    those that it sends, nor touch those that it receives into."""

    __slots__ = ("_comm", "_handle", "_keep", "_record", "result", "__weakref__")
    persistent = False

    def __init__(self, comm: Comm, handle, result: Any, keep: tuple, record=None):
        self._comm, self._handle, self._keep, self._record = comm, handle, keep, record
        self.result = result  #: what the blocking form returns, valid when the operation is complete
        comm._requests.add(self)

    @property
    def message(self) -> Message | None:
        """The message that a receive has got."""
        return message_of(self._record) if self._record else None

    def test(self) -> bool:
        """Whether it is complete. Raises the operation's error."""
        return self._settle(lib.coll_test(self._handle) if self._handle[0] else 0)

    def wait(self, timeout_ms: int = -1) -> bool:
        """Waits until it is complete, at most timeout_ms (negative: only the operation's own deadline limits it). False:
        the time has passed, and the operation goes on. Raises the operation's error."""
        return self._settle(lib.coll_wait(self._handle, timeout_ms) if self._handle[0] else 0)

    def set_timeout(self, timeout_ms: int) -> None:
        """The operation fails if it is not complete so many milliseconds from now; 0: as before."""
        status = lib.coll_request_set_timeout(self._handle[0], timeout_ms)
        if status:
            fail(status, self._comm._comm)

    def _settle(self, status: int) -> bool:
        if status == IN_PROGRESS:
            return False
        self._release()
        if status:
            fail(status, self._comm._comm)
        return True

    def _release(self) -> None:
        self._comm._requests.discard(self)
        self._keep = ()


class PersistentRequest(Request):
    """An operation that can be started any number of times."""

    __slots__ = ()
    persistent = True

    def start(self) -> PersistentRequest:
        """Starts it; complete it by test() or wait()."""
        status = lib.coll_start(self._handle[0])
        if status:
            fail(status, self._comm._comm)
        return self

    def free(self) -> None:
        """Releases it. It must not be in flight."""
        status = lib.coll_request_free(self._handle)
        if status:
            fail(status, self._comm._comm)
        super()._release()

    def _release(self) -> None:
        """It keeps its buffers."""


class ChildRequest(Request):
    """A communicator that is being made: Comm.isplit(), Comm.idup(). `result` is the communicator, None before."""

    __slots__ = ("_child",)

    def __init__(self, comm: Comm, handle, child):
        self._child = child
        super().__init__(comm, handle, None, ())

    def _release(self) -> None:
        super()._release()
        if self.result is None and self._child[0]:
            self.result = self._comm.__class__(self._child[0])


def _gather(requests: Sequence[Request]):
    """The handles of requests as an array."""
    return ffi.new("coll_request *[]", [request._handle[0] for request in requests] or 1)


def _give_back(requests: Sequence[Request], handles) -> None:
    """Takes over which requests were released."""
    for i, request in enumerate(requests):
        request._handle[0] = handles[i]
        if not handles[i]:
            request._release()


def _fail_with(requests: Sequence[Request], statuses, status: int):
    """Raises an error with the record of the communicator of the first request that has it."""
    for i, request in enumerate(requests):
        if statuses[i] == status:
            fail(status, request._comm._comm)
    fail(status, requests[0]._comm._comm if requests else None)


def wait_all(requests: Sequence[Request], timeout_ms: int = -1) -> bool:
    """Waits until all are complete, of any communicators. False: the time has passed first. Raises the error of the
    first that failed, when all are complete."""
    handles, n = _gather(requests), len(requests)
    statuses = ffi.new("coll_status[]", n or 1)
    status = lib.coll_wait_all(handles, n, statuses, timeout_ms)
    if status == IN_PROGRESS:
        return False
    _give_back(requests, handles)
    if status:
        _fail_with(requests, statuses, status)
    return True


def wait_any(requests: Sequence[Request], timeout_ms: int = -1) -> int | None:
    """Waits until one is complete: its index. None: the time has passed first, or none is under way."""
    handles, index = _gather(requests), ffi.new("int *")
    status = lib.coll_wait_any(handles, len(requests), index, timeout_ms)
    if status == IN_PROGRESS:
        return None
    _give_back(requests, handles)
    if status:
        fail(status, requests[index[0]]._comm._comm if index[0] >= 0 else None)
    return index[0] if index[0] >= 0 else None


def wait_some(requests: Sequence[Request], timeout_ms: int = -1) -> list[int]:
    """Waits until one is complete, and gives the indices of all that are. Empty: as wait_any(). Raises the error of the
    first that failed; all that are complete are released nevertheless."""
    n = len(requests)
    handles, indices, completed = _gather(requests), ffi.new("int[]", n or 1), ffi.new("int *")
    statuses = ffi.new("coll_status[]", n or 1)
    status = lib.coll_wait_some(handles, n, indices, statuses, completed, timeout_ms)
    if status == IN_PROGRESS:
        return []
    _give_back(requests, handles)
    done = list(indices[0:completed[0]])
    if status:
        for i, k in enumerate(done):
            if statuses[i] == status:
                fail(status, requests[k]._comm._comm)
        fail(status, requests[0]._comm._comm)
    return done
