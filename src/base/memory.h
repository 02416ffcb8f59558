/* memory.h - the one seam through which the library allocates, so that tests can make the n-th allocation fail.
 * Sizes are checked for overflow here, nowhere else. */
#ifndef TAP_BASE_MEMORY_H
#define TAP_BASE_MEMORY_H

#include "tensortap/tensortap.h"

void *tap__alloc(size_t size);                          /* not zeroed; NULL when there is none */
void *tap__calloc(size_t count, size_t size);           /* zeroed */
void *tap__resize(void *old, size_t count, size_t size); /* old may be NULL; on NULL old is still valid */
void tap__free(void *ptr);
char *tap__strdup(const char *text);
char *tap__strndup(const char *text, size_t len);

#endif
