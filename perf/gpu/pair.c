/* pair.c: two processes that use GPUs. */
#include "pair.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define SILENCE_S 20

pair pair_start(void (*child)(pair *it, const probe_options *options),
                const probe_options *options) {
  int fds[2];
  void *shared = mmap(NULL, PAIR_WORDS * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
    probe_die("no memory or socket for two processes: %s", strerror(errno));
  const struct timeval silence = {.tv_sec = SILENCE_S};
  for (int i = 0; i < 2; i++)
    setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
  fflush(stdout);
  const pid_t pid = fork();
  if (pid < 0)
    probe_die("no second process: %s", strerror(errno));
  pair it = {.fd = fds[pid == 0], .parent = pid > 0, .shared = shared};
  close(fds[pid > 0]);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    child(&it, options);
    _exit(0);
  }
  return it;
}

void pair_send(const pair *it, const void *message, size_t bytes) {
  if (send(it->fd, message, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
    probe_die("the other process has ended: %s", strerror(errno));
}

void pair_receive(const pair *it, void *message, size_t bytes) {
  const ssize_t got = recv(it->fd, message, bytes, MSG_WAITALL);
  if (got != (ssize_t)bytes)
    probe_die("the other process %s", got < 0 ? "is silent" : "has ended");
}

void pair_meet(const pair *it) {
  char byte = 0;
  pair_send(it, &byte, 1);
  pair_receive(it, &byte, 1);
}

colli_cu_deviceptr pair_register(const pair *it, const probe *p) {
  colli_cu_deviceptr at;
  void *shared = (void *)(uintptr_t)it->shared;
  PROBE_OK(p, mem_host_register, shared, PAIR_WORDS * sizeof(uint32_t),
           COLLI_CU_MEMHOSTREGISTER_PORTABLE | COLLI_CU_MEMHOSTREGISTER_DEVICEMAP);
  PROBE_OK(p, mem_host_get_device_pointer, &at, shared, 0);
  return at;
}
