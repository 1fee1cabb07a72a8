/*
 * pmix.h: launchers that speak PMIx (Slurm's srun --mpi=pmix, Open MPI's mpirun, PRRTE) tell a
 * process its rank and carry the id, with the secret in it, from rank 0 to the others, so that
 * nothing needs to be exported. The library is loaded at run time.
 *
 * PMIx Standard 4.1, chapters 5 (initialization) and 7 (Put, Commit, Fence, Get).
 */
#ifndef COLLI_CREATE_PMIX_H
#define COLLI_CREATE_PMIX_H

#include <stdbool.h>

#include "libcoll/wireup/id.h"

/* Whether the launcher speaks PMIx, and no variable says otherwise: those of collrun and torchrun
 * come first, because their ranks may run inside a step of another launcher. */
bool colli_pmix_offered(const colli_params *params);

/*
 * Joins the launcher's job: this process's rank and the number of ranks. The connection to the
 * launcher stays open until the process exits, since other users of PMIx in this process (an MPI)
 * may still need it. Errors: INVALID_USAGE (no library, or no such job), TIMEOUT, NO_MEMORY,
 * SYSTEM.
 */
coll_status colli_pmix_join(uint64_t deadline_ns, int *rank, int *nranks, coll_error *error);

/*
 * Rank 0 passes on *id (NULL: it has failed), all others get it; all ranks of the launcher's job
 * take part. Copies of the secret stay in the memory of PMIx and of the launcher. Errors: TIMEOUT
 * if some rank has not made the call by deadline_ns, SYSTEM if PMIx or rank 0 fails, NO_MEMORY.
 */
coll_status colli_pmix_share(uint64_t deadline_ns, int rank, colli_id *id, coll_error *error);

#endif
