/*
 * test_altered.c: somebody between a rank and rank 0 changes a byte of what they say when ranks
 * find each other with COLL_TLS=1: in the TLS handshake, or in a record behind it.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/net/auth.h"
#include "tests/proc/support_bootstrap.h"

/* What precedes TLS: a hello and a proof to rank 0; a challenge and an answer from it. */
#define TO_ROOT   (sizeof(colli_hello) + COLLI_MAC_BYTES)
#define FROM_ROOT (COLLI_NONCE_BYTES + COLLI_MAC_BYTES + 1)

TestSuite(tls_altered, .timeout = 120);

/*
 * Rank 1 of 3 meets rank 0 through a proxy. All learn that something was altered. False: the byte
 * belonged to a length, and somebody waited for bytes that never came.
 */
static bool alter(bool to_root, size_t place) {
  member *members = run_through_proxy(to_root, place, 7000);
  const bool waited = members[0].status == COLL_ERR_TIMEOUT;
  for (int r = 0; r < 3 && !waited; r++) {
    cr_assert_eq(members[r].status, COLL_ERR_AUTH, "%zu, rank %d: %d %s", place, r,
                 members[r].status, members[r].error.message);
    cr_assert(strstr(members[r].error.message, "altered or injected"), "%s",
              members[r].error.message);
  }
  free(members);
  return !waited;
}

Test(tls_altered, what_was_altered_on_the_way_is_refused) {
  setenv("COLL_TLS", "1", 1);
  int cases = 0, noticed = 0;
  for (size_t i = 20; i < 900; i += 60, cases++) /* handshake, check-in, record */
    noticed += alter(true, TO_ROOT + i);
  for (size_t i = 20; i < 260; i += 60, cases++) /* handshake */
    noticed += alter(false, FROM_ROOT + i);
  cr_assert_geq(noticed, cases - 2, "%d of %d", noticed, cases);
}
