/* time.c: bounds of the difference of two clocks. */
#include "libcoll/wireup/bootstrap/time.h"

bool boot_time_asks(const colli_rank_table *table, int server, int rank) {
  const uint64_t clock_id = colli_rank_at(table, rank).clock_id;
  if (clock_id == 0 || colli_rank_at(table, server).clock_id == clock_id)
    return false;
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(clock_id));
  int first = 0;
  while (colli_rank_walk_to(&walk, first)->clock_id != clock_id)
    first++;
  return first == rank;
}

bool boot_time_asks_parent(const colli_rank_table *table, int parent, int rank) {
  const uint64_t clock_id = colli_rank_at(table, rank).clock_id;
  return clock_id != 0 && colli_rank_at(table, parent).clock_id != clock_id;
}

void boot_time_add(boot_bounds *ahead, uint64_t asked_ns, const boot_time *answer,
                   uint64_t answered_ns) {
  const int64_t most_ns = (int64_t)(answer->heard_ns - asked_ns);
  const int64_t least_ns = (int64_t)(answer->told_ns - answered_ns);
  if (least_ns > ahead->least_ns)
    ahead->least_ns = least_ns;
  if (most_ns < ahead->most_ns)
    ahead->most_ns = most_ns;
}

boot_bounds boot_time_chain(boot_bounds first, boot_bounds second) {
  boot_bounds both;
  const bool known = first.least_ns <= first.most_ns && second.least_ns <= second.most_ns &&
                     !__builtin_add_overflow(first.least_ns, second.least_ns, &both.least_ns) &&
                     !__builtin_add_overflow(first.most_ns, second.most_ns, &both.most_ns);
  return known ? both : BOOT_BOUNDS_NONE;
}

boot_bounds boot_time_of_child(const colli_rank_info *parent, const colli_rank_info *child,
                               boot_bounds reported) {
  if (child->clock_id == 0)
    return BOOT_BOUNDS_NONE;
  return child->clock_id == parent->clock_id ? (boot_bounds){0, 0} : reported;
}

/* The root if it has the same clock as `rank`, which has a clock_id; else the first that has. */
static int find_speaker(const colli_rank_info *all, int root, int rank) {
  if (all[root].clock_id == all[rank].clock_id)
    return root;
  int first = 0;
  while (all[first].clock_id != all[rank].clock_id)
    first++;
  return first;
}

void boot_time_tell(const colli_rank_info *all, int nranks, int root, const boot_bounds *ahead,
                    boot_bounds *told) {
  for (int rank = 0; rank < nranks; rank++) {
    if (all[rank].clock_id == 0)
      told[rank] = BOOT_BOUNDS_NONE;
    else if (rank > 0 && all[rank - 1].clock_id == all[rank].clock_id)
      told[rank] = told[rank - 1];
    else
      told[rank] = ahead[find_speaker(all, root, rank)];
  }
}

colli_shared_time boot_time_share(const boot_time *told) {
  if (told->ahead.least_ns > told->ahead.most_ns || told->zero_ns == 0)
    return (colli_shared_time){0};
  const uint64_t width_ns = (uint64_t)told->ahead.most_ns - (uint64_t)told->ahead.least_ns;
  const int64_t offset_ns = told->ahead.least_ns + (int64_t)(width_ns / 2);
  return (colli_shared_time){.zero_ns = told->zero_ns + (uint64_t)offset_ns,
                             .offset_ns = offset_ns,
                             .error_ns = told->error_ns + (width_ns + 1) / 2};
}
