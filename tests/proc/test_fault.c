/*
 * test_fault.c: random programs under the fault decorator on shared memory: results are right
 * whatever is refused or delayed, and a broken connection is an error, not a hang. If messages are
 * checked, results are right, too, and one that arrives wrong is an error that names both ranks.
 */
#include <criterion/criterion.h>

#include "support_fault.h"

Test(fault, random_programs, .timeout = 100) {
  cr_assert_eq(fault_play("shm"), 0);
}

Test(fault, cut_in_the_middle, .timeout = 60) {
  cr_assert_eq(fault_cut("shm"), 0);
}

Test(fault, checked, .timeout = 100) {
  cr_assert_eq(fault_checked("shm", "crc32c"), 0);
  cr_assert_eq(fault_checked("tcp", "mac"), 0);
}

Test(fault, damaged_in_shared_memory, .timeout = 100) {
  cr_assert_eq(fault_tampered("shm", "crc32c", COLL_ERR_PROTOCOL), 0);
}

Test(fault, damaged_on_the_network, .timeout = 100) {
  cr_assert_eq(fault_tampered("tcp", "crc32c", COLL_ERR_PROTOCOL), 0);
}

Test(fault, changed_on_the_network, .timeout = 100) {
  cr_assert_eq(fault_tampered("tcp", "mac", COLL_ERR_AUTH), 0);
}
