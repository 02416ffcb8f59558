/* scratch.h - for tests: a temporary directory that is removed again, and recordings read back as a plain list. */
#ifndef TAP_TESTS_RECORD_SCRATCH_H
#define TAP_TESTS_RECORD_SCRATCH_H

#include "tensortap/tensortap.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline int scratch_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline char *scratch_make(void)
{
    const char *base = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/tap-test-XXXXXX", base ? base : "/tmp");
    return strdup(mkdtemp(path) ? path : "/nonexistent");
}

/* The directory with all that is in it; path stays the caller's. */
static inline void scratch_clear(const char *path)
{
    nftw(path, scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void scratch_drop(char *path)
{
    scratch_clear(path);
    free(path);
}

/* The records of a query in text form: "name/path@step.call kind dtype[shape] state" joined by newlines. */
static inline char *scratch_list(const char *dir, const char *name, bool incomplete)
{
    tap_run *run;
    tap_cursor *cursor;
    tap_query query;
    tap_record r;
    tap_record_init(&r);
    tap_error err;
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    tap_query_init(&query);
    query.name = name;
    query.incomplete = incomplete;
    if (tap_run_open(dir, &run, &err) != TAP_OK) {
        fprintf(out, "%s", err.message);
        fclose(out);
        return text;
    }
    if (tap_run_query(run, &query, &cursor, &err) != TAP_OK) {
        fprintf(out, "%s", err.message);
    } else {
        while (tap_cursor_next(cursor, &r, &err) == TAP_OK) {
            const tap_dtype_info *info = tap_dtype_describe(r.dtype);
            fprintf(out, "%s%s%s@%lld.%u %s %s[", r.name, *r.path ? "/" : "", r.path, (long long)r.step, r.call,
                    tap_kind_name(r.kind), info ? info->name : "none");
            for (int i = 0; i < r.ndim; i++)
                fprintf(out, "%s%lld", i ? "," : "", (long long)r.shape[i]);
            fprintf(out, "] %d\n", (int)r.state);
        }
        tap_cursor_close(cursor);
    }
    tap_run_close(run);
    fclose(out);
    return text;
}

#endif
