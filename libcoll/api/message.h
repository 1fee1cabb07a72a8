/* message.h: sends and receives, which end at once if they can. */
#ifndef COLLI_API_MESSAGE_H
#define COLLI_API_MESSAGE_H

#include "libcoll/call/call.h"

/* As colli_call_run() and colli_call_launch(), for send and recv. */
coll_status colli_message_run(coll_comm *comm, const colli_call *call);
coll_status colli_message_launch(coll_comm *comm, const colli_call *call, coll_request **request);

#endif
