/* speeds.c: hosts whose links are not equally fast, for coll_explain --link-speeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "libcoll/base/error.h"
#include "libcoll/tuning/link_speed.h"

/* Reads the speed at *text, and moves *text to the next one, or stays at the last. */
static double next_speed(const char **text) {
  char word[32];
  size_t length = strcspn(*text, ",");
  double mbit = 0;
  uint64_t source = COLLI_SPEED_UNKNOWN;
  coll_error error = COLL_ERROR_INIT;
  snprintf(word, sizeof(word), "%.*s", length < sizeof(word) ? (int)length : 0, *text);
  if (colli_link_speed_parse(word, &mbit, &source, &error) != COLL_OK || mbit <= 0)
    explain_refuse("--link-speeds takes speeds as 100mbit or 2.5gbit, with commas, not '%s'",
                   *text);
  if ((*text)[length])
    *text += length + 1;
  return mbit;
}

void explain_set_speeds(const question *q, answer *a) {
  const char *text = q->link_speeds;
  int given = 1;
  for (const char *at = text; *at; at++)
    given += *at == ',';
  if (given > q->hosts)
    explain_refuse("--link-speeds has more speeds than there are hosts");
  double *mbit = malloc((size_t)q->hosts * sizeof(*mbit));
  for (int host = 0; mbit && host < q->hosts; host++)
    mbit[host] = next_speed(&text);
  if (!mbit || !colli_link_speed_set(mbit, q->hosts, &a->model, &a->weights))
    explain_refuse("out of memory");
  free(mbit);
  a->shape.share = a->weights ? a->weights->share : NULL;
}

void explain_print_shares(const answer *a) {
  if (!a->shape.share)
    return;
  printf("shares of hosts in weighted algorithms:");
  for (int host = 0; host < a->shape.ngroups; host++)
    printf(" %d", a->shape.share[host]);
  printf("\n");
}
