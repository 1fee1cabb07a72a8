/*
 * fuzz_shrink.c: the messages of a shrink, an agreement or a growth from a member that knows the
 * secret: batches, orders and calls, sealed as they must be, with any contents. One sound rank
 * makes a public call: rank 0, which leads, rank 1, which passes messages on between rank 0 and
 * those below, or a newcomer. The member is a thread that plays all other ranks.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "libcoll/base/fork.h"
#include "libcoll/recovery/grow.h"

enum { NRANKS = 6, RUNS = 64 /* of one communicator */, BODY_BYTES = 65536 };

static const coll_config patient = {.size = sizeof(coll_config), .create_timeout_ms = 20000};
static const coll_config hasty = {.size = sizeof(coll_config), .create_timeout_ms = 200};

static coll_comm *comms[NRANKS];

/* What the member knows. */
typedef struct member {
  const uint8_t *data;
  size_t bytes;
  const uint8_t *secret;
  int listen_fd; /* of the rank that it plays, if the sound one dials it */
  int sound;     /* the sound rank; -1: a newcomer */
  colli_addr to; /* its listener */
  uint64_t comm_id, word;
  bool agrees;
  atomic_bool over;          /* the call has returned */
  colli_sealed up;           /* the sound rank is a child there, */
  colli_sealed down[NRANKS]; /* and the parent here, of these ranks */
  const colli_rank_table *table;
  uint64_t comm_id_told; /* in the last order, */
  uint64_t ballot_told;  /* as is this */
} member;

static unsigned take(member *m) {
  uint8_t byte;
  fuzz_take(&m->data, &m->bytes, &byte, 1);
  return byte;
}

/* Changes some bytes of a message, which is right otherwise. */
static void spoil(member *m, void *message, size_t bytes) {
  for (unsigned left = take(m) % 8; left > 0 && m->bytes > 0; left--) {
    uint16_t at;
    fuzz_take(&m->data, &m->bytes, &at, sizeof at);
    ((uint8_t *)message)[at % bytes] = (uint8_t)take(m);
  }
}

/* Nobody listens there, and nothing is sent anywhere else. */
static void tame(colli_addr *addrs) {
  for (int i = 0; i < COLLI_MAX_ADDRS; i++)
    if (colli_addr_sound(&addrs[i]) && addrs[i].family)
      addrs[i] = (colli_addr){.family = 4, .prefix = 8, .port = 1, .ip = {127, 0, 0, 1}};
}

/* ---- connections ----------------------------------------------------------------------------- */

static void wait_for(int fd, short events) {
  poll(&(struct pollfd){.fd = fd, .events = events}, 1, 2);
}

/* Proves that it knows the secret, and gets a proof. */
static bool prove(member *m, colli_auth *auth) {
  int result;
  while ((result = colli_auth_poll(auth)) == COLL_T_AGAIN && !atomic_load(&m->over))
    wait_for(auth->fd, colli_auth_events(auth));
  return result == COLL_T_DONE;
}

/* Takes the sound rank's connection. */
static bool accept_sound(member *m, colli_sealed *conn) {
  colli_auth auth;
  int fd = -1;
  while (fd < 0 && !atomic_load(&m->over)) {
    wait_for(m->listen_fd, POLLIN);
    fd = colli_net_accept(m->listen_fd);
  }
  if (fd < 0)
    return false;
  setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &(int){0}, sizeof(int)); /* of the listener */
  colli_auth_accept(&auth, fd, m->secret);
  bool proved = prove(m, &auth) && colli_auth_answer(&auth, true) == 0;
  if (proved)
    colli_sealed_open(conn, &auth);
  else
    colli_fd_close(fd);
  return proved;
}

/* Dials the sound rank, as rank `rank`. */
static bool dial_sound(member *m, int rank, colli_sealed *conn) {
  colli_auth auth;
  int fd = colli_net_connect(&m->to);
  if (fd < 0)
    return false;
  wait_for(fd, POLLOUT);
  colli_auth_connect(&auth, fd, m->secret, COLLI_HELLO_SHRINK, rank, m->sound, m->comm_id, m->word);
  bool proved = prove(m, &auth);
  if (proved)
    colli_sealed_open(conn, &auth);
  else
    colli_fd_close(fd);
  return proved;
}

/* Sends a message; closes the connection if that fails. */
static void push(const member *m, colli_sealed *conn, const void *message, size_t bytes) {
  size_t done = 0;
  int result = ESHUTDOWN;
  while (conn->fd >= 0 && !atomic_load(&m->over) &&
         (result = colli_sealed_push(conn, message, bytes, &done)) == COLL_T_AGAIN)
    wait_for(conn->fd, POLLOUT);
  if (result != COLL_T_DONE)
    colli_sealed_close(conn);
}

