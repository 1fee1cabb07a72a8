/* fake_ibverbs.c: pretends to be libibverbs.so.1, with the devices that a test describes. */
#include "fake_ibverbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

#define EXPORT __attribute__((visibility("default")))

static fake_verbs fake;

typedef struct fake_context {
  fake_device *device;
  int pipe[2];
  struct verbs_context verbs; /* the last member, as it is in the real library */
} fake_context;

typedef struct fake_mr {
  struct ibv_mr mr;
  size_t pinned;
} fake_mr;

EXPORT fake_verbs_get_fn fake_verbs_get;
EXPORT fake_verbs *fake_verbs_get(void) {
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
  made->verbs.context.abi_compat = fake.compat ? NULL : __VERBS_ABI_IS_EXTENDED;
  fake.opened++;
  fake.opens++;
  return &made->verbs.context;
}

EXPORT int ibv_close_device(struct ibv_context *context) {
  fake_context *made = of(context);
  close(made->pipe[0]);
  close(made->pipe[1]);
  free(made);
  fake.opened--;
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

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
  if (fake.nevents == 0) {
    bool blocks = !(fcntl(context->async_fd, F_GETFL) & O_NONBLOCK);
    errno = fake.event_errno ? fake.event_errno : EAGAIN;
    if (blocks)
      abort(); /* a test would hang here */
    return -1;
  }
  *event = fake.events[0];
  fake.nevents--;
  memmove(fake.events, fake.events + 1, (size_t)fake.nevents * sizeof(*fake.events));
  return 0;
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
  return 0;
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova,
                                       unsigned access) {
  size_t pinned = access & IBV_ACCESS_ON_DEMAND ? 0 : bytes;
  int error = fake.reg_errno;
  if (error == 0 && fake.reg_most && fake.pinned + pinned > fake.reg_most)
    error = ENOMEM;
  fake_mr *made = error ? NULL : calloc(1, sizeof(*made));
  if (!made) {
    errno = error ? error : ENOMEM;
    return NULL;
  }
  (void)iova;
  made->mr = (struct ibv_mr){.pd = pd, .context = pd->context, .addr = addr, .length = bytes};
  made->pinned = pinned;
  fake.pinned += pinned;
  fake.access = access;
  fake.registered++;
  fake.registrations++;
  return &made->mr;
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access) {
  return ibv_reg_mr_iova2(pd, addr, bytes, (uintptr_t)addr, (unsigned)access);
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t bytes,
                                        uint64_t iova, int fd, int access) {
  (void)offset;
  if (fake.dmabuf_refuse || fcntl(fd, F_GETFD) < 0) {
    errno = fake.dmabuf_refuse ? EOPNOTSUPP : EBADF;
    return NULL;
  }
  return ibv_reg_mr_iova2(pd, NULL, bytes, iova, (unsigned)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr) {
  fake_mr *made = (fake_mr *)(void *)mr;
  fake.pinned -= made->pinned;
  fake.registered--;
  free(made);
  return 0;
}

/* ---- texts, and what must be there but is not called by these tests ---------------------------
 */

EXPORT const char *ibv_wc_status_str(enum ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR ? "remote access error" : "some status";
}

EXPORT const char *ibv_port_state_str(enum ibv_port_state state) {
  return state == IBV_PORT_DOWN ? "PORT_DOWN" : state == IBV_PORT_INIT ? "PORT_INIT" : "unknown";
}

/* Some other function of the library: a test that calls it ends here. */
#define ABSENT(name) __asm__(".globl " #name "\n.type " #name ", @function\n.set " #name ", absent")

__attribute__((used)) static void absent(void) __asm__("absent");
__attribute__((used)) static void absent(void) {
  abort();
}

ABSENT(ibv_create_comp_channel);
ABSENT(ibv_destroy_comp_channel);
ABSENT(ibv_create_cq);
ABSENT(ibv_destroy_cq);
ABSENT(ibv_get_cq_event);
ABSENT(ibv_ack_cq_events);
ABSENT(ibv_create_srq);
ABSENT(ibv_destroy_srq);
ABSENT(ibv_create_qp);
ABSENT(ibv_modify_qp);
ABSENT(ibv_destroy_qp);
