"""libcoll for Python: collective communication between processes, hosts and threads, on NumPy arrays and other memory.

    import coll, numpy as np
    comm = coll.init()                               # under collrun, mpirun, srun, torchrun
    comm.allreduce(np.ones(4, np.float32))           # in place
    comm.allgather(np.array([comm.rank]), ranks := np.empty(comm.nranks, int))

All errors are coll.Error, with the record of coll_error. Nothing is copied."""
from . import errors
from .comm import (NO_COLOR, Candidate, Comm, Matched, create, create_local, init, join, reduce_local, unique_id,
                   version)
from .errors import *  # noqa: F401,F403
from .errors import Error
from .operations import ANY_SOURCE, ANY_TAG
from .request import Message, PersistentRequest, Request, wait_all, wait_any, wait_some
from .types import *  # noqa: F401,F403
from .types import Op, PremulSum, type_bytes, user_type
from .window import Window