/* Receives a message; false if none comes. */
static bool pull(member *m, colli_sealed *conn, void *message, size_t bytes) {
  size_t done = 0;
  int result;
  while ((result = colli_sealed_pull(conn, message, bytes, &done)) == COLL_T_AGAIN &&
         !atomic_load(&m->over))
    wait_for(conn->fd, POLLIN);
  return result == COLL_T_DONE;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A ballot that a rank may know, or a wrong one. */
static uint64_t take_ballot(member *m) {
  const unsigned how = take(m);
  return how & 8 ? m->ballot_told
                 : (how & 7) * shrink_next_ballot(0, 0) | (how >> 4) % (NRANKS + 1);
}

static void push_order(member *m) {
  shrink_order order;
  uint8_t flags[NRANKS];
  memset(&order, 0, sizeof order);
  memset(flags, SHRINK_LISTED | SHRINK_FOR, sizeof flags);
  order.kind = take(m) % 9;
  order.nranks = NRANKS;
  order.ballot = take_ballot(m);
  order.comm_id = 1 + take(m) % 4;
  order.newcomers = take(m) % 8 == 7;
  order.addrs[0] = (colli_addr){.family = 4, .prefix = 8, .port = 1, .ip = {127, 0, 0, 1}};
  spoil(m, &order, sizeof order);
  spoil(m, flags, sizeof flags);
  tame(order.addrs);
  m->ballot_told = order.ballot;
  m->comm_id_told = order.comm_id;
  push(m, &m->up, &order, sizeof order);
  push(m, &m->up, flags, sizeof flags);
}

/* The contents of a part; how many bytes. */
static size_t fill_checkin(member *m, uint8_t *to) {
  shrink_checkin head = {.task = m->agrees ? SHRINK_AGREE : SHRINK_SHRINK, .word = take(m)};
  const unsigned how = take(m);
  if (how & 1) {
    head.ballot = take_ballot(m);
    head.list = how & 2 ? m->comm_id_told : how >> 2 & 3;
    head.adopted = how & 16 ? head.list : how >> 5 & 1;
    head.renewed = how >> 6 & 1;
    head.newcomers = how >> 7 & 1;
  } else if (how & 2) {
    head.asked = m->ballot_told;
  }
  spoil(m, &head, sizeof head);
  memcpy(to, &head, sizeof head);
  if (!head.ballot)
    return sizeof head;
  memset(to + sizeof head, SHRINK_LISTED, NRANKS);
  spoil(m, to + sizeof head, NRANKS);
  return sizeof head + NRANKS;
}

static size_t fill_record(member *m, int rank, uint8_t *to) {
  colli_rank_info record = colli_rank_at(m->table, (int)((unsigned)rank % NRANKS));
  spoil(m, &record, sizeof record);
  tame(record.control_addrs);
  memcpy(to, &record, sizeof record);
  return sizeof record;
}

static size_t fill_report(member *m, uint8_t *to) {
  shrink_report report;
  memset(&report, 0, sizeof report);
  report.ballot = take_ballot(m);
  report.report.status = take(m) % 20;
  report.report.error = (coll_error)COLL_ERROR_INIT;
  spoil(m, &report, sizeof report);
  memcpy(to, &report, sizeof report);
  return sizeof report;
}

/* Appends a part; where the next one begins. */
static uint8_t *add_part(member *m, int rank, uint8_t *at) {
  static const uint32_t kinds[] = {SHRINK_CHECKIN, SHRINK_RECORD, SHRINK_REPORT,
                                   SHRINK_TOLD,    SHRINK_LOST,   0};
  const unsigned how = take(m);
  shrink_part part = {.kind = kinds[how % 6], .rank = rank, .attempt = 1 + (how >> 3 & 3)};
  if (how & 32)
    part.rank = take(m) % (NRANKS + 2);
  uint8_t *bytes = at + sizeof part;
  if (part.kind == SHRINK_CHECKIN)
    part.bytes = (uint32_t)fill_checkin(m, bytes);
  else if (part.kind == SHRINK_RECORD)
    part.bytes = (uint32_t)fill_record(m, part.rank, bytes);
  else if (part.kind == SHRINK_REPORT)
    part.bytes = (uint32_t)fill_report(m, bytes);
  uint8_t *end = bytes + part.bytes;
  if (how & 64)
    spoil(m, &part, sizeof part);
  memcpy(at, &part, sizeof part);
  return end;
}

/* Sends a batch of a rank. */
static void push_batch(member *m, int rank) {
  static uint8_t body[BODY_BYTES];
  uint8_t *at = body + NRANKS;
  shrink_batch head = {.magic = SHRINK_MAGIC, .nranks = NRANKS, .aborter = -1, .altered = -1};
  memset(body, 0, sizeof body);
  spoil(m, body, NRANKS);
  for (head.nparts = 0; head.nparts < 8 && take(m) % 8; head.nparts++)
    at = add_part(m, rank, at);
  head.bytes = (uint32_t)(at - body - NRANKS);
  if (take(m) & 1)
    spoil(m, &head, sizeof head);
  push(m, &m->down[rank], &head, sizeof head);
  if (head.bytes <= BODY_BYTES - NRANKS)
    push(m, &m->down[rank], body, NRANKS + head.bytes);
}

/* The call was aborted on this rank. */
static void push_abort(const member *m, int rank, colli_sealed *conn) {
  const shrink_batch head = {
      .magic = SHRINK_MAGIC, .nranks = NRANKS, .aborter = rank, .altered = -1};
  const uint8_t flags[NRANKS] = {0};
  push(m, conn, &head, sizeof head);
  push(m, conn, flags, sizeof flags);
}

/* The call ends. */
static void push_end(const member *m, colli_sealed *conn) {
  shrink_order end = {.kind = SHRINK_END, .nranks = NRANKS, .error = COLL_ERROR_INIT};
  uint8_t flags[NRANKS];
  memset(flags, SHRINK_FOR, sizeof flags);
  end.error.status = COLL_ERR_TIMEOUT;
  push(m, conn, &end, sizeof end);
  push(m, conn, flags, sizeof flags);
}

static void push_call(member *m, colli_sealed *conn) {
  grow_call call;
  grow_member members[NRANKS];
  memset(&call, 0, sizeof call);
  memset(members, 0, sizeof members);
  call.kind = GROW_BUILD;
  call.nranks = 2 + take(m) % NRANKS;
  call.nmembers = 1 + take(m) % 2;
  call.rank = call.nmembers;
  call.origins_used = call.nranks + take(m) % 3;
  call.comm_id = 5;
  call.addrs[0] = (colli_addr){.family = 4, .prefix = 8, .port = 1, .ip = {127, 0, 0, 1}};
  spoil(m, &call, sizeof call);
  tame(call.addrs);
  spoil(m, members, sizeof members);
  push(m, conn, &call, sizeof call);
  for (int i = 0; i < call.nmembers && i < NRANKS; i += NRANKS)
    push(m, conn, members,
         (size_t)(call.nmembers < NRANKS ? call.nmembers : NRANKS) * sizeof(*members));
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* Takes the sound rank's connection if it dials its parent now. */
static void look_for_child(member *m) {
  if (m->up.fd < 0 && poll(&(struct pollfd){.fd = m->listen_fd, .events = POLLIN}, 1, 0) > 0 &&
      !accept_sound(m, &m->up))
    m->up = COLLI_SEALED_NONE;
}

/* Waits until the sound rank sends something, and drops it. */
static void drain(colli_sealed *conn) {
  uint8_t bytes[4096];
  wait_for(conn->fd, POLLIN);
  if (recv(conn->fd, bytes, sizeof bytes, MSG_DONTWAIT) == 0)
    colli_sealed_close(conn);
}

/* Does what the next bytes of the input say. */
static void act(member *m) {
  const unsigned what = take(m);
  const int rank = (int)(what >> 2) % NRANKS;
  look_for_child(m);
  if (what % 4 == 0 && m->up.fd >= 0) {
    push_order(m);
  } else if (what % 4 == 1) {
    drain(m->up.fd >= 0 ? &m->up : &m->down[NRANKS - 1]);
  } else if (rank != m->sound && what % 4 == 3 && what & 128) {
    colli_sealed_close(&m->down[rank]);
  } else if (rank != m->sound) {
    if (m->down[rank].fd < 0 && !dial_sound(m, rank, &m->down[rank]))
      m->down[rank] = COLLI_SEALED_NONE;
    push_batch(m, rank);
  }
}

/* Plays the ranks around the sound one, and at last ends its call. */
static void surround(member *m) {
  const int last = NRANKS - 1;
  if (m->sound > 0 && !accept_sound(m, &m->up))
    m->up = COLLI_SEALED_NONE;
  while (m->bytes > 0 && !atomic_load(&m->over))
    act(m);
  while (!atomic_load(&m->over)) {
    look_for_child(m);
    if (m->up.fd >= 0) {
      push_end(m, &m->up);
      wait_for(m->up.fd, POLLIN);
      continue;
    }
    if (m->down[last].fd < 0 && !dial_sound(m, last, &m->down[last]))
      m->down[last] = COLLI_SEALED_NONE;
    push_abort(m, last, &m->down[last]);
    wait_for(m->down[last].fd, 0);
  }
  colli_sealed_close(&m->up);
  for (int r = 0; r < NRANKS; r++)
    colli_sealed_close(&m->down[r]);
}

/* Calls a newcomer. */
static void call_newcomer(member *m) {
  colli_sealed conn;
  while (accept_sound(m, &conn)) {
    const grow_call senseless = {0};
    uint64_t built;
    if (m->bytes == 0)
      push(m, &conn, &senseless, sizeof senseless);
    else
      push_call(m, &conn);
    if (m->bytes > 0 && take(m) & 1)
      (void)pull(m, &conn, &built, sizeof built);
    colli_sealed_close(&conn);
  }
}

static void *play(void *arg) {
  member *m = arg;
  if (m->sound < 0)
    call_newcomer(m);
  else
    surround(m);
  return NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct creation {
  const coll_id *id;
  int rank;
} creation;

static void *create_one(void *arg) {
  const creation *c = arg;
  if (coll_comm_create(&comms[c->rank], c->id, NRANKS, c->rank, &patient) != COLL_OK)
    abort();
  return NULL;
}

/* All ranks of a communicator live here; those that the member plays do nothing. */
static void create_all(void) {
  coll_id id;
  pthread_t threads[NRANKS];
  creation creations[NRANKS];
  if (coll_unique_id(&id, &patient) != COLL_OK)
    abort();
  for (int r = 0; r < NRANKS; r++) {
    creations[r] = (creation){&id, r};
    if (pthread_create(&threads[r], NULL, create_one, &creations[r]) != 0)
      abort();
  }
  for (int r = 0; r < NRANKS; r++)
    pthread_join(threads[r], NULL);
}

/* The call of the sound rank. */
static void call(const member *m) {
  coll_comm *comm = comms[m->sound], *child = NULL;
  uint64_t word = 7;
  if (m->agrees)
    (void)coll_comm_agree(comm, &word, NULL, &hasty);
  else if (coll_comm_shrink(comm, &hasty, &child) == COLL_OK)
    coll_comm_destroy(&child);
}

/* Something is said to the sound rank, which makes the call. */
static void run_member(unsigned how, member *m) {
  const coll_comm *comm = comms[m->sound];
  m->secret = comm->shrink.listener->secret->bytes;
  m->listen_fd = comms[0]->shrink.listener->listen_fd;
  m->agrees = how & 2;
  m->table = comm->table;
  m->comm_id = comm->comm_id;
  m->word = comm->shrink.count + 1;
  const colli_rank_info sound = colli_rank_at(comm->table, m->sound);
  for (int i = 0; i < COLLI_MAX_ADDRS; i++)
    if (colli_addr_loopback(&sound.control_addrs[i]))
      m->to = sound.control_addrs[i];
  pthread_t thread;
  if (pthread_create(&thread, NULL, play, m) != 0)
    abort();
  call(m);
  atomic_store(&m->over, true);
  pthread_join(thread, NULL);
}

/* A newcomer comes. */
static void run_newcomer(member *m) {
  coll_id id;
  colli_id known;
  coll_error error;
  coll_comm *comm = NULL;
  pthread_t thread;
  if (coll_unique_id(&id, &patient) != COLL_OK || colli_id_unpack(&id, &known, &error) != COLL_OK)
    abort();
  m->listen_fd = known.listen_fd;
  m->secret = known.secret->bytes;
  if (pthread_create(&thread, NULL, play, m) != 0)
    abort();
  if (coll_comm_join(&comm, &id, &hasty) == COLL_OK)
    coll_comm_destroy(&comm);
  atomic_store(&m->over, true);
  pthread_join(thread, NULL);
  colli_id_release(&known);
  coll_unique_id_release(&id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static int runs;
  member m = {.data = data, .bytes = bytes};
  const unsigned how = take(&m);
  m.up = COLLI_SEALED_NONE;
  for (int r = 0; r < NRANKS; r++)
    m.down[r] = COLLI_SEALED_NONE;
  if (runs++ % RUNS == 0) {
    for (int r = 0; r < NRANKS; r++)
      coll_comm_destroy(&comms[r]);
    setenv("COLL_LOG", "none", 1);
    create_all();
  }
  m.sound = how >> 2 & 7 ? (int)(how >> 3) % 2 : -1;
  if (m.sound < 0)
    run_newcomer(&m);
  else
    run_member(how, &m);
  return 0;
}
