"""Communicators."""
from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import Any, Iterator, NamedTuple, Sequence

from . import buffers
from ._coll import ffi, lib
from .errors import InvalidUsageError, fail, new_record, refuse
from .operations import ANY_SOURCE, ANY_TAG, Operations
from .request import ChildRequest, Message, Request, message_of
from .types import SUM, Op
from .window import Window

NO_COLOR: int = lib.COLL_NO_COLOR
_CHOICES = {
    "deterministic": ("default", "off", "on", "ordered"), "accumulate": ("default", "native", "float32"),
    "progress": ("default", "off", "on"), "shrink_quorum": ("default", "majority", "reachable"),
}


class Candidate(NamedTuple):
    """An algorithm that can do an operation: coll_candidate."""
    name: str
    predicted_us: float
    chosen: bool


class Matched:
    """A message that Comm.probe(take=True) took: no other receive gets it."""

    __slots__ = ("_comm", "_matched", "message")

    def __init__(self, comm: Comm, matched, message: Message):
        self._comm, self._matched, self.message = comm, matched, message

    def recv(self, recv: Any, *, type: int | None = None) -> Message:
        """Receives it: coll_mrecv()."""
        r, n, t = buffers.write(recv, type)
        status = lib.coll_mrecv(r, n, t, self._matched)
        if status:
            fail(status, self._comm._comm)
        return self.message

    def irecv(self, recv: Any, *, type: int | None = None) -> Request:
        """Starts to receive it: coll_imrecv()."""
        r, n, t = buffers.write(recv, type)
        handle = ffi.new("coll_request **")
        status = lib.coll_imrecv(r, n, t, self._matched, handle)
        if status:
            fail(status, self._comm._comm)
        return Request(self._comm, handle, None, (recv,))


class Settings:
    """A coll_config from keyword arguments."""

    def __init__(self, settings: dict[str, Any]):
        self.record = new_record()
        self.config = config = ffi.new("coll_config *")
        config.size, config.error = ffi.sizeof("coll_config"), self.record
        self._texts = []
        for name, value in settings.items():
            if name in ("timeout_ms", "create_timeout_ms", "heartbeat_ms"):
                setattr(config, name, value)
            elif name in ("transport", "algo"):
                self._texts.append(ffi.new("char[]", value.encode()))
                setattr(config, name, self._texts[-1])
            elif name in _CHOICES and value in _CHOICES[name]:
                setattr(config, name, _CHOICES[name].index(value))
            elif name in _CHOICES:
                refuse(f"{name} is one of {', '.join(_CHOICES[name])}, not {value!r}")
            else:
                raise TypeError(f"there is no setting {name!r}; coll_config in coll_comm.h has them")

    def check(self, status: int, comm=None) -> None:
        """Raises an error of creation."""
        if status:
            fail(status, comm, self.record if self.record.status == status else None)


def _end(handle, requests: set, pid: int) -> None:
    """Releases a communicator that the program has forgotten, or at the end of the process."""
    import os
    if handle[0] and os.getpid() == pid:
        lib.coll_comm_destroy(handle)
    requests.clear()


