/*
 * fuzz_machine.c: descriptions of machines: the input as a text, a well-formed one made from it, an
 * XML file, and what a child that read one says (topology/pack.c). hwloc itself crashes on damaged
 * XML, so a child tries it first; what it survives, our own code reads here.
 */
#include "fuzz.h"
#include "topology/read.h"

#define LEVELS 6

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* Uses a machine, as coll_topo does, and frees it. */
static void use(colli_topo *topo, int nranks) {
  int cores[16];
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  if (!out)
    abort();
  colli_topo_place(topo, nranks, cores);
  colli_topo_print(topo, out);
  fclose(out);
  free(text);
  colli_topo_free(topo);
}

/* A machine as bytes. */
static char *pack(const colli_topo *topo, size_t *bytes) {
  char *packed = NULL;
  FILE *out = open_memstream(&packed, bytes);
  if (!out)
    abort();
  colli_topo_pack(topo, out);
  fclose(out);
  return packed;
}

/* Loads a description and places ranks. */
static void load(const char *text, int nranks) {
  colli_topo *topo;
  coll_error error = COLL_ERROR_INIT;
  if (*text && !strstr(text, ".xml") && colli_topo_read(text, &topo, &error) == COLL_OK)
    use(topo, nranks);
}

/* hwloc's crash in a child is no finding. */
static coll_status try_quietly(const char *source, FILE *out, coll_error *error) {
  if (__sanitizer_set_death_callback)
    __sanitizer_set_death_callback(NULL);
  return colli_topo_try(source, out, error);
}

/* Loads a file. What hwloc read must be a machine that the parent of a child accepts. */
static void load_file(const uint8_t *data, size_t bytes, int nranks) {
  const char *path = fuzz_file("machine.xml", data, bytes);
  coll_error error = COLL_ERROR_INIT;
  char *packed;
  size_t size;
  colli_topo *topo;
  if (colli_topo_apart(try_quietly, path, 2000, &packed, &size, &error) != COLL_OK)
    return;
  free(packed);
  if (colli_topo_read(path, &topo, &error) != COLL_OK)
    return;
  packed = pack(topo, &size);
  colli_topo *copy = colli_topo_unpack(packed, size);
  free(packed);
  colli_topo_free(topo);
  if (copy)
    use(copy, nranks);
}

/* Reads what a child whose memory is damaged may say: pairs of the input are places and values. */
static void unpack(const char *text, const uint8_t *data, size_t bytes, int nranks) {
  colli_topo *topo;
  coll_error error = COLL_ERROR_INIT;
  size_t size;
  if (colli_topo_read(text, &topo, &error) != COLL_OK)
    return;
  char *packed = pack(topo, &size);
  colli_topo_free(topo);
  for (size_t i = 0; i + 2 < bytes; i += 3)
    packed[(data[i] * 256u + data[i + 1]) % size] = (char)data[i + 2];
  topo = colli_topo_unpack(packed, size);
  if (topo)
    use(topo, nranks);
  topo = colli_topo_unpack(packed, size - 1 - (bytes > 0 ? data[0] : 0) % size);
  if (topo)
    abort();
  free(packed);
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
  unpack(made, data, bytes, nranks);
  if (*text == '<')
    load_file(data, bytes, nranks);
  else if (!is_huge(text))
    load(text, nranks);
  free(text);
  return 0;
}
