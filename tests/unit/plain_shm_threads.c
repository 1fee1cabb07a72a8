/*
 * plain_shm_threads.c: ranks as threads of one process, each with its own shared-memory endpoint:
 * they connect, pass a token around a ring while sleeping between messages, and leave at different
 * times, again and again. A receiver sees what the sender wrote before it sent. Also run under
 * ThreadSanitizer.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/prng.h"
#include "transports/shm/shm.h"

enum { RANKS = 4, LIVES = 60, LAPS = 60, DEADLINE_S = 30 };

typedef struct rank {
  coll_transport_env env;
  coll_endpoint *ep;
  coll_conn *next, *previous;
  pthread_barrier_t *barrier;
  uint8_t (*blobs)[COLL_BLOB_BYTES];
  int failures;
  int notes[LAPS]; /* plain memory that the next rank reads once the token has come */
} rank;

static uint64_t now_ns(void *ctx) {
  (void)ctx;
  return colli_now_ns();
}

static void note_failure(void *ctx, const coll_transport_failure *failure) {
  rank *r = ctx;
  r->failures++;
  fprintf(stderr, "rank %d, peer %d: %s\n", r->env.rank, failure->peer, failure->detail);
}

static const char *no_param(void *ctx, const char *name) {
  (void)ctx;
  (void)name;
  return "";
}

/* Polls, or sleeps if there is nothing to do. */
static void pause_rank(rank *r) {
  if (shm_transport.progress(r->ep) != 0)
    return;
  if (!shm_transport.arm(r->ep)) {
    struct pollfd p = {.fd = shm_transport.wait_fd(r->ep), .events = POLLIN};
    if (poll(&p, 1, DEADLINE_S * 1000) != 1) {
      fprintf(stderr, "rank %d was not woken\n", r->env.rank);
      r->failures++;
    }
  }
  shm_transport.disarm(r->ep);
}

/* Passes tokens around the ring. */
static void pass_tokens(rank *r) {
  for (uint64_t lap = 0; lap < LAPS && !r->failures; lap++) {
    coll_tag tag = {{lap, 0, 0}}, got;
    uint64_t token = lap * 10 + (uint64_t)r->env.rank, in = 0;
    size_t got_bytes;
    int result;
    r->notes[lap] = (int)lap + 1;
    while ((result = shm_transport.send(r->next, &tag, &token, sizeof token)) == COLL_T_AGAIN &&
           !r->failures)
      pause_rank(r);
    while (result == COLL_T_DONE &&
           (result = shm_transport.recv(r->previous, &tag, &in, sizeof in, &got, &got_bytes)) ==
               COLL_T_AGAIN) {
      result = COLL_T_DONE;
      pause_rank(r);
      if (r->failures)
        return;
    }
    if (result != COLL_T_DONE || in != lap * 10 + (uint64_t)(r->env.rank + RANKS - 1) % RANKS) {
      fprintf(stderr, "rank %d, lap %d: wrong token or error %d\n", r->env.rank, (int)lap, result);
      r->failures++;
    }
    const rank *before = r->env.rank ? r - 1 : r + RANKS - 1;
    if (result == COLL_T_DONE && before->notes[lap] != (int)lap + 1) {
      fprintf(stderr, "rank %d, lap %d: the token overtook the note\n", r->env.rank, (int)lap);
      r->failures++;
    }
  }
}

/* One thread. */
static void *run(void *arg) {
  rank *r = arg;
  for (int life = 0; life < LIVES; life++) {
    int me = r->env.rank, next = (me + 1) % RANKS, previous = (me + RANKS - 1) % RANKS;
    if (shm_transport.open(&r->env, &r->ep) != COLL_OK)
      exit(1); /* the others wait at the barrier */
    shm_transport.describe(r->ep, r->blobs[me]);
    pthread_barrier_wait(r->barrier);
    shm_transport.connect(r->ep, next, r->blobs[next], 0, &r->next);
    shm_transport.connect(r->ep, previous, r->blobs[previous], 0, &r->previous);
    pthread_barrier_wait(r->barrier); /* the blobs may be overwritten */
    pass_tokens(r);
    shm_transport.disconnect(r->next);
    shm_transport.disconnect(r->previous);
    shm_transport.close(r->ep);
  }
  return NULL;
}

int main(void) {
  static rank ranks[RANKS];
  uint8_t blobs[RANKS][COLL_BLOB_BYTES];
  pthread_barrier_t barrier;
  pthread_t threads[RANKS];
  int failures = 0;
  pthread_barrier_init(&barrier, NULL, RANKS);
  for (int i = 0; i < RANKS; i++) {
    ranks[i].barrier = &barrier;
    ranks[i].blobs = blobs;
    ranks[i].env =
        (coll_transport_env){.size = sizeof(coll_transport_env),
                             .ctx = &ranks[i],
                             .now_ns = now_ns,
                             .fail = note_failure,
                             .param = no_param,
                             .rank = i,
                             .nranks = RANKS,
                             .host_id = 1,
                             .comm_id = 3,
                             .secret = (const uint8_t *)"the same secret for all of these",
                             .slot_bytes = 4096,
                             .slot_count = 2};
  }
  for (int i = 0; i < RANKS; i++)
    if (pthread_create(&threads[i], NULL, run, &ranks[i]) != 0)
      return 1;
  for (int i = 0; i < RANKS; i++) {
    pthread_join(threads[i], NULL);
    failures += ranks[i].failures;
  }
  printf("%d ranks, %d lives, %d failures\n", RANKS, LIVES, failures);
  return failures != 0;
}
