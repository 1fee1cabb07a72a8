/*
 * test_meet.c: rank 0 hands the id to the others while many strangers come, and while memory is
 * short.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/create/meet.h"

#define STRANGERS 64 /* so many that rank 0 closes older connections */

#define PATIENCE_NS (20 * COLLI_NS_PER_S)

static colli_seal key, host_seal;
static uint16_t first_port;
static int strangers[STRANGERS], came, opened;

/* Connects, and waits for the first byte of rank 0's answer. */
static bool come(uint16_t port) {
  const struct sockaddr_in addr = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const struct timeval most = {.tv_sec = 5};
  char byte;
  int fd = strangers[came] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return false;
  came++;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  return connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0 &&
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

/* Makes a meeting of two ranks. `instead`: how rank 0 seals and rank 1 opens, where it is not NULL.
 */
static void meet(const char *what, const colli_seal *instead) {
  colli_params params;
  coll_error error;
  coll_status host = COLL_ERR_TIMEOUT;
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
  pthread_t thread;
  cr_assert_eq(pthread_create(&thread, NULL, rank_zero, &host), 0);
  colli_id id = {.listen_fd = -1};
  coll_status status = colli_meet(&meeting, colli_now_ns() + PATIENCE_NS, 1, 2, &id, &error);
  cr_assert_eq(pthread_join(thread, NULL), 0);
  cr_expect_eq(status, COLL_OK, "%s", error.message);
  cr_expect_eq(host, COLL_OK);
  cr_expect_eq(id.comm_id, 7);
  colli_id_release(&id);
}

/* A rank whose connection rank 0 has closed because others came since is not lost: it comes again.
 */
Test(meet, crowd, .timeout = 60) {
  meet("crowd", &(colli_seal){.unwrap = unwrap_late});
  for (int i = 0; i < came; i++)
    close(strangers[i]);
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
