/* model.h: a model: layers one behind the other, with softmax cross entropy at the end. */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/fail.h"
#include "trainer/layers/layer.h"

#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_LAYERS 128

/*
 * All parameters lie in one array of `params` floats, layer after layer. Gradients and the
 * optimizer's memory have the same layout. A sample has `inputs` floats; the last layer gives
 * `positions` rows of `classes` floats for it, and each row is one answer to a label.
 */
typedef struct model {
  size_t layers;
  layer layer[MODEL_MAX_LAYERS];
  size_t params;
  size_t inputs, positions, classes;
  uint64_t shape; /* equal for models whose parameters mean the same */
} model;

/* What one pass over at most `rows` samples needs. */
typedef struct pass {
  size_t rows;
  float *value[MODEL_MAX_LAYERS + 1]; /* value[0]: inputs; value[l + 1]: outputs of layer l */
  float *memo[MODEL_MAX_LAYERS];
  float *delta[2]; /* derivative by a layer's output, and by its input */
  uint8_t *labels; /* rows * positions */
} pass;

/* Told as soon as a layer's gradients are final; layers come last first. */
typedef struct model_listener {
  bool (*layer_done)(void *ctx, size_t l, fail *why);
  void *ctx;
} model_listener;
#define NO_LISTENER ((model_listener){.layer_done = NULL})

/* An empty model; model_add() then puts layers behind each other, and model_end() ends it. */
void model_begin(model *m);
bool model_add(model *m, layer l, fail *why);
void model_end(model *m, size_t positions);

/* A multi-layer perceptron with ReLU between the layers: `count` sizes, inputs first. */
bool model_perceptron(model *m, const size_t *sizes, size_t count, fail *why);

/* A convolutional network after LeCun et al.: Gradient-Based Learning Applied to Document
 * Recognition, 1998 (LeNet-5), with ReLU and maxima, for square images. */
bool model_lenet(model *m, size_t side, size_t channels, size_t classes, fail *why);

/* Names the next of `symbols` symbols at each of `places` places: `blocks` blocks of attention with
 * `heads` heads, all `width` wide. */
bool model_transformer(model *m, size_t symbols, size_t places, size_t width, size_t heads,
                       size_t blocks, fail *why);

/* The model that --model and its options ask for, if it fits the data. */
struct options;
struct dataset;
bool model_asked_for(model *m, const struct options *o, const struct dataset *d, fail *why);

/* The layers [begin, end) alone, with parameters that begin at 0. */
model model_part(const model *m, size_t begin, size_t end);

/* Initial parameters. Equal for equal seeds. */
void model_seed(const model *m, uint64_t seed, float *params);

/* rows * columns floats, aligned for vector instructions; NULL if there is no such memory. */
float *matrix_alloc(size_t rows, size_t columns);

/* Takes memory for passes over at most `rows` samples. */
bool pass_create(pass *p, const model *m, size_t rows, fail *why);
void pass_destroy(pass *p);

/* value[0] holds `rows` samples: fills the other values. */
bool model_forward(const model *m, const float *params, pass *p, size_t rows, fail *why);

/* After model_forward(): the sum of the samples' losses, each the mean over its positions; adds to
 * *correct the share of right answers of each sample. */
double model_loss(const model *m, const pass *p, size_t rows, double *correct);

/* After model_forward(): p->delta[0] = derivative of scale * that sum by the last outputs. */
void model_loss_delta(const model *m, pass *p, size_t rows, float scale);

/*
 * After p->delta[0] holds the derivative by the last layer's outputs: grads = derivative by the
 * parameters. in_delta: receives that by the model's inputs, rows * inputs; or NULL. Stops when
 * the listener fails. Works for 0 samples, too.
 */
bool model_backward(const model *m, const float *params, pass *p, size_t rows, float *grads,
                    float *in_delta, model_listener listener, fail *why);

#endif
