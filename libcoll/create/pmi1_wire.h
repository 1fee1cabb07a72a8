/*
 * pmi1_wire.h: PMI-1, the protocol between a process of an MPI job and its launcher: lines of
 * key=value pairs, each request with one answer. MPICH's src/pm/hydra speaks it, and so does
 * Slurm's plug-in pmi2 after an init with pmi_version=1.
 *
 *   cmd=get kvsname=K key=A          -->
 *                                    <--   cmd=get_result rc=0 value=B
 */
#ifndef COLLI_CREATE_PMI1_WIRE_H
#define COLLI_CREATE_PMI1_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "libcoll/base/param.h"

#define COLLI_PMI1_LINE 2048 /* bytes of the longest line that is sent or accepted */

/* A connection to the launcher. */
typedef struct colli_pmi1 {
  int fd;
  size_t have; /* bytes in `input` */
  char input[COLLI_PMI1_LINE];
  char answer[COLLI_PMI1_LINE]; /* the last one, a string */
} colli_pmi1;

/*
 * Sends a request, a whole line, and waits for its answer, which must be a `cmd=answer`. Errors:
 * TIMEOUT at deadline_ns (colli_now_ns time), SYSTEM if the connection fails, or if the launcher
 * refuses (its rc is not 0) or says something else.
 */
coll_status colli_pmi1_ask(colli_pmi1 *pmi, uint64_t deadline_ns, const char *request,
                           const char *answer, coll_error *error);

/* Waits for a line that was not asked for. Errors: as above. */
coll_status colli_pmi1_hear(colli_pmi1 *pmi, uint64_t deadline_ns, const char *answer,
                            coll_error *error);

/* Copies the value of a key of the last answer. False if it is missing, or not shorter than bytes.
 */
bool colli_pmi1_value(const colli_pmi1 *pmi, const char *key, char *value, size_t bytes);

/* Erases what was received, which may have a secret in it. */
void colli_pmi1_forget(colli_pmi1 *pmi);

#endif
