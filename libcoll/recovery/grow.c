/* grow.c: rank 0 takes newcomers in. */
#include "libcoll/recovery/grow.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/progress/enter.h"

#define HIDE_LABEL "coll grow"
#define ARRIVE_NS  (20 * COLLI_NS_PER_MS) /* for newcomers in their handshake */

bool grow_hide(const colli_secret *entrance, const uint8_t once[COLL_SECRET_BYTES],
               const uint8_t in[COLL_SECRET_BYTES], uint8_t out[COLL_SECRET_BYTES]) {
  uint8_t text[sizeof(HIDE_LABEL) + COLL_SECRET_BYTES], mask[COLLI_MAC_BYTES];
  _Static_assert(COLLI_MAC_BYTES == COLL_SECRET_BYTES, "the mask covers the secret");
  memcpy(text, HIDE_LABEL, sizeof(HIDE_LABEL));
  memcpy(text + sizeof(HIDE_LABEL), once, COLL_SECRET_BYTES);
  bool ok = colli_hmac(entrance->bytes, text, sizeof(text), mask);
  for (int i = 0; i < COLL_SECRET_BYTES; i++)
    out[i] = in[i] ^ mask[i];
  explicit_bzero(mask, sizeof(mask));
  return ok;
}

/* ---- newcomers in a shrink ------------------------------------------------------------------- */

/* How many members are in the latest list. */
static int count_members(const shrink *s) {
  int count = 0;
  for (int r = 0; r < s->b.nranks; r++)
    count += s->listed[r];
  return count;
}

int grow_count(shrink *s) {
  if (!s->entrance)
    return 0;
  COLLI_ASSERT_RANK(s->b.rank == 0 && s->called == 0, s->b.rank);
  colli_entrance_tend(s->entrance, ARRIVE_NS);
  const int room = COLLI_MAX_RANKS - count_members(s);
  return s->entrance->count < room ? s->entrance->count : room;
}

/* What newcomers must know of the members. NULL: out of memory. */
static grow_member *describe_members(const shrink *s, int nmembers) {
  grow_member *members = calloc((size_t)nmembers, sizeof(*members));
  colli_rank_walk walk = colli_rank_walk_over(s->comm->table, COLLI_RANK_FIELD(control_addrs));
  for (int r = 0, i = 0; members && r < s->b.nranks; r++) {
    if (!s->listed[r])
      continue;
    int origin = r;
    coll_comm_origin_rank(s->comm, r, &origin);
    members[i].origin = origin;
    memcpy(members[i++].addrs, colli_rank_walk_to(&walk, r)->control_addrs, sizeof(members->addrs));
  }
  return members;
}

void grow_call_all(shrink *s, const shrink_order *order) {
  const int nmembers = count_members(s);
  grow_call call;
  memset(&call, 0, sizeof(call));
  call.kind = GROW_BUILD;
  call.nmembers = nmembers;
  call.nranks = nmembers + order->newcomers;
  call.origins_used = colli_shrink_next_origin(s->comm) + order->newcomers;
  call.epoch = s->comm->shrink.epoch + 1;
  call.comm_id = s->list;
  memcpy(call.salt, order->salt, sizeof(call.salt));
  memcpy(call.addrs, order->addrs, sizeof(call.addrs));
  s->called = order->newcomers;
  if (s->called == 0)
    return;
  grow_member *members = describe_members(s, nmembers);
  bool ok =
      members && grow_hide(s->entrance->id.secret, call.salt, s->id.secret->bytes, call.hidden);
  for (int i = 0; i < s->called; i++) {
    colli_newcomer *at = &s->entrance->at[i];
    call.rank = nmembers + i;
    if (!ok || !shrink_send(s, &at->conn, &call, sizeof(call), (const uint8_t *)members,
                            (size_t)nmembers * sizeof(*members)))
      shutdown(at->conn.fd, SHUT_RDWR);
  }
  free(members);
}

