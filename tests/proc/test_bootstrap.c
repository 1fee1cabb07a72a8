/* test_bootstrap.c: ranks that find each other, and the mistakes that prevent it. */
#include <criterion/criterion.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_bootstrap.h"
#include "support_ranks.h"

/* Rank 0 names missing ranks a second before this deadline (it would be a fifth of a shorter one),
 * so that a busy machine has time to tell the others. */
enum { SHORT_MS = 5000, LATE_MS = 3000 };

static const int sizes[] = {1, 2, 3, 4, 5, 8, 17, 64};

Test(bootstrap, threads_meet_and_leak_nothing) {
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

/* Every rank in turn has the listener. */
Test(bootstrap, any_rank_serves, .timeout = 120) {
  for (int n = 1; n <= 17; n += n < 9 ? 1 : 8)
    for (int maker = 0; maker < n; maker++) {
      const int before = count_fds();
      member *members = make_members(n, 15000);
      give_listener(members, n, maker);
      run_members(members, n, -1);
      for (int i = 0; i < n; i++)
        cr_assert(members[i].sound, "rank %d of %d, served by %d: status %d, %s", i, n, maker,
                  members[i].status, members[i].error.message);
      free(members);
      cr_assert_eq(count_fds(), before, "%d ranks left descriptors open", n);
    }
}

/* Ends a listener, but takes its port, so that nobody else listens there. */
static int keep_port(int listen_fd) {
  struct sockaddr_storage at;
  socklen_t bytes = sizeof(at);
  cr_assert_eq(getsockname(listen_fd, (struct sockaddr *)&at, &bytes), 0);
  const int fd = socket(at.ss_family, SOCK_STREAM, 0);
  close(listen_fd);
  cr_assert_eq(bind(fd, (const struct sockaddr *)&at, bytes), 0);
  return fd;
}

Test(bootstrap, who_serves_is_named, .timeout = 60) {
  member *members = make_members(4, SHORT_MS);
  give_listener(members, 4, 2);
  run_members(members, 4, 0); /* rank 0 is missing, so nobody has the table */
  for (int i = 1; i < 4; i++) {
    cr_expect_eq(members[i].status, COLL_ERR_TIMEOUT, "%s", members[i].error.message);
    cr_expect_eq(members[i].error.peer, 0);
    cr_expect(strstr(members[i].error.message, "rank 0 of 4 did not check in") &&
                  strstr(members[i].error.message, "at rank 2 (host host2"),
              "%s", members[i].error.message);
  }
  free(members);
  members = make_members(4, 800);
  give_listener(members, 4, 2);
  const int kept = keep_port(members[2].id.listen_fd);
  run_members(members, 4, 2);
  close(kept);
  for (int i = 0; i < 4; i += i == 1 ? 2 : 1) {
    cr_expect_eq(members[i].status, COLL_ERR_UNREACHABLE, "%s", members[i].error.message);
    cr_expect_eq(members[i].error.peer, -1);
    cr_expect(strstr(members[i].error.message, "the process that made the id (pid 4711)") &&
                  strstr(members[i].error.message, "Connection refused"),
              "%s", members[i].error.message);
  }
  free(members);
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
  members[0].begins = member_waits;
  members[0].arg = &members[1];
  members[2].begins = member_waits;
  members[2].arg = &members[0];
  run_members(members, 3, -1);
  for (int i = 0; i < 3; i++)
    cr_assert(members[i].sound, "%s", members[i].error.message);
  free(members);
}

Test(bootstrap, missing_ranks_are_named_everywhere) {
  const int n = 8;
  int before = count_fds();
  member *members = make_members(n, SHORT_MS);
  members[5].id.addrs[0].family = 0; /* they have no address of rank 0, and never connect */
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
    cr_assert_leq(members[i].took_ms, SHORT_MS + LATE_MS);
  }
  free(members);
  cr_assert_eq(count_fds(), before);
}

