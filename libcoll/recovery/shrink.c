/* shrink.c: coll_comm_revoke, coll_comm_shrink, and the doors by which survivors find each other.
 */
#include "libcoll/recovery/shrink.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/recovery/shrink_internal.h"
#include "libcoll/recovery/shrink_listener.h"

#define REVOKE_NS (100 * COLLI_NS_PER_MS) /* how long a revocation waits until it is sent */

/* ---- doors ----------------------------------------------------------------------------------- */

void colli_shrink_open_listener(coll_comm *comm, int listen_fd,
                                const uint8_t secret[COLL_SECRET_BYTES]) {
  colli_shrink_listener *listener = calloc(1, sizeof(*listener));
  if (!listener) {
    close(listen_fd);
    return;
  }
  atomic_init(&listener->refs, 1);
  listener->listen_fd = listen_fd;
  memcpy(listener->secret, secret, sizeof(listener->secret));
  comm->shrink.listener = listener;
}

void colli_shrink_share(coll_comm *child, const coll_comm *comm) {
  child->shrink = (colli_shrink){.listener = comm->shrink.listener, .meet = comm->shrink.meet};
  if (child->shrink.listener)
    atomic_fetch_add(&child->shrink.listener->refs, 1);
  if (child->shrink.meet)
    colli_meet_hold(child->shrink.meet);
}

bool colli_shrink_note_origins(coll_comm *child, const coll_comm *comm, const int *members) {
  child->map.origins = malloc((size_t)child->nranks * sizeof(*child->map.origins));
  for (int r = 0; child->map.origins && r < child->nranks; r++) {
    int origin = members[r];
    coll_comm_origin_rank(comm, members[r], &origin);
    child->map.origins[r] = origin;
  }
  return child->map.origins != NULL;
}

void colli_shrink_close(coll_comm *comm) {
  colli_shrink_listener *listener = comm->shrink.listener;
  if (listener && atomic_fetch_sub(&listener->refs, 1) == 1) {
    close(listener->listen_fd);
    explicit_bzero(listener->secret, sizeof(listener->secret));
    free(listener);
  }
  if (comm->shrink.meet)
    colli_meet_leave(comm->shrink.meet, comm->comm_id, comm->rank, comm->nranks);
}

/* ---- public calls ---------------------------------------------------------------------------- */

/* Sends what the control links have queued, for a moment. */
static void flush(coll_comm *comm) {
  uint64_t until_ns = colli_now_ns() + REVOKE_NS;
  while (colli_ctrl_unsent(comm->family->ctrl) && colli_now_ns() < until_ns) {
    poll(&(struct pollfd){.fd = colli_ctrl_fd(comm->family->ctrl), .events = POLLIN}, 1, 5);
    colli_comm_poll_notices(comm);
  }
}

coll_status coll_comm_revoke(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (comm->failure.status == COLL_OK) {
    coll_error record;
    colli_comm_record(comm, &record, COLL_ERR_ABORTED, comm->rank, comm->exec.oldest);
    snprintf(record.message, sizeof(record.message),
             "coll_comm_revoke() was called on rank %d (host %s, pid %d); coll_comm_shrink() makes "
             "a communicator to go on with",
             comm->rank, comm->host, record.peer_pid);
    colli_comm_fail(comm, &record);
  }
  if (comm->family->ctrl && comm->world.now_ns == colli_world_real.now_ns)
    flush(comm);
  colli_call_leave(comm);
  return COLL_OK;
}

/* A communicator of one rank from one of one rank. */
static coll_status shrink_alone(coll_comm *comm, colli_settings *settings, coll_comm **child) {
  const colli_id id = {.listen_fd = -1};
  const int self = 0;
  coll_status status = colli_create(child, &id, 1, 0, settings, NULL);
  if (status != COLL_OK || colli_shrink_note_origins(*child, comm, &self))
    return status;
  coll_comm_destroy(child);
  return colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink", "no memory");
}

/* What the caller left open is as it was. */
static void inherit(coll_comm *child, const coll_comm *comm, const colli_settings *settings) {
  colli_ops_inherit(child, comm);
  child->calls.deterministic =
      settings->deterministic ? settings->deterministic : comm->calls.deterministic;
  child->calls.accumulate = settings->accumulate ? settings->accumulate : comm->calls.accumulate;
}

/* Shrinks in the way that fits the communicator's ranks. */
static coll_status shrink_any(coll_comm *comm, colli_settings *settings, coll_comm **child) {
  if (comm->world.now_ns != colli_world_real.now_ns)
    return colli_error_set(&settings->error, COLL_ERR_UNSUPPORTED, "shrink",
                           "a simulated communicator cannot be shrunk; make a new one");
  if (comm->nranks == 1)
    return shrink_alone(comm, settings, child);
  if (comm->shrink.meet)
    return colli_shrink_local(comm, settings, child);
  if (comm->shrink.listener)
    return colli_shrink_agree(comm, settings, child);
  return colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "shrink",
                         "there was no memory for what a shrink needs when this communicator was "
                         "made");
}

coll_status coll_comm_shrink(coll_comm *comm, const coll_config *config, coll_comm **child) {
  if (child)
    *child = NULL;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (!child) {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "shrink", "child is NULL");
    colli_call_leave(comm);
    return status;
  }
  colli_settings settings;
  status = colli_settings_inherit(&settings, comm, config);
  if (status == COLL_OK) {
    comm->shrink.count++;
    status = shrink_any(comm, &settings, child);
  }
  if (status == COLL_OK)
    inherit(*child, comm, &settings);
  else
    snprintf(settings.error.operation, sizeof(settings.error.operation), "shrink");
  if (status != COLL_OK && comm->failure.status == COLL_OK)
    comm->failure.error = settings.error;
  colli_call_leave(comm);
  return colli_settings_finish(&settings, status);
}
