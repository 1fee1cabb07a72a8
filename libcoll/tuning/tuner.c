/* tuner.c: loads a tuner plug-in and asks it. */
#include "libcoll/tuning/tuner.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "coll/coll_tuner.h"
#include "libcoll/base/error.h"
#include "libcoll/base/plugin.h"

struct colli_tuner {
  void *library;
  const coll_tuner_ops *ops;
  void *ctx;
};

static const colli_plugin_kind tuner_kind = {
    "COLL_TUNER", "coll_tuner",
    "give the path of a shared library that exports a coll_tuner (coll/coll_tuner.h), or unset it"};

/* Loads and checks the plug-in; on failure `tuner` holds what was loaded so far. */
static coll_status load_tuner(const char *path, colli_tuner *tuner, coll_error *error) {
  void *symbol;
  coll_status status = colli_plugin_load(&tuner_kind, path, false, &tuner->library, &symbol, error);
  if (status != COLL_OK)
    return status;
  const coll_tuner_ops *ops = symbol;
  if (ops->size < sizeof(*ops) || ops->abi != COLL_TUNER_ABI)
    return colli_plugin_refuse(&tuner_kind, path, error,
                               "is a tuner of another version of libcoll");
  if (!ops->choose || !ops->name)
    return colli_plugin_refuse(&tuner_kind, path, error, "has no name or no choose function");
  if (ops->open && ops->open(&tuner->ctx) != 0)
    return colli_plugin_refuse(&tuner_kind, path, error, "refuses to start");
  tuner->ops = ops;
  return COLL_OK;
}

/* Loads the plug-in at `path`. */
coll_status colli_tuner_open(const char *path, colli_tuner **out, coll_error *error) {
  *out = NULL;
  if (!*path)
    return COLL_OK;
  colli_tuner *tuner = calloc(1, sizeof(*tuner));
  if (!tuner)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for a tuner");
  coll_status status = load_tuner(path, tuner, error);
  if (status == COLL_OK)
    *out = tuner;
  else
    colli_tuner_close(tuner);
  return status;
}

/* Asks for one of the candidates. */
coll_status colli_tuner_ask(colli_tuner *tuner, const colli_shape *shape, size_t bytes,
                            const colli_choice *candidates, int count, int *index,
                            coll_error *error) {
  coll_candidate told[COLLI_MAX_CANDIDATES];
  for (int i = 0; i < count; i++) {
    told[i] = (coll_candidate){.predicted_us = candidates[i].predicted_ns / 1e3, .chosen = i == 0};
    snprintf(told[i].name, sizeof(told[i].name), "%s", candidates[i].algo->name);
  }
  const char *name = colli_coll_name(shape->coll);
  *index = tuner->ops->choose(tuner->ctx, name, shape->nranks, bytes, told, count);
  if (*index >= -1 && *index < count)
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, name,
                         "the tuner '%s' (COLL_TUNER) chose number %d of %d algorithms for %zu "
                         "bytes; it must give an index, or -1",
                         tuner->ops->name, *index, count, bytes);
}

/* Unloads it. */
void colli_tuner_close(colli_tuner *tuner) {
  if (!tuner)
    return;
  if (tuner->ops && tuner->ops->close)
    tuner->ops->close(tuner->ctx);
  if (tuner->library)
    dlclose(tuner->library);
  free(tuner);
}
