/* table.h - columns. Rows are held back until some hundred are known, so that the columns fit what comes; on a terminal
 * they are made to fit it too: the widest names are cut in the middle, the least important columns are left out. */
#ifndef TAP_CLI_TABLE_H
#define TAP_CLI_TABLE_H

#include "term.h"

typedef struct column {
    const char *title; /* translated by the table */
    char align;        /* '<' or '>' */
    uint8_t cut;       /* may be cut down to this many columns, and further once nothing is left to hide; 0: never */
    uint8_t keep;      /* the higher, the longer it stays on a narrow terminal; 255: always */
} column;

typedef struct table table;

/* columns must live as long as the table. */
table *table_new(const column *columns, int count);
/* The cells of a row, from left to right; missing ones are empty. */
void table_cell(table *rows, term_style style, const char *text);
void table_cellf(table *rows, term_style style, const char *fmt, ...) TAP_PRINTF(3, 4);
void table_row(table *rows);
/* Prints what is held back. */
void table_flush(table *rows);
/* How many columns had no room, after a flush. */
int table_hidden(const table *rows);
/* Prints the rest (the titles too if there were rows) and frees. */
void table_end(table *rows);

#endif
