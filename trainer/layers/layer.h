/* layer.h: one layer of a model, and the functions that each kind of layer provides. */
#ifndef TRAINER_LAYERS_LAYER_H
#define TRAINER_LAYERS_LAYER_H

#include "trainer/fail.h"
#include "trainer/rng.h"

#include <stddef.h>

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
} layer_run;

/* The functions of a kind of layer. */
typedef struct layer_kind {
  const char *name;
  void (*seed)(const layer *l, rng *g, float *params); /* initial parameters; NULL: it has none */
  bool (*forward)(const layer *l, const layer_run *run, fail *why);
  bool (*backward)(const layer *l, const layer_run *run, fail *why);
} layer_kind;

#define LAYER_DIMS 8

struct layer {
  const layer_kind *kind;
  size_t in, out, memo;   /* floats per sample */
  size_t first, count;    /* its parameters, in the model's array */
  size_t dim[LAYER_DIMS]; /* parameters of its kind; see its file */
  bool relu;              /* ReLU is applied to its outputs */
  struct split *split;    /* the ranks that have parts of it (split.h), or NULL */
};

/* A normally distributed number with mean 0 and deviation 1 (Box and Muller). */
double layer_normal(rng *g);

/* Sets the derivatives by outputs that ReLU made 0 to 0. */
void layer_relu_delta(const layer *l, const layer_run *run);

/* Writes initial parameters of a linear map: normal with variance gain / inputs; biases 0. */
void layer_seed_linear(size_t inputs, size_t outputs, double gain, rng *g, float *params);

/* Writes initial parameters of a normalisation: factors 1, offsets 0. */
void layer_seed_norm(size_t width, float *params);

/* Whether ranks can share a layer (split.h): a linear one for whole samples. */
bool layer_splits(const layer *l);

/* The kinds of layers; each is described in the file of its name. */
layer layer_linear(size_t inputs, size_t outputs, size_t positions, bool relu);
layer layer_conv(size_t side, size_t channels, size_t kernel, size_t padding, size_t outputs);
layer layer_pool(size_t side, size_t channels);
layer layer_embed(size_t symbols, size_t positions, size_t width);
layer layer_norm(size_t positions, size_t width);
layer layer_attention(size_t positions, size_t width, size_t heads);
layer layer_mlp(size_t positions, size_t width, size_t hidden);

#endif
