"""libcoll as a backend of torch.distributed:

    import coll_torch
    import torch.distributed as dist
    dist.init_process_group("coll")      # under torchrun, or with any init_method

docs/bindings/torch.md says what it supports."""
import atexit

import torch  # its libraries are those of the extension
from torch import distributed as dist

from ._C import ProcessGroupColl

__all__ = ["ProcessGroupColl", "abort", "monitored_barrier"]


def _create(options, _):
    """Makes a group: called by torch.distributed. Its communicator's name, which errors and collctl show, says which
    ranks of the job are those of the group."""
    ranks = list(options.global_ranks_in_group)
    name = f"torch {options.group_id}" + (f" of {ranks}" if ranks != list(range(len(ranks))) else "")
    return ProcessGroupColl(options.store, options.group_rank, options.group_size, options.timeout, name,
                            torch.cuda.is_available() and torch.cuda.is_initialized())


def _group_of(group):
    """libcoll's group behind one of torch.distributed; None: the default one."""
    group = group or dist.distributed_c10d._get_default_group()
    if not isinstance(group, ProcessGroupColl) and hasattr(group, "_get_backend"):  # torch 2
        group = group._get_backend(torch.device("cpu"))
    if not isinstance(group, ProcessGroupColl):
        raise ValueError("coll: this is no group of the backend coll")
    return group


def monitored_barrier(group=None, timeout=None):
    """A barrier whose error names all ranks that have not come within the timeout (a timedelta; by default the
    group's). torch.distributed's function of this name is for gloo alone."""
    _group_of(group).monitored_barrier(timeout)


def abort(group=None):
    """Ends all operations of a group with an error, on all ranks, from any thread."""
    _group_of(group).abort()


def _leave():
    """At the end of the process: if operations are left in which this rank waits for others, it would wait here, too, and
    so would they. They are told instead."""
    for group in list(dist.distributed_c10d._pg_map):
        try:
            _group_of(group)._abort_if_busy()
        except (ValueError, RuntimeError):
            pass  # a group of another backend, or on other devices


atexit.register(_leave)
if int(torch.__version__.split(".")[0]) >= 2:
    dist.Backend.register_backend("coll", _create, extended_api=True, devices=["cpu", "cuda"])
else:
    dist.Backend.register_backend("coll", _create, extended_api=True)
