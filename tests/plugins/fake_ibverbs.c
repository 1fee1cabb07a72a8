/*
 * fake_ibverbs.c: pretends to be libibverbs.so.1, with the devices that a test describes: devices,
 * events, registrations.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_ibverbs_parts.h"

#undef ibv_query_port
#undef ibv_reg_mr

fake_verbs fake;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static fake_context *contexts; /* that are open */
static fake_mr *registrations;
static bool tells; /* devices that are dead say so */

EXPORT fake_verbs_get_fn fake_verbs_get;
EXPORT fake_verbs *fake_verbs_get(void) {
  if (fake.run == 0)
    fake.run = (uint64_t)getpid();
  return &fake;
}

static fake_context *of(struct ibv_context *context) {
  return (fake_context *)(void *)((char *)context - offsetof(fake_context, verbs.context));
}

EXPORT struct ibv_device **ibv_get_device_list(int *count) {
  if (fake.no_list) {
    errno = ENOSYS;
    return NULL;
  }
  struct ibv_device **list = calloc(FAKE_DEVICES + 1, sizeof(*list));
  if (!list)
    return NULL;
  for (int i = 0; i < fake.listed && i < FAKE_DEVICES; i++)
    list[i] = &fake.devices[i].device;
  *count = fake.count;
  fake.lists++;
  return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) {
  fake.lists--;
  free(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device) {
  return device->name;
}

static const fake_port *port_of(struct ibv_context *context, int port) {
  const fake_device *device = of(context)->device;
  return port < 1 ? NULL : &device->ports[(port < FAKE_PORTS ? port : FAKE_PORTS) - 1];
}

static int query_port_ex(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                         size_t bytes) {
  const fake_port *found = port_of(context, port);
  if (!found || found->error)
    return found ? found->error : EINVAL;
  memcpy(attr, &found->attr, bytes < sizeof(*attr) ? bytes : sizeof(*attr));
  return 0;
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port,
                          struct _compat_ibv_port_attr *attr) {
  /* The old structure ends before flags and port_cap_flags2. */
  return query_port_ex(context, port, (struct ibv_port_attr *)attr,
                       offsetof(struct ibv_port_attr, flags));
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
  const fake_device *device = of(context)->device;
  memset(attr, 0, sizeof(*attr));
  attr->phys_port_cnt = (uint8_t)device->nports;
  attr->max_qp = 1000;
  attr->max_srq_wr = device->max_srq_wr ? device->max_srq_wr : 1 << 14;
  attr->max_cqe = device->max_cqe ? device->max_cqe : 1 << 16;
  return device->query_error;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t bytes) {
  (void)input;
  (void)bytes;
  attr->odp_caps = of(context)->device->odp;
  return ibv_query_device(context, &attr->orig_attr);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
  fake_device *found = (fake_device *)(void *)device;
  if (found->open_errno) {
    errno = found->open_errno;
    return NULL;
  }
  fake_context *made = calloc(1, sizeof(*made));
  if (!made || pipe2(made->pipe, O_CLOEXEC) != 0) {
    free(made);
    return NULL;
  }
  made->device = found;
  made->verbs.sz = sizeof(made->verbs);
  made->verbs.query_port = query_port_ex;
  made->verbs.query_device_ex = query_device_ex;
  made->verbs.context.device = device;
  made->verbs.context.async_fd = made->pipe[0];
  made->verbs.context.cmd_fd = made->pipe[1];
  made->verbs.context.abi_compat = fake.compat ? NULL : __VERBS_ABI_IS_EXTENDED;
  fake_data_calls(&made->verbs.context.ops);
  pthread_mutex_lock(&fake_lock);
  fake.opened++;
  fake.opens++;
  made->next = contexts;
  contexts = made;
  pthread_mutex_unlock(&fake_lock);
  return &made->verbs.context;
}

EXPORT int ibv_close_device(struct ibv_context *context) {
  fake_context *made = of(context), **place = &contexts;
  pthread_mutex_lock(&fake_lock);
  while (*place != made)
    place = &(*place)->next;
  *place = made->next;
  fake.opened--;
  pthread_mutex_unlock(&fake_lock);
  close(made->pipe[0]);
  close(made->pipe[1]);
  free(made);
  return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry, uint32_t flags, size_t bytes) {
  static const union ibv_gid zero;
  const fake_port *found = port_of(context, (int)port);
  (void)flags;
  if (!found || index >= (uint32_t)found->attr.gid_tbl_len)
    return EINVAL;
  if (index >= FAKE_GIDS || memcmp(&found->gids[index].gid, &zero, sizeof(zero)) == 0)
    return ENODATA;
  memcpy(entry, &found->gids[index], bytes);
  entry->gid_index = index;
  return 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

EXPORT fake_verbs_kill_fn fake_verbs_kill;
EXPORT void fake_verbs_kill(void) {
  pthread_mutex_lock(&fake_lock);
  fake.dead = tells = true;
  for (const fake_context *c = contexts; c; c = c->next)
    if (write(c->pipe[1], "", 1) != 1)
      abort();
  pthread_mutex_unlock(&fake_lock);
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
  fake_context *self = of(context);
  int result = 0;
  pthread_mutex_lock(&fake_lock);
  if (fake.nevents > 0) {
    *event = fake.events[0];
    fake.nevents--;
    memmove(fake.events, fake.events + 1, (size_t)fake.nevents * sizeof(*fake.events));
  } else if (tells && !self->told) {
    self->told = true;
    *event = (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
  } else {
    bool blocks = !(fcntl(context->async_fd, F_GETFL) & O_NONBLOCK);
    errno = fake.event_errno ? fake.event_errno : tells ? EIO : EAGAIN;
    if (blocks)
      abort(); /* a test would hang here */
    result = -1;
  }
  pthread_mutex_unlock(&fake_lock);
  return result;
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event) {
  (void)event;
  fake.acked++;
}

/* ---- registrations --------------------------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
  struct ibv_pd *pd = calloc(1, sizeof(*pd));
  if (pd)
    pd->context = context;
  return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd) {
  free(pd);
  return fake.dead ? EIO : 0;
}

/* Why memory cannot be registered; 0 if it can. */
static int registration_error(size_t pinned) {
  if (fake.dead || fake.reg_errno)
    return fake.dead ? EIO : fake.reg_errno;
  return fake.reg_most && fake.pinned + pinned > fake.reg_most ? ENOMEM : 0;
}

/* ---- dma-bufs: files, whose part begins where their descriptor stands ------------------------ */

/* Writes that are not seen yet. */
typedef struct late_write {
  struct late_write *next;
  uint8_t *to;
  size_t bytes;
  uint8_t data[];
} late_write;
static late_write *late_first, **late_last = &late_first;

/* The dma-buf that is registered under a key, or NULL: other memory. */
static const fake_mr *dmabuf_of(uint32_t key) {
  const fake_mr *m = registrations;
  while (m && m->mr.lkey != key)
    m = m->next;
  return m && m->place ? m : NULL;
}

const uint8_t *fake_read_at(uint32_t key, uint64_t addr, size_t bytes) {
  const fake_mr *m = dmabuf_of(key);
  if (!m)
    return (const uint8_t *)(uintptr_t)addr;
  fake.dmabuf_read += bytes;
  return m->place + (addr - (uintptr_t)m->mr.addr);
}

uint8_t *fake_write_at(uint32_t key, uint64_t addr, size_t bytes) {
  const fake_mr *m = dmabuf_of(key);
  if (!m)
    return (uint8_t *)(uintptr_t)addr;
  fake.dmabuf_written += bytes;
  uint8_t *to = m->place + (addr - (uintptr_t)m->mr.addr);
  if (!fake.dmabuf_late)
    return to;
  late_write *late = malloc(sizeof(*late) + bytes);
  if (!late)
    abort();
  *late = (late_write){.to = to, .bytes = bytes};
  *late_last = late;
  late_last = &late->next;
  return late->data;
}

EXPORT fake_verbs_settle_fn fake_verbs_settle;
EXPORT void fake_verbs_settle(void) {
  pthread_mutex_lock(&fake_lock);
  for (late_write *late; (late = late_first);) {
    late_first = late->next;
    memcpy(late->to, late->data, late->bytes);
    free(late);
  }
  late_last = &late_first;
  pthread_mutex_unlock(&fake_lock);
}

/* Maps a dma-buf for a registration. Of what is no file, nothing is mapped, and nothing may be
 * moved. */
static void map_dmabuf(fake_mr *mr, int fd, uint64_t offset) {
  const off_t begin = lseek(fd, 0, SEEK_CUR);
  const uint64_t page = 4096, rest = offset % page;
  void *memory = mmap(NULL, mr->mr.length + rest, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                      begin + (off_t)(offset - rest));
  if (memory == MAP_FAILED)
    return;
  mr->place = (uint8_t *)memory + rest;
  mr->mapped = mr->mr.length + rest;
}

/* ---- registrations --------------------------------------------------------------------------- */

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova,
                                       unsigned access) {
  size_t pinned = access & IBV_ACCESS_ON_DEMAND ? 0 : bytes;
  pthread_mutex_lock(&fake_lock);
  int error = registration_error(pinned);
  fake_mr *made = error ? NULL : calloc(1, sizeof(*made));
  if (made) {
    uint32_t key = (uint32_t)++fake.registrations;
    made->mr = (struct ibv_mr){
        .pd = pd, .context = pd->context, .addr = addr, .length = bytes, .lkey = key, .rkey = key};
    made->pinned = pinned;
    made->access = access;
    made->next = registrations;
    registrations = made;
    fake.pinned += pinned;
    if ((uintptr_t)addr - (uintptr_t)fake.watched < fake.watched_bytes)
      fake.watched_pinned += bytes;
    fake.access = access;
    fake.registered++;
  }
  pthread_mutex_unlock(&fake_lock);
  (void)iova;
  if (!made)
    errno = error ? error : ENOMEM;
  return made ? &made->mr : NULL;
}

bool fake_may(uint32_t key, uint64_t addr, size_t bytes, unsigned access) {
  for (const fake_mr *m = registrations; m; m = m->next)
    if (m->mr.lkey == key)
      return addr >= (uintptr_t)m->mr.addr &&
             addr + bytes <= (uintptr_t)m->mr.addr + m->mr.length && (m->access & access) == access;
  return false;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access) {
  return ibv_reg_mr_iova2(pd, addr, bytes, (uintptr_t)addr, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes,
                                        uint64_t iova, int fd, int access) {
  /* As kernels do: the address must be as far from the beginning of a page as the offset. */
  const int error = fake.dmabuf_refuse       ? EOPNOTSUPP
                    : fcntl(fd, F_GETFD) < 0 ? EBADF
                    : (offset ^ iova) % 4096 ? EINVAL
                                             : fake.dmabuf_errno;
  if (error) {
    errno = error;
    return NULL;
  }
  struct ibv_mr *mr = ibv_reg_mr_iova2(pd, (void *)(uintptr_t)iova, bytes, iova, (unsigned)access);
  pthread_mutex_lock(&fake_lock);
  if (mr)
    map_dmabuf((fake_mr *)(void *)mr, fd, offset);
  fake.dmabufs += mr != NULL;
  pthread_mutex_unlock(&fake_lock);
  return mr;
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr) {
  fake_mr *made = (fake_mr *)(void *)mr, **place = &registrations;
  pthread_mutex_lock(&fake_lock);
  while (*place != made)
    place = &(*place)->next;
  *place = made->next;
  fake.pinned -= made->pinned;
  fake.registered--;
  if (made->place && !fake.dmabuf_late) /* else it may still be written to */
    munmap((void *)((uintptr_t)made->place & ~(uintptr_t)4095), made->mapped);
  pthread_mutex_unlock(&fake_lock);
  free(made);
  return fake.dead ? EIO : 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "some status";
}

EXPORT const char *ibv_port_state_str(enum ibv_port_state state) {
  return state == IBV_PORT_DOWN ? "PORT_DOWN" : state == IBV_PORT_INIT ? "PORT_INIT" : "unknown";
}
