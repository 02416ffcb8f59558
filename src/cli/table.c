/* table.c - rows in columns that fit. */
#include "table.h"

#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 512, GAP = 2 };

typedef struct cell {
    size_t text; /* offset in the arena */
    int width;
    term_style style;
} cell;

struct table {
    const column *columns;
    int count;
    int *width;  /* as drawn */
    int *widest; /* of all cells so far */
    int *content;   /* the same without titles */
    bool *hidden, *empty;
    cell *cells; /* BATCH rows */
    int rows, at;
    char *arena;
    size_t used, cap;
    char *scratch;
    size_t scratch_cap;
    char *line; /* being drawn */
    size_t line_len, line_cap;
    bool titles_done;
};

table *table_new(const column *columns, int count)
{
    table *rows = get_memory(NULL, sizeof *rows);
    size_t n = (size_t)count;
    *rows = (table){.columns = columns, .count = count};
    rows->width = get_memory(NULL, n * sizeof *rows->width);
    rows->widest = get_memory(NULL, n * sizeof *rows->widest);
    rows->content = get_memory(NULL, n * sizeof *rows->content);
    rows->hidden = get_memory(NULL, n * sizeof *rows->hidden);
    rows->empty = get_memory(NULL, n * sizeof *rows->empty);
    rows->cells = get_memory(NULL, n * BATCH * sizeof *rows->cells);
    for (int i = 0; i < count; i++) {
        rows->width[i] = 0;
        rows->widest[i] = text_width(tap_text(columns[i].title));
        rows->content[i] = 0;
        rows->hidden[i] = rows->empty[i] = false;
    }
    return rows;
}

void table_cell(table *rows, term_style style, const char *text)
{
    size_t need = strlen(text) * 6 + 1;
    if (rows->at >= rows->count)
        return;
    if (rows->used + need > rows->cap) {
        rows->cap = (rows->used + need) * 2;
        rows->arena = get_memory(rows->arena, rows->cap);
    }
    cell *it = &rows->cells[rows->rows * rows->count + rows->at];
    it->text = rows->used;
    it->style = style;
    rows->used += text_escape(rows->arena + rows->used, text, &it->width) + 1;
    if (it->width > rows->content[rows->at])
        rows->content[rows->at] = it->width;
    if (it->width > rows->widest[rows->at])
        rows->widest[rows->at] = it->width;
    rows->at++;
}

void table_cellf(table *rows, term_style style, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    table_cell(rows, style, text);
}

void table_row(table *rows)
{
    while (rows->at < rows->count)
        table_cell(rows, STYLE_PLAIN, "");
    rows->at = 0;
    if (++rows->rows == BATCH)
        table_flush(rows);
}

static bool is_shown(const table *rows, int i)
{
    return !rows->hidden[i] && !rows->empty[i];
}

static int total_width(const table *rows)
{
    int total = -GAP;
    for (int i = 0; i < rows->count; i++)
        if (is_shown(rows, i))
            total += rows->width[i] + GAP;
    return total;
}

/* Takes `excess` columns from those that may be cut, the widest first; returns what could not be taken. */
static int cut_columns(table *rows, int excess, bool to_the_bone)
{
    enum { BONE = 6 };
    while (excess > 0) {
        int widest = -1;
        for (int i = 0; i < rows->count; i++)
            if (is_shown(rows, i) && rows->columns[i].cut &&
                rows->width[i] > (to_the_bone ? BONE : rows->columns[i].cut) &&
                (widest < 0 || rows->width[i] > rows->width[widest]))
                widest = i;
        if (widest < 0)
            break;
        rows->width[widest]--;
        excess--;
    }
    return excess;
}

static bool hide_column(table *rows)
{
    int least = -1;
    for (int i = 0; i < rows->count; i++)
        if (is_shown(rows, i) && rows->columns[i].keep < 255 &&
            (least < 0 || rows->columns[i].keep < rows->columns[least].keep))
            least = i;
    if (least >= 0)
        rows->hidden[least] = true;
    return least >= 0;
}

/* Without a terminal nothing is cut: one very long name sticks out of its column and does not widen it for all. */
static int natural_width(const table *rows, int i, int room)
{
    enum { STICKS_OUT = 60 };
    bool capped = !room && rows->columns[i].cut && rows->widest[i] > STICKS_OUT;
    return capped ? STICKS_OUT : rows->widest[i];
}

