#!/usr/bin/python3
"""torch.distributed with Gloo for tests/chaos/peers/run; killed.h says what it prints. It has no shrink: survivors can
only make a new process group with a list of who is left that the program has made.
Usage: killed_torch.py RANK RANKS FOLDER TIMEOUT_S allreduce|broadcast"""
import datetime
import os
import sys
import time

import torch
from torch import distributed

SHORT, LONG = 256, 16 << 20


def operate(what, tensor):
    if what == "broadcast":
        distributed.broadcast(tensor, 0)
    else:
        distributed.all_reduce(tensor)


def main():
    rank, nranks, folder, timeout_s, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=nranks,
                                   timeout=datetime.timedelta(seconds=timeout_s))
    tensor = torch.zeros(LONG if what == "broadcast" else SHORT)
    sys.stdout = open(f"{folder}/rank{rank}", "w", encoding="utf-8")
    print(f"pid {rank} {os.getpid()}", flush=True)
    first = True
    while True:
        since = time.monotonic()
        try:
            operate(what, tensor)
        except RuntimeError as error:
            message = str(error).replace("\n", " ")
            print(f"error {rank} {time.monotonic() - since:.3f} {message}", flush=True)
            break
        if first:
            print(f"round {rank}", flush=True)
            first = False
    print(f"off {rank} torch has nothing to go on with", flush=True)
    os._exit(1)


main()
