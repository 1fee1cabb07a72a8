/*
 * fake_ibverbs_data.c: the fake libibverbs: queues and reliable connections between queue pairs of
 * this process (of others: fake_ibverbs_far.c). What is posted moves at once, unless the other end
 * has no receive request for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_ibverbs_parts.h"

#define MOST_PARTS 4
#define LATE_BYTES 12

typedef struct fake_cq {
  struct ibv_cq cq;
  bool armed;
  unsigned head, tail; /* of `wc`, modulo `capacity` */
  unsigned capacity;
  struct ibv_wc *wc;
} fake_cq;

typedef struct fake_channel {
  struct ibv_comp_channel channel;
  struct ibv_cq *cq;
} fake_channel;

typedef struct fake_srq {
  struct ibv_srq srq;
  unsigned requests; /* all the same: without memory, number 0 */
} fake_srq;

/* A work request that waits for a receive request of the other end. */
typedef struct fake_work {
  struct fake_work *next;
  struct ibv_send_wr request;
  struct ibv_sge parts[MOST_PARTS];
  size_t bytes;
  size_t moved; /* to another process */
  bool sent;    /* there, as a whole */
  uint8_t data[];
} fake_work;

typedef struct fake_qp {
  struct ibv_qp qp;
  struct fake_qp *next;
  uint32_t peer;
  uint32_t max_inline;
  fake_far *far;            /* the peer is in another process; or NULL */
  fake_work *first, **last; /* in their order */
} fake_qp;

static fake_qp *pairs;
static uint32_t numbers; /* queue pairs that were made */

static fake_qp *find_pair(uint32_t number);
static void move_on(fake_qp *qp);

/* ---- queues ---------------------------------------------------------------------------------- */

/* Makes an object, unless the device is dead. */
static void *create_object(size_t bytes) {
  void *made = fake.dead ? NULL : calloc(1, bytes);
  if (!made)
    errno = fake.dead ? EIO : ENOMEM;
  else
    __atomic_add_fetch(&fake.queues, 1, __ATOMIC_RELAXED);
  return made;
}

/* What destroying an object returns; the object is gone in any case. */
static int destroyed(void *object) {
  free(object);
  __atomic_sub_fetch(&fake.queues, 1, __ATOMIC_RELAXED);
  return fake.dead ? EIO : 0;
}

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
  fake_channel *made = create_object(sizeof(*made));
  if (made)
    made->channel = (struct ibv_comp_channel){.context = context, .fd = eventfd(0, EFD_CLOEXEC)};
  return made ? &made->channel : NULL;
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
  close(channel->fd);
  return destroyed(channel);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector) {
  (void)vector;
  fake_cq *made = create_object(sizeof(*made));
  if (!made)
    return NULL;
  made->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context};
  made->capacity = (unsigned)entries;
  made->wc = calloc((size_t)entries, sizeof(*made->wc));
  ((fake_channel *)(void *)channel)->cq = &made->cq;
  return &made->cq;
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq) {
  free(((fake_cq *)(void *)cq)->wc);
  return destroyed(cq);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context) {
  uint64_t rung;
  if (read(channel->fd, &rung, sizeof(rung)) < 0)
    return -1;
  *cq = ((fake_channel *)(void *)channel)->cq;
  *context = (*cq)->cq_context;
  return 0;
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) {
  (void)cq;
  (void)count;
}

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
  (void)attr;
  fake_srq *made = create_object(sizeof(*made));
  if (made)
    made->srq = (struct ibv_srq){.context = pd->context, .pd = pd};
  return made ? &made->srq : NULL;
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq) {
  return destroyed(srq);
}

/* What is still to be placed of the last write, if the device is slow. */
static struct {
  uint8_t *memory;
  size_t bytes;
  uint8_t data[LATE_BYTES];
} late;

/* Places it. */
static void catch_up(void) {
  if (late.bytes > 0)
    memcpy(late.memory, late.data, late.bytes);
  late.bytes = 0;
}

/* Adds a completion, and rings if somebody asked for that. */
static void complete(struct ibv_cq *queue, const struct ibv_wc *wc) {
  fake_cq *cq = (fake_cq *)(void *)queue;
  uint64_t one = 1;
  catch_up(); /* all that was written before is in place */
  if (cq->tail - cq->head == cq->capacity)
    abort(); /* it was made too short */
  cq->wc[cq->tail++ % cq->capacity] = *wc;
  if (cq->armed && write(queue->channel->fd, &one, sizeof(one)) < 0)
    abort();
  cq->armed = false;
}

