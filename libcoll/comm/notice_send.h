/* notice_send.h: sends notices to the other ranks of a family over the control links. */
#ifndef COLLI_COMM_NOTICE_SEND_H
#define COLLI_COMM_NOTICE_SEND_H

#include "libcoll/comm/family.h"

/* Sends a notice made here, about communicator `uid`, to all neighbours, who forward it. */
void colli_notice_send(colli_family *family, uint64_t uid, colli_ctrl_msg *msg);

/* Forwards a notice to all neighbours but its origin and `except` (-1: none). */
void colli_notice_forward(colli_family *family, const colli_ctrl_msg *msg, int except);

#endif
