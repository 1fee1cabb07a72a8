/* test_assert.c: debug and sanitizer builds check invariants, other builds do not. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/exec/exec.h"

#ifdef COLLI_ASSERTS
enum { CHECKED = 1 };
#else
enum { CHECKED = 0 };
#endif

#pragma weak colli_assert_failed

/* Runs a function in a child process; gives its wait status and what it printed. */
static int run(void (*function)(void), char *text, size_t bytes) {
  int fds[2], status = 0;
  cr_assert_eq(pipe(fds), 0);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(fds[1], STDERR_FILENO);
    close(fds[1]); /* the reader waits until the last copy is closed */
    signal(SIGABRT, SIG_DFL);
    function();
    _exit(0);
  }
  close(fds[1]);
  size_t got = 0;
  for (ssize_t n; (n = read(fds[0], text + got, bytes - 1 - got)) > 0;)
    got += (size_t)n;
  text[got] = '\0';
  close(fds[0]);
  waitpid(pid, &status, 0);
  return status;
}

static int apples = 2;

enum { LINE_OF_FAILURE = __LINE__ + 2 };
static void fail(void) {
  COLLI_ASSERT_RANK(apples == 3, 7);
}

static void fail_without_rank(void) {
  COLLI_ASSERT(apples == 3);
}

Test(assert, fires_where_invariants_are_checked) {
  char text[512], place[64];
  int status = run(fail, text, sizeof(text));
  if (!CHECKED) {
    cr_assert(status == 0 && !*text, "status %d: %s", status, text);
    return;
  }
  cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %d", status);
  snprintf(place, sizeof(place), "test_assert.c:%d: rank 7, fail: ", LINE_OF_FAILURE);
  cr_assert(strstr(text, place) && strstr(text, "apples == 3"), "%s", text);
  run(fail_without_rank, text, sizeof(text));
  cr_assert(strstr(text, ": fail_without_rank: ") && !strstr(text, "rank -1"), "%s", text);
}

Test(assert, evaluates_only_where_invariants_are_checked) {
  int evaluated = 0;
  COLLI_ASSERT(++evaluated);
  cr_assert_eq(evaluated, CHECKED);
  cr_assert_eq(colli_assert_failed != NULL, CHECKED, "the function is there: %d", !CHECKED);
}

/* An operation ends twice. */
static void end_twice(void) {
  static coll_request op;
  static colli_flight_rings flights;
  static colli_exec exec = {.flights = {.rings = &flights}};
  colli_exec_enlist(&exec, &op);
  colli_exec_finish(&exec, &op, COLL_OK);
  colli_exec_finish(&exec, &op, COLL_OK);
}

Test(assert, library_checks_its_state) {
  char text[512];
  if (!CHECKED)
    return;
  int status = run(end_twice, text, sizeof(text));
  cr_assert(WIFSIGNALED(status) && strstr(text, "colli_exec_finish: "), "status %d: %s", status,
            text);
}
