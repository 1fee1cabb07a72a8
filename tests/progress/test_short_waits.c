/* test_short_waits.c: ranks that make short calls one after the other, none of which waits for
 * long, still look at the transports now and then: these make and take connections. */
#include <criterion/criterion.h>

#include "libcoll/progress/wait.h"
#include "tests/proc/support_ranks.h"

enum { WAITS = 4096, LEAST = 8, MOST = WAITS / 16 };

static coll_transport_ops counting; /* the transport's, except that progress() counts */
static int (*look)(coll_endpoint *);
static int looks;

static int count(coll_endpoint *endpoint) {
  looks++;
  return look(endpoint);
}

/* Calls begin to wait, and none polls. */
static int wait_shortly(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  colli_port *port = comm->family->ports;
  const coll_transport_ops *usual = port->ops;
  RANK_OK(coll_barrier(comm));
  if (rank == 0) {
    counting = *usual;
    look = usual->progress;
    counting.progress = count;
    port->ops = &counting;
    for (int i = 0; i < WAITS; i++)
      colli_comm_wait_begin(comm);
    port->ops = usual;
    RANK_CHECK(looks >= LEAST && looks <= MOST);
  }
  RANK_OK(coll_barrier(comm));
  return 0;
}

Test(short_waits, look_at_transports, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  config.progress = COLL_PROGRESS_OFF;
  cr_expect_eq(run_threads(2, &config, wait_shortly, NULL), 0);
}
