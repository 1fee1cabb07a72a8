/* numbering.c: numbers groups of ranks in the order of their first ranks. */
#include "libcoll/tuning/numbering.h"

int colli_number_groups(int32_t *group, int nranks) {
  int count = 0;
  for (int rank = 0; rank < nranks; rank++)
    group[rank] = group[rank] == rank ? count++ : group[group[rank]];
  return count;
}
