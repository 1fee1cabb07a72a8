/*
 * test_meet.c: rank 0 hands the id to the others while many strangers come, and while memory is
 * short.
 *
 * What strangers cost a meeting, if so many are there (some seconds, on an idle machine):
 *
 *   TEST_STRANGERS=10000 build/tests/doors_test_meet --verbose --filter 'meet/cost*'
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/create/meet_wire.h"
#include "support_strangers.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

#define STRANGERS 64 /* so many that rank 0 closes older connections */

#define PATIENCE_NS (20 * COLLI_NS_PER_S)

static colli_seal key, host_seal;
static uint16_t first_port;
static int crowd[STRANGERS], came, opened, crowd_host = 1;

/* Connects from 127.0.0.`crowd_host`, greets, and waits for the first byte of rank 0's answer. */
static bool come(uint16_t port) {
  const struct sockaddr_in addr = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const struct sockaddr_in from = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(0x7f000000u + (uint32_t)crowd_host)};
  const struct timeval most = {.tv_sec = 5};
  const colli_meet_greeting greeting = {.magic = COLLI_MEET_GREETING};
  char byte;
  int fd = crowd[came] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return false;
  came++;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  return bind(fd, (const struct sockaddr *)&from, sizeof(from)) == 0 &&
         connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 &&
         send(fd, &greeting, sizeof(greeting), MSG_NOSIGNAL) == (ssize_t)sizeof(greeting) &&
         recv(fd, &byte, 1, 0) == 1;
}

/* Takes as long to open rank 0's answer as all strangers need to come. */
static coll_status unwrap_late(const colli_seal *seal, uint64_t deadline_ns, const uint8_t *sealed,
                               size_t sealed_bytes, void *data, size_t bytes, coll_error *error) {
  bool well = true;
  while (opened == 0 && came < STRANGERS && well)
    well = come(first_port);
  opened++;
  cr_expect(well, "stranger %d", came);
  return key.unwrap(seal, deadline_ns, sealed, sealed_bytes, data, bytes, error);
}

static void *rank_zero(void *arg) {
  colli_id id;
  coll_error error;
  coll_status *status = arg;
  *status = colli_id_fresh(&id, &error);
  id.comm_id = 7;
  id.addrs[0] = (colli_addr){.family = 4, .port = first_port, .ip = {127, 0, 0, 1}};
  colli_meeting meeting = {
      .host = "127.0.0.1", .job = "job", .port = first_port, .seal = host_seal};
  if (*status == COLL_OK)
    *status = colli_meet(&meeting, colli_now_ns() + PATIENCE_NS, 0, 2, &id, &error);
  colli_id_release(&id);
  return NULL;
}

/* Prepares a meeting of two ranks. `instead`: how rank 0 seals and rank 1 opens, where it is not
 * NULL. */
static colli_meeting prepare(const char *what, const colli_seal *instead) {
  colli_params params;
  coll_error error;
  char name[32];
  cr_assert_eq(colli_params_load(&params, &error), COLL_OK);
  snprintf(name, sizeof(name), "%s %d", what, (int)getpid());
  colli_meeting meeting = {.host = "127.0.0.1", .job = "job"};
  cr_assert_eq(colli_meet_ports(&meeting, &params, name, &error), COLL_OK);
  cr_assert_eq(colli_seal_key(NULL, name, &key, &error), COLL_OK);
  first_port = meeting.port;
  host_seal = meeting.seal = key;
  if (instead->wrap)
    host_seal.wrap = instead->wrap;
  if (instead->unwrap)
    meeting.seal.unwrap = instead->unwrap;
  return meeting;
}

/* Rank 1 comes. */
static void come_as_rank(const colli_meeting *meeting) {
  coll_error error;
  colli_id id = {.listen_fd = -1};
  coll_status status = colli_meet(meeting, colli_now_ns() + PATIENCE_NS, 1, 2, &id, &error);
  cr_expect_eq(status, COLL_OK, "%s", error.message);
  cr_expect_eq(id.comm_id, 7);
  colli_id_release(&id);
}

/* Makes a meeting. */
static void meet(const char *what, const colli_seal *instead) {
  coll_status host = COLL_ERR_TIMEOUT;
  pthread_t thread;
  const colli_meeting meeting = prepare(what, instead);
  cr_assert_eq(pthread_create(&thread, NULL, rank_zero, &host), 0);
  come_as_rank(&meeting);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  cr_expect_eq(host, COLL_OK);
}

/* Whether rank 0 listens. */
static bool is_listening(void) {
  uint16_t ports[8];
  int count = listening_ports(ports, 8, true);
  for (int i = 0; i < count; i++)
    if (ports[i] >= first_port && ports[i] < first_port + COLLI_MEET_PORTS)
      return true;
  return false;
}

/* A rank whose connection rank 0 has closed because others came since is not lost: it comes again.
 */
Test(meet, crowd, .timeout = 60) {
  meet("crowd", &(colli_seal){.unwrap = unwrap_late});
  for (int i = 0; i < came; i++)
    close(crowd[i]);
}

/* Strangers of one host make room for each other, and a rank of another host stays. */
Test(meet, crowd_of_one_source, .timeout = 60) {
  crowd_host = 2;
  meet("source", &(colli_seal){.unwrap = unwrap_late});
  cr_expect_eq(opened, 1, "rank 0 closed the rank's connection %d times", opened - 1);
  for (int i = 0; i < came; i++)
    close(crowd[i]);
}

static int fds_before;