Test(bootstrap, a_rank_with_a_short_timeout_still_learns_who_is_missing) {
  member *members = make_members(4, 60000);
  members[2].timeout_ms = SHORT_MS;
  run_members(members, 4, 3);
  for (int i = 0; i < 3; i++) {
    cr_assert(strstr(members[i].error.message, "rank 3 of 4"), "%s", members[i].error.message);
    cr_assert_leq(members[i].took_ms, 30000);
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

/* A secret that differs from another one in one bit. */
static colli_secret *other_secret(const colli_secret *secret) {
  static uint8_t bytes[COLL_SECRET_BYTES];
  static colli_secret other = {.refs = 1, .bytes = bytes};
  memcpy(bytes, secret->bytes, COLL_SECRET_BYTES);
  bytes[5] ^= 1;
  return &other;
}

Test(bootstrap, a_wrong_secret_disturbs_nobody) {
  member *members = make_members(4, 8000);
  members[3].rank = 2;
  members[3].id.secret = other_secret(members[0].id.secret);
  for (int i = 0; i < 3; i++)
    members[i].nranks = 3;
  members[3].nranks = 3;
  members[1].begins = member_is_over; /* the wrong one has gone before all have joined */
  members[1].arg = &members[3];
  run_members(members, 4, -1);
  for (int i = 0; i < 3; i++)
    cr_assert(members[i].sound, "%s", members[i].error.message);
  cr_assert_eq(members[3].status, COLL_ERR_AUTH, "%d %s", members[3].status,
               members[3].error.message);
  cr_assert_leq(members[3].took_ms, 4000);
  free(members);
}

Test(bootstrap, all_who_have_another_secret_learn_it) {
  enum { MANY = 100 };
  member *members = make_members(MANY, SHORT_MS);
  colli_secret *other = other_secret(members[0].id.secret);
  other->refs = MANY;
  for (int i = 1; i < MANY; i++)
    members[i].id.secret = other;
  run_members(members, MANY, -1);
  for (int i = 1; i < MANY; i++)
    cr_assert_eq(members[i].status, COLL_ERR_AUTH, "%s", members[i].error.message);
  free(members);
}

Test(bootstrap, an_impossible_record_is_refused_everywhere) {
  member *members = make_members(4, 8000);
  members[2].damaged = true;
  run_members(members, 4, -1);
  for (int i = 0; i < 4; i++) {
    cr_assert_eq(members[i].status, COLL_ERR_PROTOCOL, "%s", members[i].error.message);
    cr_assert(strstr(members[i].error.message, "rank 2 (host host2, pid 1002) sent an impossible "
                                               "record (costs)"),
              "%s", members[i].error.message);
  }
  free(members);
}

Test(bootstrap, another_communicator_with_the_same_secret) {
  member *members = make_members(3, 5000);
  members[0].nranks = members[1].nranks = members[2].nranks = 2;
  members[2].rank = 1;
  members[2].id.comm_id ^= 1;
  members[1].begins = member_is_over;
  members[1].arg = &members[2];
  run_members(members, 3, -1);
  cr_assert(members[0].sound && members[1].sound, "%s", members[0].error.message);
  cr_assert_eq(members[2].status, COLL_ERR_MISMATCH, "%s", members[2].error.message);
  cr_assert(strstr(members[2].error.message, "COLL_ROOT"), "%s", members[2].error.message);
  free(members);
}

/* Ends a listener, and keeps its port, so that no program of another test listens there: a socket
 * that refuses connections. */
static int stop_listening(int listener) {
  struct sockaddr_storage address;
  socklen_t length = sizeof(address);
  cr_assert_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
  close(listener);
  const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  cr_assert_eq(bind(fd, (struct sockaddr *)&address, length), 0);
  return fd;
}

Test(bootstrap, nobody_at_the_address) {
  member *members = make_members(2, 800);
  const int deaf = stop_listening(members[0].id.listen_fd);
  run_members(members, 2, 0);
  close(deaf);
  cr_assert_eq(members[1].status, COLL_ERR_UNREACHABLE, "%s", members[1].error.message);
  cr_assert(strstr(members[1].error.message, "Connection refused"), "%s", members[1].error.message);
  cr_assert_leq(members[1].took_ms, 800 + LATE_MS);
  free(members);
}

Test(bootstrap, somebody_silent_at_the_address) {
  member *members = make_members(2, 800); /* the socket listens, but rank 0 does not accept */
  run_members(members, 2, 0);
  cr_assert_eq(members[1].status, COLL_ERR_TIMEOUT, "%s", members[1].error.message);
  cr_assert_leq(members[1].took_ms, 800 + LATE_MS);
  close(members[0].id.listen_fd);
  free(members);
}

Test(bootstrap, a_listener_that_something_else_closed) {
  member *members = make_members(2, 800);
  int fd = members[0].id.listen_fd;
  close(fd);
  /* The descriptor's number has been reused, so it must not be closed. */
  int pipes[2];
  cr_assert_eq(pipe(pipes), 0);
  cr_assert(pipes[0] == fd || pipes[1] == fd);
  take_part(&members[0]);
  cr_assert_eq(members[0].status, COLL_ERR_INVALID_USAGE);
  cr_assert(strstr(members[0].error.message, "closed by another part"), "%s",
            members[0].error.message);
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
