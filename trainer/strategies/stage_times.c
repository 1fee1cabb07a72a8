/* stage_times.c: when each stage of a pipeline was at work, for the metrics. */
#include "trainer/strategies/stage_times.h"

#include <stdlib.h>

#define MOST_SPANS 512 /* of all stages, that are shown in the metrics */

/* Notes the times of one stage's passes, forward or backward. */
static void note_passes(worker *w, const char *name, const span *passes, size_t micro,
                        double begin_s) {
  worker_note(w, "\"%s\":[", name);
  for (size_t i = 0; i < micro; i++)
    worker_note(w, "%s[%.6f,%.6f]", i ? "," : "", passes[i].begin_s - begin_s,
                passes[i].end_s - begin_s);
  worker_note(w, "]");
}

/* Notes all stages, of which `all` has the spans of each rank: those of the first parts of the
 * first copy, which are every tensor.size-th of the first ranks, the last stage first. */
static void note_stages(worker *w, const grid *g, const span *all, size_t micro) {
  int stages = g->pipeline.size, parts = g->tensor.size;
  const span *first = all + (size_t)((stages - 1) * parts) * 2 * micro;
  worker_note(w, ",\"stages\":[");
  for (int s = 0; s < stages; s++) {
    const span *stage = first - (size_t)(s * parts) * 2 * micro;
    worker_note(w, s ? ",{" : "{");
    note_passes(w, "forward", stage, micro, first->begin_s);
    worker_note(w, ",");
    note_passes(w, "backward", stage + micro, micro, first->begin_s);
    worker_note(w, "}");
  }
  worker_note(w, "]");
}

bool stage_times_note(worker *w, const grid *g, const span *mine, int micro, fail *why) {
  size_t passes = 2 * (size_t)micro;
  if (passes * (size_t)g->pipeline.size > MOST_SPANS)
    return true;
  span *all = calloc((size_t)w->nranks * passes, sizeof(*all));
  if (!all)
    return fail_memory(why, "the times of the stages");
  coll_status status = coll_allgather(mine, all, 2 * passes, COLL_FLOAT64, w->comm);
  if (status == COLL_OK)
    note_stages(w, g, all, (size_t)micro);
  free(all);
  return status == COLL_OK || fail_coll(why, w->comm, status, "comparing the stages");
}
