/* layout_files.h - what the readers of plain trees of files share: walking a directory within limits, and making
 * records of the files whose names a layout knows. */
#ifndef TAP_RECORD_LAYOUT_FILES_H
#define TAP_RECORD_LAYOUT_FILES_H

#include "record/layouts/layout.h"

/* What a file's name says. */
typedef struct tap_found {
    tap_strbuf name, path;
    char graph[32];
    int64_t step;
    int32_t rank, child;
    uint32_t call;
    tap_kind kind;
    uint64_t time_ns;
    uint64_t order[2];   /* of saving, within rank and child; then step; equal ones by name */
    bool node;           /* name is a node's */
    bool number_calls;   /* call: how many of the same name, kind and rank came before */
} tap_found;

/* Fills found (which is empty) from a path whose last parts are those of the layout; relative is its part below the
 * directory that is read. false: not a file of this layout. */
typedef bool (*tap_parse_fn)(const char *whole, const char *relative, tap_found *found);

/* At least one file at most depth directories below dir (or only that one) parses. */
bool tap__tree_detect(tap_dir *dir, const char *only, int depth, tap_parse_fn parse);
/* Lists them all; dtype and shape come from the files. */
tap_status tap__tree_read(tap_dir *dir, const char *only, int depth, tap_parse_fn parse, tap_record_fn add, void *user,
                          tap_error *err);

/* Calls visit for every plain file below dir, our own hidden ones left out, directories in natural order ("step2"
 * before "step10"), or for the one file `only`; visit returns false to stop. */
typedef bool (*tap_visit_fn)(void *user, const char *whole, const char *relative);
tap_status tap__tree_walk(tap_dir *dir, const char *only, int depth, size_t max_files, tap_visit_fn visit, void *user,
                          tap_error *err);

/* Order of people: runs of digits by value. */
int tap__natural_compare(const char *a, const char *b);
/* The number after prefix, when that is all there is up to end; false: something else. */
bool tap__parse_number(const char *text, const char *end, const char *prefix, uint64_t *out);
/* The component that ends before *end (a "/" or the end); *end moves to its start minus one. NULL: there is none. */
const char *tap__last_component(const char *start, const char **end);
/* "<stem>_<dtype>_<id>" up to end: the dtype is one that files have; false: not so. */
bool tap__parse_typed(const char *text, const char *end, const char **stem_end, uint64_t *id);
/* [text, *end) ends in suffix: takes it off. */
bool tap__strip(const char *text, const char **end, const char *suffix);
/* "..._rank<R>" and "..._child<pid>" at the end, as tap__process_part adds them: takes them off into found. */
void tap__strip_process(const char *text, const char **end, tap_found *found);

#endif
