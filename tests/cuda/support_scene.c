/* support_scene.c: what ranks that are processes do on a direct communicator. */
#include "support_scene.h"

#include <unistd.h>

#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

scene *scene_make(scene_fn *run) {
  scene *s = shared_memory(sizeof(*s));
  *s = (scene){.run = run, .timeout_ms = slow_ms(20000)};
  return s;
}

int scene_play(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_comm *mine = NULL;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = s->timeout_ms;
  alarm(SCENE_LIMIT_S);
  RANK_OK(device_create(comm, &s->id, &config, &mine));
  RANK_CHECK(mine->direct);
  uint64_t before = 0;
  int fds = 0;
  for (int turn = 0; turn < 2 && mine->failure.status == COLL_OK; turn++) {
    before = device_held(); /* the second time: with what the library keeps for later calls */
    fds = count_fds();
    RANK_CHECK(s->run(mine, rank, nranks) == 0);
    if (mine->failure.status == COLL_OK)
      RANK_OK(coll_barrier(mine));
  }
  RANK_CHECK(mine->failure.status != COLL_OK || device_held() == before);
  /* A real driver has files of its own, for memory that the test does not give back, too. */
  RANK_CHECK(mine->failure.status != COLL_OK || device_is_real() || count_fds() == fds);
  RANK_OK(coll_comm_destroy(&mine));
  return 0;
}
