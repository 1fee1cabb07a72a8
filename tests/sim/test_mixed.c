/*
 * test_mixed.c: random programs of everything: collectives in all forms, messages with tags,
 * groups, communicators split from each other. Ranks run on their own stacks over the simulator,
 * with delays, and every result is compared with a plain reference.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "extent.h"
#include "number.h"
#include "support_seeds.h"
#include "support_world.h"

#define LIMIT_NS     (120 * COLLI_NS_PER_S)
#define MAX_STEPS    14
#define MAX_COMMS    5
#define MAX_OPEN     4
#define MAX_MESSAGES 12

typedef enum step_kind {
  STEP_CASE,
  STEP_OPEN,
  STEP_MESSAGES,
  STEP_GROUP,
  STEP_SPLIT,
  STEP_FREE
} step_kind;

/* The settings of a seed, the same for all ranks. */
typedef struct plan {
  uint64_t seed;
  world_config config;
} plan;

/* A communicator that this rank is in. */
typedef struct member {
  coll_comm *comm; /* NULL: not in it */
  int rank, nranks;
  uint64_t number; /* distinguishes the communicators of one split */
} member;

/* An operation in flight. */
typedef struct open_case {
  case_state *state;
  coll_request *request;
} open_case;

/* The state of a rank's program. */
typedef struct interpreter {
  const plan *p;
  member members[MAX_COMMS];
  int nmembers;
  open_case open[MAX_OPEN];
  int nopen;
  colli_prng own; /* of this rank alone */
} interpreter;

/* A random number below `bound` on which all ranks agree: choice `what` of step `step`. */
static uint64_t pick(const interpreter *in, int step, int what, uint64_t bound) {
  return number_hash(in->p->seed, (uint64_t)step, (uint64_t)what, 77) % bound;
}

/* Prints what failed. */
static int fail(const member *m, coll_status status, const char *what) {
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(m->comm, &error);
  fprintf(stderr, "rank %d of %d: %s: %s: %s\n", m->rank, m->nranks, what, coll_status_name(status),
          error.message);
  return 1;
}

/* Sizes around 0, slots and chunks. */
static size_t pick_count(const interpreter *in, int step, size_t elem_bytes, int nranks) {
  const world_config *c = &in->p->config;
  size_t slot = c->slot_bytes / elem_bytes + 1, chunk = slot * c->slot_count / 2;
  const size_t counts[] = {0,         1,     (size_t)nranks - 1, (size_t)nranks + 1, 17,      slot,
                           chunk - 1, chunk, chunk + 1,          2 * chunk + 3,      5 * slot};
  return counts[pick(in, step, 1, sizeof(counts) / sizeof(*counts))];
}

/* The collective of a step. */
static test_case pick_case(const interpreter *in, int step, const member *m) {
  test_case c = {.coll = (case_coll)pick(in, step, 2, CASE_COLLS),
                 .form = (case_form)pick(in, step, 3, CASE_FORMS),
                 .root = (int)pick(in, step, 4, (uint64_t)m->nranks),
                 .in_place = (int)pick(in, step, 5, 3),
                 .seed = number_hash(in->p->seed, (uint64_t)step, m->number, 5) >> 40};
  int what = 100;
  do {
    c.type = (coll_type)pick(in, step, what++, COLL_TYPE_COUNT);
    c.op = (coll_op)pick(in, step, what++, COLL_OP_COUNT);
  } while (c.coll < CASE_BROADCAST &&
           (!case_takes(c.type, c.op) ||
            ((c.coll == CASE_SCAN || c.coll == CASE_EXSCAN) && c.op == COLL_AVG)));
  c.count = pick_count(in, step, coll_type_bytes(c.type), m->nranks);
  if (c.coll >= CASE_ALLGATHER || c.coll == CASE_REDUCE_SCATTER || c.coll == CASE_REDUCE_SCATTERV)
    c.count /= m->nranks > 4 ? 4 : 1;
  return c;
}

/* Completes one of the operations in flight, chosen by this rank alone. */
static int end_one(interpreter *in, const member *any) {
  int at = (int)colli_prng_below(&in->own, (uint64_t)in->nopen);
  open_case o = in->open[at];
  in->open[at] = in->open[--in->nopen];
  coll_status status = coll_wait(&o.request, -1);
  if (status != COLL_OK) {
    case_discard(o.state);
    return fail(any, status, "wait");
  }
  return case_end(o.state, true);
}

