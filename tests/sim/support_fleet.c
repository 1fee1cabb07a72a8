/* support_fleet.c: makes ranks of an executor and a transport, and runs them in virtual time. */
#include "support_fleet.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data.h"
#include "libcoll/algo/distance.h"
#include "libcoll/cost/predict.h"
#include "libcoll/exec/connect.h"
#include "libcoll/sched/tag.h"
#include "libcoll/tuning/parts.h"
#include "transports/sim/sim.h"

#define SEED 7 /* of the data */

typedef struct fleet fleet;

/* A call of a rank. */
typedef struct call {
  coll_request op;
  colli_lane lanes[COLLI_MAX_LANES];
} call;

/* One rank. */
typedef struct member {
  colli_exec exec;
  call *calls; /* those that are under way, in turn */
  int started, ended;
  colli_sched *sched;
  coll_transport_env env;
  coll_endpoint *endpoint;
  char *data; /* the vector, in place; scratch behind it */
  uint64_t sent_bytes;
} member;

struct fleet {
  const fleet_config *config;
  sim_world *world;
  member *members;
  /* nranks links for each rank: address space, of which only those to its peers take memory. */
  colli_link *links;
  size_t links_bytes;
  uint8_t (*blobs)[COLL_BLOB_BYTES];
  int32_t *group;
  colli_flight_rings flights; /* of all: nobody reads them */
  colli_shape shape;
  /* As it runs, and as it would run with all elements. */
  size_t count; /* of a part */
  int parts, ahead;
  colli_limits limits;
  colli_partition partition, all_partition;
  colli_model model, all_model;
  int failures;
};

