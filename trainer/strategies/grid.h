/*
 * grid.h: ranks that split the model: layers into stages, linear layers into parts, and batches
 * over copies of all that. Rank r is part r % tensor of stage number r / tensor % pipeline, counted
 * from the end, of copy r / tensor / pipeline: rank 0 knows the loss.
 */
#ifndef TRAINER_STRATEGIES_GRID_H
#define TRAINER_STRATEGIES_GRID_H

#include "trainer/layers/layer.h"
#include "trainer/worker.h"

/* One dimension of the grid: into how many parts something is cut, and which is this rank's. */
typedef struct axis {
  int size, rank;
  coll_comm *comm; /* of the ranks that differ in this dimension alone; NULL: one, or stages */
} axis;

typedef struct grid {
  axis tensor, pipeline, data; /* pipeline.rank 0 is the last stage */
  split split;
  model whole;       /* split by tensor */
  size_t begin, end; /* this stage's layers */
  model part;        /* they alone */
  float *params;     /* of this rank's part, and of them alone: */
  float *velocity, *squares;
} grid;

/* The sizes that the options ask for; 1 where they ask for none. */
void grid_sizes(const options *o, int nranks, int *tensor, int *pipeline);

/* Whether the options, the model and the ranks make a grid. */
bool grid_check(const worker *w, fail *why);

/* Finds this rank's coordinates, and copies its part of the worker's model; collective. */
bool grid_open(grid *g, worker *w, fail *why);
void grid_close(grid *g);

/* Assembles the worker's model from the parts, on every rank; collective. */
bool grid_settle(grid *g, worker *w, fail *why);

#endif