int grow_all_built(shrink *s) {
  int result = COLL_T_DONE;
  for (int i = 0; i < s->called; i++) {
    colli_newcomer *at = &s->entrance->at[i];
    if (at->in)
      continue;
    int got = colli_sealed_pull(&at->conn, &at->built, sizeof(at->built), &at->done);
    at->in = got == COLL_T_DONE;
    if (got > 0 || (at->in && at->built != s->list)) {
      char text[COLLI_ADDR_TEXT];
      return (int)boot_fail(&s->b, COLL_ERR_PEER_LOST, -1, NULL,
                            "a newcomer (pid %d, from %s) left while the communicator grew",
                            at->pid, colli_addr_text(&at->from, text));
    }
    result = at->in ? result : COLL_T_AGAIN;
  }
  return result;
}

void grow_watch(shrink *s) {
  for (int i = 0; i < s->called; i++)
    if (!s->entrance->at[i].in)
      boot_polls_add(&s->b.polls, s->entrance->at[i].conn.fd, POLLIN);
}

void grow_dismiss(shrink *s, bool committed) {
  grow_call call;
  memset(&call, 0, sizeof(call));
  call.kind = GROW_COMMIT;
  for (int i = 0; committed && i < s->called; i++)
    shrink_send(s, &s->entrance->at[i].conn, &call, sizeof(call), NULL, 0);
  if (s->called > 0) {
    colli_entrance_drop(s->entrance, s->called);
    s->entrance = NULL; /* the members continue without newcomers, so that this ends */
  }
  s->called = 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

#define NO_PROCESSES                                                                               \
  "only a communicator of processes can grow, not one of threads or a simulated one"

/* Whether newcomers can join this kind of communicator. */
static bool can_grow(const coll_comm *comm) {
  return comm->world.now_ns == colli_world_real.now_ns && !comm->shrink.meeting;
}

coll_status colli_grow_prepare(coll_comm *comm, colli_settings *settings) {
  colli_id id;
  if (!can_grow(comm))
    return colli_error_set(&settings->error, COLL_ERR_UNSUPPORTED, "grow", "%s", NO_PROCESSES);
  if (comm->nranks > 1 || comm->shrink.listener)
    return COLL_OK;
  coll_status status = colli_id_make(&id, &settings->params, &settings->error);
  if (status != COLL_OK)
    return status;
  colli_rank_info own = colli_rank_at(comm->table, 0);
  memcpy(own.control_addrs, id.addrs, sizeof(id.addrs));
  if (colli_rank_table_replace(comm->table, &own))
    comm->shrink.listener = colli_shrink_listener_create(id.listen_fd, id.secret);
  else
    colli_id_close(&id);
  colli_id_release(&id);
  return comm->shrink.listener ? COLL_OK
                               : colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "grow",
                                                 "out of memory for a listener");
}

coll_status coll_comm_join_id(coll_comm *comm, coll_id *id) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  coll_error error;
  colli_error_clear(&error);
  colli_entrance **entrance = &comm->shrink.entrance;
  if (!id)
    status = colli_error_set(&error, COLL_ERR_INVALID_ARGUMENT, "join_id", "id is NULL");
  else if (comm->rank != 0)
    status = colli_error_set(&error, COLL_ERR_INVALID_USAGE, "join_id",
                             "newcomers wait at rank 0, and this is rank %d", comm->rank);
  else if (!can_grow(comm))
    status = colli_error_set(&error, COLL_ERR_UNSUPPORTED, "join_id", "%s", NO_PROCESSES);
  else if (!*entrance && !(*entrance = colli_entrance_open(&comm->params, &comm->log, &error)))
    status = error.status;
  else
    colli_id_pack(&(*entrance)->id, id);
  if (status != COLL_OK)
    status = colli_comm_refuse_as(comm, &error);
  colli_call_leave(comm);
  return status;
}

coll_status coll_comm_joiners(coll_comm *comm, int *count) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  colli_entrance *entrance = comm->shrink.entrance;
  if (!count) {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "joiners", "count is NULL");
  } else {
    if (entrance)
      colli_entrance_tend(entrance, ARRIVE_NS);
    *count = entrance ? entrance->count : 0;
  }
  colli_call_leave(comm);
  return status;
}

coll_status coll_comm_epoch(const coll_comm *comm, uint64_t *epoch) {
  if (!comm || !epoch)
    return COLL_ERR_INVALID_ARGUMENT;
  if (comm->entry.guard.inherited)
    return COLL_ERR_INVALID_USAGE;
  *epoch = comm->shrink.epoch;
  return COLL_OK;
}
