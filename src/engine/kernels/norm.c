/* norm.c - what the normalisations share. */
#include "engine/kernels/norm.h"

#include <string.h>

void tap__moments_add(tap__moments *self, const tap__lanes *lanes, tap__lane_type type, const void *x, int64_t n)
{
    double mean = 0, squares = 0;
    if (n <= 0)
        return;
    lanes->row[TAP_FOLD_SUM][type](&mean, x, n, NULL);
    mean /= (double)n;
    lanes->row[TAP_FOLD_SQUARE][type](&squares, x, n, &mean);
    double difference = mean - self->mean, all = (double)(self->count + n);
    if (self->count == 0) {
        self->mean = mean;
        self->squares = squares;
    } else {
        self->mean += difference * ((double)n / all);
        self->squares += squares + difference * difference * ((double)self->count * (double)n / all);
    }
    self->count += n;
}

bool tap__norm_type(tap_dtype dtype, tap__lane_type *type)
{
    *type = dtype == TAP_F64 ? TAP_LANE_F64 : TAP_LANE_F32;
    return dtype == TAP_F16 || dtype == TAP_BF16 || dtype == TAP_F32 || dtype == TAP_F64;
}

size_t tap__norm_room(const tap__operand *operand, tap__lane_type type)
{
    if (operand->dtype == TAP_DTYPE_NONE)
        return 0;
    size_t bytes = (size_t)tap__operand_count(operand) * (type == TAP_LANE_F64 ? 8 : 4);
    return (bytes + 63) / 64 * 64;
}

void tap__norm_gather(const tap__lanes *lanes, const tap__operand *operand, const void *data, tap__lane_type type,
                      void *room)
{
    tap__space space;
    tap__cursor cursor;
    double buffer[TAP_LINE];
    tap__space_begin(&space, 1);
    for (int i = 0; i < operand->ndim; i++)
        tap__space_add(&space, operand->size[i], &operand->stride[i]);
    tap__space_end(&space, false);
    tap__cursor_seek(&cursor, &space, 0);
    bool wide = operand->dtype == TAP_F64;
    for (int64_t done = 0; done < space.count;) {
        int64_t n = tap__cursor_rest(&cursor);
        n = n < TAP_LINE ? n : TAP_LINE;
        const void *from = tap__line_load(lanes, operand->dtype, tap__element_at(data, operand->dtype, cursor.at[0]),
                                          space.stride[0][space.ndim - 1], n, buffer);
        for (int64_t i = 0; i < n; i++) {
            double value = wide ? ((const double *)from)[i] : ((const float *)from)[i];
            if (type == TAP_LANE_F64)
                ((double *)room)[done + i] = value;
            else
                ((float *)room)[done + i] = (float)value;
        }
        tap__cursor_step(&cursor, n);
        done += n;
    }
}
