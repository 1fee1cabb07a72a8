/* doorbell.h: the descriptors with which transports and control links wake a sleeping rank. */
#ifndef COLLI_PROGRESS_DOORBELL_H
#define COLLI_PROGRESS_DOORBELL_H

#include "libcoll/comm/family.h"

#define COLLI_MAX_DOORBELLS (COLLI_MAX_TRANSPORTS + 1)

/* Arms the doorbells, and appends their descriptors to the *count in `fds`, which has room for
 * COLLI_MAX_DOORBELLS more. False if a transport already has something to do; then do not sleep. */
bool colli_doorbells_arm(colli_family *family, struct pollfd *fds, int *count);

/* Whether nothing has arrived on shared connections. Called between arming and sleeping. */
bool colli_doorbells_quiet(const colli_family *family);

/* Disarms the doorbells after sleeping, unless another thread of this rank sleeps. */
void colli_doorbells_disarm(colli_family *family);

/* Wakes whoever sleeps. From any thread. */
void colli_doorbells_ring(const colli_family *family);

#endif
