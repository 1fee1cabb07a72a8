/*
 * grid.h: ranks that split the model: layers into stages, linear layers into parts, and batches
 * over copies of all that. Rank r is part r % tensor of stage number r / tensor % pipeline, counted
 * from the end, of copy r / tensor / pipeline: rank 0 knows the loss.
 */
#ifndef TRAINER_STRATEGIES_GRID_H
#define TRAINER_STRATEGIES_GRID_H

#include "trainer/layers/split.h"
#include "trainer/worker.h"

/* How many ways something is cut, this rank's place, and the ranks that differ in it alone. */
typedef struct axis {
  int size, place;
  coll_comm *comm; /* NULL: this rank alone */
} axis;

typedef struct grid {
  axis tensor, pipeline, data; /* pipeline.place 0 is the last stage */
  split split;
  model whole;       /* split by tensor */
  size_t begin, end; /* this stage's layers */
  model part;        /* they alone */
  float *params;     /* of this rank's part, and of them alone: */
  float *velocity, *squares;
} grid;

/* The sizes that options ask for: 1 is what nobody asks for. */
void grid_sizes(const options *o, int nranks, int *tensor, int *pipeline);

/* Whether the options, the model and the ranks make a grid. */
bool grid_check(const worker *w, fail *why);

/* Finds this rank's place, and takes its part of the worker's model; collective. */
bool grid_open(grid *g, worker *w, fail *why);
void grid_close(grid *g);

/* Puts the parts together in the worker's model, on every rank; collective. */
bool grid_settle(grid *g, worker *w, fail *why);

#endif
