/* disk_log.h - everything a program does to the files below one directory, in order: what was written where, which names
 * came and went, and what was told to be kept (fdatasync, fsync). disk_log.c stands before the C library for that.
 *
 * The log lies in memory that a forked child shares with its parent, so that a child records and the parent looks. */
#ifndef TAP_TESTS_DISK_LOG_H
#define TAP_TESTS_DISK_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum disk_kind {
    DISK_WRITE,      /* length bytes at offset of file */
    DISK_SIZE,       /* the file is offset bytes long now */
    DISK_SYNC,       /* of the file: bytes and size are on disk */
    DISK_NAME,       /* name is this file from now on; a file that had the name has it no more */
    DISK_GONE,       /* name is no file any more */
    DISK_SYNC_NAMES, /* the names in directory `name` are on disk */
    DISK_MARK        /* something the program itself says: offset */
} disk_kind;

typedef struct disk_event {
    disk_kind kind;
    int file;
    uint64_t offset, length, bytes; /* bytes: where in disk_log.bytes */
    char name[72], other[72];       /* below the directory; NAME: other is what it was called before, or "" */
} disk_event;

enum { DISK_EVENTS = 20000 };

typedef struct disk_log {
    char dir[200];
    int count, files;
    uint64_t used;
    bool overflow;
    disk_event events[DISK_EVENTS];
    uint8_t bytes[];
} disk_log;

/* Memory for a log, shared with children. */
disk_log *disk_log_new(void);
/* From here on, in this process; NULL: no more. */
void disk_log_into(disk_log *log, const char *dir);
void disk_log_mark(uint64_t what);
/* Seconds that the wall clock is ahead. */
extern long disk_clock_ahead;

#endif
