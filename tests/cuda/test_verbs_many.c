/*
 * test_verbs_many.c: many messages over (fake) InfiniBand from and to memory of (fake) GPUs: at
 * once, in groups, with faults; and ranks that are lost in the middle.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/prng.h"
#include "support_verbs_device.h"
#include "tests/proc/support_ranks.h"

TestSuite(rdma_many, .timeout = 120);

enum { SLOT = 16384, LEAST = 1 << 20, MANY = 24 };

static rdma its;

static void load(void) {
  its = rdma_load("2");
  its.fake->dmabuf_late = true;
  setenv("COLL_SLOT_BYTES", "16K", 1);
}

static int timeout_ms = 20000;

/* Runs ranks as threads, connected by verbs. */
static int run(int nranks, const char *fault, rank_fn fn, void *arg) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "verbs";
  config.timeout_ms = timeout_ms;
  if (fault)
    setenv("COLL_FAULT", fault, 1);
  device_use(0);
  const int result = run_threads(nranks, &config, fn, arg);
  cr_assert_eq(its.fake->registered, 0, "%d registrations are left", its.fake->registered);
  return result;
}

/* ---- all with all ---------------------------------------------------------------------------- */

/* A program of random messages; every rank knows all of them. */
typedef struct program {
  uint64_t seed;
  bool in_streams;
} program;

/* One of its messages. */
typedef struct letter {
  int from, to;
  size_t bytes;
  bool from_host, to_host;
} letter;

static letter next_letter(colli_prng *prng, int nranks) {
  static const size_t lengths[] = {0, 100, SLOT, SLOT + 1, LEAST, LEAST + 1, 2 * LEAST + 333};
  letter it = {.from = (int)colli_prng_below(prng, (uint64_t)nranks),
               .to = (int)colli_prng_below(prng, (uint64_t)nranks),
               .bytes = lengths[colli_prng_below(prng, 7)]};
  it.from_host = colli_prng_below(prng, 4) == 0;
  it.to_host = colli_prng_below(prng, 4) == 0;
  return it;
}

/* Where a rank has a letter. */
typedef struct place {
  char *host, *device, *buf;
} place;

static place place_of(const letter *it, bool sends, unsigned seed) {
  place p = {.host = malloc(it->bytes + 1), .device = rdma_take(it->bytes, sends ? seed : 0)};
  if (!p.host)
    abort();
  rdma_fill(p.host, it->bytes, sends ? seed : 0);
  p.buf = (sends ? it->from_host : it->to_host) ? p.host : p.device;
  return p;
}

/* Starts one half of a letter; in a stream if there is one. */
static coll_status start(const letter *it, bool sends, int tag, char *buf, coll_comm *comm,
                         colli_cu_stream stream, coll_request **request) {
  if (stream)
    return sends
               ? coll_send_on_stream(buf, it->bytes, COLL_UINT8, it->to, tag, comm, stream)
               : coll_recv_on_stream(buf, it->bytes, COLL_UINT8, it->from, tag, NULL, comm, stream);
  return sends ? coll_isend(buf, it->bytes, COLL_UINT8, it->to, tag, comm, request)
               : coll_irecv(buf, it->bytes, COLL_UINT8, it->from, tag, NULL, comm, request);
}

