/* speeds.c: --link-speeds: hosts whose links are not equally fast. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tools/described/described.h"
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
    described_refuse("--link-speeds takes speeds as 100mbit or 2.5gbit, with commas, not '%s'",
                     *text);
  if ((*text)[length])
    *text += length + 1;
  return mbit;
}

void described_set_speeds(const described_network *net, answer *a) {
  const char *text = net->link_speeds;
  int given = 1;
  for (const char *at = text; *at; at++)
    given += *at == ',';
  if (given > net->hosts)
    described_refuse("--link-speeds has more speeds than there are hosts");
  double *mbit = malloc((size_t)net->hosts * sizeof(*mbit));
  for (int host = 0; mbit && host < net->hosts; host++)
    mbit[host] = next_speed(&text);
  if (!mbit || !colli_link_speed_set(mbit, net->hosts, &a->model, &a->weights))
    described_refuse("out of memory");
  free(mbit);
  a->shape.share = a->weights ? a->weights->share : NULL;
}
