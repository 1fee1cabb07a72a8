/* test_verbs_mr.c: registered memory: rights, limits, slots, the regions of coll_mem_alloc(). */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support_verbs.h"
#include "transports/verbs/verbs_mr.h"

static fake_verbs *fake;
static verbs_lib lib;
static verbs_fault fault;
static verbs_rail rail;
static verbs_domain domain;

static void load(void) {
  fake = fake_load();
  cr_assert_not_null(fake);
  cr_assert_eq(verbs_lib_load(&lib, VERBS_LIB_NAME, &fault), COLL_OK, "%s", fault.detail);
  fake_add(fake, "mlx5_0", 1);
  verbs_settings settings = fake_settings();
  cr_assert_eq(verbs_rails_open(&lib, &settings, &rail, 1, &fault), 1);
  domain = (verbs_domain){&lib, &rail, lib.alloc_pd(rail.context)};
  cr_assert_not_null(domain.pd);
}

static void unload(void) {
  cr_assert_eq(fake->registered, 0);
  lib.dealloc_pd(domain.pd);
  verbs_rails_close(&lib, &rail, 1);
  verbs_lib_close(&lib);
}

/* Drops the right to exceed the limit, and sets the limit. */
static void limit_locked(rlim_t bytes) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  cr_assert_eq(syscall(SYS_capget, &header, data), 0);
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  cr_assert_eq(syscall(SYS_capset, &header, data), 0);
  struct rlimit limit = {bytes, bytes};
  cr_assert_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

Test(verbs_mr, rights_follow_from_the_use, .init = load, .fini = unload) {
  static char memory[4096];
  const unsigned written = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  const struct {
    verbs_use use;
    bool relaxed;
    unsigned want;
  } cases[] = {
      {VERBS_USE_READ, true, 0},
      {VERBS_USE_WRITE, false, written},
      {VERBS_USE_WRITE, true, written | IBV_ACCESS_RELAXED_ORDERING},
      {VERBS_USE_POLL, true, written},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    rail.relaxed_ordering = cases[i].relaxed;
    struct ibv_mr *mr = verbs_mr_register(&domain, memory, sizeof(memory), cases[i].use, &fault);
    cr_assert_not_null(mr);
    cr_assert_eq(mr->addr, memory);
    cr_assert_eq(mr->length, sizeof(memory));
    cr_expect_eq(fake->access, cases[i].want, "case %zu: %#x", i, fake->access);
    verbs_mr_release(&domain, mr);
  }
  verbs_mr_release(&domain, NULL);
}

/* If memory may not be pinned, on-demand paging is used, if the device supports it for all that is
 * needed. */
Test(verbs_mr, paging_where_pinning_is_refused, .init = load, .fini = unload) {
  static char memory[4096];
  fake->reg_most = 1024;
  cr_assert_null(verbs_mr_register(&domain, memory, 4096, VERBS_USE_WRITE, &fault));
  cr_assert_eq(fault.status, COLL_ERR_NO_MEMORY);
  cr_assert_eq(fault.sys_errno, ENOMEM);
  rail.odp_general = IBV_ODP_SUPPORT;
  rail.odp_rc = IBV_ODP_SUPPORT_WRITE;
  cr_assert_null(verbs_mr_register(&domain, memory, 4096, VERBS_USE_WRITE, &fault));
  rail.odp_rc |= IBV_ODP_SUPPORT_SEND;
  struct ibv_mr *mr = verbs_mr_register(&domain, memory, 4096, VERBS_USE_WRITE, &fault);
  cr_assert_not_null(mr);
  cr_assert(fake->access & IBV_ACCESS_ON_DEMAND);
  struct ibv_mr *small = verbs_mr_register(&domain, memory, 512, VERBS_USE_WRITE, &fault);
  cr_assert_not_null(small);
  cr_assert_not(fake->access & IBV_ACCESS_ON_DEMAND); /* pinned, as it may be */
  verbs_mr_release(&domain, mr);
  verbs_mr_release(&domain, small);
}

