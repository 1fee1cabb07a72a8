/* support_shortage.c: which call fails. */
#include "support_shortage.h"

#include <errno.h>
#include <stdatomic.h>

#include "libcoll/base/prng.h"

static struct {
  atomic_bool on;
  bool for_good;
  shortage_call call; /* SHORTAGE_COUNT: any */
  int nth;            /* 0: none */
  int sys_errno;      /* instead of the call's usual one, if it is not 0 */
  unsigned odds;
  colli_prng prng;
  atomic_int failed;
  atomic_int seen[SHORTAGE_COUNT]; /* the library has threads of its own, too */
} plan;

const char *shortage_name(shortage_call call) {
#define SHORTAGE_NAME(name, error) #name,
  static const char *const names[] = {SHORTAGE_CALLS(SHORTAGE_NAME)};
  return names[call];
}

/* No call has been seen yet. */
static void begin(void) {
  for (int i = 0; i < SHORTAGE_COUNT; i++)
    plan.seen[i] = 0;
  plan.failed = 0;
  plan.on = true;
}

void shortage_begin(shortage_call call, int nth, bool for_good, int sys_errno) {
  plan.call = call;
  plan.sys_errno = sys_errno;
  plan.nth = nth;
  plan.for_good = for_good;
  begin();
}

void shortage_begin_random(unsigned long long seed, unsigned odds) {
  plan.call = SHORTAGE_COUNT;
  plan.sys_errno = 0;
  plan.prng = (colli_prng){seed};
  plan.odds = odds;
  begin();
}

int shortage_end(void) {
  plan.on = false;
  return plan.failed;
}

int shortage_seen(shortage_call call) {
  return plan.seen[call];
}

bool shortage_strikes(shortage_call call, int sys_errno) {
  bool fails = false;
  if (!plan.on)
    return false;
  const int n = atomic_fetch_add(&plan.seen[call], 1) + 1;
  if (plan.call == SHORTAGE_COUNT)
    fails = colli_prng_below(&plan.prng, plan.odds) == 0;
  else if (plan.call == call && plan.nth > 0)
    fails = n == plan.nth || (n > plan.nth && plan.for_good);
  if (!fails)
    return false;
  atomic_fetch_add(&plan.failed, 1);
  errno = plan.sys_errno ? plan.sys_errno : sys_errno;
  return true;
}
