/* strategies.h: the tables that the strategies' files define. */
#ifndef TRAINER_STRATEGIES_STRATEGIES_H
#define TRAINER_STRATEGIES_STRATEGIES_H

#include "trainer/strategies/strategy.h"

extern const strategy strategy_allreduce;
extern const strategy strategy_pipeline;
extern const strategy strategy_tensor;
extern const strategy strategy_grid;
extern const strategy strategy_ps_async;
extern const strategy strategy_ps_bounded;
extern const strategy strategy_ps_sharded;
extern const strategy strategy_ps_sync;
extern const strategy strategy_local_sgd;
extern const strategy strategy_easgd;
extern const strategy strategy_gossip;
extern const strategy strategy_zero1;

#endif
