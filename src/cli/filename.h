/* filename.h - names of records as names of files. */
#ifndef TAP_CLI_FILENAME_H
#define TAP_CLI_FILENAME_H

#include <stddef.h>

/* A growing name; start from {0}, free text. */
typedef struct filename {
    char *text;
    size_t len, cap;
} filename;

/* Adds text as it is. */
void filename_add(filename *name, const char *text);
/* Adds text with everything a file system or a shell could take amiss as %XX; UTF-8 stays. */
void filename_add_escaped(filename *name, const char *text);
/* More than `longest` bytes are cut and end in "~" and 16 digits of the whole name's hash. */
void filename_shorten(filename *name, size_t longest);

#endif
