/* sites.c: groups hosts into sites. */
#include "libcoll/tuning/sites.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tuning/numbering.h"

/* A line between sites that nobody has measured: 2 ms one way, 1 Gbit/s. */
#define ASSUMED_ALPHA_NS 2e6
#define ASSUMED_BETA     8.0

coll_status colli_site_parse(const char *text, char site[COLLI_SITE_BYTES], coll_error *error) {
  size_t length = strlen(text);
  if (length >= COLLI_SITE_BYTES)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "COLL_SITE=%s: a site's name has at most %d characters", text,
                           COLLI_SITE_BYTES - 1);
  memset(site, 0, COLLI_SITE_BYTES);
  memcpy(site, text, length);
  return COLL_OK;
}

/* Whether ranks with a measured site have been joined by some without. */
static bool are_outdated(const colli_rank_info *table, int nranks) {
  bool measured = false, without = false;
  for (int rank = 0; rank < nranks; rank++) {
    measured |= strncmp(table[rank].site, COLLI_SITE_MEASURED, strlen(COLLI_SITE_MEASURED)) == 0;
    without |= !*table[rank].site;
  }
  return measured && without;
}

/* Sorts by site, and at a site by rank: entries point into the table. */
static int compare_sites(const void *a, const void *b) {
  const colli_rank_info *left = *(const colli_rank_info *const *)a;
  const colli_rank_info *right = *(const colli_rank_info *const *)b;
  int order = strcmp(left->site, right->site);
  return order ? order : left < right ? -1 : left > right;
}

/* Whether two ranks are at one site. */
static bool share_site(const colli_rank_info *a, const colli_rank_info *b) {
  return strcmp(a->site, b->site) == 0;
}

/* Refuses ranks that contradict each other: with and without a site, or one host at two. `first`
 * has room for all hosts. */
static coll_status check_sites(const colli_rank_info *table, int nranks, const colli_locality *out,
                               int32_t *first, coll_error *error) {
  for (int rank = nranks - 1; rank >= 0; rank--)
    first[out->group ? out->group[rank] : 0] = rank;
  for (int rank = 0; rank < nranks; rank++) {
    const int with = *table[0].site ? 0 : rank, without = *table[0].site ? rank : 0;
    if (*table[with].site && !*table[without].site)
      return colli_error_set(error, COLL_ERR_MISMATCH, "create",
                             "rank %d (host %s) is at site %s, but rank %d (host %s) is at none; "
                             "set COLL_SITE on all hosts or on none",
                             with, table[with].host, table[with].site, without,
                             table[without].host);
    int other = first[out->group ? out->group[rank] : 0];
    if (strcmp(table[rank].site, table[other].site) != 0)
      return colli_error_set(error, COLL_ERR_MISMATCH, "create",
                             "ranks %d and %d share host %s, but COLL_SITE says %s and %s", other,
                             rank, table[rank].host, table[other].site, table[rank].site);
  }
  return COLL_OK;
}

/* Takes the costs of the line for those between groups. */
static void set_line(const colli_rank_info *table, int nranks, colli_locality *out) {
  double alpha_ns = 0, beta = 0;
  for (int rank = 0; rank < nranks; rank++) {
    alpha_ns = fmax(alpha_ns, table[rank].line_alpha_ns);
    beta = fmax(beta, table[rank].line_beta_ns_per_byte);
  }
  bool known = alpha_ns > 0 && beta > 0;
  out->model.alpha_ns = fmax(out->model.alpha_ns, known ? alpha_ns : ASSUMED_ALPHA_NS);
  out->model.beta_ns_per_byte = fmax(out->model.beta_ns_per_byte, known ? beta : ASSUMED_BETA);
  out->model.group_beta_ns_per_byte = NULL;
  out->model.sites = true;
  free(out->weights);
  out->weights = NULL;
}

/* Uses sites that do not contradict each other, unless there is only one. */
static void use_sites(const colli_rank_info *table, int nranks, int32_t *site, int count,
                      colli_locality *out) {
  if (count < 2 || count == out->ngroups) { /* each host is a site */
    free(site);
  } else {
    out->model.near_alpha_ns = out->model.alpha_ns; /* what is far for hosts is near for sites */
    out->model.near_beta_ns_per_byte = out->model.beta_ns_per_byte;
    out->host = out->group;
    out->group = site;
    out->ngroups = count;
  }
  if (count > 1)
    set_line(table, nranks, out);
}

coll_status colli_sites_apply(const colli_rank_info *table, int nranks, colli_locality *out,
                              coll_error *error) {
  int rank = 0;
  while (rank < nranks && !*table[rank].site)
    rank++;
  if (rank >= nranks || are_outdated(table, nranks))
    return COLL_OK;
  const colli_rank_info **sorted = malloc((size_t)nranks * sizeof(*sorted));
  int32_t *site = malloc((size_t)nranks * sizeof(*site));
  coll_status status = COLL_ERR_NO_MEMORY;
  if (sorted && site)
    status = check_sites(table, nranks, out, site, error);
  if (status == COLL_OK) {
    for (int i = 0; i < nranks; i++)
      sorted[i] = &table[i];
    qsort(sorted, (size_t)nranks, sizeof(*sorted), compare_sites);
    int count = colli_number_groups(table, nranks, sorted, share_site, site);
    use_sites(table, nranks, site, count, out);
  } else {
    free(site);
    if (status == COLL_ERR_NO_MEMORY)
      colli_error_set(error, status, "create", "out of memory for %d ranks", nranks);
  }
  free(sorted);
  return status;
}
