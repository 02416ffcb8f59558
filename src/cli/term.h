/* term.h - the terminal: colours, width, the width of text on it, and the progress bar. */
#ifndef TAP_CLI_TERM_H
#define TAP_CLI_TERM_H

#include "tensortap/tensortap.h"

#include <stdio.h>

/* Looks at the locale, stdout and stderr. Once, first. */
void term_setup(void);
/* "auto", "always" or "never". */
void term_set_color(const char *when);
/* May characters outside ASCII be drawn with? (Text of the recording is always UTF-8.) */
bool term_utf8(void);
bool term_is_terminal(void);
/* Columns of the terminal stdout is; 0: it is none, do not cut. */
int term_width(void);

typedef enum term_style {
    STYLE_PLAIN,
    STYLE_BOLD,
    STYLE_DIM,
    STYLE_RED,
    STYLE_GREEN,
    STYLE_YELLOW,
    STYLE_CYAN
} term_style;
/* Escape sequences; "" without colours. term_style_end ends any of them but PLAIN. */
const char *term_style_begin(term_style style);
const char *term_style_end(term_style style);
void term_print(FILE *to, term_style style, const char *text);

/* One character of UTF-8: its bytes (0: not valid, or the end) and its code. */
size_t utf8_next(const char *text, uint32_t *code);
/* Columns of one character: 0, 1, 2; -1: not printable. */
int code_width(uint32_t code);
/* Columns of a text without control characters. */
int text_width(const char *text);
/* Copies a text with what a terminal must not see (control characters, bytes that are not UTF-8) written \xNN;
 * returns the bytes written, without NUL, and its columns. dst has room for 6 times the text and NUL. */
size_t text_escape(char *dst, const char *text, int *width);
/* The same in one of eight buffers that are used in turn. */
const char *text_shown(const char *text);
/* Cuts the middle out so that at most `width` columns remain, with an ellipsis; dst has strlen(text) + 4 bytes. */
void text_cut_middle(char *dst, const char *text, int width);

/* A bar on stderr, drawn only on a terminal and only after a second. */
typedef struct progress {
    const char *label;
    bool bytes;          /* done and total are bytes, not records */
    uint64_t started_ns, drawn_ns;
} progress;
void progress_start(progress *bar, const char *label, bool bytes);
/* false: the person pressed Ctrl-C, stop. */
bool progress_update(progress *bar, uint64_t done, uint64_t total);
/* tap_progress_fn; user is a progress. */
bool progress_step(void *user, uint64_t done, uint64_t total);
/* Takes the bar away; it comes back with the next update. Before anything else is printed. */
void progress_clear(void);

/* From now on Ctrl-C and SIGTERM set a flag instead of ending the program; a second one, or two seconds, end it. */
void interrupt_catch(void);
bool interrupted(void);
/* Ends as the signal would have. */
void interrupt_finish(void);

/* A reader that leaves (| head) shall not end the program by a signal: work in progress is finished. */
void output_watch(void);
/* Nobody reads stdout any more. */
bool output_gone(void);

uint64_t clock_ns(void);

#endif
