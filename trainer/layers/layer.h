/* layer.h: one layer of a model, and the functions that each kind of layer provides. */
#ifndef TRAINER_LAYERS_LAYER_H
#define TRAINER_LAYERS_LAYER_H

#include "trainer/base.h"

typedef struct layer layer;

/*
 * One run of a layer over a batch of `rows` > 0 samples. Matrices have one row per sample.
 */
typedef struct layer_run {
  size_t rows;
  const float *params;
  const float *in; /* rows * layer.in */
  float *out;      /* rows * layer.out: forward writes it, backward may read it */
  float *memo;     /* rows * layer.memo: what forward saves for backward */
  /* For backward only: derivatives of the loss */
  float *out_delta; /* by `out`: input; backward may overwrite it */
  float *in_delta;  /* by `in`: output; NULL: not needed */
  float *grads;     /* by the parameters: output */
  bool failed;      /* ranks that share the layer have lost one: set it, and say so in *why */
  fail *why;
} layer_run;

/* The functions of a kind of layer. */
typedef struct layer_kind {
  const char *name;
  void (*seed)(const layer *l, rng *g, float *params); /* initial parameters; NULL: it has none */
  void (*forward)(const layer *l, layer_run *run);
  void (*backward)(const layer *l, layer_run *run);
} layer_kind;

#define LAYER_DIMS 8

struct layer {
  const layer_kind *kind;
  size_t in, out, memo;   /* floats per sample */
  size_t first, count;    /* its parameters, in the model's array */
  size_t dim[LAYER_DIMS]; /* parameters of its kind; see its file */
  bool relu;              /* ReLU is applied to its outputs */
  struct split *split;    /* the ranks that have parts of it, or NULL */
};

/* A normally distributed number with mean 0 and deviation 1 (Box and Muller). */
double layer_normal(rng *g);

/* Sets the derivatives by outputs that ReLU made 0 to 0. */
void layer_relu_delta(const layer *l, const layer_run *run);

/* Writes initial parameters of a linear map: normal with variance gain / inputs; biases 0. */
void layer_seed_linear(size_t inputs, size_t outputs, double gain, rng *g, float *params);

/* The kinds of layers; linear.c, conv.c and transformer.c describe them. */
layer layer_linear(size_t inputs, size_t outputs, size_t positions, bool relu);
layer layer_conv(size_t side, size_t channels, size_t kernel, size_t padding, size_t outputs);
layer layer_pool(size_t side, size_t channels);
layer layer_embed(size_t symbols, size_t positions, size_t width);
layer layer_norm(size_t positions, size_t width);
layer layer_attention(size_t positions, size_t width, size_t heads);
layer layer_mlp(size_t positions, size_t width, size_t hidden);

/* The ranks that share layers, and the cost of their sums. It must outlive the layers. */
typedef struct split {
  coll_comm *comm;
  int rank, nranks;
  double waited_s, sent_bytes;
} split;

/* Whether ranks can share a layer: a linear one for whole samples. */
bool layer_splits(const layer *l);

/* A linear layer of which this rank has a part of the outputs and all inputs. */
layer layer_columns(split *ranks, size_t inputs, size_t outputs, bool relu);

/* A linear layer of which this rank has a part of the inputs and all outputs. */
layer layer_rows(split *ranks, size_t inputs, size_t outputs, bool relu);

/* ---- rows.c: what layers do to each row of a matrix ----------------------------------------- */

/* Parameters of rows_linear: a row of `inputs` weights for each output, then the biases. */
static inline size_t rows_linear_params(size_t inputs, size_t outputs) {
  return inputs * outputs + outputs;
}

/* Parameters of rows_norm: factors, then offsets. */
static inline size_t rows_norm_params(size_t width) {
  return 2 * width;
}

/* out = W in for each row. */
void rows_product(size_t rows, size_t inputs, size_t outputs, const float *weights, const float *in,
                  float *out);

/* out += b for each row, then ReLU if `relu`. */
void rows_bias(size_t rows, size_t width, const float *bias, float *out, bool relu);

/* out = W in + b for each row, then ReLU if `relu`. */
void rows_linear(size_t rows, size_t inputs, size_t outputs, const float *params, const float *in,
                 float *out, bool relu);

/* From the derivatives by `out`: those by the parameters, and those by `in` unless in_delta is
 * NULL. */
void rows_linear_back(size_t rows, size_t inputs, size_t outputs, const float *params,
                      const float *in, const float *out_delta, float *in_delta, float *grads);

/* out = (in - mean) / deviation * factor + offset for each row; stat: 2 * rows floats for the
 * backward pass. (Ba, Kiros, Hinton: Layer Normalization, 2016.) */
void rows_norm(size_t rows, size_t width, const float *params, const float *in, float *out,
               float *stat);

/* From the derivatives by `out`: those by the parameters, and those by `in` added to in_delta. */
void rows_norm_back(size_t rows, size_t width, const float *params, const float *in,
                    const float *stat, const float *out_delta, float *in_delta, float *grads);

/* a[i] += b[i]. */
void rows_add(size_t count, float *a, const float *b);

#endif
