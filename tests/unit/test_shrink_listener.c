/* test_shrink_listener.c: the listener for shrinks keeps the secret, and closes with its last user.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "data.h"
#include "libcoll/comm/shrink_listener.h"

Test(shrink_listener, keeps_the_secret_and_closes_at_the_end) {
  colli_secret *secret = colli_secret_create();
  int ends[2];
  data_fill_bytes(secret->bytes, COLL_SECRET_BYTES, 7);
  cr_assert_eq(pipe(ends), 0);
  colli_shrink_listener *listener = colli_shrink_listener_create(ends[0], secret);
  cr_assert_not_null(listener);
  cr_assert_eq(listener->listen_fd, ends[0]);
  uint8_t want[COLL_SECRET_BYTES];
  memcpy(want, secret->bytes, sizeof(want));
  colli_secret_release(secret); /* the caller's; the listener has its own */
  cr_assert_arr_eq(listener->secret->bytes, want, sizeof(want));
  colli_shrink_listener_acquire(listener);
  colli_shrink_listener_release(listener);
  cr_assert_geq(fcntl(ends[0], F_GETFD), 0);
  colli_shrink_listener_release(listener);
  cr_assert_eq(fcntl(ends[0], F_GETFD), -1);
  close(ends[1]);
}

Test(shrink_listener, none_is_allowed) {
  colli_shrink_listener_acquire(NULL);
  colli_shrink_listener_release(NULL);
}
