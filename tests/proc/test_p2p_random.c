/*
 * test_p2p_random.c: seeded random rounds of sends and receives between all ranks, started in
 * random order, with wildcards. The test records which receive took which message, and checks only
 * the rules: a receive takes a message that matches; of two matching messages of one sender it
 * takes the earlier; and a message goes to the earliest receive that matches.
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "support_ranks.h"

enum { MAX_RANKS = 5, MAX_SENT = 90, MAX_MESSAGES = MAX_RANKS * MAX_SENT, TAGS = 4 };

/* A message, in the order in which its sender sends to this destination. */
typedef struct sent_message {
  int source, tag;
  size_t count;
} sent_message;

typedef struct receive {
  int source, tag;
  int got_source, got_nth; /* what it took: the nth of that source */
} receive;

/* The messages to one rank in a round, and its receives. */
typedef struct plan {
  sent_message sent[MAX_RANKS][MAX_SENT];
  int nsent[MAX_RANKS];
  receive receives[MAX_MESSAGES];
  int nreceives;
} plan;

/* A program that all ranks know. */
typedef struct program {
  int nranks;
  uint64_t seed;
  coll_type type;
  size_t elem_bytes;
  plan plans[MAX_RANKS]; /* by destination */
} program;

static int below(colli_prng *prng, int bound) {
  return (int)colli_prng_below(prng, (uint64_t)bound);
}

static bool fits(const receive *r, int source, int tag) {
  return (r->source == COLL_ANY_SOURCE || r->source == source) &&
         (r->tag == COLL_ANY_TAG || r->tag == tag);
}

/* Adds a receive. */
static void add_receive(plan *p, int source, int tag) {
  p->receives[p->nreceives++] = (receive){.source = source, .tag = tag, .got_nth = -1};
}

/* Adds receives so that each message of one source is taken; wildcards are first checked against
 * the rules. mixed: some are from any source. */
static void receive_exactly(colli_prng *prng, plan *p, int source, bool mixed) {
  int count = p->nsent[source], left = count, taken_by[MAX_SENT];
  receive tries[MAX_SENT];
  for (int i = 0; i < count; i++)
    tries[i] = (receive){.source = mixed && below(prng, 2) ? COLL_ANY_SOURCE : source,
                         .tag = below(prng, 3) ? below(prng, TAGS) : COLL_ANY_TAG,
                         .got_nth = -1};
  for (int m = 0; m < count; m++) {
    taken_by[m] = -1;
    for (int i = 0; i < count && taken_by[m] < 0; i++)
      if (tries[i].got_nth < 0 && fits(&tries[i], source, p->sent[source][m].tag))
        tries[i].got_nth = taken_by[m] = i;
  }
  for (int i = 0; i < count; i++)
    if (tries[i].got_nth >= 0)
      add_receive(p, tries[i].source, tries[i].tag), left--;
  for (int m = 0; m < count && left > 0; m++)
    if (taken_by[m] < 0)
      add_receive(p, source, p->sent[source][m].tag), left--;
}

/* Shuffles receives, but keeps the order within each source. */
static void interleave(colli_prng *prng, plan *p) {
  for (int pass = 0; pass < 3; pass++)
    for (int i = 1; i < p->nreceives; i++) {
      receive *a = &p->receives[i - 1], *b = &p->receives[i], swap = *a;
      if (a->source != b->source && below(prng, 2))
        *a = *b, *b = swap;
    }
}

