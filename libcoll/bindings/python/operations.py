"""Writes coll/operations.py: the class with a method for each form of each operation. The table says how Python's arguments
become those of C; the contract of each operation is that of the headers."""
import textwrap

import declarations

# What all operations with a receive buffer give back.
RESULT = "send if recv is None else recv"
PAIR = "s, r, n, t = pair(send, recv, type)"
V_PART = """\
w, m, t = write(recv, type)
c, d = numbers(counts, self.nranks, "counts"), numbers(displs, self.nranks, "displs")
covers(c, d, self.nranks, m, "recv")
"""
BLOCKS_OF_ALL = """\
a, m, t = read(send, type)
r, k, u = write(recv, type)
c, d = numbers(sendcounts, self.nranks, "sendcounts"), numbers(recvcounts, self.nranks, "recvcounts")
e, f = numbers(sdispls, self.nranks, "sdispls"), numbers(rdispls, self.nranks, "rdispls")
"""
# Name; parameters; how they become those of C; these, without the communicator; what the blocking form returns and its
# type. A parameter named `type` is added where the table uses it; `x` is a coll_message.
OPERATIONS = [
    ("allreduce", "send: Buffer, recv: Buffer | None = None, op: int | Op = SUM", PAIR, "s, r, n, t, op", RESULT, "Any"),
    ("reduce", "send: Buffer, recv: Buffer | None = None, op: int | Op = SUM, root: int = 0", """\
if self.rank == root:
    s, r, n, t = pair(send, recv, type)
else:
    (s, n, t), r = read(send, type), NULL
""", "s, r, n, t, op, root", f"({RESULT}) if self.rank == root else None", "Any"),
    ("reduce_scatter", "send: Buffer, recv: Buffer | None = None, op: int | Op = SUM", """\
if recv is None:
    _, s, n, t = blocks(None, send, self.nranks, 0, type)
    r = s
else:
    r, s, n, t = blocks(recv, send, self.nranks, self.rank, type, True)
""", "s, r, n, t, op", RESULT, "Any"),
    ("reduce_scatterv", "send: Buffer, recv: Buffer, counts: Sequence[int], op: int | Op = SUM", """\
s, m, t = read(send, type)
r, k, u = write(recv, type)
c = numbers(counts, self.nranks, "counts")
covers(c, None, self.nranks, m, "send")
if t != u or c[self.rank] > k:
    refuse(f"recv has {k} elements of type {u}; it needs {c[self.rank]} of type {t}")
""", "s, r, c, t, op", "recv", "Any"),
    ("scan", "send: Buffer, recv: Buffer | None = None, op: int | Op = SUM", PAIR, "s, r, n, t, op", RESULT, "Any"),
    ("exscan", "send: Buffer, recv: Buffer | None = None, op: int | Op = SUM", PAIR, "s, r, n, t, op", RESULT, "Any"),
    ("broadcast", "buffer: Buffer, root: int = 0",
     "r, n, t = (read if self.rank == root else write)(buffer, type)", "r, r, n, t, root", "buffer", "Any"),
    ("allgather", "send: Buffer | None, recv: Buffer", "s, r, n, t = blocks(send, recv, self.nranks, self.rank, type)",
     "s, r, n, t", "recv", "Any"),
    ("allgatherv", "send: Buffer | None, recv: Buffer, counts: Sequence[int], displs: Sequence[int] | None = None",
     V_PART + """\
s, n = w + begin_of(c, d, self.rank) * type_bytes(t), c[self.rank]
if send is not None:
    s, n, u = read(send, type)
    if n != c[self.rank] or t != u:
        refuse(f"send has {n} elements of type {u}; counts says {c[self.rank]} of type {t}")
""", "s, w, c, d, t", "recv", "Any"),
    ("gather", "send: Buffer | None, recv: Buffer | None = None, root: int = 0", """\
if self.rank == root:
    s, r, n, t = blocks(send, recv, self.nranks, root, type)
else:
    (s, n, t), r = read(send, type), NULL
""", "s, r, n, t, root", "recv if self.rank == root else None", "Any"),
    ("gatherv", "send: Buffer | None, recv: Buffer | None = None, counts: Sequence[int] | None = None, "
     "displs: Sequence[int] | None = None, root: int = 0", """\
w = c = d = NULL
if self.rank == root:
    if counts is None:
        refuse("the root needs counts")
""" + textwrap.indent(V_PART, "    ") + """\
    s, n = w + begin_of(c, d, root) * type_bytes(t), c[root]
if self.rank != root or send is not None:
    s, n, t = read(send, type)
""", "s, n, w, c, d, t, root", "recv if self.rank == root else None", "Any"),
    ("scatter", "send: Buffer | None, recv: Buffer | None = None, root: int = 0", """\
if self.rank == root:
    r, s, n, t = blocks(recv, send, self.nranks, root, type, True)
else:
    (r, n, t), s = write(recv, type), NULL
""", "s, r, n, t, root", RESULT, "Any"),
    ("scatterv", "send: Buffer | None, recv: Buffer | None, counts: Sequence[int] | None = None, "
     "displs: Sequence[int] | None = None, root: int = 0", """\
s = c = d = NULL
if self.rank == root:
    if counts is None:
        refuse("the root needs counts")
    s, m, t = (write if recv is None else read)(send, type)
    c, d = numbers(counts, self.nranks, "counts"), numbers(displs, self.nranks, "displs")
    covers(c, d, self.nranks, m, "send")
    r, n = s + begin_of(c, d, root) * type_bytes(t), c[root]
if self.rank != root or recv is not None:
    r, n, t = write(recv, type)
""", "s, c, d, r, n, t, root", RESULT, "Any"),
    ("alltoall", "send: Buffer, recv: Buffer | None = None", PAIR + """
if n % self.nranks:
    refuse(f"a buffer of {n} elements is not divided among {self.nranks} ranks")
""", "s, r, n // self.nranks, t", RESULT, "Any"),
    ("alltoallv", "send: Buffer, sendcounts: Sequence[int], recv: Buffer, recvcounts: Sequence[int], "
     "sdispls: Sequence[int] | None = None, rdispls: Sequence[int] | None = None", BLOCKS_OF_ALL + """\
covers(c, e, self.nranks, m, "send")
covers(d, f, self.nranks, k, "recv")
if t != u:
    refuse(f"send has elements of type {t} and recv of type {u}; they must be alike")
""", "a, c, e, r, d, f, t", "recv", "Any"),
    ("alltoallw", "send: Buffer, sendcounts: Sequence[int], sendtypes: Sequence[int], recv: Buffer, "
     "recvcounts: Sequence[int], recvtypes: Sequence[int], sdispls: Sequence[int] | None = None, "
     "rdispls: Sequence[int] | None = None", BLOCKS_OF_ALL.replace(", type)", ", BYTES)") + """\
g, h = types_of(sendtypes, self.nranks), types_of(recvtypes, self.nranks)
covers(c, e, self.nranks, m, "send", [type_bytes(one) for one in g])
covers(d, f, self.nranks, k, "recv", [type_bytes(one) for one in h])
""", "a, c, e, g, r, d, f, h", "recv", "Any"),
    ("barrier", "", "", "", "None", "None"),
    ("send", "send: Buffer, peer: int, tag: int = 0", "s, n, t = read(send, type)", "s, n, t, peer, tag", "None",
     "None"),
    ("recv", "recv: Buffer, peer: int = ANY_SOURCE, tag: int = ANY_TAG",
     "(r, n, t), x = write(recv, type), new_message()", "r, n, t, peer, tag, x", "message_of(x)", "Message | None"),
    ("sendrecv", "send: Buffer, dest: int, recv: Buffer, source: int = ANY_SOURCE, sendtag: int = 0, "
     "recvtag: int = ANY_TAG", """\
s, n, t = read(send, type)
(r, m, u), x = write(recv, type), new_message()
if t != u:
    refuse(f"send has elements of type {t} and recv of type {u}; they must be alike")
""", "s, n, dest, sendtag, r, m, source, recvtag, t, x", "message_of(x)", "Message | None"),
    ("put", "send: Buffer, peer: int, offset: int, window: Window", "s, n, t = read(send, type)",
     "s, n, t, peer, offset, window._window[0]", "None", "None"),
    ("signal", "peer: int, window: Window", "", "peer, window._window[0]", "None", "None"),
    ("wait_signal", "peer: int, count: int, window: Window", "", "peer, count, window._window[0]", "None", "None"),
]
HEAD = '''"""Every operation of libcoll in its forms. Written by operations.py from the headers: do not change it here.

`x(...)` is the blocking form, `ix(...)` starts it and gives a Request, `x_init(...)` makes a PersistentRequest,
`x_on_stream(..., stream)` puts it into a CUDA stream: the program keeps the buffers until the stream has passed."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from ._coll import ffi, lib
from .buffers import NULL, blocks, covers, numbers, pair, read, stream_of, write
from .errors import fail, refuse
from .request import Message, PersistentRequest, Request, message_of
from .types import SUM, UINT8 as BYTES, Op, type_bytes

if TYPE_CHECKING:
    from .window import Window

Buffer = Any  #: a NumPy array, or any object that buffers.py knows
ANY_SOURCE: int = lib.COLL_ANY_SOURCE
ANY_TAG: int = lib.COLL_ANY_TAG


def new_message():
    """Where a receive says what it got."""
    return ffi.new("coll_message *")


def begin_of(counts, displs, rank: int) -> int:
    """The element at which a rank's block begins."""
    return displs[rank] if displs else sum(counts[i] for i in range(rank))


def types_of(types: Sequence[int], nranks: int):
    """A type for each rank."""
    if len(types) != nranks:
        refuse(f"there are {len(types)} types; it needs one for each of {nranks} ranks")
    return ffi.new("coll_type[]", [int(one) for one in types])


class Operations:
    """The operations of a communicator."""

    __slots__ = ("_comm", "_group", "_requests", "rank", "nranks", "__weakref__")
    rank: int  #: this rank's number
    nranks: int  #: the number of ranks
'''
# Name of C; name in Python; parameters more; arguments more; how the result of C is used; type of what is returned.
FORMS = [
    ("coll_{}", "{}", "", "", "{check}{group}return {result}", "{type}"),
    ("coll_i{}", "i{}", "", ", request", "{check}return Request(self, request, {later}, ({keep},){record})", "Request"),
    ("coll_{}_init", "{}_init", "", ", request", "{check}return PersistentRequest(self, request, {later}, ({keep},){record})",
     "PersistentRequest"),
    ("coll_{}_on_stream", "{}_on_stream", "stream: Any", ", stream_of(stream)", "{check}{group}return {later}", "Any"),
]
CHECK = "if status:\n    fail(status, self._comm)\n"
GROUP = "if self._group is not None:\n    self._group.append(({keep},))\n"


