/* norm.h - what normalisations share: parameters brought to the type that is computed in, and moments of lines. */
#ifndef TAP_ENGINE_NORM_H
#define TAP_ENGINE_NORM_H

#include "engine/kernels/lines.h"

/* Mean and sum of squared deviations from it, of `count` values. */
typedef struct tap__moments {
    double mean, squares;
    int64_t count;
} tap__moments;

/* Joins n values that lie together. */
void tap__moments_add(tap__moments *self, const tap__lanes *lanes, tap__lane_type type, const void *x, int64_t n);

/* Whether the dtype is a float that norms compute with; type: float or double. */
bool tap__norm_type(tap_dtype dtype, tap__lane_type *type);
/* The operand's elements, in row-major order, as numbers of the type, in `room`. */
void tap__norm_gather(const tap__lanes *lanes, const tap__operand *operand, const void *data, tap__lane_type type,
                      void *room);
/* Bytes of such room; 0 for an operand left out. */
size_t tap__norm_room(const tap__operand *operand, tap__lane_type type);

#endif
