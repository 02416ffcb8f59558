/* opened.h - for tests: directories opened by path, kept until the program ends, and the paths of an attempt's files. */
#ifndef TAP_TESTS_OPENED_H
#define TAP_TESTS_OPENED_H

#include "base/dir.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/newfile.h"
#include "record/native/attempt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The directory at path, made when it is not there; NULL when it cannot be opened. */
static inline tap_dir *opened(const char *path)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static tap_dir *kept[1024];
    static char *paths[1024];
    static size_t count;
    tap_dir *dir = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = count; i-- > 0 && !dir;)
        if (strcmp(paths[i], path) == 0 && tap__dir_look(kept[i]) == TAP_DIR_HERE)
            dir = kept[i];
    if (!dir && count < 1024 && tap__dir_open(path, true, &dir, NULL) == TAP_OK) {
        paths[count] = strdup(path);
        kept[count++] = dir;
    }
    pthread_mutex_unlock(&lock);
    return dir;
}

/* A file in place at path, whose directory is there. */
static inline tap_status put_at(const char *path, const void *bytes, size_t len)
{
    const char *name;
    tap_dir *dir;
    tap_status status = tap__dir_of_file(path, true, &dir, &name, NULL);
    if (status == TAP_OK)
        status = tap__file_put(dir, name, bytes, len, NULL);
    tap__dir_close(dir);
    return status;
}

/* tap__free by the caller. */
static inline char *attempt_path(const tap_attempt_files *files, const char *suffix)
{
    char name[TAP_ATTEMPT_NAME];
    return tap__path_join(files->root->path, tap__attempt_name(files, suffix, name));
}

static inline char *segment_path(const tap_attempt_files *files, uint32_t segment)
{
    char name[TAP_ATTEMPT_NAME];
    return tap__path_join(files->root->path, tap__segment_name(files, segment, name));
}

#endif
