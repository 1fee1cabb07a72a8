/* test_plugin.c: the conformance suite on a transport that is a plug-in, loaded as libcoll does. */
#include <dlfcn.h>

#include "tests/conformance/support_conformance.h"

static conf_transport file; /* its table is known once the library is loaded */

__attribute__((constructor)) static void load_plugin(void) {
  void *library = dlopen(COLL_PLUGINS "/transport_file.so", RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "coll_transport_plugin") : NULL;
  if (symbol)
    file.ops = ((const coll_transport_ops *(*)(void))symbol)();
}

CONFORMANCE(plugin, &file)
