"""Memory of Python objects: NumPy arrays, whatever else has the buffer protocol, the CUDA array interface (CuPy, Numba,
PyTorch), and DLPack (PyTorch, JAX). Nothing is copied."""
from __future__ import annotations

import ctypes
from typing import Any, Sequence

from ._coll import ffi, lib
from .errors import refuse
from .types import FORMATS

CHARS = ffi.typeof("char[]")
NULL = ffi.NULL
from_buffer = ffi.from_buffer

# Types of elements by the identity of NumPy's dtype, the fastest thing to look up: each native type has one object. They
# are kept, so that no other object can have their identity.
_known: dict = {}
_kept: list = []


def read(x: Any, type: int | None = None):
    """Memory that is read: its address, how many elements, and their type."""
    if type is None:
        try:
            return from_buffer(x), x.size, _known[id(x.dtype)]
        except (AttributeError, KeyError, TypeError, ValueError, BufferError):
            pass
    return _find(x, type, False)


def write(x: Any, type: int | None = None):
    """Memory that is written: the same."""
    if type is None:
        try:
            return from_buffer(CHARS, x, True), x.size, _known[id(x.dtype)]
        except (AttributeError, KeyError, TypeError, ValueError, BufferError):
            pass
    return _find(x, type, True)


def pair(send: Any, recv: Any, type: int | None = None):
    """Two buffers of equal length, or one in place if recv is None: two addresses, count, type."""
    if recv is None:
        r, n, t = write(send, type)
        return r, r, n, t
    s, n, t = read(send, type)
    r, m, u = write(recv, type)
    if n != m or t != u:
        refuse(f"send has {n} elements of type {t} and recv {m} of type {u}; they must be alike")
    return s, r, n, t


