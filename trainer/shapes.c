/* shapes.c: the models of --model. */
#include "trainer/dataset.h"
#include "trainer/model.h"
#include "trainer/options.h"

bool model_perceptron(model *m, const size_t *sizes, size_t count, fail *why) {
  model_begin(m);
  for (size_t l = 0; l + 1 < count; l++) {
    size_t weights, both;
    if (__builtin_mul_overflow(sizes[l], sizes[l + 1], &weights) ||
        __builtin_add_overflow(weights, sizes[l + 1], &both) ||
        !model_add(m, layer_linear(sizes[l], sizes[l + 1], 1, l + 2 < count), why))
      return fail_set(why, "--layers: more parameters than can be addressed");
  }
  model_end(m, 1);
  return true;
}

bool model_lenet(model *m, size_t side, size_t channels, size_t classes, fail *why) {
  size_t half = side / 2, quarter = (half - 4) / 2;
  if (side < 12 || side % 4 != 0)
    return fail_set(why,
                    "--model lenet: needs square images whose side is a multiple of 4 and at "
                    "least 12, not %zu",
                    side);
  model_begin(m);
  bool ok = model_add(m, layer_conv(side, channels, 5, 2, 6), why) &&
            model_add(m, layer_pool(side, 6), why) &&
            model_add(m, layer_conv(half, 6, 5, 0, 16), why) &&
            model_add(m, layer_pool(half - 4, 16), why) &&
            model_add(m, layer_linear(quarter * quarter * 16, 120, 1, true), why) &&
            model_add(m, layer_linear(120, 84, 1, true), why) &&
            model_add(m, layer_linear(84, classes, 1, false), why);
  if (ok)
    model_end(m, 1);
  return ok;
}

bool model_transformer(model *m, size_t symbols, size_t places, size_t width, size_t heads,
                       size_t blocks, fail *why) {
  if (width % heads != 0)
    return fail_set(why, "--width %zu: must be a multiple of --heads %zu", width, heads);
  model_begin(m);
  bool ok = model_add(m, layer_embed(symbols, places, width), why);
  for (size_t b = 0; ok && b < blocks; b++)
    ok = model_add(m, layer_attention(places, width, heads), why) &&
         model_add(m, layer_mlp(places, width, 4 * width), why);
  ok = ok && model_add(m, layer_norm(places, width), why) &&
       model_add(m, layer_linear(width, symbols, places, false), why);
  if (ok)
    model_end(m, places);
  return ok;
}

/* A perceptron, if its first and last sizes fit the data. */
static bool perceptron_asked_for(model *m, const options *o, const dataset *d, fail *why) {
  size_t outputs = o->sizes[o->size_count - 1];
  if (o->sizes[0] != d->inputs)
    return fail_set(why, "--layers begins with %zu, but the samples of %s have %zu inputs",
                    o->sizes[0], o->data, d->inputs);
  if (outputs < d->classes)
    return fail_set(why, "--layers ends with %zu, but the labels of %s go up to %zu", outputs,
                    o->data, d->classes - 1);
  return model_perceptron(m, o->sizes, o->size_count, why);
}

bool model_asked_for(model *m, const options *o, const dataset *d, fail *why) {
  if (d->text != (o->model == MODEL_TRANSFORMER))
    return fail_set(why,
                    d->text ? "%s is a text file: use --model transformer"
                            : "--model transformer: needs a text file, but %s holds images",
                    o->data);
  switch (o->model) {
  case MODEL_LENET:
    return model_lenet(m, d->side, d->channels, d->classes, why);
  case MODEL_TRANSFORMER:
    return model_transformer(m, d->classes, d->inputs, o->width, o->heads, o->blocks, why);
  default:
    return perceptron_asked_for(m, o, d, why);
  }
}
