"""Two ranks leave with operations that will never be complete: rank 0 by the end of its program, rank 1 by an exception.
Neither waits for its group's limit, half an hour."""
import torch
import torch.distributed as dist

import coll_torch  # noqa: F401  registers the backend

dist.init_process_group("coll")
dist.barrier()
if dist.get_rank() == 0:
    dist.irecv(torch.ones(3), 1)
else:
    dist.all_reduce(torch.ones(3), async_op=True)
    raise KeyError("of the program")
