/* verbs_lib.c: finds the functions of libibverbs. */
#include "transports/verbs/verbs_lib.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "libcoll/base/libc.h"

/*
 * A function of the table: its name and version in the library. The version matters: old libraries
 * have some functions under the same name, but with other arguments.
 */
typedef struct entry {
  const char *name, *version;
  size_t offset;
  int optional;
} entry;

#define ENTRY(field, version)                                                                      \
  { "ibv_" #field, version, offsetof(verbs_lib, field), 0 }

static const entry entries[] = {
    ENTRY(get_device_list, "IBVERBS_1.1"),
    ENTRY(free_device_list, "IBVERBS_1.1"),
    ENTRY(get_device_name, "IBVERBS_1.1"),
    ENTRY(open_device, "IBVERBS_1.1"),
    ENTRY(close_device, "IBVERBS_1.1"),
    ENTRY(get_async_event, "IBVERBS_1.1"),
    ENTRY(ack_async_event, "IBVERBS_1.1"),
    ENTRY(query_device, "IBVERBS_1.1"),
    {"ibv_query_port", "IBVERBS_1.1", offsetof(verbs_lib, query_port_compat), 0},
    {"_ibv_query_gid_ex", "IBVERBS_1.11", offsetof(verbs_lib, query_gid_ex), 0},
    ENTRY(alloc_pd, "IBVERBS_1.1"),
    ENTRY(dealloc_pd, "IBVERBS_1.1"),
    ENTRY(reg_mr, "IBVERBS_1.1"),
    ENTRY(reg_mr_iova2, "IBVERBS_1.8"),
    {"ibv_reg_dmabuf_mr", "IBVERBS_1.12", offsetof(verbs_lib, reg_dmabuf_mr), 1},
    ENTRY(dereg_mr, "IBVERBS_1.1"),
    ENTRY(create_comp_channel, "IBVERBS_1.0"),
    ENTRY(destroy_comp_channel, "IBVERBS_1.0"),
    ENTRY(create_cq, "IBVERBS_1.1"),
    ENTRY(destroy_cq, "IBVERBS_1.1"),
    ENTRY(get_cq_event, "IBVERBS_1.1"),
    ENTRY(ack_cq_events, "IBVERBS_1.1"),
    ENTRY(create_srq, "IBVERBS_1.1"),
    ENTRY(destroy_srq, "IBVERBS_1.1"),
    ENTRY(create_qp, "IBVERBS_1.1"),
    ENTRY(modify_qp, "IBVERBS_1.1"),
    ENTRY(destroy_qp, "IBVERBS_1.1"),
    ENTRY(wc_status_str, "IBVERBS_1.1"),
    ENTRY(port_state_str, "IBVERBS_1.1"),
};

/* What dlerror() says, without the end of the line. */
static const char *load_error(void) {
  const char *text = dlerror();
  return text ? text : "unknown reason";
}

coll_status verbs_lib_load(verbs_lib *lib, const char *name, verbs_fault *fault) {
  memset(lib, 0, sizeof(*lib));
  lib->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!lib->handle)
    return verbs_fault_set(fault, COLL_ERR_UNSUPPORTED, NULL, 0,
                           "libibverbs cannot be loaded (%s); install rdma-core (Debian: "
                           "libibverbs1 and ibverbs-providers)",
                           load_error());
  for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
    void *symbol = dlvsym(lib->handle, entries[i].name, entries[i].version);
    if (!symbol && !entries[i].optional) {
      verbs_lib_close(lib);
      return verbs_fault_set(fault, COLL_ERR_UNSUPPORTED, NULL, 0,
                             "%s has no %s (%s); install rdma-core 31 or newer", name,
                             entries[i].name, entries[i].version);
    }
    memcpy((char *)lib + entries[i].offset, &symbol, sizeof(symbol));
  }
  return COLL_OK;
}

void verbs_lib_close(verbs_lib *lib) {
  if (lib->handle)
    dlclose(lib->handle);
  memset(lib, 0, sizeof(*lib));
}

int verbs_query_port(const verbs_lib *lib, struct ibv_context *context, uint8_t port,
                     struct ibv_port_attr *attr) {
  struct verbs_context *extended = verbs_get_ctx_op(context, query_port);
  memset(attr, 0, sizeof(*attr));
  if (extended)
    return extended->query_port(context, port, attr, sizeof(*attr));
  return lib->query_port_compat(context, port, (struct _compat_ibv_port_attr *)attr);
}
