/*
 * switch.c: two processes use one GPU: they take turns with an empty kernel each, then both copy
 * --bytes as fast as they can. What does that cost beside one process alone?
 */
#include <sched.h>
#include <stdio.h>

#include "pair.h"

#define WORD_TURN 0 /* which of the shared words: the number of turns so far */

enum { TURNS = 200 }; /* of each process */

/* What a process repeats. */
typedef struct work {
  const probe *p;
  colli_cu_stream stream;
  colli_cu_deviceptr to, from;
  size_t bytes;
} work;

static void put_empty(void *context) {
  const work *w = context;
  probe_launch(w->p, w->p->empty, w->stream, NULL);
  PROBE_OK(w->p, stream_synchronize, w->stream);
}

static void put_copy(void *context) {
  const work *w = context;
  PROBE_OK(w->p, memcpy_dtod_async, w->to, w->from, w->bytes, w->stream);
}

static void await(void *context) {
  const work *w = context;
  PROBE_OK(w->p, stream_synchronize, w->stream);
}

/* The time of a turn. */
static double take_turns(const pair *it, work *w) {
  volatile uint32_t *turn = it->shared + WORD_TURN;
  pair_meet(it);
  const double start = probe_now_us();
  for (int i = 0; i < TURNS; i++) {
    while (__atomic_load_n(turn, __ATOMIC_ACQUIRE) % 2 == it->parent)
      sched_yield();
    put_empty(w);
    __atomic_add_fetch(turn, 1, __ATOMIC_RELEASE);
  }
  pair_meet(it);
  return (probe_now_us() - start) / (2 * TURNS);
}

/* One process's part. Only the first one measures what one does alone. */
static void use_it(pair *it, const probe_options *options) {
  probe p;
  probe_load(&p);
  probe_use(&p, options->device);
  work w = {.p = &p, .stream = probe_stream(&p), .bytes = options->bytes[0]};
  w.to = probe_memory(&p, w.bytes);
  w.from = probe_memory(&p, w.bytes);
  double alone = 0, copy_alone = 0;
  if (it->parent) {
    alone = probe_time(options->ms, put_empty, await, &w);
    copy_alone = probe_time(options->ms, put_copy, await, &w);
  }
  const double turns = take_turns(it, &w);
  const double copy_both = probe_time(options->ms, put_copy, await, &w);
  pair_meet(it);
  if (it->parent)
    printf("{\"probe\": \"switch\", \"alone_us\": %.2f, \"turn_us\": %.2f, \"copy_bytes\": %zu, "
           "\"copy_alone_us\": %.2f, \"copy_both_us\": %.2f}\n",
           alone, turns, w.bytes, copy_alone, copy_both);
}

void probe_switch(const probe_options *options) {
  pair it = pair_start(use_it, options);
  use_it(&it, options);
}
