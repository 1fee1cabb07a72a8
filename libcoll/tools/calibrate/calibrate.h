/* calibrate.h: what the parts of coll_calibrate share. */
#ifndef COLLI_TOOLS_CALIBRATE_CALIBRATE_H
#define COLLI_TOOLS_CALIBRATE_CALIBRATE_H

#include <stdatomic.h>

#include "coll/coll.h"
#include "libcoll/tuning/select.h"

#define CALIBRATE_CELLS  48 /* at most, of a world */
#define CALIBRATE_RANKS  8
#define CALIBRATE_PASSES 12 /* at most, over the algorithms of a world */

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

/* Where ranks meet, in memory that they share. */
typedef struct calibrate_meeting {
  atomic_int made; /* ids made by rank 0; -1: somebody failed */
  coll_id id[CALIBRATE_CELLS];
} calibrate_meeting;

/* ranks.c: zeroed memory that processes share; NULL after a failure, which was printed. */
void *calibrate_share(size_t bytes);

/* ranks.c: memory full of numbers, for free(); NULL if there is none. */
void *calibrate_buffer(size_t bytes);

/* ranks.c: makes communicator number `index` of all ranks; NULL after a failure. */
coll_comm *calibrate_meet(calibrate_meeting *meeting, int index, const calibrate_world *world,
                          int rank, coll_config config);

/* The life of one rank; its exit status. */
typedef int calibrate_life(const calibrate_world *world, int rank, void *ctx);

/* ranks.c: runs the ranks of a world as processes that go by a calibration file ("none": typical
 * costs); false if any failed. */
bool calibrate_run(const calibrate_world *world, const char *calibration,
                   calibrate_meeting *meeting, calibrate_life *life, void *ctx);

/* world.c: fills in which cells a world measures for its costs. */
void calibrate_list(calibrate_world *world);

/* world.c: runs the ranks and measures every cell, in about `seconds` seconds. False after a
 * failure, which was printed. */
bool calibrate_measure(calibrate_world *world, double seconds);

/* survey.c: one operation on float32, by sum where it reduces, of root 0 where it has one. */
coll_status calibrate_call(colli_coll coll, const void *in, void *out, size_t count,
                           coll_comm *comm);

/* What passes over the algorithms of a world have measured, and what is predicted: microseconds, by
 * the algorithm's id and the size; 0: not measured. */
typedef struct calibrate_record {
  int passes;
  float predicted_us[COLLI_CORRECTED_ALGOS][COLLI_CORRECTED_SIZES];
  float us[CALIBRATE_PASSES][COLLI_CORRECTED_ALGOS][COLLI_CORRECTED_SIZES];
} calibrate_record;

/*
 * survey.c: one pass: measures the algorithms of all collectives that may be the best, beside what
 * is predicted with the costs in a calibration file. turn_us: how long each is measured without a
 * pause. False after a failure, which was printed.
 */
bool calibrate_survey(const calibrate_world *world, const char *calibration, double turn_us,
                      calibrate_record *record);

/* judge.c: whether an algorithm is worth a place in the next pass, for a size. */
bool calibrate_contends(const calibrate_record *record, const colli_algo *algo, int size);

/* judge.c: the corrections by which the algorithm that was never far behind is chosen. */
void calibrate_conclude(const calibrate_record *record, colli_correction *corrections);

/*
 * fit.c: finds the costs with which the formulas come closest to what some worlds of one kind of
 * link have measured. `costs` holds typical ones at first; what the measurements do not tell stays
 * near them. Returns the mean deviation as a factor, 1 at best.
 */
double calibrate_fit(const calibrate_world *worlds, int nworlds, colli_link_costs *costs);

/* fit.c: the limits that ranks have without settings. */
colli_limits calibrate_limits(colli_link_kind link);

#endif
