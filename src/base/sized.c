/* sized.c - structs that start with their size, and pointers that are not there. */
#include "base/sized.h"

#include <string.h>

tap_status tap__null(tap_error *err, const char *function, const char *parameter)
{
    return tap_fail(err, TAP_E_INVALID, "%s: %s is NULL", function, parameter);
}

tap_status tap__wrong_size(tap_error *err, const char *function, const char *type, size_t size, size_t known)
{
    if (size > known)
        return tap_fail(err, TAP_E_INVALID, "%s: %s.size is %zu, and this library knows %zu bytes of it; use a library "
                        "as new as its header, and set the size with %s_init", function, type, size, known, type);
    return tap_fail(err, TAP_E_INVALID, "%s: %s.size is %zu; set it with %s_init", function, type, size, type);
}

void tap__sized_init(void *it, size_t size, const void *usual, size_t known)
{
    memset(it, 0, size);
    memcpy(it, usual, size < known ? size : known);
    *(size_t *)it = size;
}

static void copy_after_size(void *to, const void *from, size_t size)
{
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size, size - sizeof size);
}

void tap__sized_take(void *whole, const void *given)
{
    copy_after_size(whole, given, *(const size_t *)given);
}

void tap__sized_give(void *out, const void *whole)
{
    copy_after_size(out, whole, *(const size_t *)out);
}
