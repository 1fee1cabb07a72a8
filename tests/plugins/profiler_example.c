/*
 * profiler_example.c: a profiler that counts the operations of each kind and adds up their time,
 * and prints a line for each at the end.
 */
#include <coll/coll_profiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINDS     32
#define IN_FLIGHT 256

typedef struct kind {
  char name[24];
  unsigned long long count, failed, bytes, ns;
} kind;

typedef struct profile {
  int rank;
  kind kinds[KINDS];
  uint64_t begun_ns[2][IN_FLIGHT]; /* by number; collectives apart from all others */
} profile;

static int open_profile(void **ctx, int rank, int nranks) {
  profile *p = calloc(1, sizeof(*p));
  (void)nranks;
  if (!p)
    return 1;
  p->rank = rank;
  *ctx = p;
  return 0;
}

/* The entry of an operation; made if there is none. */
static kind *find_kind(profile *p, const char *name) {
  for (int i = 0; i < KINDS; i++) {
    if (!p->kinds[i].name[0])
      snprintf(p->kinds[i].name, sizeof(p->kinds[i].name), "%s", name);
    if (strcmp(p->kinds[i].name, name) == 0)
      return &p->kinds[i];
  }
  return NULL;
}

static void note_event(void *ctx, const coll_profiler_event *event) {
  profile *p = ctx;
  if (event->kind == COLL_PROFILER_FAILED)
    return;
  uint64_t *begun = &p->begun_ns[event->collective][event->number % IN_FLIGHT];
  kind *k = find_kind(p, event->operation);
  if (event->kind == COLL_PROFILER_BEGIN) {
    *begun = event->time_ns;
  } else if (k) {
    k->count++;
    k->failed += event->status != COLL_OK;
    k->bytes += event->bytes;
    k->ns += event->time_ns - *begun;
  }
}

static void close_profile(void *ctx) {
  const profile *p = ctx;
  for (int i = 0; i < KINDS && p->kinds[i].name[0]; i++)
    fprintf(stderr, "rank %d: %s: %llu operations, %llu failed, %llu bytes, %.1f us each\n",
            p->rank, p->kinds[i].name, p->kinds[i].count, p->kinds[i].failed, p->kinds[i].bytes,
            (double)p->kinds[i].ns / 1e3 / (double)(p->kinds[i].count ? p->kinds[i].count : 1));
  free(ctx);
}

const coll_profiler_ops coll_profiler = {.size = sizeof(coll_profiler_ops),
                                         .abi = COLL_PROFILER_ABI,
                                         .name = "example",
                                         .open = open_profile,
                                         .event = note_event,
                                         .close = close_profile};
