/* plugin.c: loads the shared libraries that settings name. */
#include "libcoll/base/plugin.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/file.h"
#include "libcoll/base/fork.h"

coll_status colli_plugin_refuse(const colli_plugin_kind *kind, const char *path, coll_error *error,
                                const char *reason, ...) {
  char text[320];
  va_list args;
  va_start(args, reason);
  vsnprintf(text, sizeof(text), reason, args);
  va_end(args);
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create", "%s=%s: %s; %s", kind->setting,
                         path, text, kind->advice);
}

coll_status colli_plugin_load(const colli_plugin_kind *kind, const char *path, bool forever,
                              void **library, void **symbol, coll_error *error) {
  char why[160];
  *symbol = NULL;
  int fd = strchr(path, '/') ? colli_file_open(path, SIZE_MAX, why, sizeof(why)) : -1;
  if (fd >= 0)
    colli_fd_close(fd);
  else if (strchr(path, '/')) /* without a slash, dlopen() looks for the file */
    return colli_plugin_refuse(kind, path, error, "cannot be loaded: %s", why);
  *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | (forever ? RTLD_NODELETE : 0));
  if (!*library)
    return colli_plugin_refuse(kind, path, error, "cannot be loaded: %s", dlerror());
  *symbol = dlsym(*library, kind->symbol);
  if (*symbol)
    return COLL_OK;
  return colli_plugin_refuse(kind, path, error, "exports no %s", kind->symbol);
}