def blocks(part: Any, whole: Any, nranks: int, rank: int, type: int | None, part_written: bool = False):
    """A buffer of a block, and one of nranks blocks. part None: it is block `rank` of the whole. Addresses of part and
    whole, the count of a block, the type."""
    if part is None:
        w, m, t = write(whole, type)
        if m % nranks:
            refuse(f"a buffer of {m} elements is not divided among {nranks} ranks")
        return w + rank * (m // nranks) * lib.coll_type_bytes(t), w, m // nranks, t
    if part_written:
        w, m, t = read(whole, type)
        p, n, u = write(part, type)
    else:
        w, m, t = write(whole, type)
        p, n, u = read(part, type)
    if n * nranks != m or t != u:
        refuse(f"one buffer has {n} elements of type {u} and the other {m} of type {t}: it needs {nranks} times as many "
               "of the same")
    return p, w, n, t


def numbers(values: Sequence[int] | None, nranks: int, what: str):
    """nranks counts or displacements as an array of size_t; NULL for None."""
    if values is None:
        return NULL
    if len(values) != nranks:
        refuse(f"{what} has {len(values)} numbers; it needs one for each of {nranks} ranks")
    try:
        return ffi.new("size_t[]", [int(value) for value in values])
    except OverflowError:
        refuse(f"{what} has a number that is negative or too large")


def covers(counts, displs, nranks: int, have: int, what: str, sizes=None) -> None:
    """Refuses blocks that do not lie in a buffer of `have` elements (bytes, if `sizes` has their sizes)."""
    end = 0
    for i in range(nranks):
        length = counts[i] * (sizes[i] if sizes else 1)
        begin = displs[i] if displs else end
        end = begin + length
        if length and end > have:
            refuse(f"block {i} of {what} ends at {end}, beyond its {have} {'bytes' if sizes else 'elements'}")


def stream_of(stream: Any):
    """The handle of a CUDA stream: a number, or an object of PyTorch, CuPy or Numba; None: the default stream."""
    for name in ("cuda_stream", "ptr", "handle"):
        stream = getattr(stream, name, stream)
    return ffi.cast("void *", int(getattr(stream, "value", stream) or 0))


def _find(x: Any, type: int | None, written: bool):
    """The same as read() and write() for every kind of object."""
    try:
        view = memoryview(x)
    except TypeError:
        view = None
    if view is None:
        return _find_elsewhere(x, type)
    if not view.c_contiguous:
        refuse("the buffer is not contiguous; use numpy.ascontiguousarray(), or pass a part that is")
    if written and view.readonly:
        refuse("the buffer can only be read, and would be written")
    found = FORMATS.get(view.format.lstrip("@=")) if view.format else None
    if type is None and found is None:
        refuse(f"elements of format {view.format!r} are no type of libcoll; pass type=")
    dtype = getattr(x, "dtype", None)
    if type is None and getattr(dtype, "isbuiltin", 0) == 1 and dtype.isnative:
        _kept.append(dtype)
        _known[id(dtype)] = found
    return _measured(from_buffer(CHARS, x, written), view.nbytes, found if type is None else type)


def _measured(address, nbytes: int, type: int):
    """How many elements of a type some bytes are."""
    size = lib.coll_type_bytes(type)
    if size == 0 or nbytes % size:
        refuse(f"{nbytes} bytes are no elements of type {type}")
    return address, nbytes // size, type


def _at(address: int, owner: Any):
    """An address that keeps the owner of its memory."""
    return ffi.gc(ffi.cast("char *", address), lambda _, owner=owner: None)


def _is_contiguous(shape, strides) -> bool:
    """Whether elements follow each other in the order of C; strides in elements."""
    expected = 1
    for n, stride in reversed(list(zip(shape, strides))):
        if n == 0:
            return True
        if n > 1 and stride != expected:
            return False
        expected *= n
    return True


def _find_elsewhere(x: Any, type: int | None):
    """Memory of an object without the buffer protocol."""
    if hasattr(x, "__cuda_array_interface__"):
        it = x.__cuda_array_interface__
        size = int(it["typestr"][2:])
        letter = {"f2": "e", "f4": "f", "f8": "d"}.get(it["typestr"][1:], None) or \
            {"i": "bhiq", "u": "BHIQ", "b": "B"}.get(it["typestr"][1], "")[size.bit_length() - 1:][:1]
        strides = it.get("strides")
        count = 1
        for n in it["shape"]:
            count *= n
        contiguous = strides is None or _is_contiguous(it["shape"], [s // size for s in strides])
        return _checked(x, it["data"][0] or 0, count * size, contiguous, FORMATS.get(letter), type)
    if hasattr(x, "__dlpack__"):
        capsule = x.__dlpack__()
        tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
        shape = [tensor.shape[i] for i in range(tensor.ndim)]
        strides = [tensor.strides[i] for i in range(tensor.ndim)] if tensor.strides else None
        count = 1
        for n in shape:
            count *= n
        found = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        contiguous = strides is None or _is_contiguous(shape, strides)
        return _checked(capsule, (tensor.data or 0) + tensor.byte_offset, count * tensor.bits * tensor.lanes // 8,
                        contiguous, found, type)
    refuse(f"{x.__class__.__name__} has no memory that libcoll can use: no buffer protocol, no __dlpack__(), no "
           "__cuda_array_interface__")


def _checked(owner: Any, address: int, nbytes: int, contiguous: bool, found: int | None, type: int | None):
    """Refuses memory that is not contiguous or has elements of an unknown type."""
    if not contiguous:
        refuse("the array is not contiguous; pass a contiguous copy of it")
    if type is None and found is None:
        refuse("the array's elements are no type of libcoll; pass type=")
    return _measured(_at(address, owner), nbytes, found if type is None else type)


class _DLTensor(ctypes.Structure):
    """DLTensor of DLPack, https://dmlc.github.io/dlpack/latest/c_api.html."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


# Types of DLPack by code (0: int, 1: unsigned, 2: float, 4: bfloat, 6: bool) and bits.
_DLPACK = {(0, 8): FORMATS["b"], (0, 16): FORMATS["h"], (0, 32): FORMATS["i"], (0, 64): FORMATS["q"],
           (1, 8): FORMATS["B"], (1, 16): FORMATS["H"], (1, 32): FORMATS["I"], (1, 64): FORMATS["Q"],
           (2, 16): FORMATS["e"], (2, 32): FORMATS["f"], (2, 64): FORMATS["d"], (4, 16): lib.COLL_BFLOAT16,
           (6, 8): FORMATS["?"]}
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))