/* Memory of this process, in bytes. */
static size_t resident_bytes(void) {
  unsigned long size = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  cr_assert(file && fscanf(file, "%lu %lu", &size, &resident) == 2);
  fclose(file);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- what the executor and the transport call -------------------------------------------------
 */

static void on_mismatch(void *ctx, coll_request *op, int peer, const coll_tag *got, size_t bytes) {
  (void)op, (void)peer, (void)got, (void)bytes;
  ((fleet *)ctx)->failures++;
}

static void on_failed(void *ctx, coll_request *op, int peer, int channel, int step,
                      coll_status status) {
  (void)op, (void)peer, (void)channel, (void)step, (void)status;
  ((fleet *)ctx)->failures++;
}

static const colli_exec_events events = {.mismatch = on_mismatch, .failed = on_failed};

/* A transport call failed. */
static void on_transport_failure(void *ctx, const coll_transport_failure *failure) {
  fprintf(stderr, "peer %d: %s\n", failure->peer, failure->detail);
  ((fleet *)ctx)->failures++;
}

/* What the way between two ranks costs. */
static sim_link link_of(const void *ctx, int from, int to) {
  const fleet *f = ctx;
  const colli_pair_cost pair = colli_model_pair(&f->model, &f->shape, from, to);
  return (sim_link){pair.alpha_ns, pair.beta_ns_per_byte};
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Sets shape, partitions and models. */
static void set_up(fleet *f) {
  const fleet_config *c = f->config;
  const size_t each = c->each ? (size_t)c->each : 1;
  colli_network slower = *c->network;
  for (int level = 0; level < slower.nlevels; level++)
    slower.level[level].beta_ns_per_byte *= (double)each;
  f->parts = c->parts ? c->parts : 1;
  f->ahead = c->parts ? c->ahead : 1;
  f->count = c->count / each / (size_t)f->parts;
  f->limits = (colli_limits){.slot_bytes = c->limits.slot_bytes / each,
                             .slot_count = c->limits.slot_count,
                             .chunk_bytes = c->limits.chunk_bytes / each,
                             .slice_bytes = c->limits.slice_bytes / each};
  f->group = malloc(COLLI_NETWORK_LEVELS * (size_t)c->nranks * sizeof(*f->group));
  cr_assert(f->group);
  f->shape = (colli_shape){.coll = c->algo->coll, .nranks = c->nranks};
  f->model = f->all_model = (colli_model){.core_share = 1, .chunk_share = 1};
  colli_network_shape(c->network, f->group, &f->shape);
  colli_network_model(&slower, c->nranks, &f->model);
  colli_network_model(c->network, c->nranks, &f->all_model);
  colli_choice_partition(c->algo, &f->shape, f->count, sizeof(float), &f->limits, &f->partition);
  colli_choice_partition(c->algo, &f->shape, c->count / (size_t)f->parts, sizeof(float), &c->limits,
                         &f->all_partition);
}

/* Opens a rank's endpoint. */
static void open_member(fleet *f, int rank) {
  static const uint8_t secret[COLL_SECRET_BYTES];
  member *m = &f->members[rank];
  m->env = (coll_transport_env){.size = sizeof(m->env),
                                .ctx = f,
                                .fail = on_transport_failure,
                                .rank = rank,
                                .nranks = f->config->nranks,
                                .secret = secret,
                                .slot_bytes = f->limits.slot_bytes,
                                .slot_count = f->limits.slot_count,
                                .device = f->world,
                                .ops = &sim_transport};
  cr_assert_eq(sim_transport.open(&m->env, &m->endpoint), COLL_T_DONE);
  sim_transport.describe(m->endpoint, f->blobs[rank]);
}

/* Connects on first use. */
static int connect_peer(colli_exec *exec, int peer, int channel, coll_conn **conn) {
  const fleet *f = exec->ctx;
  return sim_transport.connect(exec->links[peer].endpoint, peer, f->blobs[peer], channel, conn);
}

/* A rank knows its peers. */
static void know_peer(member *m, int peer) {
  if (peer < 0)
    return;
  m->exec.links[peer].ops = &sim_transport;
  m->exec.links[peer].endpoint = m->endpoint;
  m->exec.links[peer].sent_bytes = &m->sent_bytes;
}

/* Bytes of a rank's vector. */
static size_t vector_bytes(const fleet *f) {
  return f->count * (size_t)f->parts * sizeof(float);
}

/* Bytes that a call of a rank needs besides. */
static size_t scratch_bytes(const fleet *f, const member *m) {
  return f->partition.piece * sizeof(float) * (size_t)m->sched->nscratch;
}

/* Makes the request of a rank's part of that number, in place of one that has ended. */
static coll_request *prepare_part(const fleet *f, member *m, int number) {
  const int place = number % f->ahead;
  const colli_algo *algo = f->config->algo;
  char *part = m->data + (size_t)number * f->count * sizeof(float);
  call *next = &m->calls[place];
  *next = (call){.op = {.lane = next->lanes,
                        .coll = algo->coll,
                        .sequence = (uint64_t)number + 1,
                        .elem_bytes = sizeof(float),
                        .in = part,
                        .out = part,
                        .scratch = m->data + vector_bytes(f) + (size_t)place * scratch_bytes(f, m),
                        .sched = m->sched,
                        .step = colli_exec_step_of(false),
                        .partition = f->partition,
                        .reduce = m->exec.kernels->reduce[COLL_FLOAT32][COLL_SUM],
                        .nranks = f->config->nranks}};
  colli_tag_put(&next->op.tag, COLLI_TAG_COLL, (uint64_t)algo->coll);
  colli_tag_put(&next->op.tag, COLLI_TAG_ALGO, (uint64_t)algo->id);
  colli_tag_put(&next->op.tag, COLLI_TAG_SEQUENCE, (uint64_t)number + 1);
  return &next->op;
}

/* Makes a rank's schedule, and the executor that runs it. */
static void equip_member(fleet *f, int rank) {
  const fleet_config *c = f->config;
  member *m = &f->members[rank];
  colli_shape shape = f->shape;
  shape.rank = rank;
  cr_assert_eq(colli_algo_emit(c->algo, &shape, &m->sched), COLL_OK);
  m->data = malloc(vector_bytes(f) + scratch_bytes(f, m) * (size_t)f->ahead + 1);
  m->calls = calloc((size_t)f->ahead, sizeof(*m->calls));
  cr_assert(m->data && m->calls);
  if (c->algo->coll == COLLI_ALLREDUCE || (c->algo->coll == COLLI_BROADCAST && rank == 0))
    data_fill(m->data, f->count * (size_t)f->parts, COLL_FLOAT32, COLL_SUM, rank, SEED);
  m->exec = (colli_exec){.rank = rank,
                         .nranks = c->nranks,
                         .kernels = colli_kernels_best(),
                         .links = f->links + (size_t)rank * (size_t)c->nranks,
                         .slot_bytes = f->limits.slot_bytes,
                         .ctx = f,
                         .events = &events,
                         .connect = connect_peer};
  m->exec.flights.rings = &f->flights;
  for (int i = 0; i < m->sched->nsteps; i++) {
    know_peer(m, m->sched->steps[i].peer_recv);
    know_peer(m, m->sched->steps[i].peer_send);
  }
}

/* What all vectors and schedules take; *longest: the longest schedule. */
static size_t own_bytes(const fleet *f, size_t *longest) {
  size_t all = 0;
  for (int rank = 0; rank < f->config->nranks; rank++) {
    const colli_sched *sched = f->members[rank].sched;
    const size_t bytes = colli_sched_bytes(sched);
    *longest = bytes > *longest ? bytes : *longest;
    all += bytes + vector_bytes(f) + scratch_bytes(f, &f->members[rank]) * (size_t)f->ahead;
  }
  return all;
}

/* Makes all ranks. */
static void make_members(fleet *f) {
  const fleet_config *c = f->config;
  size_t n = (size_t)c->nranks;
  const sim_config world = {.seed = 1, .nranks = c->nranks, .link = link_of, .link_ctx = f};
  f->world = sim_world_create(&world);
  f->members = calloc(n, sizeof(*f->members));
  f->blobs = calloc(n, sizeof(*f->blobs));
  f->links_bytes = n * n * sizeof(*f->links);
  f->links = mmap(NULL, f->links_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(f->world && f->members && f->blobs && f->links != MAP_FAILED);
  for (int rank = 0; rank < c->nranks; rank++)
    open_member(f, rank);
  for (int rank = 0; rank < c->nranks; rank++)
    equip_member(f, rank);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Whether a rank has ended all its calls. */
static bool is_done(const fleet *f, const member *m) {
  return m->ended == f->parts;
}

/* Starts calls of a rank, as many as may be under way. One that ended with an error is a failure.
 */
static void start_parts(fleet *f, member *m) {
  for (; m->ended < m->started && m->calls[m->ended % f->ahead].op.done; m->ended++)
    f->failures += m->calls[m->ended % f->ahead].op.status != COLL_OK;
  while (m->started < f->parts && m->started < m->ended + f->ahead) {
    colli_exec_start(&m->exec, prepare_part(f, m, m->started));
    m->started++;
  }
}

/* A rank's turn. */
static void run_member(fleet *f, int rank) {
  int moved = 1;
  while (moved > 0) {
    start_parts(f, &f->members[rank]);
    moved = colli_exec_progress(&f->members[rank].exec);
  }
  start_parts(f, &f->members[rank]);
  f->failures += moved < 0;
}

/* Lets the ranks to which something has happened have their turns; true if one has ended. */
static bool run_touched(fleet *f) {
  bool ended = false;
  for (int rank = sim_world_touched(f->world); rank >= 0; rank = sim_world_touched(f->world)) {
    const member *m = &f->members[rank];
    if (is_done(f, m))
      continue;
    run_member(f, rank);
    ended |= is_done(f, m);
  }
  return ended;
}

/* Connects all, and then runs the collective; returns how long that takes. */
static double run_all(fleet *f) {
  for (int rank = 0; rank < f->config->nranks; rank++)
    colli_exec_connect(&f->members[rank].exec, prepare_part(f, &f->members[rank], 0));
  while (sim_world_advance(f->world))
    ;
  while (sim_world_touched(f->world) >= 0)
    ;
  uint64_t begin = sim_world_now(f->world), end = begin;
  for (int rank = 0; rank < f->config->nranks; rank++)
    run_member(f, rank);
  while (f->failures == 0 && sim_world_advance(f->world))
    if (run_touched(f))
      end = sim_world_now(f->world);
  return (double)(end - begin);
}

/* Ranks whose result is wrong. */
static int count_wrong(const fleet *f) {
  const fleet_config *c = f->config;
  int wrong = 0;
  const size_t bytes = vector_bytes(f), count = bytes / sizeof(float);
  char *want = malloc(bytes + 1);
  if (c->algo->coll == COLLI_ALLREDUCE)
    data_reduce(want, count, COLL_FLOAT32, COLL_SUM, c->nranks, SEED);
  else
    data_fill(want, count, COLL_FLOAT32, COLL_SUM, 0, SEED);
  for (int rank = 0; rank < c->nranks; rank++) {
    const member *m = &f->members[rank];
    wrong += !is_done(f, m) || memcmp(m->data, want, bytes) != 0;
  }
  free(want);
  return wrong;
}

/* The replay of the same schedules: parts follow each other as passes do. */
static double replay(const fleet *f) {
  const size_t n = (size_t)f->config->nranks;
  const colli_sched **scheds = malloc(n * sizeof(*scheds));
  const colli_partition all = colli_parts_as_passes(&f->all_partition, (size_t)f->parts);
  cr_assert(scheds);
  for (size_t rank = 0; rank < n; rank++)
    scheds[rank] = f->members[rank].sched;
  double ns = colli_predict(scheds, f->config->nranks, &all, sizeof(float),
                            f->config->limits.slot_count, &f->all_model);
  free(scheds);
  return ns;
}

/* Closes the connection to a peer, if there is one. colli_exec_disconnect() would look for one to
 * every rank. */
static void leave_peer(member *m, int peer, int lane) {
  coll_conn *conn = peer >= 0 ? m->exec.links[peer].conn[lane] : NULL;
  if (!conn)
    return;
  m->exec.links[peer].conn[lane] = NULL;
  conn->ops->disconnect(conn);
}

/* Closes and frees everything. */
static void free_all(fleet *f) {
  for (int rank = 0; rank < f->config->nranks; rank++) {
    member *m = &f->members[rank];
    for (int i = 0; i < m->sched->nsteps; i++) {
      leave_peer(m, m->sched->steps[i].peer_recv, m->sched->steps[i].lane);
      leave_peer(m, m->sched->steps[i].peer_send, m->sched->steps[i].lane);
    }
  }
  while (sim_world_advance(f->world)) /* so that connections are gone */
    ;
  for (int rank = 0; rank < f->config->nranks; rank++) {
    sim_transport.close(f->members[rank].endpoint);
    colli_sched_free(f->members[rank].sched);
    free(f->members[rank].data);
    free(f->members[rank].calls);
  }
  sim_world_destroy(f->world);
  munmap(f->links, f->links_bytes);
  free(f->members);
  free(f->blobs);
  free(f->group);
}

fleet_result fleet_run(const fleet_config *config) {
  fleet *f = calloc(1, sizeof(*f));
  cr_assert(f);
  f->config = config;
  const size_t before = resident_bytes();
  set_up(f);
  make_members(f);
  fleet_result result = {.ns = run_all(f)};
  const size_t after = resident_bytes(), own = own_bytes(f, &result.sched_bytes);
  result.rank_bytes = after > before + own ? (after - before - own) / (size_t)config->nranks : 0;
  result.messages = sim_world_messages(f->world);
  result.wrong = count_wrong(f) + f->failures;
  result.predicted_ns = replay(f);
  const colli_choice choice = {.algo = config->algo, .partition = f->all_partition};
  const colli_parts parts = colli_parts_price(&choice, &f->shape, sizeof(float), &f->all_model);
  result.formula_ns =
      colli_parts_time(&parts, (size_t)f->parts, (size_t)f->ahead, (colli_parts_besides){0});
  free_all(f);
  free(f);
  return result;
}
