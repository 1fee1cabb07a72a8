/*
 * outsider.c: whether another program uses this rank's core (docs/decisions/outsiders.md). What the
 * ranks of the core have not used of the time since the last look is lost: the core was idle, or
 * somebody else had it. If this rank was often interrupted meanwhile, or lost the core when it
 * yielded, it was somebody else.
 */
#include "libcoll/progress/outsider.h"
#include "libcoll/base/libc.h"

#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS      (25 * COLLI_NS_PER_MS)   /* from one look to the next, */
#define LONG_LOOK_NS (100 * COLLI_NS_PER_MS)  /* also where giving way costs much */
#define LATE_NS      (200 * COLLI_NS_PER_MS)  /* a look after so long says nothing */
#define SLICE_NS     (16 * COLLI_NS_PER_MS)   /* how seldom at most this rank loses the core */
#define SLEEPS_NS    (200 * COLLI_NS_PER_MS)  /* how long it sleeps when it waits, */
#define AWAY_NS      (2000 * COLLI_NS_PER_MS) /* or is away, before it looks again; twice as long */
#define MOST_TIMES   4                        /* each time, up to so many times as long */

/* Adds the processor time that a process has used. False: it cannot be known, because the process
 * has ended, or is in another namespace. */
static bool add_time(pid_t pid, uint64_t *sum_ns) {
  clockid_t clock;
  struct timespec t;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
    return false;
  *sum_ns += (uint64_t)t.tv_sec * COLLI_NS_PER_S + (uint64_t)t.tv_nsec;
  return true;
}

/* The processor time that all ranks on this rank's core have used. False: it cannot be known. */
static bool ranks_ran(const colli_family *family, uint64_t *sum_ns) {
  const int core = colli_rank_at(family->table, family->rank).core;
  const int host = colli_rank_host(family->table, family->rank);
  bool known = true;
  *sum_ns = 0;
  for (int r = 0; r < family->nranks && known; r++) {
    if (colli_rank_host(family->table, r) != host)
      continue;
    const colli_rank_info info = colli_rank_at(family->table, r);
    if (info.core == core)
      known = add_time(info.pid, sum_ns);
  }
  return known;
}

uint64_t colli_outsider_interruptions(int whose) {
  struct rusage usage;
  return getrusage(whose, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

/* Whether another program has used most of the core, or a good part, since the last look. */
static bool is_there(colli_family *family, uint64_t now_ns, bool most) {
  colli_outsider *o = &family->outsider;
  uint64_t ran_ns;
  const bool known = ranks_ran(family, &ran_ns);
  const uint64_t interruptions = colli_outsider_interruptions(RUSAGE_SELF);
  const uint64_t passed_ns = now_ns - o->looked_ns, used_ns = ran_ns - o->ran_ns;
  const uint64_t taken = interruptions - o->interruptions + o->long_yields;
  const uint64_t lost_ns = passed_ns > used_ns ? passed_ns - used_ns : 0;
  o->looked_ns = now_ns;
  o->ran_ns = ran_ns;
  o->interruptions = interruptions;
  o->long_yields = 0;
  return known && passed_ns < LATE_NS && taken * SLICE_NS >= passed_ns &&
         lost_ns >= (most ? passed_ns / 3 * 2 : passed_ns / 4);
}

/* Moves this thread to the processors that it may use. False if it may not, or has moved: because
 * of another family, or by itself. */
static bool move_away(colli_outsider *o) {
  if (CPU_COUNT(&o->may) == 0 || sched_getaffinity(0, sizeof(o->own), &o->own) != 0 ||
      CPU_COUNT(&o->own) != 1 || CPU_EQUAL(&o->own, &o->may) ||
      sched_setaffinity(0, sizeof(o->may), &o->may) != 0)
    return false;
  o->away = gettid();
  return true;
}

/* Moves away, or else sleeps from now on when it waits, if ranks share cores. */
static void give_way(colli_outsider *o, bool crowded) {
  const bool moves = move_away(o);
  if (!moves && !crowded)
    return;
  const uint64_t least_ns = moves ? AWAY_NS : SLEEPS_NS, next_ns = 2 * o->stay_ns;
  o->stay_ns = next_ns < least_ns                ? least_ns
               : next_ns < MOST_TIMES * least_ns ? next_ns
                                                 : MOST_TIMES * least_ns;
  o->sleeps = !moves;
}

/* Returns to its core, in order to look again. */
static void come_back(colli_outsider *o) {
  if (o->away && tgkill(getpid(), o->away, 0) == 0) /* the thread has not ended */
    (void)sched_setaffinity(o->away, sizeof(o->own), &o->own);
  o->away = 0;
  o->sleeps = false;
}

void colli_outsider_look(coll_comm *comm) {
  colli_outsider *o = &comm->family->outsider;
  const uint64_t now_ns = comm->watch.now_ns;
  const bool can_move = CPU_COUNT(&o->may) > 1;
  if (colli_rank_at(comm->family->table, comm->family->rank).core < 0 ||
      !colli_world_is_real(&comm->world) || comm->calls.plans.model.containers) {
    o->next_ns = UINT64_MAX; /* it is not bound, or others may be whose time it cannot know */
    return;
  }
  const bool there = is_there(comm->family, now_ns, !can_move && !o->stay_ns);
  if (o->away || o->sleeps)
    come_back(o);
  else if (there)
    give_way(o, comm->watch.crowded);
  else
    o->stay_ns = 0;
  const bool gives_way = o->away || o->sleeps;
  o->next_ns = now_ns + (gives_way ? o->stay_ns : can_move || o->stay_ns ? LOOK_NS : LONG_LOOK_NS);
}

void colli_outsider_leave(colli_family *family) {
  come_back(&family->outsider);
}
