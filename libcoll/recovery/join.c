/* join.c: coll_comm_join: a newcomer waits at the entrance of a communicator until it grows. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/recovery/grow.h"

/* The state of one call. */
typedef struct join {
  boot b; /* has no rank yet */
  colli_id id;
  colli_rank_info mine;
  boot_shortage shortage;
  colli_settings *settings;
  uint64_t patience_ns; /* create_timeout_ms */
  boot_dial dial;
  colli_sealed conn; /* to rank 0 */
  grow_call call;    /* the last one */
  int failures;      /* how often it was called, and nothing came of it */
  coll_error last;   /* why */
} join;

/* The deadline has passed. */
static coll_status fail_late(join *j) {
  char why[600];
  const double seconds = (double)(colli_now_ns() - j->b.start_ns) / (double)COLLI_NS_PER_S;
  if (j->failures > 0)
    snprintf(why, sizeof(why),
             "its ranks tried to take it in %d time(s), the last one failed: %.400s", j->failures,
             j->last.message);
  else if (j->conn.fd >= 0)
    snprintf(why, sizeof(why),
             "it waited at rank 0, but the communicator did not grow: look whether its ranks call "
             "coll_comm_grow()");
  else
    boot_dial_describe(&j->dial, why, sizeof(why));
  return boot_fail(
      &j->b,
      j->conn.fd >= 0 || j->dial.answered || j->failures ? COLL_ERR_TIMEOUT : COLL_ERR_UNREACHABLE,
      0, NULL,
      "the newcomer on host %s did not get into a communicator within %.3g s: %s; look whether its "
      "rank 0 lives and calls coll_comm_joiners() or coll_comm_grow(), and for a firewall "
      "(COLL_PORT_RANGE); COLL_CREATE_TIMEOUT_MS gives more time",
      j->mine.host, seconds, why);
}

/* Rank 0 is gone. */
static coll_status fail_gone(join *j) {
  return boot_fail(&j->b, COLL_ERR_PEER_LOST, 0, NULL,
                   "nobody lets the newcomer on host %s in: the process that made the id ended, or "
                   "destroyed its communicator; get a new id from the present rank 0 "
                   "(coll_comm_join_id)",
                   j->mine.host);
}

/* Waits for an event on the connection. False: the deadline has passed. */
static bool wait_conn(join *j, short events) {
  if (colli_now_ns() >= j->b.deadline_ns)
    return false;
  boot_polls_clear(&j->b.polls, j->b.deadline_ns);
  boot_polls_add(&j->b.polls, j->conn.fd, colli_sealed_events(&j->conn, events));
  boot_note_errno(&j->b, boot_polls_wait(&j->b.polls), true);
  return true;
}

/* The result of a message to or from rank 0. */
static coll_status end_message(join *j, int result) {
  if (result == COLL_T_DONE)
    return COLL_OK;
  if (result == COLL_T_AGAIN)
    return fail_late(j);
  boot_note_errno(&j->b, result, true);
  return result == EBADMSG ? boot_fail_altered(&j->b, 0, NULL) : fail_gone(j);
}

static coll_status send_message(join *j, const void *msg, size_t bytes) {
  size_t done = 0;
  int result;
  while ((result = colli_sealed_push(&j->conn, msg, bytes, &done)) == COLL_T_AGAIN &&
         wait_conn(j, POLLOUT))
    ;
  return end_message(j, result);
}

static coll_status receive(join *j, void *msg, size_t bytes) {
  size_t done = 0;
  int result;
  while ((result = colli_sealed_pull(&j->conn, msg, bytes, &done)) == COLL_T_AGAIN &&
         wait_conn(j, POLLIN))
    ;
  return end_message(j, result);
}

