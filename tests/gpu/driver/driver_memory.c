/* driver_memory.c: ranges of memory: of devices, pinned and registered; what is known of an
 * address. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "tests/common/sanitized.h"

enum { PAGE = 4096, MOST_KEPT = 64, MOST_KEPT_BYTES = 1 << 20 };

/* Whole pages. */
static size_t pages(size_t bytes) {
  return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The index of the first range that ends after an address. */
static int index_of(const driver_state *s, uint64_t at) {
  int low = 0, high = s->nmemory;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (s->memory[middle]->at + s->memory[middle]->bytes > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

driver_memory *driver_memory_find(uint64_t at, size_t bytes) {
  driver_state *s = driver_get();
  const int i = index_of(s, at);
  if (i == s->nmemory || s->memory[i]->at > at)
    return NULL;
  return bytes <= s->memory[i]->at + s->memory[i]->bytes - at ? s->memory[i] : NULL;
}

bool driver_memory_overlaps(uint64_t at, size_t bytes) {
  const driver_state *s = driver_get();
  const int i = index_of(s, at);
  return i < s->nmemory && s->memory[i]->at < at + bytes;
}

/* Whether a copy may use a range: what is mapped needs a device that may access it. */
static bool is_accessible(const driver_memory *m) {
  return m->kind != MAPPED_MEMORY || m->readable;
}

bool driver_memory_has(uint64_t at, size_t bytes) {
  const driver_memory *m;
  while ((m = driver_memory_find(at, 1)) && is_accessible(m)) {
    const size_t rest = m->at + m->bytes - at;
    if (bytes <= rest)
      return true;
    at += rest;
    bytes -= rest;
  }
  return false;
}

/* Makes room for one range more. */
static bool grow(driver_state *s) {
  if (s->nmemory < s->memory_room)
    return true;
  const int room = s->memory_room * 2 + 64;
  driver_memory **memory = realloc(s->memory, (size_t)room * sizeof(*memory));
  if (!memory)
    return false;
  s->memory = memory;
  s->memory_room = room;
  return true;
}

/* Gives a range back to the system. */
static void unmap(const driver_memory *m) {
  if (m->mapped_bytes)
    munmap((void *)(uintptr_t)m->mapped_at, m->mapped_bytes);
  if (m->fd >= 0)
    close(m->fd);
}

bool driver_memory_add(const driver_memory *fields) {
  driver_state *s = driver_get();
  driver_memory *m = grow(s) ? malloc(sizeof(*m)) : NULL;
  if (!m) {
    unmap(fields);
    return false;
  }
  *m = *fields;
  if (!m->place)
    m->place = (uint8_t *)(uintptr_t)m->at;
  m->id = ++s->ids;
  const int i = index_of(s, m->at);
  memmove(s->memory + i + 1, s->memory + i, (size_t)(s->nmemory - i) * sizeof(*s->memory));
  s->memory[i] = m;
  s->nmemory++;
  return true;
}

void driver_memory_remove(driver_memory *memory) {
  driver_state *s = driver_get();
  const int i = index_of(s, memory->at);
  s->nmemory--;
  memmove(s->memory + i, s->memory + i + 1, (size_t)(s->nmemory - i) * sizeof(*s->memory));
  if (memory->pool)
    driver_object_drop(&memory->pool->object, false);
  driver_memory_unmap_later(memory);
}

void driver_memory_unmap_later(driver_memory *memory) {
  driver_state *s = driver_get();
  memory->next = s->freed;
  s->freed = memory;
  driver_memory_unmap_freed(); /* else whoever is busy does it */
}

/* Unmaps a range and forgets it. */
static void discard(driver_memory *m) {
  unmap(m);
  free(m);
}

/* Keeps device memory that was freed: new memory costs as much as several copies. Not if another
 * process may have it, nor where a sanitizer looks for accesses to freed memory. */
static bool keep(driver_memory *m) {
  driver_state *s = driver_get();
  driver_memory **link = &s->kept;
  if (SANITIZED || m->kind != DEVICE_MEMORY || m->exported || m->bytes > MOST_KEPT_BYTES)
    return false;
  m->next = s->kept;
  s->kept = m;
  if (++s->nkept <= MOST_KEPT)
    return true;
  while ((*link)->next) /* the oldest one goes */
    link = &(*link)->next;
  discard(*link);
  *link = NULL;
  s->nkept--;
  return true;
}

/* Takes memory for so many bytes from what was kept; false if there is none. Its contents are those
 * that it had, as with CUDA. */
static bool take_kept(driver_memory *m) {
  driver_state *s = driver_get();
  driver_memory **link = &s->kept, *found;
  while ((found = *link) && pages(found->bytes) != pages(m->bytes))
    link = &found->next;
  if (!found)
    return false;
  *link = found->next;
  s->nkept--;
  m->at = found->at;
  m->place = found->place;
  m->mapped_at = found->mapped_at;
  m->mapped_bytes = found->mapped_bytes;
  m->fd = found->fd;
  m->inode = found->inode;
  free(found);
  return true;
}

void driver_memory_unmap_freed(void) {
  driver_state *s = driver_get();
  driver_memory *m;
  while (!s->running && !s->busy && (m = s->freed)) {
    s->freed = m->next;
    if (!keep(m))
      discard(m);
  }
}

uint8_t *driver_memory_place(uint64_t at, size_t *bytes) {
  const driver_memory *m = driver_memory_find(at, 1);
  if (!m)
    return (uint8_t *)(uintptr_t)at;
  const size_t rest = m->at + m->bytes - at;
  *bytes = *bytes < rest ? *bytes : rest;
  return m->place + (at - m->at);
}

uint8_t *driver_memory_use(void *unused, uint64_t address, size_t bytes, bool write) {
  driver_state *s = driver_get();
  (void)unused;
  pthread_mutex_lock(&s->lock);
  const driver_memory *m = driver_memory_find(address, bytes);
  const int device = s->running_device;
  bool allowed = m != NULL;
  if (m && m->kind == MAPPED_MEMORY)
    allowed = (write ? m->writable : m->readable) >> device & 1;
  if (m && m->kind == POOLED_MEMORY)
    allowed = driver_pool_allows(m->pool, device, write);
  if (m && (m->kind == DEVICE_MEMORY || m->kind == OPENED_MEMORY)) {
    const uint32_t peers = s->devices[device].context.peers;
    allowed = m->context->device == device ||
              (m->kind == DEVICE_MEMORY && peers >> m->context->device & 1);
  }
  uint8_t *place = allowed ? m->place + (address - m->at) : NULL;
  pthread_mutex_unlock(&s->lock);
  return place;
}

void *fake_gpu_place(colli_cu_deviceptr at) {
  driver_state *s = driver_get();
  size_t bytes = 1;
  pthread_mutex_lock(&s->lock);
  uint8_t *place = driver_memory_place(at, &bytes);
  pthread_mutex_unlock(&s->lock);
  return place;
}

colli_cu_deviceptr fake_gpu_address(const volatile void *place) {
  driver_state *s = driver_get();
  uint64_t at = (uint64_t)(uintptr_t)place;
  pthread_mutex_lock(&s->lock);
  for (int i = 0; i < s->nmemory; i++) {
    const driver_memory *m = s->memory[i];
    const uint64_t begin = (uint64_t)(uintptr_t)m->place;
    if (at >= begin && at - begin < m->bytes) {
      at = m->at + (at - begin);
      break;
    }
  }
  pthread_mutex_unlock(&s->lock);
  return at;
}

bool driver_memory_map(driver_memory *m, int fd) {
  const bool hidden = driver_get()->settings.hidden;
  const size_t whole = pages(m->bytes);
  uint8_t *at = MAP_FAILED;
  if (hidden) /* addresses without access, and behind them the place */
    at = mmap(NULL, 2 * whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (hidden && at == MAP_FAILED)
    return false;
  m->place = mmap(hidden ? at + whole : NULL, whole, PROT_READ | PROT_WRITE,
                  MAP_SHARED | (hidden ? MAP_FIXED : 0), fd, 0);
  if (hidden && m->place == MAP_FAILED)
    munmap(at, 2 * whole);
  m->mapped_bytes = hidden ? 2 * whole : whole;
  m->at = m->mapped_at = (uint64_t)(uintptr_t)(hidden ? at : m->place);
  return m->place != MAP_FAILED;
}

bool driver_memory_map_new(driver_memory *m) {
  struct stat is = {0};
  m->fd = memfd_create("fake_gpu", MFD_CLOEXEC);
  if (m->fd < 0)
    return false;
  if (ftruncate(m->fd, (off_t)pages(m->bytes)) == 0 && fstat(m->fd, &is) == 0 &&
      driver_memory_map(m, m->fd)) {
    m->inode = is.st_ino;
    return true;
  }
  close(m->fd);
  return false;
}

colli_cu_result cuMemAlloc_v2(colli_cu_deviceptr *at, size_t bytes) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory m = {.kind = DEVICE_MEMORY, .bytes = bytes, .context = context};
  if (!bytes)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (bytes > SIZE_MAX / 4 || (!take_kept(&m) && !driver_memory_map_new(&m)) ||
      !driver_memory_add(&m))
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  *at = m.at;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Frees memory of a kind, by its first address. */
static colli_cu_result release(uint64_t at, memory_kind kind, colli_cu_result otherwise) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory *m = driver_memory_find(at, 1);
  const bool pooled = m && m->kind == POOLED_MEMORY && kind == DEVICE_MEMORY;
  if (!m || m->at != at || (m->kind != kind && !pooled))
    return driver_leave(otherwise);
  driver_memory_remove(m);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuMemFree_v2(colli_cu_deviceptr at) {
  return at ? release(at, DEVICE_MEMORY, COLLI_CUDA_ERROR_INVALID_VALUE) : COLLI_CUDA_SUCCESS;
}

colli_cu_result cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!bytes || flags & ~7u)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  void *mapped = bytes > SIZE_MAX / 2 ? MAP_FAILED
                                      : mmap(NULL, pages(bytes), PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const driver_memory m = {.kind = PINNED_MEMORY,
                           .at = (uint64_t)(uintptr_t)mapped,
                           .bytes = bytes,
                           .mapped_at = (uint64_t)(uintptr_t)mapped,
                           .mapped_bytes = pages(bytes),
                           .context = context,
                           .fd = -1};
  if (mapped == MAP_FAILED || !driver_memory_add(&m))
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  *at = mapped;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuMemFreeHost(void *at) {
  return release((uint64_t)(uintptr_t)at, PINNED_MEMORY, COLLI_CUDA_ERROR_INVALID_VALUE);
}

colli_cu_result cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const driver_memory m = {.kind = REGISTERED_MEMORY,
                           .at = (uint64_t)(uintptr_t)at,
                           .bytes = bytes,
                           .context = context,
                           .fd = -1};
  if (!at || !bytes || bytes > SIZE_MAX - m.at || flags & ~3u)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (driver_memory_overlaps(m.at, bytes))
    return driver_leave(COLLI_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  return driver_leave(driver_memory_add(&m) ? COLLI_CUDA_SUCCESS : COLLI_CUDA_ERROR_OUT_OF_MEMORY);
}

colli_cu_result cuMemHostUnregister(void *at) {
  return release((uint64_t)(uintptr_t)at, REGISTERED_MEMORY,
                 COLLI_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

colli_cu_result cuMemHostGetDevicePointer_v2(colli_cu_deviceptr *device, void *host,
                                             unsigned flags) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const driver_memory *m = driver_memory_find((uint64_t)(uintptr_t)host, 1);
  if (flags || !m || m->kind < PINNED_MEMORY)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  *device = (uint64_t)(uintptr_t)host;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuMemGetAddressRange_v2(colli_cu_deviceptr *base, size_t *bytes,
                                        colli_cu_deviceptr at) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const driver_memory *m = driver_memory_find(at, 1);
  if (!m || m->kind == REGISTERED_MEMORY)
    return driver_leave(COLLI_CUDA_ERROR_NOT_FOUND);
  if (base)
    *base = m->at;
  if (bytes)
    *bytes = m->bytes;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Writes a value of `bytes` bytes, all of whose kinds are little-endian numbers. */
static void give(void *to, uint64_t value, size_t bytes) {
  memcpy(to, &value, bytes);
}

/* The first of the mappings that follow each other without a gap, of which this is one: the
 * attributes tell of all together, as a driver for CUDA 13.0 does; cuMemGetAddressRange() does not.
 */
static const driver_memory *first_of_range(const driver_memory *m) {
  const driver_memory *before = m;
  while (before && before->kind == MAPPED_MEMORY) {
    m = before;
    before = driver_memory_find(m->at - 1, 1);
  }
  return m;
}

/* How much all of them have. */
static size_t bytes_of_range(const driver_memory *m) {
  const driver_memory *next = first_of_range(m);
  size_t bytes = next->bytes;
  while (next->kind == MAPPED_MEMORY) {
    next = driver_memory_find(next->at + next->bytes, 1);
    if (!next || next->kind != MAPPED_MEMORY)
      break;
    bytes += next->bytes;
  }
  return bytes;
}

/* Writes an attribute of an address; m is NULL if nothing is known. False if it is unknown. What
 * CUDA calls a boolean has 4 bytes here, as programs that use it have. */
static bool give_attribute(colli_cu_pointer_attribute attribute, const driver_memory *m,
                           uint64_t at, void *to) {
  const bool host = m && m->kind >= PINNED_MEMORY, mapped = m && m->kind == MAPPED_MEMORY;
  const driver_context *place = !m ? NULL : mapped ? m->allocation->object.context : m->context;
  switch (attribute) {
  case COLLI_CU_POINTER_ATTRIBUTE_CONTEXT:
    give(to, m ? (uint64_t)(uintptr_t)m->context : 0, sizeof(void *));
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    give(to, !m ? 0 : host ? COLLI_CU_MEMORYTYPE_HOST : COLLI_CU_MEMORYTYPE_DEVICE, 4);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    give(to, m ? at : 0, 8);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_HOST_POINTER:
    give(to, host ? at : 0, sizeof(void *));
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    give(to, m ? m->sync_memops : 0, 4);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_BUFFER_ID:
    give(to, m ? m->id : 0, 8);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_IS_MANAGED:
    give(to, 0, 4);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    give(to, place ? (uint64_t)place->device : (uint64_t)-2, 4);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    give(to, m && m->kind == DEVICE_MEMORY && !driver_get()->settings.no_ipc, 4);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    give(to, m ? first_of_range(m)->at : 0, 8);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    give(to, m ? bytes_of_range(m) : 0, sizeof(size_t));
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    give(to, mapped ? (uint64_t)m->allocation->handle_types : COLLI_CU_MEM_HANDLE_TYPE_NONE, 8);
    return true;
  case COLLI_CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    give(to, m ? (uint64_t)(uintptr_t)m->pool : 0, sizeof(void *));
    return true;
  default:
    return false;
  }
}

colli_cu_result cuPointerGetAttributes(unsigned count, colli_cu_pointer_attribute *attributes,
                                       void **values, colli_cu_deviceptr at) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const driver_context *context = driver_current();
  if (context && context->error)
    return driver_leave(context->error);
  const driver_memory *m = driver_memory_find(at, 1);
  for (unsigned i = 0; i < count && result == COLLI_CUDA_SUCCESS; i++)
    if (!give_attribute(attributes[i], m, at, values[i]))
      result = COLLI_CUDA_ERROR_INVALID_VALUE;
  return driver_leave(result);
}

colli_cu_result cuPointerSetAttribute(const void *value, colli_cu_pointer_attribute attribute,
                                      colli_cu_deviceptr at) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_memory *m = driver_memory_find(at, 1);
  if (attribute != COLLI_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !m ||
      (m->kind != DEVICE_MEMORY && m->kind != MAPPED_MEMORY))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  memcpy(&m->sync_memops, value, sizeof(m->sync_memops));
  return driver_leave(COLLI_CUDA_SUCCESS);
}
