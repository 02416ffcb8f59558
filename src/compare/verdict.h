/* verdict.h - what follows from all matches: which grew slowly and which at once, what came first, and who is to blame. */
#ifndef TAP_COMPARE_VERDICT_H
#define TAP_COMPARE_VERDICT_H

#include "base/strbuf.h"
#include "compare/matchfile.h"

/* Looks at the rows in causal order, sets their classes and keeps the verdict in the file. */
tap_status tap__verdict_find(tap_matchfile *file, tap_order order, bool exact, double factor, tap_error *err);
/* The verdict of a file, but its text. */
void tap__verdict_read(tap_matchfile *file, tap_verdict *out);
/* All of it in one line, in the current language. */
tap_status tap__verdict_say(tap_matchfile *file, const tap_verdict *verdict, tap_strbuf *out, tap_error *err);
/* "fc1.output[0]" */
void tap__match_label(tap_strbuf *out, const tap_match *match);

#endif
