/* rows.h: what layers do to each row of a matrix, forwards and backwards. */
#ifndef TRAINER_LAYERS_ROWS_H
#define TRAINER_LAYERS_ROWS_H

#include <stdbool.h>
#include <stddef.h>

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
