/*
 * driver_pool.c: pools of memory. An allocation is there at once, and gone at once, whatever its
 * stream does: tests wait for the stream. A descriptor of a pool is that of a file which says what
 * it is; memory of a pool is found by the process that has it.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

/* What the file of a pool says. */
typedef struct note {
  uint64_t mark; /* so that other files are refused */
  int32_t device, handle_types;
} note;

/* What finds an allocation. */
typedef struct place_text {
  uint64_t mark;
  int64_t pid;
  int32_t fd; /* in that process */
  uint64_t bytes, inode, pool;
} place_text;

static const uint64_t pool_mark = 0x4c4c4f434c4f4f50ull, place_mark = 0x4c4c4f43455450ull;
_Static_assert(sizeof(place_text) <= sizeof(colli_cu_pool_pointer), "it fits");

/* The pool of a handle, or NULL. */
static driver_pool *find(colli_cu_pool handle) {
  return driver_object_find(POOL, handle);
}

/* Adds a pool, which its own device may access; the file becomes the pool's. */
static colli_cu_result add(colli_cu_pool *handle, int fd, const note *n, bool imported) {
  struct stat is;
  driver_pool *pool =
      fstat(fd, &is) == 0
          ? driver_object_add(POOL, sizeof(*pool), &driver_get()->devices[n->device].context)
          : NULL;
  if (!pool) {
    close(fd);
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  }
  pool->fd = fd;
  pool->inode = is.st_ino;
  pool->handle_types = n->handle_types;
  pool->imported = imported;
  pool->readable = pool->writable = 1u << n->device;
  *handle = (colli_cu_pool)(void *)pool;
  return COLLI_CUDA_SUCCESS;
}

colli_cu_result cuMemPoolCreate(colli_cu_pool *handle, const colli_cu_pool_props *props) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!props || props->type != COLLI_CU_MEM_ALLOCATION_TYPE_PINNED || props->win32_attributes ||
      props->location.type != COLLI_CU_MEM_LOCATION_TYPE_DEVICE ||
      props->handle_types & ~COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (props->location.id < 0 || props->location.id >= driver_get()->settings.devices)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_DEVICE);
  const note n = {pool_mark, props->location.id, props->handle_types};
  const int fd = memfd_create("fake_gpu_pool", MFD_CLOEXEC);
  if (fd >= 0 && pwrite(fd, &n, sizeof(n), 0) == (ssize_t)sizeof(n))
    return driver_leave(add(handle, fd, &n, false));
  if (fd >= 0)
    close(fd);
  return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
}

colli_cu_result cuMemPoolDestroy(colli_cu_pool handle) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_pool *pool = find(handle);
  if (!pool)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_object_drop(&pool->object, true); /* as soon as its allocations are freed */
  return driver_leave(COLLI_CUDA_SUCCESS);
}

bool driver_pool_allows(const driver_pool *pool, int device, bool write) {
  return (write ? pool->writable : pool->readable) >> device & 1;
}

