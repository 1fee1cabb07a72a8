/* test_bootstrap.c: ranks that find each other, and all the ways in which they do not. */
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
#include "libcoll/base/error.h"
#include "libcoll/comm/bootstrap.h"
#include "libcoll/comm/ctrl_links.h"
#include "tests/proc/support_ranks.h"

/* One process (or thread) that takes part. */
typedef struct member {
  colli_id id;
  int rank, nranks;
  int timeout_ms;
  int delay_ms;
  int pid; /* what it says its process id is */
  coll_status status;
  coll_error error;
  uint64_t took_ms;
  bool sound; /* table and links are as they should be */
  const char *ifname;
} member;

static const colli_log quiet = {COLLI_LOG_NONE, -1};

/* Whether a message goes over every link both ways. */
static bool links_work(const member *m, colli_ctrl *ctrl) {
  int peers[8], expected[8];
  int count = colli_ctrl_neighbours(ctrl, peers), heard = 0, gone = 0;
  if (count != colli_ctrl_peers(m->rank, m->nranks, expected))
    return false;
  for (int i = 0; i < count; i++) {
    colli_ctrl_msg msg = {.kind = COLLI_CTRL_STALLED, .origin = m->rank, .peer = peers[i]};
    colli_ctrl_send(ctrl, peers[i], &msg);
    msg.kind = COLLI_CTRL_GOODBYE;
    colli_ctrl_send(ctrl, peers[i], &msg);
  }
  uint64_t until_ns = colli_now_ns() + 5 * COLLI_NS_PER_S;
  while (gone < count && colli_now_ns() < until_ns) {
    colli_ctrl_msg msg;
    int peer, sys_errno;
    switch (colli_ctrl_poll(ctrl, &peer, &msg, &sys_errno)) {
    case COLLI_CTRL_MESSAGE:
      if (msg.origin != peer || (msg.kind == COLLI_CTRL_STALLED && msg.peer != m->rank))
        return false;
      heard += msg.kind == COLLI_CTRL_STALLED;
      gone += msg.kind == COLLI_CTRL_GOODBYE;
      break;
    case COLLI_CTRL_CLOSED:
      return false;
    case COLLI_CTRL_NOTHING:
      poll(&(struct pollfd){.fd = colli_ctrl_fd(ctrl), .events = POLLIN}, 1, 100);
    }
  }
  return heard == count && gone == count;
}

/* Takes part once. */
static void *take_part(void *arg) {
  member *m = arg;
  colli_params params;
  colli_rank_info mine, *table = NULL;
  colli_ctrl *ctrl = NULL;
  colli_error_clear(&m->error);
  memset(&mine, 0, sizeof(mine));
  snprintf(mine.host, sizeof(mine.host), "host%d", m->rank);
  mine.pid = m->pid;
  mine.cpus[0] = 77 + (uint64_t)m->rank;
  cr_assert_eq(colli_params_load(&params, &m->error), COLL_OK);
  if (m->ifname)
    colli_params_set_text(&params, COLLI_PARAM_TCP_IFNAME, m->ifname);
  usleep((useconds_t)m->delay_ms * 1000);
  uint64_t start_ns = colli_now_ns();
  m->status = colli_bootstrap(&m->id, m->rank, m->nranks, &mine, &params,
                              start_ns + (uint64_t)m->timeout_ms * COLLI_NS_PER_MS, &quiet, NULL,
                              &table, &ctrl, &m->error);
  m->took_ms = (colli_now_ns() - start_ns) / COLLI_NS_PER_MS;
  m->sound = m->status == COLL_OK && table && ctrl;
  for (int rank = 0; m->sound && rank < m->nranks; rank++) {
    char host[64];
    snprintf(host, sizeof(host), "host%d", rank);
    m->sound = strcmp(table[rank].host, host) == 0 && table[rank].pid == 1000 + rank &&
               table[rank].cpus[0] == 77 + (uint64_t)rank &&
               (m->nranks == 1 || table[rank].control_addrs[0].port != 0);
  }
  m->sound = m->sound && links_work(m, ctrl);
  colli_ctrl_close(ctrl, 1000);
  free(table);
  return NULL;
}

