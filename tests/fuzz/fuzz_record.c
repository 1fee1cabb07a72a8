/* fuzz_record.c: the records that members of the job check in with: what is done with a table in
 * which each rank but one may have written anything. */
#include "fuzz.h"
#include "libcoll/comm/shm_capacity.h"
#include "libcoll/tuning/locality.h"
#include "libcoll/wireup/bootstrap/report.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"

#define NRANKS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static colli_rank_info table[NRANKS];
  const colli_transport_list transports = {{&shm_transport, &verbs_transport, &tcp_transport}, 3};
  colli_locality locality = {0};
  coll_error error = COLL_ERROR_INIT;
  for (int rank = 0; rank < NRANKS; rank++) {
    fuzz_take(&data, &bytes, &table[rank], sizeof(table[rank]));
    if (boot_record_check(&table[rank]))
      return 0;
    if (strlen(table[rank].host) >= sizeof(table[rank].host))
      abort();
  }
  for (int a = 0; a < NRANKS; a++)
    for (int b = 0; b < NRANKS; b++)
      for (int i = 0; i < transports.count; i++) {
        coll_link there = {0}, back = {0};
        const coll_transport_ops *ops = transports.ops[i];
        bool one = ops->reach(table[a].blob[i], table[b].blob[i], &there);
        if (one != (bool)ops->reach(table[b].blob[i], table[a].blob[i], &back))
          abort(); /* the ranks would choose differently */
      }
  colli_shm_capacity_check(table, NRANKS, 1);
  if (colli_shm_capacity_slots(table, NRANKS, 1, 65536) == 0)
    abort();
  colli_rank_table *packed = colli_rank_table_create(table, NRANKS);
  if (packed && colli_locality_find(packed, 1, &transports, NULL, &locality, &error) == COLL_OK)
    colli_locality_free(&locality);
  colli_rank_table_free(packed);
  return 0;
}
