/*
 * test_page.c: the status page by itself: which processes have one, what is in it when there are
 * many communicators or no page can be made, that no other process can write to it, and that a page
 * with wrong bytes is refused.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/sched/tag.h"
#include "libcoll/status/copy.h"
#include "libcoll/status/look.h"
#include "tests/proc/support_ranks.h"

/* The copies of a process's pages. */
typedef struct pages {
  int count;
  colli_status_head *at[8];
} pages;

static void keep(void *ctx, colli_status_head *copy) {
  pages *p = ctx;
  if (p->count < 8)
    p->at[p->count++] = copy;
}

static pages pages_of(pid_t pid) {
  pages p = {0};
  cr_assert_eq(colli_status_scan_process(pid, keep, &p), p.count, "%s", strerror(errno));
  return p;
}

static void drop(pages *p) {
  for (int i = 0; i < p->count; i++)
    free(p->at[i]);
}

/* This process's only page. */
static colli_status_head *own_page(void) {
  pages p = pages_of(getpid());
  cr_assert_eq(p.count, 1, "%d pages", p.count);
  return p.at[0];
}

static coll_comm *alone(void) {
  coll_comm *comm;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  return comm;
}

/* All that a rank did is in its page, and the page goes with the communicator. */
Test(page, shows_what_happens, .timeout = 60) {
  coll_comm *comm = alone();
  float in[3] = {1, 2, 3}, out[3];
  coll_request *request;
  cr_assert_eq(coll_comm_set_name(comm, "a\"b\x1b[2Jc\xff"), COLL_OK);
  cr_assert_eq(coll_allreduce(in, out, 3, COLL_FLOAT32, COLL_SUM, comm), COLL_OK);
  cr_assert_eq(coll_irecv(out, 1, COLL_FLOAT32, 0, 5, NULL, comm, &request), COLL_OK);
  colli_status_head *page = own_page();
  colli_status_comm *shown = colli_status_comm_at(page, 0);
  cr_assert_eq(page->ncomms, 1);
  cr_assert_eq(page->pid, getpid());
  cr_assert_str_eq(shown->name, "a\"b?[2Jc?");
  cr_assert_eq(shown->flights.last, 1);
  cr_assert(shown->flights.collectives[1].ended != 0);
  cr_assert_eq(shown->flights.nmessages, 1);
  cr_assert(shown->flights.messages[1].number == 1 && shown->flights.messages[1].ended == 0);
  cr_assert_str_eq(shown->flights.names[1], "recv");
  free(page);
  cr_assert_eq(coll_send(in, 1, COLL_FLOAT32, 0, 5, comm), COLL_OK);
  cr_assert_eq(coll_wait(&request, -1), COLL_OK);
  coll_comm_destroy(&comm);
  pages p = pages_of(getpid());
  cr_assert_eq(p.count, 0);
}

/* More communicators than places: the others are counted, work, and leave no trace. */
Test(page, many_communicators, .timeout = 60) {
  coll_comm *base = alone(), *comms[COLLI_STATUS_COMMS + 10];
  const int many = COLLI_STATUS_COMMS + 10;
  int one = 1, sum;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < many; i++) {
      cr_assert_eq(coll_comm_dup(base, NULL, &comms[i]), COLL_OK);
      cr_assert_eq(coll_allreduce(&one, &sum, 1, COLL_INT32, COLL_SUM, comms[i]), COLL_OK);
    }
    colli_status_head *page = own_page();
    cr_assert_eq(page->ncomms, COLLI_STATUS_COMMS);
    cr_assert_eq(page->unshown, 11, "%llu", (unsigned long long)page->unshown);
    free(page);
    for (int i = 0; i < many; i++)
      coll_comm_destroy(&comms[round ? many - 1 - i : i]);
    page = own_page();
    cr_assert(page->ncomms == 1 && page->unshown == 0);
    free(page);
  }
  coll_comm_destroy(&base);
}

/* Finds the descriptor of this process's page. */
static int page_fd(void) {
  char path[40], target[64];
  for (int fd = 0; fd < 256; fd++) {
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length > 0 &&
        strncmp(target, "/memfd:" COLLI_STATUS_NAME, 7 + strlen(COLLI_STATUS_NAME)) == 0)
      return fd;
  }
  return -1;
}

