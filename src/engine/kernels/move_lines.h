/* move_lines.h - the innermost loops of moves, one set for each width of element and for each dtype that is added. */
#ifndef TAP_ENGINE_MOVE_LINES_H
#define TAP_ENGINE_MOVE_LINES_H

#include "engine/kernels/move.h"

/* Steps and offsets are bytes. */
typedef struct tap__lines {
    void (*line)(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count);
    void (*gather)(char *to, int64_t to_step, const char *from, const int64_t *at, int64_t count);
    void (*scatter)(char *to, const int64_t *at, const char *from, int64_t from_step, int64_t count);
    void (*both)(char *to, const int64_t *to_at, const char *from, const int64_t *from_at, int64_t count);
    void (*tile)(const tap__move_dim *rows, const tap__move_dim *columns, char *to, const char *from);
} tap__lines;

/* Replaces elements of so many bytes. */
const tap__lines *tap__lines_copy(size_t item);
/* Adds the element to what is there, rounded to the dtype each time; bool: or. NULL: not for this dtype. */
const tap__lines *tap__lines_add(tap_dtype dtype);

#endif
