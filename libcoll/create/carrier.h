/*
 * carrier.h: launchers that carry ids, with a fresh secret in rank 0's, from rank to rank, so
 * that nothing needs to be exported.
 */
#ifndef COLLI_CREATE_CARRIER_H
#define COLLI_CREATE_CARRIER_H

#include <stdbool.h>

#include "libcoll/wireup/id.h"

#define COLLI_CARRIER_FAN_OUT 16 /* of the tree in which ranks check in */

/* One way in which they do it. */
typedef struct colli_carrier {
  int fan_out; /* 0: it carries nothing but rank 0's id, and all check in there */

  /* Whether this process was started that way, and no variable says otherwise. */
  bool (*offered)(const colli_params *params);

  /* This process's rank and the number of ranks, as the launcher says: nobody has checked them.
   * Errors: INVALID_USAGE (something that it takes is absent), TIMEOUT, NO_MEMORY, SYSTEM. */
  coll_status (*join)(const colli_params *params, uint64_t deadline_ns, int *rank, int *nranks,
                      coll_error *error);

  /*
   * Rank 0 passes on *id, all others get it; all ranks of the launcher's job take part. In a tree,
   * other ranks at which some check in pass on theirs, too, and all get where to check in. NULL:
   * making the id has failed, and those who wait for it should hear of that. Copies of the secret
   * may stay in the launcher's memory. Errors: TIMEOUT if some rank has not made the call by
   * deadline_ns, SYSTEM if the launcher or one of those ranks fails, NO_MEMORY.
   */
  coll_status (*share)(const colli_params *params, uint64_t deadline_ns, int rank, int nranks,
                       colli_id *id, coll_error *error);
} colli_carrier;

/* PMIx: Open MPI's mpirun, PRRTE, srun --mpi=pmix. The library is loaded at run time. PMIx Standard
 * 4.1, chapters 5 (initialization) and 7 (Put, Commit, Fence, Get). */
extern const colli_carrier colli_carrier_pmix;

/* PMI-1, lines of text over a socket: MPICH's mpiexec (Hydra), srun --mpi=pmi2. */
extern const colli_carrier colli_carrier_pmi1;

/* srun --mpi=none, and torchrun: ranks meet at a port of rank 0's host. */
extern const colli_carrier colli_carrier_slurm;
extern const colli_carrier colli_carrier_torchrun;

/* A number that a launcher's variable holds, 0 or more; -1: none. */
int colli_carrier_number(const char *variable);

/* Whether variables of collrun or torchrun tell the rank, or COLL_ROOT says where rank 0 listens:
 * those come first, because such ranks may run inside a step of another launcher. */
bool colli_carrier_overruled(const colli_params *params);

/* An id as digits, and back. The caller erases them. Reading fails with SYSTEM if they are not
 * those of an id, or with NO_MEMORY. */
#define COLLI_ID_DIGITS (2 * COLL_UNIQUE_ID_BYTES)
void colli_id_write(const colli_id *id, char digits[COLLI_ID_DIGITS + 1]);
coll_status colli_id_read(const char *digits, colli_id *id, coll_error *error);

/* The rank at which a rank checks in, in a carrier's tree; -1: it is the root. */
int colli_carrier_parent(int rank, int nranks);

/* Makes *id that of a rank below rank 0 in the tree, from the digits of rank 0's id and of that of
 * the rank at which it checks in. Errors: as colli_id_read(). */
coll_status colli_carrier_place(const char *root, const char *parent, colli_id *id,
                                coll_error *error);

#endif
