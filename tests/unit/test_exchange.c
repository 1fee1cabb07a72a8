/*
 * test_exchange.c: processes give each other descriptors: here they are parties of one process,
 * each of which is polled in turn. Who may take, what a party that goes wrong gets to hear,
 * strangers, and that nothing is left.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/net/exchange.h"

enum { PARTIES = 4, MOST_TURNS = 200000 };

TestSuite(exchange, .timeout = 60);

/* A party: its k-th descriptor is of a file with its rank and k, and stands for k + 1 bytes. */
typedef struct party {
  colli_exchange exchange;
  colli_exchange_place place;
  coll_error error;
  int rank, pieces;
  int fails_at;       /* the descriptor that it cannot make; -1: none */
  int refuses_at;     /* or does not want, of all */
  uint64_t lies;      /* bytes that it says too much of each */
  int given;          /* how often it was asked for one */
  int taken[PARTIES]; /* of each other party */
} party;

/* The bytes of the first k descriptors. */
static uint64_t sum_of(int k) {
  return (uint64_t)k * ((uint64_t)k + 1) / 2;
}

static int give(void *context, uint64_t given, uint64_t *bytes) {
  party *p = context;
  int k = 0;
  char text[32];
  while (sum_of(k) < given)
    k++;
  p->given++;
  if (k == p->fails_at) {
    p->error = (coll_error){.status = COLL_ERR_NO_MEMORY};
    return -1;
  }
  const int fd = COLLI_FD(memfd_create("given", MFD_CLOEXEC));
  const int length = snprintf(text, sizeof(text), "%d %d", p->rank, k);
  cr_assert_eq(write(fd, text, (size_t)length), length);
  *bytes = (uint64_t)k + 1 + p->lies;
  return fd;
}

static bool take(void *context, int peer, int fd, uint64_t bytes) {
  party *p = context;
  char text[32] = "";
  int rank = -1, k = -1, all = 0;
  cr_expect_gt(pread(fd, text, sizeof(text) - 1, 0), 0);
  cr_expect(sscanf(text, "%d %d", &rank, &k) == 2 && rank == peer && k == p->taken[peer]);
  cr_expect_eq(bytes, (uint64_t)k + 1);
  p->taken[peer]++;
  for (int i = 0; i < PARTIES; i++)
    all += p->taken[i];
  if (all - 1 != p->refuses_at)
    return true;
  p->error = (coll_error){.status = COLL_ERR_INVALID_USAGE};
  return false;
}

/* Opens a party that gives so many; the secret is of one byte. */
static void begin(party *p, int rank, int pieces, uint8_t secret[COLL_SECRET_BYTES]) {
  const colli_exchange_party who = {secret, 77, 5, rank, PARTIES};
  const colli_exchange_calls calls = {p, give, take};
  *p = (party){.rank = rank, .pieces = pieces, .fails_at = -1, .refuses_at = -1};
  cr_assert_eq(
      colli_exchange_open(&p->exchange, &who, &calls, sum_of(pieces), &p->place, &p->error),
      COLL_OK);
  cr_assert_eq(p->place.name_bytes > 0, pieces > 0);
}

static uint8_t secret[COLL_SECRET_BYTES] = {1}, other_secret[COLL_SECRET_BYTES] = {2};

/* Polls all until those that take have all, or have given up. */
static void run(party *p, int count) {
  for (int turn = 0; turn < MOST_TURNS; turn++) {
    bool busy = false;
    for (int i = 0; i < count; i++) {
      colli_exchange_poll(&p[i].exchange);
      busy = busy || (p[i].error.status == COLL_OK && colli_exchange_lacks(&p[i].exchange) >= 0);
    }
    if (!busy)
      return;
  }
  cr_assert_fail("it does not end");
}

static void end(party *p, int count) {
  for (int i = 0; i < count; i++)
    colli_exchange_close(&p[i].exchange);
}

static int count_fds(void) {
  DIR *dir = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(dir))
    count++;
  closedir(dir);
  return count;
}

