/* door.h: what parts of a bootstrap do at their doors. */
#ifndef COLLI_WIREUP_BOOTSTRAP_DOOR_H
#define COLLI_WIREUP_BOOTSTRAP_DOOR_H

#include "libcoll/net/door.h"
#include "libcoll/wireup/bootstrap/report.h"

/* Opens a door at a listening socket for hellos of a kind to a rank (-1: any). */
coll_status boot_door_open(const boot *b, colli_door *door, int listen_fd, colli_hello_kind kind,
                           int rank);

/* Why connections cannot be accepted, if it has been so for long or `late` says that time is up: an
 * errno. Else 0. */
int boot_door_failure(const boot *b, const colli_door *door, bool late);

/* Waits for what happens at a door, which may be closed. */
void boot_door_watch(boot *b, const colli_door *door);

/* Tells a guest that it is let in. False: it cannot be told, so its connection must be closed, or
 * it would wait for that word; it dials again. */
bool boot_guest_accept(const boot *b, colli_guest *guest);

/* Refuses a guest that knows the secret but does not belong here. */
void boot_guest_refuse(const boot *b, colli_guest *guest);

#endif
