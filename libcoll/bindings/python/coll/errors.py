"""Errors of libcoll as exceptions."""
from __future__ import annotations

from typing import NoReturn

from ._coll import ffi, lib


class Error(RuntimeError):
    """A call of libcoll has failed. str() is one line that says what happened, where, and what to do. The attributes
    are those of coll_error in coll_base.h; what does not apply is -1, 0 or ""."""

    status: str = ""  #: "COLL_ERR_TIMEOUT", ...
    rank: int = -1  #: the rank that noticed it first
    peer: int = -1  #: the rank that is to blame
    peer_pid: int = 0  #: its process
    channel: int = -1
    step: int = -1
    sys_errno: int = 0
    sequence: int = 0  #: number of the operation on this communicator, from 1
    operation: str = ""
    syscall: str = ""
    host: str = ""
    peer_host: str = ""


class InvalidArgumentError(Error, ValueError):
    """A bad argument. Nothing was sent."""


class InvalidUsageError(Error):
    """The call is not allowed now."""


class SystemCallError(Error):
    """A system call failed."""


class NoMemoryError(Error, MemoryError):
    """Out of memory."""


class DeadlineError(Error, TimeoutError):
    """The deadline passed; the message names the missing ranks."""


class PeerLostError(Error, ConnectionError):
    """A rank died or left while it was still needed."""


class MismatchError(Error):
    """Ranks made different calls; the message names both."""


class AbortedError(Error):
    """The communicator was aborted or revoked, here or on another rank."""


class AuthError(Error):
    """The other side does not know the communicator's secret."""


class UnreachableError(Error):
    """No transport or address reaches a rank."""


class ProtocolError(Error):
    """Received bytes that no libcoll of this version sends."""


class UnsupportedError(Error):
    """Not supported by this build or here."""


class InternalError(Error):
    """A bug in libcoll: please report it."""


CLASSES = {
    "INVALID_ARGUMENT": InvalidArgumentError, "INVALID_USAGE": InvalidUsageError, "SYSTEM": SystemCallError,
    "NO_MEMORY": NoMemoryError, "TIMEOUT": DeadlineError, "PEER_LOST": PeerLostError, "MISMATCH": MismatchError,
    "ABORTED": AbortedError, "AUTH": AuthError, "UNREACHABLE": UnreachableError, "PROTOCOL": ProtocolError,
    "UNSUPPORTED": UnsupportedError, "INTERNAL": InternalError,
}
TEXTS = ("operation", "syscall", "host", "peer_host")
NUMBERS = ("rank", "peer", "peer_pid", "channel", "step", "sys_errno", "sequence")


def new_record():
    """An empty record of coll_error."""
    record = ffi.new("coll_error *")
    record.size = ffi.sizeof("coll_error")
    return record


def fail(status: int, comm=None, record=None) -> NoReturn:
    """Raises the exception of a status, with the record of a communicator, or one that was filled in."""
    name = ffi.string(lib.coll_status_name(status)).decode()
    if record is None:
        record = new_record()
        if comm:
            lib.coll_last_error(comm, record)
    known = record.status == status
    text = name if comm is None or comm else "the communicator is closed"
    if known and record.message[0] != b"\0":
        text = ffi.string(record.message).decode(errors="replace")
    error = CLASSES.get(name.replace("COLL_ERR_", ""), Error)(text)
    error.status = name
    if known:
        for field in NUMBERS:
            setattr(error, field, getattr(record, field))
        for field in TEXTS:
            setattr(error, field, ffi.string(getattr(record, field)).decode(errors="replace"))
    raise error


def refuse(message: str) -> NoReturn:
    """Raises an error of the arguments that is found before libcoll is called."""
    error = InvalidArgumentError(message)
    error.status = "COLL_ERR_INVALID_ARGUMENT"
    raise error
