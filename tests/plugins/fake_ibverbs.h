/*
 * fake_ibverbs.h: what a test sets in the fake libibverbs, and what that records. The library
 * (tests/plugins/fake_ibverbs.c) has the real one's name for the loader, so that it is taken in its
 * place once it has been loaded by its path.
 */
#ifndef COLLI_TESTS_PLUGINS_FAKE_IBVERBS_H
#define COLLI_TESTS_PLUGINS_FAKE_IBVERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#define FAKE_DEVICES 6
#define FAKE_PORTS   3
#define FAKE_GIDS    8
#define FAKE_EVENTS  16

typedef struct fake_port {
  struct ibv_port_attr attr;
  int error;                            /* of ibv_query_port() */
  struct ibv_gid_entry gids[FAKE_GIDS]; /* zeros: empty */
} fake_port;

typedef struct fake_device {
  struct ibv_device device; /* name, dev_name, ibdev_path, node_type, transport_type */
  int open_errno;
  int query_error;
  int nports; /* as it says; from the third on all are like the third */
  struct ibv_odp_caps odp;
  int max_srq_wr, max_cqe; /* 0: many */
  uint32_t max_inline;     /* 0: any */
  fake_port ports[FAKE_PORTS];
} fake_device;

typedef struct fake_verbs {
  /* the test's */
  bool no_list; /* ibv_get_device_list() fails */
  int count;    /* devices that it tells of */
  int listed;   /* how many of them are really in the list */
  fake_device devices[FAKE_DEVICES];
  bool compat; /* contexts as libraries before the extended ones made them */
  int reg_errno;
  size_t reg_most;    /* bytes that may be pinned at once; 0: any */
  bool dmabuf_refuse; /* ibv_reg_dmabuf_mr() fails with EOPNOTSUPP */
  int dmabuf_errno;   /* it fails with this error */
  bool dmabuf_late;   /* what is written to such memory is seen after "fake_verbs_settle" */
  struct ibv_async_event events[FAKE_EVENTS];
  int nevents;
  int event_errno;     /* once there are no more; 0: EAGAIN */
  bool dead;           /* every call fails, but no event tells why */
  bool slow;           /* the last bytes of a write are placed by the next call */
  const void *watched; /* writes of peers to this memory, and its registrations, are counted */
  size_t watched_bytes;
  /* the fake's */
  uint64_t run; /* tells the processes of one test from others */
  int watched_writes;
  size_t watched_pinned;   /* bytes, of all registrations together */
  int opened;              /* contexts that are open */
  int opens;               /* calls that opened one */
  int registered;          /* registrations that there are */
  size_t pinned;           /* bytes */
  unsigned access;         /* of the last registration */
  int registrations;       /* that were made */
  int dmabufs;             /* of which so many were of dma-bufs */
  size_t dmabuf_read;      /* bytes of dma-bufs that were sent, */
  size_t dmabuf_written;   /* and written */
  int acked;               /* events */
  int lists;               /* of devices that were not given back */
  struct ibv_qp_attr attr; /* of the queue pair that was connected last */
  int queues;  /* completion queues, receive queues, queue pairs and channels that there are */
  long writes; /* RDMA writes and sends that have arrived */
} fake_verbs;

/* The one that the library works on: it exports this function as "fake_verbs_get". */
typedef fake_verbs *fake_verbs_get_fn(void);

/* "fake_verbs_settle": what was written to dma-bufs is there to be seen, as after a flush. */
typedef void fake_verbs_settle_fn(void);

/* "fake_verbs_kill": all devices fail. Each open one tells so, and from now on every call fails. */
typedef void fake_verbs_kill_fn(void);

#endif
