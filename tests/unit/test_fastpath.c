/*
 * test_fastpath.c: the fast path of short operations (libcoll/exec/fastpath.h). Wherever it stops
 * because a message or credit is missing, the executor continues from there; the results are the
 * same as if the executor had run everything. The test plays the peer.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/algo/algo.h"
#include "libcoll/exec/fastpath.h"
#include "libcoll/tuning/select.h"

enum { COUNT = 40, MAX_BYTES = 2 * COUNT * (int)sizeof(float), MESSAGES = 3 };

static const colli_limits limits = {.slot_bytes = 64, .slot_count = 8, .slice_bytes = 64};
static const coll_tag right = {{1, 2, 3}};

/* The connection to the peer. */
typedef struct fake_conn {
  coll_conn base;
  const colli_partition *part;
  coll_tag tag;       /* of messages from the peer */
  int arrived, taken; /* such messages */
  int credit;
  float message[COUNT];
  char sent[MAX_BYTES]; /* one message behind the other */
  size_t nsent;
  int mismatches;
} fake_conn;

/* The next message from the peer: false if there is none. */
static bool next_message(fake_conn *fake, coll_tag *tag, size_t *bytes) {
  if (fake->taken == fake->arrived)
    return false;
  size_t left = fake->part->region - (size_t)fake->taken * fake->part->slice;
  size_t count = fake->part->count == 0 ? 0 : left < fake->part->slice ? left : fake->part->slice;
  for (size_t i = 0; i < count; i++)
    fake->message[i] = (float)(1000 * (fake->taken + 1)) + (float)i;
  *tag = fake->tag;
  *bytes = count * sizeof(float);
  return true;
}

static int fake_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  fake_conn *fake = (fake_conn *)conn;
  cr_assert(memcmp(tag, &right, sizeof(right)) == 0);
  if (fake->credit == 0)
    return COLL_T_AGAIN;
  fake->credit--;
  memcpy(fake->sent + fake->nsent, buf, bytes);
  fake->nsent += bytes;
  return COLL_T_DONE;
}

static int fake_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes) {
  fake_conn *fake = (fake_conn *)conn;
  if (!next_message(fake, got, bytes))
    return COLL_T_AGAIN;
  *buf = fake->message;
  return COLL_T_DONE;
}

static int fake_release(coll_conn *conn) {
  ((fake_conn *)conn)->taken++;
  return COLL_T_DONE;
}

static int fake_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes,
                     coll_tag *got, size_t *got_bytes) {
  fake_conn *fake = (fake_conn *)conn;
  if (!next_message(fake, got, got_bytes))
    return COLL_T_AGAIN;
  if (*got_bytes != bytes || memcmp(got, expect, sizeof(*got)) != 0)
    return COLL_ERR_MISMATCH;
  if (bytes)
    memcpy(buf, fake->message, bytes);
  return fake_release(conn);
}

static const coll_transport_ops fake_ops = {.size = sizeof(coll_transport_ops),
                                            .abi = COLL_TRANSPORT_ABI,
                                            .caps = COLL_CAP_SPIN,
                                            .name = "fake",
                                            .send = fake_send,
                                            .slot_peek = fake_peek,
                                            .slot_release = fake_release,
                                            .recv = fake_recv};

static void on_mismatch(void *ctx, coll_request *op, int peer, const coll_tag *got, size_t bytes) {
  (void)op, (void)peer, (void)got, (void)bytes;
  ((fake_conn *)ctx)->mismatches++;
}

static const colli_exec_events events = {.mismatch = on_mismatch};

static void add_twice(void *dst, void *dst2, const void *a, const void *b, size_t count) {
  float *to = dst;
  const float *x = a, *y = b;
  cr_assert_null(dst2);
  for (size_t i = 0; i < count; i++)
    to[i] = 2 * x[i] + y[i]; /* not commutative */
}

/* One operation of rank 0 of two. */
typedef struct one_run {
  colli_exec exec;
  colli_link links[2];
  colli_flight_rings flights;
  uint64_t sent_bytes;
  fake_conn fake;
  coll_request *op;
  colli_lane lanes[COLLI_MAX_LANES];
  colli_sched *sched;
  float in[2 * COUNT], out[2 * COUNT];
} one_run;

