"""Errors of the Python package: run it under collrun with two ranks or more."""
import os
import subprocess
import sys
import threading
import unittest

import coll
import numpy as np
from support_ranks import comm, main


class Arguments(unittest.TestCase):
    """What is wrong is found before anything is sent: the communicator goes on."""

    def tearDown(self):
        self.assertEqual(comm.allreduce(np.array([1]))[0], comm.nranks)

    def refused(self, words, function, *args, **kwargs):
        with self.assertRaisesRegex(coll.InvalidArgumentError, words) as caught:
            function(*args, **kwargs)
        self.assertEqual(caught.exception.status, "COLL_ERR_INVALID_ARGUMENT")

    def test_buffers(self):
        x = np.ones(4, np.float32)
        self.refused("4 elements of type 10 and recv 5", comm.allreduce, x, np.ones(5, np.float32))
        self.refused("of type 10 and recv 4 of type 11", comm.allreduce, x, np.ones(4, np.float64))
        self.refused("not contiguous", comm.allreduce, np.ones((4, 4))[:, 1])
        self.refused("format '>f'", comm.allreduce, x.astype(">f4"))
        self.refused("type=", comm.allreduce, np.ones(3, np.complex64))
        self.refused("no elements of type", comm.allreduce, np.ones(3, np.uint8), type=coll.BFLOAT16)
        self.refused("no memory that libcoll can use", comm.allreduce, [1, 2])
        self.refused("only be read", comm.allreduce, b"abc")
        fixed = np.ones(3)
        fixed.flags.writeable = False
        self.refused("only be read", comm.allreduce, fixed)
        self.refused("times as many", comm.allgather, x, np.ones(5, np.float32))

    def test_counts(self):
        x = np.ones(comm.nranks)
        few = [1] * (comm.nranks - 1)
        self.refused("one for each of", comm.allgatherv, x[:1], x, few)
        self.refused("beyond its", comm.allgatherv, x[:1], x, [1] * (comm.nranks - 1) + [2])
        self.refused("beyond its", comm.allgatherv, x[:1], x, [1] * comm.nranks, [1] * comm.nranks and
                     list(range(1, comm.nranks + 1)))
        self.refused("negative", comm.allgatherv, x[:1], x, [-1] * comm.nranks)
        self.refused("not divided", comm.alltoall, np.ones(comm.nranks + 1))
        self.refused("", comm.broadcast, x, comm.nranks)
        self.refused("", comm.send, x, comm.nranks)

    def test_settings(self):
        with self.assertRaisesRegex(TypeError, "no setting 'timeout'"):
            coll.create_local(1, timeout=3)
        self.refused("one of default, off, on", coll.create_local, 1, progress=True)
        self.refused("bytes", coll.create, b"short", 2, 0)
        with self.assertRaises(coll.Error):
            coll.create_local(2, transport="pigeon")

    def test_a_group_that_raises_runs_nothing(self):
        with self.assertRaises(KeyError):
            with comm.group():
                comm.send(np.ones(3), (comm.rank + 1) % comm.nranks)
                raise KeyError("of the program")
        self.assertIsNone(comm.probe())

    def test_a_short_limit(self):
        request = comm.irecv(np.ones(3), tag=99)
        self.assertFalse(request.wait(0))
        self.assertFalse(request.test())
        request.set_timeout(1)
        with self.assertRaises(coll.DeadlineError):
            request.wait()
        self.assertEqual(len(comm._requests), 0)


class Failures(unittest.TestCase):
    def test_mismatch(self):
        with comm.dup() as other:
            with self.assertRaises(coll.MismatchError) as caught:
                other.allreduce(np.ones(3 + other.rank))
            self.assertIn("allreduce", str(caught.exception))
            self.assertEqual(caught.exception.operation, "allreduce")
            self.assertEqual(caught.exception.status, "COLL_ERR_MISMATCH")
            with self.assertRaises(coll.MismatchError):  # it is revoked
                other.barrier()

    def test_abort(self):
        with comm.dup() as other:
            if other.rank == 0:
                other.abort()
            with self.assertRaises(coll.AbortedError):
                while True:
                    other.barrier()

    def test_closed(self):
        other = comm.dup()
        other.close()
        self.assertEqual(repr(other), "<coll.Comm, closed>")
        with self.assertRaisesRegex(coll.Error, "closed"):
            other.barrier()

    def test_a_killed_rank_is_named_and_the_others_go_on(self):
        self.spawn("""
if comm.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        comm.barrier()
except coll.PeerLostError as error:
    assert error.peer == 1, error
    assert isinstance(error, ConnectionError)
rest = comm.shrink()
assert rest.allreduce(np.array([1]))[0] == 2
""", "--keep-going")

    def test_an_operation_that_raises_ends_its_process(self):
        done = self.spawn("""
def bad(left, right, result):
    raise ZeroDivisionError("in the operation")
comm.allreduce(np.ones(3), op=coll.Op("bad", bad))
print("not reached")
""", expect=False)
        if comm.rank == 0:
            self.assertIn("ZeroDivisionError", done)
            self.assertNotIn("not reached", done)

    def test_a_program_that_forgets_to_close(self):
        self.spawn("comm.iallreduce(np.ones(3)).wait(); twin = comm.dup(); kept = twin.empty(100)")

    def spawn(self, text, *options, expect=True):
        """Runs a program of three ranks, on rank 0 of this one."""
        if comm.rank:
            return ""
        head = "import coll, os, signal, numpy as np\ncomm = coll.init(timeout_ms=20000)\n"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COLL_")}
        done = subprocess.run([os.environ["COLLRUN"], "-n", "3", *options, sys.executable, "-c", head + text],
                              capture_output=True, text=True, env=environment, check=False)
        if expect:
            self.assertEqual((done.returncode if not options else 0, "Traceback" in done.stderr), (0, False), done.stderr)
        return done.stdout + done.stderr


class Threads(unittest.TestCase):
    def test_ranks_that_are_threads(self):
        comms = coll.create_local(3)
        got = [0] * 3

        def work(one):
            for _ in range(100):
                got[one.rank] += int(one.allreduce(np.array([one.rank + 1]))[0])
            one.close()

        threads = [threading.Thread(target=work, args=(one,)) for one in comms]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [600] * 3)

    def test_a_forked_child_leaves_the_communicator_alone(self):
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except coll.InvalidUsageError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        comm.barrier()


if __name__ == "__main__":
    main()
