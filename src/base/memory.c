/* memory.c - allocation through the caller's allocator or libc's. */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static void *libc_resize(void *user, void *old, size_t size)
{
    (void)user;
    if (size == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, size);
}

static tap_allocator current = {libc_resize, NULL};

void tap_allocator_set(const tap_allocator *allocator)
{
    current = allocator ? *allocator : (tap_allocator){libc_resize, NULL};
}

void *tap__alloc(size_t size)
{
    return current.resize(current.user, NULL, size ? size : 1);
}

void *tap__calloc(size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    void *ptr = tap__alloc(total);
    if (ptr)
        memset(ptr, 0, total);
    return ptr;
}

void *tap__resize(void *old, size_t count, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return NULL;
    return current.resize(current.user, old, total ? total : 1);
}

void tap__free(void *ptr)
{
    if (ptr)
        current.resize(current.user, ptr, 0);
}

char *tap__strndup(const char *text, size_t len)
{
    char *copy = tap__alloc(len + 1);
    if (copy) {
        memcpy(copy, text, len);
        copy[len] = 0;
    }
    return copy;
}

char *tap__strdup(const char *text)
{
    return tap__strndup(text, strlen(text));
}
