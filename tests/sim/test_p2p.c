/*
 * test_p2p.c: messages from any source, to oneself and to others, and puts and signals, on
 * simulated worlds with late, refused and pending messages, small slots and few of them.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_seeds.h"

#define LIMIT_NS (60 * COLLI_NS_PER_S)

enum { MAX_BYTES = 3000, ROUNDS = 4, PUTS = 6, PART = 700 };

static int below(colli_prng *prng, int bound) {
  return (int)colli_prng_below(prng, (uint64_t)bound);
}

/* The length of the message from one rank to another in a round; both ends compute the same. */
static int length(uint64_t seed, int round, int from, int to) {
  colli_prng prng = {seed * 131 + (uint64_t)(round * 10000 + from * 100 + to)};
  return below(&prng, 3) ? below(&prng, 40) : below(&prng, MAX_BYTES);
}

/* A byte of a message. */
static char byte_of(int round, int from, int to, int at) {
  return (char)(round * 3 + from * 5 + to * 7 + at * 11);
}

/* Whether a message has the contents that its sender wrote. */
static bool right(const char *buf, uint64_t seed, int round, const coll_message *message, int to) {
  if ((int)message->count != length(seed, round, message->source, to))
    return false;
  for (int i = 0; i < (int)message->count; i++)
    if (buf[i] != byte_of(round, message->source, to, i))
      return false;
  return true;
}

/* Each rank sends to all, in its own order; some receive from any source. */
static int exchange_messages(coll_comm *comm, int rank, int nranks, uint64_t seed, int round,
                             char *memory) {
  colli_prng prng = {seed + (uint64_t)(rank + round * 50)};
  int first = below(&prng, nranks), wild = below(&prng, 2), tag = wild ? 2 * round : 2 * round + 1;
  coll_request *requests[64];
  bool heard[64] = {false};
  coll_message message;
  char *in = memory + (size_t)nranks * MAX_BYTES;
  for (int i = 0; i < nranks; i++) {
    int peer = (first + i) % nranks, count = length(seed, round, rank, peer);
    colli_prng other = {seed + (uint64_t)(peer + round * 50)};
    below(&other, nranks);
    char *out = memory + (size_t)peer * MAX_BYTES;
    for (int at = 0; at < count; at++)
      out[at] = byte_of(round, rank, peer, at);
    if (coll_isend(out, (size_t)count, COLL_INT8, peer,
                   below(&other, 2) ? 2 * round : 2 * round + 1, comm, &requests[i]) != COLL_OK)
      return 1;
  }
  for (int i = 0; i < nranks; i++) {
    int source = wild ? COLL_ANY_SOURCE : (rank + i) % nranks;
    if (coll_recv(in, MAX_BYTES, COLL_INT8, source, tag, &message, comm) != COLL_OK ||
        heard[message.source] || message.tag != tag || !right(in, seed, round, &message, rank))
      return 1;
    heard[message.source] = true;
  }
  for (int i = 0; i < nranks; i++)
    if (coll_wait(&requests[i], -1) != COLL_OK)
      return 1;
  return 0;
}

/* Each rank puts into its part of the next rank's memory. */
static int put_around(coll_comm *comm, int rank, int nranks, uint64_t seed, char *memory) {
  char shadow[PART] = {0}, wanted[PART];
  int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  colli_prng prng = {seed + (uint64_t)rank * 7};
  coll_window *window;
  memset(memory, 0, PART);
  if (coll_window_create(comm, memory, PART, &window) != COLL_OK)
    return 1;
  for (int i = 0; i < PUTS; i++) {
    char data[PART];
    int at = below(&prng, PART), count = below(&prng, PART - at + 1);
    for (int b = 0; b < count; b++)
      data[b] = (char)below(&prng, 256);
    memcpy(shadow + at, data, (size_t)count);
    if (coll_put(data, (size_t)count, COLL_INT8, next, (size_t)at, window, comm) != COLL_OK)
      return 1;
  }
  if (coll_signal(next, window, comm) != COLL_OK ||
      coll_wait_signal(before, 1, window, comm) != COLL_OK ||
      coll_sendrecv(shadow, PART, next, 99, wanted, PART, before, 99, COLL_INT8, NULL, comm) !=
          COLL_OK)
    return 1;
  bool same = memcmp(memory, wanted, PART) == 0;
  return coll_window_destroy(&window) != COLL_OK || !same;
}

/* One rank's program. */
static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  uint64_t seed = *(uint64_t *)arg;
  char *memory = malloc((size_t)(nranks + 1) * MAX_BYTES);
  int failed = 0;
  for (int round = 0; round < ROUNDS && !failed; round++) {
    failed = exchange_messages(comm, rank, nranks, seed, round, memory);
    if (!failed && round % 2)
      failed = put_around(comm, rank, nranks, seed + (uint64_t)round, memory);
  }
  if (failed) {
    coll_error error = COLL_ERROR_INIT;
    coll_last_error(comm, &error);
    fprintf(stderr, "seed %llu: rank %d of %d: %s\n", (unsigned long long)seed, rank, nranks,
            error.message);
  }
  free(memory);
  return failed;
}

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  seeded_world_make(&sw, seed, 1, 9);
  world w;
  if (!world_open(&w, &sw.config))
    return false;
  bool ok = world_run_fibers(&w, run_rank, &seed, LIMIT_NS);
  if (!ok || verbose)
    fprintf(stderr, "seed %llu: %s, %d ranks, after %.3f ms, faults '%s'\n",
            (unsigned long long)seed, ok ? "right" : "wrong", w.nranks, (double)world_now(&w) / 1e6,
            sw.fault);
  world_close(&w);
  return ok;
}

Test(p2p, worlds, .timeout = 280) {
  cr_assert_eq(seeds_run("build/tests/sim_test_p2p", run_seed, 1, 300), 0);
}
