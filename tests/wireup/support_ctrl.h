/* support_ctrl.h: the sockets of control links. */
#ifndef TESTS_WIREUP_SUPPORT_CTRL_H
#define TESTS_WIREUP_SUPPORT_CTRL_H

#include "libcoll/wireup/ctrl_links.h"

/* Two connected sockets over loopback. */
void ctrl_pair(int fds[2]);

/* A connection with the same key in both directions. */
colli_sealed ctrl_unkeyed(int fd);

#endif
