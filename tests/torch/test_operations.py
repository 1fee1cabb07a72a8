"""Every operation of torch.distributed with every type and several groups: against gloo, and against what follows from
the inputs, which every rank knows."""
import functools
import unittest

import torch
import torch.distributed as dist
from support_ranks import DEVICES, main, nranks, pairs_of_groups, rank

Op = dist.ReduceOp
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
TYPES = INTEGERS + FLOATS + COMPLEX + [torch.bool]
NUMBER_OPS = [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.AVG]
BIT_OPS = [Op.BAND, Op.BOR, Op.BXOR]
GROUPS = pairs_of_groups()
compared = 0  # with gloo


def data(of, dtype, count, device="cpu"):
    """Input of a rank: small integers, so that results are exact in every type."""
    numbers = (torch.arange(count) * 7 + of * 3) % 5
    if dtype in COMPLEX:
        return torch.complex(numbers.double(), numbers.flip(0).double()).to(dtype).to(device)
    if dtype == torch.bool:
        return (numbers % 2 == 0).to(device)
    return numbers.to(dtype).to(device)


def reduced(inputs, op):
    """The reduction of tensors."""
    dtype = inputs[0].dtype
    if dtype == torch.bool:
        with_and, with_xor = op in (Op.PRODUCT, Op.MIN, Op.BAND), op == Op.BXOR
        return functools.reduce(torch.logical_and if with_and else torch.logical_xor if with_xor else torch.logical_or,
                                inputs)
    if op in BIT_OPS:
        return functools.reduce({0: torch.bitwise_and, 1: torch.bitwise_or, 2: torch.bitwise_xor}[BIT_OPS.index(op)],
                                inputs)
    wide = torch.stack([one.to(torch.complex128 if dtype in COMPLEX else torch.float64) for one in inputs])
    if op == Op.SUM:
        return wide.sum(0).to(dtype)
    if op == Op.AVG:
        mean = wide.sum(0) / len(inputs)
        return (mean.trunc() if dtype in INTEGERS else mean).to(dtype)
    if op == Op.PRODUCT:
        return wide.prod(0).to(dtype)
    return (wide.min(0) if op == Op.MIN else wide.max(0)).values.to(dtype)


def ops_of(dtype):
    """The reductions that a type has."""
    if dtype in INTEGERS:
        return NUMBER_OPS + BIT_OPS
    if dtype in COMPLEX:
        return [Op.SUM, Op.AVG]
    return NUMBER_OPS if dtype in FLOATS else [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX] + BIT_OPS


