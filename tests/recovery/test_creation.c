/*
 * test_creation.c: the rank that made the id, and serves, dies at any moment of a creation: all
 * others have the same outcome, and know whose death it was. A rank dies or stops while links
 * between hosts are measured: all others have a communicator in time, and their first call tells.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/create/measure_levels.h"
#include "libcoll/wireup/bootstrap/roles.h"
#include "tests/proc/support_ranks.h"
#include "tests/proc/support_shrink.h"
#include "waits.h"

/* What each rank saw. */
typedef struct scene {
  bool is_over; /* the one that serves has got through */
  bool created[MOST];
  coll_status first[MOST]; /* of its first call */
  int peer[MOST];
  double seconds[MOST];
} scene;

/* ---- death at a certain call ----------------------------------------------------------------- */

static scene *shared;
static int calls_left;              /* until it dies, after all have checked in */
static const boot_links *its_links; /* in that rank, during the bootstrap */

ssize_t __real_send(int fd, const void *buf, size_t bytes, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_recv(int fd, void *buf, size_t bytes, int flags);
coll_status __real_boot_check_in(boot *b, boot_links *links, int listen_fd,
                                 colli_shared_time *time);
ssize_t __wrap_send(int fd, const void *buf, size_t bytes, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t bytes, int flags);
coll_status __wrap_boot_check_in(boot *b, boot_links *links, int listen_fd,
                                 colli_shared_time *time);

static void come_closer(void) {
  if (its_links && its_links->have_table && --calls_left == 0)
    raise(SIGKILL);
}

ssize_t __wrap_send(int fd, const void *buf, size_t bytes, int flags) {
  come_closer();
  return __real_send(fd, buf, bytes, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags) {
  come_closer();
  return __real_sendmsg(fd, msg, flags);
}

ssize_t __wrap_recv(int fd, void *buf, size_t bytes, int flags) {
  come_closer();
  return __real_recv(fd, buf, bytes, flags);
}

coll_status __wrap_boot_check_in(boot *b, boot_links *links, int listen_fd,
                                 colli_shared_time *time) {
  if (listen_fd < 0)
    return __real_boot_check_in(b, links, listen_fd, time);
  its_links = links;
  coll_status status = __real_boot_check_in(b, links, listen_fd, time);
  its_links = NULL;
  shared->is_over = true;
  return status;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int make_first_call(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  coll_error error = COLL_ERROR_INIT;
  (void)nranks;
  s->created[rank] = true;
  s->first[rank] = coll_barrier(comm);
  coll_last_error(comm, &error);
  s->peer[rank] = error.peer;
  return 0;
}

/* Rank `maker` dies at the n-th such call; false if that is after the end. */
static bool die_at(int n, int nranks, int maker, int *created, int *failed) {
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(20000);
  scene *s = shared = shared_memory(sizeof(*s));
  int results[MOST], count = 0;
  calls_left = n;
  char text[16];
  snprintf(text, sizeof(text), "%d", maker);
  setenv("TEST_MAKER", text, 1);
  run_processes(nranks, &config, make_first_call, s, 40, results);
  for (int r = 0; r < nranks; r++)
    count += s->created[r];
  if (s->is_over) {
    cr_expect_eq(count, nranks);
    for (int r = 0; r < nranks; r++)
      cr_expect_eq(s->first[r], COLL_OK);
    return false;
  }
  cr_expect_eq(results[maker], 128 + SIGKILL);
  cr_expect(count == 0 || count == nranks - 1, "call %d of %d ranks: %d have a communicator", n,
            nranks, count);
  *created += count > 0;
  *failed += count == 0;
  for (int r = 0; r < nranks; r++) {
    if (r == maker)
      continue;
    cr_expect(results[r] == 0 || results[r] == 120, "call %d: rank %d ended with %d", n, r,
              results[r]);
    if (!s->created[r])
      continue;
    cr_expect_eq(s->first[r], COLL_ERR_PEER_LOST, "call %d: rank %d has %s", n, r,
                 coll_status_name(s->first[r]));
    cr_expect_eq(s->peer[r], maker, "call %d: rank %d blames rank %d", n, r, s->peer[r]);
  }
  return true;
}

/* With few ranks there may be no moment at which enough has been said. */
static void die_at_each_call(int nranks, int maker, int *created, int *failed) {
  int n = 1;
  while (die_at(n, nranks, maker, created, failed))
    n++;
  printf("%d ranks: rank %d can die at %d calls\n", nranks, maker, n - 1);
}

Test(creation, rank_0_dies_at_each_call, .timeout = 400) {
  int created = 0, failed = 0;
  for (int nranks = 3; nranks <= MOST; nranks += extent(5, 1, 5))
    die_at_each_call(nranks, 0, &created, &failed);
  cr_expect_gt(created, 0);
  cr_expect_gt(failed, 0);
}

/* It also sends the table to rank 0, which others wait for. */
Test(creation, another_maker_dies_at_each_call, .timeout = 400) {
  int created = 0, failed = 0;
  die_at_each_call(3, 1, &created, &failed);
  die_at_each_call(3, 2, &created, &failed);
  for (int maker = 1; maker < MOST; maker += extent(6, 1, 6))
    die_at_each_call(MOST, maker, &created, &failed);
  cr_expect_gt(created, 0);
  cr_expect_gt(failed, 0);
}

/* ---- death or stop of a rank that measures --------------------------------------------------- */

enum { MEASURING = 4 };

static int victim, its_signal;

coll_status __real_colli_measure_find_levels(coll_comm *comm, colli_delegation *all,
                                             uint64_t until_ns, colli_measured_levels *out,
                                             coll_error *error);
coll_status __wrap_colli_measure_find_levels(coll_comm *comm, colli_delegation *all,
                                             uint64_t until_ns, colli_measured_levels *out,
                                             coll_error *error);

coll_status __wrap_colli_measure_find_levels(coll_comm *comm, colli_delegation *all,
                                             uint64_t until_ns, colli_measured_levels *out,
                                             coll_error *error) {
  int rank = -1;
  coll_comm_rank(comm, &rank);
  if (rank == victim)
    raise(its_signal);
  return __real_colli_measure_find_levels(comm, all, until_ns, out, error);
}

/* Runs ranks of which one gets a signal; all others' first call ends with `expected`. */
static void strike(int rank, int signal_number, coll_status expected) {
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = slow_ms(signal_number == SIGSTOP ? 5000 : 20000);
  config.timeout_ms = 3600000;
  scene *s = shared = shared_memory(sizeof(*s));
  int results[MEASURING];
  victim = rank;
  its_signal = signal_number;
  setenv("TEST_HOSTS", "2", 1);
  setenv("COLL_LINK_SPEED", "measure", 1);
  run_processes(MEASURING, &config, make_first_call, s, 60, results);
  for (int r = 0; r < MEASURING; r++) {
    cr_expect_eq(s->created[r], r != rank, "rank %d", r);
    if (r == rank)
      continue;
    cr_expect_eq(results[r], 0, "rank %d ended with %d", r, results[r]);
    cr_expect_eq(s->first[r], expected, "rank %d has %s", r, coll_status_name(s->first[r]));
    if (expected == COLL_ERR_PEER_LOST) /* else who waits for anybody cannot know whom to blame */
      cr_expect_eq(s->peer[r], rank, "rank %d blames rank %d", r, s->peer[r]);
  }
}

Test(creation, a_rank_dies_that_measures, .timeout = 200) {
  strike(0, SIGKILL, COLL_ERR_PEER_LOST);
  strike(3, SIGKILL, COLL_ERR_PEER_LOST);
}

/* Creation's deadline counts, and not the longer one of calls. */
Test(creation, a_rank_stops_that_measures, .timeout = 200) {
  strike(2, SIGSTOP, COLL_ERR_TIMEOUT);
}