Test(exchange, all_with_all) {
  static const int pieces[PARTIES] = {30, 0, 1, 2 * COLLI_EXCHANGE_AHEAD};
  party p[PARTIES];
  const int before = count_fds();
  for (int i = 0; i < PARTIES; i++)
    begin(&p[i], i, pieces[i], secret);
  for (int i = 0; i < PARTIES; i++)
    for (int from = 0; from < PARTIES; from++)
      if (from != i && pieces[from] > 0)
        colli_exchange_take(&p[i].exchange, from, &p[from].place, sum_of(pieces[from]));
  run(p, PARTIES);
  for (int i = 0; i < PARTIES; i++) {
    cr_expect_eq(p[i].error.status, COLL_OK, "%s", p[i].error.message);
    for (int from = 0; from < PARTIES; from++)
      cr_expect_eq(p[i].taken[from], from == i ? 0 : pieces[from], "%d from %d", i, from);
  }
  end(p, PARTIES);
  cr_expect_eq(count_fds(), before);
  colli_exchange_close(&p[0].exchange); /* again */
}

/* A taker that does not look gets no more than the kernel should have to keep. */
Test(exchange, no_more_ahead) {
  party p[2];
  begin(&p[0], 0, 100, secret);
  begin(&p[1], 1, 0, secret);
  colli_exchange_take(&p[1].exchange, 0, &p[0].place, sum_of(100));
  while (p[0].given == 0)
    for (int i = 0; i < 2; i++)
      colli_exchange_poll(&p[1 - i].exchange);
  const int taken = p[1].taken[0];
  for (int i = 0; i < 1000; i++)
    colli_exchange_poll(&p[0].exchange);
  cr_expect_leq(p[0].given, taken + COLLI_EXCHANGE_AHEAD);
  run(p, 2);
  cr_expect_eq(p[1].taken[0], 100);
  end(p, 2);
}

/* What a taker hears that claims to be something else, or goes to somebody else. */
static void expect_refusal(const colli_exchange_party *who, int from, coll_status status,
                           const char *words) {
  party p[2];
  const colli_exchange_calls calls = {&p[1], give, take};
  const int before = count_fds();
  begin(&p[0], 0, 9, secret);
  p[1] = (party){.fails_at = -1, .refuses_at = -1};
  cr_assert_eq(colli_exchange_open(&p[1].exchange, who, &calls, 0, &p[1].place, &p[1].error),
               COLL_OK);
  colli_exchange_take(&p[1].exchange, from, &p[0].place, sum_of(9));
  run(p, 2);
  cr_expect_eq(p[1].error.status, status, "%s", p[1].error.message);
  cr_expect(strstr(p[1].error.message, words), "%s", p[1].error.message);
  cr_expect(p[1].taken[0] == 0 && p[0].given == 0);
  cr_expect_eq(p[0].error.status, COLL_OK);
  end(p, 2);
  cr_expect_eq(count_fds(), before);
}

Test(exchange, who_may_take) {
  const coll_status lost = COLL_ERR_PEER_LOST;
  expect_refusal(&(colli_exchange_party){other_secret, 77, 5, 1, PARTIES}, 0, COLL_ERR_AUTH,
                 "rank 0 does not know this communicator's secret");
  expect_refusal(&(colli_exchange_party){secret, 78, 5, 1, PARTIES}, 0, lost, "rank 0 has closed");
  expect_refusal(&(colli_exchange_party){secret, 77, 6, 1, PARTIES}, 0, lost, "rank 0 has closed");
  expect_refusal(&(colli_exchange_party){secret, 77, 5, 0, PARTIES}, 0, lost, "rank 0 has closed");
  expect_refusal(&(colli_exchange_party){secret, 77, 5, 1, PARTIES}, 2, lost, "rank 2 has closed");
  expect_refusal(&(colli_exchange_party){secret, 77, 5, PARTIES, PARTIES}, 0, lost, "has closed");
}