/* Counts the descriptors that strangers who came before rank 1 have cost rank 0. */
static coll_status unwrap_counted(const colli_seal *seal, uint64_t deadline_ns,
                                  const uint8_t *sealed, size_t sealed_bytes, void *data,
                                  size_t bytes, coll_error *error) {
  cr_expect_leq(count_fds(), fds_before + 6, "two hold strangers, two are of rank 1");
  opened++;
  return key.unwrap(seal, deadline_ns, sealed, sealed_bytes, data, bytes, error);
}

Test(meet, the_kernel_keeps_who_does_not_greet, .timeout = 60) {
  pthread_t thread;
  coll_status host = COLL_ERR_TIMEOUT;
  const speeches garbage = {.count = 1, .bytes = 200};
  const colli_meeting meeting = prepare("silent", &(colli_seal){.unwrap = unwrap_counted});
  cr_assert_eq(pthread_create(&thread, NULL, rank_zero, &host), 0);
  cr_assert(WAIT_UNTIL(is_listening(), 20));
  fds_before = count_fds();
  strangers talking = strangers_come(first_port, 100, &garbage);
  strangers silent = strangers_come(first_port, 100, &(speeches){.count = 0});
  come_as_rank(&meeting);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  cr_expect_eq(host, COLL_OK);
  cr_expect_eq(opened, 1);
  strangers_leave(&silent);
  strangers_leave(&talking);
}

/* Comes ten times from another address. */
static void *send_crowd(void *arg) {
  bool *well = arg;
  crowd_host = 2;
  *well = WAIT_UNTIL(is_listening(), 20);
  while (came < 10 && *well)
    *well = come(first_port);
  return NULL;
}

Test(meet, strangers_are_counted_in_the_message, .timeout = 60) {
  pthread_t thread;
  bool well;
  coll_error error;
  const colli_meeting meeting = prepare("counted", &(colli_seal){.wrap = NULL});
  cr_assert_eq(pthread_create(&thread, NULL, send_crowd, &well), 0);
  const uint64_t deadline_ns = colli_now_ns() + (uint64_t)slow_ms(2000) * COLLI_NS_PER_MS;
  cr_assert_eq(colli_meet(&meeting, deadline_ns, 0, 2, NULL, &error), COLL_ERR_TIMEOUT);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  cr_assert(well);
  cr_expect(strstr(error.message, "meanwhile 10 strangers connected, 10 of them from 127.0.0.2"),
            "%s", error.message);
  for (int i = 0; i < came; i++)
    close(crowd[i]);
}

static int refused;

/* Lacks memory three times. */
static coll_status wrap_late(const colli_seal *seal, uint64_t deadline_ns, const void *data,
                             size_t bytes, uint8_t out[COLLI_SEALED_MAX], size_t *used,
                             coll_error *error) {
  if (refused == 3)
    return key.wrap(seal, deadline_ns, data, bytes, out, used, error);
  return colli_error_set(error, ++refused == 2 ? COLL_ERR_SYSTEM : COLL_ERR_NO_MEMORY, "create",
                         "nothing left");
}

Test(meet, shortage, .timeout = 60) {
  meet("shortage", &(colli_seal){.wrap = wrap_late});
  cr_expect_eq(refused, 3);
}

/* ---- what strangers cost --------------------------------------------------------------------- */

enum { CROWD_NONE, CROWD_SILENT, CROWD_GARBAGE, CROWD_GREETS, CROWDS, ROUNDS = 9 };

/* What strangers of a crowd say. */
static void write_words(int how, speeches *words) {
  const colli_meet_greeting greeting = {.magic = COLLI_MEET_GREETING};
  memset(words, 'x', sizeof(*words));
  words->count = how >= CROWD_GARBAGE;
  words->bytes = how == CROWD_GREETS ? sizeof(greeting) : sizeof(words->text[0]);
  if (how == CROWD_GREETS)
    memcpy(words->text[0], &greeting, sizeof(greeting));
}

/* How long rank 1 takes among strangers, in milliseconds. */
static double meet_among(int how, int count) {
  coll_status host = COLL_ERR_TIMEOUT;
  pthread_t thread;
  speeches words;
  strangers who = {0};
  const colli_meeting meeting = prepare("cost", &(colli_seal){.wrap = NULL});
  cr_assert_eq(pthread_create(&thread, NULL, rank_zero, &host), 0);
  cr_assert(WAIT_UNTIL(is_listening(), 20));
  write_words(how, &words);
  if (how != CROWD_NONE)
    who = strangers_come(first_port, count, &words);
  const uint64_t begin_ns = colli_now_ns();
  come_as_rank(&meeting);
  const double ms = (double)(colli_now_ns() - begin_ns) / COLLI_NS_PER_MS;
  cr_assert_eq(pthread_join(thread, NULL), 0);
  cr_expect_eq(host, COLL_OK);
  if (how != CROWD_NONE)
    strangers_leave(&who);
  return ms;
}

static int by_size(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

Test(meet, cost_of_strangers, .timeout = 600) {
  static const char *const names[CROWDS] = {"no strangers", "silent", "garbage", "greeting"};
  static double ms[CROWDS][ROUNDS];
  const char *text = getenv("TEST_STRANGERS");
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  int count = text ? atoi(text) : 500, rounds = text ? ROUNDS : 1;
  count = limit.rlim_max < (rlim_t)count + 64 ? (int)limit.rlim_max - 64 : count;
  for (int i = 0; i < rounds; i++)
    for (int how = 0; how < CROWDS; how++)
      ms[how][i] = meet_among(how, count);
  for (int how = 0; how < CROWDS; how++) {
    qsort(ms[how], (size_t)rounds, sizeof(ms[how][0]), by_size);
    cr_log_info("%d strangers, %-12s: a meeting takes %.1f ms (%.1f to %.1f)", how ? count : 0,
                names[how], ms[how][rounds / 2], ms[how][0], ms[how][rounds - 1]);
  }
}
