/* agree.c: checks that all ranks agree, and names those that do not. */
#include "trainer/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What every rank tells the others before training. */
typedef struct report {
  uint64_t ok, options, data;
  char text[488];
} report;

/* Gathers `bytes` bytes of each rank; the caller frees the result. NULL: see why. */
static void *gather(coll_comm *comm, const void *mine, size_t bytes, int *nranks, fail *why) {
  coll_status status = coll_comm_nranks(comm, nranks);
  void *all = status == COLL_OK ? calloc((size_t)*nranks, bytes) : NULL;
  if (!all) {
    fail_memory(why, "the ranks' reports");
    return NULL;
  }
  status = coll_allgather(mine, all, bytes, COLL_UINT8, comm);
  if (status != COLL_OK) {
    fail_coll(why, comm, status, "comparing the ranks");
    free(all);
    return NULL;
  }
  return all;
}

/* Finds the first rank that cannot begin or begins something else. */
static bool compare_reports(const report *all, int nranks, fail *why) {
  int failed = -1, others = 0;
  for (int r = nranks - 1; r >= 0; r--)
    if (!all[r].ok)
      failed = r;
  for (int r = 0; failed >= 0 && r < nranks; r++)
    others += r != failed && strcmp(all[r].text, all[failed].text) != 0;
  if (failed >= 0 && others == 0)
    return fail_set(why, "%s", all[failed].text);
  if (failed >= 0)
    return fail_set(why, "rank %d: %s", failed, all[failed].text);
  for (int r = 1; r < nranks; r++) {
    if (all[r].options != all[0].options)
      return fail_set(why,
                      "rank %d was started with different options than rank 0: give all ranks the "
                      "same",
                      r);
    if (all[r].data != all[0].data)
      return fail_set(why, "rank %d has different data than rank 0: compare the --data files", r);
  }
  return true;
}

bool agree_start(coll_comm *comm, bool ok, uint64_t options, uint64_t data, fail *why) {
  int nranks = 0;
  report mine = {.ok = ok, .options = options, .data = data};
  if (!ok)
    snprintf(mine.text, sizeof(mine.text), "%.*s", (int)sizeof(mine.text) - 1, why->text);
  report *all = gather(comm, &mine, sizeof(mine), &nranks, why);
  if (!all)
    return false;
  ok = compare_reports(all, nranks, why);
  why->everywhere = !ok;
  free(all);
  return ok;
}

size_t agree_reference(const uint64_t *values, size_t count) {
  size_t best = 0, most = 0;
  for (size_t i = 0; i < count; i++) {
    size_t same = 0;
    for (size_t j = 0; j < count; j++)
      same += values[j] == values[i];
    if (same > most) {
      most = same;
      best = i;
    }
  }
  return best;
}

bool agree_weights(coll_comm *comm, uint64_t hash, fail *why) {
  int nranks = 0;
  uint64_t *all = gather(comm, &hash, sizeof(hash), &nranks, why);
  if (!all)
    return false;
  size_t reference = agree_reference(all, (size_t)nranks);
  char names[160] = "";
  size_t used = 0;
  for (int r = 0; r < nranks; r++)
    if (all[r] != all[reference] && used + 16 < sizeof(names))
      used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%d", used ? ", " : "", r);
  free(all);
  if (used == 0)
    return true;
  why->everywhere = true;
  return fail_set(why,
                  "the weights of rank %s differ from those of rank %zu, but all must be equal "
                  "bit for bit: suspect the memory of that machine, or a bug in the library",
                  names, reference);
}
