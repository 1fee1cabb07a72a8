"""Late ranks, limits and aborts. Each test breaks a group of its own; the default group goes on."""
import datetime
import threading
import time
import unittest

import torch
import torch.distributed as dist
from support_ranks import LIMIT, main, nranks, rank

import coll_torch

SHORT = datetime.timedelta(seconds=1)


class Failures(unittest.TestCase):
    def setUp(self):
        self.group = dist.new_group(timeout=LIMIT)

    def tearDown(self):
        dist.barrier()  # the default group has not suffered
        dist.destroy_process_group(self.group)

    def test_a_monitored_barrier_names_all_who_are_missing(self):
        for _ in range(3):
            coll_torch.monitored_barrier(self.group, LIMIT)
        missing = [one for one in range(nranks) if one % 2]
        words = "monitored barrier within 1000 ms: " + ", ".join(map(str, missing)) + "$"
        if rank in missing:
            dist.barrier()  # the others have given up
        with self.assertRaisesRegex(RuntimeError, words):
            coll_torch.monitored_barrier(self.group, SHORT)
        if rank not in missing:
            dist.barrier()
        coll_torch.monitored_barrier(self.group)  # the group goes on
        x = torch.ones(3)
        dist.all_reduce(x, group=self.group)
        self.assertEqual(x[0].item(), nranks)

    def test_a_monitored_barrier_without_rank_0(self):
        if rank == 0:
            dist.barrier()
            return
        with self.assertRaisesRegex(RuntimeError, "monitored barrier within 1000 ms: 0$"):
            coll_torch.monitored_barrier(self.group, SHORT)
        dist.barrier()

    def test_a_limit_of_one_operation(self):
        options = dist.distributed_c10d.AllreduceOptions()
        options.timeout = SHORT
        self.group.allreduce([torch.ones(3)], options).wait()
        if rank == nranks - 1:
            return
        began = time.monotonic()
        with self.assertRaisesRegex(RuntimeError, fr"COLL_ERR_TIMEOUT.*rank {nranks - 1}\b") as caught:
            self.group.allreduce([torch.ones(3)], options).wait()
        self.assertLess(time.monotonic() - began, LIMIT.total_seconds() / 2)
        self.assertRegex(str(caught.exception), r'communicator "torch \w+"')
        with self.assertRaisesRegex(RuntimeError, "COLL_ERR_TIMEOUT"):  # the group is over, at once
            dist.all_reduce(torch.ones(3), group=self.group)

    def test_a_limit_of_a_wait(self):
        x = torch.zeros(2)
        if rank == 0:
            work = dist.irecv(x, nranks - 1, group=self.group)
            with self.assertRaises(RuntimeError):
                work.wait(datetime.timedelta(milliseconds=20))
            dist.barrier()
            work.wait()  # the operation has gone on
            self.assertEqual(x.tolist(), [5, 5])
        else:
            dist.barrier()
            if rank == nranks - 1:
                dist.send(torch.full((2,), 5.0), 0, group=self.group)

    def test_an_abort_ends_what_waits_on_all_ranks(self):
        if rank == 0:
            work = dist.irecv(torch.zeros(2), 1, group=self.group)
            threading.Thread(target=coll_torch.abort, args=(self.group,)).start()
        else:
            work = dist.all_reduce(torch.zeros(2), group=self.group, async_op=True)
        with self.assertRaisesRegex(RuntimeError, "COLL_ERR_ABORTED"):
            work.wait()
        with self.assertRaisesRegex(RuntimeError, "COLL_ERR_ABORTED"):
            dist.barrier(self.group)

    def test_futures_get_errors(self):
        future = dist.irecv(torch.zeros(2), (rank + 1) % nranks, group=self.group).get_future()
        chained = future.then(lambda done: done.value())
        dist.barrier()
        if rank == 0:
            coll_torch.abort(self.group)
        with self.assertRaisesRegex(RuntimeError, "COLL_ERR_ABORTED"):
            chained.wait()

    def test_different_calls(self):
        with self.assertRaisesRegex(RuntimeError, "COLL_ERR_MISMATCH"):
            dist.all_reduce(torch.ones(3 + rank), group=self.group)

    def test_a_message_of_another_length(self):
        if rank == 0:
            dist.send(torch.ones(3), 1, group=self.group)
        elif rank == 1:
            with self.assertRaisesRegex(RuntimeError, "message of 3 elements .* tensor of 4"):
                dist.recv(torch.ones(4), 0, group=self.group)

    def test_a_group_to_which_one_does_not_come(self):
        dist.barrier()
        if rank == nranks - 1:
            return
        store = dist.PrefixStore("not all", dist.distributed_c10d._get_default_store())
        store.set_timeout(SHORT)
        with self.assertRaisesRegex(RuntimeError, f"rank.* {nranks - 1}|[Tt]imeout"):
            coll_torch.ProcessGroupColl(store, rank, nranks, SHORT, "not all", False)


if __name__ == "__main__":
    main()
