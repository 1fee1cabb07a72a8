/* window.c: creates and ends windows, which are collective calls. */
#include <stdlib.h>

#include "libcoll/comm/comm.h"
#include "libcoll/comm/pool.h"
#include "libcoll/p2p/p2p_tag.h"
#include "libcoll/p2p/window.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/run.h"

/* A window that no other rank knows yet, or NULL if out of memory. */
static coll_window *make_window(coll_comm *comm, void *base, size_t bytes) {
  size_t n = (size_t)comm->nranks;
  coll_window *window = calloc(1, sizeof(*window));
  if (!window)
    return NULL;
  window->comm = comm;
  window->nranks = comm->nranks;
  window->base = base;
  window->bytes = bytes;
  window->left = comm->nranks - 1;
  window->sizes = calloc(n, sizeof(*window->sizes));
  window->signals = calloc(n, sizeof(*window->signals));
  window->ended = calloc(n, sizeof(*window->ended));
  window->ends = calloc(n, sizeof(*window->ends));
  bool ok = window->sizes && window->signals && window->ended && window->ends;
  colli_p2p_add_window(&comm->p2p, window);
  if (ok) {
    window->ends[comm->rank].over = true;
    return window;
  }
  colli_p2p_remove_window(&comm->p2p, window);
  comm->p2p.nwindows--; /* the other ranks may not have begun this one */
  return NULL;
}

/* Exchanges the lengths of all ranks' memory. */
static coll_status exchange_sizes(coll_comm *comm, coll_window *window) {
  uint64_t mine = window->bytes;
  colli_call call = {.name = "window_create",
                     .coll = COLLI_ALLGATHER,
                     .sendbuf = &mine,
                     .recvbuf = window->sizes,
                     .count = 1,
                     .type = COLL_UINT64,
                     .op = COLLI_MAKES_WINDOW};
  coll_request *op;
  coll_status status = colli_call_start(comm, &call, &op);
  if (status != COLL_OK) {
    comm->p2p.nwindows--; /* the other ranks know of none */
    return status;
  }
  /* Puts may arrive as soon as this rank has sent its size. */
  if (colli_p2p_connect_all(&comm->p2p, op) != 0 && comm->failure.status != COLL_OK)
    status = comm->failure.status;
  coll_status ended = colli_call_wait(comm, op);
  colli_request_put(op);
  return status == COLL_OK ? ended : status;
}

static coll_status create_window(coll_comm *comm, void *base, size_t bytes, coll_window **out) {
  if (comm->failure.status != COLL_OK)
    return comm->failure.status;
  if (!out)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "window_create", "window is NULL");
  *out = NULL;
  if (bytes && !base)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "window_create",
                             "base is NULL, but bytes is %zu", bytes);
  if (comm->gpu && bytes && colli_gpu_device_of(comm->gpu, base) != COLLI_GPU_HOST)
    return colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, "window_create",
                             "base is in GPU memory, and windows are in host memory; a put may "
                             "come from GPU memory");
  coll_window *window = make_window(comm, base, bytes);
  if (!window)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, "window_create",
                             "out of memory for a window of %d ranks", comm->nranks);
  coll_status status = exchange_sizes(comm, window);
  if (status == COLL_OK)
    *out = window;
  else
    colli_p2p_remove_window(&comm->p2p, window);
  return status;
}

coll_status coll_window_create(coll_comm *comm, void *base, size_t bytes, coll_window **window) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = create_window(comm, base, bytes, window);
  colli_call_leave(comm);
  return status;
}

/* Tells all ranks that this one no longer writes, and waits until all have done the same. */
static coll_status end_window(coll_comm *comm, coll_window *window) {
  coll_request *op = colli_request_get_message(comm);
  if (!op)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, "window_destroy",
                             "out of memory for a request");
  op->name = "window_destroy";
  op->partner = -1;
  op->moved_at = comm->watch.waited_ns;
  op->tag = p2p_tag_shown(0, COLL_INT8);
  colli_p2p_op *p2p = colli_p2p_op_of(op);
  p2p->nposts = 1;
  p2p->post[0] = (colli_post){.op = p2p, .kind = COLLI_POST_ENDS, .peer = -1, .window = window};
  colli_p2p_start(&comm->p2p, p2p);
  coll_status status = colli_call_wait(comm, op);
  colli_request_put(op);
  return status;
}

static coll_status destroy_window(coll_comm *comm, coll_window **out) {
  coll_window *window = *out;
  if (comm->calls.group.depth > 0)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "window_destroy",
                             "a group is open, which may hold operations on the window; end it "
                             "first");
  if (window->inflight > 0)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, "window_destroy",
                             "%d operations on the window are in flight; complete them first",
                             window->inflight);
  coll_status status = comm->failure.status;
  if (status == COLL_OK && colli_streams_unstarted(comm)) /* among them may be puts */
    status = colli_comm_await_streams(comm, "window_destroy");
  if (status == COLL_OK)
    status = end_window(comm, window);
  if (status == COLL_ERR_NO_MEMORY && comm->failure.status == COLL_OK)
    return status;
  *out = NULL;
  colli_p2p_remove_window(&comm->p2p, window);
  return status;
}

coll_status coll_window_destroy(coll_window **window) {
  if (!window || !*window)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = (*window)->comm;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = destroy_window(comm, window);
  colli_call_leave(comm);
  return status;
}
