/*
 * plain_shm_ring.c: two threads stream random messages both ways through one pair of rings,
 * sleeping on condition variables as an endpoint sleeps on its doorbell. Lost and torn messages and
 * lost wake-ups fail the test; also run under ThreadSanitizer.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libcoll/base/prng.h"
#include "transports/shm/shm_data.h"

enum { MESSAGES = 20000, SLOT_BYTES = 300, SLOT_COUNT = 3 };

typedef struct bell {
  pthread_mutex_t lock;
  pthread_cond_t rung;
  int count;
} bell;

typedef struct side {
  shm_link link;
  bell mine;
  struct side *other;
  uint64_t seed_out, seed_in;
  int failures;
  int sleeps;
  bool fenced;
} side;

/* Rings a bell. */
static void ring(bell *b) {
  pthread_mutex_lock(&b->lock);
  b->count++;
  pthread_cond_signal(&b->rung);
  pthread_mutex_unlock(&b->lock);
}

/* Sleeps until the bell rings; false if it does not within ten seconds. */
static bool sleep_on(bell *b) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 10;
  int error = 0;
  pthread_mutex_lock(&b->lock);
  while (b->count == 0 && error == 0)
    error = pthread_cond_timedwait(&b->rung, &b->lock, &until);
  b->count = 0;
  pthread_mutex_unlock(&b->lock);
  return error == 0;
}

/* The k-th message of a seed: its bytes, size and tag. */
static size_t make(uint64_t seed, uint64_t k, uint8_t *buf, coll_tag *tag) {
  colli_prng prng = {seed + k * 77};
  size_t bytes = colli_prng_below(&prng, 4) == 0 ? colli_prng_below(&prng, SLOT_BYTES + 1)
                                                 : colli_prng_below(&prng, 40);
  for (size_t i = 0; i < bytes; i++)
    buf[i] = (uint8_t)colli_prng_next(&prng);
  *tag = (coll_tag){{k, colli_prng_next(&prng), bytes}};
  return bytes;
}

/* Rings the other side's bell if the last call asked for it. */
static void attend(side *s) {
  if (s->link.attention & SHM_ATTENTION_BELL)
    ring(&s->other->mine);
  s->link.attention = 0;
}

/* Sends the k-th message, in place or not; true if it was sent. */
static bool try_send(side *s, uint64_t k) {
  uint8_t buf[SLOT_BYTES];
  coll_tag tag;
  void *slot;
  size_t bytes = make(s->seed_out, k, buf, &tag);
  int result;
  if (k % 3 == 0) {
    result = shm_link_acquire(&s->link, bytes, &slot);
    if (result == COLL_T_DONE) {
      memcpy(slot, buf, bytes);
      shm_link_commit(&s->link, &tag, bytes);
    }
  } else {
    result = shm_link_send(&s->link, &tag, buf, bytes);
  }
  attend(s);
  return result == COLL_T_DONE;
}

/* Receives the k-th message, in place or not; true if it arrived. */
static bool try_receive(side *s, uint64_t k) {
  uint8_t expect[SLOT_BYTES], buf[SLOT_BYTES];
  coll_tag tag, got;
  const void *slot;
  size_t bytes = make(s->seed_in, k, expect, &tag), got_bytes = 0;
  int result;
  if (k % 5 == 0) {
    result = shm_link_peek(&s->link, &got, &slot, &got_bytes);
    if (result == COLL_T_DONE) {
      if (got_bytes != bytes || memcmp(slot, expect, bytes) || memcmp(&got, &tag, sizeof tag))
        s->failures++;
      shm_link_release(&s->link);
    }
  } else {
    result = shm_link_recv(&s->link, &tag, buf, bytes, &got, &got_bytes);
    if (result == COLL_T_DONE && memcmp(buf, expect, bytes))
      s->failures++;
  }
  attend(s);
  if (result > 0)
    s->failures++;
  return result == COLL_T_DONE;
}

/* One thread: sends and receives all messages, and sleeps if it can do neither. */
static void *run(void *arg) {
  side *s = arg;
  uint64_t out = 0, in = 0;
  while ((out < MESSAGES || in < MESSAGES) && !s->failures) {
    bool moved = false;
    if (out < MESSAGES && try_send(s, out)) {
      out++;
      moved = true;
    }
    if (in < MESSAGES && try_receive(s, in)) {
      in++;
      moved = true;
    }
    if (moved)
      continue;
    shm_link_arm(&s->link);
    shm_ring_fence(s->fenced);
    if (!shm_link_ready(&s->link)) {
      s->sleeps++;
      if (!sleep_on(&s->mine)) {
        fprintf(stderr, "nobody woke a sleeper: sent %llu, received %llu\n",
                (unsigned long long)out, (unsigned long long)in);
        s->failures++;
      }
    }
    shm_link_disarm(&s->link);
  }
  return NULL;
}

int main(void) {
  size_t bytes = shm_ring_bytes(SLOT_BYTES, SLOT_COUNT);
  void *memory = aligned_alloc(SHM_PAGE, bytes);
  side *sides = aligned_alloc(SHM_LINE, 2 * sizeof *sides);
  if (!memory || !sides)
    return 1;
  bool fenced = shm_ring_register();
  memset(memory, 0, bytes);
  memset(sides, 0, 2 * sizeof *sides);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    side *s = sides + i;
    shm_link_init(&s->link, memory, SLOT_BYTES, SLOT_COUNT, i);
    pthread_mutex_init(&s->mine.lock, NULL);
    pthread_cond_init(&s->mine.rung, NULL);
    s->other = sides + !i;
    s->fenced = fenced;
    s->seed_out = 1000u + (unsigned)i;
    s->seed_in = 1000u + (unsigned)!i;
  }
  for (int i = 0; i < 2; i++)
    if (pthread_create(&threads[i], NULL, run, sides + i) != 0)
      return 1;
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  int failures = sides[0].failures + sides[1].failures;
  printf("%d messages each way, %d and %d sleeps, %d failures\n", MESSAGES, sides[0].sleeps,
         sides[1].sleeps, failures);
  free(memory);
  free(sides);
  return failures != 0;
}
