/* numbering.c: numbers groups of ranks in the order of their first ranks. */
#include "libcoll/tuning/numbering.h"

int colli_number_groups(const colli_rank_info *table, int nranks,
                        const colli_rank_info *const *sorted,
                        bool (*same)(const colli_rank_info *, const colli_rank_info *),
                        int32_t *group) {
  int count = 0;
  const colli_rank_info *first = sorted[0];
  for (int i = 0; i < nranks; i++) { /* first, each rank gets the first rank of its group */
    if (!same(sorted[i], first))
      first = sorted[i];
    group[sorted[i] - table] = (int32_t)(first - table);
  }
  for (int rank = 0; rank < nranks; rank++)
    group[rank] = group[rank] == rank ? count++ : group[group[rank]];
  return count;
}