/* Makes an id; the listener is rank 0's. */
static colli_id make_id(void) {
  colli_id id;
  colli_params params;
  coll_error error = COLL_ERROR_INIT;
  cr_assert_eq(colli_params_load(&params, &error), COLL_OK);
  cr_assert_eq(colli_id_make(&id, &params, &error), COLL_OK, "%s", error.message);
  return id;
}

/* Members 0 .. n-1 as they should be. */
static member *make_members(int n, int timeout_ms) {
  member *members = calloc((size_t)n, sizeof(*members));
  colli_id id = make_id();
  for (int i = 0; i < n; i++)
    members[i] =
        (member){.id = id, .rank = i, .nranks = n, .timeout_ms = timeout_ms, .pid = 1000 + i};
  return members;
}

/* Lets all members take part as threads, but `absent`. */
static void run_members(member *members, int n, int absent) {
  pthread_t threads[64];
  for (int i = 0; i < n; i++)
    if (i != absent)
      cr_assert_eq(pthread_create(&threads[i], NULL, take_part, &members[i]), 0);
  for (int i = 0; i < n; i++)
    if (i != absent)
      pthread_join(threads[i], NULL);
}

static const int sizes[] = {1, 2, 3, 4, 5, 8, 17, 64};

Test(bootstrap, threads_meet_and_leave_nothing) {
  for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
    int n = sizes[s], before = count_fds();
    member *members = make_members(n, 15000);
    run_members(members, n, -1);
    for (int i = 0; i < n; i++)
      cr_assert(members[i].sound, "rank %d of %d: status %d, %s", i, n, members[i].status,
                members[i].error.message);
    free(members);
    cr_assert_eq(count_fds(), before, "%d ranks left descriptors open", n);
  }
}

Test(bootstrap, processes_meet) {
  for (int n = 2; n <= 16; n += 7) {
    member *members = make_members(n, 15000);
    pid_t pids[16];
    for (int i = 1; i < n; i++)
      if ((pids[i] = fork()) == 0) {
        take_part(&members[i]);
        _exit(members[i].sound ? 0 : 1);
      }
    take_part(&members[0]);
    cr_assert(members[0].sound, "%s", members[0].error.message);
    for (int i = 1; i < n; i++) {
      int status;
      waitpid(pids[i], &status, 0);
      cr_assert_eq(status, 0, "rank %d of %d", i, n);
    }
    free(members);
  }
}

Test(bootstrap, rank_0_may_come_late) {
  member *members = make_members(3, 5000);
  members[0].delay_ms = 400;
  members[2].delay_ms = 700;
  run_members(members, 3, -1);
  for (int i = 0; i < 3; i++)
    cr_assert(members[i].sound, "%s", members[i].error.message);
  free(members);
}

Test(bootstrap, missing_ranks_are_named_everywhere) {
  const int n = 8;
  int before = count_fds();
  member *members = make_members(n, 1500);
  members[5].id.addrs[0].family = 0; /* nowhere to go: they never come */
  members[6].id.addrs[0].family = members[7].id.addrs[0].family = 0;
  run_members(members, n, 3);
  for (int i = 0; i < 5; i++) {
    if (i == 3)
      continue;
    cr_assert_eq(members[i].status, COLL_ERR_TIMEOUT, "rank %d: %d %s", i, members[i].status,
                 members[i].error.message);
    cr_assert(strstr(members[i].error.message, "ranks 3, 5-7 of 8"), "%s",
              members[i].error.message);
    cr_assert_eq(members[i].error.peer, 3);
    cr_assert_eq(members[i].error.rank, 0);
    cr_assert_leq(members[i].took_ms, 1500 + 500);
  }
  free(members);
  cr_assert_eq(count_fds(), before);
}

Test(bootstrap, one_impatient_rank_still_hears_who_is_missing) {
  member *members = make_members(4, 20000);
  members[2].timeout_ms = 1000;
  run_members(members, 4, 3);
  for (int i = 0; i < 3; i++) {
    cr_assert(strstr(members[i].error.message, "rank 3 of 4"), "%s", members[i].error.message);
    cr_assert_leq(members[i].took_ms, 3000);
  }
  free(members);
}

Test(bootstrap, two_processes_with_one_rank_are_both_named) {
  member *members = make_members(4, 5000);
  members[3].rank = 2; /* pid 1003 claims 1002's rank */
  run_members(members, 4, -1);
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(members[i].status, COLL_ERR_MISMATCH, "%s", members[i].error.message);
    cr_assert(strstr(members[i].error.message, "rank 2") &&
                  strstr(members[i].error.message, "1002") &&
                  strstr(members[i].error.message, "1003"),
              "%s", members[i].error.message);
    cr_assert_leq(members[i].took_ms, 3000);
  }
  free(members);
}

