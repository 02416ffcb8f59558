/* fuzz_csv.c - the reader of comma-separated values: fields lie within the text, and reading comes to an end. */
#include "cli/csv.c"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *fields[6];
    memcpy(text, data, size);
    text[size] = 0;
    csv reader;
    csv_start(&reader, text, size);
    size_t records = 0;
    for (int count; (count = csv_next(&reader, fields, 6)) >= 0; records++) {
        if (count < 1 || count > 6 || records > size)
            abort();
        for (int i = 0; i < count; i++)
            if (fields[i] < text || fields[i] + strlen(fields[i]) > text + size)
                abort();
    }
    free(text);
    return 0;
}
