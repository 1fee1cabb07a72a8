"""Two ranks leave with operations that will never be complete: rank 0 by the end of its program, rank 1 by an exception.
Neither waits for its group's limit, half an hour."""
import torch
import torch.distributed as dist

import coll_torch  # noqa: F401  registers the backend

dist.init_process_group("coll")
dist.barrier()
store = dist.distributed_c10d._get_default_store()
if dist.get_rank() == 0:
    dist.irecv(torch.ones(3), 1)
    store.wait(["rank 1 leaves"])  # or the abort of this end might overtake the barrier's last message
else:
    dist.all_reduce(torch.ones(3), async_op=True)
    store.set("rank 1 leaves", "")
    raise KeyError("of the program")