Test(bootstrap, different_nranks_name_both) {
  member *members = make_members(3, 5000);
  members[2].nranks = 4;
  run_members(members, 3, -1);
  for (int i = 0; i < 3; i++) {
    cr_assert_eq(members[i].status, COLL_ERR_MISMATCH, "%s", members[i].error.message);
    cr_assert(strstr(members[i].error.message, "host2") &&
                  strstr(members[i].error.message, "host0") &&
                  strstr(members[i].error.message, "4 ranks"),
              "%s", members[i].error.message);
  }
  free(members);
}

Test(bootstrap, a_rank_beyond_nranks_is_a_mismatch) {
  member *members = make_members(3, 5000);
  members[2].rank = 6;
  members[2].nranks = 8;
  run_members(members, 3, -1);
  for (int i = 0; i < 3; i++)
    cr_assert_eq(members[i].status, COLL_ERR_MISMATCH, "%s", members[i].error.message);
  free(members);
}

Test(bootstrap, a_wrong_secret_disturbs_nobody) {
  member *members = make_members(4, 8000);
  members[3].rank = 2;
  members[3].id.secret[5] ^= 1;
  for (int i = 0; i < 3; i++)
    members[i].nranks = 3;
  members[3].nranks = 3;
  members[1].delay_ms = 1200; /* the stranger has come and gone before all are there */
  run_members(members, 4, -1);
  for (int i = 0; i < 3; i++)
    cr_assert(members[i].sound, "%s", members[i].error.message);
  cr_assert_eq(members[3].status, COLL_ERR_AUTH, "%d %s", members[3].status,
               members[3].error.message);
  cr_assert_leq(members[3].took_ms, 4000);
  free(members);
}

Test(bootstrap, another_communicator_with_the_same_secret) {
  member *members = make_members(3, 5000);
  members[0].nranks = members[1].nranks = members[2].nranks = 2;
  members[2].rank = 1;
  members[2].id.comm_id ^= 1;
  members[1].delay_ms = 500;
  run_members(members, 3, -1);
  cr_assert(members[0].sound && members[1].sound, "%s", members[0].error.message);
  cr_assert_eq(members[2].status, COLL_ERR_MISMATCH, "%s", members[2].error.message);
  cr_assert(strstr(members[2].error.message, "COLL_ROOT"), "%s", members[2].error.message);
  free(members);
}

Test(bootstrap, nobody_at_the_address) {
  member *members = make_members(2, 800);
  close(members[0].id.listen_fd);
  run_members(members, 2, 0);
  cr_assert_eq(members[1].status, COLL_ERR_UNREACHABLE, "%s", members[1].error.message);
  cr_assert(strstr(members[1].error.message, "Connection refused"), "%s", members[1].error.message);
  cr_assert_leq(members[1].took_ms, 1300);
  free(members);
}

Test(bootstrap, somebody_silent_at_the_address) {
  member *members = make_members(2, 800); /* it listens, but rank 0 does not serve it */
  run_members(members, 2, 0);
  cr_assert_eq(members[1].status, COLL_ERR_TIMEOUT, "%s", members[1].error.message);
  cr_assert_leq(members[1].took_ms, 1300);
  close(members[0].id.listen_fd);
  free(members);
}

Test(bootstrap, rank_0_must_own_the_listener) {
  member *members = make_members(2, 800);
  int fd = members[0].id.listen_fd;
  members[0].id.pid++;
  take_part(&members[0]);
  cr_assert_eq(members[0].status, COLL_ERR_INVALID_USAGE);
  cr_assert(strstr(members[0].error.message, "pid"), "%s", members[0].error.message);
  close(fd);
  /* The number now belongs to something else, which must not be closed. */
  members[0].id.pid--;
  int pipes[2];
  cr_assert_eq(pipe(pipes), 0);
  cr_assert(pipes[0] == fd || pipes[1] == fd);
  take_part(&members[0]);
  cr_assert_eq(members[0].status, COLL_ERR_INVALID_USAGE);
  cr_assert_eq(close(pipes[0]), 0);
  cr_assert_eq(close(pipes[1]), 0);
  free(members);
}

