"""The communicator of a test, and how its ranks end: all together, and with an error if one of them failed."""
import os
import sys
import unittest

import coll
import numpy as np

comm = coll.init(timeout_ms=60000)


def main():
    """Runs a module's tests on each rank; only rank 0 prints what passed."""
    stream = sys.stderr if comm.rank == 0 else open(os.devnull, "w", encoding="utf-8")
    result = unittest.TextTestRunner(stream=stream, failfast=True).run(
        unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    for _, text in result.failures + result.errors:
        if comm.rank:
            sys.stderr.write(f"rank {comm.rank}: {text}\n")
    if not result.wasSuccessful() or result.testsRun == 0:
        os._exit(1)  # so that the others do not wait for this rank
    comm.allreduce(np.ones(1))
    comm.close()
