/*
 * support_ctrl.h: control links in a simulated world: a binary tree and a ring, like the sockets
 * between processes, that close without a goodbye when their rank is killed.
 */
#ifndef TESTS_SIM_SUPPORT_CTRL_H
#define TESTS_SIM_SUPPORT_CTRL_H

#include "libcoll/comm/ctrl.h"

/* ctrls[r] becomes rank r's; false without memory. Each is closed with colli_ctrl_close(). */
bool sim_ctrl_create(colli_ctrl **ctrls, int nranks);

#endif
