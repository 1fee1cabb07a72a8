/* ranks.c: starts ranks as processes, as collrun does, and connects them. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calibrate.h"
#include "libcoll/cost/links.h"
#include "topology/topology.h"

#define TIMEOUT_MS 20000

void *calibrate_share(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED)
    return memory;
  perror("coll_calibrate: out of memory");
  return NULL;
}

void *calibrate_buffer(size_t bytes) {
  void *buffer = malloc(bytes);
  if (buffer)
    memset(buffer, 0x3f, bytes); /* unwritten pages would all be one zero page, in the cache */
  return buffer;
}

coll_comm *calibrate_meet(calibrate_meeting *meeting, int index, const calibrate_world *world,
                          int rank, coll_config config) {
  coll_id *id = &meeting->id[index];
  config.transport = colli_link_name(world->link);
  config.timeout_ms = config.create_timeout_ms = TIMEOUT_MS;
  if (rank == 0) {
    bool made = coll_unique_id(id, &config) == COLL_OK;
    atomic_store(&meeting->made, made ? index + 1 : -1);
  }
  int made;
  while ((made = atomic_load(&meeting->made)) >= 0 && made <= index)
    usleep(100);
  coll_comm *comm = NULL;
  if (made < 0 || coll_comm_create(&comm, id, world->nranks, rank, &config) != COLL_OK)
    return NULL; /* libcoll has printed why */
  return comm;
}

/* Binds a rank as collrun does, or restricts a crowded world to its cores if there are more. */
static void take_cores(const calibrate_world *world, int rank) {
  int place[CALIBRATE_RANKS];
  coll_error error = COLL_ERROR_INIT;
  colli_topo *topo = NULL;
  cpu_set_t all, some;
  CPU_ZERO(&some);
  if (sched_getaffinity(0, sizeof(all), &all) != 0)
    return;
  if (world->cores >= CPU_COUNT(&all)) {
    if (colli_topo_load("", &topo, &error) != COLL_OK)
      return;
    colli_topo_place(topo, world->nranks, place);
    if (place[rank] >= 0)
      (void)colli_topo_bind(topo, place[rank], &error);
    colli_topo_free(topo);
    return;
  }
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) < world->cores; cpu++)
    if (CPU_ISSET(cpu, &all))
      CPU_SET(cpu, &some);
  sched_setaffinity(0, sizeof(some), &some);
}

/* Settings that would change the measurements. */
static void forget_settings(const char *calibration) {
  static const char *const names[] = {"COLL_ALGO",       "COLL_TUNER",      "COLL_DETERMINISTIC",
                                      "COLL_ACCUMULATE", "COLL_SLOT_BYTES", "COLL_SLOT_COUNT",
                                      "COLL_FAULT",      "COLL_HOST_ID",    "COLL_PROGRESS",
                                      "COLL_DATA_CHECK", "COLL_TLS"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    unsetenv(names[i]);
  setenv("COLL_CALIBRATION", calibration, 1);
}

bool calibrate_run(const calibrate_world *world, const char *calibration,
                   calibrate_meeting *meeting, calibrate_life *life, void *ctx) {
  pid_t pids[CALIBRATE_RANKS] = {0};
  bool fine = true;
  forget_settings(calibration);
  fflush(NULL);
  for (int rank = 0; fine && rank < world->nranks; rank++) {
    pids[rank] = fork();
    if (pids[rank] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      take_cores(world, rank);
      exit(life(world, rank, ctx));
    }
    fine = pids[rank] > 0;
  }
  if (!fine)
    perror("coll_calibrate: cannot start ranks");
  for (int rank = 0; rank < world->nranks && pids[rank] > 0; rank++) {
    int status = 0;
    while (waitpid(pids[rank], &status, 0) < 0 && errno == EINTR)
      continue;
    if (status != 0)
      atomic_store(&meeting->made, -1); /* ends the others' wait for the next id */
    fine = fine && status == 0;
  }
  return fine;
}
