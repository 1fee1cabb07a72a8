"""Types of elements, and operations of reductions: the numbers that coll_types.h gives them."""
from __future__ import annotations

from typing import Any, Callable

from ._coll import ffi, lib

INT8, UINT8, INT16, UINT16 = lib.COLL_INT8, lib.COLL_UINT8, lib.COLL_INT16, lib.COLL_UINT16
INT32, UINT32, INT64, UINT64 = lib.COLL_INT32, lib.COLL_UINT32, lib.COLL_INT64, lib.COLL_UINT64
FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = lib.COLL_FLOAT16, lib.COLL_BFLOAT16, lib.COLL_FLOAT32, lib.COLL_FLOAT64
FLOAT8_E4M3, FLOAT8_E5M2 = lib.COLL_FLOAT8_E4M3, lib.COLL_FLOAT8_E5M2
INT32_LOC, INT64_LOC, FLOAT32_LOC = lib.COLL_INT32_LOC, lib.COLL_INT64_LOC, lib.COLL_FLOAT32_LOC
FLOAT64_LOC, INT32_LOC64, FLOAT32_LOC64 = lib.COLL_FLOAT64_LOC, lib.COLL_INT32_LOC64, lib.COLL_FLOAT32_LOC64

SUM, PROD, MIN, MAX, AVG = lib.COLL_SUM, lib.COLL_PROD, lib.COLL_MIN, lib.COLL_MAX, lib.COLL_AVG
BAND, BOR, BXOR = lib.COLL_BAND, lib.COLL_BOR, lib.COLL_BXOR
LAND, LOR, LXOR = lib.COLL_LAND, lib.COLL_LOR, lib.COLL_LXOR
MINLOC, MAXLOC = lib.COLL_MINLOC, lib.COLL_MAXLOC

#: Types by the letter that the struct module gives them, in this machine's byte order.
FORMATS = {"b": INT8, "B": UINT8, "?": UINT8, "c": UINT8, "h": INT16, "H": UINT16, "i": INT32, "I": UINT32,
           "l": INT64, "L": UINT64, "q": INT64, "Q": UINT64, "e": FLOAT16, "f": FLOAT32, "d": FLOAT64}
#: The letters with which an operation of the program sees elements; the others are bytes.
LETTERS = {INT8: "b", UINT8: "B", INT16: "h", UINT16: "H", INT32: "i", UINT32: "I", INT64: "q", UINT64: "Q",
           FLOAT32: "f", FLOAT64: "d"}


def user_type(size: int) -> int:
    """The type of elements of so many bytes (1 to 1 GiB), which the program defines."""
    if not 1 <= size <= lib.COLL_TYPE_USER_LAST - lib.COLL_TYPE_USER_BASE:
        raise ValueError(f"an element has 1 byte to 1 GiB, not {size}")
    return lib.COLL_TYPE_USER_BASE + size


def type_bytes(type: int) -> int:
    """How long an element is; 0 for an unknown type."""
    return lib.coll_type_bytes(type)


class Op:
    """An operation of the program: coll_op_create(). `function(left, right, result)` gets three memoryviews of equal
    length and combines them element by element into `result`, which may be one of the others. Their elements are
    numbers; those of types that Python does not know (float16, bfloat16, float8, LOC, user types) are bytes.
    numpy.asarray(view) gives an array on the same memory. `name` is what ranks compare; `commutative` False keeps the
    ranks in order. The function may run in any thread of libcoll. If it raises, the process ends, because other ranks
    could not know that a result is wrong."""

    def __init__(self, name: str, function: Callable[[memoryview, memoryview, memoryview], Any],
                 commutative: bool = True):
        self._function = function
        self._self = ffi.new_handle(self)
        self._op = ffi.new("coll_op *", -1)
        status = lib.coll_op_create(name.encode(), lib.coll_python_combine, self._self, commutative, self._op)
        if status:
            from .errors import fail
            fail(status)

    def __int__(self) -> int:
        return self._op[0]

    __index__ = __int__

    def __del__(self):
        if getattr(self, "_op", None) is not None and self._op[0] != -1:
            lib.coll_op_free(self._op)


class PremulSum(Op):
    """An operation that multiplies this rank's elements by `factor` before they are summed:
    coll_op_create_premul_sum(). For `type` alone: an integer type, FLOAT32 or FLOAT64."""

    def __init__(self, factor: float, type: int):
        import struct
        if type not in LETTERS:
            raise ValueError("a factor is of an integer type, FLOAT32 or FLOAT64")
        self._op = ffi.new("coll_op *", -1)
        status = lib.coll_op_create_premul_sum(ffi.from_buffer(struct.pack("=" + LETTERS[type], factor)), type, self._op)
        if status:
            from .errors import fail
            fail(status)


def _end_process(exception, value, traceback):
    """An operation of the program has raised."""
    import os
    import sys
    sys.stderr.write("coll: an operation of the program has raised, so this process ends\n")
    sys.excepthook(exception, value, traceback)
    sys.stderr.flush()
    os._exit(1)


@ffi.def_extern(onerror=_end_process)
def coll_python_combine(left, right, result, count, type, context):
    """Combines with an Op's function: coll_op_fn."""
    size = count * lib.coll_type_bytes(type)
    letter = LETTERS.get(type, "B")
    views = [memoryview(ffi.buffer(memory, size)).cast(letter) for memory in (left, right, result)]
    ffi.from_handle(context)._function(views[0].toreadonly(), views[1].toreadonly(), views[2])
