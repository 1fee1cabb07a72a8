/* test_verbs_lib.c: the messages if libibverbs cannot be loaded. */
#include <criterion/criterion.h>
#include <string.h>

#include "support_verbs.h"
#include "transports/verbs/verbs_addr.h"

static verbs_lib lib;
static verbs_fault fault;

Test(verbs_lib, absent_library_is_one_clear_line) {
  cr_assert_eq(verbs_lib_load(&lib, "libcoll-no-such-thing.so.1", &fault), COLL_ERR_UNSUPPORTED);
  cr_assert(strstr(fault.detail, "libcoll-no-such-thing.so.1"), "%s", fault.detail);
  cr_assert(strstr(fault.detail, "install rdma-core"), "%s", fault.detail);
  cr_assert_null(lib.handle);
}

Test(verbs_lib, library_without_a_function_is_named) {
  const char *other = COLL_PLUGINS "/tuner_odd.so"; /* a library, but not this one */
  cr_assert_eq(verbs_lib_load(&lib, other, &fault), COLL_ERR_UNSUPPORTED);
  cr_assert(strstr(fault.detail, "has no ibv_get_device_list"), "%s", fault.detail);
  cr_assert_null(lib.handle);
  cr_assert_null(lib.free_device_list);
}
