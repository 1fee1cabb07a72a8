/* support_mixed.c: draws and runs programs of everything. */
#include "support_mixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"

#define MAX_MESSAGES 12

typedef enum step_kind {
  STEP_CASE,
  STEP_OPEN,
  STEP_MESSAGES,
  STEP_GROUP,
  STEP_SPLIT,
  STEP_FREE
} step_kind;

/* A random number below `bound` on which all ranks agree: choice `what` of step `step`. */
static uint64_t pick(const mixed_rank *in, int step, int what, uint64_t bound) {
  return number_hash(in->plan->seed, (uint64_t)step, (uint64_t)what, 77) % bound;
}

/* A call failed: tells who judges that, or prints it. */
static int fail(mixed_rank *in, mixed_member *m, coll_status status, const char *what) {
  m->failed = true;
  if (in->plan->failed) {
    in->plan->failed(in->plan->ctx, in->members[0].rank, m->comm, status);
    return 1;
  }
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(m->comm, &error);
  fprintf(stderr, "rank %d of %d: %s: %s: %s\n", m->rank, m->nranks, what, coll_status_name(status),
          error.message);
  return 1;
}

/* Sizes around 0, slots and chunks. */
static size_t pick_count(const mixed_rank *in, int step, size_t elem_bytes, int nranks) {
  const world_config *c = &in->plan->config;
  size_t slot = c->slot_bytes / elem_bytes + 1, chunk = slot * c->slot_count / 2;
  const size_t counts[] = {0,         1,     (size_t)nranks - 1, (size_t)nranks + 1, 17,      slot,
                           chunk - 1, chunk, chunk + 1,          2 * chunk + 3,      5 * slot};
  return counts[pick(in, step, 1, sizeof(counts) / sizeof(*counts))];
}