/* Reaches rank 0. */
static coll_status reach(join *j) {
  boot *b = &j->b;
  boot_dial_begin(b, &j->dial, COLLI_HELLO_JOIN, 0, j->id.addrs);
  for (;;) {
    int result = boot_dial_step(b, &j->dial);
    if (result == COLL_T_DONE) {
      j->conn = j->dial.conn;
      return COLL_OK;
    }
    if (result > 0 && j->dial.altered)
      return boot_fail_altered(b, 0, NULL);
    if (result > 0 && j->dial.tls_differs)
      return boot_fail(
          b, COLL_ERR_MISMATCH, 0, NULL,
          "the newcomer on host %s has COLL_TLS=%d, but rank 0 has COLL_TLS=%d; set it "
          "to the same",
          j->mine.host, b->tls, !b->tls);
    if (result != COLL_T_AGAIN)
      return boot_fail(b, (coll_status)result, 0, NULL,
                       "another program, or one with another id, listens where the newcomer on "
                       "host %s should get in; get a new id (coll_comm_join_id)",
                       j->mine.host);
    if (boot_dial_gone(&j->dial, true))
      return fail_gone(j);
    if (colli_now_ns() >= b->deadline_ns)
      return fail_late(j);
    boot_polls_clear(&b->polls, b->deadline_ns);
    boot_dial_watch(b, &j->dial);
    boot_note_errno(b, boot_polls_wait(&b->polls), true);
  }
}

/* Whether a call makes sense. */
static bool is_sound(const grow_call *call) {
  bool sound = call->kind == GROW_BUILD && call->nmembers > 0 && call->nmembers <= call->rank &&
               call->rank < call->nranks && call->nranks <= COLLI_MAX_RANKS &&
               call->origins_used >= call->nranks;
  for (int i = 0; i < COLLI_MAX_ADDRS; i++)
    sound = sound && colli_addr_sound(&call->addrs[i]);
  return sound;
}

/* Waits until rank 0 calls, and learns who the members are. */
static coll_status await_call(join *j, grow_member **members) {
  const grow_call *call = &j->call;
  coll_status status = receive(j, &j->call, sizeof(j->call));
  if (status != COLL_OK)
    return status;
  const char *senseless = "rank 0 sent a call that makes no sense";
  if (!is_sound(call))
    return boot_fail(&j->b, COLL_ERR_PROTOCOL, 0, NULL, "%s", senseless);
  *members = calloc((size_t)call->nmembers, sizeof(**members));
  if (!*members)
    return boot_fail(&j->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for %d ranks",
                     call->nranks);
  status = receive(j, *members, (size_t)call->nmembers * sizeof(**members));
  bool sound = true;
  for (int r = 0; status == COLL_OK && r < call->nmembers; r++) {
    const grow_member *at = &(*members)[r];
    sound = sound && at->origin >= 0 && at->origin < call->origins_used;
    for (int i = 0; i < COLLI_MAX_ADDRS; i++)
      sound = sound && colli_addr_sound(&at->addrs[i]);
  }
  return sound ? status : boot_fail(&j->b, COLL_ERR_PROTOCOL, 0, NULL, "%s", senseless);
}

/* What is known of a new communicator's members. */
typedef struct known_members {
  const grow_member *members;
  int count; /* further ranks are new */
} known_members;

/* The listener of a member stays where it was. */
static void keep_listener(void *ctx, int rank, colli_rank_info *info) {
  const known_members *known = ctx;
  if (rank < known->count)
    memcpy(info->control_addrs, known->members[rank].addrs, sizeof(info->control_addrs));
}

/* Records in a new communicator what its members know of each other. */
static bool acquaint(join *j, coll_comm *comm, const grow_member *members) {
  const grow_call *call = &j->call;
  comm->shrink.epoch = call->epoch;
  comm->shrink.origins_used = call->origins_used;
  comm->map.origins = malloc((size_t)call->nranks * sizeof(*comm->map.origins));
  for (int r = 0; comm->map.origins && r < call->nranks; r++)
    comm->map.origins[r] =
        r < call->nmembers ? members[r].origin : call->origins_used - call->nranks + r;
  known_members known = {members, call->nmembers};
  return comm->map.origins && colli_shrink_change_records(comm, keep_listener, &known);
}

