/* cluster_read.c: reads a cluster from a file, which may be damaged. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/base/param.h"
#include "libcoll/tools/described/cluster.h"

#define MAGIC       "libcoll cluster 1\n"
#define LINE_BYTES  1024
#define MOST        1e15 /* of a number */
#define LEAST_LINK  1e-9 /* ns a byte */
#define LEAST_SHARE 1e-6

/* What is read, and where. */
typedef struct reader {
  const char *path;
  FILE *in;
  int line_number;
  char line[LINE_BYTES];
  const char *at; /* in the line */
  coll_error *error;
} reader;

/* Says what is wrong with a line; returns the error. */
__attribute__((format(printf, 2, 3))) static coll_status refuse(reader *r, const char *format,
                                                                ...) {
  char what[256];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof(what), format, args);
  va_end(args);
  return colli_error_set(r->error, COLL_ERR_INVALID_ARGUMENT, "topology",
                         "%s, line %d: %s; write the file again with coll_topo --save", r->path,
                         r->line_number, what);
}

/* Reads the next line, without remarks, which must begin with a word. */
static coll_status next_line(reader *r, const char *word) {
  do {
    r->line_number++;
    if (fgets(r->line, sizeof(r->line), r->in) == NULL)
      return refuse(r, "it ends where a line '%s' should be", word);
  } while (r->line[0] == '#');
  char *end = strchr(r->line, '\n');
  if (end == NULL)
    return refuse(r, "it is longer than %d bytes, or the file ends in it", LINE_BYTES - 2);
  *end = '\0';
  for (const char *c = r->line; *c; c++)
    if (iscntrl((unsigned char)*c))
      return refuse(r, "it has characters that cannot be printed");
  const size_t length = strlen(word);
  r->at = r->line + length;
  if (strncmp(r->line, word, length) != 0 || *r->at != ' ')
    return refuse(r, "it should begin with '%s'", word);
  return COLL_OK;
}

/* Takes a number from the line: false if there is none in min .. max. */
static bool take(reader *r, double min, double max, double *number) {
  char *end;
  *number = strtod(r->at, &end);
  const bool is_one = end != r->at && (*end == ' ' || *end == '\0') && isfinite(*number);
  r->at = end;
  return is_one && *number >= min && *number <= max;
}

/* The same for a whole number. */
static bool take_int(reader *r, int min, int max, int *number) {
  double value;
  if (!take(r, min, max, &value) || value != floor(value))
    return false;
  *number = (int)value;
  return true;
}

/* Takes a word that must be next in the line, and a number behind it. */
static bool take_named(reader *r, const char *word, int min, int max, int *number) {
  const size_t length = strlen(word);
  if (strncmp(r->at, word, length) != 0)
    return false;
  r->at += length;
  return take_int(r, min, max, number);
}

/* Reads how many of everything there are. */
static coll_status read_counts(reader *r, cluster *c) {
  coll_status status = next_line(r, "ranks");
  if (status != COLL_OK)
    return status;
  if (!take_int(r, 1, COLLI_MODEL_RANKS, &c->nranks) ||
      !take_named(r, " hosts", 1, c->nranks, &c->nhosts) ||
      !take_named(r, " levels", 0, CLUSTER_LEVELS, &c->nlevels) ||
      !take_named(r, " machines", 1, c->nhosts < CLUSTER_MACHINES ? c->nhosts : CLUSTER_MACHINES,
                  &c->nmachines) ||
      !take_named(r, " links", 0, c->nlevels > 0 ? c->nranks : 0, &c->nlinks))
    return refuse(r, "not the numbers of ranks, hosts, levels, machines and links");
  if (!cluster_allocate(c))
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, "topology", "out of memory for %s",
                           r->path);
  return COLL_OK;
}

/* Whether a number is a share, and none that makes others endless. */
static bool is_share(double number) {
  return number >= LEAST_SHARE && number <= 1;
}

