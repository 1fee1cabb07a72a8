/* support_machine.c: virtual time, events, ranks that wait and run, faults. */
#include "support_machine.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sanitized.h"

#if SANITIZED_ADDRESS
#include <sanitizer/lsan_interface.h>
#endif

#define MAPPED_BYTES (64 * 1024) /* allocations from this size on are mappings */

typedef struct event {
  uint64_t at_ns;
  uint64_t tie; /* random: the order of events of one moment */
  sk_handler fn;
  void *object;
  uint64_t number;
} event;

sk_machine sk;
static struct {
  event *at; /* a heap */
  size_t count, capacity;
} events;

/* ---- events -----------------------------------------------------------------------------------
 */

static bool is_before(const event *a, const event *b) {
  return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->tie < b->tie;
}

void sk_schedule(uint64_t at_ns, sk_handler fn, void *object, uint64_t number) {
  if (events.count == events.capacity) {
    events.capacity = events.capacity ? 2 * events.capacity : 1024;
    events.at = realloc(events.at, events.capacity * sizeof(event));
    if (!events.at)
      abort();
  }
  const event new = {at_ns < sk.now_ns ? sk.now_ns : at_ns, colli_prng_next(&sk.prng), fn, object,
                     number};
  size_t i = events.count++;
  for (; i > 0 && is_before(&new, &events.at[(i - 1) / 2]); i = (i - 1) / 2)
    events.at[i] = events.at[(i - 1) / 2];
  events.at[i] = new;
}

/* Takes the earliest event. */
static event take_event(void) {
  const event first = events.at[0], last = events.at[--events.count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < events.count; i = child) {
    child += child + 1 < events.count && is_before(&events.at[child + 1], &events.at[child]);
    if (!is_before(&events.at[child], &last))
      break;
    events.at[i] = events.at[child];
  }
  events.at[i] = last;
  return first;
}

void sk_note(uint64_t number) {
  sk.digest = (sk.digest ^ number) * 0x9e3779b97f4a7c15ull;
  sk.digest ^= sk.digest >> 29;
}

uint64_t sk_digest(void) {
  return sk.digest;
}

/* ---- ranks that wait and run ------------------------------------------------------------------
 */

uint64_t sk_time(void) {
  return sk.current ? sk.current->now_ns : sk.now_ns;
}

uint64_t sk_now_ns(void) {
  return sk_time() - SK_START_NS;
}

/* Tells the sanitizer that what a rank has allocated when it is killed is lost. All ranks may be.
 */
static void expect_leaks(bool begin) {
#if SANITIZED_ADDRESS
  (begin ? __lsan_disable : __lsan_enable)();
#else
  (void)begin;
#endif
}

/* Lets a rank run until it waits. */
static void resume_rank(void *object, uint64_t number) {
  sk_rank *r = object;
  if (r->dead || r->done || number != r->wake)
    return;
  if (r->stopped) {
    r->woken = true;
    return;
  }
  r->sleeping = false;
  if (r->now_ns < sk.now_ns)
    r->now_ns = sk.now_ns;
  sk_note((uint64_t)r->rank ^ sk.now_ns << 12);
  sk.current = r;
  expect_leaks(true);
  sk_fiber_resume(r->fiber);
  expect_leaks(false);
  sk.current = NULL;
}

/* Schedules a rank's next turn. */
static void plan_turn(sk_rank *r, uint64_t at_ns) {
  r->wake_ns = at_ns;
  sk_schedule(at_ns, resume_rank, r, ++r->wake);
}

void sk_wait(uint64_t until_ns, bool files) {
  sk_rank *r = sk.current;
  r->sleeping = files;
  plan_turn(r, until_ns > r->now_ns ? until_ns : r->now_ns);
  sk_fiber_leave(false);
}

void sk_wake(int rank) {
  sk_rank *r = &sk.ranks[rank];
  const uint64_t at_ns = sk.now_ns + sk.config.syscall_ns;
  if (r->sleeping && r != sk.current && at_ns < r->wake_ns)
    plan_turn(r, at_ns > r->now_ns ? at_ns : r->now_ns);
}

