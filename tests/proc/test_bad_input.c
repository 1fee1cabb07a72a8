/* test_bad_input.c: each wrong argument or variable gets one clear error. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/wireup/bootstrap/bootstrap.h"
#include "support_ranks.h"

/* Expects a status and a message that holds a word. */
#define EXPECT(call, wanted, word)                                                                 \
  do {                                                                                             \
    coll_status got_ = (call);                                                                     \
    coll_error error_ = COLL_ERROR_INIT;                                                           \
    coll_last_error(comm, &error_);                                                                \
    RANK_CHECK(got_ == (wanted));                                                                  \
    RANK_CHECK(strstr(error_.message, word) != NULL);                                              \
  } while (0)

static int bad_arguments(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int buf[64] = {0};
  coll_request *none = NULL;
  int number;
  EXPECT(coll_allreduce(NULL, buf, 1, COLL_INT32, COLL_SUM, comm), COLL_ERR_INVALID_ARGUMENT,
         "sendbuf");
  EXPECT(coll_allreduce(buf, NULL, 1, COLL_INT32, COLL_SUM, comm), COLL_ERR_INVALID_ARGUMENT,
         "recvbuf");
  EXPECT(coll_allreduce(buf, buf + 1, 8, COLL_INT32, COLL_SUM, comm), COLL_ERR_INVALID_ARGUMENT,
         "overlap");
  EXPECT(coll_allreduce(buf, buf, 1, (coll_type)99, COLL_SUM, comm), COLL_ERR_INVALID_ARGUMENT,
         "99");
  EXPECT(coll_allreduce(buf, buf, 1, (coll_type)-1, COLL_SUM, comm), COLL_ERR_INVALID_ARGUMENT,
         "-1");
  EXPECT(coll_allreduce(buf, buf, 1, COLL_INT32, (coll_op)99, comm), COLL_ERR_INVALID_ARGUMENT,
         "99");
  EXPECT(coll_allreduce(buf, buf, (size_t)-1, COLL_INT8, COLL_SUM, comm), COLL_ERR_INVALID_ARGUMENT,
         "negative");
  EXPECT(coll_allreduce(buf, buf, SIZE_MAX / 2, COLL_INT64, COLL_SUM, comm),
         COLL_ERR_INVALID_ARGUMENT, "memory");
  EXPECT(coll_allgather(buf, buf, PTRDIFF_MAX / (size_t)nranks + 1, COLL_INT8, comm),
         COLL_ERR_INVALID_ARGUMENT, "memory");
  EXPECT(coll_broadcast(buf, buf, 1, COLL_INT32, nranks, comm), COLL_ERR_INVALID_ARGUMENT, "root");
  EXPECT(coll_broadcast(buf, buf, 1, COLL_INT32, -1, comm), COLL_ERR_INVALID_ARGUMENT, "root");
  EXPECT(coll_send(buf, 1, COLL_INT32, -1, 0, comm), COLL_ERR_INVALID_ARGUMENT, "peer");
  EXPECT(coll_recv(buf, 1, COLL_INT32, nranks, 0, NULL, comm), COLL_ERR_INVALID_ARGUMENT, "peer");
  EXPECT(coll_send(buf, 1, COLL_INT32, 0, -1, comm), COLL_ERR_INVALID_ARGUMENT, "tag");
  EXPECT(coll_isend(buf, 1, COLL_INT32, (rank + 1) % nranks, 0, comm, NULL),
         COLL_ERR_INVALID_ARGUMENT, "request");
  RANK_CHECK(coll_allreduce(buf, buf, 1, COLL_INT32, COLL_SUM, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_test(NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_test(&none) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_wait(&none, 0) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_wait_any(NULL, 1, &number, 0) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_wait_any(&none, -1, &number, 0) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_rank(NULL, &number) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_nranks(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_last_error(comm, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_abort(NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_destroy(NULL) == COLL_ERR_INVALID_ARGUMENT);
  /* nothing of this was sent: the communicator works */
  RANK_OK(coll_allreduce(buf, buf, 64, COLL_INT32, COLL_SUM, comm));
  RANK_OK(coll_allreduce(NULL, NULL, 0, COLL_INT32, COLL_SUM, comm));
  return 0;
}

Test(bad_input, arguments, .timeout = 20) {
  cr_assert_eq(run_threads(2, NULL, bad_arguments, NULL), 0);
  cr_assert_eq(run_threads(3, NULL, bad_arguments, NULL), 0);
}

/* Old programs have shorter records and configurations than the library. */
static int small_structs(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  union {
    coll_error error;
    unsigned char bytes[sizeof(coll_error)];
  } old;
  memset(&old, 0x5a, sizeof(old));
  old.error.size = offsetof(coll_error, peer);
  coll_allreduce(NULL, NULL, 1, COLL_INT8, COLL_SUM, comm);
  RANK_OK(coll_last_error(comm, &old.error));
  RANK_CHECK(old.error.status == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(old.bytes[offsetof(coll_error, peer)] == 0x5a);
  RANK_CHECK(old.error.size == offsetof(coll_error, peer));
  return 0;
}

Test(bad_input, small_structs, .timeout = 20) {
  cr_assert_eq(run_threads(1, NULL, small_structs, NULL), 0);
}

/* Bad arguments of calls that create; the record is returned through the configuration. */
Test(bad_input, create_arguments, .timeout = 20) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  coll_comm *comm = NULL;
  coll_id id, junk;
  memset(&junk, 7, sizeof(junk));
  int fds = count_fds();
  cr_assert_eq(coll_unique_id(&id, &config), COLL_OK);
  cr_expect_eq(coll_comm_create(&comm, &id, 2, 2, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect(strstr(error.message, "rank 2"), "%s", error.message);
  cr_expect_eq(coll_comm_create(&comm, &id, 2, -1, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_create(&comm, &id, 0, 0, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_create(&comm, &id, -4, 0, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_create(&comm, &junk, 2, 0, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_create(&comm, NULL, 2, 0, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_create(NULL, &id, 2, 0, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_unique_id(NULL, NULL), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_null(comm);
  config.timeout_ms = -5;
  cr_expect_eq(coll_comm_create_local(&comm, 1, &config), COLL_ERR_INVALID_ARGUMENT);
  config.timeout_ms = 0;
  cr_expect_eq(coll_comm_create_local(&comm, 0, &config), COLL_ERR_INVALID_ARGUMENT);
  cr_expect_eq(coll_comm_create_local(NULL, 1, &config), COLL_ERR_INVALID_ARGUMENT);
  config.transport = "shm,pigeon";
  cr_expect_eq(coll_comm_create_local(&comm, 1, &config), COLL_ERR_INVALID_USAGE);
  cr_expect(strstr(error.message, "pigeon") && strstr(error.message, "tcp"), "%s", error.message);
  coll_config empty = {0};
  cr_expect_eq(coll_comm_create_local(&comm, 1, &empty), COLL_ERR_INVALID_ARGUMENT);
  cr_assert_eq(coll_unique_id_release(&id), COLL_OK);
  cr_assert_eq(coll_unique_id_release(&id), COLL_OK);
  cr_assert_eq(count_fds(), fds);
}

/* Runs coll_init_from_env with some variables set; the message must hold a word. */
static void env_case(const char *const *pairs, coll_status wanted, const char *word) {
  pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; pairs[i]; i += 2)
      setenv(pairs[i], pairs[i + 1], 1);
    coll_error error = COLL_ERROR_INIT;
    coll_config config = COLL_CONFIG_INIT;
    config.error = &error;
    config.create_timeout_ms = 300;
    coll_comm *comm = NULL;
    coll_status status = coll_init_from_env(&comm, &config);
    coll_comm_destroy(&comm);
    if (status == wanted && (wanted == COLL_OK || strstr(error.message, word)))
      _exit(0);
    fprintf(stderr, "%s: wanted %s with '%s', got %s: %s\n", pairs[0] ? pairs[0] : "no variables",
            coll_status_name(wanted), word, coll_status_name(status), error.message);
    _exit(1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  cr_expect_eq(status, 0);
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SECRET   "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

Test(bad_input, environment, .timeout = 30) {
  env_case((const char *const[]){NULL}, COLL_OK, "");
  env_case(ENV("COLL_RANK", "0", "COLL_NRANKS", "1"), COLL_OK, "");
  env_case(ENV("COLL_RANK", "2", "COLL_NRANKS", "2"), COLL_ERR_INVALID_USAGE, "COLL_RANK=2");
  env_case(ENV("COLL_RANK", "-1", "COLL_NRANKS", "2"), COLL_ERR_INVALID_USAGE, "COLL_RANK=-1");
  env_case(ENV("COLL_RANK", "zero", "COLL_NRANKS", "2"), COLL_ERR_INVALID_USAGE, "zero");
  env_case(ENV("COLL_RANK", "0", "COLL_NRANKS", "0"), COLL_ERR_INVALID_USAGE, "COLL_NRANKS");
  env_case(ENV("COLL_RANK", "0", "COLL_NRANKS", "9999999999999"), COLL_ERR_INVALID_USAGE,
           "COLL_NRANKS");
  env_case(ENV("COLL_RANK", "0"), COLL_ERR_INVALID_USAGE, "COLL_NRANKS");
  env_case(ENV("COLL_NRANKS", "2"), COLL_ERR_INVALID_USAGE, "COLL_RANK");
  env_case(ENV("COLL_RANK", "1", "COLL_NRANKS", "2"), COLL_ERR_INVALID_USAGE, "COLL_ROOT");
  env_case(ENV("COLL_RANK", "1", "COLL_NRANKS", "2", "COLL_ROOT", "127.0.0.1:9"),
           COLL_ERR_INVALID_USAGE, "COLL_SECRET");
  env_case(
      ENV("COLL_RANK", "1", "COLL_NRANKS", "2", "COLL_ROOT", "127.0.0.1:9", "COLL_SECRET", "abc"),
      COLL_ERR_INVALID_USAGE, "COLL_SECRET");
  env_case(
      ENV("COLL_RANK", "1", "COLL_NRANKS", "2", "COLL_ROOT", "nonsense", "COLL_SECRET", SECRET),
      COLL_ERR_INVALID_USAGE, "nonsense");
  env_case(ENV("COLL_RANK", "1", "COLL_NRANKS", "2", "COLL_ROOT", "127.0.0.1:99999", "COLL_SECRET",
               SECRET),
           COLL_ERR_INVALID_USAGE, "99999");
  env_case(ENV("COLL_RANK", "0", "COLL_NRANKS", "2", "COLL_ROOT", "127.0.0.1:9", "COLL_SECRET",
               SECRET, "COLL_ROOT_FD", "0"),
           COLL_ERR_INVALID_USAGE, "COLL_ROOT_FD");
  env_case(ENV("COLL_TIMEOUT_MS", "soon"), COLL_ERR_INVALID_USAGE, "COLL_TIMEOUT_MS");
  env_case(ENV("COLL_TIMEUOT_MS", "5"), COLL_ERR_INVALID_USAGE, "COLL_TIMEOUT_MS");
  env_case(ENV("COLL_TRANSPORT", "smoke"), COLL_ERR_INVALID_USAGE, "smoke");
  env_case(ENV("COLL_ALGO", "allreduce:zigzag"), COLL_ERR_INVALID_USAGE, "ring");
  env_case(ENV("COLL_ALGO", "ring"), COLL_ERR_INVALID_USAGE, "allreduce:ring");
  env_case(ENV("COLL_LOG", "loud"), COLL_ERR_INVALID_USAGE, "COLL_LOG");
}

/* While rank 0 waits for rank 1, strangers connect: with random bytes, silence, a wrong secret. */
typedef struct listener {
  coll_id id;
  int rank, nranks;
  int timeout_ms;
  coll_status status;
  coll_error error;
} listener;

static void *enter(void *arg) {
  listener *d = arg;
  coll_config config = COLL_CONFIG_INIT;
  d->error = (coll_error)COLL_ERROR_INIT;
  config.error = &d->error;
  config.create_timeout_ms = d->timeout_ms;
  coll_comm *comm = NULL;
  d->status = coll_comm_create(&comm, &d->id, d->nranks, d->rank, &config);
  int value = 1;
  if (d->status == COLL_OK)
    d->status = coll_allreduce(&value, &value, 1, COLL_INT32, COLL_SUM, comm);
  coll_comm_destroy(&comm);
  return NULL;
}

/* Connects to the id's port and sends some bytes. */
static int connect_and_send(const coll_id *id, const void *bytes, size_t count) {
  colli_id unpacked;
  cr_assert_eq(colli_id_unpack(id, &unpacked, NULL), COLL_OK);
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons(unpacked.addrs[0].port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
  colli_id_release(&unpacked);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
  cr_assert_eq(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
  return fd;
}

Test(bad_input, strangers, .timeout = 30) {
  listener a = {.rank = 0, .nranks = 2, .timeout_ms = 8000},
           b = {.rank = 1, .nranks = 2, .timeout_ms = 8000};
  cr_assert_eq(coll_unique_id(&a.id, NULL), COLL_OK);
  b.id = a.id;
  pthread_t first, second;
  cr_assert_eq(pthread_create(&first, NULL, enter, &a), 0);
  unsigned char noise[3000];
  srand(42);
  for (size_t i = 0; i < sizeof(noise); i++)
    noise[i] = (unsigned char)rand();
  int fds[6];
  fds[0] = connect_and_send(&a.id, noise, sizeof(noise));
  fds[1] = connect_and_send(&a.id, noise, 1);
  fds[2] = connect_and_send(&a.id, "", 0);
  fds[3] = connect_and_send(&a.id, "GET / HTTP/1.0\r\n\r\n", 18);
  listener thief = {.rank = 1, .nranks = 2, .timeout_ms = 4000, .id = a.id};
  colli_id guess;
  cr_assert_eq(colli_id_unpack(&a.id, &guess, NULL), COLL_OK);
  guess.secret->bytes[5] ^= 1;
  colli_id_pack(&guess, &thief.id);
  colli_id_release(&guess);
  enter(&thief);
  cr_expect_eq(thief.status, COLL_ERR_AUTH, "%s", thief.error.message);
  cr_assert_eq(pthread_create(&second, NULL, enter, &b), 0);
  pthread_join(first, NULL);
  pthread_join(second, NULL);
  cr_expect_eq(a.status, COLL_OK, "%s", a.error.message);
  cr_expect_eq(b.status, COLL_OK, "%s", b.error.message);
  for (int i = 0; i < 4; i++)
    close(fds[i]);
}

/* Two processes claim rank 1. */
Test(bad_input, rank_taken_twice, .timeout = 30) {
  listener listeners[3];
  pthread_t threads[3];
  coll_id id;
  cr_assert_eq(coll_unique_id(&id, NULL), COLL_OK);
  for (int i = 0; i < 3; i++) {
    listeners[i] = (listener){.id = id, .rank = i == 0 ? 0 : 1, .nranks = 3, .timeout_ms = 4000};
    cr_assert_eq(pthread_create(&threads[i], NULL, enter, &listeners[i]), 0);
  }
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
    cr_expect_eq(listeners[i].status, COLL_ERR_MISMATCH, "%d: %s", i, listeners[i].error.message);
    cr_expect(strstr(listeners[i].error.message, "rank 1"), "%s", listeners[i].error.message);
  }
}

/* Ranks that never come are named. */
Test(bad_input, missing_ranks, .timeout = 30) {
  listener listeners[2];
  pthread_t threads[2];
  coll_id id;
  cr_assert_eq(coll_unique_id(&id, NULL), COLL_OK);
  for (int i = 0; i < 2; i++) {
    /* Rank 0 says it a second before that, so that a busy machine has time to pass it on. */
    listeners[i] = (listener){.id = id, .rank = 2 * i, .nranks = 4, .timeout_ms = 5000};
    cr_assert_eq(pthread_create(&threads[i], NULL, enter, &listeners[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
    cr_expect_eq(listeners[i].status, COLL_ERR_TIMEOUT, "%s", listeners[i].error.message);
    cr_expect(strstr(listeners[i].error.message, "1") && strstr(listeners[i].error.message, "3"),
              "%s", listeners[i].error.message);
  }
}
