/* Error records, the log, the clock and random bytes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/log.h"
#include "libcoll/base/prng.h"
#include "waits.h"

Test(error, set_clears_what_was_there) {
  coll_error error = COLL_ERROR_INIT;
  error.peer = 7;
  cr_assert_eq(colli_error_set(&error, COLL_ERR_TIMEOUT, "create", "rank %d is missing", 3),
               COLL_ERR_TIMEOUT);
  cr_assert_eq(error.status, COLL_ERR_TIMEOUT);
  cr_assert_eq(error.peer, -1);
  cr_assert_eq(error.size, sizeof(error));
  cr_assert_str_eq(error.operation, "create");
  cr_assert_str_eq(error.message, "rank 3 is missing");
  cr_assert_eq(colli_error_set(NULL, COLL_ERR_SYSTEM, NULL, "x"), COLL_ERR_SYSTEM);
}

Test(error, arguments_may_be_in_the_record) {
  coll_error error = COLL_ERROR_INIT;
  colli_error_set(&error, COLL_ERR_SYSTEM, NULL, "inner");
  colli_error_set(&error, COLL_ERR_SYSTEM, NULL, "outer: %s", error.message);
  cr_assert_str_eq(error.message, "outer: inner");
  cr_assert_str_eq(error.operation, "");
}

Test(error, system_call_is_named_even_in_a_long_message) {
  coll_error error = COLL_ERROR_INIT;
  colli_error_sys(&error, COLL_ERR_SYSTEM, "create", "connect", ECONNREFUSED, "no way to %s", "it");
  cr_assert_str_eq(error.message, "no way to it (connect: Connection refused)");
  cr_assert_str_eq(error.syscall, "connect");
  cr_assert_eq(error.sys_errno, ECONNREFUSED);
  colli_error_sys(&error, COLL_ERR_SYSTEM, NULL, "bind", EADDRINUSE, "%2000d", 1);
  cr_assert_eq(strlen(error.message), sizeof(error.message) - 1);
  cr_assert_not_null(strstr(error.message, " (bind: Address already in use)"));
  colli_error_sys(&error, COLL_ERR_SYSTEM, NULL, "bind", 99999, "x");
  cr_assert_str_eq(error.message, "x (bind: unknown error)");
}

Test(error, copy_stops_at_what_the_caller_knows) {
  coll_error from = COLL_ERROR_INIT, to;
  from.peer = 5;
  from.sequence = 9;
  memset(&to, 0xff, sizeof(to));
  to.size = offsetof(coll_error, sequence);
  colli_error_copy(&to, &from);
  cr_assert_eq(to.size, offsetof(coll_error, sequence));
  cr_assert_eq(to.peer, 5);
  cr_assert_eq(to.sequence, UINT64_MAX);
  to.size = 0;
  to.peer = 1;
  colli_error_copy(&to, &from);
  cr_assert_eq(to.peer, 1);
  to.size = sizeof(to) + 100;
  colli_error_copy(&to, &from);
  cr_assert_eq(to.sequence, 9);
}

/* Logs one line and returns the output. */
static const char *logged(colli_log log, colli_log_level level, const char *text, char *out,
                          size_t bytes) {
  int ends[2], saved = dup(STDERR_FILENO);
  cr_assert_eq(pipe(ends), 0);
  dup2(ends[1], STDERR_FILENO);
  colli_log_write(&log, level, "%s", text);
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  ssize_t got = read(ends[0], out, bytes - 1);
  close(ends[0]);
  out[got > 0 ? got : 0] = 0;
  return out;
}

Test(log, levels_and_long_lines) {
  static char long_text[3000];
  char out[4096];
  colli_log error = {COLLI_LOG_ERROR, 3}, none = {COLLI_LOG_NONE, -1},
            debug = {COLLI_LOG_DEBUG, -1};
  cr_assert_str_eq(logged(error, COLLI_LOG_ERROR, "oh", out, sizeof(out)),
                   "libcoll [3] error: oh\n");
  cr_assert_str_eq(logged(error, COLLI_LOG_WARN, "oh", out, sizeof(out)), "");
  cr_assert_str_eq(logged(none, COLLI_LOG_ERROR, "oh", out, sizeof(out)), "");
  cr_assert_str_eq(logged(debug, COLLI_LOG_INFO, "oh", out, sizeof(out)), "libcoll [-] info: oh\n");
  memset(long_text, 'x', sizeof(long_text) - 1);
  logged(debug, COLLI_LOG_DEBUG, long_text, out, sizeof(out));
  cr_assert(strlen(out) <= 1024 && out[strlen(out) - 1] == '\n');
  cr_assert_eq(colli_log_level_parse("warn"), COLLI_LOG_WARN);
  cr_assert_eq(colli_log_level_parse("WARN"), -1);
}

Test(clock, goes_forward) {
  uint64_t before = colli_now_ns();
  be_late(2);
  cr_assert_geq(colli_now_ns() - before, 2 * COLLI_NS_PER_MS);
}

Test(prng, a_seed_gives_its_numbers_and_secrets_differ) {
  colli_prng a = {1}, b = {1}, c = {2};
  uint64_t first = colli_prng_next(&a);
  cr_assert_eq(first, colli_prng_next(&b));
  cr_assert_neq(first, colli_prng_next(&c));
  for (int i = 0; i < 1000; i++)
    cr_assert_lt(colli_prng_below(&a, 7), 7u);
  unsigned char x[1000] = {0}, y[1000] = {0};
  cr_assert_eq(colli_random_secret(x, sizeof(x)), 0);
  cr_assert_eq(colli_random_secret(y, sizeof(y)), 0);
  for (size_t at = 0; at + 20 <= sizeof(x); at += 20)
    cr_assert_neq(memcmp(x + at, y + at, 20), 0);
}
