/* bindings.c: to which processors ranks on this host are bound. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/tools/collrun/run.h"
#include "libcoll/tuning/cpu_list.h"

#define LIST 4096 /* bytes of a list of processors */

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

/* Says to which processors a rank is bound. */
static void print_binding(const run_job *job, int r) {
  const colli_cpus *cpus = job->ranks[r].cpus;
  char list[LIST];
  if (cpus == NULL) {
    fprintf(stderr, "collrun: rank %d is not bound\n", r);
    return;
  }
  colli_cpu_list_write(&cpus->set, sizeof(*cpus), list, sizeof(list));
  fprintf(stderr, "collrun: rank %d is bound to %s\n", r, list);
}

void run_bindings_apply(const run_job *job, int r) {
  const colli_cpus *cpus = job->ranks[r].cpus;
  colli_cpus mine;
  char list[LIST];
  unsetenv("COLL_CPUS");
  if (cpus == NULL)
    return;
  if (job->options.bind == RUN_BIND_DEFAULT && sched_getaffinity(0, sizeof(mine), &mine.set) == 0) {
    /* Ranks read no more than this. */
    colli_cpu_list_write(&mine.set, sizeof(cpu_set_t), list, sizeof(list));
    setenv("COLL_CPUS", list, 1);
  }
  if (sched_setaffinity(0, sizeof(*cpus), &cpus->set) != 0)
    fprintf(stderr, "collrun: rank %d is not bound: sched_setaffinity: %s\n", r, strerror(errno));
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
