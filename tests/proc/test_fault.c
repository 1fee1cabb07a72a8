/*
 * test_fault.c: random programs under the fault decorator on shared memory: results are right
 * whatever is refused or delayed, and a broken connection is an error, not a hang.
 */
#include <criterion/criterion.h>

#include "support_fault.h"

Test(fault, random_programs, .timeout = 100) {
  cr_assert_eq(fault_play("shm"), 0);
}

Test(fault, cut_in_the_middle, .timeout = 60) {
  cr_assert_eq(fault_cut("shm"), 0);
}