Test(bootstrap, no_such_interface) {
  member *members = make_members(2, 800);
  members[0].ifname = "=nosuch0";
  int before = count_fds();
  take_part(&members[0]);
  cr_assert_eq(members[0].status, COLL_ERR_INVALID_USAGE);
  cr_assert(strstr(members[0].error.message, "nosuch0"), "%s", members[0].error.message);
  cr_assert_eq(count_fds(), before - 1); /* the listener is closed in every case */
  free(members);
}

/* ---- strangers ------------------------------------------------------------------------------- */

typedef struct vandal {
  colli_addr addr;
  volatile bool stop;
  int visits;
} vandal;

/* Connects again and again: random bytes, silence, a hello cut short, a scanner's greeting. */
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
    if (v->visits % 4 == 0)
      send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
    else if (v->visits % 4 == 1)
      send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
    else if (v->visits % 4 == 2)
      send(fd, "CLih\1\0\1\0", 8, MSG_NOSIGNAL);
    if (v->visits % 4 >= 2 && nheld < 100)
      held[nheld++] = fd; /* and says nothing more */
    else
      close(fd);
    v->visits++;
    usleep(2000);
  }
  while (nheld > 0)
    close(held[--nheld]);
  return NULL;
}

Test(bootstrap, strangers_at_the_port_disturb_nobody) {
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
  cr_assert_gt(v.visits, 70, "more than are kept at a time");
  free(members);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

/* Runs ranks 1 .. n-1 as processes and rank 0 here; kills `victim` after a while, while the last
 * rank has not come yet. The results are in shared memory. */
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
  usleep((useconds_t)kill_after_ms * 1000);
  kill(pids[victim], SIGKILL);
  for (int i = 0; i < n; i++)
    waitpid(pids[i], NULL, 0);
  return shared;
}

Test(bootstrap, a_rank_killed_after_check_in_is_named) {
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
  cr_assert_neq(members[3].status, COLL_OK, "who comes later finds nobody");
}

Test(bootstrap, rank_0_killed_while_others_wait) {
  member *members = run_with_death(4, 0, 600);
  for (int i = 1; i < 3; i++) {
    cr_assert_eq(members[i].status, COLL_ERR_PEER_LOST, "rank %d: %d %s", i, members[i].status,
                 members[i].error.message);
    cr_assert_eq(members[i].error.peer, 0);
    cr_assert_leq(members[i].took_ms, 2000);
  }
  cr_assert_eq(members[3].status, COLL_ERR_UNREACHABLE);
}

/* A rank that plays its part up to the table and then does nothing, or dies. */
static void *check_in_only(void *arg) {
  member *m = arg;
  uint64_t until_ns = colli_now_ns() + (uint64_t)m->timeout_ms * COLLI_NS_PER_MS;
  struct {
    uint32_t version;
    int32_t nranks;
    uint32_t remaining_ms, pad;
    colli_rank_info info;
  } words = {.version = COLL_VERSION, .nranks = m->nranks, .remaining_ms = 60000};
  snprintf(words.info.host, sizeof(words.info.host), "host%d", m->rank);
  words.info.pid = m->pid;
  uint16_t port;
  int listener;
  cr_assert_eq(colli_net_listen("", &listener, &port, &m->error), COLL_OK);
  words.info.control_addrs[0] = (colli_addr){.family = 4, .port = port, .ip = {127, 0, 0, 1}};
  int fd = colli_net_connect(&m->id.addrs[0]), result;
  poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
  colli_auth auth;
  colli_auth_connect(&auth, fd, m->id.secret, COLLI_HELLO_CHECKIN, m->rank, 0, m->id.comm_id, 0);
  while ((result = colli_auth_poll(&auth)) == COLL_T_AGAIN)
    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10);
  cr_assert_eq(result, COLL_T_DONE);
  cr_assert_eq(send(fd, &words, sizeof(words), MSG_NOSIGNAL), (ssize_t)sizeof(words));
  while (colli_now_ns() < until_ns)
    usleep(10000);
  close(listener);
  close(fd);
  return NULL;
}

Test(bootstrap, a_rank_that_dies_while_links_are_made_is_named) {
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

Test(bootstrap, a_rank_that_freezes_while_links_are_made_is_named) {
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