Test(verbs_mr, limits_are_explained, .init = load, .fini = unload) {
  static char memory[4096];
  limit_locked(8 << 20);
  cr_assert(verbs_lock_allowed(4 << 20, &fault));
  cr_assert_not(verbs_lock_allowed(16 << 20, &fault));
  cr_assert_eq(fault.status, COLL_ERR_SYSTEM);
  cr_assert(strstr(fault.detail, "16384 KiB of memory must be locked for verbs, but this process "
                                 "may lock 8192: raise `ulimit -l`"),
            "%s", fault.detail);
  limit_locked(0);
  fake->reg_errno = ENOMEM;
  cr_assert_null(verbs_mr_register(&domain, memory, 4096, VERBS_USE_WRITE, &fault));
  cr_assert_eq(fault.status, COLL_ERR_SYSTEM);
  cr_assert_eq(fault.sys_errno, ENOMEM);
  cr_assert_str_eq(fault.syscall, "ibv_reg_mr");
  cr_assert(strstr(fault.detail, "may lock 0"), "%s", fault.detail);
  fake->reg_errno = EFAULT;
  cr_assert_null(verbs_mr_register(&domain, memory, 4096, VERBS_USE_WRITE, &fault));
  cr_assert(strstr(fault.detail, "mlx5_0 cannot register 4096 bytes"), "%s", fault.detail);
}

Test(verbs_mr, dmabuf, .init = load, .fini = unload) {
  int fd = open("/dev/null", O_RDWR | O_CLOEXEC); /* the fake library accepts any descriptor */
  cr_assert_geq(fd, 0);
  struct ibv_mr *mr =
      verbs_mr_register_dmabuf(&domain, fd, 0, 4096, 0x7000, VERBS_USE_WRITE, &fault);
  cr_assert_not_null(mr);
  verbs_mr_release(&domain, mr);
  fake->dmabuf_refuse = true;
  cr_assert_null(verbs_mr_register_dmabuf(&domain, fd, 0, 4096, 0, VERBS_USE_WRITE, &fault));
  cr_assert_eq(fault.status, COLL_ERR_UNSUPPORTED);
  fake->dmabuf_refuse = false;
  close(fd);
  cr_assert_null(verbs_mr_register_dmabuf(&domain, fd, 0, 4096, 0, VERBS_USE_WRITE, &fault));
  cr_assert_eq(fault.status, COLL_ERR_SYSTEM);
  cr_assert_eq(fault.sys_errno, EBADF);
  lib.reg_dmabuf_mr = NULL; /* an older library */
  cr_assert_null(verbs_mr_register_dmabuf(&domain, fd, 0, 4096, 0, VERBS_USE_WRITE, &fault));
  cr_assert_eq(fault.status, COLL_ERR_UNSUPPORTED);
  cr_assert(strstr(fault.detail, "rdma-core 34"), "%s", fault.detail);
}

/* ---- slots ----------------------------------------------------------------------------------- */

Test(verbs_mr, slots_are_zeroed_and_registered_as_a_whole, .init = load, .fini = unload) {
  const size_t sizes[] = {1, 4096, 100000, (2 << 20) + 1};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
    verbs_slab slab;
    cr_assert_eq(verbs_slab_create(&domain, sizes[i], VERBS_USE_WRITE, &slab, &fault), COLL_OK);
    cr_assert_geq(slab.bytes, sizes[i]);
    cr_assert_eq(slab.mr->addr, slab.memory);
    cr_assert_eq(slab.mr->length, slab.bytes);
    for (size_t at = 0; at < slab.bytes; at += 512)
      cr_assert_eq(((char *)slab.memory)[at], 0);
    memset(slab.memory, 1, slab.bytes);
    verbs_slab_destroy(&domain, &slab);
    cr_assert_null(slab.memory);
  }
}

Test(verbs_mr, slots_that_cannot_be_registered_are_given_back, .init = load, .fini = unload) {
  verbs_slab slab;
  fake->reg_errno = ENOMEM;
  cr_assert_neq(verbs_slab_create(&domain, 4096, VERBS_USE_WRITE, &slab, &fault), COLL_OK);
  cr_assert_null(slab.memory);
  cr_assert_null(slab.mr);
  cr_assert_eq(fault.sys_errno, ENOMEM);
}

/* ---- regions --------------------------------------------------------------------------------- */