/* Two parties with one rank: the second one is refused. */
Test(exchange, a_rank_takes_once) {
  party p[3];
  begin(&p[0], 0, 100, secret);
  begin(&p[1], 1, 0, secret);
  begin(&p[2], 1, 0, secret);
  colli_exchange_take(&p[1].exchange, 0, &p[0].place, sum_of(100));
  while (p[0].given == 0)
    for (int i = 0; i < 2; i++)
      colli_exchange_poll(&p[i].exchange);
  colli_exchange_take(&p[2].exchange, 0, &p[0].place, sum_of(100));
  while (p[2].error.status == COLL_OK)
    for (int i = 0; i < 3; i += 2)
      colli_exchange_poll(&p[i].exchange);
  cr_expect_eq(p[2].error.status, COLL_ERR_PEER_LOST);
  run(p, 2);
  cr_expect_eq(p[1].taken[0], 100);
  end(p, 3);
}

/* A giver that fails leaves its takers alone; one that lies is found out. All close what they have.
 */
Test(exchange, givers_that_fail) {
  for (int how = 0; how < 3; how++) {
    party p[2];
    const int before = count_fds();
    for (int i = 0; i < 2; i++)
      begin(&p[i], i, 20, secret);
    if (how == 0)
      p[0].fails_at = 12;
    else if (how == 1)
      p[0].lies = sum_of(20);
    else
      p[0].place.name_bytes = 0;
    colli_exchange_take(&p[1].exchange, 0, &p[0].place, sum_of(20));
    run(p, 2);
    cr_expect_eq(p[1].error.status, how == 1 ? COLL_ERR_PROTOCOL : COLL_ERR_PEER_LOST, "%d: %s",
                 how, p[1].error.message);
    cr_expect_eq(p[1].taken[0], how == 0 ? 12 : 0, "%d: %d", how, p[1].taken[0]);
    cr_expect_eq(p[0].error.status, how == 0 ? COLL_ERR_NO_MEMORY : COLL_OK);
    cr_expect_eq(colli_exchange_lacks(&p[1].exchange), 0);
    end(p, 2);
    cr_expect_eq(count_fds(), before);
  }
}

/* A party that can take no more still gives. */
Test(exchange, takers_that_give_up) {
  party p[3];
  for (int i = 0; i < 3; i++)
    begin(&p[i], i, 20, secret);
  p[1].refuses_at = 7;
  for (int i = 0; i < 3; i++)
    for (int from = 0; from < 3; from++)
      if (from != i)
        colli_exchange_take(&p[i].exchange, from, &p[from].place, sum_of(20));
  run(p, 3);
  cr_expect_eq(p[1].error.status, COLL_ERR_INVALID_USAGE);
  cr_expect_eq(p[1].taken[0] + p[1].taken[2], 8);
  for (int i = 0; i < 3; i += 2) {
    cr_expect_eq(p[i].error.status, COLL_OK, "%s", p[i].error.message);
    cr_expect(p[i].taken[1] == 20 && p[i].taken[2 - i] == 20);
  }
  end(p, 3);
}

/* Connects to a party. */
static int connect_to(const party *p) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, p->place.name, p->place.name_bytes);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + p->place.name_bytes);
  cr_assert_eq(connect(fd, (struct sockaddr *)&address, bytes), 0);
  return fd;
}

/* Silent ones take up all the room, for a moment; one that talks nonsense is turned away. */
Test(exchange, strangers) {
  party p[2];
  int silent[20];
  char byte;
  begin(&p[0], 0, 20, secret);
  begin(&p[1], 1, 0, secret);
  const int fd = connect_to(&p[0]);
  cr_assert_eq(send(fd, memset((char[200]){0}, 'x', 200), 200, 0), 200);
  colli_exchange_poll(&p[0].exchange);
  cr_expect_leq(recv(fd, &byte, 1, 0), 0);
  close(fd);
  for (int i = 0; i < 20; i++)
    silent[i] = connect_to(&p[0]);
  colli_exchange_take(&p[1].exchange, 0, &p[0].place, sum_of(20));
  while (p[1].taken[0] < 20 && p[1].error.status == COLL_OK)
    for (int i = 0; i < 2; i++)
      colli_exchange_poll(&p[i].exchange);
  cr_expect_eq(p[1].taken[0], 20, "%s", p[1].error.message);
  end(p, 2);
  for (int i = 0; i < 20; i++) {
    cr_expect_leq(recv(silent[i], &byte, 1, 0), 0);
    close(silent[i]);
  }
}
