/*
 * outsider.c: whether another program uses this rank's core (docs/decisions/outsiders.md). Somebody
 * had the core all the time between two long yields, since this rank was always ready to run. If
 * the ranks of that core did not use the processor for so long, somebody else did.
 */
#include "libcoll/progress/outsider.h"

#include <time.h>
#include <unistd.h>

#define GAP_NS   (50 * COLLI_NS_PER_MS)  /* so long without such a yield: nobody is there */
#define FIRST_NS (100 * COLLI_NS_PER_MS) /* how long this rank watches before it gives way, */
#define AGAIN_NS (20 * COLLI_NS_PER_MS)  /* and if it did so before, */
#define LEAST_NS (200 * COLLI_NS_PER_MS) /* for how long it does, twice as long each time */
#define MOST_NS  (1600 * COLLI_NS_PER_MS)

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

/* Begins to add up what others use. */
static void begin_episode(colli_outsider *o, uint64_t now_ns) {
  o->since_ns = now_ns;
  o->lost_ns = 0;
}

/* Adds the time since the last look as far as the ranks of this core did not use it. False: the
 * last look was too long ago. */
static bool add_lost(coll_comm *comm, uint64_t now_ns) {
  colli_outsider *o = &comm->watch.outsider;
  const uint64_t ran_ns = ranks_ran_ns(comm->family);
  const uint64_t passed_ns = now_ns - o->looked_ns, used_ns = ran_ns - o->ran_ns;
  o->looked_ns = now_ns;
  o->ran_ns = ran_ns;
  o->lost_ns += passed_ns > used_ns ? passed_ns - used_ns : 0;
  return passed_ns <= GAP_NS;
}

void colli_outsider_look(coll_comm *comm) {
  colli_outsider *o = &comm->watch.outsider;
  const uint64_t now_ns = comm->world.now_ns(comm->world.ctx);
  if (comm->family->table[comm->family->rank].core < 0 || comm->family->room.away)
    return;
  if (!add_lost(comm, now_ns)) {
    begin_episode(o, now_ns);
    o->stay_ns = 0;
  }
  const uint64_t most_ns = o->stay_ns ? AGAIN_NS : FIRST_NS;
  /* To sleep costs more than to move, so without a history it takes more. */
  const bool doubts = comm->watch.crowded && !o->stay_ns;
  const bool is_there = o->lost_ns >= (doubts ? most_ns / 3 * 2 : most_ns / 2);
  if (!is_there && now_ns - o->since_ns < most_ns)
    return;
  begin_episode(o, now_ns);
  o->stay_ns = !is_there               ? 0
               : o->stay_ns < LEAST_NS ? LEAST_NS
               : o->stay_ns < MOST_NS  ? 2 * o->stay_ns
                                       : MOST_NS;
  o->here = is_there && comm->watch.crowded;
  if (o->here || (is_there && move_away(comm->family)))
    o->until_ns = now_ns + o->stay_ns;
}

void colli_outsider_over(coll_comm *comm) {
  colli_outsider *o = &comm->watch.outsider;
  if (!o->here)
    move_back(comm->family);
  o->here = false;
  o->until_ns = 0;
  (void)add_lost(comm, comm->watch.now_ns);
  begin_episode(o, comm->watch.now_ns);
}

void colli_outsider_leave(colli_family *family) {
  move_back(family);
}