static int poll_cq(struct ibv_cq *queue, int most, struct ibv_wc *wc) {
  fake_cq *cq = (fake_cq *)(void *)queue;
  int count = 0;
  pthread_mutex_lock(&fake_lock);
  catch_up();
  for (fake_qp *qp = pairs; qp; qp = qp->next)
    if (qp->far && qp->qp.send_cq == queue)
      move_on(qp);
  while (count < most && cq->head != cq->tail)
    wc[count++] = cq->wc[cq->head++ % cq->capacity];
  if (fake.dead)
    count = -1;
  pthread_mutex_unlock(&fake_lock);
  return count;
}

static int req_notify_cq(struct ibv_cq *queue, int solicited_only) {
  (void)solicited_only;
  pthread_mutex_lock(&fake_lock);
  ((fake_cq *)(void *)queue)->armed = true;
  pthread_mutex_unlock(&fake_lock);
  return fake.dead ? EIO : 0;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
  const fake_device *device = (const fake_device *)(const void *)pd->context->device;
  if (device->max_inline && attr->cap.max_inline_data > device->max_inline) {
    errno = EINVAL;
    return NULL;
  }
  fake_qp *made = create_object(sizeof(*made));
  if (!made)
    return NULL;
  made->max_inline = attr->cap.max_inline_data;
  made->last = &made->first;
  pthread_mutex_lock(&fake_lock);
  made->qp = (struct ibv_qp){.context = pd->context,
                             .pd = pd,
                             .send_cq = attr->send_cq,
                             .recv_cq = attr->recv_cq,
                             .srq = attr->srq,
                             .qp_num = (uint32_t)getpid() << 12 | (++numbers & 0xfff)};
  made->next = pairs;
  pairs = made;
  pthread_mutex_unlock(&fake_lock);
  return &made->qp;
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
  if (fake.dead)
    return EIO;
  pthread_mutex_lock(&fake_lock);
  if (mask & IBV_QP_DEST_QPN) {
    ((fake_qp *)(void *)qp)->peer = attr->dest_qp_num;
    fake.attr = *attr;
    if (!find_pair(attr->dest_qp_num))
      ((fake_qp *)(void *)qp)->far = fake_far_open(qp, qp->qp_num, attr->dest_qp_num);
  }
  if (mask & IBV_QP_TIMEOUT) {
    fake.attr.timeout = attr->timeout;
    fake.attr.retry_cnt = attr->retry_cnt;
    fake.attr.rnr_retry = attr->rnr_retry;
  }
  qp->state = attr->qp_state;
  pthread_mutex_unlock(&fake_lock);
  return 0;
}

/* The first of the requests that wait is over. */
static void drop_first(fake_qp *qp) {
  fake_work *work = qp->first;
  qp->first = work->next;
  if (!qp->first)
    qp->last = &qp->first;
  free(work);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp) {
  fake_qp *self = (fake_qp *)(void *)qp, **place = &pairs;
  if (self->far)
    fake_far_close(self->far);
  pthread_mutex_lock(&fake_lock);
  catch_up();
  while (*place != self)
    place = &(*place)->next;
  *place = self->next;
  while (self->first)
    drop_first(self);
  pthread_mutex_unlock(&fake_lock);
  return destroyed(self);
}

static fake_qp *find_pair(uint32_t number) {
  fake_qp *p = pairs;
  while (p && p->qp.qp_num != number)
    p = p->next;
  return p;
}

/* The other end of a connection, while it can receive. */
static fake_qp *other_end(const fake_qp *qp) {
  fake_qp *p = find_pair(qp->peer);
  return p && (p->qp.state == IBV_QPS_RTR || p->qp.state == IBV_QPS_RTS) ? p : NULL;
}

static bool takes_request(enum ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_SEND ||
         opcode == IBV_WR_SEND_WITH_IMM;
}

