/* hwloc_absent.c: instead of hwloc.c in a build without hwloc. This machine is read from /sys, and
 * others cannot be read. */
#include "libcoll/base/error.h"
#include "topology/read.h"

const char *colli_topo_file(const char *source) {
  (void)source;
  return NULL;
}

static coll_status lacks_hwloc(const char *what, coll_error *error) {
  return colli_error_set(error, COLL_ERR_UNSUPPORTED, "topology",
                         "this libcoll was built without hwloc, which %s needs; install hwloc "
                         "(Debian: libhwloc-dev) and build it again",
                         what);
}

coll_status colli_topo_read(const char *source, colli_topo **topo, coll_error *error) {
  *topo = NULL;
  return source[0] == '\0' ? colli_topo_read_sysfs("/sys", topo, error)
                           : lacks_hwloc("the description of another machine", error);
}

coll_status colli_topo_describe(const char *source, FILE *out, coll_error *error) {
  (void)source;
  (void)out;
  return lacks_hwloc("a machine file", error);
}

coll_status colli_topo_try(const char *source, FILE *out, coll_error *error) {
  colli_topo *topo;
  (void)out;
  coll_status status = colli_topo_read(source, &topo, error);
  colli_topo_free(topo);
  return status;
}
