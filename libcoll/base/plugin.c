/* plugin.c: loads the shared libraries that settings name. */
#include "libcoll/base/plugin.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/auxv.h>

#include "libcoll/base/error.h"

bool colli_plugin_allowed(const char *setting, const colli_log *log) {
  if (!getauxval(AT_SECURE))
    return true;
  colli_log_write(log, COLLI_LOG_WARN,
                  "%s is ignored: this program runs with more rights than its caller (set-uid, "
                  "set-gid or capabilities)",
                  setting);
  return false;
}

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
  *symbol = NULL;
  *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | (forever ? RTLD_NODELETE : 0));
  if (!*library)
    return colli_plugin_refuse(kind, path, error, "cannot be loaded: %s", dlerror());
  *symbol = dlsym(*library, kind->symbol);
  if (*symbol)
    return COLL_OK;
  return colli_plugin_refuse(kind, path, error, "exports no %s", kind->symbol);
}
