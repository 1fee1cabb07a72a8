/* service_internal.h: what the files of the service share. */
#ifndef COLLI_STATUS_SERVICE_INTERNAL_H
#define COLLI_STATUS_SERVICE_INTERNAL_H

#include <pthread.h>

#include "libcoll/net/door.h"
#include "libcoll/net/sealed.h"
#include "libcoll/status/copy.h"
#include "libcoll/status/service.h"

#define STATUS_HOST_MS 3000  /* for all copies of one host */
#define STATUS_DESK_MS 60000 /* for all hosts */

struct colli_status_service {
  colli_status_plan plan;
  int stop_fd; /* readable once the service must end */
  int desk_fd;
  pthread_t desk_thread, door_thread;
  colli_door door;
};

/* Waits until a descriptor is ready. False: the service ends, or time is up. */
bool status_wait(const colli_status_service *service, int fd, short events, uint64_t until_ns);

/* Sends and receives a message by that time. */
bool status_push(const colli_status_service *service, colli_sealed *conn, const void *msg,
                 size_t bytes, uint64_t until_ns);
bool status_pull(const colli_status_service *service, colli_sealed *conn, void *msg, size_t bytes,
                 uint64_t until_ns);

/* The door's thread: sends the copies of this host to those who know the secret. */
void *status_run_door(void *service);

/* Calls pass(ctx, copy, bytes) for each copy of each other host. The bytes are not checked. Stops
 * if pass() returns false, or when time is up. */
void status_fetch(const colli_status_service *service, uint64_t until_ns,
                  bool (*pass)(void *ctx, const void *copy, size_t bytes), void *ctx);

#endif