/* A communicator that makes no sense is left out, and the rest of the page is shown. */
Test(page, with_a_wrong_communicator, .timeout = 60) {
  coll_comm *base = alone(), *child;
  cr_assert_eq(coll_comm_dup(base, NULL, &child), COLL_OK);
  colli_status_head *copy;
  struct stat info;
  int from = page_fd(), to = memfd_create("wrong", MFD_CLOEXEC);
  cr_assert(from >= 0 && to >= 0 && fstat(from, &info) == 0);
  char *bytes = malloc((size_t)info.st_size);
  cr_assert(bytes && pread(from, bytes, (size_t)info.st_size, 0) == info.st_size);
  cr_assert_eq(pwrite(to, bytes, (size_t)info.st_size, 0), info.st_size);
  cr_assert_null(colli_status_copy(to, &copy));
  cr_assert_eq(copy->ncomms, 2);
  free(copy);
  colli_status_head *head = (void *)bytes;
  const int32_t wrong = head->nranks + 1;
  char *first = (char *)colli_status_comm_at(head, 0);
  off_t at = first - bytes + (off_t)offsetof(colli_status_comm, nranks);
  cr_assert_eq(pwrite(to, &wrong, sizeof(wrong), at), (ssize_t)sizeof(wrong));
  cr_assert_null(colli_status_copy(to, &copy));
  cr_assert_eq(copy->ncomms, 1);
  cr_assert_neq(colli_status_comm_at(copy, 0)->uid, 0, "the base is the one that is wrong");
  free(copy);
  free(bytes);
  close(to);
  coll_comm_destroy(&child);
  coll_comm_destroy(&base);
}

/* Nobody else can change it, or cut it under its owner. */
Test(page, is_for_reading, .timeout = 60) {
  coll_comm *comm = alone();
  int fd = page_fd();
  cr_assert(fd >= 0);
  cr_assert(ftruncate(fd, 0) != 0 && errno == EPERM);
  cr_assert(pwrite(fd, "x", 1, 0) < 0 && errno == EPERM);
  cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  coll_comm_destroy(&comm);
  cr_assert_eq(page_fd(), -1);
}

/* A forked child does not show its parent's communicators. */
Test(page, of_the_parent_alone, .timeout = 60) {
  coll_comm *comm = alone();
  int out[2], in[2];
  char byte;
  cr_assert(pipe(out) == 0 && pipe(in) == 0);
  pid_t child = fork();
  if (child == 0) {
    close(out[1]);
    _exit(write(in[1], "r", 1) != 1 || read(out[0], &byte, 1) != 0);
  }
  cr_assert(child > 0 && read(in[0], &byte, 1) == 1);
  pages theirs = pages_of(child);
  cr_assert_eq(theirs.count, 0);
  free(own_page());
  close(out[1]);
  int status;
  cr_assert(waitpid(child, &status, 0) == child && status == 0);
  coll_comm_destroy(&comm);
}

/* If ulimit -f forbids files of that size, the job continues without a page. */
Test(page, without_one, .timeout = 60) {
  struct rlimit limit = {4096, 4096};
  float in = 2, out = 0;
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  coll_comm *comm = alone(), *child;
  cr_assert_eq(coll_comm_dup(comm, NULL, &child), COLL_OK);
  cr_assert_eq(coll_allreduce(&in, &out, 1, COLL_FLOAT32, COLL_SUM, child), COLL_OK);
  cr_assert_eq(out, 2);
  pages p = pages_of(getpid());
  cr_assert_eq(p.count, 0);
  coll_comm_destroy(&child);
  coll_comm_destroy(&comm);
}

/* Changed copies are refused, or can be used: no field points outside them. */
Test(page, with_wrong_bytes, .timeout = 100) {
  coll_comm *comm = alone();
  float in = 2, out = 0;
  cr_assert_eq(coll_allreduce(&in, &out, 1, COLL_FLOAT32, COLL_SUM, comm), COLL_OK);
  colli_status_head *right = own_page();
  size_t bytes = colli_status_bytes(right);
  unsigned char *wrong = malloc(bytes);
  colli_prng random = {42};
  int refused = 0;
  for (int round = 0; round < extent(2000, 20000, 1000); round++) {
    memcpy(wrong, right, bytes);
    for (int i = 0; i < 1 + round % 4; i++)
      wrong[colli_prng_next(&random) % (round % 2 ? 512 : bytes)] =
          (unsigned char)colli_prng_next(&random);
    size_t given = round % 8 ? bytes : colli_prng_next(&random) % bytes;
    colli_status_head *head = (colli_status_head *)(void *)wrong;
    if (colli_status_check(head, given)) {
      refused++;
      continue;
    }
    const colli_status_comm *shown = colli_status_comm_at(head, 0);
    for (int rank = 0; head->ncomms && rank < shown->nranks; rank++)
      cr_assert(colli_status_base_rank(shown, rank) < (uint64_t)head->nranks);
    cr_assert_lt(strlen(head->host), sizeof(head->host));
    for (int rank = 0; rank < head->nranks; rank++)
      cr_assert_leq(colli_status_ranks(head)[rank].lost_rails,
                    colli_status_ranks(head)[rank].rails);
  }
  cr_assert_gt(refused, 100);
  free(wrong);
  free(right);
  coll_comm_destroy(&comm);
}

