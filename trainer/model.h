/* model.h: a multi-layer perceptron with ReLU between the layers and softmax cross entropy. */
#ifndef TRAINER_MODEL_H
#define TRAINER_MODEL_H

#include "trainer/fail.h"

#include <stddef.h>
#include <stdint.h>

#define MODEL_MAX_SIZES 64

/*
 * The shape. sizes[0] inputs, sizes[layers] classes. All parameters lie in one array of `params`
 * floats: for each layer its weights (one row per output) and then its biases. Gradients and the
 * optimizer's memory have the same layout.
 */
typedef struct model {
  size_t layers;
  size_t sizes[MODEL_MAX_SIZES];
  size_t first[MODEL_MAX_SIZES]; /* where a layer's parameters begin; first[layers] == params */
  size_t params;
} model;

/* What one pass over at most `rows` samples needs. */
typedef struct pass {
  size_t rows;
  float *value[MODEL_MAX_SIZES]; /* value[0]: inputs; value[l + 1]: outputs of layer l */
  float *delta[2];               /* derivative by a layer's output, and by its input */
  uint8_t *labels;
} pass;

/* Told as soon as a layer's gradients are final; layers come last first. */
typedef struct model_listener {
  bool (*layer_done)(void *ctx, size_t layer, fail *why);
  void *ctx;
} model_listener;

/* Takes the sizes of all layers, inputs first; fails if the parameters cannot be counted. */
bool model_init(model *m, const size_t *sizes, size_t count, fail *why);

/* He initialisation: normal with variance 2 / inputs; biases 0. Equal for equal seeds. */
void model_seed(const model *m, uint64_t seed, float *params);

/* rows * columns floats, aligned for vector instructions; NULL if there is no such memory. */
float *matrix_alloc(size_t rows, size_t columns);

/* Takes memory for passes over at most `rows` samples. */
bool pass_create(pass *p, const model *m, size_t rows, fail *why);
void pass_destroy(pass *p);

/* value[0] holds `rows` samples: fills the other values. */
void model_forward(const model *m, const float *params, pass *p, size_t rows);

/* After model_forward(): the sum of the samples' losses; *correct counts right answers. */
double model_loss(const model *m, const pass *p, size_t rows, size_t *correct);

/*
 * After model_forward(): grads = scale * the sum over the samples of the loss's gradient. Stops
 * when the listener fails. Works for 0 samples, too.
 */
bool model_backward(const model *m, const float *params, pass *p, size_t rows, float scale,
                    float *grads, model_listener listener, fail *why);

#endif
