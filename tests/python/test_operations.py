"""Every operation of the Python package in its forms, against NumPy: run it under collrun."""
import unittest

import coll
import numpy as np
from support_ranks import comm, main

FLOATS = [np.float16, np.float32, np.float64]
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
SIZES = [0, 1, 7, 1000, 100003]


def value(rank, n, dtype):
    """A rank's input."""
    return ((np.arange(n) * 7 + rank * 3) % 11 + 1).astype(dtype)


def inputs(n, dtype):
    """All ranks' inputs."""
    return np.stack([value(rank, n, dtype) for rank in range(comm.nranks)])


class Form:
    """Runs an operation in one of its forms."""

    def __init__(self, name):
        self.name = name

    def __call__(self, operation, *args, **kwargs):
        if self.name == "blocking":
            return getattr(comm, operation)(*args, **kwargs)
        if self.name == "nonblocking":
            request = getattr(comm, "i" + operation)(*args, **kwargs)
            assert request.wait()
            assert request.test()
            return request.message if request.message else request.result
        if self.name == "group":
            with comm.group():
                result = getattr(comm, operation)(*args, **kwargs)
            return result
        request = getattr(comm, operation + "_init")(*args, **kwargs)
        assert request.start().wait()
        result = request.message if request.message else request.result
        request.free()
        return result


FORMS = [Form(name) for name in ("blocking", "nonblocking", "persistent", "group")]


