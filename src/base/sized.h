/* sized.h - what a public function asks of its pointers: that they are there, and of structs that may grow, that their size
 * was set. Callers may have been compiled with an older header: what they lack keeps its usual value. */
#ifndef TAP_BASE_SIZED_H
#define TAP_BASE_SIZED_H

#include "base/status.h"

/* E_INVALID from the public function that names its parameter so, when it is NULL. */
#define TAP_NEED(err, pointer)                                                                                       \
    do {                                                                                                             \
        if (!(pointer))                                                                                              \
            return tap__null((err), __func__, #pointer);                                                             \
    } while (0)

/* E_INVALID when the struct (not NULL) was not initialised, or is of a newer library. */
#define TAP_NEED_SIZE(err, type, it)                                                                                 \
    do {                                                                                                             \
        if (!TAP_SIZE_IS_KNOWN(type, it))                                                                            \
            return tap__wrong_size((err), __func__, #type, (it)->size, sizeof(type));                                \
    } while (0)

#define TAP_SIZE_IS_KNOWN(type, it) ((it)->size > sizeof(size_t) && (it)->size <= sizeof(type))

/* Both. */
#define TAP_NEED_SIZED(err, type, it)                                                                                \
    do {                                                                                                             \
        TAP_NEED(err, it);                                                                                           \
        TAP_NEED_SIZE(err, type, it);                                                                                \
    } while (0)

tap_status tap__null(tap_error *err, const char *function, const char *parameter);
tap_status tap__wrong_size(tap_error *err, const char *function, const char *type, size_t size, size_t known);

/* What an _init does: the usual values, in the caller's size, which may be more than the library knows. */
void tap__sized_init(void *it, size_t size, const void *usual, size_t known);
/* Copies what the caller set over *whole, which has the usual values; and what there is into the caller's, as much as it
 * has room for. Both keep the size of `to`. */
void tap__sized_take(void *whole, const void *given);
void tap__sized_give(void *out, const void *whole);

#endif