/* Copies between a request's parts and one piece of memory; false: a part may not be used. */
static bool move_parts(const struct ibv_send_wr *request, uint8_t *data, bool to_parts) {
  for (int i = 0; i < request->num_sge; i++) {
    const struct ibv_sge *part = &request->sg_list[i];
    unsigned access = to_parts ? IBV_ACCESS_LOCAL_WRITE : 0;
    const bool keyed = !(request->send_flags & IBV_SEND_INLINE);
    if (keyed && part->length > 0 && !fake_may(part->lkey, part->addr, part->length, access))
      return false;
    if (part->length > 0 && to_parts)
      memcpy(fake_write_at(part->lkey, part->addr, part->length), data, part->length);
    else if (part->length > 0)
      memcpy(data,
             keyed ? fake_read_at(part->lkey, part->addr, part->length)
                   : (void *)(uintptr_t)part->addr,
             part->length);
    data += part->length;
  }
  return true;
}

/* Writes as devices do, in ascending order: a reader that sees the last bytes sees all. */
static void write_ascending(uint8_t *memory, const uint8_t *data, size_t bytes) {
  catch_up();
  if (bytes == 0)
    return;
  if (fake.slow) {
    late.bytes = bytes < LATE_BYTES ? bytes : LATE_BYTES;
    late.memory = memory + bytes - late.bytes;
    memcpy(memory, data, bytes - late.bytes);
    memcpy(late.data, data + bytes - late.bytes, late.bytes);
    return;
  }
  size_t last = bytes < 8 ? bytes : 8;
  memcpy(memory, data, bytes - last);
  for (size_t i = bytes - last; i < bytes; i++)
    __atomic_store_n(&memory[i], data[i], __ATOMIC_RELEASE);
}

/* Tells the receiver of a write that has taken one of its requests. */
static void tell_receiver(fake_qp *receiver, uint32_t sender, size_t bytes, uint32_t imm_data) {
  ((fake_srq *)(void *)receiver->qp.srq)->requests--;
  struct ibv_wc wc = {.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
                      .byte_len = (uint32_t)bytes,
                      .imm_data = imm_data,
                      .qp_num = receiver->qp.qp_num,
                      .src_qp = sender,
                      .wc_flags = IBV_WC_WITH_IMM};
  complete(receiver->qp.recv_cq, &wc);
}

bool fake_far_arrived(void *qp, const fake_far_head *head, const uint8_t *data, size_t bytes) {
  fake_qp *self = qp;
  bool tells = head->request && head->last, taken = false;
  pthread_mutex_lock(&fake_lock);
  if (!tells || ((fake_srq *)(void *)self->qp.srq)->requests > 0) {
    taken = true;
    if (bytes > 0 && fake_may(head->key, head->at, bytes, IBV_ACCESS_REMOTE_WRITE))
      write_ascending(fake_write_at(head->key, head->at, bytes), data, bytes);
    fake.writes += head->last;
    if (tells)
      tell_receiver(self, self->peer, head->bytes, head->imm_data);
  }
  pthread_mutex_unlock(&fake_lock);
  return taken;
}

void fake_far_tick(void *qp) {
  pthread_mutex_lock(&fake_lock);
  move_on(qp);
  pthread_mutex_unlock(&fake_lock);
}

/* Sends a request to another process: its status, or IBV_WC_GENERAL_ERR: not now. What tells of its
 * completion waits for an acknowledgement. */
static enum ibv_wc_status send_far(const fake_qp *qp, fake_work *work) {
  const struct ibv_send_wr *request = &work->request;
  fake_far_head head = {.at = request->wr.rdma.remote_addr,
                        .bytes = work->bytes,
                        .key = request->wr.rdma.rkey,
                        .imm_data = request->imm_data,
                        .request = takes_request(request->opcode)};
  int result = work->sent ? 1 : fake_far_send(qp->far, &head, work->data, &work->moved);
  work->sent = result > 0;
  if (work->sent && request->send_flags & IBV_SEND_SIGNALED && !fake_far_acknowledged(qp->far))
    return IBV_WC_GENERAL_ERR;
  return result > 0 ? IBV_WC_SUCCESS : result == 0 ? IBV_WC_GENERAL_ERR : IBV_WC_RETRY_EXC_ERR;
}

