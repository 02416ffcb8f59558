/* cmd_summary.c - prints the table of operators that torchair's fx_summary leaves, in the language of the reader. */
#include "cli.h"
#include "csv.h"
#include "jsonout.h"
#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 6, FILE_BYTES = 64 << 20 };

/* The words in the file, whatever the language of the one who wrote it. */
static const struct {
    const char *written, *english;
    term_style style;
} STATES[] = {
    {"已支持", N_("supported"), STYLE_GREEN},
    {"部分支持", N_("partly supported"), STYLE_YELLOW},
    {"未支持", N_("unsupported"), STYLE_RED},
    {"未实现", N_("unsupported"), STYLE_RED},
    {"未注册", N_("not registered"), STYLE_RED},
};

static const column COLUMNS[] = {
    {N_("operator"), '<', 20, 255},
    {N_("type"), '<', 0, 1},
    {N_("state"), '<', 0, 254},
    {N_("calls"), '>', 0, 253},
};

static const char *state_text(const char *written, term_style *style)
{
    for (size_t i = 0; i < sizeof STATES / sizeof STATES[0]; i++)
        if (strcmp(STATES[i].written, written) == 0) {
            *style = STATES[i].style;
            return STATES[i].english;
        }
    *style = STYLE_PLAIN;
    return written;
}

/* The whole file, ending in a NUL; NULL: said why not. */
static char *read_whole(const cli *args, const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        trouble(args, "%s: %s", path, strerror(errno));
        return NULL;
    }
    size_t room = 1 << 16;
    char *text = get_memory(NULL, room);
    *len = 0;
    for (size_t got; (got = fread(text + *len, 1, room - *len - 1, file)) > 0;) {
        *len += got;
        if (*len + 1 == room && room <= FILE_BYTES)
            text = get_memory(text, room *= 2);
        else if (*len + 1 == room)
            break;
    }
    bool failed = ferror(file);
    fclose(file);
    text[*len] = 0;
    if (failed || *len > FILE_BYTES) {
        trouble(args, failed ? N_("%s: cannot be read") : N_("%s: too large for a summary"), path);
        free(text);
        return NULL;
    }
    return text;
}

/* "2次：text" line by line: how often and what; *line moves on. false: no more. */
static bool next_count(char **line, unsigned long long *count, const char **what)
{
    static const char TIMES[] = "次：";
    char *start = *line, *end = strchr(start, '\n'), *after;
    if (!*start)
        return false;
    if (end)
        *end = 0;
    *line = end ? end + 1 : start + strlen(start);
    *count = strtoull(start, &after, 10);
    bool known = after != start && strncmp(after, TIMES, sizeof TIMES - 1) == 0;
    *what = known ? after + sizeof TIMES - 1 : start;
    if (!known)
        *count = 1;
    return true;
}

static void print_counts(const char *title, char *counts)
{
    unsigned long long count;
    const char *what;
    printf("    %s\n", tap_text(title));
    while (next_count(&counts, &count, &what))
        printf("    %5llu x %s\n", count, what);
}

static void json_counts(jsonout *json, const char *key, char *counts)
{
    unsigned long long count;
    const char *what;
    json_open(json, key, '[');
    while (next_count(&counts, &count, &what)) {
        json_open(json, NULL, '{');
        json_uint(json, "count", count);
        json_text(json, "what", what);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void print_json(char **fields)
{
    term_style style;
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "operator", fields[0]);
    json_text(&json, "type", fields[1]);
    json_text(&json, "state", state_text(fields[2], &style));
    json_uint(&json, "calls", strtoull(fields[3], NULL, 10));
    json_counts(&json, "inputs", fields[4]);
    json_counts(&json, "outputs", fields[5]);
    json_end(&json);
}

static void print_row(table *rows, const cli *args, char **fields)
{
    term_style style;
    const char *state = state_text(fields[2], &style);
    table_cell(rows, STYLE_PLAIN, fields[0]);
    table_cell(rows, STYLE_DIM, fields[1]);
    table_cell(rows, style, tap_text(state));
    table_cell(rows, STYLE_PLAIN, fields[3]);
    table_row(rows);
    if (args->value[OPT_LONG]) {
        table_flush(rows);
        print_counts(N_("inputs"), fields[4]);
        print_counts(N_("outputs"), fields[5]);
    }
}

int cmd_summary(const cli *args)
{
    const char *path = args->argument[0];
    size_t len;
    char *fields[FIELDS], *text = read_whole(args, path, &len);
    if (!text)
        return EXIT_TROUBLE;
    if (args->value[OPT_LANG])
        tap_language_set(args->value[OPT_LANG]);
    csv reader;
    csv_start(&reader, text, len);
    int status = EXIT_FINE, count = csv_next(&reader, fields, FIELDS);
    if (count != FIELDS || strcmp(fields[2], "支持状态") != 0)
        status = trouble(args, "%s: not a summary; its first line is %s", path,
                         "目标函数,函数类型,支持状态,调用次数,输入统计,输出统计");
    table *rows = status == EXIT_FINE && !args->json ? table_new(COLUMNS, sizeof COLUMNS / sizeof COLUMNS[0]) : NULL;
    while (status == EXIT_FINE && (count = csv_next(&reader, fields, FIELDS)) >= 0) {
        if (count != FIELDS)
            continue;
        if (rows)
            print_row(rows, args, fields);
        else
            print_json(fields);
    }
    if (rows)
        table_end(rows);
    if (status == EXIT_FINE && reader.broken)
        status = trouble(args, "%s: ends within quotes; was it copied whole?", path);
    free(text);
    return status;
}
