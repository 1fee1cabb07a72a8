/* service_internal.h: what the files of the service share. */
#ifndef COLLI_STATUS_SERVICE_INTERNAL_H
#define COLLI_STATUS_SERVICE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "libcoll/net/door.h"
#include "libcoll/net/sealed.h"
#include "libcoll/status/copy.h"
#include "libcoll/status/service.h"

#define STATUS_HOST_MS 3000  /* for all copies of one host */
#define STATUS_DESK_MS 60000 /* for all hosts */
#define STATUS_LOOK_MS 1000  /* from a rank's request to its result */
#define STATUS_LOOKS   8     /* requests at a time */

/* Who may use a request: the rank while it is free or done, the desk while it is asked. */
typedef enum status_stage { STATUS_FREE, STATUS_ASKED, STATUS_DONE } status_stage;

/* A request of the rank. */
typedef struct status_look {
  _Atomic(status_stage) stage;
  colli_status_far far;
} status_look;

struct colli_status_service {
  colli_status_plan plan;
  int stop_fd; /* readable once the service must end */
  int desk_fd;
  int look_fd; /* readable once the rank has made a request */
  int nlooks;  /* requests that are not free; only the rank uses this */
  status_look looks[STATUS_LOOKS];
  pthread_t desk_thread, door_thread;
  colli_door door;
};

/* Waits until a descriptor is ready. False: the service ends, or time is up. */
bool status_wait(const colli_status_service *service, int fd, short events, uint64_t until_ns);

/* Makes an eventfd readable. */
void status_signal(int fd);

/* Sends and receives a message by that time. */
bool status_push(const colli_status_service *service, colli_sealed *conn, const void *msg,
                 size_t bytes, uint64_t until_ns);
bool status_pull(const colli_status_service *service, colli_sealed *conn, void *msg, size_t bytes,
                 uint64_t until_ns);

/* The door's thread: sends the copies of this host to those who know the secret. */
void *status_run_door(void *service);

/* Receives a copy, which is not checked, and may change it. False: it wants no more. */
typedef bool (*status_pass)(void *ctx, void *copy, size_t bytes);

/* Calls pass() for each copy of each other host, until time is up. */
void status_fetch(const colli_status_service *service, uint64_t until_ns, status_pass pass,
                  void *ctx);

/* The same for one host, whose second door is asked even if the first one has sent all that it
 * sees. The door of rank `last` comes last: that rank may be stopped. */
void status_fetch_host(const colli_status_service *service, uint64_t host_id, int last,
                       uint64_t until_ns, status_pass pass, void *ctx);

/* The desk's thread: answers the rank's requests. */
void status_answer_looks(colli_status_service *service);

#endif
