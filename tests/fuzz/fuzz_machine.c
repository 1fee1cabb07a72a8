/*
 * fuzz_machine.c: descriptions of machines: the input as a text, and a well-formed one made from
 * it. Not XML files: hwloc itself crashes when it reads damaged ones (docs/threat-model.md).
 */
#include "fuzz.h"
#include "topology/topology.h"

#define LEVELS 6

/* Loads a description and places ranks. */
static void load(const char *text, int nranks) {
  colli_topo *topo;
  coll_error error = COLL_ERROR_INIT;
  int cores[16];
  if (!*text || strstr(text, ".xml") || colli_topo_load(text, &topo, &error) != COLL_OK)
    return;
  colli_topo_place(topo, nranks, cores);
  colli_topo_free(topo);
}

/* Whether a text may describe more than a few thousand objects, which takes long and finds nothing.
 * Each number counts, because levels need no names. */
static int is_huge(const char *text) {
  double objects = 1;
  for (const char *at = text; (at = strpbrk(at, "0123456789")) != NULL;
       at += strspn(at, "0123456789"))
    objects *= atof(at) > 1 ? atof(at) : 1;
  return objects > 4096 || strpbrk(text, "0123456789") == NULL || strlen(text) > 100;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const types[] = {"package", "numa", "l3", "l2", "group", "die", "core"};
  char made[128] = "", *text = fuzz_text(data, bytes);
  int nranks = bytes > 0 ? data[bytes - 1] % 16 + 1 : 1;
  for (size_t i = 0; i < bytes && i < LEVELS; i++) {
    size_t used = strlen(made);
    snprintf(made + used, sizeof(made) - used, "%s:%d ", types[data[i] % 7], data[i] / 7 % 3 + 1);
  }
  strcat(made, "pu:2");
  load(made, nranks);
  if (!is_huge(text))
    load(text, nranks);
  free(text);
  return 0;
}
