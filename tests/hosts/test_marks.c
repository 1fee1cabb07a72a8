/*
 * test_marks.c: what TCP connections between ranks ask of the network: COLL_TCP_TRAFFIC_CLASS and
 * COLL_TCP_CONGESTION are set at both ends, also of rails, and what cannot be set is refused with
 * its name. Connections that do not leave a machine have Reno, unless another one was asked for;
 * others have the system's, at both ends.
 */
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sockets.h"
#include "tests/proc/support_ranks.h"

TestSuite(marks, .timeout = 60);

enum { CLASS = 26 * 4, DESCRIPTORS = 1024 };

/* An option of a socket that is a number; -1: it has none such. */
static int number(int fd, int level, int option) {
  int value = -1;
  socklen_t bytes = sizeof(value);
  return getsockopt(fd, level, option, &value, &bytes) == 0 ? value : -1;
}

/* Whether a descriptor is a TCP connection to an IPv4 address (NULL: to any). */
static bool is_connection(int fd, const char *address) {
  char text[INET6_ADDRSTRLEN];
  return tcp_peer(fd, text) && (!address || strstr(text, address) != NULL);
}

/* How many connections of this process to an address have that class and control of congestion. */
static int count_marked(const char *address, int class, const char *congestion) {
  int count = 0;
  for (int fd = 0; fd < DESCRIPTORS; fd++) {
    char name[16] = "";
    socklen_t bytes = sizeof(name);
    if (!is_connection(fd, address) || number(fd, IPPROTO_IP, IP_TOS) != class ||
        getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) != 0)
      continue;
    const bool v6 = number(fd, SOL_SOCKET, SO_DOMAIN) == AF_INET6;
    count +=
        strcmp(name, congestion) == 0 && (!v6 || number(fd, IPPROTO_IPV6, IPV6_TCLASS) == class);
  }
  return count;
}

/* Both ends of a connection are marked: of the one that dials, and of the one that accepts. */
static int look(coll_comm *comm, int rank, int nranks, void *arg) {
  int sum = rank;
  RANK_OK(coll_allreduce(&sum, &sum, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(sum == nranks * (nranks - 1) / 2);
  RANK_CHECK((count_marked(NULL, CLASS, "reno") > 0) == (arg != NULL));
  RANK_OK(coll_barrier(comm));
  return 0;
}

/* Two ranks as processes over TCP. */
static int run(rank_fn fn, void *arg) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "tcp";
  return run_processes(2, &config, fn, arg, 30, NULL);
}

Test(marks, both_ends) {
  static int asked;
  setenv("COLL_TCP_TRAFFIC_CLASS", "104", 1);
  setenv("COLL_TCP_CONGESTION", "reno", 1);
  cr_expect_eq(run(look, &asked), 0);
  setenv("COLL_TLS", "1", 1);
  cr_expect_eq(run(look, &asked), 0, "with TLS");
}

/* A connection over rails gets them one after the other, and a socket for each. */
static int look_at_rails(coll_comm *comm, int rank, int nranks, void *arg) {
  const double until_s = now_s() + slow_s(20);
  int done = 0;
  (void)arg;
  while (done < nranks && now_s() < until_s) {
    done = count_marked("10.61.0.1", CLASS, "reno") > 0 &&
           count_marked("10.62.0.1", CLASS, "reno") > 0;
    RANK_OK(coll_allreduce(&done, &done, 1, COLL_INT32, COLL_SUM, comm));
  }
  RANK_CHECK(count_marked("10.61.0.1", CLASS, "reno") > 0);
  RANK_CHECK(count_marked("10.62.0.1", CLASS, "reno") > 0);
  RANK_OK(coll_barrier(comm));
  return 0;
}

Test(marks, rails) {
  if (unshare(CLONE_NEWNET) != 0 ||
      system("ip link set lo up && for n in 1 2; do ip link add a$n type veth peer name b$n && "
             "ip addr add 10.6$n.0.1/24 dev a$n && ip link set a$n up && ip link set b$n up || "
             "exit 1; done") != 0)
    cr_skip_test("needs root and ip (iproute2) to make a network namespace");
  setenv("TEST_HOSTS", "2", 1);
  setenv("COLL_TCP_TRAFFIC_CLASS", "104", 1);
  setenv("COLL_TCP_CONGESTION", "reno", 1);
  cr_expect_eq(run(look_at_rails, NULL), 0);
}

Test(marks, not_asked_for) {
  cr_expect_eq(run(look, NULL), 0);
}

/* Whether the connection of two ranks has Reno. */
static int look_inside(coll_comm *comm, int rank, int nranks, void *arg) {
  int sum = rank;
  RANK_OK(coll_allreduce(&sum, &sum, 1, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(sum == nranks * (nranks - 1) / 2);
  RANK_CHECK((count_marked(NULL, 0, "reno") > 0) == *(const bool *)arg);
  RANK_OK(coll_barrier(comm));
  return 0;
}

Test(marks, inside_a_machine) {
  static bool reno = true;
  char usual[16] = "";
  FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
  cr_assert(file && fscanf(file, "%15s", usual) == 1);
  fclose(file);
  if (strcmp(usual, "reno") == 0)
    cr_skip_test("all connections of this system have Reno");
  cr_expect_eq(run(look_inside, &reno), 0);
  reno = false;
  setenv("TEST_HOSTS", "2", 1);
  cr_expect_eq(run(look_inside, &reno), 0, "ranks of two machines");
  unsetenv("TEST_HOSTS");
  setenv("COLL_TCP_CONGESTION", usual, 1);
  cr_expect_eq(run(look_inside, &reno), 0, "%s was asked for", usual);
}

/* A communicator cannot be made, and the reason, on standard error, names the setting. */
static void refuses(const char *name, const char *value, coll_status status) {
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *comms[2];
  char text[2000] = "";
  FILE *said = tmpfile();
  cr_assert(said);
  const int before = dup(STDERR_FILENO);
  config.transport = "tcp";
  setenv(name, value, 1);
  dup2(fileno(said), STDERR_FILENO);
  const coll_status got = coll_comm_create_local(comms, 2, &config);
  dup2(before, STDERR_FILENO);
  close(before);
  unsetenv(name);
  rewind(said);
  (void)!fread(text, 1, sizeof(text) - 1, said);
  fclose(said);
  cr_expect_eq(got, status, "%s=%s: %s", name, value, text);
  cr_expect(strstr(text, name), "%s", text);
}

Test(marks, refused) {
  refuses("COLL_TCP_TRAFFIC_CLASS", "3", COLL_ERR_INVALID_USAGE);
  refuses("COLL_TCP_TRAFFIC_CLASS", "256", COLL_ERR_INVALID_USAGE);
  refuses("COLL_TCP_CONGESTION", "no_such_control", COLL_ERR_SYSTEM);
}
