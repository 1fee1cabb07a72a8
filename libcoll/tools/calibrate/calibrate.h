/* calibrate.h: what the parts of coll_calibrate share. */
#ifndef COLLI_TOOLS_CALIBRATE_H
#define COLLI_TOOLS_CALIBRATE_H

#include "libcoll/algo/algo.h"

#define CALIBRATE_CELLS 48 /* at most, of a world */

/* One collective, by one algorithm, of one size; what it takes. */
typedef struct calibrate_cell {
  const colli_algo *algo;
  size_t count; /* of float32; blocks: per rank */
  double ns;    /* measured */
} calibrate_cell;

/* Some ranks on some cores over one kind of link, and what they have measured. */
typedef struct calibrate_world {
  colli_link_kind link;
  int nranks;
  int cores;
  int ncells;
  calibrate_cell cell[CALIBRATE_CELLS];
} calibrate_world;

/* world.c: fills in which cells a world measures. */
void calibrate_list(calibrate_world *world);

/* world.c: runs the ranks as processes and measures every cell, in about so many seconds. False
 * after a failure, which was printed. */
bool calibrate_measure(calibrate_world *world, double seconds);

/*
 * fit.c: finds the costs with which the formulas come closest to what some worlds of one kind of
 * link have measured. `costs` holds typical ones at first; what the measurements do not tell stays
 * near them. Returns the mean deviation as a factor, 1 at best.
 */
double calibrate_fit(const calibrate_world *worlds, int nworlds, colli_link_costs *costs);

/* fit.c: the limits that ranks have without settings. */
colli_limits calibrate_limits(colli_link_kind link);

#endif
