/* failing_allocator.h - memory that runs out: a number of allocations succeed, and none after them. Set allocations_left,
 * then tap_allocator_set(&FAILING_ALLOCATOR); tap_allocator_set(NULL) ends it. Included by one .c file each. */
#ifndef TAP_TESTS_FAILING_ALLOCATOR_H
#define TAP_TESTS_FAILING_ALLOCATOR_H

#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"

static _Atomic long allocations_left; /* the library's own threads allocate too */

static void *allocate_or_fail(void *user, void *old, size_t size)
{
    (void)user;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return atomic_fetch_sub(&allocations_left, 1) > 0 ? realloc(old, size) : NULL;
}

static const tap_allocator FAILING_ALLOCATOR = {allocate_or_fail, NULL};

#endif
