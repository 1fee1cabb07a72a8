"""The job of a test: the default group is libcoll's, and there are others. Run it under torchrun."""
import datetime
import os
import sys
import unittest

import torch
import torch.distributed as dist

import coll_torch  # noqa: F401  registers the backend

LIMIT = datetime.timedelta(seconds=120)
DEVICES = ["cpu"]
if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.init()
    DEVICES.append("cuda")
dist.init_process_group("coll", timeout=LIMIT)
rank, nranks = dist.get_rank(), dist.get_world_size()


def pairs_of_groups():
    """Groups of the same ranks: of libcoll, and of gloo. All of them; then some in another order of numbers; one alone."""
    all_ranks = list(range(nranks))
    some = [all_ranks] + ([all_ranks[1:]] if nranks > 2 else []) + [[nranks - 1]]
    return [(ranks, dist.new_group(ranks, timeout=LIMIT, backend="coll"),
             dist.new_group(ranks, timeout=LIMIT, backend="gloo")) for ranks in some]


def main():
    """Runs a module's tests on each rank; only rank 0 prints what passed."""
    stream = sys.stderr if rank == 0 else open(os.devnull, "w", encoding="utf-8")
    result = unittest.TextTestRunner(stream=stream, failfast=True, verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    for _, text in result.failures + result.errors:
        sys.stderr.write(f"rank {rank}: {text}\n")
    sys.stderr.flush()
    if not result.wasSuccessful() or result.testsRun == 0:
        os._exit(1)  # so that the others do not wait for this rank
    dist.barrier()
    dist.destroy_process_group()