/* The plan of one destination. */
static void make_plan(colli_prng *prng, program *s, plan *p) {
  int mode = below(prng, 4), most = below(prng, 4) ? 12 : MAX_SENT;
  int only = mode == 3 ? below(prng, s->nranks) : -1; /* the source with wildcard receives */
  for (int source = 0; source < s->nranks; source++) {
    p->nsent[source] = only < 0 || only == source ? below(prng, most + 1) : 0;
    for (int m = 0; m < p->nsent[source]; m++) {
      int kind = below(prng, 12);
      size_t count = 4 + (size_t)below(prng, kind == 0 ? 20000 : kind < 3 ? 5000 : 100);
      p->sent[source][m] = (sent_message){source, below(prng, TAGS), count};
    }
  }
  p->nreceives = 0;
  for (int source = 0; source < s->nranks; source++) {
    if (mode % 3 == 0)
      receive_exactly(prng, p, source, mode == 3);
    for (int m = 0; mode % 3 && m < p->nsent[source]; m++) {
      int tag = p->sent[source][m].tag;
      if (mode == 1)
        add_receive(p, COLL_ANY_SOURCE, COLL_ANY_TAG);
      else
        add_receive(p, tag % 2 ? COLL_ANY_SOURCE : source, tag);
    }
  }
  if (mode != 3)
    interleave(prng, p);
}

static void make_program(program *s, int nranks, uint64_t seed) {
  static const coll_type types[] = {COLL_INT32, COLL_FLOAT64, COLL_UINT8, COLL_TYPE_USER(12)};
  colli_prng prng = {seed};
  s->nranks = nranks;
  s->seed = seed;
  s->type = types[below(&prng, 4)];
  s->elem_bytes = coll_type_bytes(s->type);
  for (int rank = 0; rank < nranks; rank++)
    make_plan(&prng, s, &s->plans[rank]);
}

/* ---- running it ------------------------------------------------------------------------------ */

/* Fills a message: its sender and number, and pseudorandom data that depends on them. */
static void write_message(const program *s, char *buf, int source, int nth, int dest,
                          size_t bytes) {
  colli_prng prng = {s->seed * 31 + (uint64_t)(source * 100000 + nth * 100 + dest)};
  for (size_t i = 0; i < bytes; i++)
    buf[i] = (char)(i % 64 ? (uint64_t)buf[i - 1] * 5 + 1 : colli_prng_next(&prng));
  buf[0] = (char)source;
  buf[1] = (char)nth;
  buf[2] = (char)dest;
}

/* One operation that a rank has to start. */
typedef struct action {
  bool sends;
  int peer, index; /* send: the index-th to peer; receive: its index */
  char *buf;
  coll_message message;
  coll_request *request;
} action;

/* All operations of a rank in a round; sends and receives are interleaved at random. */
static int list_actions(const program *s, int rank, colli_prng *prng, action *actions) {
  int next[MAX_RANKS] = {0}, left[MAX_RANKS + 1], count = 0, total = 0;
  for (int peer = 0; peer < s->nranks; peer++)
    total += left[peer] = s->plans[peer].nsent[rank];
  total += left[s->nranks] = s->plans[rank].nreceives;
  int receives = 0;
  while (count < total) {
    int which = below(prng, s->nranks + 1);
    if (below(prng, 2))
      which = s->nranks;
    if (left[which] == 0)
      continue;
    left[which]--;
    bool sends = which < s->nranks;
    actions[count++] =
        (action){.sends = sends, .peer = which, .index = sends ? next[which]++ : receives++};
  }
  return count;
}

static coll_status start_action(coll_comm *comm, program *s, int rank, action *a) {
  if (a->sends) {
    const sent_message *m = &s->plans[a->peer].sent[rank][a->index];
    size_t bytes = m->count * s->elem_bytes;
    a->buf = malloc(bytes);
    write_message(s, a->buf, rank, a->index, a->peer, bytes);
    return coll_isend(a->buf, m->count, s->type, a->peer, m->tag, comm, &a->request);
  }
  const receive *r = &s->plans[rank].receives[a->index];
  a->buf = malloc(20004 * s->elem_bytes);
  return coll_irecv(a->buf, 20004, s->type, r->source, r->tag, &a->message, comm, &a->request);
}