/* Reads what messages cost. */
static coll_status read_model(reader *r, cluster *c) {
  const cluster_model m = cluster_model_of(&c->model);
  coll_status status = next_line(r, "model");
  bool good = status == COLL_OK;
  for (size_t i = 0; good && i < sizeof(m.number) / sizeof(*m.number); i++)
    good = take(r, 0, MOST, m.number[i]);
  for (size_t i = 0; good && i < sizeof(m.flag) / sizeof(*m.flag); i++) {
    int flag = 0;
    good = take_int(r, 0, 1, &flag);
    *m.flag[i] = flag != 0;
  }
  good = good && c->model.alpha_ns > 0 && is_share(c->model.core_share) &&
         is_share(c->model.chunk_share);
  if (status == COLL_OK && !good)
    return refuse(r, "not the numbers of a model");
  return status;
}

/* Reads how messages are cut. */
static coll_status read_slots(reader *r, cluster *c) {
  double count, slot, chunk, slice;
  coll_status status = next_line(r, "slots");
  if (status != COLL_OK)
    return status;
  if (!take(r, 1, (double)colli_param_table[COLLI_PARAM_SLOT_COUNT].max, &count) ||
      !take(r, 64, 1ull << 32, &slot) || !take(r, 1, 1ull << 40, &chunk) ||
      !take(r, 0, 1ull << 32, &slice))
    return refuse(r, "not a number of slots and the bytes of a slot, a chunk and a slice");
  c->limits = (colli_limits){(size_t)slot, (unsigned)count, (size_t)chunk, (size_t)slice};
  return COLL_OK;
}

/* Reads the levels and links. */
static coll_status read_levels(reader *r, cluster *c) {
  coll_status status = COLL_OK;
  for (int i = 0; i < c->nlevels && status == COLL_OK; i++) {
    cluster_level *level = &c->level[i];
    status = next_line(r, "level");
    if (status == COLL_OK && (!take_int(r, 0, COLLI_HOST_LEVELS, &level->names) ||
                              !take(r, 0, MOST, &level->cost.alpha_ns) ||
                              !take(r, 0, MOST, &level->cost.beta_ns_per_byte)))
      status = refuse(r, "not the names and costs of a level");
  }
  for (int i = 0; i < c->nlinks && status == COLL_OK; i++) {
    status = next_line(r, "link");
    if (status == COLL_OK &&
        (!take(r, 0, MOST, &c->link_ns_per_byte[i]) || !(c->link_ns_per_byte[i] >= LEAST_LINK)))
      status = refuse(r, "not the ns a byte of a link");
  }
  return status;
}

/* Reads a host. */
static coll_status read_host(reader *r, const cluster *c, cluster_host *host) {
  coll_status status = next_line(r, "host");
  if (status != COLL_OK)
    return status;
  if (!take_int(r, 0, c->nmachines - 1, &host->machine) || !take(r, 0, MOST, &host->link_mbit) ||
      *r->at++ != ' ')
    return refuse(r, "not a machine and the Mbit/s of a link");
  const size_t name = strcspn(r->at, " ");
  const char *levels = r->at + name + (r->at[name] == ' ');
  if (name == 0 || name >= sizeof(host->name) || *levels == '\0' ||
      strlen(levels) >= sizeof(host->levels))
    return refuse(r, "not the name of a host and its levels, or '-'");
  memcpy(host->name, r->at, name);
  if (strcmp(levels, "-") != 0)
    strcpy(host->levels, levels);
  return COLL_OK;
}

/* Reads a rank. Groups are numbered in the order of their first ranks. */
static coll_status read_rank(reader *r, cluster *c, int rank) {
  coll_status status = next_line(r, "rank");
  if (status != COLL_OK)
    return status;
  if (!take_int(r, 0, c->nhosts - 1, &c->host[rank]) || !take_int(r, -1, 1 << 20, &c->core[rank]))
    return refuse(r, "not a host and a core");
  for (int i = 0; i < c->nlevels; i++) {
    cluster_level *level = &c->level[i];
    int group;
    if (!take_int(r, 0, level->ngroups, &group))
      return refuse(r, "not a group of each level, from 0 on");
    level->group[rank] = group;
    level->ngroups += group == level->ngroups;
  }
  return *r->at == '\0' ? COLL_OK : refuse(r, "more than a host, a core and groups");
}

/* Whether each group of a level is inside one of the next. Uses memory for as many groups. */
static bool is_inside(const cluster *c, int level, int32_t *outer) {
  const cluster_level *in = &c->level[level], *out = &c->level[level + 1];
  for (int i = 0; i < in->ngroups; i++)
    outer[i] = -1;
  for (int rank = 0; rank < c->nranks; rank++) {
    int32_t *of = &outer[in->group[rank]];
    if (*of >= 0 && *of != out->group[rank])
      return false;
    *of = out->group[rank];
  }
  return true;
}

