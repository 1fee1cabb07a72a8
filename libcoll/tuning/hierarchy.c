/* hierarchy.c: groups hosts into racks, sites and the like. */
#include "libcoll/tuning/hierarchy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tuning/numbering.h"
#include "libcoll/tuning/units.h"

/* A line between sites whose costs nobody has measured. */
#define LINE_ALPHA_NS 2e6
#define LINE_BETA     8.0

/* A number that is a constant, in a message. */
#define NUMBER_TEXT(constant) TEXT_OF(constant)
#define TEXT_OF(number)       #number

/* Between groups of which nothing is known, a message takes so many times as long as inside. */
#define FARTHER 2

_Static_assert(COLLI_HOST_LEVELS <= COLLI_INNER_LEVELS, "hosts, and all levels but the widest");

/* ---- what a rank knows of itself ------------------------------------------------------------- */

/* Reads what follows a level's name, "@200mbit,20ms", either of which may be left out. */
static bool read_costs(const char **text, int level, colli_rank_info *info) {
  double mbit, round_trip_ns;
  if (**text != '@')
    return true;
  ++*text;
  if (colli_read_speed(text, &mbit)) {
    info->level_beta_ns_per_byte[level] = COLLI_NS_PER_BYTE_AT_1_MBIT / mbit;
    if (**text != ',')
      return true;
    ++*text;
  }
  if (!colli_read_time(text, &round_trip_ns))
    return false;
  info->level_alpha_ns[level] = round_trip_ns / 2;
  return true;
}

/* Reads "paris@200mbit,20ms/rack7" into a record: names into `levels`. NULL, or what is wrong. */
static const char *read_levels(const char *text, colli_rank_info *info) {
  size_t used = 0;
  for (int level = 0;; level++, text++) {
    size_t length = strcspn(text, "@/");
    if (level == COLLI_HOST_LEVELS)
      return "there are at most " NUMBER_TEXT(COLLI_HOST_LEVELS) " levels";
    if (length == 0)
      return "a level has no name";
    if (used + length + 2 > COLLI_LEVELS_BYTES)
      return "the names are too long";
    memcpy(info->levels + used, text, length);
    used += length;
    text += length;
    if (!read_costs(&text, level, info) || (*text && *text != '/'))
      return "behind a name and @ there is a speed, a round trip, or both: @200mbit,20ms";
    if (!*text)
      return NULL;
    info->levels[used++] = '/';
  }
}

/* Forgets all levels. */
static void clear_levels(colli_rank_info *info) {
  memset(info->levels, 0, sizeof(info->levels));
  memset(info->level_alpha_ns, 0, sizeof(info->level_alpha_ns));
  memset(info->level_beta_ns_per_byte, 0, sizeof(info->level_beta_ns_per_byte));
  info->level_source = COLLI_LEVELS_UNKNOWN;
}

/*
 * Takes over the switches above this node, narrowest last: the address "s0.s4.node7" has a pattern
 * "switch.switch.node". The widest ones are left out if there are more than there is room for.
 * Source: srun(1), "OUTPUT ENVIRONMENT VARIABLES".
 */
static void read_slurm(colli_rank_info *info) {
  const char *address = getenv("SLURM_TOPOLOGY_ADDR"),
             *pattern = getenv("SLURM_TOPOLOGY_ADDR_PATTERN");
  int switches = 0;
  for (const char *at = pattern; at && strncmp(at, "switch.", 7) == 0; at += 7)
    switches++;
  size_t used = 0;
  for (; address && switches > 0; switches--) {
    size_t length = strcspn(address, ".");
    if (length == 0 || address[length] != '.' || memchr(address, '/', length)) {
      clear_levels(info);
      return;
    }
    if (switches <= COLLI_HOST_LEVELS) {
      if (used + length + 2 > COLLI_LEVELS_BYTES) {
        clear_levels(info);
        return;
      }
      if (used)
        info->levels[used++] = '/';
      memcpy(info->levels + used, address, length);
      used += length;
    }
    address += length + 1;
  }
  if (used)
    info->level_source = COLLI_LEVELS_SLURM;
}

const char *colli_hierarchy_read(const char *text, colli_rank_info *info) {
  const bool measured = strncmp(text, COLLI_LEVEL_MEASURED, strlen(COLLI_LEVEL_MEASURED)) == 0;
  clear_levels(info);
  if (strcmp(text, "none") == 0) {
    info->level_source = COLLI_LEVELS_NONE;
    return NULL;
  }
  info->level_source = measured ? COLLI_LEVELS_MEASURED : COLLI_LEVELS_DECLARED;
  return read_levels(text, info);
}

coll_status colli_hierarchy_describe(const char *text, colli_rank_info *info, coll_error *error) {
  if (!*text) {
    clear_levels(info);
    read_slurm(info);
    return COLL_OK;
  }
  const char *wrong = colli_hierarchy_read(text, info);
  return wrong ? colli_error_set(error, COLL_ERR_INVALID_USAGE, "create", "COLL_LEVELS=%s: %s",
                                 text, wrong)
               : COLL_OK;
}