static int run_program(coll_comm *comm, int rank, int nranks, void *arg) {
  const program *all = arg;
  colli_prng prng = {all->seed};
  letter letters[MANY];
  place places[2][MANY];
  coll_request *requests[2 * MANY];
  int count = 0;
  device_use(device_of_rank(rank));
  colli_cu_stream stream = all->in_streams ? device_stream() : NULL;
  if (stream)
    RANK_OK(coll_group_start(comm));
  for (int i = 0; i < MANY; i++) {
    letters[i] = next_letter(&prng, nranks);
    for (int half = 0; half < 2; half++)
      if ((half ? letters[i].to : letters[i].from) == rank) {
        places[half][i] = place_of(&letters[i], !half, (unsigned)i + 1);
        RANK_OK(start(&letters[i], !half, i, places[half][i].buf, comm, stream, &requests[count]));
        count++;
      }
  }
  if (stream) {
    RANK_OK(coll_group_end(comm));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
  }
  for (int i = 0; i < count && !stream; i++)
    RANK_OK(coll_wait(&requests[i], -1));
  for (int i = 0; i < MANY; i++)
    for (int half = 0; half < 2; half++)
      if ((half ? letters[i].to : letters[i].from) == rank) {
        const place *p = &places[half][i];
        const unsigned seed = (unsigned)i + 1;
        RANK_CHECK(p->buf == p->host ? rdma_is(p->host, letters[i].bytes, seed)
                                     : rdma_has(p->device, letters[i].bytes, seed, 0));
        rdma_give(p->device);
        free(p->host);
      }
  return 0;
}

Test(rdma_many, at_once, .init = load) {
  for (uint64_t seed = 1; seed <= 6; seed++) {
    program p = {.seed = seed};
    cr_assert_eq(run(2 + (int)seed % 3, NULL, run_program, &p), 0, "seed %d", (int)seed);
  }
  cr_assert_gt(its.fake->dmabuf_written, 0);
}

Test(rdma_many, in_groups_in_streams, .init = load) {
  for (uint64_t seed = 1; seed <= 4; seed++) {
    program p = {.seed = seed, .in_streams = true};
    cr_assert_eq(run(2 + (int)seed % 3, NULL, run_program, &p), 0, "seed %d", (int)seed);
  }
  cr_assert_gt(its.fake->dmabuf_written, 0);
}

Test(rdma_many, with_faults, .init = load) {
  for (uint64_t seed = 1; seed <= 6; seed++) {
    char fault[100];
    program p = {.seed = seed, .in_streams = seed % 2};
    snprintf(fault, sizeof(fault), "again=20,pending=20,refuse=20,seed=%d", (int)seed);
    cr_assert_eq(run(2 + (int)seed % 3, fault, run_program, &p), 0, "seed %d", (int)seed);
  }
  cr_assert_gt(its.fake->dmabuf_written, 0);
}

/* ---- both ways, again and again ---------------------------------------------------------------
 */

/* Exchanges long messages around a ring; nothing is kept from one time to the next. */
static int run_ring(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t bytes = 2 * LEAST + 5;
  const int next = (rank + 1) % nranks, last = (rank + nranks - 1) % nranks;
  int fds = 0, registered = 0;
  (void)arg;
  device_use(device_of_rank(rank));
  char *in = rdma_take(bytes, 0), *out = rdma_take(bytes, 0);
  for (unsigned i = 0; i < 12; i++) {
    rdma_fill(device_place(in), bytes, 20 * i + (unsigned)rank + 1);
    RANK_OK(coll_sendrecv(in, bytes, next, 1, out, bytes, last, 1, COLL_UINT8, NULL, comm));
    RANK_CHECK(rdma_has(out, bytes, 20 * i + (unsigned)last + 1, 0));
    RANK_OK(coll_barrier(comm));
    if (rank == 0 && i == 1) { /* to count descriptors takes one, so one rank does that */
      fds = count_fds();
      registered = its.fake->registered;
    }
    RANK_CHECK(rank != 0 || i == 0 || (count_fds() == fds && its.fake->registered == registered));
    RANK_OK(coll_barrier(comm));
  }
  rdma_give(in);
  rdma_give(out);
  return 0;
}

Test(rdma_many, around_a_ring, .init = load) {
  cr_assert_eq(run(3, NULL, run_ring, NULL), 0);
}

/* ---- the end in the middle --------------------------------------------------------------------
 */

/* A call that fails. */
typedef struct cut {
  bool in_stream;
  atomic_int ended; /* on so many ranks */
} cut;

/* Of a message something has come when the connection breaks: both ends get an error, and then
 * nobody writes to the receiver's memory. */