class Comm(Operations):
    """One rank's membership in a communicator. init(), create(), create_local() and join() make one, and split(), dup() and
    the like make others from it. One thread at a time uses it; while a call waits, other threads of Python run. close(), or
    the end of a `with`, releases it."""

    __slots__ = ("_handle", "_finalizer", "_memories")

    def __init__(self, comm):
        import os
        self._comm = comm
        self._handle = ffi.new("coll_comm **", comm)
        self._group: list | None = None
        self._requests: set = set()
        self._memories: weakref.WeakSet = weakref.WeakSet()
        number = ffi.new("int *")
        lib.coll_comm_rank(comm, number)
        self.rank = number[0]
        lib.coll_comm_nranks(comm, number)
        self.nranks = number[0]
        self._finalizer = weakref.finalize(self, _end, self._handle, self._requests, os.getpid())

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind, value, traceback) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._comm:
            return "<coll.Comm, closed>"
        return f"<coll.Comm {self.name!r}, rank {self.rank} of {self.nranks}>"

    def _check(self, status: int) -> None:
        if status:
            fail(status, self._comm)

    def close(self) -> None:
        """Releases it: coll_comm_destroy(). Requests that are open on it end; its arrays of empty() must be gone."""
        if not self._comm:
            return
        if len(self._memories) > 0:
            raise InvalidUsageError(f"{len(self._memories)} arrays of empty() are still in use; delete them first")
        status = lib.coll_comm_destroy(self._handle)
        if self._handle[0]:
            fail(status, self._comm)
        self._comm = ffi.NULL
        self._requests.clear()
        self._finalizer.detach()
        if status:
            fail(status)

    # ---- about it

    @property
    def name(self) -> str:
        """Its name in messages about failures."""
        text = ffi.new("char **")
        self._check(lib.coll_comm_name(self._comm, ffi.cast("const char **", text)))
        return ffi.string(text[0]).decode()

    @name.setter
    def name(self, name: str) -> None:
        self._check(lib.coll_comm_set_name(self._comm, name.encode()))

    @property
    def epoch(self) -> int:
        """How often ranks left or joined."""
        word = ffi.new("uint64_t *")
        self._check(lib.coll_comm_epoch(self._comm, word))
        return word[0]

    def origin_rank(self, rank: int) -> int:
        """The rank that `rank` had in the first communicator: coll_comm_origin_rank()."""
        number = ffi.new("int *")
        self._check(lib.coll_comm_origin_rank(self._comm, rank, number))
        return number[0]

    def candidates(self, collective: str, count: int, type: int, op: int | Op = SUM, root: int = 0) -> list[Candidate]:
        """The algorithms that can do a collective: coll_candidates()."""
        found, some = ffi.new("int *"), ffi.new("coll_candidate[]", 64)
        self._check(lib.coll_candidates(self._comm, collective.encode(), count, type, op, root, some, 64, found))
        return [Candidate(ffi.string(one.name).decode(), one.predicted_us, bool(one.chosen))
                for one in some[0:min(found[0], 64)]]

    def fileno(self) -> int:
        """A descriptor for event loops: coll_comm_fd()."""
        number = ffi.new("int *")
        self._check(lib.coll_comm_fd(self._comm, number))
        return number[0]

    def wake(self) -> None:
        """Wakes the thread that waits on it: coll_wake(). From any thread."""
        self._check(lib.coll_wake(self._comm))

    def async_error(self) -> None:
        """Raises the error of operations in streams, if there is one: coll_comm_async_error()."""
        self._check(lib.coll_comm_async_error(self._comm))

    def use_gpu(self) -> None:
        """Lets collectives in streams stay in GPU memory: coll_comm_use_gpu(). Collective."""
        self._check(lib.coll_comm_use_gpu(self._comm))

    # ---- others made from it

    def _make(self, function, *arguments, settings: dict[str, Any]) -> Comm | None:
        child, given = ffi.new("coll_comm **"), Settings(settings)
        given.check(function(self._comm, *arguments, given.config, child), self._comm)
        return self.__class__(child[0]) if child[0] else None

    def split(self, color: int, key: int = 0, **settings) -> Comm | None:
        """Communicators of the ranks with the same color (NO_COLOR: none, and the result is None): coll_comm_split()."""
        return self._make(lib.coll_comm_split, color, key, settings=settings)

    def dup(self, **settings) -> Comm:
        """One with the same ranks: coll_comm_dup()."""
        child, given = ffi.new("coll_comm **"), Settings(settings)
        given.check(lib.coll_comm_dup(self._comm, given.config, child), self._comm)
        return self.__class__(child[0])

    def isplit(self, color: int, key: int = 0) -> Request:
        """Starts split(); the request's `result` is the communicator."""
        return self._start_child(lib.coll_comm_isplit, color, key)

    def idup(self) -> Request:
        """Starts dup(); the request's `result` is the communicator."""
        return self._start_child(lib.coll_comm_idup)

    def _start_child(self, function, *arguments) -> Request:
        child, handle = ffi.new("coll_comm **"), ffi.new("coll_request **")
        self._check(function(self._comm, *arguments, ffi.NULL, child, handle))
        return ChildRequest(self, handle, child)

    def subset(self, ranks: Sequence[int], **settings) -> Comm | None:
        """One of the listed ranks; all ranks call it: coll_comm_subset()."""
        return self._make(lib.coll_comm_subset, ffi.new("int[]", list(ranks)), len(ranks), settings=settings)

    def create_group(self, ranks: Sequence[int], tag: int = 0, **settings) -> Comm:
        """One of the listed ranks; only they call it: coll_comm_create_group()."""
        return self._make(lib.coll_comm_create_group, ffi.new("int[]", list(ranks)), len(ranks), tag,
                          settings=settings)  # type: ignore[return-value]

    # ---- failures

    def abort(self) -> None:
        """Ends every operation on all ranks: coll_comm_abort(). From any thread."""
        self._check(lib.coll_comm_abort(self._comm))

    def revoke(self) -> None:
        """Makes it unusable on all ranks: coll_comm_revoke()."""
        self._check(lib.coll_comm_revoke(self._comm))

    def shrink(self, **settings) -> Comm:
        """After a failure: a new one of the ranks that live: coll_comm_shrink()."""
        return self._make(lib.coll_comm_shrink, settings=settings)  # type: ignore[return-value]

    def grow(self, **settings) -> Comm:
        """Like shrink(), and takes in newcomers: coll_comm_grow()."""
        return self._make(lib.coll_comm_grow, settings=settings)  # type: ignore[return-value]

    def agree(self, word: int, **settings) -> tuple[int, int]:
        """Agreement in spite of failures: the bitwise AND of all words, and how many ranks did not take part:
        coll_comm_agree()."""
        common, absent, given = ffi.new("uint64_t *", word), ffi.new("int *"), Settings(settings)
        given.check(lib.coll_comm_agree(self._comm, common, absent, given.config), self._comm)
        return common[0], absent[0]

    def join_id(self) -> bytes:
        """On rank 0: the id with which newcomers join(). Whoever has it can join: coll_comm_join_id()."""
        it = ffi.new("coll_id *")
        self._check(lib.coll_comm_join_id(self._comm, it))
        return bytes(ffi.buffer(it))

    def joiners(self) -> int:
        """How many newcomers wait: coll_comm_joiners()."""
        number = ffi.new("int *")
        self._check(lib.coll_comm_joiners(self._comm, number))
        return number[0]

    # ---- messages, groups, memory

    def probe(self, peer: int = ANY_SOURCE, tag: int = ANY_TAG, timeout_ms: int = 0,
              take: bool = False) -> Message | Matched | None:
        """The message that recv() would get: coll_probe(). None: there is none within timeout_ms (negative: the
        communicator's own deadline). take: no other receive gets it; receive it with Matched.recv()."""
        record, matched = ffi.new("coll_message *"), ffi.new("coll_matched **")
        status = lib.coll_probe(self._comm, peer, tag, record, matched if take else ffi.NULL, timeout_ms)
        if status == lib.COLL_IN_PROGRESS:
            return None
        self._check(status)
        return Matched(self, matched, message_of(record)) if take else message_of(record)

    @contextmanager
    def group(self) -> Iterator[None]:
        """Blocking operations in this block only begin; its end runs them all together: coll_group_start(). If the block
        raises, none is run."""
        self._check(lib.coll_group_start(self._comm))
        outer, self._group = self._group, []
        try:
            yield
        except BaseException:
            self._group = outer
            lib.coll_send(ffi.NULL, 0, 0, -2, -1, self._comm)  # is refused, and with it the group
            lib.coll_group_end(self._comm)
            raise
        kept, self._group = self._group, outer
        status = lib.coll_group_end(self._comm)
        if outer is not None:
            outer.append(tuple(kept))
        self._check(status)

    def window(self, memory: Any) -> Window:
        """Makes this rank's memory writable by the others: coll_window_create(). Collective."""
        address, count, type = buffers.write(memory)
        return Window(self, memory, address, count * lib.coll_type_bytes(type))

    def empty(self, shape: int | tuple[int, ...], dtype: Any = "float32") -> Any:
        """A NumPy array of zeros that ranks on the same host read where it is, which saves a copy of longer messages:
        coll_mem_alloc()."""
        import numpy
        dtype = numpy.dtype(dtype)
        nbytes = int(numpy.prod(shape, dtype=numpy.int64)) * dtype.itemsize
        pointer = ffi.new("void **")
        self._check(lib.coll_mem_alloc(self._comm, nbytes, pointer))
        if not pointer[0]:
            return numpy.empty(shape, dtype)
        owner = _Memory(self, pointer[0], nbytes)
        self._memories.add(owner)
        return numpy.asarray(owner).view(dtype).reshape(shape)


