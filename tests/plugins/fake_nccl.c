/*
 * fake_nccl.c: what perf/gpu calls of NCCL, for its test: each all-reduce sets the result to the
 * number of ranks, which is the sum if each contributes 1. With FAKE_NCCL=wrong to one more; with
 * FAKE_NCCL=refuses no communicator can be made.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_id {
  char internal[128];
} fake_id;

typedef struct fake_comm {
  int nranks;
} fake_comm;

#pragma GCC visibility push(default)
int ncclGetVersion(int *version);
int ncclGetUniqueId(fake_id *id);
int ncclCommInitRank(void **comm, int nranks, fake_id id, int rank);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm,
                  void *stream);
const char *ncclGetLastError(void *comm);
int ncclCommDestroy(void *comm);
#pragma GCC visibility pop

/* Whether FAKE_NCCL has a value. */
static int told(const char *value) {
  const char *text = getenv("FAKE_NCCL");
  return text && strcmp(text, value) == 0;
}

int ncclGetVersion(int *version) {
  *version = 22809;
  return 0;
}

int ncclGetUniqueId(fake_id *id) {
  memset(id, 7, sizeof(*id));
  return 0;
}

int ncclCommInitRank(void **comm, int nranks, fake_id id, int rank) {
  fake_comm *made = malloc(sizeof(*made));
  if (!made || told("refuses") || id.internal[127] != 7 || rank < 0 || rank >= nranks) {
    free(made);
    return 5;
  }
  made->nranks = nranks;
  *comm = made;
  return 0;
}

int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm,
                  void *stream) {
  int (*set)(uint64_t at, unsigned value, size_t count, void *stream);
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void *symbol = driver ? dlsym(driver, "cuMemsetD32Async") : NULL;
  if (!symbol || !send || type != 7 || op != 0)
    return 4;
  memcpy(&set, &symbol, sizeof(set));
  const float sum = (float)(((fake_comm *)comm)->nranks + told("wrong"));
  unsigned bits;
  memcpy(&bits, &sum, sizeof(bits));
  return set((uint64_t)(uintptr_t)recv, bits, count, stream) ? 1 : 0;
}

const char *ncclGetLastError(void *comm) {
  (void)comm;
  return "the fake NCCL refuses";
}

int ncclCommDestroy(void *comm) {
  free(comm);
  return 0;
}
