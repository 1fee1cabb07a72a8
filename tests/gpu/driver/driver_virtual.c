/*
 * driver_virtual.c: memory in three parts: an allocation, which is a file without a name; addresses
 * that are reserved for some of them; and mappings of the one at the other, which devices may
 * access once that was allowed. The file ends with a note of what it is, for whoever imports it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

enum { GRANULE = 2 << 20, PAGE = 4096 };

/* The note at the end of a file. */
typedef struct note {
  uint64_t mark; /* so that other files are refused */
  uint64_t bytes;
  int32_t device, handle_types;
} note;

static const uint64_t note_mark = 0x4c4c4f43454c4946ull;

/* Begins a call that does what GPU_STRICT holds back; of no context. */
static colli_cu_result enter(void) {
  driver_context *context;
  return driver_enter_heavy(&context);
}

/* Makes the handle of a file, which becomes the handle's. */
static colli_cu_result add(colli_cu_allocation *handle, int fd, const note *n) {
  driver_allocation *a =
      driver_object_add(ALLOCATION, sizeof(*a), &driver_get()->devices[n->device].context);
  if (!a) {
    close(fd);
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  }
  a->fd = fd;
  a->bytes = n->bytes;
  a->handle_types = n->handle_types;
  a->references = 1;
  *handle = (uint64_t)(uintptr_t)a;
  return COLLI_CUDA_SUCCESS;
}

/* Makes a file with a note; -1 if that is impossible. */
static int make_file(const note *n) {
  const int fd = memfd_create("fake_gpu_allocation", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, (off_t)n->bytes + PAGE) == 0 &&
      pwrite(fd, n, sizeof(*n), (off_t)n->bytes) == (ssize_t)sizeof(*n))
    return fd;
  if (fd >= 0)
    close(fd);
  return -1;
}

/* Whether an allocation may be like that. */
static colli_cu_result check_prop(const colli_cu_allocation_prop *prop) {
  if (!prop || prop->type != COLLI_CU_MEM_ALLOCATION_TYPE_PINNED)
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != COLLI_CU_MEM_LOCATION_TYPE_DEVICE ||
      prop->requested_handle_types & ~COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return COLLI_CUDA_ERROR_NOT_SUPPORTED;
  return prop->location.id >= 0 && prop->location.id < driver_get()->settings.devices
             ? COLLI_CUDA_SUCCESS
             : COLLI_CUDA_ERROR_INVALID_DEVICE;
}

colli_cu_result cuMemGetAllocationGranularity(size_t *bytes, const colli_cu_allocation_prop *prop,
                                              colli_cu_granularity which) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (which != COLLI_CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
      which != COLLI_CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  *bytes = GRANULE;
  return driver_leave(check_prop(prop));
}

/* Whether a size or an address is one of whole granules, and a size is possible. */
static bool whole(uint64_t value) {
  return value % GRANULE == 0;
}
static bool possible(size_t bytes) {
  return bytes && whole(bytes) && bytes <= SIZE_MAX / 4;
}

colli_cu_result cuMemCreate(colli_cu_allocation *handle, size_t bytes,
                            const colli_cu_allocation_prop *prop, unsigned long long flags) {
  colli_cu_result result = enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (flags || !possible(bytes))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  result = check_prop(prop);
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  const note n = {.mark = note_mark,
                  .bytes = bytes,
                  .device = prop->location.id,
                  .handle_types = prop->requested_handle_types};
  const int fd = make_file(&n);
  return driver_leave(fd < 0 ? COLLI_CUDA_ERROR_OUT_OF_MEMORY : add(handle, fd, &n));
}

/* The allocation of a handle, or NULL. */
static driver_allocation *find(colli_cu_allocation handle) {
  return driver_object_find(ALLOCATION, (void *)(uintptr_t)handle);
}

