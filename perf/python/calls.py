"""Times short calls from Python on each rank, of one library: rank 0 prints the mean of the slowest rank in microseconds.

usage: calls.py coll|mpi4py OPERATION CALLS"""
import sys
import time

import numpy as np


def of_coll(operation):
    """The call, and a maximum over the ranks."""
    import coll
    comm = coll.init()
    one, out, all_of = np.ones(1, np.float32), np.empty(1, np.float32), np.empty(comm.nranks, np.float32)
    calls = {"allreduce": lambda: comm.allreduce(one, out), "broadcast": lambda: comm.broadcast(out),
             "allgather": lambda: comm.allgather(one, all_of), "barrier": comm.barrier}
    return calls[operation], lambda us: comm.allreduce(np.array([us]), op=coll.MAX)[0], comm.rank


def of_mpi4py(operation):
    """The same with mpi4py's calls on buffers."""
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    one, out, all_of = np.ones(1, np.float32), np.empty(1, np.float32), np.empty(comm.size, np.float32)
    calls = {"allreduce": lambda: comm.Allreduce(one, out), "broadcast": lambda: comm.Bcast(out),
             "allgather": lambda: comm.Allgather(one, all_of), "barrier": comm.Barrier}
    return calls[operation], lambda us: comm.allreduce(us, op=MPI.MAX), comm.rank


def main(module, operation, count):
    """Times the calls."""
    call, largest, rank = {"coll": of_coll, "mpi4py": of_mpi4py}[module](operation)
    for _ in range(100):
        call()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    us = largest((time.perf_counter() - begin) / count * 1e6)
    if rank == 0:
        print(us)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
