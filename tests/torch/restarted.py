"""Run under torchrun --max-restarts=1: in the first attempt one rank is killed; the second one works."""
import os
import signal

import torch
import torch.distributed as dist

import coll_torch  # noqa: F401  registers the backend

dist.init_process_group("coll")
x = torch.ones(10)
dist.all_reduce(x)
assert x[0].item() == dist.get_world_size()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        dist.all_reduce(x)
print(f"rank {dist.get_rank()} is done in the second attempt", flush=True)
