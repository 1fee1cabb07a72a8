/* model.h: a model: a sequence of layers, with softmax cross entropy as its loss. */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/layers/layer.h"

#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 128

/*
 * All parameters are in one array of `params` floats, layer after layer. Gradients and the
 * optimizer's memory have the same layout. A sample has `inputs` floats and `positions` labels. The
 * last layer outputs `positions` rows of `classes` floats, one row for each label.
 */
typedef struct model {
  size_t layers;
  layer layer[MODEL_MAX_LAYERS];
  size_t params;
  size_t inputs, positions, classes;
  uint64_t shape; /* hash: equal for models whose parameters mean the same */
} model;

/* The memory of one pass over at most `rows` samples. */
typedef struct pass {
  size_t rows;
  float *value[MODEL_MAX_LAYERS + 1]; /* value[0]: inputs; value[l + 1]: outputs of layer l */
  float *memo[MODEL_MAX_LAYERS];
  float *delta[2]; /* derivatives by a layer's outputs, and by its inputs */
  uint8_t *labels; /* rows * positions */
} pass;

/* layer_done() is called as soon as a layer's gradients are final, from the last layer to the
 * first. */
typedef struct model_listener {
  bool (*layer_done)(void *ctx, size_t l, fail *why);
  void *ctx;
} model_listener;
#define NO_LISTENER ((model_listener){.layer_done = NULL})

/* Start with an empty model, append layers with model_add(), and finish with model_end(). */
void model_begin(model *m);
bool model_add(model *m, layer l, fail *why);
void model_end(model *m, size_t positions);

/* A multi-layer perceptron with ReLU between the layers: `count` sizes, inputs first. */
bool model_perceptron(model *m, const size_t *sizes, size_t count, fail *why);

/* A convolutional network after LeCun et al.: Gradient-Based Learning Applied to Document
 * Recognition, 1998 (LeNet-5), with ReLU and maxima, for square images. */
bool model_lenet(model *m, size_t side, size_t channels, size_t classes, fail *why);

/* Predicts the next of `symbols` symbols at each of `places` positions: `blocks` transformer blocks
 * of width `width`, with `heads` attention heads each. */
bool model_transformer(model *m, size_t symbols, size_t places, size_t width, size_t heads,
                       size_t blocks, fail *why);

/* The model that --model and its options ask for, if it fits the data. */
struct options;
struct dataset;
bool model_asked_for(model *m, const struct options *o, const struct dataset *d, fail *why);

/* The layers [begin, end) alone, with parameters that begin at 0. */
model model_part(const model *m, size_t begin, size_t end);

/* Writes initial parameters, equal for equal seeds. */
void model_seed(const model *m, uint64_t seed, float *params);

/* rows * columns floats, aligned for vector instructions; NULL: out of memory. */
float *matrix_alloc(size_t rows, size_t columns);

/* The same for `count` floats, all 0. */
float *matrix_zeroes(size_t count);

/* Allocates memory for passes over at most `rows` samples. */
bool pass_create(pass *p, const model *m, size_t rows, fail *why);
void pass_destroy(pass *p);

/* Computes the other values from value[0], which holds `rows` samples. */
bool model_forward(const model *m, const float *params, pass *p, size_t rows, fail *why);

/* After model_forward(): the sum of the samples' losses; a sample's loss is the mean over its
 * positions. Adds each sample's share of right answers to *correct. */
double model_loss(const model *m, const pass *p, size_t rows, double *correct);

/* After model_forward(): p->delta[0] = derivatives of scale * that sum by the last outputs. */
void model_loss_delta(const model *m, pass *p, size_t rows, float scale);

/*
 * From the derivatives by the last layer's outputs in p->delta[0]: grads = those by the
 * parameters, in_delta = those by the model's inputs (rows * inputs, or NULL). Stops when the
 * listener fails. `rows` may be 0.
 */
bool model_backward(const model *m, const float *params, pass *p, size_t rows, float *grads,
                    float *in_delta, model_listener listener, fail *why);

#endif
