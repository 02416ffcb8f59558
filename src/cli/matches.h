/* matches.h - how matches of a comparison are shown: as a table, as JSON and as comma-separated values. */
#ifndef TAP_CLI_MATCHES_H
#define TAP_CLI_MATCHES_H

#include "cli.h"
#include "table.h"

#include "tensortap/tensortap_compare.h"

/* What people call a class, in their language. */
const char *match_class_text(tap_match_class what);
term_style match_class_style(const tap_match *match);

extern const column MATCH_COLUMNS[];
extern const int MATCH_COLUMN_COUNT;
void match_row(table *rows, const tap_match *match);

void match_json(const tap_match *match);
void match_csv_titles(void);
void match_csv(const tap_match *match);

#endif
