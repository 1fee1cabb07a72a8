/* profiler.c: loads a profiler plug-in. */
#include "libcoll/trace/profiler.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/plugin.h"

struct colli_profiler {
  void *library;
  const coll_profiler_ops *ops;
  void *ctx;
};

static const colli_plugin_kind profiler_kind = {
    "COLL_PROFILER", "coll_profiler",
    "give the path of a shared library that exports a coll_profiler (coll/coll_profiler.h), or "
    "unset it"};

/* Describes an event to the plug-in. */
static void tell_profiler(void *ctx, const colli_observation *seen) {
  const colli_profiler *profiler = ctx;
  coll_profiler_event event;
  colli_event_describe(seen, &event);
  event.time_ns = colli_now_ns();
  profiler->ops->event(profiler->ctx, &event);
}

/* Loads, checks and starts the plug-in; on failure `profiler` holds what was loaded so far. */
static coll_status load_profiler(const char *path, int rank, int nranks, colli_profiler *profiler,
                                 coll_error *error) {
  void *symbol;
  coll_status status =
      colli_plugin_load(&profiler_kind, path, false, &profiler->library, &symbol, error);
  if (status != COLL_OK)
    return status;
  const coll_profiler_ops *ops = symbol;
  if (ops->size < sizeof(*ops) || ops->abi != COLL_PROFILER_ABI)
    return colli_plugin_refuse(&profiler_kind, path, error,
                               "is a profiler of another version of libcoll");
  if (!ops->event || !ops->name)
    return colli_plugin_refuse(&profiler_kind, path, error, "has no name or no event function");
  if (ops->open && ops->open(&profiler->ctx, rank, nranks) != 0)
    return colli_plugin_refuse(&profiler_kind, path, error, "refuses to start");
  profiler->ops = ops;
  return COLL_OK;
}

coll_status colli_profiler_open(const char *path, int rank, int nranks,
                                struct colli_observers *observers, colli_profiler **out,
                                coll_error *error) {
  *out = NULL;
  if (!*path)
    return COLL_OK;
  colli_profiler *profiler = calloc(1, sizeof(*profiler));
  if (!profiler)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for a profiler");
  coll_status status = load_profiler(path, rank, nranks, profiler, error);
  if (status != COLL_OK) {
    colli_profiler_close(profiler);
    return status;
  }
  COLLI_ASSERT_RANK(observers->count < COLLI_OBSERVERS, rank);
  observers->at[observers->count++] = (colli_observer){tell_profiler, profiler};
  *out = profiler;
  return COLL_OK;
}

void colli_profiler_close(colli_profiler *profiler) {
  if (!profiler)
    return;
  if (profiler->ops && profiler->ops->close)
    profiler->ops->close(profiler->ctx);
  if (profiler->library)
    dlclose(profiler->library);
  free(profiler);
}