static one_run *run_open(colli_coll coll, const char *name, int root, int arrived, int credit) {
  one_run *p = calloc(1, sizeof(*p));
  const colli_algo *algo = colli_algo_find(coll, name);
  colli_shape shape = {.coll = coll, .nranks = 2, .root = root};
  cr_assert(p && algo && colli_algo_emit(algo, &shape, &p->sched) == COLL_OK);
  p->op = calloc(1, sizeof(*p->op));
  coll_request *op = p->op;
  cr_assert_not_null(op);
  for (int i = 0; i < 2 * COUNT; i++)
    p->in[i] = (float)i;
  *op = (coll_request){.lane = p->lanes,
                       .coll = coll,
                       .tag = right,
                       .elem_bytes = sizeof(float),
                       .in = (const char *)p->in,
                       .out = (char *)p->out,
                       .sched = p->sched,
                       .step = colli_exec_step_of(false),
                       .reduce = add_twice,
                       .nranks = 2};
  colli_choice_partition(algo, &shape, COUNT, sizeof(float), &limits, &op->partition);
  p->fake = (fake_conn){.base = {&fake_ops, 1, 0},
                        .part = &op->partition,
                        .tag = right,
                        .arrived = arrived,
                        .credit = credit};
  p->links[1] = (colli_link){.ops = &fake_ops, .sent_bytes = &p->sent_bytes};
  p->links[1].conn[0] = &p->fake.base;
  p->exec = (colli_exec){.nranks = 2, .links = p->links, .ctx = &p->fake, .events = &events};
  p->exec.flights.rings = &p->flights;
  return p;
}

static void run_close(one_run *p) {
  colli_sched_free(p->sched);
  free(p->op);
  free(p);
}

/* Runs it as far as it goes, with or without the fast path first. */
static void run_start(one_run *p, bool fast) {
  coll_request *op = p->op;
  if (!fast) {
    colli_exec_start(&p->exec, op);
    return;
  }
  colli_fastpath *fastpath = NULL;
  cr_assert(colli_fastpath_make(&fastpath, p->sched, &op->partition, sizeof(float), 0, 0));
  cr_assert(fastpath->whole && colli_fastpath_can(&p->exec, fastpath));
  colli_fastpath_call call = {op->in, op->out, &op->tag, op->reduce, 2};
  int ran = colli_fastpath_run(&p->exec, fastpath, &call, op);
  cr_assert_null(p->exec.oldest);
  if (ran == fastpath->count)
    op->done = true;
  else
    colli_fastpath_resume(&p->exec, fastpath, ran, op);
  free(fastpath);
}

/* Provides what it waits for, piece by piece, until it is complete. */
static void run_to_end(one_run *p) {
  for (int i = 0; i <= 2 * MESSAGES && !p->op->done; i++) {
    colli_exec_progress(&p->exec);
    p->fake.arrived += p->fake.arrived < MESSAGES;
    p->fake.credit++;
  }
  cr_assert(p->op->done);
  cr_assert_null(p->exec.oldest);
}

static const struct {
  colli_coll coll;
  const char *name;
  int root;
} cases[] = {{COLLI_ALLREDUCE, "recdbl", 0},   {COLLI_BROADCAST, "binomial", 0},
             {COLLI_BROADCAST, "binomial", 1}, {COLLI_REDUCE, "binomial", 0},
             {COLLI_REDUCE, "binomial", 1},    {COLLI_ALLGATHER, "ring", 0},
             {COLLI_ALLTOALL, "direct", 0},    {COLLI_REDUCE_SCATTER, "pairwise", 0},
             {COLLI_GATHER, "direct", 0},      {COLLI_GATHER, "direct", 1},
             {COLLI_SCATTER, "direct", 0},     {COLLI_SCATTER, "direct", 1},
             {COLLI_BARRIER, "direct", 0}};

Test(fastpath, the_executor_goes_on_wherever_one_stops) {
  for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
    for (int arrived = 0; arrived <= MESSAGES; arrived++)
      for (int credit = 0; credit <= MESSAGES; credit++) {
        one_run *with = run_open(cases[c].coll, cases[c].name, cases[c].root, arrived, credit);
        one_run *without = run_open(cases[c].coll, cases[c].name, cases[c].root, arrived, credit);
        run_start(with, true);
        if (arrived == MESSAGES && credit == MESSAGES)
          cr_assert(with->op->done, "%s: nothing was missing", cases[c].name);
        run_start(without, false);
        run_to_end(with);
        run_to_end(without);
        cr_assert(with->fake.nsent == without->fake.nsent &&
                      memcmp(with->fake.sent, without->fake.sent, MAX_BYTES) == 0,
                  "%s %s sends something else", colli_coll_name(cases[c].coll), cases[c].name);
        cr_assert(memcmp(with->out, without->out, sizeof(with->out)) == 0 &&
                      with->fake.taken == without->fake.taken &&
                      with->links[1].posted[0] == without->links[1].posted[0],
                  "%s %s has another result", colli_coll_name(cases[c].coll), cases[c].name);
        run_close(with);
        run_close(without);
      }
}

