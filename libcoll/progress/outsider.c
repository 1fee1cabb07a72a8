/*
 * outsider.c: whether another program uses this rank's core (docs/decisions/outsiders.md). Somebody
 * had the core all the time between two long yields, since this rank was always ready to run. If
 * the ranks of that core did not use the processor for so long, somebody else did.
 */
#include "libcoll/progress/outsider.h"

#include <time.h>
#include <unistd.h>

#define WINDOW_NS (100 * COLLI_NS_PER_MS) /* the longest time between two such yields */
#define SLEEP_NS  (100 * COLLI_NS_PER_MS) /* how long this rank sleeps when it waits, */
#define AWAY_NS   (2 * COLLI_NS_PER_S)    /* or is away from its core, before it looks again */

/* The processor time that a process has used; 0 if that cannot be known. */
static uint64_t process_ran_ns(pid_t pid) {
  clockid_t clock;
  struct timespec t;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0)
    return 0;
  return (uint64_t)t.tv_sec * COLLI_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The same of all ranks on this rank's core. */
static uint64_t ranks_ran_ns(const colli_family *family) {
  const colli_rank_info *me = &family->table[family->rank];
  uint64_t sum = 0;
  for (int r = 0; r < family->nranks; r++)
    if (family->table[r].host_id == me->host_id && family->table[r].core == me->core)
      sum += process_ran_ns(family->table[r].pid);
  return sum;
}

/* Notes how long the ranks of this core have run. */
static void note_time(coll_comm *comm, uint64_t now_ns) {
  comm->watch.outsider.looked_ns = now_ns;
  comm->watch.outsider.ran_ns = ranks_ran_ns(comm->family);
}

/* Moves this thread to the processors that it may use. False if it may not, or has moved. */
static bool move_away(colli_family *family) {
  colli_room *room = &family->room;
  if (CPU_COUNT(&room->may) == 0 || room->away ||
      sched_getaffinity(0, sizeof(room->own), &room->own) != 0 ||
      sched_setaffinity(0, sizeof(room->may), &room->may) != 0)
    return false;
  room->away = gettid();
  return true;
}

/* Moves the thread that has moved away back to its core. */
static void move_back(colli_family *family) {
  colli_room *room = &family->room;
  if (room->away)
    (void)sched_setaffinity(room->away, sizeof(room->own), &room->own); /* it may have ended */
  room->away = 0;
}

void colli_outsider_look(coll_comm *comm) {
  colli_outsider *o = &comm->watch.outsider;
  const uint64_t now_ns = comm->world.now_ns(comm->world.ctx);
  if (comm->family->table[comm->family->rank].core < 0 || comm->family->room.away)
    return;
  const uint64_t before_ns = o->ran_ns, since_ns = now_ns - o->looked_ns;
  note_time(comm, now_ns);
  if (since_ns > WINDOW_NS || o->ran_ns - before_ns > since_ns - since_ns / 4)
    return;
  o->here = comm->watch.crowded;
  if (o->here)
    o->until_ns = now_ns + SLEEP_NS;
  else if (move_away(comm->family))
    o->until_ns = now_ns + AWAY_NS;
}

void colli_outsider_over(coll_comm *comm) {
  colli_outsider *o = &comm->watch.outsider;
  if (!o->here)
    move_back(comm->family);
  o->here = false;
  o->until_ns = 0;
  note_time(comm, comm->watch.now_ns);
}

void colli_outsider_leave(colli_family *family) {
  move_back(family);
}
