/* ops.c: the life of user-defined operations, and their numbers. */
#include "libcoll/call/ops.h"

#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/sched/tag.h"

colli_user_op *colli_user_op_make(void) {
  colli_user_op *user = calloc(1, sizeof(*user));
  if (user)
    atomic_init(&user->references, 1);
  return user;
}

void colli_user_op_retain(colli_user_op *user) {
  if (user)
    atomic_fetch_add_explicit(&user->references, 1, memory_order_relaxed);
}

void colli_user_op_release(colli_user_op *user) {
  if (!user)
    return;
  unsigned before = atomic_fetch_sub_explicit(&user->references, 1, memory_order_acq_rel);
  COLLI_ASSERT(before > 0);
  if (before == 1)
    free(user);
}

uint32_t colli_user_op_number(const char *name, bool commutative) {
  uint64_t hash = commutative ? 0xcbf29ce484222325ull : 0x84222325cbf29ce4ull;
  for (; *name; name++)
    hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
  hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ull; /* mixes all into the upper bits */
  uint32_t number = (uint32_t)(hash >> 41);
  return number == COLLI_OP_PREMUL ? 1 : number;
}

uint32_t colli_user_op_code(coll_op op) {
  const colli_user_op *user = colli_user_op_of(op);
  return user ? COLLI_TAG_USER_OP_CODE << 16 | user->number : (uint32_t)op;
}