/* Ends a rank as the kernel does: closes its descriptors. */
static void end_rank(sk_rank *r) {
  r->dead = true;
  sk_note(0xdead + (uint64_t)r->rank);
  for (int i = 0; i < r->nfiles; i++)
    if (r->files[i])
      sk_file_close(r->files[i]);
}

void sk_interrupt(int rank, void (*fn)(int rank)) {
  sk_rank *r = &sk.ranks[rank];
  if (sk.current || r->dead || r->done)
    return;
  if (r->now_ns < sk.now_ns)
    r->now_ns = sk.now_ns;
  sk.current = r;
  sk.interrupted = true;
  fn(rank);
  sk.interrupted = false;
  sk.current = NULL;
  if (r->sleeping) /* what fn has done to files of its own */
    plan_turn(r, r->now_ns);
}

void sk_enter(bool atomic) {
  sk_rank *r = sk.current;
  r->now_ns += sk.config.syscall_ns;
  r->calls++;
  r->counts.calls++;
  if (atomic || sk.interrupted)
    return;
  if (r->kill_at && r->calls >= r->kill_at) {
    end_rank(r);
    sk_fiber_leave(false); /* and never comes back */
  }
  if (colli_prng_below(&sk.prng, 100) < sk.config.switch_percent)
    sk_wait(r->now_ns, false);
}

bool sk_await(const bool *flag, uint64_t until_ns) {
  while (!*flag && sk_now_ns() < until_ns)
    sk_sleep(SK_MS);
  return *flag;
}

void sk_sleep(uint64_t ns) {
  sk_wait(sk.current->now_ns + ns, false);
}

/* ---- faults -----------------------------------------------------------------------------------
 */

void sk_kill(int rank) {
  sk_rank *r = &sk.ranks[rank];
  if (r == sk.current)
    abort();
  if (!r->dead && !r->done)
    end_rank(r);
}

void sk_kill_after(int rank, uint64_t calls) {
  sk.ranks[rank].kill_at = sk.ranks[rank].calls + calls + 1;
}

/* An event of a test. */
typedef struct planned {
  void (*fn)(uint64_t arg);
  uint64_t arg;
} planned;

static void run_planned(void *object, uint64_t number) {
  planned *p = object;
  (void)number;
  p->fn(p->arg);
  free(p);
}

void sk_at(uint64_t at_ns, void (*fn)(uint64_t arg), uint64_t arg) {
  planned *p = malloc(sizeof(*p));
  if (!p)
    abort();
  *p = (planned){fn, arg};
  sk_schedule(SK_START_NS + at_ns, run_planned, p, 0);
}

void sk_cut(int from_host, int to_host, bool cut) {
  sk.cut[from_host * sk.nhosts + to_host] = cut;
}

bool sk_path(int from, int to) {
  return !sk.cut[from * sk.nhosts + to];
}

void sk_stop(int rank, bool stopped) {
  sk_rank *r = &sk.ranks[rank];
  r->stopped = stopped;
  r->was_stopped |= stopped;
  if (!stopped && r->woken) {
    r->woken = false;
    plan_turn(r, sk.now_ns > r->now_ns ? sk.now_ns : r->now_ns);
  }
}

/* ---- the machine ------------------------------------------------------------------------------
 */

sk_config sk_defaults(uint64_t seed, int nranks, int ranks_per_host) {
  return (sk_config){.seed = seed,
                     .nranks = nranks,
                     .ranks_per_host = ranks_per_host,
                     .latency_ns = 10000,
                     .ns_per_byte = 0.8,
                     .syscall_ns = 1000,
                     .copy_ns_per_byte = 0.1,
                     .buffer_bytes = 256 * 1024,
                     .backlog = 4096};
}

/* Keeps what ranks allocate and never write from taking memory, as in processes of their own:
 * there, it is fresh; here, it would be what other ranks have written. */
static void keep_memory_fresh(void) {
  mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
  mallopt(M_MMAP_MAX, INT_MAX);
}