/* ---- what all of them say together ----------------------------------------------------------- */

int colli_hierarchy_depth(const colli_rank_info *info) {
  int depth = *info->levels ? 1 : 0;
  for (const char *at = info->levels; *at; at++)
    depth += *at == '/';
  return depth;
}

colli_level_source colli_hierarchy_source(const colli_rank_table *table) {
  uint64_t source = COLLI_LEVELS_UNKNOWN;
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(level_source));
  for (int rank = 0; rank < table->nranks; rank++) {
    const uint64_t own = colli_rank_walk_to(&walk, rank)->level_source;
    source = own > source ? own : source;
  }
  return (colli_level_source)source;
}

/* Finds two ranks that contradict each other: one has other levels than rank 0, or than the first
 * rank of its host. NULL, or a description of the two. */
static const char *find_contradiction(const colli_rank_table *table, int *a, int *b) {
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELDS(levels, level_source));
  const int depth = colli_hierarchy_depth(&walk.first);
  for (*b = 0; *b < table->nranks; ++*b) {
    const colli_rank_info *info = colli_rank_walk_to(&walk, *b);
    *a = 0;
    if (info->level_source != walk.first.level_source)
      return "COLL_LEVELS must be set on all hosts or on none";
    if (colli_hierarchy_depth(info) != depth)
      return "COLL_LEVELS needs as many levels on all hosts";
    *a = colli_rank_host(table, *b);
    if (strcmp(walk.of_host.levels, info->levels) != 0)
      return "COLL_LEVELS must be the same on all ranks of a host";
  }
  return NULL;
}

/* How a rank's levels are called in messages. */
static const char *name_levels(const colli_rank_info *info) {
  return info->level_source == COLLI_LEVELS_NONE       ? "none"
         : info->level_source == COLLI_LEVELS_DECLARED ? info->levels
                                                       : "";
}

/* A rank, and the name of its group. */
typedef struct named {
  char name[COLLI_LEVELS_BYTES];
  int rank;
} named;

/* Sorts by name, and in a group by rank. */
static int compare_named(const void *a, const void *b) {
  const named *left = a, *right = b;
  int order = strcmp(left->name, right->name);
  return order ? order : left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Numbers the groups of a level (0: the widest); returns how many there are. */
static int number_level(const colli_rank_table *table, int level, named *sorted, int32_t *group) {
  const int nranks = table->nranks;
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(levels));
  for (int rank = 0; rank < nranks; rank++) {
    named *it = &sorted[rank];
    it->rank = rank;
    memcpy(it->name, colli_rank_walk_to(&walk, rank)->levels, sizeof(it->name));
    char *end = it->name;
    for (int more = level; *end && (*end != '/' || more-- > 0);)
      end++;
    *end = 0;
  }
  qsort(sorted, (size_t)nranks, sizeof(*sorted), compare_named);
  for (int i = 0, first = 0; i < nranks; i++) {
    if (strcmp(sorted[i].name, sorted[first].name) != 0)
      first = i;
    group[sorted[i].rank] = sorted[first].rank;
  }
  return colli_number_groups(group, nranks);
}

/* What a message costs that leaves a group of a level, as some rank knows; 0: none does. */
static colli_pair_cost known_cost(const colli_rank_table *table, int level) {
  colli_pair_cost cost = {0, 0};
  colli_rank_walk walk =
      colli_rank_walk_over(table, COLLI_RANK_FIELDS(levels, level_beta_ns_per_byte));
  const bool line = level == 0 && strncmp(walk.first.levels, COLLI_LEVEL_MEASURED_SITE,
                                          strlen(COLLI_LEVEL_MEASURED_SITE)) == 0;
  for (int rank = 0; rank < table->nranks; rank++) {
    const colli_rank_info *info = colli_rank_walk_to(&walk, rank);
    cost.alpha_ns = fmax(cost.alpha_ns, info->level_alpha_ns[level]);
    cost.beta_ns_per_byte = fmax(cost.beta_ns_per_byte, info->level_beta_ns_per_byte[level]);
  }
  if (line && cost.alpha_ns <= 0)
    cost.alpha_ns = LINE_ALPHA_NS;
  if (line && cost.beta_ns_per_byte <= 0)
    cost.beta_ns_per_byte = LINE_BETA;
  return cost;
}

/* What a byte takes on the hosts' links: on the fastest, if they differ, as each counts by itself
 * then. */
static double links_beta(const colli_locality *out) {
  double beta = out->model.host_beta_ns_per_byte;
  for (int host = 0; out->weights && host < out->weights->nhosts; host++)
    beta = fmin(beta, out->weights->beta_ns_per_byte[host]);
  return beta;
}

