/* test_bootstrap_faults.c: foreign connections, deaths and frozen ranks during a bootstrap. */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/wireup/bootstrap/roles.h"
#include "support_bootstrap.h"
#include "support_ranks.h"
#include "waits.h"

/* ---- somebody on the way ----------------------------------------------------------------------
 */

Test(bootstrap_faults, what_was_altered_on_the_way_is_refused) {
  /* The handshake: a hello and a proof to rank 0; a challenge and an answer from it. */
  const size_t to_root = sizeof(colli_hello) + COLLI_MAC_BYTES;
  const size_t from_root = COLLI_NONCE_BYTES + COLLI_MAC_BYTES + 1;
  const size_t record = to_root + COLLI_SEALED_BYTES(sizeof(boot_checkin));
  const struct {
    bool to_root;
    size_t place;
  } cases[] = {
      {true, to_root + offsetof(boot_checkin, version)},
      {true, to_root + offsetof(boot_checkin, nranks)},
      {true, record + offsetof(colli_rank_info, host)},
      {true, record + offsetof(colli_rank_info, control_addrs)},
      {true, record + COLLI_SEALED_BYTES(sizeof(colli_rank_info)) - 1},
      {true, record + COLLI_SEALED_BYTES(sizeof(colli_rank_info)) + offsetof(boot_report, status)},
      {false, from_root + offsetof(boot_report, status)},
  };
  for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
    member *members = run_through_proxy(cases[c].to_root, cases[c].place, 10000);
    for (int i = 0; i < 3; i++)
      if (cases[c].to_root || i == 1) /* the others have succeeded by then */
        cr_assert_eq(members[i].status, COLL_ERR_AUTH, "case %zu, rank %d: %d %s", c, i,
                     members[i].status, members[i].error.message);
    cr_assert(strstr(members[1].error.message, "altered or injected"), "%s",
              members[1].error.message);
    free(members);
  }
}

/* ---- foreign connections --------------------------------------------------------------------- */

typedef struct vandal {
  colli_addr addr;
  atomic_bool stop;
  atomic_int connections;
} vandal;

/* When a member comes: after so many of the vandal's connections. */
typedef struct turn {
  vandal *v;
  int connections;
} turn;

static bool has_come(void *arg) {
  const turn *t = arg;
  return atomic_load(&t->v->connections) >= t->connections;
}

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
    be_late(2); /* leaves the members some room in the listener's queue */
  }
  while (nheld > 0)
    close(held[--nheld]);
  return NULL;
}

Test(bootstrap_faults, foreign_connections_disturb_nobody) {
  const int n = 6;
  member *members = make_members(n, 15000);
  vandal v = {.addr = members[0].id.addrs[0]};
  turn turns[6];
  for (int i = 1; i < n; i++) {
    turns[i] = (turn){&v, 15 * i};
    members[i].begins = has_come;
    members[i].arg = &turns[i];
  }
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

/* Reads rank 0's log until it reports `count` check-ins; false if the log ends before. */
static bool await_check_ins(FILE *log, int count) {
  char line[1100];
  while (count > 0 && fgets(line, sizeof(line), log))
    count -= strstr(line, "has checked in") != NULL;
  return count == 0;
}

/* Runs n ranks as processes; kills `victim` when all but the last have checked in. The last one
 * begins when all others have ended. The results are in shared memory. */
static member *run_with_death(int n, int victim) {
  member *shared = shared_memory((size_t)n * sizeof(*shared));
  member *members = make_members(n, 6000);
  memcpy(shared, members, (size_t)n * sizeof(*shared));
  free(members);
  shared[0].log_level = COLLI_LOG_DEBUG;
  shared[n - 1].timeout_ms = 800;
  pid_t pids[8];
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  FILE *log = fdopen(ends[0], "r");
  for (int i = n - 2; i >= 0; i--)
    if ((pids[i] = fork()) == 0) {
      if (i == 0)
        dup2(ends[1], STDERR_FILENO);
      else
        close(shared[0].id.listen_fd);
      close(ends[0]);
      close(ends[1]);
      shared[i].id.pid = getpid();
      take_part(&shared[i]);
      _exit(0);
    }
  close(shared[0].id.listen_fd);
  close(ends[1]);
  cr_expect(await_check_ins(log, n - 2));
  kill(pids[victim], SIGKILL);
  for (int i = 0; i < n - 1; i++)
    waitpid(pids[i], NULL, 0);
  fclose(log);
  take_part(&shared[n - 1]);
  return shared;
}

Test(bootstrap_faults, a_rank_killed_after_check_in_is_named) {
  const int n = 4, victim = 2;
  member *members = run_with_death(n, victim);
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
  member *members = run_with_death(4, 0);
  for (int i = 1; i < 3; i++) {
    cr_assert_eq(members[i].status, COLL_ERR_PEER_LOST, "rank %d: %d %s", i, members[i].status,
                 members[i].error.message);
    cr_assert_eq(members[i].error.peer, 0);
    cr_assert_leq(members[i].took_ms, 2000);
  }
  cr_assert_eq(members[3].status, COLL_ERR_UNREACHABLE);
}

/* A rank that checks in, and then does nothing until its condition is so (NULL: until somebody
 * makes a link to it). Then it closes all connections. */
static void *check_in_only(void *arg) {
  member *m = arg;
  const boot_checkin checkin = {
      .version = COLL_VERSION, .nranks = m->nranks, .remaining_ms = 60000};
  colli_rank_info info = {.pid = m->pid};
  snprintf(info.host, sizeof(info.host), "host%d", m->rank);
  uint16_t port;
  int listener;
  cr_assert_eq(colli_net_listen("", &listener, &port, &m->error), COLL_OK);
  info.control_addrs[0] = (colli_addr){.family = 4, .port = port, .ip = {127, 0, 0, 1}};
  int fd = colli_net_connect(&m->id.addrs[0]), result;
  poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
  colli_auth auth;
  colli_auth_connect(&auth, fd, m->id.secret->bytes, COLLI_HELLO_CHECKIN, m->rank, 0, m->id.comm_id,
                     0);
  while ((result = colli_auth_poll(&auth)) == COLL_T_AGAIN)
    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10);
  cr_assert_eq(result, COLL_T_DONE);
  colli_sealed conn;
  size_t done = 0, info_done = 0;
  colli_sealed_open(&conn, &auth);
  cr_assert_eq(colli_sealed_push(&conn, &checkin, sizeof(checkin), &done), COLL_T_DONE);
  cr_assert_eq(colli_sealed_push(&conn, &info, sizeof(info), &info_done), COLL_T_DONE);
  if (m->begins)
    cr_assert(WAIT_UNTIL(m->begins(m->arg), 20));
  else
    cr_assert_eq(poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 20000), 1);
  close(listener);
  colli_sealed_close(&conn);
  return NULL;
}

Test(bootstrap_faults, a_rank_that_dies_while_links_are_made_is_named) {
  const int n = 5, victim = 1;
  member *members = make_members(n, 8000);
  pthread_t threads[5];
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
  members[victim].begins = member_is_over; /* by then all have failed */
  members[victim].arg = &members[0];
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
