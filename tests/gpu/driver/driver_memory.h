/* driver_memory.h: ranges of memory that devices of the fake driver can access. The lock of the
 * driver protects them. */
#ifndef TESTS_GPU_DRIVER_MEMORY_H
#define TESTS_GPU_DRIVER_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct driver_context driver_context;
typedef struct driver_allocation driver_allocation;
typedef struct driver_pool driver_pool;

typedef enum {
  DEVICE_MEMORY,
  OPENED_MEMORY,
  MAPPED_MEMORY, /* of an allocation */
  POOLED_MEMORY, /* of a pool */
  PINNED_MEMORY, /* from here on: of the host */
  REGISTERED_MEMORY,
  RESERVED_ADDRESSES /* no memory; only among those of `reserved` and `freed` */
} memory_kind;

/* A range of addresses that devices can access. */
typedef struct driver_memory {
  memory_kind kind;
  uint64_t at;
  size_t bytes;
  uint8_t *place;     /* where the driver and kernels have it */
  uint64_t mapped_at; /* what the system has to unmap */
  size_t mapped_bytes;
  driver_context *context; /* whose it is, or who opened it; NULL for mapped memory */
  int fd;
  uint64_t id;
  unsigned sync_memops;
  int opened;     /* how often */
  bool exported;  /* other processes may have it */
  uint64_t inode; /* of the file that it lies in, which no other memory ever has */
  driver_allocation *allocation;
  driver_pool *pool;
  uint32_t readable, writable; /* mapped memory: devices that may access it, a bit each */
  struct driver_memory *next;  /* of those that are reserved, or were freed */
} driver_memory;

/* The range that has all these bytes, or NULL. */
driver_memory *driver_memory_find(uint64_t at, size_t bytes);

/* Whether ranges have all these bytes, one after the other if need be, and a device may access
 * them. */
bool driver_memory_has(uint64_t at, size_t bytes);

/* Whether a range begins, ends or lies between these addresses. */
bool driver_memory_overlaps(uint64_t at, size_t bytes);

/* Maps the `bytes` bytes of a file, where the system likes; sets `at`, `place` and what to unmap.
 * False if that is impossible. */
bool driver_memory_map(driver_memory *memory, int fd);

/* Maps new memory, as a file without a name that others can open; sets the same and `inode`. */
bool driver_memory_map_new(driver_memory *memory);

/* Maps such memory of another process: its descriptor there. False if it is not there any more. */
bool driver_memory_map_other(driver_memory *memory, int64_t pid, int fd, uint64_t inode);

/* Adds a range, whose other fields the caller has set. Frees it and returns false if memory is
 * short. */
bool driver_memory_add(const driver_memory *fields);

/* Takes a range out, ends its use of a pool, and unmaps it as soon as no operation can use it any
 * more. */
void driver_memory_remove(driver_memory *memory);

/* The same for a range that is not among those of `memory`. */
void driver_memory_unmap_later(driver_memory *memory);

/* Unmaps what was removed, if no operation can use it any more. */
void driver_memory_unmap_freed(void);

/* Where the driver has memory. Of `*bytes` bytes so many lie together as it then says. Addresses
 * without a range are the program's. */
uint8_t *driver_memory_place(uint64_t at, size_t *bytes);

/* Finds memory for kernels of the device that runs now: gpu_options.find. */
uint8_t *driver_memory_use(void *context, uint64_t address, size_t bytes, bool write);

#endif
