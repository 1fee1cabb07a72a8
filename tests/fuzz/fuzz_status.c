/* fuzz_status.c: status pages of up to three processes, as collctl reads them, puts them together
 * and prints them. */
#include "fuzz.h"
#include "libcoll/tools/collctl/collctl.h"

#define MOST_RANKS 64 /* larger pages would only be slower */

/* Takes one copy from the input. False: it is refused, as it should be. */
static bool take_copy(const uint8_t **data, size_t *bytes, ctl_view *view) {
  colli_status_head head;
  if (*bytes < sizeof(head))
    return false;
  memcpy(&head, *data, sizeof(head));
  if (head.nranks < 1 || head.nranks > MOST_RANKS || head.ncomms > 2)
    return false;
  size_t whole = colli_status_bytes(&head), given = whole < *bytes ? whole : *bytes;
  colli_status_head *copy = calloc(1, whole); /* what is missing is zero */
  if (!copy)
    abort();
  fuzz_take(data, bytes, copy, given);
  if (colli_status_check(copy, whole)) {
    free(copy);
    return false;
  }
  view->copies[view->ncopies++] = copy;
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  ctl_view view = {.copies = calloc(3, sizeof(colli_status_head *))};
  if (!view.copies)
    abort();
  while (view.ncopies < 3 && take_copy(&data, &bytes, &view))
    ;
  FILE *nowhere = fopen("/dev/null", "w");
  if (!nowhere)
    abort();
  ctl_view_put_together(&view, NULL);
  ctl_print_text(&view, CTL_LIST, nowhere);
  ctl_print_text(&view, CTL_DUMP, nowhere);
  ctl_print_json(&view, CTL_DUMP, nowhere);
  ctl_print_prometheus(&view, nowhere);
  fclose(nowhere);
  ctl_view_free(&view);
  return 0;
}
