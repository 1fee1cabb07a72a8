/*
 * test_left_out.c: a rank is frozen in a shrink, the others leave it out, use what they have made,
 * and end. When it wakes up, nobody is there any more who could tell it, and their ports are closed
 * as those of dead ranks are: only their goodbyes say that they may have continued.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/wireup/bootstrap/dial.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 3, FROZEN = 0 }; /* who leads, and looks for the others */

/* In memory that ranks share. */
typedef struct scene {
  atomic_int frozen; /* its process, once it is about to stop */
  atomic_int ended;  /* the others that have destroyed their communicators */
} scene;

static scene *shared;
static bool stops_there; /* this process, when it dials next */

void __real_boot_dial_begin(const boot *b, boot_dial *dial, colli_hello_kind kind, int peer,
                            const colli_addr addrs[COLLI_MAX_ADDRS]);
void __wrap_boot_dial_begin(const boot *b, boot_dial *dial, colli_hello_kind kind, int peer,
                            const colli_addr addrs[COLLI_MAX_ADDRS]);
void __wrap_boot_dial_begin(const boot *b, boot_dial *dial, colli_hello_kind kind, int peer,
                            const colli_addr addrs[COLLI_MAX_ADDRS]) {
  if (stops_there) {
    stops_there = false;
    atomic_store(&shared->frozen, getpid());
    raise(SIGSTOP);
  }
  __real_boot_dial_begin(b, dial, kind, peer, addrs);
}

coll_status __real_coll_comm_destroy(coll_comm **comm);
coll_status __wrap_coll_comm_destroy(coll_comm **comm);
/* The last of the others wakes the frozen rank up. */
coll_status __wrap_coll_comm_destroy(coll_comm **comm) {
  int nranks = 0;
  coll_comm_nranks(*comm, &nranks);
  const coll_status status = __real_coll_comm_destroy(comm);
  const int frozen = atomic_load(&shared->frozen);
  if (nranks == RANKS && frozen != getpid() && atomic_fetch_add(&shared->ended, 1) == RANKS - 2)
    kill(frozen, SIGCONT);
  return status;
}

static int leave_out(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *child = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  int left = 0;
  (void)arg;
  config.create_timeout_ms = slow_ms(1500);
  config.error = &error;
  RANK_OK(coll_barrier(comm));
  stops_there = rank == FROZEN;
  RANK_CHECK(rank == FROZEN || WAIT_UNTIL(atomic_load(&shared->frozen), slow_s(30)));
  const coll_status status = coll_comm_shrink(comm, &config, &child);
  if (rank == FROZEN) {
    RANK_CHECK(status == COLL_ERR_TIMEOUT && !child);
    RANK_CHECK(atomic_load(&shared->ended) == nranks - 1);
    RANK_CHECK(strstr(error.message, "left out"));
    return 0;
  }
  RANK_CHECK(status == COLL_OK);
  RANK_OK(coll_comm_nranks(child, &left));
  RANK_CHECK(left == nranks - 1);
  RANK_CHECK(coll_barrier(child) == COLL_OK);
  RANK_OK(coll_comm_destroy(&child));
  return 0;
}

Test(left_out, wakes_up_after_the_end, .timeout = 120) {
  shared = shared_memory(sizeof(*shared));
  cr_expect_eq(run_processes(RANKS, NULL, leave_out, NULL, 60, NULL), 0);
}
