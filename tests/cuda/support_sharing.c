/* support_sharing.c: memory that the program has allocated in some way, and that ranks register. */
#include "support_sharing.h"

#include <stdio.h>

#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "support_virtual.h"
#include "tests/proc/support_ranks.h"

colli_cuda sharing_real;
int sharing_calls_left;

colli_cu_stream sharing_stream(void) {
  static _Thread_local colli_cu_stream stream;
  return stream ? stream : (stream = device_stream());
}

int sharing_add_up(coll_comm *comm, int rank, int nranks, const coll_registration *it, char *at) {
  colli_cu_stream stream = sharing_stream();
  virtual_fill(at, SHARING_COUNT, rank + 1);
  device_gate *gate = device_stop(stream);
  RANK_OK(coll_allreduce_on_stream(at, at, SHARING_COUNT, COLL_INT32, COLL_SUM, comm, stream));
  RANK_CHECK(it->eager > 0);
  device_open(gate);
  device_await(stream);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(virtual_has(at, SHARING_COUNT, nranks * (nranks + 1) / 2));
  return 0;
}

int sharing_refused(coll_comm *comm, int rank, int nranks, char *at, size_t bytes,
                    sharing_break *breaks, int which, int most) {
  colli_cuda *cuda = &comm->gpu->cuda;
  coll_registration *it;
  char words[96];
  sharing_real = *cuda;
  for (int good = 0; good < most; good++) {
    const int broken = (which + good) % nranks;
    colli_cuda other = sharing_real;
    snprintf(words, sizeof(words), "no memory is registered, says rank %d: %s", broken,
             breaks(rank == broken ? cuda : &other, which));
    sharing_calls_left = good;
    const int fds = count_fds();
    const uint64_t held = device_held();
    RANK_CHECK(
        device_refused(comm, coll_comm_register(comm, at, bytes, &it), COLL_ERR_SYSTEM, words));
    RANK_CHECK(!it && !comm->direct->registered);
    RANK_CHECK(count_fds() == fds && device_held() == held);
    *cuda = sharing_real;
  }
  return 0;
}