/* Checks that the levels fit each other and the links. */
static coll_status check_levels(reader *r, const cluster *c) {
  int32_t *outer = calloc((size_t)c->nranks, sizeof(*outer));
  coll_status status = outer ? COLL_OK
                             : colli_error_set(r->error, COLL_ERR_NO_MEMORY, "topology",
                                               "out of memory for %s", r->path);
  for (int i = 0; i < c->nlevels && status == COLL_OK; i++)
    if (c->level[i].ngroups < 2)
      status = refuse(r, "a level has one group only");
    else if (i + 1 < c->nlevels && !is_inside(c, i, outer))
      status = refuse(r, "a group is not inside one of the next level");
  free(outer);
  if (status == COLL_OK && c->nlinks > 0 && c->nlinks != c->level[0].ngroups)
    status = refuse(r, "there are %d links and %d groups", c->nlinks, c->level[0].ngroups);
  return status;
}

/* Reads the XML of a machine: nothing else, of which colli_topo_load() would make another one. */
static coll_status read_machine(reader *r, cluster_machine *machine) {
  int bytes;
  coll_status status = next_line(r, "machine");
  if (status != COLL_OK)
    return status;
  if (!take_int(r, 1, CLUSTER_MACHINE_BYTES, &bytes))
    return refuse(r, "not the bytes of a machine, at most %d", CLUSTER_MACHINE_BYTES);
  machine->xml = calloc((size_t)bytes + 1, 1);
  if (machine->xml == NULL)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, "topology", "out of memory for %s",
                           r->path);
  machine->bytes = fread(machine->xml, 1, (size_t)bytes, r->in);
  if (machine->bytes != (size_t)bytes || fgetc(r->in) != '\n')
    return refuse(r, "not %d bytes and the end of a line follow", bytes);
  if (machine->xml[0] != '<' || strlen(machine->xml) != (size_t)bytes)
    return refuse(r, "the machine that follows is not XML");
  for (int i = 0; i < bytes; i++)
    r->line_number += machine->xml[i] == '\n';
  r->line_number++;
  return COLL_OK;
}

/* Reads all behind the first line. */
static coll_status read_all(reader *r, cluster *c) {
  coll_status status = read_counts(r, c);
  if (status == COLL_OK)
    status = read_model(r, c);
  if (status == COLL_OK)
    status = read_slots(r, c);
  if (status == COLL_OK)
    status = read_levels(r, c);
  for (int i = 0; i < c->nhosts && status == COLL_OK; i++)
    status = read_host(r, c, &c->hosts[i]);
  for (int rank = 0; rank < c->nranks && status == COLL_OK; rank++)
    status = read_rank(r, c, rank);
  if (status == COLL_OK)
    status = check_levels(r, c);
  for (int i = 0; i < c->nmachines && status == COLL_OK; i++)
    status = read_machine(r, &c->machines[i]);
  for (int i = 0; i + 1 < c->nlevels; i++)
    c->model.inner[i] = c->level[i].cost;
  return status;
}

/* Opens a file and reads its first line; NULL: it is no cluster, or errno says why it cannot. */
static FILE *open_cluster(const char *path) {
  char line[sizeof(MAGIC)] = "";
  errno = 0;
  FILE *in = fopen(path, "re");
  if (in != NULL && fgets(line, sizeof(line), in) != NULL && strcmp(line, MAGIC) == 0)
    return in;
  if (in != NULL)
    fclose(in);
  return NULL;
}

bool cluster_is_file(const char *path) {
  FILE *in = open_cluster(path);
  if (in != NULL)
    fclose(in);
  return in != NULL;
}

coll_status cluster_read(const char *path, cluster *out, coll_error *error) {
  reader r = {.path = path, .in = open_cluster(path), .line_number = 1, .error = error};
  *out = (cluster){0};
  if (r.in == NULL)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                           "%s is not a cluster that coll_topo --save has written: %s", path,
                           errno ? strerror(errno) : "its first line is another");
  const coll_status status = read_all(&r, out);
  fclose(r.in);
  if (status != COLL_OK)
    cluster_free(out);
  return status;
}