void sk_open(const sk_config *config) {
  keep_memory_fresh();
  sk = (sk_machine){.config = *config,
                    .now_ns = SK_START_NS,
                    .prng = {config->seed ^ 0x736b},
                    .nhosts =
                        (config->nranks + config->ranks_per_host - 1) / config->ranks_per_host};
  sk.ranks = calloc((size_t)config->nranks, sizeof(*sk.ranks));
  sk.hosts = calloc((size_t)sk.nhosts, sizeof(*sk.hosts));
  sk.cut = calloc((size_t)sk.nhosts * (size_t)sk.nhosts, sizeof(*sk.cut));
  if (!sk.ranks || !sk.hosts || !sk.cut)
    abort();
  for (int r = 0; r < config->nranks; r++) {
    sk.ranks[r].rank = r;
    sk.ranks[r].host = r / config->ranks_per_host;
    sk.ranks[r].now_ns = sk.now_ns;
    sk.ranks[r].prng.state = colli_prng_next(&sk.prng);
  }
  for (int h = 0; h < sk.nhosts; h++) /* ports of different hosts collide, as they do in clusters */
    sk.hosts[h].next_port = (uint16_t)(40000 + colli_prng_below(&sk.prng, 4));
}

void sk_close(void) {
  while (events.count > 0) {
    event e = take_event();
    if (e.fn == run_planned)
      free(e.object);
  }
  free(events.at);
  memset(&events, 0, sizeof(events));
  sk_files_free();
  for (int r = 0; r < sk.config.nranks; r++) {
    sk_fiber_free(sk.ranks[r].fiber);
    free(sk.ranks[r].files);
  }
  free(sk.ranks);
  free(sk.hosts);
  free(sk.cut);
  sk = (sk_machine){0};
}

/* The program of a rank. */
static void rank_main(void *arg) {
  sk_rank *r = arg;
  sk.fn(r->rank, sk.arg);
  r->done = true;
  for (int i = 0; i < r->nfiles; i++) /* it exits */
    if (r->files[i]) {
      r->left_open++;
      sk_file_close(r->files[i]);
    }
}

static bool all_done(void) {
  for (int r = 0; r < sk.config.nranks; r++)
    if (!sk.ranks[r].done && !sk.ranks[r].dead)
      return false;
  return true;
}

bool sk_run(sk_fn fn, void *arg, uint64_t limit_ns) {
  const uint64_t until_ns = sk.now_ns + limit_ns;
  sk.fn = fn;
  sk.arg = arg;
  for (int r = 0; r < sk.config.nranks; r++) {
    sk_fiber_free(sk.ranks[r].fiber);
    sk.ranks[r].fiber = sk_fiber_create(rank_main, &sk.ranks[r]);
    sk.ranks[r].done = false;
    plan_turn(&sk.ranks[r], sk.now_ns + colli_prng_below(&sk.prng, 1000));
  }
  while (events.count > 0 && events.at[0].at_ns <= until_ns) {
    const event e = take_event();
    sk.now_ns = e.at_ns;
    e.fn(e.object, e.number);
    if (e.fn == resume_rank && (((sk_rank *)e.object)->done || ((sk_rank *)e.object)->dead) &&
        all_done())
      return true;
    if (e.fn == run_planned && all_done())
      return true;
  }
  return all_done();
}

/* ---- what happened ----------------------------------------------------------------------------
 */

int sk_host(int rank) {
  return sk.ranks[rank].host;
}

bool sk_is_alive(int rank) {
  return !sk.ranks[rank].dead;
}

bool sk_was_stopped(int rank) {
  return sk.ranks[rank].was_stopped;
}

bool sk_is_done(int rank) {
  return sk.ranks[rank].done;
}

sk_counts sk_count(int rank) {
  return sk.ranks[rank].counts;
}

void sk_reset_counts(void) {
  for (int r = 0; r < sk.config.nranks; r++)
    sk.ranks[r].counts = (sk_counts){0};
}

int sk_left_open(int rank) {
  return sk.ranks[rank].left_open;
}
