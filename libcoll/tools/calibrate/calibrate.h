/* calibrate.h: what the parts of coll_calibrate share. */
#ifndef COLLI_TOOLS_CALIBRATE_CALIBRATE_H
#define COLLI_TOOLS_CALIBRATE_CALIBRATE_H

#include <stdatomic.h>

#include "coll/coll.h"
#include "libcoll/tuning/select.h"

#define CALIBRATE_CELLS  48 /* at most, of a world */
#define CALIBRATE_RANKS  8
#define CALIBRATE_PASSES 12 /* at most, over the algorithms of a world */

/* One collective, with one algorithm and size, and its measured time. */
typedef struct calibrate_cell {
  const colli_algo *algo;
  size_t count; /* of float32; blocks: per rank */
  double ns;    /* measured */
} calibrate_cell;

/* Some ranks on some cores over one kind of link, and their measurements. */
typedef struct calibrate_world {
  colli_link_kind link;
  int nranks;
  int cores;
  int ncells;
  calibrate_cell cell[CALIBRATE_CELLS];
} calibrate_world;

/* The meeting point of ranks, in shared memory. */
typedef struct calibrate_meeting {
  atomic_int made; /* ids made by rank 0; -1: a rank failed */
  coll_id id[CALIBRATE_CELLS];
} calibrate_meeting;

/* ranks.c: zeroed memory that processes share; NULL after a failure, which it prints. */
void *calibrate_share(size_t bytes);

/* ranks.c: memory filled with numbers, to be freed with free(); NULL if out of memory. */
void *calibrate_buffer(size_t bytes);

/* ranks.c: makes communicator number `index` of all ranks; NULL after a failure. */
coll_comm *calibrate_meet(calibrate_meeting *meeting, int index, const calibrate_world *world,
                          int rank, coll_config config);

/* Runs one rank; returns its exit status. */
typedef int calibrate_life(const calibrate_world *world, int rank, void *ctx);

/* ranks.c: runs the ranks of a world as processes that use a calibration file ("none": typical
 * costs); false if any failed. */
bool calibrate_run(const calibrate_world *world, const char *calibration,
                   calibrate_meeting *meeting, calibrate_life *life, void *ctx);

/* world.c: fills in the cells that a world measures for its costs. */
void calibrate_list(calibrate_world *world);

/* world.c: runs the ranks and measures every cell, in about `seconds` seconds. False after a
 * failure, which it prints. */
bool calibrate_measure(calibrate_world *world, double seconds);

/* survey.c: runs one operation on float32, with sum if it reduces, and root 0 if it has a root. */
coll_status calibrate_call(colli_coll coll, const void *in, void *out, size_t count,
                           coll_comm *comm);

/* Measured and predicted times of a world's algorithms in one pass: microseconds, indexed by
 * algorithm id and size; 0: not measured. */
typedef struct calibrate_record {
  int passes;
  float predicted_us[COLLI_CORRECTED_ALGOS][COLLI_CORRECTED_SIZES];
  float us[CALIBRATE_PASSES][COLLI_CORRECTED_ALGOS][COLLI_CORRECTED_SIZES];
} calibrate_record;

/*
 * survey.c: one pass: measures the algorithms that may be the best for some collective, and
 * predicts their times from the costs in a calibration file. turn_us: the length of each
 * measurement. False after a failure, which it prints.
 */
bool calibrate_survey(const calibrate_world *world, const char *calibration, double turn_us,
                      calibrate_record *record);

/* judge.c: whether an algorithm should be measured again in the next pass, for a size. */
bool calibrate_contends(const calibrate_record *record, const colli_algo *algo, int size);

/* judge.c: corrections that make the model choose the algorithm that was never far behind. */
void calibrate_conclude(const calibrate_record *record, colli_correction *corrections);

/*
 * fit.c: fits the costs so that the formulas come closest to the measurements of some worlds with
 * one kind of link. `costs` holds typical ones at first; costs that the measurements do not
 * determine stay near them. Returns the mean deviation as a factor, 1 at best.
 */
double calibrate_fit(const calibrate_world *worlds, int nworlds, colli_link_costs *costs);

/* fit.c: the limits of ranks that have no settings. */
colli_limits calibrate_limits(colli_link_kind link);

#endif
