/*
 * listeners.h: the listeners of ids that this process has made and not used yet. An id says nothing
 * about them: any rank of the process may be the one that serves, and the first that asks is.
 */
#ifndef COLLI_WIREUP_LISTENERS_H
#define COLLI_WIREUP_LISTENERS_H

#include <stdbool.h>
#include <stdint.h>

/* Keeps the listener of an id for later; `check`: of all its bytes (colli_id_check), so that an id
 * with another secret is another one. False: out of memory. */
bool colli_listener_keep(uint64_t comm_id, uint32_t check, int fd);

/* Hands the listener of an id over to the caller, once. -1: another process made the id, or it was
 * handed over already. */
int colli_listener_take(uint64_t comm_id, uint32_t check);

#endif
