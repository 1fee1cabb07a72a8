/* time.c: bounds of the difference of two clocks. */
#include "libcoll/wireup/bootstrap/time.h"

#include "libcoll/base/assert.h"

bool boot_time_asks(const colli_rank_table *table, int server, int rank) {
  const uint64_t clock_id = colli_rank_at(table, rank).clock_id;
  if (clock_id == 0 || colli_rank_at(table, server).clock_id == clock_id)
    return false;
  colli_rank_walk walk = colli_rank_walk_begin(table);
  int first = 0;
  while (colli_rank_walk_to(&walk, first)->clock_id != clock_id)
    first++;
  return first == rank;
}

/* The server if it has the same clock as `rank`, which has a clock_id; else the first that has. */
static int find_speaker(const colli_rank_info *all, int server, int rank) {
  COLLI_ASSERT(all[rank].clock_id != 0);
  if (all[server].clock_id == all[rank].clock_id)
    return server;
  int first = 0;
  while (all[first].clock_id != all[rank].clock_id)
    first++;
  return first;
}

void boot_time_begin(boot_time *time) {
  *time = (boot_time){.least_ns = INT64_MIN, .most_ns = INT64_MAX};
}

void boot_time_add(boot_time *time, uint64_t asked_ns, const boot_time *answer,
                   uint64_t answered_ns) {
  const int64_t most_ns = (int64_t)(answer->heard_ns - asked_ns);
  const int64_t least_ns = (int64_t)(answer->told_ns - answered_ns);
  if (least_ns > time->least_ns)
    time->least_ns = least_ns;
  if (most_ns < time->most_ns)
    time->most_ns = most_ns;
}

void boot_time_tell(const colli_rank_info *all, int server, int rank, const boot_time *reported,
                    const colli_shared_time *time, boot_time *told) {
  *told = (boot_time){.least_ns = INT64_MAX,
                      .most_ns = INT64_MIN,
                      .zero_ns = time->zero_ns,
                      .error_ns = time->error_ns};
  if (all[rank].clock_id == 0)
    return;
  const int speaker = find_speaker(all, server, rank);
  told->least_ns = speaker == server ? 0 : reported[speaker].least_ns;
  told->most_ns = speaker == server ? 0 : reported[speaker].most_ns;
}

colli_shared_time boot_time_share(const boot_time *told) {
  if (told->least_ns > told->most_ns || told->zero_ns == 0)
    return (colli_shared_time){0};
  const uint64_t width_ns = (uint64_t)told->most_ns - (uint64_t)told->least_ns;
  const int64_t offset_ns = told->least_ns + (int64_t)(width_ns / 2);
  return (colli_shared_time){.zero_ns = told->zero_ns + (uint64_t)offset_ns,
                             .offset_ns = offset_ns,
                             .error_ns = told->error_ns + (width_ns + 1) / 2};
}
