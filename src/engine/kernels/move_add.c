/* move_add.c - the innermost loops of moves that add. */
#include "engine/kernels/move_lines.h"
#include "engine/kernels/number.h"

/* integers wrap around, which only unsigned arithmetic may do */
static inline uint64_t wrap_add(uint64_t a, uint64_t b)
{
    return a + b;
}

#define ADD_INT(type) (type) wrap_add((uint64_t)a, (uint64_t)b)

#define LINES(name, type, sum)                                                                                       \
    static inline void put_##name(char *to, const char *from)                                                        \
    {                                                                                                                \
        type a = *(type *)to, b = *(const type *)from;                                                               \
        *(type *)to = sum;                                                                                           \
    }                                                                                                                \
    static void line_##name(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count)           \
    {                                                                                                                \
        int64_t item = (int64_t)sizeof(type);                                                                        \
        if (to_step == item && from_step == item)                                                                    \
            for (int64_t i = 0; i < count; i++)                                                                      \
                put_##name(to + i * item, from + i * item);                                                          \
        else                                                                                                         \
            for (int64_t i = 0; i < count; i++)                                                                      \
                put_##name(to + i * to_step, from + i * from_step);                                                  \
    }                                                                                                                \
    static void gather_##name(char *to, int64_t to_step, const char *from, const int64_t *at, int64_t count)         \
    {                                                                                                                \
        for (int64_t i = 0; i < count; i++)                                                                          \
            put_##name(to + i * to_step, from + at[i]);                                                              \
    }                                                                                                                \
    static void scatter_##name(char *to, const int64_t *at, const char *from, int64_t from_step, int64_t count)      \
    {                                                                                                                \
        for (int64_t i = 0; i < count; i++)                                                                          \
            put_##name(to + at[i], from + i * from_step);                                                            \
    }                                                                                                                \
    static void both_##name(char *to, const int64_t *to_at, const char *from, const int64_t *from_at, int64_t count) \
    {                                                                                                                \
        for (int64_t i = 0; i < count; i++)                                                                          \
            put_##name(to + to_at[i], from + from_at[i]);                                                            \
    }                                                                                                                \
    static const tap__lines lines_##name = {line_##name, gather_##name, scatter_##name, both_##name, NULL};

#define INT_LINES(name, type, ...) LINES(name, type, ADD_INT(type))
#define FLOAT_LINES(name, type, computed, load, store) LINES(name, type, store(load(a) + load(b)))
TAP__NUMBERS_INT(INT_LINES)
TAP__NUMBERS_FLOAT(FLOAT_LINES)
LINES(BOOL, uint8_t, a || b)
LINES(C64, tap__complex_float, tap__add_complex_float(a, b))
LINES(C128, tap__complex_double, tap__add_complex_double(a, b))

const tap__lines *tap__lines_add(tap_dtype dtype)
{
    switch (dtype) {
#define CASE(name, ...) case TAP_##name: return &lines_##name;
        TAP__NUMBERS_INT(CASE)
        TAP__NUMBERS_FLOAT(CASE)
        CASE(BOOL)
        CASE(C64)
        CASE(C128)
    default: return NULL;
    }
}
