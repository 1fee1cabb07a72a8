/* doorbell.h: the descriptors by which transports and control links wake a rank that sleeps. */
#ifndef COLLI_PROGRESS_DOORBELL_H
#define COLLI_PROGRESS_DOORBELL_H

#include "libcoll/comm/family.h"

#define COLLI_MAX_DOORBELLS (COLLI_MAX_TRANSPORTS + 1)

/* Makes the doorbells ring, and puts their descriptors behind the *count in `fds`, which has room
 * for COLLI_MAX_DOORBELLS more. False: a transport has something to do, do not sleep. */
bool colli_doorbells_arm(colli_family *family, struct pollfd *fds, int *count);

/* Whether nothing has come on shared connections; called between arming and sleeping. */
bool colli_doorbells_quiet(const colli_family *family);

/* After sleeping, unless another thread of this rank sleeps. */
void colli_doorbells_disarm(colli_family *family);

#endif
