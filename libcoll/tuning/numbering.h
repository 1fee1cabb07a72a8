/* numbering.h: numbers groups of ranks, such as hosts and sites. */
#ifndef COLLI_TUNING_NUMBERING_H
#define COLLI_TUNING_NUMBERING_H

#include <stdint.h>

/* Numbers groups of ranks in the order of their first ranks, and returns how many there are.
 * group[rank] is the first rank of its group, and becomes the number. */
int colli_number_groups(int32_t *group, int nranks);

#endif
