/* hosts.c: coll_calibrate --hosts: a rank of a run measures the links between hosts with the
 * others, as a communicator's creation does, but with more time, and then pairs of hosts alone. */
#include "hosts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/measure/speed.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/units.h"

#define BUDGET_NS 10000000000ull /* for levels and speeds */
#define PAIR_NS   200000000ull

/* Settings that would say what is to be measured. */
static void forget_settings(void) {
  static const char *const names[] = {"COLL_LEVELS", "COLL_LINK_SPEED", "SLURM_TOPOLOGY_ADDR"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    unsetenv(names[i]);
}

/* Prints why something failed. */
static int failed(const coll_comm *comm, coll_status status, const coll_error *why) {
  coll_error error = COLL_ERROR_INIT;
  (void)coll_last_error(comm, &error);
  fprintf(stderr, "coll_calibrate: %s\n",
          why && *why->message ? why->message
          : *error.message     ? error.message
                               : coll_status_name(status));
  return 1;
}

/* Lists the first ranks of all hosts. False: out of memory. */
static bool list_hosts(const coll_comm *comm, int nranks, hosts_found *found) {
  found->delegates.own = -1;
  found->delegates.rank = calloc((size_t)nranks, sizeof(*found->delegates.rank));
  if (!found->delegates.rank)
    return false;
  for (int rank = 0; rank < nranks; rank++)
    if (colli_comm_host(comm, rank) == rank)
      found->delegates.rank[found->delegates.count++] = rank;
  found->info = calloc((size_t)found->delegates.count, sizeof(*found->info));
  found->levels.measured = calloc((size_t)nranks, sizeof(*found->levels.measured));
  return found->info && found->levels.measured;
}

/* Takes over what the ranks know now. */
static void read_records(const coll_comm *comm, hosts_found *found) {
  for (int host = 0; host < found->delegates.count; host++)
    found->info[host] = colli_comm_info(comm, found->delegates.rank[host]);
  found->depth = colli_hierarchy_depth(&found->info[0]);
}

/* Measures a pair, of which this rank is one. */
static coll_status measure_pair(coll_comm *comm, colli_delegates both, hosts_pair *pair) {
  double alpha_ns = 0, rate = 0;
  const coll_status status =
      colli_measure_line(comm, &both, colli_now_ns() + PAIR_NS, &alpha_ns, &rate);
  const double network_ns =
      status == COLL_OK ? colli_comm_round_trip(comm, both.rank[1 - both.own]) : 0;
  pair->ns = network_ns > 0 ? fmin(network_ns, 2 * alpha_ns) : 2 * alpha_ns;
  pair->mbit = rate * COLLI_NS_PER_BYTE_AT_1_MBIT;
  return status;
}

/* Measures all pairs, one after the other, and lets all ranks know. */
static coll_status measure_pairs(coll_comm *comm, int rank, hosts_found *found) {
  const size_t n = (size_t)found->npairs;
  double *numbers = calloc(2 * n, sizeof(*numbers));
  coll_status status = numbers ? COLL_OK : COLL_ERR_NO_MEMORY;
  for (size_t i = 0; i < n && status == COLL_OK; i++) {
    hosts_pair *pair = &found->pair[i];
    int ranks[2] = {found->delegates.rank[pair->a], found->delegates.rank[pair->b]};
    status = coll_barrier(comm);
    if (status != COLL_OK || (rank != ranks[0] && rank != ranks[1]))
      continue;
    status = measure_pair(comm, (colli_delegates){ranks, 2, rank == ranks[1]}, pair);
    if (rank == ranks[0]) {
      numbers[2 * i] = pair->ns;
      numbers[2 * i + 1] = pair->mbit;
    }
  }
  if (status == COLL_OK)
    status = coll_allreduce(numbers, numbers, 2 * n, COLL_FLOAT64, COLL_MAX, comm);
  for (size_t i = 0; i < n && status == COLL_OK; i++) {
    found->pair[i].ns = numbers[2 * i];
    found->pair[i].mbit = numbers[2 * i + 1];
  }
  free(numbers);
  return status;
}

/* Says how long pairs take. */
static void announce_pairs(const hosts_found *found) {
  printf("measuring %d pairs of them, one after the other, for at most about %.0f s ...\n",
         found->npairs, ceil(found->npairs * (PAIR_NS * 1e-9)));
  fflush(stdout);
}

/* Measures and prints; returns the exit status. */
static int run(coll_comm *comm, int rank, int nranks, const char *output, hosts_found *found) {
  coll_error error = COLL_ERROR_INIT;
  if (!list_hosts(comm, nranks, found))
    return failed(NULL, COLL_ERR_NO_MEMORY, NULL);
  if (found->delegates.count == 1) {
    if (rank == 0)
      fputs(
          "coll_calibrate: --hosts needs ranks on several hosts, as under collrun --hosts a:1,b:1 "
          "coll_calibrate --hosts\n",
          stderr);
    return 1;
  }
  if (rank == 0)
    printf("measuring the links between %d hosts ...\n", found->delegates.count);
  fflush(stdout);
  coll_status status = colli_measure_links(comm, BUDGET_NS, &found->levels, &error);
  if (status != COLL_OK)
    return failed(comm, status, &error);
  read_records(comm, found);
  status = hosts_list_pairs(found) ? COLL_OK : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK && rank == 0)
    announce_pairs(found);
  if (status == COLL_OK)
    status = measure_pairs(comm, rank, found);
  if (status != COLL_OK)
    return failed(comm, status, NULL);
  if (rank > 0)
    return 0;
  if (!hosts_print(found, stdout))
    return failed(NULL, COLL_ERR_NO_MEMORY, NULL);
  return output && strcmp(output, "-") != 0 ? !hosts_write(found, output) : 0;
}

int calibrate_hosts(const char *output) {
  coll_comm *comm;
  hosts_found found = {0};
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  int rank = 0, nranks = 1;
  config.error = &error;
  config.progress = COLL_PROGRESS_OFF; /* nobody else may be inside: colli_comm_round_trip() */
  forget_settings();
  const coll_status status = coll_init_from_env(&comm, &config);
  if (status != COLL_OK)
    return failed(NULL, status, &error);
  (void)coll_comm_rank(comm, &rank);
  (void)coll_comm_nranks(comm, &nranks);
  const int exit_status = run(comm, rank, nranks, output, &found);
  (void)coll_comm_destroy(&comm);
  free(found.delegates.rank);
  free(found.info);
  free(found.levels.measured);
  free(found.pair);
  return exit_status;
}
