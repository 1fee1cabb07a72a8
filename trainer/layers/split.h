/* split.h: linear layers of which each rank of a communicator has a part. */
#ifndef TRAINER_LAYERS_SPLIT_H
#define TRAINER_LAYERS_SPLIT_H

#include "trainer/layers/layer.h"

#include <coll/coll.h>

/* The ranks that share layers, and the cost of their sums. It must outlive the layers. */
typedef struct split {
  coll_comm *comm;
  int rank, nranks;
  double waited_s, sent_bytes;
} split;

/* A linear layer of which this rank has a part of the outputs and all inputs. */
layer layer_columns(split *ranks, size_t inputs, size_t outputs, bool relu);

/* A linear layer of which this rank has a part of the inputs and all outputs. */
layer layer_rows(split *ranks, size_t inputs, size_t outputs, bool relu);

#endif
