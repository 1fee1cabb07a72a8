/* places.h: where the ranks sit, and what follows from it for the cost model. */
#ifndef COLLI_COMM_PLACES_H
#define COLLI_COMM_PLACES_H

#include "libcoll/comm/comm.h"

/* Fills in the processors that this process may use and where it is bound. */
void colli_places_self(colli_rank_info *info);

/*
 * The cost model for this set of ranks: the slowest kind of link that some pair uses (its name goes
 * to *slowest), and how many ranks share a core on the fullest host. The same on every rank.
 * Returns whether the ranks on this rank's own host outnumber the processors that they may use.
 */
bool colli_places_model(const colli_rank_info *table, int nranks, int rank, const colli_port *ports,
                        int nports, colli_model *model, const char **slowest);

#endif
