/* test_bootstrap_faults.c: foreign connections, deaths and frozen ranks during a bootstrap. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/auth.h"
#include "libcoll/base/clock.h"
#include "support_bootstrap.h"
#include "waits.h"

/* ---- foreign connections --------------------------------------------------------------------- */

typedef struct vandal {
  colli_addr addr;
  volatile bool stop;
  int connections;
} vandal;

/* Connects again and again, and sends random bytes, an HTTP request, half a hello, or nothing. */
static void *vandalise(void *arg) {
  vandal *v = arg;
  int held[100], nheld = 0;
  unsigned seed = 4711;
  while (!v->stop) {
    int fd = colli_net_connect(&v->addr);
    if (fd < 0)
      break;
    char junk[300];
    poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 100);
    for (size_t i = 0; i < sizeof(junk); i++)
      junk[i] = (char)rand_r(&seed);
    if (v->connections % 4 == 0)
      send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
    else if (v->connections % 4 == 1)
      send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    else if (v->connections % 4 == 2)
      send(fd, "CLih\1\0\1\0", 8, MSG_NOSIGNAL);
    if (v->connections % 4 >= 2 && nheld < 100)
      held[nheld++] = fd; /* and sends nothing more */
    else
      close(fd);
    v->connections++;
    be_late(2);
  }
  while (nheld > 0)
    close(held[--nheld]);
  return NULL;
}

