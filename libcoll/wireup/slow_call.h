/*
 * slow_call.h: calls of other libraries that may take minutes and cannot be interrupted. A thread
 * makes the call, so that its caller can give up at a deadline.
 */
#ifndef COLLI_WIREUP_SLOW_CALL_H
#define COLLI_WIREUP_SLOW_CALL_H

#include <stdint.h>

/*
 * Runs make(data) in a thread with all signals blocked, and waits until deadline_ns (colli_now_ns()
 * time) for it to end. Returns 0 when it has ended. ETIMEDOUT: the thread is still running and now
 * owns data, which must be from malloc(); at its end, it calls discard(data). Another errno: no
 * thread could be started, see *syscall. A waiting caller cannot be cancelled.
 */
int colli_slow_call(void (*make)(void *data), void (*discard)(void *data), void *data,
                    uint64_t deadline_ns, const char **syscall);

#endif