class _Memory:
    """Memory of coll_mem_alloc(), as NumPy takes it; it is freed with the last array on it."""

    def __init__(self, comm: Comm, pointer, nbytes: int):
        self._comm, self._pointer = comm, pointer
        self.__array_interface__ = {"data": (int(ffi.cast("intptr_t", pointer)), False), "shape": (nbytes,),
                                    "typestr": "|u1", "version": 3}

    def __del__(self):
        if self._comm._handle[0]:
            lib.coll_mem_free(self._comm._comm, self._pointer)


def init(**settings) -> Comm:
    """The communicator of all processes that the launcher started (collrun, mpirun, srun, torchrun), or of this process
    alone: coll_init_from_env(). settings: the fields of coll_config, as timeout_ms=5000, deterministic="on"."""
    comm, given = ffi.new("coll_comm **"), Settings(settings)
    given.check(lib.coll_init_from_env(comm, given.config))
    return Comm(comm[0])


def unique_id(**settings) -> bytes:
    """A fresh id, which this process serves: coll_unique_id(). Pass it to the other ranks over a trusted channel, and call
    create() on all."""
    it, given = ffi.new("coll_id *"), Settings(settings)
    given.check(lib.coll_unique_id(it, given.config))
    return bytes(ffi.buffer(it))


