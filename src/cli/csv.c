/* csv.c - comma-separated values as RFC 4180 has them. */
#include "csv.h"

#include <string.h>

void csv_start(csv *reader, char *text, size_t len)
{
    static const char MARK[] = "\xEF\xBB\xBF";
    size_t skip = len >= 3 && memcmp(text, MARK, 3) == 0 ? 3 : 0;
    *reader = (csv){.at = text + skip, .end = text + len};
}

/* Takes the quotes off in place; reader->at is behind the closing one afterwards. */
static char *quoted_field(csv *reader, char **stop)
{
    char *start = ++reader->at, *out = start;
    while (reader->at < reader->end) {
        if (*reader->at != '"') {
            *out++ = *reader->at++;
        } else if (reader->at + 1 < reader->end && reader->at[1] == '"') {
            *out++ = '"';
            reader->at += 2;
        } else {
            reader->at++;
            *stop = out;
            return start;
        }
    }
    reader->broken = true;
    *stop = out;
    return start;
}

static char *plain_field(csv *reader, char **stop)
{
    char *start = reader->at;
    while (reader->at < reader->end && !strchr(",\r\n", *reader->at))
        reader->at++;
    *stop = reader->at;
    return start;
}

int csv_next(csv *reader, char **fields, int max)
{
    if (reader->at >= reader->end)
        return -1;
    int count = 0;
    for (;;) {
        char *stop;
        bool quoted = reader->at < reader->end && *reader->at == '"';
        char *start = quoted ? quoted_field(reader, &stop) : plain_field(reader, &stop);
        if (quoted) /* text behind the closing quote is not of the field */
            while (reader->at < reader->end && !strchr(",\r\n", *reader->at))
                reader->at++;
        char after = reader->at < reader->end ? *reader->at : '\n';
        if (reader->at < reader->end)
            reader->at++;
        *stop = 0;
        if (count < max)
            fields[count++] = start;
        if (after == ',')
            continue;
        if (after == '\r' && reader->at < reader->end && *reader->at == '\n')
            reader->at++;
        return count;
    }
}
