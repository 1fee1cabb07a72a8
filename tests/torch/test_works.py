"""Works and futures of libcoll's groups: asynchronous, many in flight, in threads, in callbacks, in forked children."""
import os
import threading
import unittest

import torch
import torch.distributed as dist
from support_ranks import LIMIT, main, nranks, rank

import coll_torch

SUM = nranks * (nranks + 1) // 2  # of the ranks from 1 on


def mine(count=4):
    """This rank's input of a sum."""
    return torch.full((count,), float(rank + 1))


class Squares(torch.utils.data.Dataset):
    """Numbers that worker processes compute."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        return i * i


class Works(unittest.TestCase):
    def test_asynchronous(self):
        x = mine()
        work = dist.all_reduce(x, async_op=True)
        self.assertTrue(work.wait())
        self.assertTrue(work.is_completed())
        self.assertEqual(x.tolist(), [SUM] * 4)
        self.assertEqual(work.result()[0].data_ptr(), x.data_ptr())

    @unittest.skipIf(nranks == 1, "it needs another rank")
    def test_a_receive_is_not_complete_before_its_message(self):
        if rank == 0:
            x = torch.zeros(3)
            work = dist.irecv(x, nranks - 1, tag=7)
            self.assertFalse(work.is_completed())
            dist.barrier()
            work.wait()
            self.assertEqual(x.tolist(), [nranks] * 3)
        else:
            dist.barrier()
            if rank == nranks - 1:
                dist.send(mine(3), 0, tag=7)

    def test_3000_in_flight(self):
        tensors = [torch.full((1 + i % 50,), float(rank + i)) for i in range(3000)]
        works = [dist.all_reduce(one, async_op=True) for one in tensors]
        for work in reversed(works):
            work.wait()
        for i, one in enumerate(tensors):
            self.assertEqual(one[-1].item(), SUM - nranks + nranks * i)

    def test_futures(self):
        x = mine()
        future = dist.all_reduce(x, async_op=True).get_future()
        doubled = future.then(lambda done: done.value()[0] * 2)
        self.assertEqual(doubled.wait().tolist(), [2 * SUM] * 4)
        self.assertTrue(future.done())
        gathered = [torch.zeros(4) for _ in range(nranks)]
        done = torch.futures.wait_all([dist.all_gather(gathered, mine(), async_op=True).get_future(),
                                       dist.barrier(async_op=True).get_future()])
        self.assertEqual(len(done), 2)
        self.assertEqual(gathered[nranks - 1].tolist(), [nranks] * 4)

    def test_a_callback_may_wait_for_another_operation(self):
        def more(done):
            dist.all_reduce(x, async_op=True).get_future().wait()  # PyTorch's PowerSGD hook does this
            y = done.value()[0].clone()
            dist.all_reduce(y)
            return y

        for _ in range(20):
            x = mine()
            result = dist.all_reduce(mine(), async_op=True).get_future().then(more).wait()
            self.assertEqual((x[0].item(), result[0].item()), (SUM, SUM * nranks))

    def test_a_callback_that_raises(self):
        failed = dist.barrier(async_op=True).get_future().then(lambda done: 1 // 0)
        with self.assertRaisesRegex(RuntimeError, "ZeroDivisionError"):
            failed.wait()
        dist.barrier()

    def test_the_last_work_outlives_its_group(self):
        group = dist.new_group(timeout=LIMIT)
        x = mine()
        work = dist.all_reduce(x, group=group, async_op=True)
        dist.destroy_process_group(group)
        del group
        work.wait()
        self.assertEqual(x[0].item(), SUM)

    def test_groups_made_and_left(self):
        for i in range(5):
            group = dist.new_group(timeout=LIMIT)
            x = mine()
            dist.all_reduce(x, group=group)
            self.assertEqual(x[0].item(), SUM)
            dist.destroy_process_group(group)

    def test_groups_in_threads(self):
        groups = [dist.new_group(timeout=LIMIT) for _ in range(3)]
        wrong = []

        def work(group, i):
            for k in range(200):
                x = mine() * i + k
                dist.all_reduce(x, group=group)
                if x[0].item() != SUM * i + k * nranks:
                    wrong.append((i, k, x))

        threads = [threading.Thread(target=work, args=(group, i)) for i, group in enumerate(groups)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_workers_of_a_data_loader(self):
        """They are forked while operations are in flight; what they inherit, they leave alone."""
        x = torch.full((100000,), float(rank + 1))
        work = dist.all_reduce(x, async_op=True)
        loader = torch.utils.data.DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context="fork")
        self.assertEqual(sum(batch.sum().item() for batch in loader), sum(i * i for i in range(64)))
        work.wait()
        self.assertEqual(x[0].item(), SUM)

    def test_a_forked_child_is_refused(self):
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(torch.ones(1))
            except RuntimeError as error:
                os._exit(0 if "forked child" in str(error) else 2)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        dist.barrier()

    def test_names(self):
        self.assertIn("coll", dist.get_backend())
        with self.assertRaisesRegex(ValueError, "no group of the backend coll"):
            coll_torch.abort(dist.new_group(timeout=LIMIT, backend="gloo"))


if __name__ == "__main__":
    main()