/* Leaves an operation in flight. */
static int leave_open(interpreter *in, int step, const member *m) {
  if (in->nopen == MAX_OPEN && end_one(in, m) != 0)
    return 1;
  test_case c = pick_case(in, step, m);
  c.form = CASE_NONBLOCKING;
  open_case *o = &in->open[in->nopen];
  coll_status status = case_begin(m->comm, m->rank, m->nranks, &c, 0, &o->state, &o->request);
  if (status == COLL_OK) {
    in->nopen++;
    return 0;
  }
  case_discard(o->state);
  return fail(m, status, "start");
}

/* ---- messages -------------------------------------------------------------------------------- */

typedef struct p2p_message {
  int from, to, tag;
  size_t count;
  char *buf;
  coll_message info;
  coll_request *request;
} p2p_message;

/* The messages of a step; tags are unique, also among steps, so that receives may ask for any
 * source. */
static int pick_messages(const interpreter *in, int step, const member *m, p2p_message *messages) {
  int count = 1 + (int)pick(in, step, 20, MAX_MESSAGES);
  for (int i = 0; i < count; i++)
    messages[i] = (p2p_message){.from = (int)pick(in, step, 30 + i, (uint64_t)m->nranks),
                                .to = (int)pick(in, step, 50 + i, (uint64_t)m->nranks),
                                .tag = step * MAX_MESSAGES + i,
                                .count = pick_count(in, step, 4, m->nranks) * (size_t)(i % 3)};
  return count;
}

/* Sends or receives one message; in a group by blocking calls. */
static coll_status post(const member *m, p2p_message *l, bool sends, bool grouped, bool any) {
  int source = any ? COLL_ANY_SOURCE : l->from;
  if (sends && grouped)
    return coll_send(l->buf, l->count, COLL_INT32, l->to, l->tag, m->comm);
  if (sends)
    return coll_isend(l->buf, l->count, COLL_INT32, l->to, l->tag, m->comm, &l->request);
  if (grouped)
    return coll_recv(l->buf, l->count, COLL_INT32, source, l->tag, &l->info, m->comm);
  return coll_irecv(l->buf, l->count, COLL_INT32, source, l->tag, &l->info, m->comm, &l->request);
}

/* Whether a message that came is the one that was sent. */
static int check_message(const interpreter *in, int step, const member *m, const p2p_message *l) {
  int wrong = l->info.source != l->from || l->info.tag != l->tag || l->info.count != l->count;
  for (size_t i = 0; i < l->count && !wrong; i++) {
    int32_t want;
    number_input(&want, COLL_INT32, -1, l->tag, i, in->p->seed + (uint64_t)step);
    wrong = memcmp(l->buf + 4 * i, &want, 4) != 0;
  }
  if (wrong)
    fprintf(stderr, "rank %d: message %d from %d with %zu elements is wrong (%d, %d, %zu)\n",
            m->rank, l->tag, l->from, l->count, l->info.source, l->info.tag, l->info.count);
  return wrong;
}

/* All messages of a step, in a random order of this rank. */
static int exchange(interpreter *in, int step, const member *m, bool grouped) {
  p2p_message out[MAX_MESSAGES], incoming[MAX_MESSAGES];
  int count = pick_messages(in, step, m, out), wrong = 0;
  int begin = (int)colli_prng_below(&in->own, (uint64_t)count);
  coll_status status = grouped ? coll_group_start(m->comm) : COLL_OK;
  for (int k = 0; k < 2 * count && status == COLL_OK; k++) {
    int i = (begin + k / 2) % count;
    p2p_message *l = k % 2 ? &out[i] : &incoming[i];
    if (k % 2 == 0)
      *l = out[i];
    if ((k % 2 ? l->from : l->to) != m->rank)
      continue;
    l->buf = calloc(l->count + 1, 4);
    for (size_t e = 0; k % 2 && e < l->count; e++)
      number_input(l->buf + 4 * e, COLL_INT32, -1, l->tag, e, in->p->seed + (uint64_t)step);
    status = post(m, l, k % 2, grouped, colli_prng_below(&in->own, 3) == 0);
  }
  if (grouped && status == COLL_OK)
    status = coll_group_end(m->comm);
  for (int k = 0; k < 2 * count && status == COLL_OK; k++) {
    p2p_message *l = k % 2 ? &out[k / 2] : &incoming[k / 2];
    if (l->request)
      status = coll_wait(&l->request, -1);
    if (status == COLL_OK && k % 2 == 0 && l->to == m->rank)
      wrong |= check_message(in, step, m, l);
  }
  if (status != COLL_OK)
    return fail(m, status, "messages");
  for (int i = 0; i < count; i++) {
    if (out[i].from == m->rank)
      free(out[i].buf);
    if (incoming[i].to == m->rank)
      free(incoming[i].buf);
  }
  return wrong;
}