def names_of(parameters):
    """The names of parameters."""
    return [part.split(":")[0].strip() for part in parameters.split(", ") if ":" in part]


def method(operation, form, contract):
    """The text of a method."""
    name, parameters, prepare, arguments, result, returned = operation
    c_name, own_name, more, more_arguments, rest, form_type = form
    typed = ", type)" in prepare
    message = ", x" in arguments
    if own_name == "{}_on_stream" and message:  # nobody would read it
        arguments, message = arguments.replace(", x", ", NULL"), False
        prepare, result = prepare.replace("), x =", ") =").replace("(r, m, u) =", "r, m, u =").replace(
            "(r, n, t) =", "r, n, t =").replace(", new_message()", ""), "None"
    keep = ", ".join([n for n in names_of(parameters) if n in ("send", "recv", "buffer", "window")] or ["None"])
    keep += "".join(f", {one}" for one in ("s", "r", "w", "a") if f" {one}," in f" {arguments},")
    later = "None" if "message_of" in result else result
    group = GROUP.format(keep=keep + (", x" if message else "")) + ("    return None\n" if message else "")
    signature = ", ".join(filter(None, ["self", parameters, ("*, " + more) if more else "",
                                        ("type: int | None = None" if more else "*, type: int | None = None")
                                        if typed else ""]))
    rest = rest.format(check=CHECK, group=group, result=result, later=later, keep=keep,
                       record=", x" if message else "", type=returned)
    call = f"status = lib.{c_name.format(name)}({', '.join(filter(None, [arguments, 'self._comm']))}{more_arguments})\n"
    handle = 'request = ffi.new("coll_request **")\n' if more_arguments == ", request" else ""
    body = f'"""{contract}"""\n{prepare.rstrip()}\n{handle}{call}{rest}\n'.replace('"""\n\n', '"""\n')
    head = f"def {own_name.format(name)}({signature}) -> {form_type.format(type=returned)}:\n"
    return head + textwrap.indent(body, "    ")


def module(headers):
    """The text of coll/operations.py."""
    contracts = declarations.functions(headers)
    parts = [HEAD]
    for operation in OPERATIONS:
        for form in FORMS:
            contract = contracts[form[0].format(operation[0])][1].replace("\\", "\\\\")
            parts.append(textwrap.indent(method(operation, form, contract), "    "))
    listed = {operation[0] for operation in OPERATIONS}
    for name in contracts:  # an operation has a form in streams
        if name.endswith("_on_stream") and name[5:-10] not in listed:
            raise SystemExit(f"operations.py has no {name[5:-10]}: add it to its table")
    return "\n".join(parts)
