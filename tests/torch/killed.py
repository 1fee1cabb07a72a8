"""killed.py FOLDER: three ranks; rank 1 is killed. The others are told who, go on as two, and the next job works, too.
$RANK says which rank this is; the ranks meet through files in the folder."""
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import coll_torch  # noqa: F401  registers the backend


def join(name, rank, nranks):
    """Makes the default group."""
    dist.init_process_group("coll", init_method=f"file://{sys.argv[1]}/{name}", rank=rank, world_size=nranks,
                            timeout=datetime.timedelta(seconds=120))


rank = int(os.environ["RANK"])
join("three", rank, 3)
works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(50)]
began = time.monotonic()
try:  # rank 1 may die when the others still wait for the last of these
    for work in works:
        work.wait()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        dist.all_reduce(torch.ones(1000))
except RuntimeError as error:
    assert "COLL_ERR_PEER_LOST" in str(error) and "rank 1 (" in str(error), error
assert time.monotonic() - began < 60
dist.destroy_process_group()
join("two", rank // 2, 2)
x = torch.ones(10)
dist.all_reduce(x)
assert x[0].item() == 2
dist.barrier()
print(f"rank {rank} has gone on")
# It ends without destroy_process_group(): many programs do.