/* A rank that waits takes from a page what it wants to know, if it is the right one. */
Test(page, looked_at_by_a_rank, .timeout = 60) {
  coll_comm *comm = alone(), *other;
  float in[3] = {1, 2, 3}, out[3];
  coll_request *request;
  colli_status_sight sight = {0};
  cr_assert_eq(coll_comm_dup(comm, NULL, &other), COLL_OK);
  cr_assert_eq(coll_allreduce(in, out, 3, COLL_FLOAT32, COLL_SUM, other), COLL_OK);
  cr_assert_eq(coll_send(in, 2, COLL_FLOAT32, 0, 5, other), COLL_OK);
  cr_assert_eq(coll_recv(out, 2, COLL_FLOAT32, 0, 5, NULL, other), COLL_OK);
  cr_assert_eq(coll_irecv(out, 1, COLL_FLOAT32, 0, 6, NULL, comm, &request), COLL_OK);
  colli_status_head *page = own_page();
  const uint64_t job = page->comm_id, uid = colli_status_comm_at(page, 1)->uid;
  free(page);
  cr_assert(colli_status_look(getpid(), job, 0, uid, &sight));
  cr_assert(sight.entered == 1 && sight.ended && sight.pending == 1);
  cr_assert(strchr("RS", sight.state), "state %c", sight.state);
  cr_assert_eq(colli_tag_get(&sight.tag, COLLI_TAG_COLL), COLLI_SENDRECV);
  cr_assert_lt(sight.since_ns, 60000000000ull);
  cr_assert(colli_status_look(getpid(), job, 0, 0, &sight));
  cr_assert(sight.entered == 1 && sight.pending == 1);
  cr_assert_not(colli_status_look(getpid(), job + 1, 0, uid, &sight));
  cr_assert_not(colli_status_look(getpid(), job, 1, uid, &sight));
  cr_assert_not(colli_status_look(getpid(), job, 0, uid + 1000, &sight));
  cr_assert_not(colli_status_look(getppid(), job, 0, uid, &sight));
  cr_assert_eq(coll_send(in, 1, COLL_FLOAT32, 0, 6, comm), COLL_OK);
  cr_assert_eq(coll_wait(&request, -1), COLL_OK);
  coll_comm_destroy(&other);
  coll_comm_destroy(&comm);
}

/* A descriptor of that name with other contents is passed over. */
Test(page, that_is_none, .timeout = 60) {
  coll_comm *comm = alone();
  int fd = memfd_create(COLLI_STATUS_NAME, MFD_CLOEXEC);
  cr_assert(fd >= 0);
  free(own_page());
  colli_prng random = {7};
  unsigned char noise[4096];
  for (size_t i = 0; i < sizeof(noise); i++)
    noise[i] = (unsigned char)colli_prng_next(&random);
  cr_assert_eq(write(fd, noise, sizeof(noise)), (ssize_t)sizeof(noise));
  free(own_page());
  colli_status_head head = {.magic = COLLI_STATUS_MAGIC,
                            .version = COLLI_STATUS_VERSION,
                            .nranks = COLLI_STATUS_RANKS,
                            .ncomms = COLLI_STATUS_COMMS,
                            .pid = getpid()};
  cr_assert_eq(pwrite(fd, &head, sizeof(head), 0), (ssize_t)sizeof(head));
  free(own_page());
  /* Sizes that agree, but nothing inside: it has no communicator. */
  head.nranks = 2;
  cr_assert_eq(pwrite(fd, &head, sizeof(head), 0), (ssize_t)sizeof(head));
  cr_assert_eq(ftruncate(fd, (off_t)(colli_status_head_bytes(2) +
                                     COLLI_STATUS_COMMS * colli_status_comm_bytes(2))),
               0);
  pages p = pages_of(getpid());
  cr_assert_leq(p.count, 2);
  drop(&p);
  close(fd);
  coll_comm_destroy(&comm);
}
