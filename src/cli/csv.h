/* csv.h - reads files of comma-separated values: quotes, doubled quotes and line ends inside them, a byte order mark. */
#ifndef TAP_CLI_CSV_H
#define TAP_CLI_CSV_H

#include <stdbool.h>
#include <stddef.h>

/* A text being read; fields are taken apart in place, so it must be writable and end in a NUL at text[len]. */
typedef struct csv {
    char *at, *end;
    bool broken; /* a quote was never closed */
} csv;

void csv_start(csv *reader, char *text, size_t len);
/* The fields of the next record, at most max of them (more are dropped), each ending in a NUL; -1: no more. */
int csv_next(csv *reader, char **fields, int max);

#endif
