/* hier_blocks.h: hierarchical all-gather and reduce-scatter (hier.h), whose chunks are blocks. */
#ifndef COLLI_ALGO_HIER_BLOCKS_H
#define COLLI_ALGO_HIER_BLOCKS_H

#include "libcoll/algo/hier_layout.h"
#include "libcoll/algo/hier_part.h"

#define COLLI_BLOCKS_LANES 2 /* colli_hier.duplex: one each way */

/* Adds the parts of one rank of several. Errors: those of colli_part_add(). */
coll_status colli_hier_blocks(colli_whole *whole, const colli_hier *hier, const colli_shape *shape,
                              colli_layout *l);

#endif
