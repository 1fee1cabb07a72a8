/* test_secret.c: the secret is in memory once, in a page that neither dumps nor children have;
 * where it comes from; and that it goes nowhere else. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/create/find_secret.h"
#include "libcoll/net/auth.h"

#define TEXT  "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"
#define OTHER "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

TestSuite(secret, .timeout = 60);

static coll_error error = COLL_ERROR_INIT;

/* Finds the secret as a process with these settings does. */
static coll_status find(colli_secret **secret, int wait_ms) {
  colli_params params;
  cr_assert_eq(colli_params_load(&params, &error), COLL_OK, "%s", error.message);
  coll_status status = colli_find_secret(
      &params, colli_now_ns() + (uint64_t)wait_ms * COLLI_NS_PER_MS, secret, &error);
  cr_assert_null(strstr(error.message, "0011"), "the secret is in: %s", error.message);
  return status;
}

/* It must be found, with this first byte. */
static colli_secret *found(int first) {
  colli_secret *secret;
  cr_assert_eq(find(&secret, 0), COLL_OK, "%s", error.message);
  cr_assert_eq(secret->bytes[0], first);
  return secret;
}

/* It must not be found, with a message that has `text`. */
static void missing(const char *text) {
  colli_secret *secret;
  cr_assert_neq(find(&secret, 100), COLL_OK);
  cr_assert_null(secret);
  cr_assert(strstr(error.message, text), "no \"%s\" in: %s", text, error.message);
}

/* Sets COLL_SECRET. */
static void set(const char *text) {
  cr_assert_eq(setenv("COLL_SECRET", text, 1), 0);
}

/* A file with a text. */
static const char *file_with(const char *text, mode_t mode) {
  static char path[32];
  strcpy(path, "/tmp/coll-secret-XXXXXX");
  int fd = mkstemp(path);
  cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  cr_assert_eq(fchmod(fd, mode), 0);
  close(fd);
  cr_assert_eq(setenv("COLL_SECRET_FILE", path, 1), 0);
  return path;
}

/* Lets a descriptor be the source. */
static void set_fd(int fd) {
  char text[16];
  snprintf(text, sizeof(text), "%d", fd);
  cr_assert_eq(setenv("COLL_SECRET_FD", text, 1), 0);
}

/* A pipe with a text in it. */
static int pipe_with(const char *text) {
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  cr_assert_eq(write(ends[1], text, strlen(text)), (ssize_t)strlen(text));
  close(ends[1]);
  set_fd(ends[0]);
  return ends[0];
}

/* Counts the places in the private memory of this process that have these bytes. The caller gives
 * them inverted, so that it is no such place itself. */
static int count_copies(const uint8_t *inverted, size_t bytes) {
  enum { BLOCK = 1 << 16 };
  FILE *maps = fopen("/proc/self/maps", "re");
  int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC), copies = 0;
  uint8_t *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char line[512], mode[8];
  if (!maps || memory < 0 || block == MAP_FAILED)
    abort();
  for (unsigned long from, to; fgets(line, sizeof(line), maps);) {
    if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || strcmp(mode, "rw-p") != 0 ||
        to - from > 1ul << 30) /* of a sanitizer */
      continue;
    for (unsigned long at = from; at < to; at += BLOCK - bytes + 1) {
      ssize_t got = pread(memory, block, to - at < BLOCK ? to - at : BLOCK, (off_t)at);
      for (ssize_t i = 0; i + (ssize_t)bytes <= got; i++) {
        size_t same = 0;
        while (same < bytes && (block[(size_t)i + same] ^ inverted[same]) == 0xff)
          same++;
        copies += same == bytes;
      }
    }
  }
  fclose(maps);
  close(memory);
  munmap(block, BLOCK);
  return copies;
}

/* The secret's bytes, inverted. */
static void invert_bytes(uint8_t inverted[COLL_SECRET_BYTES]) {
  for (int i = 0; i < COLL_SECRET_BYTES; i++) {
    char digits[3] = {TEXT[2 * i], TEXT[2 * i + 1], '\0'};
    inverted[i] = (uint8_t)~strtoul(digits, NULL, 16);
  }
}

/* Where the digits of COLL_SECRET are, and how often. */
static int count_texts(void) {
  uint8_t inverted[COLLI_SECRET_DIGITS];
  for (int i = 0; i < COLLI_SECRET_DIGITS; i++)
    inverted[i] = (uint8_t)~TEXT[i];
  return count_copies(inverted, sizeof(inverted));
}

/* A rank of two, in a process of its own. Its exit status says what is wrong. */
static int be_rank(int rank, int port) {
  char root[32];
  coll_comm *comm;
  uint8_t inverted[COLL_SECRET_BYTES];
  snprintf(root, sizeof(root), "127.0.0.1:%d", port);
  if (setenv("COLL_RANK", rank ? "1" : "0", 1) || setenv("COLL_NRANKS", "2", 1) ||
      setenv("COLL_ROOT", root, 1) || setenv("COLL_SECRET", TEXT, 1) || count_texts() == 0)
    return 1;
  if (coll_init_from_env(&comm, NULL) != COLL_OK)
    return 2;
  float one = 1, sum = 0;
  if (coll_allreduce(&one, &sum, 1, COLL_FLOAT32, COLL_SUM, comm) != COLL_OK || sum != 2)
    return 3;
  invert_bytes(inverted);
  int copies = count_copies(inverted, sizeof(inverted)), texts = count_texts();
  if (copies != 1 || texts != 0) {
    fprintf(stderr, "rank %d has %d copies, and %d as text\n", rank, copies, texts);
    return 4;
  }
  return coll_comm_destroy(&comm) == COLL_OK && !*getenv("COLL_SECRET") ? 0 : 5;
}

