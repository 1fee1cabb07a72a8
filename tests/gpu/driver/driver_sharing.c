/* driver_sharing.c: memory of other processes by handles of cuIpc...; memory for devices of a
 * network. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

/* What a handle says. */
typedef struct handle_text {
  uint64_t mark; /* so that others are refused */
  int64_t pid;
  int32_t fd; /* in that process */
  int32_t device;
  uint64_t bytes, inode;
} handle_text;

static const uint64_t handle_mark = 0x4c4c4f43555047ull;
_Static_assert(sizeof(handle_text) <= sizeof(colli_cu_ipc_handle), "it fits");

colli_cu_result cuIpcGetMemHandle(colli_cu_ipc_handle *handle, colli_cu_deviceptr at) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory *m = driver_memory_find(at, 1);
  if (driver_get()->settings.no_ipc)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  if (!m || m->at != at || m->kind != DEVICE_MEMORY)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const handle_text text = {.mark = handle_mark,
                            .pid = getpid(),
                            .fd = m->fd,
                            .device = m->context->device,
                            .bytes = m->bytes,
                            .inode = m->inode};
  m->exported = true;
  memset(handle, 0, sizeof(*handle));
  memcpy(handle, &text, sizeof(text));
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* The range that a context has of a handle already, or NULL. */
static driver_memory *find_opened(const handle_text *text, const driver_context *context) {
  driver_state *s = driver_get();
  for (int i = 0; i < s->nmemory; i++) {
    driver_memory *m = s->memory[i];
    if (m->kind == OPENED_MEMORY && m->context == context && m->inode == text->inode)
      return m;
  }
  return NULL;
}

bool driver_memory_map_other(driver_memory *m, int64_t pid, int there, uint64_t inode) {
  char path[64];
  struct stat is;
  snprintf(path, sizeof(path), "/proc/%lld/fd/%d", (long long)pid, there);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return false;
  const bool mapped = fstat(fd, &is) == 0 && is.st_ino == inode && driver_memory_map(m, fd);
  close(fd);
  return mapped;
}

colli_cu_result cuIpcOpenMemHandle_v2(colli_cu_deviceptr *at, colli_cu_ipc_handle handle,
                                      unsigned flags) {
  driver_context *context;
  handle_text text;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_state *s = driver_get();
  memcpy(&text, &handle, sizeof(text));
  if (s->settings.no_ipc)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  if (text.mark != handle_mark || flags != COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (text.pid == getpid())
    return driver_leave(COLLI_CUDA_ERROR_INVALID_CONTEXT);
  if (text.device >= s->settings.devices)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_DEVICE);
  if (text.device != context->device && !driver_can_access(s, context->device, text.device))
    return driver_leave(COLLI_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  driver_memory *known = find_opened(&text, context);
  if (known) {
    known->opened++;
    *at = known->at;
    return driver_leave(COLLI_CUDA_SUCCESS);
  }
  driver_memory m = {
      .kind = OPENED_MEMORY, .context = context, .fd = -1, .opened = 1, .inode = text.inode};
  m.bytes = text.bytes;
  if (!driver_memory_map_other(&m, text.pid, text.fd, text.inode))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (!driver_memory_add(&m))
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  *at = m.at;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuIpcCloseMemHandle(colli_cu_deviceptr at) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory *m = driver_memory_find(at, 1);
  if (!m || m->at != at || m->kind != OPENED_MEMORY)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (--m->opened == 0)
    driver_memory_remove(m);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* ---- for devices of a network ---------------------------------------------------------------- */

/* What flushing does to what a network has written; set before anything is flushed. */
static void (*flush)(void);

void fake_gpu_on_flush(void (*function)(void)) {
  flush = function;
}

/* A descriptor that stands at an offset of a file; -1: none. */
static int open_at(int fd, uint64_t offset) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  const int made = open(path, O_RDWR | O_CLOEXEC);
  if (made >= 0 && lseek(made, (off_t)offset, SEEK_SET) < 0)
    abort();
  return made;
}

colli_cu_result cuMemGetHandleForAddressRange(void *handle, colli_cu_deviceptr at, size_t bytes,
                                              colli_cu_range_handle_type type,
                                              unsigned long long flags) {
  driver_context *context;
  const size_t page = 4096;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory *m = driver_memory_find(at, 1);
  const int rdma = driver_get()->settings.rdma;
  if (rdma == 0 || rdma == RDMA_NO_RANGES)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  if (type != COLLI_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags || at % page || bytes % page ||
      !bytes || !m || m->kind != DEVICE_MEMORY ||
      bytes > (m->bytes + page - 1) / page * page - (at - m->at))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const int fd = open_at(m->fd, at - m->at);
  m->exported = true;
  memcpy(handle, &fd, sizeof(fd));
  return driver_leave(fd < 0 ? COLLI_CUDA_ERROR_OUT_OF_MEMORY : COLLI_CUDA_SUCCESS);
}

colli_cu_result cuFlushGPUDirectRDMAWrites(colli_cu_flush_target target,
                                           colli_cu_flush_scope scope) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (driver_get()->settings.rdma != RDMA_FLUSHED)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  if (target != COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
      (scope != COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER &&
       scope != COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (flush)
    flush();
  return driver_leave(COLLI_CUDA_SUCCESS);
}
