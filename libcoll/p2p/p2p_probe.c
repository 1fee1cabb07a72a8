/*
 * p2p_probe.c: probes, which look for an unexpected message, and messages that a probe took out of
 * the queue. A rank has at most one probe under way, because a probe waits or ends at once.
 */
#include "libcoll/base/assert.h"
#include "libcoll/p2p/p2p_internal.h"

/* Ends the probe, which has found a message. */
static void end_probe(colli_p2p *p2p, colli_p2p_kept *message) {
  colli_post *probe = p2p->probe;
  p2p->probe = NULL;
  p2p->found = message;
  p2p_finish(p2p, probe);
}

void p2p_probe_kept(colli_p2p *p2p) {
  if (p2p->last && p2p_seeks(p2p, p2p->last->peer, p2p->last->head.tag))
    p2p->sought = NULL;
  if (p2p->last && p2p_probes(p2p, p2p->last->peer, p2p->last->head.tag))
    end_probe(p2p, p2p->last);
}

colli_p2p_kept *colli_p2p_look(const colli_p2p *p2p, int peer, int tag) {
  colli_p2p_kept *message = p2p->first;
  while (message && !p2p_sees(peer, tag, message->peer, message->head.tag))
    message = message->later;
  return message;
}

void p2p_start_probe(colli_p2p *p2p, colli_post *post) {
  COLLI_ASSERT_RANK(!p2p->probe, p2p->exec->rank);
  p2p->probe = post;
  colli_p2p_kept *message = colli_p2p_look(p2p, post->peer, post->tag);
  if (message)
    end_probe(p2p, message);
}

void colli_p2p_withdraw(colli_p2p *p2p) {
  end_probe(p2p, NULL);
}

void colli_p2p_take(colli_p2p *p2p, colli_p2p_kept *message) {
  COLLI_ASSERT_RANK(!message->taken, p2p->exec->rank);
  p2p_kept_remove(p2p, p2p->peers[message->peer], message);
  message->taken = true;
  message->prev = NULL;
  message->next = p2p->taken;
  if (p2p->taken)
    p2p->taken->prev = message;
  p2p->taken = message;
}

void p2p_untake(colli_p2p *p2p, colli_p2p_kept *message) {
  COLLI_ASSERT_RANK(message->taken, p2p->exec->rank);
  *(message->prev ? &message->prev->next : &p2p->taken) = message->next;
  if (message->next)
    message->next->prev = message->prev;
  message->taken = false;
}

void colli_p2p_drop_taken(colli_p2p *p2p, colli_p2p_kept *message) {
  p2p_untake(p2p, message);
  p2p_kept_put(p2p, message);
}