Test(fastpath, a_message_of_another_operation_is_reported_by_the_executor) {
  for (int c = 0; c < 6; c++) {
    one_run *p = c % 2 ? run_open(COLLI_ALLREDUCE, "recdbl", 0, 1, MESSAGES)
                       : run_open(COLLI_BROADCAST, "binomial", 1, 1, MESSAGES);
    p->fake.tag.word[c / 2]++;
    run_start(p, true);
    cr_assert_eq(p->fake.mismatches, 0);
    cr_assert_eq(p->fake.taken, 0);
    colli_exec_progress(&p->exec);
    cr_assert_eq(p->fake.mismatches, 1);
    cr_assert_not(p->op->done);
    colli_exec_cancel(&p->exec, COLL_ERR_MISMATCH);
    run_close(p);
  }
}

/* A step that forwards what it receives, and all steps after it, are left to the executor. */
Test(fastpath, one_ends_before_a_step_that_both_receives_and_sends) {
  const colli_algo *algo = colli_algo_find(COLLI_ALLREDUCE, "recdbl");
  colli_shape shape = {.coll = COLLI_ALLREDUCE, .nranks = 4};
  colli_sched *sched;
  colli_partition part;
  colli_fastpath *fastpath = NULL;
  cr_assert_eq(colli_algo_emit(algo, &shape, &sched), COLL_OK);
  colli_choice_partition(algo, &shape, 4, sizeof(float), &limits, &part);
  cr_assert(colli_fastpath_make(&fastpath, sched, &part, sizeof(float), 0, 0));
  cr_assert_eq(fastpath->count, 1);
  cr_assert_not(fastpath->whole);
  free(fastpath);
  colli_sched_free(sched);
}

/* If there is no room for all slices of a step, the executor runs all of them. */
Test(fastpath, one_ends_between_steps) {
  const colli_algo *algo = colli_algo_find(COLLI_ALLGATHER, "direct");
  static const colli_limits three = {.slot_bytes = 4096, .slot_count = 8, .slice_bytes = 64};
  colli_shape shape = {.coll = COLLI_ALLGATHER, .nranks = 16};
  colli_sched *sched;
  cr_assert_eq(colli_algo_emit(algo, &shape, &sched), COLL_OK);
  for (size_t count = 1; count <= 100; count++) {
    colli_partition part;
    colli_fastpath *fastpath = NULL;
    colli_choice_partition(algo, &shape, count, sizeof(float), &three, &part);
    cr_assert(colli_fastpath_make(&fastpath, sched, &part, sizeof(float), 0, 0));
    const colli_fastpath_step *last = &fastpath->steps[fastpath->count - 1];
    cr_assert_eq(last->sched_done + last->count, count, "%zu elements", count);
    cr_assert(!fastpath->whole || fastpath->count >= 16);
    free(fastpath);
  }
  colli_sched_free(sched);
}

static void fake_register(coll_endpoint *ep, const void *owner, const void *buf, size_t bytes,
                          int written) {
  (void)ep, (void)owner, (void)buf, (void)bytes, (void)written;
}

static void fake_unregister(coll_endpoint *ep, const void *owner) {
  (void)ep, (void)owner;
}

/* It runs only over connections that poll without a system call and send from slots, and not before
 * they exist. */
Test(fastpath, what_connections_can_run_one) {
  one_run *p = run_open(COLLI_ALLREDUCE, "recdbl", 0, 0, 0);
  colli_fastpath *fastpath = NULL;
  coll_transport_ops ops = fake_ops;
  cr_assert(colli_fastpath_make(&fastpath, p->sched, &p->op->partition, sizeof(float), 0, 0));
  p->fake.base.ops = &ops;
  cr_assert(colli_fastpath_can(&p->exec, fastpath));
  ops.caps = COLL_CAP_SPIN | COLL_CAP_SEND_DIRECT;
  cr_assert_not(colli_fastpath_can(&p->exec, fastpath));
  ops.caps = 0;
  cr_assert_not(colli_fastpath_can(&p->exec, fastpath));
  ops.caps = COLL_CAP_SPIN;
  ops.register_buffer = fake_register;
  ops.release_buffers = fake_unregister;
  cr_assert(colli_fastpath_can(&p->exec, fastpath), "too short to register");
  fastpath->longest = COLLI_REGISTER_MIN_BYTES;
  cr_assert_not(colli_fastpath_can(&p->exec, fastpath));
  p->links[1].conn[0] = NULL;
  fastpath->longest = 0;
  cr_assert_not(colli_fastpath_can(&p->exec, fastpath));
  free(fastpath);
  run_close(p);
}
