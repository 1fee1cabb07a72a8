/* bindings.c: to which processors ranks on this host are bound. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/tools/collrun/run.h"

/* Finds the processors of each rank's core, or of its NUMA node. */
static void find_cpus(run_job *job, const colli_topo *topo, const int *cores) {
  coll_error error = COLL_ERROR_INIT;
  for (int r = 0; r < job->nranks && cores[r] >= 0; r++) {
    run_rank *rank = &job->ranks[r];
    rank->cpus = malloc(sizeof(*rank->cpus));
    if (rank->cpus == NULL || colli_topo_cpus(topo, cores[r], job->options.bind == RUN_BIND_NUMA,
                                              rank->cpus, &error) == COLL_OK)
      continue;
    fprintf(stderr, "collrun: rank %d is not bound: %s\n", r, error.message);
    free(rank->cpus);
    rank->cpus = NULL;
  }
}

/* Says to which processors a rank is bound: "0-3,8". */
static void print_binding(const run_job *job, int r) {
  const colli_cpus *cpus = job->ranks[r].cpus;
  const char *comma = " ";
  if (cpus == NULL) {
    fprintf(stderr, "collrun: rank %d is not bound\n", r);
    return;
  }
  fprintf(stderr, "collrun: rank %d is bound to", r);
  for (int first = 0, end; first < COLLI_CPUS_MOST; first = end + 1) {
    for (end = first; end < COLLI_CPUS_MOST && CPU_ISSET_S(end, sizeof(*cpus), &cpus->set);)
      end++;
    if (end - first > 1)
      fprintf(stderr, "%s%d-%d", comma, first, end - 1);
    else if (end > first)
      fprintf(stderr, "%s%d", comma, first);
    if (end > first)
      comma = ",";
  }
  fputc('\n', stderr);
}

void run_bindings_choose(run_job *job) {
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo = NULL;
  if (job->options.hosts != NULL)
    return;
  int *cores = calloc((size_t)job->nranks, sizeof(*cores));
  if (cores != NULL && job->options.bind != RUN_BIND_NONE) {
    if (colli_topo_load("", &topo, &error) == COLL_OK) {
      colli_topo_place(topo, job->nranks, cores);
      find_cpus(job, topo, cores);
      colli_topo_free(topo);
    } else {
      fprintf(stderr, "collrun: ranks are not bound to cores: %s\n", error.message);
    }
  }
  free(cores);
  for (int r = 0; job->options.verbose && r < job->nranks; r++)
    print_binding(job, r);
}
