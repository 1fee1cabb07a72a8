/* numbering.h: numbers groups of ranks, such as hosts and sites. */
#ifndef COLLI_TUNING_NUMBERING_H
#define COLLI_TUNING_NUMBERING_H

#include <stdbool.h>

#include "libcoll/wireup/bootstrap.h"

/*
 * Numbers groups of ranks in the order of their first ranks, and returns how many there are.
 * sorted: pointers into the table, where ranks that are the `same` follow each other, lowest first.
 * group: room for nranks numbers.
 */
int colli_number_groups(const colli_rank_info *table, int nranks,
                        const colli_rank_info *const *sorted,
                        bool (*same)(const colli_rank_info *, const colli_rank_info *),
                        int32_t *group);

#endif