/* Records which message a receive took; false if it is damaged. */
static bool note_receive(program *s, int rank, const action *a, char *check) {
  plan *p = &s->plans[rank];
  receive *r = &p->receives[a->index];
  int source = (unsigned char)a->buf[0], nth = (unsigned char)a->buf[1];
  if (source >= s->nranks || nth >= p->nsent[source])
    return false;
  const sent_message *m = &p->sent[source][nth];
  r->got_source = source;
  r->got_nth = nth;
  if (a->message.source != source || a->message.tag != m->tag || a->message.count != m->count)
    return false;
  write_message(s, check, source, nth, rank, m->count * s->elem_bytes);
  return memcmp(check, a->buf, m->count * s->elem_bytes) == 0;
}

/* Checks the receives of one rank against the rules. */
static bool judge_receives(const plan *p) {
  static _Thread_local int taken_by[MAX_RANKS][MAX_SENT];
  memset(taken_by, -1, sizeof(taken_by));
  for (int i = 0; i < p->nreceives; i++) {
    const receive *r = &p->receives[i];
    if (r->got_nth < 0 || taken_by[r->got_source][r->got_nth] >= 0 ||
        !fits(r, r->got_source, p->sent[r->got_source][r->got_nth].tag))
      return false;
    taken_by[r->got_source][r->got_nth] = i;
  }
  for (int i = 0; i < p->nreceives; i++) {
    const receive *r = &p->receives[i];
    int source = r->got_source;
    for (int m = 0; m < r->got_nth; m++) /* earlier messages that match it */
      if (fits(r, source, p->sent[source][m].tag) && taken_by[source][m] > i)
        return false;
  }
  return true;
}

/* Runs one round of one rank. */
static int run_round(coll_comm *comm, int rank, program *s, colli_prng *prng) {
  static _Thread_local action actions[2 * MAX_MESSAGES];
  int count = list_actions(s, rank, prng, actions);
  char *check = malloc(20004 * s->elem_bytes);
  for (int i = 0; i < count; i++)
    RANK_OK(start_action(comm, s, rank, &actions[i]));
  int first = below(prng, count + 1);
  for (int i = 0; i < count; i++)
    RANK_OK(coll_wait(&actions[(first + i) % count].request, -1));
  for (int i = 0; i < count; i++) {
    if (!actions[i].sends)
      RANK_CHECK(note_receive(s, rank, &actions[i], check));
    free(actions[i].buf);
  }
  free(check);
  return judge_receives(&s->plans[rank]) ? 0 : 1;
}

typedef struct test_run {
  uint64_t first;
  int rounds;
  program programs[MAX_RANKS]; /* each rank has its own copy */
} test_run;

static int all_rounds(coll_comm *comm, int rank, int nranks, void *arg) {
  test_run *g = arg;
  program *s = &g->programs[rank];
  for (int round = 0; round < g->rounds; round++) {
    uint64_t seed = g->first + (uint64_t)round;
    colli_prng prng = {seed * 977 + (uint64_t)rank};
    make_program(s, nranks, seed);
    if (run_round(comm, rank, s, &prng) != 0) {
      fprintf(stderr, "seed %llu: rank %d of %d\n", (unsigned long long)seed, rank, nranks);
      return 1;
    }
    RANK_OK(coll_barrier(comm)); /* wildcards of one round must not take messages of the next */
  }
  return 0;
}

/* Runs rounds for all numbers of ranks over a transport. */
static void rounds_over(const char *transport, uint64_t first, int rounds) {
  test_run *g = calloc(1, sizeof(*g));
  setenv("COLL_SLOT_BYTES", "4096", 1);
  setenv("COLL_SLOT_COUNT", "4", 1);
  for (int nranks = 1; nranks <= MAX_RANKS; nranks++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transport;
    config.timeout_ms = 20000;
    g->first = first + (uint64_t)nranks * 1000;
    g->rounds = rounds;
    cr_assert_eq(run_threads(nranks, &config, all_rounds, g), 0, "%d ranks over %s", nranks,
                 transport);
  }
  free(g);
}

Test(p2p_random, over_shm, .timeout = 200) {
  rounds_over("shm", 1, extent(120, 120, 30));
}

Test(p2p_random, over_tcp, .timeout = 200) {
  rounds_over("tcp", 1000001, extent(50, 50, 12));
}