class Operations(unittest.TestCase):
    def each(self, run, types=None, counts=(1, 1001), with_gloo=True):
        """Calls run(ranks, group, dtype, count, device), which returns pairs (result, expected), for all cases, also with
        gloo where that has the operation and the type."""
        global compared
        for ranks, ours, gloo in GROUPS:
            if rank not in ranks:
                continue
            for dtype in types or TYPES:
                for count in counts:
                    for device in DEVICES:
                        for result, expected in run(ranks, ours, dtype, count, device):
                            self.same(result, expected, (ranks, dtype, count, device))
                    try:
                        pairs = run(ranks, gloo, dtype, count, "cpu") if with_gloo else None
                    except (RuntimeError, ValueError) as error:  # an error of the network is a failure
                        self.assertNotRegex(str(error), "(?i)connection|timed out|timeout")
                        pairs = None
                    if pairs is None:
                        continue
                    compared += 1
                    for result, expected in pairs:
                        self.same(result, expected, ("gloo", ranks, dtype, count))

    def same(self, result, expected, case):
        if result.is_floating_point() and result.dtype != torch.float64:  # averages round
            good = torch.allclose(result.double().cpu(), expected.double(), rtol=0.01)
        else:
            good = torch.equal(result.cpu(), expected) or (result.dtype.is_complex or result.is_floating_point()) and \
                torch.allclose(result.cpu(), expected)
        self.assertTrue(good, f"{case}: {result} instead of {expected}")

    def test_all_reduce_and_reduce(self):
        def run(op, to, ranks, group, dtype, count, device):
            mine = data(rank, dtype, count, device)
            expected = reduced([data(one, dtype, count) for one in ranks], op)
            if to is None:
                dist.all_reduce(mine, op, group)
            else:
                dist.reduce(mine, ranks[to], op, group)
            return [(mine, expected)] if to is None or rank == ranks[to] else []

        for dtype in TYPES:
            for op in ops_of(dtype):
                for to in (None, 0, -1):
                    with self.subTest(op=op, dtype=dtype, to=to):
                        self.each(functools.partial(run, op, to), [dtype])
        self.assertGreater(compared, 20)

    def test_broadcast(self):
        def run(root, ranks, group, dtype, count, device):
            mine = data(rank, dtype, count, device)
            dist.broadcast(mine, ranks[root], group)
            return [(mine, data(ranks[root], dtype, count))]

        self.each(functools.partial(run, 0), counts=(0, 1, 50000))
        self.each(functools.partial(run, -1))

    def test_all_gather(self):
        def run(ranks, group, dtype, count, device):
            lists = [torch.empty(count, dtype=dtype, device=device) for _ in ranks]
            dist.all_gather(lists, data(rank, dtype, count, device), group)
            return [(one, data(of, dtype, count)) for of, one in zip(ranks, lists)]

        def run_into(ranks, group, dtype, count, device):
            out = torch.empty(count * len(ranks), dtype=dtype, device=device)
            dist.all_gather_into_tensor(out, data(rank, dtype, count, device), group)
            return [(out, torch.cat([data(of, dtype, count) for of in ranks]))]

        def run_adjacent(ranks, group, dtype, count, device):  # it needs no copies
            out = torch.empty(count * len(ranks), dtype=dtype, device=device)
            dist.all_gather(list(out.chunk(len(ranks))), data(rank, dtype, count, device), group)
            return [(out, torch.cat([data(of, dtype, count) for of in ranks]))]

        self.each(run)
        self.each(run_into)
        self.each(run_adjacent)

    def test_gather_and_scatter(self):
        def run_gather(root, ranks, group, dtype, count, device):
            lists = [torch.empty(count, dtype=dtype, device=device) for _ in ranks] if rank == ranks[root] else None
            dist.gather(data(rank, dtype, count, device), lists, ranks[root], group)
            return [(one, data(of, dtype, count)) for of, one in zip(ranks, lists or [])]

        def run_scatter(root, ranks, group, dtype, count, device):
            out = torch.empty(count, dtype=dtype, device=device)
            lists = [data(of + 1, dtype, count, device) for of in ranks] if rank == ranks[root] else None
            dist.scatter(out, lists, ranks[root], group)
            return [(out, data(rank + 1, dtype, count))]

        for root in (0, -1):
            self.each(functools.partial(run_gather, root))
            self.each(functools.partial(run_scatter, root))

    def test_reduce_scatter(self):
        def run(ranks, group, dtype, count, device):
            out = torch.empty(count, dtype=dtype, device=device)
            dist.reduce_scatter(out, [data(rank + of, dtype, count, device) for of in ranks], Op.SUM, group)
            return [(out, reduced([data(one + rank, dtype, count) for one in ranks], Op.SUM))]

        def run_tensor(ranks, group, dtype, count, device):
            out = torch.empty(count, dtype=dtype, device=device)
            mine = torch.cat([data(rank + of, dtype, count, device) for of in ranks])
            dist.reduce_scatter_tensor(out, mine, Op.SUM, group)
            return [(out, reduced([data(one + rank, dtype, count) for one in ranks], Op.SUM))]

        self.each(run)
        self.each(run_tensor)

    def test_all_to_all(self):
        def block(source, target, dtype, count):
            return data(source * 3 + target, dtype, count)

        def run_equal(ranks, group, dtype, count, device):
            out = torch.empty(count * len(ranks), dtype=dtype, device=device)
            mine = torch.cat([block(rank, of, dtype, count) for of in ranks]).to(device)
            dist.all_to_all_single(out, mine, group=group)
            return [(out, torch.cat([block(of, rank, dtype, count) for of in ranks]))]

        def run_uneven(ranks, group, dtype, count, device):  # i rows to the i-th rank
            place = ranks.index(rank)
            out = torch.empty(place * len(ranks), count, dtype=dtype, device=device)
            mine = torch.cat([block(rank, of, dtype, count).expand(i, count) for i, of in enumerate(ranks)]).to(device)
            dist.all_to_all_single(out, mine, [place] * len(ranks), list(range(len(ranks))), group)
            return [(out, torch.cat([block(of, rank, dtype, count).expand(place, count) for of in ranks]))]

        def run_lists(ranks, group, dtype, count, device):
            out = [torch.empty(count + of, dtype=dtype, device=device) for of in ranks]
            dist.all_to_all(out, [block(rank, of, dtype, count + rank).to(device) for of in ranks], group)
            return [(one, block(of, rank, dtype, count + of)) for of, one in zip(ranks, out)]

        self.each(run_equal)
        self.each(run_uneven)
        self.each(run_lists)

    def test_messages(self):
        def run(ranks, group, dtype, count, device):
            place = ranks.index(rank)
            left, right = ranks[place - 1], ranks[(place + 1) % len(ranks)]
            got = torch.empty(count, dtype=dtype, device=device)
            sent = dist.isend(data(rank, dtype, count, device), right, group, 5)
            dist.irecv(got, left, group, 5).wait()
            sent.wait()
            return [(got, data(left, dtype, count))]

        def run_any(ranks, group, dtype, count, device):
            if rank != ranks[0]:
                dist.send(data(rank, dtype, count, device), ranks[0], group)
                dist.barrier(group)
                return []
            pairs, sources = [], []
            for _ in ranks[1:]:
                got = torch.empty(count, dtype=dtype, device=device)
                sources.append(dist.recv(got, None, group))
                pairs.append((got, data(sources[-1], dtype, count)))
            self.assertEqual(sorted(sources), sorted(ranks[1:]))
            dist.barrier(group)
            return pairs

        def run_batch(ranks, group, dtype, count, device):
            place = ranks.index(rank)
            left, right = ranks[place - 1], ranks[(place + 1) % len(ranks)]
            got = torch.empty(count, dtype=dtype, device=device)
            works = dist.batch_isend_irecv([dist.P2POp(dist.isend, data(rank, dtype, count, device), right, group),
                                            dist.P2POp(dist.irecv, got, left, group)])
            for work in works:
                work.wait()
            return [(got, data(left, dtype, count))]

        # Without gloo: its sends in a ring time out now and then.
        self.each(run, with_gloo=False)
        self.each(run_any, [torch.float32, torch.int64], with_gloo=False)
        self.each(run_batch, with_gloo=False)

    def test_coalesced(self):
        def run(ranks, group, dtype, count, device):
            mine = [data(rank + i, dtype, count + i, device) for i in range(5)]
            if dist.get_rank(group) >= 0 and hasattr(group, "allreduce_coalesced"):
                options = dist.distributed_c10d.AllreduceCoalescedOptions()
                options.reduceOp = Op.SUM
                group.allreduce_coalesced(mine, options).wait()
            return [(one, reduced([data(of + i, dtype, count + i) for of in ranks], Op.SUM))
                    for i, one in enumerate(mine)]

        def run_gather(ranks, group, dtype, count, device):
            lists = [[torch.empty(count + i, dtype=dtype, device=device) for i in range(3)] for _ in ranks]
            dist.all_gather_coalesced(lists, [data(rank + i, dtype, count + i, device) for i in range(3)], group)
            return [(one, data(of + i, dtype, count + i)) for of, ones in zip(ranks, lists) for i, one in enumerate(ones)]

        self.each(run, [torch.float32, torch.int32, torch.complex64])
        if hasattr(dist, "all_gather_coalesced"):
            self.each(run_gather, [torch.float32, torch.int64, torch.bool])

    @unittest.skipUnless(int(torch.__version__.split(".")[0]) >= 2, "PyTorch 2 has it")
    def test_coalescing_manager(self):
        coalescing = dist.distributed_c10d._coalescing_manager

        def run(ranks, group, dtype, count, device):
            sums = [data(rank + i, dtype, count, device) for i in range(4)]
            with coalescing(group):
                for one in sums:
                    dist.all_reduce(one, group=group)
            gathered = [torch.empty(count * len(ranks), dtype=dtype, device=device) for _ in range(4)]
            with coalescing(group):
                for i, one in enumerate(gathered):
                    dist.all_gather_into_tensor(one, data(rank + i, dtype, count, device), group)
            scattered = [torch.empty(count, dtype=dtype, device=device) for _ in range(4)]
            with coalescing(group):
                for i, one in enumerate(scattered):
                    dist.reduce_scatter_tensor(one, data(rank + i, dtype, count, device).repeat(len(ranks)), group=group)
            parts = [[data(of + i, dtype, count) for of in ranks] for i in range(4)]
            with coalescing(group, torch.device(device), async_ops=True) as works:
                mixed = data(rank, dtype, count, device)
                dist.broadcast(mixed, ranks[0], group, async_op=True)
            works.wait()
            return [(sums[i], reduced(parts[i], Op.SUM)) for i in range(4)] + \
                [(gathered[i], torch.cat(parts[i])) for i in range(4)] + \
                [(scattered[i], reduced(parts[i], Op.SUM)) for i in range(4)] + [(mixed, data(ranks[0], dtype, count))]

        # Without gloo: after an operation that it does not have, the manager would remember the others.
        self.each(run, [torch.float32, torch.int32], with_gloo=False)

    def test_objects(self):
        for ranks, ours, _ in GROUPS:
            if rank in ranks:
                got = [None] * len(ranks)
                dist.all_gather_object(got, {"rank": rank, "text": "x" * rank}, ours)
                self.assertEqual([one["rank"] for one in got], ranks)
                words = ["of the root", rank] if rank == ranks[-1] else [None, None]
                dist.broadcast_object_list(words, ranks[-1], ours)
                self.assertEqual(words, ["of the root", ranks[-1]])

    def test_strided(self):
        square = data(rank, torch.float32, 12).view(3, 4).t()  # dense, in another order
        dist.all_reduce(square)
        expected = reduced([data(one, torch.float32, 12) for one in range(nranks)], Op.SUM).view(3, 4).t()
        self.same(square, expected, "transposed")
        parameter = torch.nn.Parameter(data(rank, torch.float32, 3))  # results are no operations of autograd
        gathered = [torch.nn.Parameter(torch.zeros(3)) for _ in range(nranks)]
        dist.all_gather(gathered, parameter)
        for of, one in enumerate(gathered):
            self.same(one.detach(), data(of, torch.float32, 3), "parameters")

    def test_refused(self):
        def refused(words, function, *args, **kwargs):
            with self.assertRaisesRegex(RuntimeError, words):
                function(*args, **kwargs)

        x = torch.ones(6)
        refused("gaps", dist.all_reduce, torch.ones(4, 4)[:, 1])
        refused("not contiguous", dist.all_gather, [torch.ones(2, 3).t() for _ in range(nranks)], torch.ones(3, 2))
        refused("dense", dist.all_reduce, torch.eye(3).to_sparse())
        refused("truth values", dist.all_reduce, torch.ones(3, dtype=torch.bool), Op.AVG)
        refused("complex", dist.all_reduce, torch.ones(3, dtype=torch.complex64), Op.PRODUCT)
        refused("times the elements", dist.all_gather_into_tensor, torch.ones(6 * nranks + 1), x)
        refused("split sizes", dist.all_to_all_single, x, x, [1] * nranks, [7] * nranks)
        refused("where they must be alike", dist.all_gather, [torch.ones(5) for _ in range(nranks)], x)
        dist.all_reduce(x)  # nothing was sent: the group goes on
        self.assertEqual(x[0].item(), nranks)


if __name__ == "__main__":
    main()