class Operations(unittest.TestCase):
    def each(self, dtypes=(np.float32,), sizes=SIZES):
        """Forms, types and sizes."""
        for form in FORMS:
            for dtype in dtypes:
                for n in sizes:
                    with self.subTest(form=form.name, dtype=dtype.__name__, n=n, rank=comm.rank):
                        yield form, dtype, n

    def same(self, got, expected):
        np.testing.assert_array_equal(np.asarray(got), expected)

    def test_allreduce(self):
        operations = [(coll.SUM, np.add), (coll.MIN, np.minimum), (coll.MAX, np.maximum), (coll.PROD, np.multiply)]
        for form, dtype, n in self.each(FLOATS + INTEGERS, [0, 1, 1000]):
            for op, reference in operations if n < 1000 else operations[:3]:
                if op == coll.PROD and np.dtype(dtype).kind == "f" and np.dtype(dtype).itemsize == 2:
                    continue
                all_of = inputs(n, dtype)
                expected = reference.reduce(all_of, axis=0, dtype=dtype)
                out = np.zeros(n, dtype)
                self.assertIs(form("allreduce", value(comm.rank, n, dtype), out, op), out)
                self.same(out, expected)
                own = value(comm.rank, n, dtype)
                self.assertIs(form("allreduce", own, op=op), own)
                self.same(own, expected)

    def test_bits(self):
        for op, reference in [(coll.BAND, np.bitwise_and), (coll.BOR, np.bitwise_or), (coll.BXOR, np.bitwise_xor)]:
            self.same(comm.allreduce(value(comm.rank, 100, np.uint32), op=op),
                      reference.reduce(inputs(100, np.uint32), axis=0))

    def test_reduce(self):
        for form, dtype, n in self.each([np.int32, np.float64]):
            root = n % comm.nranks
            out = np.zeros(n, dtype) if comm.rank == root else None
            got = form("reduce", value(comm.rank, n, dtype), out, coll.SUM, root)
            if comm.rank == root:
                self.same(got, inputs(n, dtype).sum(axis=0, dtype=dtype))
            else:
                self.assertIsNone(got)

    def test_reduce_scatter(self):
        for form, dtype, n in self.each([np.int64, np.float32]):
            total = inputs(n * comm.nranks, dtype).sum(axis=0, dtype=dtype)
            expected = total[comm.rank * n:(comm.rank + 1) * n]
            self.same(form("reduce_scatter", value(comm.rank, n * comm.nranks, dtype), np.zeros(n, dtype)), expected)
            own = value(comm.rank, n * comm.nranks, dtype)
            self.same(form("reduce_scatter", own)[:n], expected)

    def test_reduce_scatterv(self):
        counts = [r + 1 for r in range(comm.nranks)]
        begin = sum(counts[:comm.rank])
        for form, dtype, _ in self.each([np.int32], [0]):
            total = inputs(sum(counts), dtype).sum(axis=0, dtype=dtype)
            out = np.zeros(counts[comm.rank], dtype)
            self.same(form("reduce_scatterv", value(comm.rank, sum(counts), dtype), out, counts),
                      total[begin:begin + counts[comm.rank]])

    def test_scans(self):
        for form, dtype, n in self.each([np.int32]):
            sums = np.cumsum(inputs(n, dtype), axis=0, dtype=dtype)
            self.same(form("scan", value(comm.rank, n, dtype), np.zeros(n, dtype)), sums[comm.rank])
            out = np.full(n, 9, dtype)
            form("exscan", value(comm.rank, n, dtype), out)
            self.same(out, sums[comm.rank - 1] if comm.rank else np.full(n, 9, dtype))

    def test_broadcast(self):
        for form, dtype, n in self.each([np.uint8, np.float64]):
            root = comm.nranks - 1
            buffer = value(root, n, dtype) if comm.rank == root else np.zeros(n, dtype)
            if comm.rank == root:
                buffer.flags.writeable = False
            self.same(form("broadcast", buffer, root), value(root, n, dtype))

    def test_allgather(self):
        for form, dtype, n in self.each([np.int16, np.float32]):
            expected = inputs(n, dtype).ravel()
            self.same(form("allgather", value(comm.rank, n, dtype), np.zeros(n * comm.nranks, dtype)), expected)
            own = np.zeros((comm.nranks, n), dtype)
            own[comm.rank] = value(comm.rank, n, dtype)
            self.same(form("allgather", None, own), expected.reshape(comm.nranks, n))

    def test_allgatherv(self):
        counts = [2 * r + 1 for r in range(comm.nranks)]
        displs = [sum(counts[:r]) + r for r in range(comm.nranks)]
        expected = np.full(sum(counts) + comm.nranks, -1, np.int32)
        for r in range(comm.nranks):
            expected[displs[r]:displs[r] + counts[r]] = value(r, counts[r], np.int32)
        for form, _, _ in self.each(sizes=[0]):
            out = np.full(len(expected), -1, np.int32)
            self.same(form("allgatherv", value(comm.rank, counts[comm.rank], np.int32), out, counts, displs), expected)
            out = np.full(len(expected), -1, np.int32)
            out[displs[comm.rank]:displs[comm.rank] + counts[comm.rank]] = value(comm.rank, counts[comm.rank], np.int32)
            self.same(form("allgatherv", None, out, counts, displs), expected)
            packed = np.concatenate([value(r, counts[r], np.int32) for r in range(comm.nranks)])
            out = np.zeros(sum(counts), np.int32)
            self.same(form("allgatherv", value(comm.rank, counts[comm.rank], np.int32), out, counts), packed)

    def test_gather_and_scatter(self):
        for form, dtype, n in self.each([np.float32]):
            root = n % comm.nranks
            is_root = comm.rank == root
            expected = inputs(n, dtype)
            got = form("gather", value(comm.rank, n, dtype), np.zeros((comm.nranks, n), dtype) if is_root else None, root)
            if is_root:
                self.same(got, expected)
            own = np.zeros((comm.nranks, n), dtype)
            own[root] = value(root, n, dtype)
            got = form("gather", None if is_root else value(comm.rank, n, dtype), own if is_root else None, root)
            if is_root:
                self.same(got, expected)
            out = np.zeros(n, dtype)
            self.same(form("scatter", expected if is_root else None, out, root), value(comm.rank, n, dtype))
            got = form("scatter", expected if is_root else None, None if is_root else out, root)
            self.assertIs(got, expected if is_root else out)

    def test_gatherv_and_scatterv(self):
        counts = [r + 2 for r in range(comm.nranks)]
        packed = np.concatenate([value(r, counts[r], np.int64) for r in range(comm.nranks)])
        for form, _, _ in self.each(sizes=[0]):
            for root in range(comm.nranks):
                is_root = comm.rank == root
                rest = (counts if is_root else None, None, root)
                got = form("gatherv", value(comm.rank, counts[comm.rank], np.int64),
                           np.zeros(len(packed), np.int64) if is_root else None, *rest)
                if is_root:
                    self.same(got, packed)
                out = np.zeros(counts[comm.rank], np.int64)
                self.same(form("scatterv", packed if is_root else None, out, *rest),
                          value(comm.rank, counts[comm.rank], np.int64))

    def test_alltoall(self):
        for form, dtype, n in self.each([np.int32]):
            sent = inputs(n * comm.nranks, dtype).reshape(comm.nranks, comm.nranks, n)
            expected = sent[:, comm.rank]
            self.same(form("alltoall", sent[comm.rank].copy(), np.zeros((comm.nranks, n), dtype)), expected)
            self.same(form("alltoall", sent[comm.rank].copy()), expected)

    def test_alltoallv_and_w(self):
        me = comm.rank
        counts = [[(s + d) % 3 for d in range(comm.nranks)] for s in range(comm.nranks)]
        send = np.concatenate([np.full(counts[me][d], 10 * me + d, np.int16) for d in range(comm.nranks)])
        mine = [counts[s][me] for s in range(comm.nranks)]
        expected = np.concatenate([np.full(mine[s], 10 * s + me, np.int16) for s in range(comm.nranks)])
        for form, _, _ in self.each(sizes=[0]):
            out = np.zeros(sum(mine), np.int16)
            self.same(form("alltoallv", send, counts[me], out, mine), expected)
            out = np.zeros(sum(mine), np.int16)
            types = [coll.INT16] * comm.nranks
            form("alltoallw", send, counts[me], types, out, mine, types)
            self.same(out, expected)

    def test_messages(self):
        right, left = (comm.rank + 1) % comm.nranks, (comm.rank - 1) % comm.nranks
        for form, dtype, n in self.each([np.float64]):
            out = np.zeros(n, dtype)
            got = form("sendrecv", value(comm.rank, n, dtype), right, out, left, 5, 5)
            self.same(out, value(left, n, dtype))
            if form.name != "group":
                self.assertEqual(got, coll.Message(left, 5, n, coll.FLOAT64))
        requests = [comm.irecv(np.zeros(9, np.int8), left, 3), comm.isend(np.ones(4, np.int8), right, 3)]
        self.assertTrue(coll.wait_all(requests))
        self.assertEqual(requests[0].message, coll.Message(left, 3, 4, coll.INT8))
        sent = comm.isend(b"hello", right, 8)
        matched = comm.probe(left, 8, -1, take=True)
        out = bytearray(5)
        self.assertEqual(matched.recv(out).count, 5)
        self.assertEqual(out, b"hello")
        self.assertIsNone(comm.probe(left, 8))
        sent.wait()

    def test_window(self):
        right, left = (comm.rank + 1) % comm.nranks, (comm.rank - 1) % comm.nranks
        memory = np.zeros(4, np.int32)
        window = comm.window(memory)
        comm.put(np.full(2, comm.rank, np.int32), right, 8, window)
        comm.signal(right, window)
        comm.wait_signal(left, 1, window)
        self.same(memory, [0, 0, left, left])
        window.destroy()

    def test_requests(self):
        requests = [comm.iallreduce(np.full(1000, i, np.int32)) for i in range(50)]
        first = coll.wait_any(requests)
        self.assertTrue(requests[first].test())
        done = {first}
        while len(done) < 25:
            more = coll.wait_some(requests)
            self.assertTrue(more and not done & set(more))
            done.update(more)
        coll.wait_all(requests)
        self.assertIsNone(coll.wait_any(requests))
        for i, request in enumerate(requests):
            self.same(request.result, np.full(1000, i * comm.nranks))
        self.assertEqual(len(comm._requests), 0)
        comm.barrier()
        comm.ibarrier().wait()

    def test_communicators(self):
        half = comm.split(comm.rank % 2, -comm.rank)
        self.assertEqual(half.nranks, (comm.nranks + 1 - comm.rank % 2) // 2)
        self.assertEqual(half.allreduce(np.array([1]))[0], half.nranks)
        twin = comm.idup()
        self.assertTrue(twin.wait())
        with twin.result as other:
            other.name = "twin"
            self.assertIn("twin", repr(other))
            self.assertEqual(other.allreduce(np.array([2]))[0], 2 * comm.nranks)
        self.assertIsNone(comm.subset([0]) if comm.rank else None)
        if comm.rank == 0:
            comm.subset([0]).close()
        group = comm.create_group(list(range(comm.nranks)), 4)
        self.assertEqual((group.origin_rank(comm.rank), group.epoch), (comm.rank, 0))
        self.assertEqual(comm.agree(6 if comm.rank else 7), (6 if comm.nranks > 1 else 7, 0))
        self.assertTrue(any(one.chosen for one in comm.candidates("allreduce", 100, coll.FLOAT32)))
        half.close()
        group.close()
        group.close()


class Memory(unittest.TestCase):
    def test_operation_of_the_program(self):
        def largest_of_squares(left, right, result):
            np.asarray(result)[:] = np.maximum(np.asarray(left), np.asarray(right))
        op = coll.Op("largest", largest_of_squares)
        got = comm.allreduce(value(comm.rank, 5000, np.float64), op=op)
        np.testing.assert_array_equal(got, inputs(5000, np.float64).max(axis=0))
        factor = coll.PremulSum(comm.rank + 1, coll.INT32)
        self.assertEqual(comm.allreduce(np.array([1], np.int32), op=factor)[0],
                         sum(r + 1 for r in range(comm.nranks)))

    def test_shared_memory(self):
        own = comm.empty((100, 100), np.float64)
        own[:] = comm.rank
        comm.allreduce(own)
        self.assertEqual(own[99, 99], sum(range(comm.nranks)))
        other = comm.dup()
        kept = other.empty(10000)
        with self.assertRaises(coll.InvalidUsageError):
            other.close()
        del kept
        other.close()

    def test_other_memory(self):
        import array
        some = array.array("d", [comm.rank, 1])
        comm.allreduce(some)
        self.assertEqual(list(some), [sum(range(comm.nranks)), comm.nranks])
        raw = bytearray(4)
        comm.broadcast(b"abcd" if comm.rank == 0 else raw)
        self.assertEqual(bytes(raw), b"abcd" if comm.rank else b"\0\0\0\0")
        half = np.full(4, 0x3f80, np.uint16)  # 1.0 as bfloat16
        comm.allreduce(half, op=coll.MAX, type=coll.BFLOAT16)
        self.assertEqual(half[0], 0x3f80)

    def test_dlpack(self):
        class Only:
            """An object with nothing but DLPack."""

            def __init__(self, array):
                self.array = array

            def __dlpack__(self):
                return self.array.__dlpack__()

        x = np.full((3, 5), comm.rank + 1, np.float32)
        comm.allreduce(Only(x))
        self.assertEqual(x[2, 4], sum(r + 1 for r in range(comm.nranks)))
        with self.assertRaisesRegex(coll.InvalidArgumentError, "contiguous"):
            comm.allreduce(Only(x.T))

    def test_a_group_keeps_what_it_sends(self):
        right, left = (comm.rank + 1) % comm.nranks, (comm.rank - 1) % comm.nranks
        out = [np.zeros(50000) for _ in range(8)]
        with comm.group():
            for i in range(8):
                comm.send(np.full(50000, 10.0 * comm.rank + i), right, i)
            for i in range(8):
                comm.recv(out[i], left, i)
        for i in range(8):
            np.testing.assert_array_equal(out[i], np.full(50000, 10.0 * left + i))


if __name__ == "__main__":
    main()
