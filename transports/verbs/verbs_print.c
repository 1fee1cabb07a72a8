/* verbs_print.c: this machine's rails, for people. */
#include "transports/verbs/verbs.h"

#include "transports/verbs/verbs_device.h"

void colli_verbs_print(const coll_transport_env *env, FILE *out) {
  verbs_lib lib = {.handle = NULL};
  verbs_settings settings;
  verbs_rail rails[VERBS_MAX_RAILS];
  verbs_fault fault;
  int count = 0;
  if (verbs_settings_read(env, &settings, &fault) == COLL_OK &&
      verbs_lib_load(&lib, VERBS_LIB_NAME, &fault) == COLL_OK)
    count = verbs_rails_open(&lib, &settings, rails, VERBS_MAX_RAILS, &fault);
  for (int i = 0; i < count; i++) {
    char text[VERBS_RAIL_TEXT];
    fprintf(out, "  %s\n", verbs_rail_text(&rails[i], text));
  }
  if (count == 0)
    fprintf(out, "  none: %s\n", fault.detail);
  verbs_rails_close(&lib, rails, count);
  verbs_lib_close(&lib);
}