Test(verbs_mr, regions_are_registered_when_first_used, .init = load, .fini = unload) {
  static char memory[64][256];
  verbs_cache cache = {.domain = domain};
  for (int i = 0; i < 64; i++) { /* in no order */
    int at = i * 37 % 64;
    cr_assert_eq(verbs_cache_add(&cache, (uint32_t)at + 1, memory[at], 200), COLL_OK);
  }
  cr_assert_eq(fake->registered, 0);
  for (int i = 0; i < 64; i++) {
    struct ibv_mr *mr = verbs_cache_find(&cache, memory[i] + 100, 100, VERBS_USE_WRITE);
    cr_assert_not_null(mr);
    cr_assert_eq(mr->addr, memory[i]);
    cr_assert_eq(mr->length, 200);
    cr_assert_eq(verbs_cache_find(&cache, memory[i], 200, VERBS_USE_WRITE), mr);
    cr_assert_null(
        verbs_cache_find(&cache, memory[i] + 100, 101, VERBS_USE_WRITE)); /* reaches out */
    cr_assert_null(verbs_cache_find(&cache, memory[i] + 201, 1, VERBS_USE_WRITE));
    cr_assert_null(verbs_cache_find(&cache, memory[i] + 10, SIZE_MAX, VERBS_USE_WRITE));
  }
  cr_assert_eq(fake->registered, 64);
  cr_assert_eq(fake->registrations, 64);
  cr_assert_null(
      verbs_cache_find(&cache, (const void *)((uintptr_t)memory - 1), 1, VERBS_USE_WRITE));
  verbs_cache_free(&cache);
}