colli_cu_result cuMemRelease(colli_cu_allocation handle) {
  colli_cu_result result = enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_allocation *a = find(handle);
  if (!a)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (--a->references == 0)
    driver_object_drop(&a->object, true);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuMemAddressReserve(colli_cu_deviceptr *at, size_t bytes, size_t alignment,
                                    colli_cu_deviceptr wanted, unsigned long long flags) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  (void)wanted; /* only a hint */
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (flags || !possible(bytes) || alignment & (alignment - 1) || alignment > SIZE_MAX / 4)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const size_t align = alignment > GRANULE ? alignment : GRANULE, all = bytes + align;
  driver_memory *m = calloc(1, sizeof(*m));
  void *mapped = m ? mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                   : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    free(m);
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  }
  *at = ((uint64_t)(uintptr_t)mapped + align - 1) / align * align;
  *m = (driver_memory){.kind = RESERVED_ADDRESSES,
                       .at = *at,
                       .bytes = bytes,
                       .mapped_at = (uint64_t)(uintptr_t)mapped,
                       .mapped_bytes = all,
                       .fd = -1,
                       .next = driver_get()->reserved};
  driver_get()->reserved = m;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuMemAddressFree(colli_cu_deviceptr at, size_t bytes) {
  colli_cu_result result = enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory **link = &driver_get()->reserved, *m;
  while ((m = *link) && m->at != at)
    link = &m->next;
  if (!m || m->bytes != bytes || driver_memory_overlaps(at, bytes))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  *link = m->next;
  driver_memory_unmap_later(m);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Whether addresses are reserved. */
static bool is_reserved(uint64_t at, size_t bytes) {
  const driver_memory *m = driver_get()->reserved;
  while (m && (at < m->at || at - m->at >= m->bytes))
    m = m->next;
  return m && bytes <= m->at + m->bytes - at;
}

/* Maps the pages of an allocation; false if that is impossible. */
static bool map_pages(driver_memory *m) {
  const bool hidden = driver_get()->settings.hidden; /* then reserved addresses stay as they are */
  m->place = mmap(hidden ? NULL : (void *)(uintptr_t)m->at, m->bytes, PROT_READ | PROT_WRITE,
                  MAP_SHARED | (hidden ? 0 : MAP_FIXED), m->allocation->fd, 0);
  if (hidden) {
    m->mapped_at = (uint64_t)(uintptr_t)m->place;
    m->mapped_bytes = m->bytes;
  }
  return m->place != MAP_FAILED;
}

colli_cu_result cuMemMap(colli_cu_deviceptr at, size_t bytes, size_t offset,
                         colli_cu_allocation handle, unsigned long long flags) {
  colli_cu_result result = enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_allocation *a = find(handle);
  if (!a || flags || offset || !whole(at) || !possible(bytes) || !is_reserved(at, bytes) ||
      driver_memory_overlaps(at, bytes))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (bytes != a->bytes)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  driver_memory m = {.kind = MAPPED_MEMORY, .at = at, .bytes = bytes, .fd = -1, .allocation = a};
  if (!map_pages(&m) || !driver_memory_add(&m))
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  a->object.users++;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Calls a function with each mapping of a range, which must consist of whole ones; false if it does
 * not. */
static bool each_mapping(uint64_t at, size_t bytes, void (*call)(driver_memory *m, void *context),
                         void *context) {
  for (int twice = 0; twice < 2; twice++) /* looks first, and then calls */
    for (uint64_t from = at; from < at + bytes;) {
      driver_memory *m = driver_memory_find(from, 1);
      if (!m || m->kind != MAPPED_MEMORY || m->at != from || m->bytes > at + bytes - from)
        return false;
      from += m->bytes;
      if (twice)
        call(m, context);
    }
  return bytes != 0;
}

/* Ends a mapping. Its pages remain until no kernel runs, which may use them; or, not hidden, until
 * others come to these addresses, or the addresses are given back. */
static void unmap(driver_memory *m, void *unused) {
  driver_allocation *a = m->allocation;
  (void)unused;
  driver_memory_remove(m);
  driver_object_drop(&a->object, false);
}

colli_cu_result cuMemUnmap(colli_cu_deviceptr at, size_t bytes) {
  colli_cu_result result = enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  return driver_leave(each_mapping(at, bytes, unmap, NULL) ? COLLI_CUDA_SUCCESS
                                                           : COLLI_CUDA_ERROR_INVALID_VALUE);
}

/* Lets a device access a mapping, or stops that. */
static void set_access(driver_memory *m, void *context) {
  const colli_cu_access *access = context;
  const uint32_t device = 1u << access->location.id;
  m->readable = access->flags & 1 ? m->readable | device : m->readable & ~device;
  m->writable = access->flags & 2 ? m->writable | device : m->writable & ~device;
}

/* Finds out whether a mapping's device cannot be accessed. */
typedef struct reach {
  int device;
  bool impossible;
} reach;
static void look(driver_memory *m, void *context) {
  reach *r = context;
  const int owner = m->allocation->object.context->device;
  r->impossible =
      r->impossible || (owner != r->device && !driver_can_access(driver_get(), r->device, owner));
}

/* Whether that may be allowed. */
static colli_cu_result check_access(uint64_t at, size_t bytes, const colli_cu_access *access) {
  reach r = {.device = access->location.id};
  if (access->location.type != COLLI_CU_MEM_LOCATION_TYPE_DEVICE ||
      (access->flags != 0 && access->flags != 1 &&
       access->flags != COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  if (r.device < 0 || r.device >= driver_get()->settings.devices)
    return COLLI_CUDA_ERROR_INVALID_DEVICE;
  if (!each_mapping(at, bytes, look, &r))
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  return r.impossible ? COLLI_CUDA_ERROR_INVALID_DEVICE : COLLI_CUDA_SUCCESS;
}

colli_cu_result cuMemSetAccess(colli_cu_deviceptr at, size_t bytes, const colli_cu_access *access,
                               size_t count) {
  colli_cu_result result = enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  for (size_t i = 0; i < count && result == COLLI_CUDA_SUCCESS; i++)
    result = check_access(at, bytes, &access[i]);
  for (size_t i = 0; i < count && result == COLLI_CUDA_SUCCESS; i++) {
    colli_cu_access copy = access[i];
    each_mapping(at, bytes, set_access, &copy);
  }
  return driver_leave(result);
}

colli_cu_result cuMemRetainAllocationHandle(colli_cu_allocation *handle, void *at) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const driver_memory *m = driver_memory_find((uint64_t)(uintptr_t)at, 1);
  if (!m || m->kind != MAPPED_MEMORY)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  m->allocation->object.destroyed = false; /* if only the mapping kept it */
  m->allocation->references++;
  *handle = (uint64_t)(uintptr_t)m->allocation;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Whether handles of this type can be. */
static colli_cu_result check_type(colli_cu_handle_type type) {
  if (driver_get()->settings.no_ipc)
    return COLLI_CUDA_ERROR_NOT_SUPPORTED;
  return type == COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? COLLI_CUDA_SUCCESS
                                                                : COLLI_CUDA_ERROR_INVALID_VALUE;
}

colli_cu_result cuMemExportToShareableHandle(void *shareable, colli_cu_allocation handle,
                                             colli_cu_handle_type type, unsigned long long flags) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  result = check_type(type);
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  const driver_allocation *a = find(handle);
  if (!a || flags || !(a->handle_types & type))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const int fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0)
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  memcpy(shareable, &fd, sizeof(fd));
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Reads the note of a file; false if it has none. */
static bool read_note(int fd, note *n) {
  struct stat is;
  return fstat(fd, &is) == 0 && is.st_size > PAGE &&
         pread(fd, n, sizeof(*n), is.st_size - PAGE) == (ssize_t)sizeof(*n) &&
         n->mark == note_mark && n->bytes == (uint64_t)is.st_size - PAGE &&
         n->device < driver_get()->settings.devices;
}

colli_cu_result cuMemImportFromShareableHandle(colli_cu_allocation *handle, void *shareable,
                                               colli_cu_handle_type type) {
  note n;
  colli_cu_result result = enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  result = check_type(type);
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  const int fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0 && read_note(fd, &n))
    return driver_leave(add(handle, fd, &n));
  if (fd >= 0)
    close(fd);
  return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
}