static int run_cut(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t bytes = 12 * LEAST + 1;
  cut *c = arg;
  letter it = {.from = 0, .to = 1, .bytes = bytes};
  coll_request *request = NULL;
  device_use(device_of_rank(rank));
  char *buf = rdma_take(bytes, rank ? 0 : 5), *copy = malloc(bytes);
  RANK_CHECK(copy);
  colli_cu_stream stream = c->in_stream ? device_stream() : NULL;
  coll_status status = start(&it, rank == 0, 3, buf, comm, stream, &request);
  if (stream) {
    device_await(stream);
    status = coll_comm_async_error(comm);
  } else if (status == COLL_OK) {
    status = coll_wait(&request, -1);
  }
  RANK_CHECK(status == COLL_ERR_PEER_LOST);
  if (rank == 1) {
    its.settle();
    memcpy(copy, device_place(buf), bytes);
  }
  atomic_fetch_add(&c->ended, 1);
  while (atomic_load(&c->ended) < nranks)
    sched_yield();
  if (rank == 1) {
    its.settle();
    RANK_CHECK(memcmp(copy, device_place(buf), bytes) == 0);
  }
  rdma_give(buf);
  free(copy);
  return 0;
}

Test(rdma_many, cut_in_the_middle, .init = load) {
  bool some = false;
  for (int after = 1; after < 14; after++)
    for (int in_stream = 0; in_stream < 2; in_stream++) {
      char fault[60];
      cut arg = {.in_stream = in_stream};
      snprintf(fault, sizeof(fault), "cut=0-1@%d", after);
      its.fake->dmabuf_written = 0;
      cr_assert_eq(run(2, fault, run_cut, &arg), 0, "%s", fault);
      some |= its.fake->dmabuf_written > 0;
    }
  cr_assert(some, "each time before the target");
}

/* A communicator ends before a stream has come to its call: nothing remains registered. */
static int run_held(coll_comm *comm, int rank, int nranks, void *arg) {
  device_gate **gates = arg;
  letter it = {.from = 0, .to = 1, .bytes = 2 * LEAST};
  (void)nranks;
  device_use(device_of_rank(rank));
  char *buf = rdma_take(it.bytes, 0);
  colli_cu_stream stream = device_stream();
  const int before = its.fake->registered;
  device_may_leak();
  gates[rank] = device_stop(stream);
  RANK_OK(start(&it, rank == 0, 3, buf, comm, stream, NULL));
  RANK_CHECK(its.fake->registered > before);
  return 0;
}

Test(rdma_many, held_until_the_end, .init = load) {
  device_gate *gates[2];
  timeout_ms = 300;
  cr_assert_eq(run(2, NULL, run_held, gates), 0);
  for (int i = 0; i < 2; i++)
    device_open(gates[i]);
}

/* The sender is killed when its message has begun. */
static int run_killed(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t bytes = 12 * LEAST + 1;
  coll_request *request;
  (void)nranks;
  (void)arg;
  device_use(device_of_rank(rank));
  char *buf = rdma_take(bytes, rank ? 0 : 5);
  RANK_OK(coll_barrier(comm));
  const int before = its.fake->registered;
  if (rank == 0) {
    RANK_OK(coll_isend(buf, bytes, COLL_UINT8, 1, 3, comm, &request));
    while (its.fake->dmabuf_read < 3 * LEAST)
      (void)coll_test(&request);
    raise(SIGKILL);
  }
  RANK_CHECK(coll_recv(buf, bytes, COLL_UINT8, 0, 3, NULL, comm) == COLL_ERR_PEER_LOST);
  RANK_CHECK(its.fake->dmabuf_written > 0 && its.fake->registered < before + 1);
  rdma_give(buf);
  return 0;
}

Test(rdma_many, killed_in_the_middle, .init = load) {
  coll_config config = COLL_CONFIG_INIT;
  int results[2];
  config.transport = "verbs";
  its.fake->run = (uint64_t)getpid();
  run_processes(2, &config, run_killed, NULL, 60, results);
  cr_assert_eq(results[0], 128 + SIGKILL);
  cr_assert_eq(results[1], 0);
}