/* Makes the new communicator with the others, and waits until it is decided that it exists. */
static coll_status build(join *j, const grow_member *members, coll_comm **comm) {
  grow_call *call = &j->call;
  const int rank0 = 0;
  colli_secret *known = colli_secret_create();
  colli_lifelines lifelines = {
      .lifelines = &j->conn.fd, .lifeline_ranks = &rank0, .nlifelines = 1, .keep = known};
  colli_id id = {.listen_fd = -1, .comm_id = call->comm_id};
  memcpy(id.addrs, call->addrs, sizeof(id.addrs));
  if (known && grow_hide(j->id.secret, call->salt, call->hidden, known->bytes))
    id.secret = shrink_new_secret(known, call->salt);
  coll_status status = COLL_OK;
  if (id.secret)
    status = colli_create(comm, &id, call->nranks, call->rank, j->settings, &lifelines);
  if (!id.secret || (status == COLL_OK && !acquaint(j, *comm, members)))
    status =
        boot_fail(&j->b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for %d ranks", call->nranks);
  colli_id_release(&id);
  colli_secret_release(known);
  j->b.deadline_ns = colli_now_ns() + j->patience_ns;
  if (status == COLL_OK)
    status = send_message(j, &call->comm_id, sizeof(call->comm_id));
  if (status == COLL_OK)
    status = receive(j, call, sizeof(*call));
  if (status == COLL_OK && call->kind != GROW_COMMIT)
    status = boot_fail(&j->b, COLL_ERR_PROTOCOL, 0, NULL, "rank 0 did not commit the growth");
  if (status != COLL_OK && *comm) {
    /* The others may have it already. A goodbye would only say that this rank does not answer, and
     * count against their majority. */
    (*comm)->family->unborn = true;
    coll_comm_destroy(comm);
  }
  return status;
}

/* Waits at the entrance, again if a growth failed because of others. */
static coll_status take_part(join *j, coll_comm **comm) {
  const uint64_t until_ns = j->b.deadline_ns;
  for (;;) {
    grow_member *members = NULL;
    coll_status status = reach(j);
    if (status == COLL_OK)
      status = await_call(j, &members);
    const bool called = status == COLL_OK;
    if (called)
      status = build(j, members, comm);
    free(members);
    colli_sealed_close(&j->conn);
    boot_dial_close(&j->dial);
    const bool in_vain = status == COLL_ERR_PEER_LOST || status == COLL_ERR_TIMEOUT ||
                         status == COLL_ERR_ABORTED; /* the growth, not this call */
    if (!called || !in_vain)
      return status;
    j->failures++;
    j->last = *j->b.error;
    j->b.deadline_ns = until_ns;
  }
}

/* Prepares the state. */
static coll_status prepare(join *j, colli_settings *settings) {
  coll_error *error = &settings->error;
  const uint64_t now_ns = colli_now_ns();
  j->patience_ns =
      (uint64_t)settings->params.number[COLLI_PARAM_CREATE_TIMEOUT_MS] * COLLI_NS_PER_MS;
  j->settings = settings;
  j->b = (boot){.id = &j->id,
                .shortage = &j->shortage,
                .nranks = 1,
                .mine = &j->mine,
                .log = &settings->log,
                .start_ns = now_ns,
                .deadline_ns = now_ns + j->patience_ns,
                .hello_word = (uint64_t)getpid(),
                .tls = settings->params.number[COLLI_PARAM_TLS] != 0,
                .error = error};
  gethostname(j->mine.host, sizeof(j->mine.host) - 1);
  if (colli_net_interfaces(settings->params.text[COLLI_PARAM_TCP_IFNAME], j->mine.control_addrs,
                           COLLI_MAX_ADDRS, error) == 0)
    return error->status;
  return boot_polls_create(&j->b.polls, BOOT_ATTEMPTS_MAX + 4)
             ? COLL_OK
             : colli_error_set(error, COLL_ERR_NO_MEMORY, "join", "out of memory to join");
}

coll_status coll_comm_join(coll_comm **comm, const coll_id *id, const coll_config *config) {
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  *comm = NULL;
  colli_settings settings;
  join *j = calloc(1, sizeof(*j));
  coll_status status = colli_settings_load(&settings, config);
  if (status == COLL_OK && (!id || !j))
    status = colli_error_set(&settings.error, id ? COLL_ERR_NO_MEMORY : COLL_ERR_INVALID_ARGUMENT,
                             "join", id ? "out of memory to join" : "id is NULL");
  if (status == COLL_OK) {
    j->conn = COLLI_SEALED_NONE;
    status = colli_id_unpack(id, &j->id, &settings.error);
    if (status == COLL_OK)
      status = prepare(j, &settings);
    if (status == COLL_OK)
      status = take_part(j, comm);
    if (status == COLL_OK)
      colli_error_clear(&settings.error);
    else
      snprintf(settings.error.operation, sizeof(settings.error.operation), "join");
    boot_polls_destroy(&j->b.polls);
    colli_id_release(&j->id);
    explicit_bzero(j, sizeof(*j));
  }
  free(j);
  return colli_settings_finish(&settings, status);
}
