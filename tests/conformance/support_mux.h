/*
 * support_mux.h: a transport whose connections are virtual channels over those of another one, so
 * that the suite can be stamped onto the mux. Each endpoint is one communicator of a family.
 */
#ifndef COLLI_TESTS_SUPPORT_MUX_H
#define COLLI_TESTS_SUPPORT_MUX_H

#include "coll/coll_transport.h"

/* The operations of the mux over `below`; one at a time in a process. */
const coll_transport_ops *mux_over(const coll_transport_ops *below);

#endif
