/* agree.h: checks that all ranks agree, and names those that do not. */
#ifndef TRAINER_AGREE_H
#define TRAINER_AGREE_H

#include "trainer/fail.h"

#include <coll/coll.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Before training, collective: `ok` says whether this rank is ready; if not, `why` holds the
 * reason. Returns true if all ranks are ready and have the same options and data. Otherwise every
 * rank returns false with the same text, so that none is left waiting.
 */
bool agree_start(coll_comm *comm, bool ok, uint64_t options, uint64_t data, fail *why);

/* Whether all ranks have the same hash of their weights; if not, `why` names those that differ. */
bool agree_weights(coll_comm *comm, uint64_t hash, fail *why);

/* The first rank that has the most frequent value. */
size_t agree_reference(const uint64_t *values, size_t count);

#endif
