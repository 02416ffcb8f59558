/* match.h - the two small languages people write filters in: name globs and number ranges. */
#ifndef TAP_BASE_MATCH_H
#define TAP_BASE_MATCH_H

#include "tensortap/tensortap.h"

/* One glob: "*" any run, "?" one character, "[a-z]" and "[!a-z]" sets, "\" takes the next character as it is. */
bool tap__glob_match(const char *glob, size_t glob_len, const char *text);
/* Globs with "|" between: true when one matches and none with a leading "!" does; only "!" globs: all but those.
 * NULL or "" match everything. */
bool tap__names_match(const char *globs, const char *text);

/* "0|10-20|100-", also with "," between; NULL or "" is everything. Parsed once, asked often. */
typedef struct tap_ranges {
    size_t count;       /* 0: everything */
    struct tap_range {
        int64_t first, last;
    } *items;
} tap_ranges;
tap_status tap__ranges_parse(tap_ranges *ranges, const char *text, const char *what, tap_error *err);
bool tap__ranges_contain(const tap_ranges *ranges, int64_t number);
void tap__ranges_free(tap_ranges *ranges);

#endif
