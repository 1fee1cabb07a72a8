/* test_quota.c: limits of processor time, in made-up cgroup file systems and in a real one. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/tuning/quota.h"

static char root[] = "/tmp/quota.XXXXXX";
static char membership[64];

/* Writes a file below the root, and the folders above it. */
static void put(const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof(path), "%s/%s", root, name);
  for (char *slash = strchr(path + sizeof(root), '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    cr_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
    *slash = '/';
  }
  FILE *file = fopen(path, "w");
  cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void begin(void) {
  cr_assert(mkdtemp(root));
  snprintf(membership, sizeof(membership), "%s/membership", root);
}

static void end(void) {
  char command[64];
  snprintf(command, sizeof(command), "rm -rf %s", root);
  cr_assert_eq(system(command), 0);
}

TestSuite(quota, .init = begin, .fini = end);

/* What a process in these groups may use. */
static uint64_t millicores(const char *groups) {
  put("membership", groups);
  colli_quota quota = colli_quota_read(membership, root);
  cr_expect_eq(quota.group != 0, quota.millicores != 0);
  return quota.millicores;
}

Test(quota, none) {
  cr_expect_eq(colli_quota_read(membership, root).group, 0);
  cr_expect_eq(millicores(""), 0);
  cr_expect_eq(millicores("0::/\n"), 0);
  cr_expect_eq(millicores("0::/a/b\n"), 0);
}

Test(quota, version_2) {
  put("a/b/cpu.max", "max 100000\n");
  cr_expect_eq(millicores("0::/a/b\n"), 0);
  put("a/b/cpu.max", "150000 100000\n");
  cr_expect_eq(millicores("0::/a/b\n"), 1500);
  cr_expect_eq(millicores("0::/a\n"), 0);
  put("a/b/cpu.max", "1000 1000000\n");
  cr_expect_eq(millicores("0::/a/b\n"), 1);
}

Test(quota, tightest_group) {
  put("a/cpu.max", "100000 100000\n");
  put("a/b/cpu.max", "400000 100000\n");
  cr_expect_eq(millicores("0::/a/b\n"), 1000);
  colli_quota below = colli_quota_read(membership, root);
  put("membership", "0::/a\n");
  cr_expect_eq(below.group, colli_quota_read(membership, root).group, "they share it");
  put("a/b/cpu.max", "50000 100000\n");
  cr_expect_eq(millicores("0::/a/b\n"), 500);
  cr_expect_neq(below.group, colli_quota_read(membership, root).group);
}

Test(quota, root_of_a_container) {
  put("cpu.max", "200000 100000\n");
  cr_expect_eq(millicores("0::/\n"), 2000);
  cr_expect_eq(millicores("0::/kubepods/of/the/host\n"), 2000);
}

Test(quota, version_1) {
  put("cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  put("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  const char *groups = "9:cpuset:/x\n4:cpu,cpuacct:/a\n0::/\n";
  cr_expect_eq(millicores(groups), 0);
  put("cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
  cr_expect_eq(millicores(groups), 3000);
}

Test(quota, nonsense) {
  put("a/cpu.max", "-5 100000\n");
  cr_expect_eq(millicores("0::/a\n"), 0);
  put("a/cpu.max", "100000 0\n");
  cr_expect_eq(millicores("0::/a\n"), 0);
  put("a/cpu.max", "99999999999999999999 1\n");
  cr_expect_eq(millicores("0::/a\n"), 0);
  put("a/cpu.max", "");
  cr_expect_eq(millicores("0::/a\nno colon\n:\n"), 0);
}

/* Joins a group with half a processor. False: this machine does not let it. */
static int join_half(const char *group) {
  char path[128], text[32];
  const char *const settings[][2] = {{"cpu.cfs_quota_us", "50000"}, {"cgroup.procs", text}};
  snprintf(text, sizeof(text), "%d", getpid());
  if (mkdir(group, 0700) != 0)
    return 0;
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof(path), "%s/%s", group, settings[i][0]);
    FILE *file = fopen(path, "w");
    if (!file || fputs(settings[i][1], file) < 0 || fclose(file) != 0)
      return 0;
  }
  return 1;
}

Test(quota, real) {
  char group[64];
  snprintf(group, sizeof(group), "/sys/fs/cgroup/cpu/libcoll-test-%d", getpid());
  pid_t child = fork();
  if (child == 0) {
    if (!join_half(group))
      _exit(77);
    colli_quota quota = colli_quota_read("/proc/self/cgroup", "/sys/fs/cgroup");
    _exit(quota.group && quota.millicores == 500 ? 0 : 1);
  }
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  rmdir(group);
  cr_assert(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    cr_skip("no right to make a cgroup of version 1");
  cr_expect_eq(WEXITSTATUS(status), 0);
}