Test(secret, a_rank_has_one_copy) {
  struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof(name);
  int fd = socket(AF_INET, SOCK_STREAM, 0); /* finds a free port */
  cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&name, length) == 0);
  cr_assert_eq(getsockname(fd, (struct sockaddr *)&name, &length), 0);
  close(fd);
  pid_t pids[2];
  for (int rank = 0; rank < 2; rank++)
    if ((pids[rank] = fork()) == 0)
      _exit(be_rank(rank, ntohs(name.sin_port)));
  for (int rank = 0; rank < 2; rank++) {
    int status;
    cr_assert_eq(waitpid(pids[rank], &status, 0), pids[rank]);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d: %d", rank, status);
  }
}

/* The flags of the mapping that has an address, as the kernel shows them. */
static void flags_of(const void *address, char *flags, size_t bytes) {
  FILE *maps = fopen("/proc/self/smaps", "re");
  unsigned long from, to, at = (unsigned long)address;
  char line[512];
  bool inside = false;
  cr_assert_not_null(maps);
  *flags = '\0';
  while (fgets(line, sizeof(line), maps)) {
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
      inside = at >= from && at < to;
    if (inside && strncmp(line, "VmFlags:", 8) == 0)
      snprintf(flags, bytes, "%s", line);
  }
  fclose(maps);
}

Test(secret, neither_dumps_nor_children_have_it) {
  char flags[512];
  uint8_t mac[COLLI_MAC_BYTES];
  set(TEXT);
  colli_secret *secret = found(0x00);
  flags_of(secret->bytes, flags, sizeof(flags));
  cr_assert(strstr(flags, " dd") && strstr(flags, " wf"), "%s", flags);
  cr_assert(colli_hmac(secret->bytes, "", 0, mac));
  pid_t pid = fork();
  if (pid == 0) {
    colli_secret *none;
    _exit(colli_secret_present(secret->bytes) || colli_hmac(secret->bytes, "", 0, mac) ||
          find(&none, 0) == COLL_OK);
  }
  int status;
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_assert_eq(status, 0, "the child has it");
  colli_secret_release(secret);
}

Test(secret, is_used_up_and_kept_for_the_next_communicator) {
  set(TEXT);
  colli_secret *first = found(0x00);
  cr_assert_str_eq(getenv("COLL_SECRET"), "");
  colli_secret *second = found(0x00);
  cr_assert_eq(first, second, "a second copy");
  set(OTHER);
  colli_secret *third = found(0xff);
  cr_assert_eq(first->bytes[1], third->bytes[1]);
  cr_assert_eq(first->bytes[0], 0, "users keep theirs");
  colli_secret_release(first);
  colli_secret_release(second);
  colli_secret_release(third);
}

/* putenv() takes constants, too. */
Test(secret, constants_are_not_written_to) {
  cr_assert_eq(putenv((char *)"COLL_SECRET=" TEXT), 0);
  colli_secret_release(found(0x00));
  cr_assert_null(getenv("COLL_SECRET"));
  colli_secret_release(found(0x00));
}

Test(secret, from_a_descriptor) {
  int fd = pipe_with(TEXT "\n");
  colli_secret_release(found(0x00));
  cr_assert_eq(fcntl(fd, F_GETFD), -1, "it is still open");
  cr_assert_str_eq(getenv("COLL_SECRET_FD"), "");
  colli_secret_release(found(0x00));
  file_with(OTHER, 0600); /* another process may share the open file and its position */
  fd = open(getenv("COLL_SECRET_FILE"), O_RDONLY);
  int same = dup(fd);
  unlink(getenv("COLL_SECRET_FILE"));
  set_fd(fd);
  colli_secret_release(found(0xff));
  set_fd(same);
  colli_secret_release(found(0xff));
}

Test(secret, bad_descriptors) {
  set_fd(1000);
  missing("COLL_SECRET_FD=1000 cannot be read");
  pipe_with("001122");
  missing("64 hexadecimal digits");
  pipe_with("");
  missing("64 hexadecimal digits");
  int ends[2]; /* nobody writes */
  cr_assert_eq(pipe(ends), 0);
  set_fd(ends[0]);
  missing("in time");
}

Test(secret, from_a_file) {
  const char *path = file_with(TEXT "\n", 0600);
  set(OTHER); /* the file comes first, and the variable is erased all the same */
  colli_secret_release(found(0x00));
  cr_assert_str_eq(getenv("COLL_SECRET"), "");
  unlink(path);
}

Test(secret, bad_files) {
  unlink(file_with(TEXT, 0640));
  const char *path = getenv("COLL_SECRET_FILE");
  missing("No such file");
  cr_assert_eq(mkfifo(path, 0600), 0);
  missing("not a regular file");
  unlink(path);
  path = file_with(TEXT, 0640);
  missing("chmod 600");
  unlink(path);
  path = file_with(TEXT "0", 0600);
  missing("64 hexadecimal digits");
  unlink(path);
  if (geteuid() == 0) {
    path = file_with(TEXT, 0600);
    cr_assert_eq(chown(path, 65534, 65534), 0);
    missing("another user");
    unlink(path);
  }
}

Test(secret, bad_texts) {
  missing("there is no secret");
  set("abc");
  missing("64 hexadecimal digits");
  set("00112233445566778899aabbccddeeff00112233445566778899aabbccddeefg");
  missing("64 hexadecimal digits");
  set("0000000000000000000000000000000000000000000000000000000000000000");
  missing("64 hexadecimal digits");
}