static void fit(table *rows)
{
    int room = term_width(), excess;
    /* on a terminal a column without content gives its place to others, until there is some */
    for (int i = 0; i < rows->count; i++)
        rows->empty[i] = room && rows->content[i] == 0 && rows->columns[i].keep < 255;
    do {
        for (int i = 0; i < rows->count; i++)
            rows->width[i] = natural_width(rows, i, room);
        excess = room ? cut_columns(rows, total_width(rows) - room, false) : 0;
    } while (excess > 0 && hide_column(rows));
    if (excess > 0)
        cut_columns(rows, excess, true);
}

static void line_add(table *rows, const char *text, size_t len, int spaces_before)
{
    size_t spaces = (size_t)spaces_before;
    if (rows->line_len + spaces + len + 1 > rows->line_cap) {
        rows->line_cap = (rows->line_len + spaces + len + 1) * 2;
        rows->line = get_memory(rows->line, rows->line_cap);
    }
    memset(rows->line + rows->line_len, ' ', spaces);
    memcpy(rows->line + rows->line_len + spaces, text, len);
    rows->line_len += spaces + len;
}

static void line_end(table *rows)
{
    line_add(rows, "\n", 1, 0);
    fwrite(rows->line, 1, rows->line_len, stdout);
    rows->line_len = 0;
}

static void draw_cell(table *rows, int i, const char *text, int width, term_style style, int *owed)
{
    if (width > rows->width[i] && term_is_terminal()) {
        size_t need = strlen(text) + 8;
        if (need > rows->scratch_cap) {
            rows->scratch_cap = need * 2;
            rows->scratch = get_memory(rows->scratch, rows->scratch_cap);
        }
        text_cut_middle(rows->scratch, text, rows->width[i]);
        text = rows->scratch;
        width = text_width(text);
    }
    int space = rows->width[i] > width ? rows->width[i] - width : 0;
    if (rows->columns[i].align == '>')
        *owed += space;
    if (*text) {
        const char *begin = term_style_begin(style), *end = term_style_end(style);
        line_add(rows, begin, strlen(begin), *owed);
        line_add(rows, text, strlen(text), 0);
        line_add(rows, end, strlen(end), 0);
        *owed = 0;
    }
    *owed += (rows->columns[i].align == '>' ? 0 : space) + GAP;
}

static void draw_titles(table *rows)
{
    int owed = 0;
    for (int i = 0; i < rows->count; i++) {
        if (!is_shown(rows, i))
            continue;
        const char *title = tap_text(rows->columns[i].title);
        draw_cell(rows, i, title, text_width(title), STYLE_BOLD, &owed);
    }
    line_end(rows);
}

/* One bit for each. */
static uint64_t shown_columns(const table *rows)
{
    uint64_t bits = 0;
    for (int i = 0; i < rows->count; i++)
        bits |= (uint64_t)is_shown(rows, i) << i;
    return bits;
}

void table_flush(table *rows)
{
    if (rows->rows == 0)
        return;
    progress_clear();
    uint64_t before = shown_columns(rows);
    fit(rows);
    if (!rows->titles_done || shown_columns(rows) != before)
        draw_titles(rows);
    rows->titles_done = true;
    for (int r = 0; r < rows->rows && !output_gone(); r++) {
        int owed = 0;
        for (int i = 0; i < rows->count; i++) {
            const cell *it = &rows->cells[r * rows->count + i];
            if (is_shown(rows, i))
                draw_cell(rows, i, rows->arena + it->text, it->width, it->style, &owed);
        }
        line_end(rows);
    }
    rows->rows = 0;
    rows->used = 0;
}

int table_hidden(const table *rows)
{
    int count = 0;
    for (int i = 0; i < rows->count; i++)
        count += rows->hidden[i];
    return count;
}

void table_end(table *rows)
{
    table_flush(rows);
    free(rows->width);
    free(rows->widest);
    free(rows->content);
    free(rows->hidden);
    free(rows->empty);
    free(rows->cells);
    free(rows->arena);
    free(rows->scratch);
    free(rows->line);
    free(rows);
}