/* Memory that is unmapped and mapped again is not found through the old registration. */
Test(verbs_mr, removed_regions_are_forgotten, .init = load, .fini = unload) {
  verbs_cache cache = {.domain = domain};
  char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(memory, MAP_FAILED);
  cr_assert_eq(verbs_cache_add(&cache, 5, memory, 8192), COLL_OK);
  struct ibv_mr *old = verbs_cache_find(&cache, memory, 8192, VERBS_USE_WRITE);
  cr_assert_not_null(old);
  verbs_cache_remove(&cache, 6); /* none such */
  cr_assert_eq(fake->registered, 1);
  verbs_cache_remove(&cache, 5);
  cr_assert_eq(fake->registered, 0); /* before its pages go */
  munmap(memory, 8192);
  char *again = mmap(memory, 8192, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  cr_assert_eq(again, memory);
  cr_assert_null(verbs_cache_find(&cache, again, 8192, VERBS_USE_WRITE));
  cr_assert_eq(verbs_cache_add(&cache, 7, again, 4096), COLL_OK);
  cr_assert_null(verbs_cache_find(&cache, again, 8192, VERBS_USE_WRITE));
  cr_assert_not_null(verbs_cache_find(&cache, again, 4096, VERBS_USE_WRITE));
  cr_assert_eq(fake->registrations, 2);
  verbs_cache_free(&cache);
  munmap(again, 8192);
}

Test(verbs_mr, refused_regions_are_not_tried_again, .init = load, .fini = unload) {
  static char memory[4096];
  verbs_cache cache = {.domain = domain};
  cr_assert_eq(verbs_cache_add(&cache, 1, memory, 4096), COLL_OK);
  fake->reg_errno = ENOMEM;
  cr_assert_null(verbs_cache_find(&cache, memory, 64, VERBS_USE_WRITE));
  fake->reg_errno = 0;
  cr_assert_null(verbs_cache_find(&cache, memory, 64, VERBS_USE_WRITE));
  cr_assert_eq(fake->registrations, 0);
  verbs_cache_free(&cache);
}

/* ---- buffers of operations ------------------------------------------------------------------- */

/* A buffer is registered on first use, with the rights it needs, and deregistered when its last
 * owner releases it. */
Test(verbs_mr, memory_is_registered_until_it_is_released, .init = load, .fini = unload) {
  static char in[8192], out[8192];
  verbs_cache cache = {.domain = domain};
  int a, b;
  cr_assert_null(verbs_cache_find(&cache, in, 64, VERBS_USE_READ));
  verbs_cache_register(&cache, &a, in, sizeof(in), VERBS_USE_READ);
  verbs_cache_register(&cache, &a, out, sizeof(out), VERBS_USE_WRITE);
  verbs_cache_register(&cache, &b, in, sizeof(in), VERBS_USE_READ);
  cr_assert_eq(fake->registered, 0);
  struct ibv_mr *mr = verbs_cache_find(&cache, in + 4096, 4096, VERBS_USE_READ);
  cr_assert_not_null(mr);
  cr_assert_eq(fake->access, 0);
  cr_assert_null(verbs_cache_find(&cache, in, 64, VERBS_USE_WRITE)); /* may be at an address
                                                                        where no registration can
                                                                        be */
  cr_assert_null(verbs_cache_find(&cache, in + 4096, 4097, VERBS_USE_READ));
  cr_assert_not_null(verbs_cache_find(&cache, out, sizeof(out), VERBS_USE_WRITE));
  cr_assert(fake->access & IBV_ACCESS_REMOTE_WRITE);
  cr_assert_eq(fake->registered, 2);
  verbs_cache_release(&cache, &a);
  cr_assert_eq(fake->registered, 1);
  cr_assert_null(verbs_cache_find(&cache, out, 64, VERBS_USE_READ));
  cr_assert_eq(verbs_cache_find(&cache, in, 64, VERBS_USE_READ), mr);
  verbs_cache_release(&cache, &b);
  cr_assert_eq(fake->registered, 0);
  cr_assert_null(verbs_cache_find(&cache, in, 64, VERBS_USE_READ));
  verbs_cache_free(&cache);
}

/* Memory that several owners have registered in part stays registered as long as one of them may
 * use it. */
Test(verbs_mr, registered_memory_may_overlap, .init = load, .fini = unload) {
  static char memory[4096], region[4096];
  verbs_cache cache = {.domain = domain};
  int a, b, c;
  cr_assert_eq(verbs_cache_add(&cache, 1, region, sizeof(region)), COLL_OK);
  verbs_cache_register(&cache, &a, memory, 2048, VERBS_USE_READ);
  verbs_cache_register(&cache, &b, memory + 1024, 3072, VERBS_USE_READ);
  verbs_cache_register(&cache, &c, region + 8, 8, VERBS_USE_READ);
  cr_assert_not_null(verbs_cache_find(&cache, memory + 1024, 1024, VERBS_USE_READ));
  cr_assert_null(verbs_cache_find(&cache, memory + 1024, 3072, VERBS_USE_READ));
  struct ibv_mr *mr = verbs_cache_find(&cache, region + 8, 8, VERBS_USE_READ);
  cr_assert_not_null(mr);
  cr_assert_eq(mr->addr, region);
  verbs_cache_release(&cache, &c);
  verbs_cache_release(&cache, &a);
  cr_assert_eq(fake->registered, 2);
  cr_assert_not_null(verbs_cache_find(&cache, memory + 1024, 1024, VERBS_USE_READ));
  verbs_cache_release(&cache, &b);
  cr_assert_eq(fake->registered, 1);
  for (int i = 0; i < 100; i++) /* many at once */
    verbs_cache_register(&cache, &a, memory + 40 * i, 40, VERBS_USE_READ);
  for (int i = 0; i < 100; i++)
    cr_assert_not_null(verbs_cache_find(&cache, memory + 40 * i, 40, VERBS_USE_READ));
  cr_assert_eq(fake->registered, 101);
  verbs_cache_free(&cache);
}

/* Then messages are copied, and the first reason is kept. */
Test(verbs_mr, registration_that_is_refused, .init = load, .fini = unload) {
  static char memory[4096];
  verbs_cache cache = {.domain = domain};
  int owner;
  fake->reg_errno = ENOMEM;
  verbs_cache_register(&cache, &owner, memory, sizeof(memory), VERBS_USE_READ);
  cr_assert_null(verbs_cache_find(&cache, memory, 64, VERBS_USE_READ));
  cr_assert(cache.refused);
  cr_assert_eq(cache.fault.sys_errno, ENOMEM);
  verbs_cache_release(&cache, &owner);
  fake->reg_errno = 0;
  verbs_cache_register(&cache, &owner, memory, sizeof(memory), VERBS_USE_READ);
  cr_assert_not_null(verbs_cache_find(&cache, memory, 64, VERBS_USE_READ));
  verbs_cache_free(&cache);
}