/* Carries a request out at the other end. */
static enum ibv_wc_status carry_out(fake_qp *qp, fake_qp *other, const fake_work *work) {
  const struct ibv_send_wr *request = &work->request;
  uint64_t at = request->wr.rdma.remote_addr;
  uint32_t key = request->wr.rdma.rkey;
  void *memory = (void *)(uintptr_t)at;
  if (request->opcode == IBV_WR_RDMA_READ)
    return !fake_may(key, at, work->bytes, IBV_ACCESS_REMOTE_READ) ? IBV_WC_REM_ACCESS_ERR
           : !move_parts(request, memory, true)                    ? IBV_WC_LOC_PROT_ERR
                                                                   : IBV_WC_SUCCESS;
  if (work->bytes > 0 && !fake_may(key, at, work->bytes, IBV_ACCESS_REMOTE_WRITE))
    return IBV_WC_REM_ACCESS_ERR;
  if (work->bytes > 0)
    write_ascending(fake_write_at(key, at, work->bytes), work->data, work->bytes);
  fake.writes++;
  fake.watched_writes += at - (uintptr_t)fake.watched < fake.watched_bytes;
  if (!takes_request(request->opcode))
    return IBV_WC_SUCCESS;
  tell_receiver(other, qp->qp.qp_num, work->bytes, request->imm_data);
  return IBV_WC_SUCCESS;
}

/* Moves what waits on a queue pair, as far as it goes. */
static void move_on(fake_qp *qp) {
  while (qp->first) {
    fake_work *work = qp->first;
    fake_qp *other = other_end(qp);
    enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
    if (qp->qp.state != IBV_QPS_ERR && qp->far) {
      status = send_far(qp, work);
      if (status == IBV_WC_GENERAL_ERR)
        return;
    } else if (qp->qp.state != IBV_QPS_ERR) {
      if (other && takes_request(work->request.opcode) &&
          ((fake_srq *)(void *)other->qp.srq)->requests == 0)
        return;
      status = other ? carry_out(qp, other, work) : IBV_WC_RETRY_EXC_ERR;
    }
    if (status != IBV_WC_SUCCESS)
      qp->qp.state = IBV_QPS_ERR;
    struct ibv_wc wc = {.wr_id = work->request.wr_id, .status = status, .qp_num = qp->qp.qp_num};
    if (status != IBV_WC_SUCCESS || work->request.send_flags & IBV_SEND_SIGNALED)
      complete(qp->qp.send_cq, &wc);
    drop_first(qp);
  }
}

/* Queues a request, with a copy of what it sends. */
static int queue_request(fake_qp *qp, const struct ibv_send_wr *request) {
  size_t bytes = 0;
  for (int i = 0; i < request->num_sge; i++)
    bytes += request->sg_list[i].length;
  if (request->send_flags & IBV_SEND_INLINE && bytes > qp->max_inline)
    return EINVAL;
  fake_work *work = request->num_sge <= MOST_PARTS ? calloc(1, sizeof(*work) + bytes) : NULL;
  bool reads = request->opcode == IBV_WR_RDMA_READ;
  if (!work || (!reads && !move_parts(request, work->data, false))) {
    free(work);
    return EINVAL;
  }
  work->request = *request;
  for (int i = 0; i < request->num_sge; i++)
    work->parts[i] = request->sg_list[i];
  work->request.sg_list = work->parts;
  work->bytes = bytes;
  *qp->last = work;
  qp->last = &work->next;
  return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *request, struct ibv_send_wr **bad) {
  int error = fake.dead ? EIO : 0;
  pthread_mutex_lock(&fake_lock);
  for (; request && error == 0; request = request->next) {
    *bad = request;
    error = queue_request((fake_qp *)(void *)qp, request);
  }
  move_on((fake_qp *)(void *)qp);
  pthread_mutex_unlock(&fake_lock);
  return error;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *request,
                         struct ibv_recv_wr **bad) {
  *bad = request;
  if (fake.dead)
    return EIO;
  pthread_mutex_lock(&fake_lock);
  for (; request; request = request->next) {
    if (request->num_sge != 0 || request->wr_id != 0)
      abort(); /* this transport makes none such */
    ((fake_srq *)(void *)srq)->requests++;
  }
  for (fake_qp *qp = pairs; qp; qp = qp->next)
    move_on(qp);
  pthread_mutex_unlock(&fake_lock);
  return 0;
}

void fake_data_calls(struct ibv_context_ops *ops) {
  ops->poll_cq = poll_cq;
  ops->req_notify_cq = req_notify_cq;
  ops->post_send = post_send;
  ops->post_srq_recv = post_srq_recv;
}
