/* parts.c: what a call takes that is made in parts. */
#include "libcoll/tuning/parts.h"

#define MORE 4 /* parts from which the time of one more is found: by then all ranks are busy */

colli_partition colli_parts_as_passes(const colli_partition *part, size_t parts) {
  colli_partition all = *part;
  all.count *= parts;
  all.region *= parts;
  all.passes *= (int)parts;
  return all;
}

/* What so many parts take that are started together. */
static double price(const colli_choice *choice, size_t parts, const colli_shape *shape,
                    size_t elem_bytes, const colli_model *model) {
  colli_choice all = *choice;
  all.partition = colli_parts_as_passes(&choice->partition, parts);
  return colli_choice_formula(&all, shape, elem_bytes, model);
}

colli_parts colli_parts_price(const colli_choice *choice, const colli_shape *shape,
                              size_t elem_bytes, const colli_model *model) {
  const double some = price(choice, MORE, shape, elem_bytes, model);
  return (colli_parts){price(choice, 1, shape, elem_bytes, model),
                       (price(choice, 2 * MORE, shape, elem_bytes, model) - some) / MORE};
}

/* How long one part takes that is alone. */
static double way(const colli_parts *price, colli_parts_besides besides) {
  return price->first + besides.work + besides.wait;
}

double colli_parts_pace(const colli_parts *price, size_t ahead, colli_parts_besides besides) {
  const double each = way(price, besides) / (double)ahead;
  const double slower = price->next > besides.work ? price->next : besides.work;
  return slower > each ? slower : each;
}

double colli_parts_time(const colli_parts *price, size_t parts, size_t ahead,
                        colli_parts_besides besides) {
  return way(price, besides) + (double)(parts - 1) * colli_parts_pace(price, ahead, besides);
}
