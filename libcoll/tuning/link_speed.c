/* link_speed.c: reads speeds of links, and tells the cost model where they differ. */
#include "libcoll/tuning/link_speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tuning/units.h"

coll_status colli_link_speed_parse(const char *text, double *mbit, uint64_t *source,
                                   coll_error *error) {
  *mbit = 0;
  *source = COLLI_SPEED_UNKNOWN;
  if (!*text)
    return COLL_OK;
  if (strcmp(text, "measure") == 0) {
    *source = COLLI_SPEED_WANTED;
    return COLL_OK;
  }
  const char *at = text;
  if (colli_read_speed(&at, mbit) && !*at) {
    *source = COLLI_SPEED_DECLARED;
    return COLL_OK;
  }
  return colli_error_set(
      error, COLL_ERR_INVALID_USAGE, "create",
      "COLL_LINK_SPEED=%s: it takes the speed of this host's link, as 100mbit or "
      "2.5gbit, or measure",
      text);
}

coll_status colli_link_speed_describe(const char *text, double cards_mbit, colli_rank_info *info,
                                      coll_error *error) {
  const coll_status status =
      colli_link_speed_parse(text, &info->link_mbit, &info->link_source, error);
  if (status == COLL_OK && info->link_source == COLLI_SPEED_UNKNOWN && cards_mbit > 0) {
    info->link_mbit = cards_mbit;
    info->link_source = COLLI_SPEED_CARDS;
  }
  return status;
}

/* The speed of each group, and who says so, at least `least`; false if one is not known. */
static bool find_speeds(const colli_rank_table *table, const colli_locality *where, uint64_t least,
                        double *mbit, uint64_t *trust) {
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELDS(link_mbit, link_source));
  for (int rank = 0; rank < table->nranks; rank++) {
    const colli_rank_info *info = colli_rank_walk_to(&walk, rank);
    int group = where->group[rank];
    if (info->link_mbit <= 0 || info->link_source < trust[group] || info->link_source < least)
      continue;
    bool better = info->link_source > trust[group];
    mbit[group] = better ? info->link_mbit : fmax(mbit[group], info->link_mbit);
    trust[group] = info->link_source;
  }
  for (int group = 0; group < where->ngroups; group++)
    if (trust[group] == COLLI_SPEED_UNKNOWN)
      return false;
  return true;
}

bool colli_link_speed_set(double *mbit, int nhosts, colli_model *model, colli_weights **weights) {
  double slowest = 0, *beta = mbit;
  for (int host = 0; host < nhosts; host++) {
    const double link = COLLI_NS_PER_BYTE_AT_1_MBIT / mbit[host];
    slowest = fmax(slowest, link);
    beta[host] = fmax(model->beta_ns_per_byte, link); /* faster ones are alike for one rank */
  }
  model->host_beta_ns_per_byte = slowest;
  if (!weights)
    return true;
  if (!colli_weights_make(beta, nhosts, NULL, weights))
    return false;
  model->link_beta_ns_per_byte = *weights ? (*weights)->beta_ns_per_byte : NULL;
  return true;
}

bool colli_link_speed_apply(const colli_rank_table *table, bool cards, colli_locality *out) {
  if (out->ngroups <= 1 || out->model.device)
    return true;
  const size_t n = (size_t)out->ngroups;
  const uint64_t least = cards ? COLLI_SPEED_CARDS : COLLI_SPEED_MEASURED;
  double *mbit = calloc(n, sizeof(*mbit));
  uint64_t *trust = calloc(n, sizeof(*trust));
  bool made = mbit && trust;
  if (made && find_speeds(table, out, least, mbit, trust)) {
    bool sure = true; /* else hosts count as alike: some cards may lead to no peer */
    for (size_t group = 0; group < n; group++)
      sure = sure && trust[group] > COLLI_SPEED_CARDS;
    made = colli_link_speed_set(mbit, out->ngroups, &out->model, sure ? &out->weights : NULL);
  }
  free(mbit);
  free(trust);
  return made;
}
