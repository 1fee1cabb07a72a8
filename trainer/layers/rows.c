/* rows.c: what layers do to each row of a matrix, forwards and backwards. */
#include "trainer/layers/layer.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

#define NORM_LEAST 1e-5f /* added to the variance, which is 0 if all numbers of a row are equal */

void rows_bias(size_t rows, size_t width, const float *bias, float *out, bool relu) {
  for (size_t r = 0; r < rows; r++) {
    float *row = out + r * width;
    if (relu)
      for (size_t j = 0; j < width; j++) {
        float x = row[j] + bias[j];
        row[j] = x < 0.0f ? 0.0f : x;
      }
    else
      for (size_t j = 0; j < width; j++)
        row[j] += bias[j];
  }
}

void rows_product(size_t rows, size_t inputs, size_t outputs, const float *weights, const float *in,
                  float *out) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)outputs, (int)inputs, 1.0f,
              in, (int)inputs, weights, (int)inputs, 0.0f, out, (int)outputs);
}

void rows_linear(size_t rows, size_t inputs, size_t outputs, const float *params, const float *in,
                 float *out, bool relu) {
  rows_product(rows, inputs, outputs, params, in, out);
  rows_bias(rows, outputs, params + inputs * outputs, out, relu);
}

void rows_linear_back(size_t rows, size_t inputs, size_t outputs, const float *params,
                      const float *in, const float *out_delta, float *in_delta, float *grads) {
  float *bias = grads + inputs * outputs;
  cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)outputs, (int)inputs, (int)rows, 1.0f,
              out_delta, (int)outputs, in, (int)inputs, 0.0f, grads, (int)inputs);
  memset(bias, 0, outputs * sizeof(float));
  for (size_t r = 0; r < rows; r++)
    rows_add(outputs, bias, out_delta + r * outputs);
  if (in_delta)
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)inputs, (int)outputs,
                1.0f, out_delta, (int)outputs, params, (int)inputs, 0.0f, in_delta, (int)inputs);
}

void rows_norm(size_t rows, size_t width, const float *params, const float *in, float *out,
               float *stat) {
  for (size_t r = 0; r < rows; r++) {
    const float *x = in + r * width;
    float sum = 0, squares = 0;
    for (size_t j = 0; j < width; j++)
      sum += x[j];
    float mean = sum / (float)width;
    for (size_t j = 0; j < width; j++)
      squares += (x[j] - mean) * (x[j] - mean);
    float inverse = 1.0f / sqrtf(squares / (float)width + NORM_LEAST);
    for (size_t j = 0; j < width; j++)
      out[r * width + j] = (x[j] - mean) * inverse * params[j] + params[width + j];
    stat[2 * r] = mean;
    stat[2 * r + 1] = inverse;
  }
}

void rows_norm_back(size_t rows, size_t width, const float *params, const float *in,
                    const float *stat, const float *out_delta, float *in_delta, float *grads) {
  memset(grads, 0, 2 * width * sizeof(float));
  for (size_t r = 0; r < rows; r++) {
    const float *x = in + r * width, *d = out_delta + r * width;
    float mean = stat[2 * r], inverse = stat[2 * r + 1], sum = 0, along = 0;
    for (size_t j = 0; j < width; j++) {
      float normal = (x[j] - mean) * inverse, scaled = d[j] * params[j];
      grads[j] += d[j] * normal;
      grads[width + j] += d[j];
      sum += scaled;
      along += scaled * normal;
    }
    sum /= (float)width;
    along /= (float)width;
    for (size_t j = 0; j < width; j++) {
      float normal = (x[j] - mean) * inverse;
      in_delta[r * width + j] += inverse * (d[j] * params[j] - sum - normal * along);
    }
  }
}

void rows_add(size_t count, float *a, const float *b) {
  for (size_t i = 0; i < count; i++)
    a[i] += b[i];
}