/* Makes the groups of a level the groups of `out`, and those before inner ones. */
static void push_level(int32_t *group, int count, colli_locality *out) {
  colli_model *model = &out->model;
  model->inner[out->ninner] = (colli_pair_cost){model->near_alpha_ns, model->near_beta_ns_per_byte};
  model->near_alpha_ns = model->alpha_ns; /* what is far for the groups before is near now */
  model->near_beta_ns_per_byte = fmax(model->beta_ns_per_byte, links_beta(out));
  out->inner[out->ninner++] = out->group;
  out->group = group;
  out->ngroups = count;
}

/* Forgets how the hosts' links differ. */
static void drop_weights(colli_locality *out) {
  out->model.link_beta_ns_per_byte = NULL;
  free(out->weights);
  out->weights = NULL;
}

/* Sets what a message costs between groups: what is known, or so many times as much as inside. */
static void set_far(colli_pair_cost known, bool merged, colli_locality *out) {
  colli_model *model = &out->model;
  const double times = merged ? 1 : FARTHER;
  model->alpha_ns =
      fmax(model->alpha_ns, known.alpha_ns > 0 ? known.alpha_ns : times * model->alpha_ns);
  const bool hosts = merged && out->ninner == 0; /* are the groups, and their ranks share it */
  if (hosts)
    drop_weights(out);
  const double beta = fmax(model->beta_ns_per_byte, links_beta(out));
  model->beta_ns_per_byte =
      fmax(beta, known.beta_ns_per_byte > 0 ? known.beta_ns_per_byte : times * beta);
  if (hosts)
    model->host_beta_ns_per_byte = model->beta_ns_per_byte;
  model->sites = colli_model_is_far(model->alpha_ns);
}

/* Finds the shares of hosts in their racks. */
static coll_status share_racks(int nranks, colli_locality *out) {
  colli_weights *flat = out->weights, *racked = NULL;
  if (!flat || out->ninner == 0)
    return COLL_OK;
  const int32_t *wider = out->ninner > 1 ? out->inner[1] : out->group;
  int32_t *rack = calloc((size_t)flat->nhosts, sizeof(*rack));
  for (int rank = 0; rack && rank < nranks; rank++)
    rack[out->inner[0][rank]] = wider[rank];
  const bool made = rack && colli_weights_make(flat->beta_ns_per_byte, flat->nhosts, rack, &racked);
  free(rack);
  if (!made)
    return COLL_ERR_NO_MEMORY;
  free(flat);
  out->weights = racked;
  out->model.link_beta_ns_per_byte = out->weights ? out->weights->beta_ns_per_byte : NULL;
  return COLL_OK;
}

/* Adds all levels that have several groups, from the narrowest on. `sorted` has room for all
 * ranks. */
static coll_status add_levels(const colli_rank_table *table, named *sorted, colli_locality *out) {
  const colli_rank_info first = colli_rank_at(table, 0);
  for (int level = colli_hierarchy_depth(&first) - 1; level >= 0; level--) {
    int32_t *group = malloc((size_t)table->nranks * sizeof(*group));
    if (!group)
      return COLL_ERR_NO_MEMORY;
    const int count = number_level(table, level, sorted, group);
    if (count == 1) { /* so have all wider ones */
      free(group);
      break;
    }
    const bool merged = count == out->ngroups; /* each has one group of the level before */
    const colli_pair_cost cost = known_cost(table, level);
    if (merged)
      free(group);
    else
      push_level(group, count, out);
    out->names[out->ninner] = level + 1;
    if (!merged || cost.alpha_ns > 0 || cost.beta_ns_per_byte > 0)
      set_far(cost, merged, out);
  }
  return COLL_OK;
}

/* Says which two ranks contradict each other. */
static coll_status fail_contradiction(const colli_rank_table *table, const char *wrong, int a,
                                      int b, coll_error *error) {
  const colli_rank_info left = colli_rank_at(table, a), right = colli_rank_at(table, b);
  return colli_error_set(error, COLL_ERR_MISMATCH, "create",
                         "%s: rank %d (host %s) has \"%s\", but rank %d (host %s) has \"%s\"",
                         wrong, a, left.host, name_levels(&left), b, right.host,
                         name_levels(&right));
}

coll_status colli_hierarchy_apply(const colli_rank_table *table, colli_locality *out,
                                  coll_error *error) {
  const colli_level_source source = colli_hierarchy_source(table);
  if (source == COLLI_LEVELS_UNKNOWN)
    return COLL_OK;
  int a, b;
  const char *wrong = find_contradiction(table, &a, &b);
  if (wrong && source == COLLI_LEVELS_DECLARED)
    return fail_contradiction(table, wrong, a, b, error);
  if (wrong) /* nobody has declared anything: do without */
    return COLL_OK;
  named *sorted = malloc((size_t)table->nranks * sizeof(*sorted));
  coll_status status = sorted ? add_levels(table, sorted, out) : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK)
    status = share_racks(table->nranks, out);
  free(sorted);
  if (status != COLL_OK)
    colli_error_set(error, status, "create", "out of memory for %d ranks", table->nranks);
  return status;
}
