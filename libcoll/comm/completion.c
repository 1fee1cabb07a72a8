/* completion.c: callbacks of requests, and the descriptor of a communicator. */
#include "libcoll/comm/completion.h"

#include <errno.h>
#include <sys/eventfd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/fork.h"
#include "libcoll/comm/pool.h"

/* An operation is complete, but those who ended it may be in the middle of something. */
static void note_end(void *ctx, coll_request *op) {
  coll_comm *comm = ctx;
  colli_family *family = comm->family;
  if (!op->callback) {
    colli_bell_ring(comm);
    return;
  }
  op->next = NULL;
  if (family->ended)
    family->last_ended->next = op;
  else
    family->ended = op;
  family->last_ended = op;
}

void colli_completion_watch(coll_comm *comm) {
  comm->exec.ended = note_end;
}

void colli_completion_end(coll_request *request) {
  request->done = true;
  note_end(request->comm, request);
}

void colli_completion_call(colli_family *family) {
  while (family->ended) {
    coll_request *op = family->ended;
    const coll_request_fn callback = op->callback;
    void *context = op->callback_context;
    COLLI_ASSERT_RANK(op->done && callback, family->rank);
    family->ended = op->next;
    if (op->stage_out != COLLI_STAGE_NONE)
      colli_call_finish(&op->comm->calls, op);
    const coll_status status = op->status;
    op->callback = NULL;
    colli_request_put(op);
    callback(context, status);
  }
}

int colli_bell_make(coll_comm *comm) {
  int fd = COLLI_FD(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC));
  if (fd < 0)
    return errno;
  comm->bell.fd = fd;
  comm->bell.rung = false;
  atomic_store(&comm->bell.is_there, true);
  colli_completion_watch(comm);
  return 0;
}

/* Whoever looks at the descriptor reads it first and then enters, which clears `rung`. So an end
 * that finds `rung` set will be seen by a look that is still to come. */
void colli_bell_ring(coll_comm *comm) {
  if (comm->bell.rung)
    return;
  comm->bell.rung = true;
  colli_bell_ring_anyway(comm);
}

void colli_bell_ring_anyway(coll_comm *comm) {
  if (atomic_load(&comm->bell.is_there))
    (void)eventfd_write(comm->bell.fd, 1); /* fails only if the counter is full: still readable */
}

void colli_bell_free(coll_comm *comm) {
  if (atomic_load(&comm->bell.is_there))
    colli_fd_close(comm->bell.fd);
}
