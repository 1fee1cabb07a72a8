/* verbs_device_internal.h: what the files behind verbs_device.h share. */
#ifndef COLLI_TRANSPORTS_VERBS_DEVICE_PARTS_H
#define COLLI_TRANSPORTS_VERBS_DEVICE_PARTS_H

#include "transports/verbs/verbs_device.h"

/*
 * How far a port came towards being a rail. If none is one, the port that came furthest gives the
 * reason.
 */
typedef enum verbs_refusal_stage {
  VERBS_REFUSED_SETTINGS = 1, /* COLL_VERBS_DEVICE or COLL_VERBS_PORT leave it out */
  VERBS_REFUSED_KIND,         /* no reliable connections as InfiniBand defines them */
  VERBS_REFUSED_OPEN,         /* the device cannot be opened or asked */
  VERBS_REFUSED_DOWN,         /* the port is not active */
  VERBS_REFUSED_ADDRESS       /* no address that could be used */
} verbs_refusal_stage;

/* Why there is no rail so far. */
typedef struct verbs_refusal {
  int stage; /* 0: nothing was refused */
  int ports; /* how many were refused at that stage */
  verbs_fault fault;
} verbs_refusal;

/* Notes a reason, unless a port that came further has given one. */
void verbs_refuse(verbs_refusal *refusal, verbs_refusal_stage stage, coll_status status,
                  const char *syscall, int sys_errno, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/*
 * Whether COLL_VERBS_DEVICE lets a port through. port 0: whether it lets any port of the device
 * through.
 */
bool verbs_device_allowed(const verbs_settings *settings, const char *name, int port);

/* Chooses the addresses of rail->port, of which there are `entries`; false with a reason. */
bool verbs_gids_choose(const verbs_lib *lib, const verbs_settings *settings, verbs_rail *rail,
                       struct ibv_context *context, int entries, verbs_refusal *refusal);

/* Finds where the device sits: rail->pci and rail->place. */
void verbs_locality_find(const struct ibv_device *device, verbs_rail *rail);

#endif
