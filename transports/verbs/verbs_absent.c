/* verbs_absent.c: stands for the verbs transport in a build without <infiniband/verbs.h>, so that
 * transports have the same numbers in every build. */
#include "transports/verbs/verbs.h"

static const char not_built[] =
    "this libcoll was built without verbs: install the headers of libibverbs (Debian: "
    "libibverbs-dev) and build it again";

/* Says that there is nothing to open. */
static int absent_open(const coll_transport_env *env, coll_endpoint **ep) {
  *ep = NULL;
  coll_transport_failure failure = {
      .status = COLL_ERR_UNSUPPORTED, .peer = -1, .channel = -1, .detail = not_built};
  env->fail(env->ctx, &failure);
  return COLL_ERR_UNSUPPORTED;
}

const coll_transport_ops verbs_transport = {
    .size = sizeof(coll_transport_ops),
    .abi = COLL_TRANSPORT_ABI,
    .caps = COLL_CAP_DEVICE,
    .name = "verbs",
    .open = absent_open,
};

void colli_verbs_print(const coll_transport_env *env, FILE *out) {
  (void)env;
  fprintf(out, "  none: %s\n", not_built);
}
