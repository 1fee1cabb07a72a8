/*
 * test_pmi1.c: a launcher that speaks PMI-1 badly. Its answers lie ready in the socket before they
 * are asked for; each kind of nonsense gives one clear error, by the deadline.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll.h"

#define INIT    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define NAME    "cmd=my_kvsname kvsname=table\n"
#define BARRIER "cmd=barrier_out\n"

/* The launcher's end of the socket. */
static int launcher = -1;

/* Makes this process rank 1 of 2 whose launcher has given these answers. */
static void become_rank(const char *answers) {
  int ends[2];
  char text[16];
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  launcher = ends[0];
  cr_assert_eq(write(launcher, answers, strlen(answers)), (ssize_t)strlen(answers));
  snprintf(text, sizeof(text), "%d", ends[1]);
  setenv("PMI_FD", text, 1);
  setenv("PMI_RANK", "1", 1);
  setenv("PMI_SIZE", "2", 1);
  setenv("COLL_CREATE_TIMEOUT_MS", "2000", 1);
  setenv("COLL_LOG", "none", 1);
}

/* coll_init_from_env() fails with a status and a word. */
static void refuses(coll_status wanted, const char *word) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *comm;
  config.error = &error;
  cr_expect_eq(coll_init_from_env(&comm, &config), wanted, "%s", error.message);
  cr_expect(strstr(error.message, word), "no \"%s\" in: %s", word, error.message);
}

Test(pmi1, another_protocol) {
  become_rank("HTTP/1.1 400 Bad\033[2J Request\r\n");
  refuses(COLL_ERR_SYSTEM, "does not speak PMI-1");
  refuses(COLL_ERR_SYSTEM, "failed before");
}

Test(pmi1, answer_to_something_else) {
  become_rank(BARRIER);
  refuses(COLL_ERR_SYSTEM, "it said \"cmd=barrier_out\", not \"cmd=response_to_init\"");
}

Test(pmi1, refused) {
  become_rank("cmd=response_to_init rc=-1 msg=no\n");
  refuses(COLL_ERR_SYSTEM, "refused");
}

Test(pmi1, no_end_of_line) {
  char answers[5000];
  memset(answers, 'x', sizeof(answers));
  answers[sizeof(answers) - 1] = '\0';
  become_rank(answers);
  refuses(COLL_ERR_SYSTEM, "too long");
}

Test(pmi1, silence) {
  become_rank(INIT);
  refuses(COLL_ERR_TIMEOUT, "took too long");
}

Test(pmi1, gone) {
  become_rank(INIT);
  cr_assert_eq(shutdown(launcher, SHUT_WR), 0);
  refuses(COLL_ERR_SYSTEM, "connection to the launcher");
}

Test(pmi1, gone_before) {
  become_rank("");
  close(launcher);
  refuses(COLL_ERR_SYSTEM, "connection to the launcher");
}

Test(pmi1, long_name) {
  char answers[600];
  snprintf(answers, sizeof(answers), INIT "cmd=my_kvsname kvsname=%0300d\n", 0);
  become_rank(answers);
  refuses(COLL_ERR_SYSTEM, "name of its table");
}

Test(pmi1, no_id) {
  become_rank(INIT NAME BARRIER "cmd=get_result rc=0 value=0123zz\n");
  refuses(COLL_ERR_SYSTEM, "no id");
}

Test(pmi1, digits_that_are_no_id) {
  char answers[2048];
  snprintf(answers, sizeof(answers), INIT NAME BARRIER "cmd=get_result rc=0 value=%0512d\n", 0);
  become_rank(answers);
  refuses(COLL_ERR_SYSTEM, "no id");
}

Test(pmi1, no_value) {
  become_rank(INIT NAME BARRIER "cmd=get_result rc=0\n");
  refuses(COLL_ERR_SYSTEM, "no id");
}

Test(pmi1, rank_0_failed) {
  become_rank(INIT NAME BARRIER "cmd=get_result rc=0 value=failed\n");
  refuses(COLL_ERR_SYSTEM, "rank 0 failed");
}

/* What the launcher did not ask to be secret is never in a message. */
Test(pmi1, value_in_a_wrong_answer) {
  become_rank(INIT NAME BARRIER "cmd=put_result value=5ec7e7\n");
  refuses(COLL_ERR_SYSTEM, "it said \"cmd=put_result \"");
}

Test(pmi1, no_socket) {
  become_rank("");
  int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  char text[16];
  snprintf(text, sizeof(text), "%d", fd);
  setenv("PMI_FD", text, 1);
  refuses(COLL_ERR_SYSTEM, "Socket operation on non-socket");
}

Test(pmi1, impossible_rank) {
  become_rank("");
  setenv("PMI_RANK", "2", 1);
  refuses(COLL_ERR_INVALID_USAGE, "PMI_RANK=2");
}

/* Who names an address and brings a secret needs no launcher. */
Test(pmi1, overruled) {
  become_rank("");
  setenv("COLL_ROOT", "127.0.0.1:1", 1);
  refuses(COLL_ERR_INVALID_USAGE, "there is no secret");
}

/* Makes this process one that finds its launcher at a port. The port's listener. */
static int become_distant(void) {
  struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t bytes = sizeof(addr);
  char text[32];
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  become_rank("");
  cr_assert_eq(bind(listener, (struct sockaddr *)&addr, bytes), 0);
  cr_assert_eq(getsockname(listener, (struct sockaddr *)&addr, &bytes), 0);
  snprintf(text, sizeof(text), "127.0.0.1:%u", (unsigned)ntohs(addr.sin_port));
  unsetenv("PMI_FD");
  setenv("PMI_PORT", text, 1);
  setenv("PMI_ID", "1", 1);
  return listener;
}

Test(pmi1, nobody_at_the_port) {
  close(become_distant());
  refuses(COLL_ERR_SYSTEM, "PMI_PORT=127.0.0.1");
}

Test(pmi1, silence_at_the_port) {
  cr_assert_eq(listen(become_distant(), 1), 0);
  refuses(COLL_ERR_TIMEOUT, "took too long");
}

/* Takes a client's connection, gives it answers, and returns what it says until it leaves. */
static void answer_at_port(int listener, const char *answers, char *said, size_t room) {
  const struct timeval most = {.tv_sec = 20};
  ssize_t got;
  size_t used = 0;
  setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  int fd = accept(listener, NULL, NULL);
  cr_assert_geq(fd, 0);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
  cr_assert_eq(write(fd, answers, strlen(answers)), (ssize_t)strlen(answers));
  while (used < room - 1 && (got = read(fd, said + used, room - 1 - used)) > 0)
    used += (size_t)got;
  said[used] = '\0';
  close(fd);
}

/* Hydra takes a client that has connected, and leaves without a word, for a dead one. */
Test(pmi1, a_rank_alone_at_a_port_finalizes) {
  char said[500];
  int status = 1, listener = become_distant();
  cr_assert_eq(listen(listener, 1), 0);
  pid_t child = fork();
  if (child == 0) {
    coll_comm *comm;
    close(listener);
    coll_status created = coll_init_from_env(&comm, NULL);
    coll_comm_destroy(&comm);
    exit(created);
  }
  answer_at_port(listener,
                 "cmd=initack rc=0\ncmd=set size=1\ncmd=set rank=0\ncmd=set debug=0\n" INIT NAME
                 "cmd=finalize_ack\n",
                 said, sizeof(said));
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect_eq(status, 0);
  cr_expect(strstr(said, "cmd=init "), "%s", said);
  cr_expect(strstr(said, "cmd=finalize\n"), "%s", said);
  close(listener);
}
