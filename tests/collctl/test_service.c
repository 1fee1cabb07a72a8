/*
 * test_service.c: the service that shows other hosts: two ranks, each of which believes that the
 * other is on another host. Who may ask, what is done with wrong answers, and that nothing is left.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/status/copy.h"
#include "libcoll/status/service.h"
#include "tests/proc/support_ranks.h"

/* A job of two processes; rank 0 is the test. */
typedef struct job {
  coll_comm *comm;
  pid_t child;
  int hold; /* rank 1 ends when this is closed */
} job;

/* Rank 1 waits in its own code. */
static int run_other(const coll_id *id, const char *host, int hold) {
  coll_comm *comm;
  char byte;
  setenv("COLL_HOST_ID", host, 1);
  if (coll_comm_create(&comm, id, 2, 1, NULL) != COLL_OK)
    return 1;
  int failed = read(hold, &byte, 1) != 0;
  return coll_comm_destroy(&comm) != COLL_OK || failed;
}

/* Rank 0 is on the host "here". */
static job start(const char *other_host) {
  job j = {0};
  coll_id id;
  int fds[2];
  setenv("COLL_HOST_ID", "here", 1);
  cr_assert(pipe(fds) == 0 && coll_unique_id(&id, NULL) == COLL_OK);
  j.child = fork();
  cr_assert_geq(j.child, 0);
  if (j.child == 0) {
    close(fds[1]);
    _exit(run_other(&id, other_host, fds[0]));
  }
  close(fds[0]);
  j.hold = fds[1];
  cr_assert_eq(coll_comm_create(&j.comm, &id, 2, 0, NULL), COLL_OK);
  return j;
}

static void end(job *j) {
  int status;
  close(j->hold);
  cr_assert_eq(coll_comm_destroy(&j->comm), COLL_OK);
  cr_assert(waitpid(j->child, &status, 0) == j->child && status == 0, "status %d", status);
}

/* The page of this process. */
static void keep(void *ctx, colli_status_head *copy) {
  colli_status_head **at = ctx;
  free(*at);
  *at = copy;
}

static colli_status_head *own_page(void) {
  colli_status_head *page = NULL;
  cr_assert_eq(colli_status_scan_process(getpid(), keep, &page), 1);
  return page;
}

/* Counts copies by rank. */
static void count_rank(void *ctx, colli_status_head *copy) {
  int *counts = ctx;
  counts[copy->rank % 2]++;
  free(copy);
}

static int count_threads(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  cr_assert_not_null(folder);
  for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
    count += *entry->d_name != '.';
  closedir(folder);
  return count;
}

static socklen_t address_of(const char *desk, struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  memcpy(address->sun_path + 1, desk, strlen(desk));
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(desk));
}

/* The desk answers, and all goes with the communicator. */
Test(service, asks_the_other_host, .timeout = 60) {
  const int fds = count_fds(), threads = count_threads();
  job j = start("there");
  colli_status_head *page = own_page();
  cr_assert_eq(count_threads(), threads + 2);
  cr_assert(*page->desk);
  for (int round = 0; round < 3; round++) {
    int counts[2] = {0, 0};
    cr_assert_gt(colli_status_ask(page->desk, page->comm_id, count_rank, counts), 0);
    cr_assert_eq(counts[1], 1);
    cr_assert_eq(colli_status_ask(page->desk, page->comm_id + 1, count_rank, counts), 0);
  }
  end(&j);
  cr_assert_eq(count_threads(), threads);
  cr_assert_eq(count_fds(), fds);
  cr_assert_eq(colli_status_ask(page->desk, page->comm_id, keep, &page), -1);
  free(page);
}

/* Another user is not answered. */
Test(service, same_user_only, .timeout = 60) {
  /* Root of a user namespace may know no other user. */
  if (geteuid() != 0 || seteuid(65534) != 0)
    cr_skip_test("needs root to become somebody else");
  cr_assert_eq(seteuid(0), 0);
  job j = start("there");
  colli_status_head *page = own_page();
  pid_t other = fork();
  if (other == 0) {
    struct sockaddr_un address;
    char byte;
    socklen_t length = address_of(page->desk, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    _exit(setresuid(65534, 65534, 65534) != 0 ? 2
          : connect(fd, (const struct sockaddr *)&address, length) != 0 || read(fd, &byte, 1) <= 0
              ? 0
              : 1);
  }
  int status;
  cr_assert(waitpid(other, &status, 0) == other && status == 0, "status %d", status);
  free(page);
  end(&j);
}

/* A single host needs no service. */
Test(service, not_on_one_host, .timeout = 60) {
  const int fds = count_fds(), threads = count_threads();
  job j = start("here");
  colli_status_head *page = own_page();
  cr_assert_eq(*page->desk, '\0');
  cr_assert_eq(count_threads(), threads);
  free(page);
  end(&j);
  cr_assert_eq(count_threads(), threads);
  cr_assert_eq(count_fds(), fds);
}

/* Plays a desk that sends these bytes. */
static void play_desk(const void *bytes, size_t count, int expected) {
  static const char name[] = "libcoll-test-desk";
  char desk[COLLI_STATUS_DESK];
  struct sockaddr_un address;
  snprintf(desk, sizeof(desk), "%s-%d", name, (int)getpid());
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t length = address_of(desk, &address);
  cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 1) == 0);
  pid_t child = fork();
  if (child == 0) {
    int guest = accept(fd, NULL, NULL);
    _exit(guest < 0 || write(guest, bytes, count) < 0);
  }
  int counts[2] = {0, 0};
  cr_assert_eq(colli_status_ask(desk, 7, count_rank, counts), expected);
  close(fd);
  waitpid(child, NULL, 0);
}

/* Wrong answers are refused. */
Test(service, wrong_answers, .timeout = 60) {
  struct {
    uint64_t bytes;
    unsigned char copy[1000];
    uint64_t end;
  } answer = {.bytes = 1000};
  memset(answer.copy, 0xee, sizeof(answer.copy));
  play_desk(&answer, sizeof(answer), 0);
  play_desk(&answer, 500, 0);
  play_desk(&answer, 3, 0);
  play_desk("", 0, 0);
  answer.bytes = COLLI_STATUS_COPY_MOST + 1;
  play_desk(&answer, sizeof(answer), 0);
  answer.bytes = UINT64_MAX;
  play_desk(&answer, sizeof(answer), 0);
  answer.bytes = 1;
  play_desk(&answer, sizeof(answer), 0);
}