Test(bootstrap_faults, foreign_connections_disturb_nobody) {
  const int n = 6;
  member *members = make_members(n, 15000);
  vandal v = {.addr = members[0].id.addrs[0]};
  for (int i = 1; i < n; i++)
    members[i].delay_ms = 200 * i;
  pthread_t thread;
  pthread_create(&thread, NULL, vandalise, &v);
  run_members(members, n, -1);
  v.stop = true;
  pthread_join(thread, NULL);
  for (int i = 0; i < n; i++)
    cr_assert(members[i].sound, "rank %d: %s", i, members[i].error.message);
  cr_assert_gt(v.connections, 70, "more than may be pending at a time");
  free(members);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* Runs n ranks as processes; kills `victim` after a while, before the last rank connects. The
 * results are in shared memory. */
static member *run_with_death(int n, int victim, int kill_after_ms) {
  member *shared = mmap(NULL, (size_t)n * sizeof(*shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  member *members = make_members(n, 6000);
  memcpy(shared, members, (size_t)n * sizeof(*shared));
  free(members);
  shared[n - 1].delay_ms = 2500;
  shared[n - 1].timeout_ms = 800;
  pid_t pids[8];
  for (int i = n - 1; i >= 0; i--)
    if ((pids[i] = fork()) == 0) {
      close(i == 0 ? -1 : shared[0].id.listen_fd);
      shared[i].id.pid = getpid();
      take_part(&shared[i]);
      _exit(0);
    }
  close(shared[0].id.listen_fd);
  be_late(kill_after_ms);
  kill(pids[victim], SIGKILL);
  for (int i = 0; i < n; i++)
    waitpid(pids[i], NULL, 0);
  return shared;
}

Test(bootstrap_faults, a_rank_killed_after_check_in_is_named) {
  const int n = 4, victim = 2;
  member *members = run_with_death(n, victim, 600);
  for (int i = 0; i < 2; i++) {
    cr_assert_eq(members[i].status, COLL_ERR_PEER_LOST, "rank %d: %d %s", i, members[i].status,
                 members[i].error.message);
    cr_assert_eq(members[i].error.peer, victim);
    cr_assert(strstr(members[i].error.message, "rank 2 (host host2, pid 1002)"), "%s",
              members[i].error.message);
    cr_assert_leq(members[i].took_ms, 2000);
  }
  cr_assert_neq(members[3].status, COLL_OK, "one that connects later fails, too");
}

Test(bootstrap_faults, rank_0_killed_while_others_wait) {
  member *members = run_with_death(4, 0, 600);
  for (int i = 1; i < 3; i++) {
    cr_assert_eq(members[i].status, COLL_ERR_PEER_LOST, "rank %d: %d %s", i, members[i].status,
                 members[i].error.message);
    cr_assert_eq(members[i].error.peer, 0);
    cr_assert_leq(members[i].took_ms, 2000);
  }
  cr_assert_eq(members[3].status, COLL_ERR_UNREACHABLE);
}

/* A rank that checks in, and then does nothing until it closes all connections. */
static void *check_in_only(void *arg) {
  member *m = arg;
  uint64_t until_ns = colli_now_ns() + (uint64_t)m->timeout_ms * COLLI_NS_PER_MS;
  struct {
    uint32_t version;
    int32_t nranks;
    uint32_t remaining_ms, pad;
    colli_rank_info info;
  } checkin = {.version = COLL_VERSION, .nranks = m->nranks, .remaining_ms = 60000};
  snprintf(checkin.info.host, sizeof(checkin.info.host), "host%d", m->rank);
  checkin.info.pid = m->pid;
  uint16_t port;
  int listener;
  cr_assert_eq(colli_net_listen("", &listener, &port, &m->error), COLL_OK);
  checkin.info.control_addrs[0] = (colli_addr){.family = 4, .port = port, .ip = {127, 0, 0, 1}};
  int fd = colli_net_connect(&m->id.addrs[0]), result;
  poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
  colli_auth auth;
  colli_auth_connect(&auth, fd, m->id.secret, COLLI_HELLO_CHECKIN, m->rank, 0, m->id.comm_id, 0);
  while ((result = colli_auth_poll(&auth)) == COLL_T_AGAIN)
    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10);
  cr_assert_eq(result, COLL_T_DONE);
  cr_assert_eq(send(fd, &checkin, sizeof(checkin), MSG_NOSIGNAL), (ssize_t)sizeof(checkin));
  be_late((double)(int64_t)(until_ns - colli_now_ns()) / 1e6);
  close(listener);
  close(fd);
  return NULL;
}

Test(bootstrap_faults, a_rank_that_dies_while_links_are_made_is_named) {
  const int n = 5, victim = 1;
  member *members = make_members(n, 8000);
  pthread_t threads[5];
  members[victim].timeout_ms = 800; /* then it closes everything */
  for (int i = 0; i < n; i++)
    pthread_create(&threads[i], NULL, i == victim ? check_in_only : take_part, &members[i]);
  for (int i = 0; i < n; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < n; i++) {
    if (i == victim)
      continue;
    cr_assert_eq(members[i].status, COLL_ERR_PEER_LOST, "rank %d: %d %s", i, members[i].status,
                 members[i].error.message);
    cr_assert(strstr(members[i].error.message, "rank 1 (host host1, pid 1001)"), "%s",
              members[i].error.message);
  }
  free(members);
}

Test(bootstrap_faults, a_rank_that_freezes_while_links_are_made_is_named) {
  const int n = 5, victim = 4;
  member *members = make_members(n, 1500);
  pthread_t threads[5];
  members[victim].timeout_ms = 2500;
  for (int i = 0; i < n; i++)
    pthread_create(&threads[i], NULL, i == victim ? check_in_only : take_part, &members[i]);
  for (int i = 0; i < n; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < n; i++) {
    if (i == victim)
      continue;
    cr_assert_eq(members[i].status, COLL_ERR_TIMEOUT, "rank %d: %d %s", i, members[i].status,
                 members[i].error.message);
    cr_assert(strstr(members[i].error.message, "rank 4 (host host4, pid 1004)") ||
                  strstr(members[i].error.message, "rank 4: host host4, pid 1004"),
              "rank %d: %s", i, members[i].error.message);
    cr_assert_leq(members[i].took_ms, 2000);
  }
  free(members);
}