/* The collective of a step. */
static test_case pick_case(const mixed_rank *in, int step, const mixed_member *m) {
  test_case c = {.coll = (case_coll)pick(in, step, 2, CASE_COLLS),
                 .form = (case_form)pick(in, step, 3, CASE_FORMS),
                 .root = (int)pick(in, step, 4, (uint64_t)m->nranks),
                 .in_place = (int)pick(in, step, 5, 3),
                 .seed = number_hash(in->plan->seed, (uint64_t)step, m->number, 5) >> 40};
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
static int end_one(mixed_rank *in) {
  int at = (int)colli_prng_below(&in->own, (uint64_t)in->nopen);
  mixed_open o = in->open[at];
  in->open[at] = in->open[--in->nopen];
  coll_status status = coll_wait(&o.request, -1);
  if (status != COLL_OK) {
    case_discard(o.state);
    return fail(in, &in->members[o.member], status, "wait");
  }
  in->wrong |= case_end(o.state, true);
  return in->wrong;
}

/* Leaves an operation in flight. */
static int leave_open(mixed_rank *in, int step, mixed_member *m) {
  int failed = in->nopen == MIXED_OPEN ? end_one(in) : 0;
  if (m->failed)
    return failed;
  test_case c = pick_case(in, step, m);
  c.form = CASE_NONBLOCKING;
  mixed_open *o = &in->open[in->nopen];
  o->member = (int)(m - in->members);
  coll_status status = case_begin(m->comm, m->rank, m->nranks, &c, &o->state, &o->request);
  if (status == COLL_OK) {
    in->nopen++;
    return failed;
  }
  case_discard(o->state);
  return fail(in, m, status, "start");
}

/* Runs collectives of one form, all under way at once. */
static int run_cases(mixed_rank *in, mixed_member *m, const test_case *cases, int count) {
  char text[160];
  coll_status status;
  in->wrong |= case_try(m->comm, m->rank, m->nranks, cases, count, &status);
  if (status != COLL_OK)
    return fail(in, m, status, case_text(cases, m->nranks, text));
  return in->wrong;
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
static int pick_messages(const mixed_rank *in, int step, const mixed_member *m, p2p_message *out) {
  int count = 1 + (int)pick(in, step, 20, MAX_MESSAGES);
  for (int i = 0; i < count; i++)
    out[i] = (p2p_message){.from = (int)pick(in, step, 30 + i, (uint64_t)m->nranks),
                           .to = (int)pick(in, step, 50 + i, (uint64_t)m->nranks),
                           .tag = step * MAX_MESSAGES + i,
                           .count = pick_count(in, step, 4, m->nranks) * (size_t)(i % 3)};
  return count;
}

/* Sends or receives one message; in a group by blocking calls. */
static coll_status post(const mixed_member *m, p2p_message *l, bool sends, bool grouped, bool any) {
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
static int check_message(const mixed_rank *in, int step, const mixed_member *m,
                         const p2p_message *l) {
  int wrong = l->info.source != l->from || l->info.tag != l->tag || l->info.count != l->count;
  for (size_t i = 0; i < l->count && !wrong; i++) {
    int32_t want;
    number_input(&want, COLL_INT32, -1, l->tag, i, in->plan->seed + (uint64_t)step);
    wrong = memcmp(l->buf + 4 * i, &want, 4) != 0;
  }
  if (wrong)
    fprintf(stderr, "rank %d: message %d from %d with %zu elements is wrong (%d, %d, %zu)\n",
            m->rank, l->tag, l->from, l->count, l->info.source, l->info.tag, l->info.count);
  return wrong;
}

/* All messages of a step, in a random order of this rank. */
static int exchange(mixed_rank *in, int step, mixed_member *m, bool grouped) {
  p2p_message out[MAX_MESSAGES], incoming[MAX_MESSAGES];
  int count = pick_messages(in, step, m, out), wrong = 0;
  memcpy(incoming, out, sizeof(out));
  int begin = (int)colli_prng_below(&in->own, (uint64_t)count);
  coll_status status = grouped ? coll_group_start(m->comm) : COLL_OK;
  for (int k = 0; k < 2 * count && status == COLL_OK; k++) {
    int i = (begin + k / 2) % count;
    p2p_message *l = k % 2 ? &out[i] : &incoming[i];
    if ((k % 2 ? l->from : l->to) != m->rank)
      continue;
    l->buf = calloc(l->count + 1, 4);
    for (size_t e = 0; k % 2 && e < l->count; e++)
      number_input(l->buf + 4 * e, COLL_INT32, -1, l->tag, e, in->plan->seed + (uint64_t)step);
    bool any = colli_prng_below(&in->own, 3) == 0 && !in->plan->names_sources;
    status = post(m, l, k % 2, grouped, any);
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
  for (int i = 0; i < count; i++) {
    free(out[i].buf);
    free(incoming[i].buf);
  }
  in->wrong |= wrong;
  return status != COLL_OK ? fail(in, m, status, "messages") : wrong;
}

/* Several collectives in one group. */
static int group(mixed_rank *in, int step, mixed_member *m) {
  test_case cases[3];
  for (int i = 0; i < 3; i++) {
    cases[i] = pick_case(in, step * 3 + i, m);
    cases[i].form = CASE_GROUPED;
  }
  return run_cases(in, m, cases, 3);
}

/* ---- communicators --------------------------------------------------------------------------- */

/* Splits a communicator; each part gets the same place in `members`. */
static int split(mixed_rank *in, int step, mixed_member *m, mixed_member *child) {
  int colors = 1 + (int)pick(in, step, 80, 3), color = m->rank % colors;
  int key = (int)(number_hash(in->plan->seed, (uint64_t)step, (uint64_t)m->rank, 8) % 5);
  if (pick(in, step, 81, 4) == 0 && m->rank % 3 == 1)
    color = COLL_NO_COLOR;
  coll_status status = pick(in, step, 82, 4) == 0
                           ? (color = 0, coll_comm_dup(m->comm, NULL, &child->comm))
                           : coll_comm_split(m->comm, color, key, NULL, &child->comm);
  if (status != COLL_OK)
    return fail(in, m, status, "split");
  child->number = m->number * 7 + (uint64_t)color + 1;
  if (!child->comm)
    return 0;
  coll_comm_rank(child->comm, &child->rank);
  coll_comm_nranks(child->comm, &child->nranks);
  return 0;
}

/* Destroys the newest communicator. Operations in flight end before. */
static int free_one(mixed_rank *in) {
  int failed = 0;
  while (in->nopen > 0)
    failed |= end_one(in);
  if (in->nmembers > 1)
    coll_comm_destroy(&in->members[--in->nmembers].comm);
  return failed;
}

/* One step of the program. */
static int run_step(mixed_rank *in, int step) {
  mixed_member *m = &in->members[pick(in, step, 0, (uint64_t)in->nmembers)];
  step_kind kind = (step_kind)pick(in, step, 90, STEP_FREE + 1);
  bool takes_part = m->comm && !m->failed;
  if (kind == STEP_SPLIT && in->nmembers < MIXED_COMMS) {
    mixed_member *child = &in->members[in->nmembers++];
    *child = (mixed_member){0};
    return takes_part ? split(in, step, m, child) : 0;
  }
  if (kind == STEP_FREE)
    return free_one(in);
  if (!takes_part)
    return 0;
  if (kind == STEP_OPEN)
    return leave_open(in, step, m);
  if (kind == STEP_MESSAGES || (kind == STEP_GROUP && pick(in, step, 91, 2)))
    return exchange(in, step, m, kind == STEP_GROUP);
  if (kind == STEP_GROUP)
    return group(in, step, m);
  test_case c = pick_case(in, step, m);
  return run_cases(in, m, &c, 1);
}

void mixed_leave(mixed_rank *in) {
  for (int i = in->nmembers - 1; i > 0; i--)
    coll_comm_destroy(&in->members[i].comm);
}

void mixed_free(mixed_rank *in) {
  for (int i = 0; i < in->nopen; i++)
    case_discard(in->open[i].state);
  in->nopen = 0;
}

int mixed_run(coll_comm *comm, int rank, int nranks, void *arg) {
  mixed_plan *plan = arg;
  mixed_rank *in = &plan->ranks[rank];
  *in = (mixed_rank){.plan = plan, .nmembers = 1, .own = {plan->seed * 1000 + (uint64_t)rank}};
  in->members[0] = (mixed_member){.comm = comm, .rank = rank, .nranks = nranks, .number = 1};
  int failed = 0, steps = 2 + (int)pick(in, 0, 99, MIXED_STEPS - 2);
  for (int step = 1; step <= steps && !(failed && !in->plan->goes_on[rank]) && !in->wrong; step++)
    failed |= run_step(in, step);
  while (in->nopen > 0 && !failed)
    failed = end_one(in);
  coll_status status = failed ? COLL_OK : coll_barrier(comm);
  if (status != COLL_OK)
    failed = fail(in, &in->members[0], status, "last barrier");
  in->over = true;
  if (!plan->failed)
    mixed_leave(in);
  return in->wrong || (failed && !plan->failed);
}
