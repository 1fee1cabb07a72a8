/* main.c: collctl shows what the ranks of running jobs do. */
#include "collctl.h"

int main(int argc, char **argv) {
  ctl_options options;
  ctl_view view;
  int status = ctl_options_read(argc, argv, &options);
  if (status == 0)
    status = ctl_view_make(&view, &options);
  if (status != 0)
    return status < 0 ? 0 : status;
  if (options.format == CTL_JSON)
    ctl_print_json(&view, options.command, stdout);
  else if (options.format == CTL_PROMETHEUS)
    ctl_print_prometheus(&view, stdout);
  else
    ctl_print_text(&view, options.command, stdout);
  ctl_view_free(&view);
  return fflush(stdout) == 0 ? 0 : CTL_FAILED;
}