/* Several collectives in one group. */
static int group(interpreter *in, int step, const member *m) {
  test_case cases[3];
  for (int i = 0; i < 3; i++) {
    cases[i] = pick_case(in, step * 3 + i, m);
    cases[i].form = CASE_GROUPED;
  }
  return case_run(m->comm, m->rank, m->nranks, cases, 3, 0);
}

/* ---- communicators --------------------------------------------------------------------------- */

/* Splits a communicator; each part gets the same place in `members`. */
static int split(interpreter *in, int step, const member *m, member *child) {
  int colors = 1 + (int)pick(in, step, 80, 3), color = m->rank % colors;
  int key = (int)(number_hash(in->p->seed, (uint64_t)step, (uint64_t)m->rank, 8) % 5);
  if (pick(in, step, 81, 4) == 0 && m->rank % 3 == 1)
    color = COLL_NO_COLOR;
  coll_status status = pick(in, step, 82, 4) == 0
                           ? (color = 0, coll_comm_dup(m->comm, NULL, &child->comm))
                           : coll_comm_split(m->comm, color, key, NULL, &child->comm);
  if (status != COLL_OK)
    return fail(m, status, "split");
  child->number = m->number * 7 + (uint64_t)color + 1;
  if (!child->comm)
    return 0;
  coll_comm_rank(child->comm, &child->rank);
  coll_comm_nranks(child->comm, &child->nranks);
  return 0;
}

/* One step of the program. */
static int run_step(interpreter *in, int step) {
  member *m = &in->members[pick(in, step, 0, (uint64_t)in->nmembers)];
  step_kind kind = (step_kind)pick(in, step, 90, STEP_FREE + 1);
  if (kind == STEP_SPLIT && in->nmembers < MAX_COMMS) {
    member child = {0};
    int wrong = m->comm ? split(in, step, m, &child) : 0;
    in->members[in->nmembers++] = child;
    return wrong;
  }
  if (kind == STEP_FREE) { /* operations in flight end before communicators do */
    while (in->nopen > 0)
      if (end_one(in, &in->members[0]) != 0)
        return 1;
    if (in->nmembers > 1)
      coll_comm_destroy(&in->members[--in->nmembers].comm);
    return 0;
  }
  if (!m->comm)
    return 0;
  if (kind == STEP_OPEN)
    return leave_open(in, step, m);
  if (kind == STEP_MESSAGES || (kind == STEP_GROUP && pick(in, step, 91, 2)))
    return exchange(in, step, m, kind == STEP_GROUP);
  if (kind == STEP_GROUP)
    return group(in, step, m);
  test_case c = pick_case(in, step, m);
  return case_run(m->comm, m->rank, m->nranks, &c, 1, 0);
}

/* One rank's program. */
static int program(coll_comm *comm, int rank, int nranks, void *arg) {
  const plan *p = arg;
  interpreter in = {.p = p, .nmembers = 1, .own = {p->seed * 1000 + (uint64_t)rank}};
  in.members[0] = (member){comm, rank, nranks, 1};
  int wrong = 0, steps = 2 + (int)pick(&in, 0, 99, MAX_STEPS - 2);
  for (int step = 1; step <= steps && !wrong; step++)
    wrong = run_step(&in, step);
  while (in.nopen > 0 && !wrong)
    wrong = end_one(&in, &in.members[0]);
  for (int i = in.nmembers - 1; i > 0; i--)
    coll_comm_destroy(&in.members[i].comm);
  if (!wrong && coll_barrier(comm) != COLL_OK)
    wrong = fail(&in.members[0], COLL_ERR_INTERNAL, "last barrier");
  return wrong;
}

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  seeded_world_make(&sw, seed, 1, 12);
  sw.config.timeout_ms = 10000;
  plan p = {.seed = seed, .config = sw.config};
  world w;
  if (!world_open(&w, &sw.config))
    return false;
  bool ok = world_run_fibers(&w, program, &p, LIMIT_NS);
  if (!ok || verbose)
    fprintf(stderr,
            "seed %llu: %s after %.3f ms of virtual time, %d ranks, algorithms '%s', '%s'\n",
            (unsigned long long)seed, ok ? "right" : "wrong", (double)world_now(&w) / 1e6, w.nranks,
            sw.algo, sw.fault);
  world_close(&w);
  return ok;
}

Test(mixed, programs, .timeout = 290) {
  cr_assert_eq(seeds_run("build/tests/sim_test_mixed", run_seed, 1, extent(600, 2000, 300)), 0);
}