colli_cu_result cuMemPoolSetAccess(colli_cu_pool handle, const colli_cu_access *access,
                                   size_t count) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const driver_state *s = driver_get();
  driver_pool *pool = find(handle);
  if (!pool)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const int owner = pool->object.context->device;
  for (size_t i = 0; i < count; i++) {
    const int device = access[i].location.id;
    if (access[i].location.type != COLLI_CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
        device >= s->settings.devices ||
        (device != owner && !driver_can_access(s, device, owner)) ||
        (device == owner && access[i].flags != COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
      return driver_leave(COLLI_CUDA_ERROR_INVALID_DEVICE);
    const uint32_t bit = 1u << device;
    pool->readable = access[i].flags & 1 ? pool->readable | bit : pool->readable & ~bit;
    pool->writable = access[i].flags & 2 ? pool->writable | bit : pool->writable & ~bit;
  }
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* ---- allocations ----------------------------------------------------------------------------- */

/* Adds the memory of an allocation, which is mapped. */
static colli_cu_result add_memory(driver_memory *m, driver_pool *pool, colli_cu_deviceptr *at) {
  m->kind = POOLED_MEMORY;
  m->context = pool->object.context;
  m->pool = pool;
  if (!driver_memory_add(m))
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  pool->object.users++;
  *at = m->at;
  return COLLI_CUDA_SUCCESS;
}

colli_cu_result cuMemAllocFromPoolAsync(colli_cu_deviceptr *at, size_t bytes, colli_cu_pool handle,
                                        colli_cu_stream stream) {
  driver_stream *used;
  colli_cu_result result = driver_enter_stream(stream, &used);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_pool *pool = find(handle);
  driver_memory m = {.bytes = bytes};
  if (!pool || pool->imported || !bytes)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (used->capture)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED); /* a fake that has no such nodes */
  if (bytes > SIZE_MAX / 4 || !driver_memory_map_new(&m))
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  return driver_leave(add_memory(&m, pool, at));
}

/* The allocation that begins at an address, or NULL. */
static driver_memory *find_memory(uint64_t at) {
  driver_memory *m = driver_memory_find(at, 1);
  return m && m->at == at && m->kind == POOLED_MEMORY ? m : NULL;
}

colli_cu_result cuMemFreeAsync(colli_cu_deviceptr at, colli_cu_stream stream) {
  driver_stream *used;
  colli_cu_result result = driver_enter_stream(stream, &used);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory *m = find_memory(at);
  if (!m)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_memory_remove(m);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* Whether a pool may be exported so. */
static colli_cu_result check_export(const driver_pool *pool, colli_cu_handle_type type) {
  if (driver_get()->settings.no_ipc)
    return COLLI_CUDA_ERROR_NOT_SUPPORTED;
  return pool && !pool->imported && type == COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                 pool->handle_types & type
             ? COLLI_CUDA_SUCCESS
             : COLLI_CUDA_ERROR_INVALID_VALUE;
}

colli_cu_result cuMemPoolExportToShareableHandle(void *shareable, colli_cu_pool handle,
                                                 colli_cu_handle_type type,
                                                 unsigned long long flags) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const driver_pool *pool = find(handle);
  result = flags ? COLLI_CUDA_ERROR_INVALID_VALUE : check_export(pool, type);
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  const int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
  memcpy(shareable, &fd, sizeof(fd));
  return driver_leave(fd < 0 ? COLLI_CUDA_ERROR_OUT_OF_MEMORY : COLLI_CUDA_SUCCESS);
}

colli_cu_result cuMemPoolImportFromShareableHandle(colli_cu_pool *handle, void *shareable,
                                                   colli_cu_handle_type type,
                                                   unsigned long long flags) {
  note n;
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (driver_get()->settings.no_ipc)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  if (flags || type != COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const int fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0 && pread(fd, &n, sizeof(n), 0) == (ssize_t)sizeof(n) && n.mark == pool_mark &&
      n.device < driver_get()->settings.devices)
    return driver_leave(add(handle, fd, &n, true));
  if (fd >= 0)
    close(fd);
  return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
}

colli_cu_result cuMemPoolExportPointer(colli_cu_pool_pointer *pointer, colli_cu_deviceptr at) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory *m = find_memory(at);
  result = check_export(m ? m->pool : NULL, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  const place_text text = {.mark = place_mark,
                           .pid = getpid(),
                           .fd = m->fd,
                           .bytes = m->bytes,
                           .inode = m->inode,
                           .pool = m->pool->inode};
  m->exported = true;
  memset(pointer, 0, sizeof(*pointer));
  memcpy(pointer, &text, sizeof(text));
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuMemPoolImportPointer(colli_cu_deviceptr *at, colli_cu_pool handle,
                                       colli_cu_pool_pointer *pointer) {
  place_text text;
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_pool *pool = find(handle);
  memcpy(&text, pointer, sizeof(text));
  if (!pool || !pool->imported || text.mark != place_mark || text.pool != pool->inode)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_memory m = {.fd = -1, .bytes = text.bytes, .inode = text.inode};
  if (!driver_memory_map_other(&m, text.pid, text.fd, text.inode))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  return driver_leave(add_memory(&m, pool, at));
}
