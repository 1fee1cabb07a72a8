/*
 * verbs_lib.h: libibverbs, loaded at run time, so that one build of libcoll serves machines with
 * and without it.
 *
 * What goes through the device's own table (ibv_post_send, ibv_poll_cq, ibv_req_notify_cq, ...) is
 * inline in <infiniband/verbs.h> and is called by its usual name. Everything else is called through
 * this table; note that ibv_reg_mr and ibv_query_port are macros around functions of the library.
 */
#ifndef COLLI_TRANSPORTS_VERBS_LIB_H
#define COLLI_TRANSPORTS_VERBS_LIB_H

#include <infiniband/verbs.h>

#include "transports/verbs/verbs_fault.h"

#define VERBS_LIB_NAME "libibverbs.so.1"

typedef struct verbs_lib {
  void *handle; /* of dlopen() */
  struct ibv_device **(*get_device_list)(int *count);
  void (*free_device_list)(struct ibv_device **list);
  const char *(*get_device_name)(struct ibv_device *device);
  struct ibv_context *(*open_device)(struct ibv_device *device);
  int (*close_device)(struct ibv_context *context);
  int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *event);
  void (*ack_async_event)(struct ibv_async_event *event);
  int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
  int (*query_port_compat)(struct ibv_context *context, uint8_t port,
                           struct _compat_ibv_port_attr *attr);
  int (*query_gid_ex)(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_bytes);
  struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
  int (*dealloc_pd)(struct ibv_pd *pd);
  struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t bytes, int access);
  struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova,
                                 unsigned access); /* knows the optional access flags */
  struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova,
                                  int fd, int access); /* NULL before rdma-core 34 */
  int (*dereg_mr)(struct ibv_mr *mr);
  struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
  int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
  struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *cq_context,
                              struct ibv_comp_channel *channel, int vector);
  int (*destroy_cq)(struct ibv_cq *cq);
  int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
  void (*ack_cq_events)(struct ibv_cq *cq, unsigned count);
  struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
  int (*destroy_srq)(struct ibv_srq *srq);
  struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
  int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
  int (*destroy_qp)(struct ibv_qp *qp);
  const char *(*wc_status_str)(enum ibv_wc_status status);
  const char *(*port_state_str)(enum ibv_port_state state);
} verbs_lib;

/*
 * Loads the library `name` (VERBS_LIB_NAME) and fills in the table. UNSUPPORTED, with a sentence
 * for the user, if it is not there or too old.
 */
coll_status verbs_lib_load(verbs_lib *lib, const char *name, verbs_fault *fault);

/* Zeroes the table. The library stays loaded, because its drivers are not made to be unloaded. */
void verbs_lib_close(verbs_lib *lib);

/*
 * ibv_query_port() with all fields that this machine's library has; the others are 0. Returns 0 or
 * an errno.
 */
int verbs_query_port(const verbs_lib *lib, struct ibv_context *context, uint8_t port,
                     struct ibv_port_attr *attr);

#endif