def _id_of(some: bytes):
    if len(some) != ffi.sizeof("coll_id"):
        refuse(f"an id has {ffi.sizeof('coll_id')} bytes, not {len(some)}")
    it = ffi.new("coll_id *")
    ffi.buffer(it)[:] = some
    return it


def create(id: bytes, nranks: int, rank: int, **settings) -> Comm:
    """A communicator of the ranks that pass the same id: coll_comm_create()."""
    comm, given = ffi.new("coll_comm **"), Settings(settings)
    given.check(lib.coll_comm_create(comm, _id_of(id), nranks, rank, given.config))
    return Comm(comm[0])


def create_local(nranks: int, **settings) -> list[Comm]:
    """Communicators for as many threads of this process: coll_comm_create_local()."""
    comms, given = ffi.new("coll_comm *[]", nranks), Settings(settings)
    given.check(lib.coll_comm_create_local(comms, nranks, given.config))
    return [Comm(comms[i]) for i in range(nranks)]


def join(id: bytes, **settings) -> Comm:
    """Joins a running communicator, when its ranks grow(): coll_comm_join()."""
    comm, given = ffi.new("coll_comm **"), Settings(settings)
    given.check(lib.coll_comm_join(comm, _id_of(id), given.config))
    return Comm(comm[0])


def reduce_local(input: Any, inout: Any, op: int | Op = SUM, *, type: int | None = None) -> Any:
    """inout = input op inout, on this rank alone: coll_reduce_local()."""
    s, r, n, t = buffers.pair(input, inout, type)
    status = lib.coll_reduce_local(s, r, n, t, op, ffi.NULL)
    if status:
        fail(status)
    return inout


def version() -> str:
    """The version of the library in use."""
    number = lib.coll_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
