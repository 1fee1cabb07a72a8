/*
 * test_filter.c: an accepted socket loses the filter that it inherited, also where the kernel has
 * no call for that (qemu-user), and where it refuses filters: then there is none.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/net/filter.h"

static int detaching, attaching; /* the errors that the kernel answers with; 0: none */
static int attached;             /* how often it was asked to attach a filter */

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t bytes) {
  (void)fd, (void)level, (void)value, (void)bytes;
  cr_assert(name == SO_ATTACH_FILTER || name == SO_DETACH_FILTER);
  attached += name == SO_ATTACH_FILTER;
  errno = name == SO_ATTACH_FILTER ? attaching : detaching;
  return errno ? -1 : 0;
}

static bool loses_filter(int detach_error, int attach_error) {
  detaching = detach_error;
  attaching = attach_error;
  return colli_filter_detach(0);
}

Test(filter, comes_off) {
  cr_assert(loses_filter(0, 0));
  cr_assert(loses_filter(ENOENT, 0), "there was none");
  cr_assert_not(loses_filter(EIO, 0));
  cr_assert_eq(errno, EIO);
  cr_assert_eq(attached, 0);
}

Test(filter, is_replaced_where_none_comes_off) {
  cr_assert(loses_filter(ENOPROTOOPT, 0));
  cr_assert_eq(attached, 1);
  cr_assert_not(loses_filter(ENOPROTOOPT, ENOMEM));
  cr_assert_eq(errno, ENOMEM);
}

Test(filter, was_never_there_if_the_kernel_refuses_filters) {
  cr_assert(loses_filter(ENOPROTOOPT, EPERM));
}
