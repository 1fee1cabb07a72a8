/* tuner.c: loads a tuner plug-in and asks it. */
#include "libcoll/tuning/tuner.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "coll/coll_tuner.h"
#include "libcoll/base/error.h"

struct colli_tuner {
  void *library;
  const coll_tuner_ops *ops;
  void *ctx;
};

/* Reports a plug-in that cannot be used. */
static coll_status refuse_plugin(const char *path, const char *why, const char *more,
                                 coll_error *error) {
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "COLL_TUNER=%s: %s%s; give the path of a shared library that exports a "
                         "coll_tuner (coll/coll_tuner.h), or unset it",
                         path, why, more);
}

/* Loads and checks it; the parts are in `tuner` as far as it came. */
static coll_status load_plugin(const char *path, colli_tuner *tuner, coll_error *error) {
  tuner->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!tuner->library)
    return refuse_plugin(path, "cannot be loaded: ", dlerror(), error);
  const coll_tuner_ops *ops = dlsym(tuner->library, "coll_tuner");
  if (!ops)
    return refuse_plugin(path, "exports no coll_tuner", "", error);
  if (ops->size < sizeof(*ops) || ops->abi != COLL_TUNER_ABI)
    return refuse_plugin(path, "is a tuner of another version of libcoll", "", error);
  if (!ops->choose || !ops->name)
    return refuse_plugin(path, "has no name, or cannot choose", "", error);
  if (ops->open && ops->open(&tuner->ctx) != 0)
    return refuse_plugin(path, "refuses to start", "", error);
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
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory for a tuner");
  coll_status status = load_plugin(path, tuner, error);
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
